"""Moves of partitions between log directories while they are served (AlterReplicaLogDirs, KIP-113)."""

import os
import random

import pytest

from batches import Record, build
from brokers import wait_until
from disks import Disk
from rawkafka import Kerr
from writers import Writer, acknowledged, finish

pytestmark = pytest.mark.barnabas_only

MEGABYTE = 1 << 20
SEED = int(os.environ.get("BARNABAS_SEED", str(random.randrange(1 << 30))))
BYTES = random.Random(SEED).randbytes(64 * 1024)
KILLS = int(os.environ.get("BARNABAS_KILLS", "10"))


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / name for name in ("a", "b", "c")]


@pytest.fixture
def make_broker(fresh_broker, dirs):
    def make(**config):
        base = {
            "log.dirs": ",".join(map(str, dirs)),
            "log.segment.delete.delay.ms": 0,
            "log.flush.offset.checkpoint.interval.ms": 100,
        }
        return fresh_broker(base | {key.replace("_", "."): value for key, value in config.items()})

    return make


def place_of(dirs, topic, partition=0):
    """For a moment at the end of a move it is in both."""

    def places():
        return [d for d in dirs if (d / f"{topic}-{partition}").exists()]

    return wait_until(lambda: len(places()) == 1 and places()[0], 30, "it is in one place")


def alter(conn, topic, partition, directory, version=None):
    rows = [{"Path": str(directory), "Topics": [{"Name": topic, "Partitions": [partition]}]}]
    (row,) = conn.call("AlterReplicaLogDirs", version, Dirs=rows).Results
    assert row.TopicName == topic and row.Partitions[0].PartitionIndex == partition
    return row.Partitions[0].ErrorCode


def described(conn, topic, partition=0):
    """(directory, size, lag, is a future one) of the partition."""
    found = []
    for row in conn.call("DescribeLogDirs", Topics=[{"Topic": topic, "Partitions": [partition]}]).Results:
        for t in row.Topics:
            assert t.Name == topic
            found += [(row.LogDir, p.PartitionSize, p.OffsetLag, p.IsFutureKey) for p in t.Partitions]
    return sorted(found, key=lambda row: row[3])


def await_move(conn, topic, directory, partition=0):
    wait_until(
        lambda: [(d, f) for d, _, _, f in described(conn, topic, partition)] == [(str(directory), False)],
        120,
        "the move is over",
    )


def fill(conn, topic, megabytes, partition=0):
    for i in range(megabytes):
        records = [Record(b"%d" % i, BYTES) for _ in range(15)]
        assert conn.produce(topic, partition, build(records)).ErrorCode == 0


def set_rate(conn, rate):
    rows = [{"Name": "replica.alter.log.dirs.io.max.bytes.per.second", "ConfigOperation": 0, "Value": str(rate)}]
    asked = [{"ResourceType": 4, "ResourceName": "0", "Configs": rows}]
    assert conn.call("IncrementalAlterConfigs", Resources=asked).Responses[0].ErrorCode == 0
    key = {"ResourceType": 4, "ResourceName": "0", "ConfigurationKeys": [rows[0]["Name"]]}
    wait_until(
        lambda: conn.call("DescribeConfigs", Resources=[key]).Results[0].Configs[0].Value == str(rate),
        30,
        "the limit is in force",
    )


def contents(conn, topic, partition=0):
    start = conn.list_offset(topic, partition, -2).Offset
    return start, [(r.offset, r.key, r.value) for r in conn.read_all(topic, partition, start)]


def leftovers(dirs):
    return [p for d in dirs for p in d.iterdir() if p.name.endswith(("-future", "-delete"))]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_partition_moves_with_all_it_has(make_broker, dirs, topic_name, version):
    broker = make_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name, configs={"segment.bytes": str(MEGABYTE)})
        ids = c.call("InitProducerId", TransactionalId=None, TransactionTimeoutMs=60000)
        for i in range(5):
            batch = build(
                [Record(b"k", BYTES)] * 10, producer_id=ids.ProducerId, producer_epoch=ids.ProducerEpoch, base_sequence=i * 10
            )
            assert c.produce(topic_name, 0, batch).ErrorCode == 0
        fill(c, topic_name, 3)
        rows = [{"Name": topic_name, "Partitions": [{"PartitionIndex": 0, "Offset": 13}]}]
        assert c.call("DeleteRecords", Topics=rows, TimeoutMs=1000).Topics[0].Partitions[0].ErrorCode == 0
        before = contents(c, topic_name)
        assert before[0] == 13
        source = place_of(dirs, topic_name)
        target = next(d for d in dirs if d != source)
        assert alter(c, topic_name, 0, target, version) == Kerr.NONE
        await_move(c, topic_name, target)
        assert contents(c, topic_name) == before
        # The producer goes on where it was, though its last batch may be sent twice.
        for sequence in (40, 50):
            batch = build(
                [Record(b"k", BYTES)] * 10,
                producer_id=ids.ProducerId,
                producer_epoch=ids.ProducerEpoch,
                base_sequence=sequence,
            )
            assert c.produce(topic_name, 0, batch).ErrorCode == 0
        after = contents(c, topic_name)
        assert len(after[1]) == len(before[1]) + 10
        wait_until(lambda: not leftovers(dirs), 30, "what it left is removed")
        assert place_of(dirs, topic_name) == target
    for end in ("stop", "kill"):
        getattr(broker, end)()
        broker.start()
        with broker.connect() as c:
            c.await_topic(topic_name, 1)
            assert contents(c, topic_name) == after
    broker.stop()


def test_producers_move_whose_records_are_deleted(make_broker, dirs, topic_name):
    broker = make_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name)
        ids = c.call("InitProducerId", TransactionalId=None, TransactionTimeoutMs=60000)
        first = build(
            [Record(b"k", b"v")] * 10, producer_id=ids.ProducerId, producer_epoch=ids.ProducerEpoch, base_sequence=0
        )
        assert c.produce(topic_name, 0, first).BaseOffset == 0
        fill(c, topic_name, 2)
        rows = [{"Name": topic_name, "Partitions": [{"PartitionIndex": 0, "Offset": 12}]}]
        assert c.call("DeleteRecords", Topics=rows, TimeoutMs=1000).Topics[0].Partitions[0].ErrorCode == 0
        before = contents(c, topic_name)
        target = next(d for d in dirs if d != place_of(dirs, topic_name))
        assert alter(c, topic_name, 0, target) == Kerr.NONE
        await_move(c, topic_name, target)
        again = c.produce(topic_name, 0, first)
        assert (again.ErrorCode, again.BaseOffset) == (Kerr.NONE, 0), "it is known to be a repetition"
        assert contents(c, topic_name) == before
    broker.stop()


def record_of(number):
    def record(i):
        at = (i * 37) % (len(BYTES) - 2000)
        return {"value": b"%d %d " % (number, i) + BYTES[at : at + i % 2000], "partition": 0}

    return record


def verify(conn, topic, writers):
    _, records = contents(conn, topic)
    assert [offset for offset, _, _ in records] == list(range(len(records))), f"seed {SEED}"
    seen = {writer.number: [] for writer in writers}
    for offset, _, value in records:
        number, i = map(int, value.split(b" ", 2)[:2])
        assert value == record_of(number)(i)["value"], f"seed {SEED}"
        seen[number].append((i, offset))
    for writer in writers:
        assert [i for i, _ in seen[writer.number]] == list(range(writer.written)), f"seed {SEED}: lost, doubled or moved"
        for i, offset in seen[writer.number]:
            assert writer.acknowledged[i][1] in (offset, -1001, -1), f"seed {SEED}"


def settled(writers):
    return acknowledged(writers, SEED) == sum(w.limit for w in writers)


def start_writers(broker, topic, count=3):
    writers = [Writer(broker, topic, n, record_of(n)) for n in range(count)]
    for writer in writers:
        writer.start()
    return writers


@pytest.mark.timeout(300)
def test_moves_go_on_under_load_and_no_client_notices(make_broker, dirs, topic_name):
    broker = make_broker().start()
    with broker.connect() as c, broker.connect() as waiting:
        c.new_topic(topic_name, configs={"segment.bytes": str(MEGABYTE)})
        writers = start_writers(broker, topic_name)
        try:
            for turn in range(6):
                for writer in writers:
                    writer.limit += 1000
                source = place_of(dirs, topic_name)
                target = dirs[(dirs.index(source) + 1) % 3]
                # A fetch that waits at the end is served by the new log.
                end = c.list_offset(topic_name, 0, -1).Offset
                correlation = waiting.send_fetch(topic_name, 0, end, max_wait_ms=60000, min_bytes=1)
                assert alter(c, topic_name, 0, target) == Kerr.NONE
                await_move(c, topic_name, target)
                wait_until(lambda: settled(writers), 120, f"all is acknowledged, seed {SEED}")
                answer = waiting.receive(correlation).Responses[0].Partitions[0]
                assert answer.ErrorCode == Kerr.NONE, f"turn {turn}"
        finally:
            finish(writers)
        verify(c, topic_name, writers)
        wait_until(lambda: not leftovers(dirs), 30, "nothing is left behind")
    broker.stop()


def test_a_fetch_that_waits_at_the_end_is_woken_by_what_is_appended_after_the_move(make_broker, dirs, topic_name):
    broker = make_broker().start()
    with broker.connect() as c, broker.connect() as waiting:
        c.new_topic(topic_name)
        assert c.produce(topic_name, 0, build([Record(b"k", b"first")])).ErrorCode == 0
        correlation = waiting.send_fetch(topic_name, 0, 1, max_wait_ms=60000, min_bytes=1)
        target = next(d for d in dirs if d != place_of(dirs, topic_name))
        assert alter(c, topic_name, 0, target) == Kerr.NONE
        await_move(c, topic_name, target)
        assert c.produce(topic_name, 0, build([Record(b"k", b"second")])).BaseOffset == 1
        answer = waiting.receive(correlation).Responses[0].Partitions[0]
        assert answer.ErrorCode == Kerr.NONE and b"second" in answer.Records
    broker.stop()


@pytest.mark.timeout(600)
def test_kills_in_the_midst_of_moves_lose_nothing(make_broker, dirs, topic_name):
    rng = random.Random(SEED)
    broker = make_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name, configs={"segment.bytes": str(MEGABYTE)})
        fill_by = start_writers(broker, topic_name)
    writers = fill_by
    try:
        for kill in range(KILLS):
            for writer in writers:
                writer.limit += 500
            with broker.connect() as c:
                c.await_topic(topic_name, 1)
                before = acknowledged(writers, SEED)
                wait_until(lambda: acknowledged(writers, SEED) >= before + 200, 60, f"it goes on, seed {SEED}")
                # Before anything is looked at: the move of the last turn may end at any moment, and be the wanted one.
                moves = broker.output().count(" moved ")
                current = place_of(dirs, topic_name)
                set_rate(c, rng.choice([100_000, 3_000_000, 1 << 62]))
                assert alter(c, topic_name, 0, rng.choice([d for d in dirs if d != current])) == Kerr.NONE
                wanted = rng.choice(["began", "over"]) if kill % 2 else "random"
                if wanted == "over":
                    set_rate(c, 1 << 62)
                    wait_until(lambda: broker.output().count(" moved ") > moves, 60, f"it is over, seed {SEED}")
                elif wanted == "began":
                    wait_until(
                        lambda: len(described(c, topic_name)) == 2 or broker.output().count(" moved ") > moves,
                        60,
                        f"it has begun, seed {SEED}",
                    )
                else:
                    goal = min(acknowledged(writers, SEED) + rng.randrange(300), sum(w.limit for w in writers))
                    wait_until(lambda g=goal: acknowledged(writers, SEED) >= g, 60, f"random moment, seed {SEED}")
            broker.kill()
            broker.start()
        wait_until(lambda: settled(writers), 120, f"all is acknowledged, seed {SEED}")
    finally:
        finish(writers)
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        set_rate(c, 1 << 62)
        wait_until(lambda: len(described(c, topic_name)) == 1, 60, "the last move is over")
        verify(c, topic_name, writers)
        wait_until(lambda: not leftovers(dirs), 30, "nothing is left behind")
    broker.stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_move_goes_on_after_a_restart(make_broker, dirs, topic_name, end):
    broker = make_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name, configs={"segment.bytes": str(MEGABYTE)})
        fill(c, topic_name, 12)
        before = contents(c, topic_name)
        set_rate(c, MEGABYTE)
        target = next(d for d in dirs if d != place_of(dirs, topic_name))
        assert alter(c, topic_name, 0, target) == Kerr.NONE
        wait_until(
            lambda: len(described(c, topic_name)) == 2 and described(c, topic_name)[1][1] > MEGABYTE, 60, "it copies"
        )
        copied = described(c, topic_name)[1]
        assert copied[3] and copied[2] > 0 and copied[0] == str(target)
    getattr(broker, end)()
    (future,) = target.glob(f"{topic_name}-0.*-future")
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        assert future.exists(), "it goes on in the same directory"
        assert "move_resumed" in broker.output()
        if end == "stop":  # after a kill, what was not flushed is copied again
            assert described(c, topic_name)[1][1] >= copied[1]
        set_rate(c, 1 << 62)
        await_move(c, topic_name, target)
        assert contents(c, topic_name) == before
    broker.stop()


@pytest.mark.parametrize("left_first", [True, False], ids=["left first", "left last"])
def test_a_takeover_that_a_crash_cut_short_is_finished_at_start(make_broker, dirs, topic_name, left_first):
    """Both directories have their real names; the mark says which one was left."""
    source, target = (dirs[0], dirs[1]) if left_first else (dirs[1], dirs[0])
    broker = make_broker().start()
    with broker.connect() as c:
        alter(c, topic_name, 0, source)
        c.new_topic(topic_name)
        fill(c, topic_name, 2)
    broker.stop()
    left = {p.name: p.read_bytes() for p in (source / f"{topic_name}-0").iterdir()}
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        assert alter(c, topic_name, 0, target) == Kerr.NONE
        await_move(c, topic_name, target)
        fill(c, topic_name, 1)
        wanted = contents(c, topic_name)
    broker.kill()
    (source / f"{topic_name}-0").mkdir()
    for name, data in left.items():
        (source / f"{topic_name}-0" / name).write_bytes(data)
    (source / f"{topic_name}-0/barnabas-moved").write_text(str(target))
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        assert contents(c, topic_name) == wanted
        assert place_of(dirs, topic_name) == target
    broker.stop()


def test_a_move_is_redirected_and_cancelled(make_broker, dirs, topic_name):
    broker = make_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name)
        fill(c, topic_name, 12)
        before = contents(c, topic_name)
        set_rate(c, 10_000)
        source = place_of(dirs, topic_name)
        first, second = [d for d in dirs if d != source]
        assert alter(c, topic_name, 0, first) == Kerr.NONE
        wait_until(lambda: list(first.glob("*-future")), 60, "it has begun")
        assert alter(c, topic_name, 0, second) == Kerr.NONE
        wait_until(lambda: not leftovers([first]) and list(second.glob("*-future")), 60, "it goes elsewhere")
        assert [(row[0], row[3]) for row in described(c, topic_name)] == [(str(source), False), (str(second), True)]
        assert alter(c, topic_name, 0, source) == Kerr.NONE
        wait_until(lambda: not leftovers(dirs), 60, "it is cancelled")
        assert [row[0] for row in described(c, topic_name)] == [str(source)]
        assert contents(c, topic_name) == before
        # And with the topic.
        assert alter(c, topic_name, 0, first) == Kerr.NONE
        wait_until(lambda: list(first.glob("*-future")), 60, "it has begun")
        assert c.call("DeleteTopics", 5, TopicNames=[topic_name], TimeoutMs=30000).Responses[0].ErrorCode == 0
        wait_until(lambda: not [p for d in dirs for p in d.iterdir() if p.is_dir()], 60, "all is gone")
    broker.stop()


def test_errors_are_kafkas(make_broker, dirs, topic_name):
    broker = make_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name)
        assert alter(c, topic_name, 0, "/nowhere") == Kerr.LOG_DIR_NOT_FOUND
        assert alter(c, topic_name, 5, dirs[0]) == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(c, "absent", 0, dirs[0]) == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(c, topic_name, 0, place_of(dirs, topic_name)) == Kerr.NONE
    broker.stop()


def test_a_partition_that_is_made_later_goes_where_it_was_wanted(make_broker, dirs, topic_name):
    broker = make_broker().start()
    with broker.connect() as c:
        for p in range(4):
            alter(c, topic_name, p, dirs[2])
        c.new_topic(topic_name, 4)
        assert {place_of(dirs, topic_name, p) for p in range(4)} == {dirs[2]}
    broker.stop()


def test_a_move_to_a_full_disk_waits_for_room(fresh_broker, tmp_path, topic_name):
    with Disk(tmp_path / "small", megabytes=16) as disk:
        dirs = [tmp_path / "big", disk.path / "logs"]
        broker = fresh_broker({"log.dirs": ",".join(map(str, dirs)), "log.segment.delete.delay.ms": 0}).start()
        with broker.connect() as c:
            alter(c, topic_name, 0, dirs[0])
            c.new_topic(topic_name, configs={"segment.bytes": str(MEGABYTE)})
            fill(c, topic_name, 6)
            before = contents(c, topic_name)
            ballast = disk.ballast(leave=2 * MEGABYTE)
            assert alter(c, topic_name, 0, dirs[1]) == Kerr.NONE
            wait_until(lambda: "move_delayed" in broker.output(), 60, "the disk is full")
            assert c.produce(topic_name, 0, build([Record(b"k", b"v")])).ErrorCode == 0, "it is served meanwhile"
            ballast.unlink()
            await_move(c, topic_name, dirs[1])
            assert contents(c, topic_name)[1][:-1] == before[1]
        broker.stop()


def test_a_move_that_waits_for_room_holds_up_no_other(fresh_broker, tmp_path, topic_name):
    with Disk(tmp_path / "small", megabytes=16) as disk:
        dirs = [tmp_path / "big", disk.path / "logs", tmp_path / "other"]
        one_at_a_time = {"num.replica.alter.log.dirs.threads": 1, "log.segment.delete.delay.ms": 0}
        broker = fresh_broker({"log.dirs": ",".join(map(str, dirs))} | one_at_a_time).start()
        with broker.connect() as c:
            for index in range(2):
                alter(c, topic_name, index, dirs[0])
            c.new_topic(topic_name, 2)
            fill(c, topic_name, 6)
            disk.ballast(leave=2 * MEGABYTE)
            assert alter(c, topic_name, 0, dirs[1]) == Kerr.NONE
            wait_until(lambda: "move_delayed" in broker.output(), 60, "the disk is full")
            assert alter(c, topic_name, 1, dirs[2]) == Kerr.NONE
            wait_until(lambda: (dirs[2] / f"{topic_name}-1").is_dir(), 60, "the other one has moved")
            assert (dirs[0] / f"{topic_name}-0").is_dir()
        broker.stop()


def test_a_move_from_or_to_a_failing_disk_ends_and_the_rest_lives(fresh_broker, tmp_path, topic_name):
    with Disk(tmp_path / "small", megabytes=32) as disk:
        dirs = [tmp_path / "big", disk.path / "logs"]
        broker = fresh_broker({"log.dirs": ",".join(map(str, dirs))}).start()
        with broker.connect() as c:
            alter(c, topic_name, 0, dirs[0])
            c.new_topic(topic_name)
            fill(c, topic_name, 6)
            set_rate(c, 100_000)
            assert alter(c, topic_name, 0, dirs[1]) == Kerr.NONE
            wait_until(lambda: len(described(c, topic_name)) == 2, 60, "it has begun")
            disk.fail()
            set_rate(c, 1 << 62)
            wait_until(lambda: "move_cancelled" in broker.output(), 60, "the move ends")
            assert c.produce(topic_name, 0, build([Record(b"k", b"v")])).ErrorCode == 0
            assert len(contents(c, topic_name)[1]) == 6 * 15 + 1
            assert alter(c, topic_name, 0, dirs[1]) == Kerr.KAFKA_STORAGE_ERROR
        broker.stop()
