"""kill -9, again and again: what was acknowledged is there once, in order; what was not is there once or not at all."""

import contextlib
import os
import random
import shutil
import sqlite3

import pytest

import batches
from batches import Record, build
from brokers import wait_until
from writers import Writer, acknowledged, finish

KILLS = int(os.environ.get("BARNABAS_KILLS", "50"))
SEED = int(os.environ.get("BARNABAS_SEED", str(random.randrange(1 << 30))))
PARTITIONS = 3
PRODUCERS = 5
ROUND_RECORDS = 300  # of each producer between two kills


def record_of(number):
    """Record i goes to partition i % PARTITIONS and says who wrote it and i."""
    return lambda i: {
        "value": b"%d %d " % (number, i) + b"." * (i % 200),
        "key": b"%d" % number,
        "partition": i % PARTITIONS,
    }


@pytest.mark.timeout(1200)
def test_every_acknowledged_record_of_idempotent_producers_is_there_once_and_in_order(fresh_broker, topic_name):
    rng = random.Random(SEED)
    broker = fresh_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name, PARTITIONS, configs={"segment.bytes": str(1 << 20)})
    writers = [Writer(broker, topic_name, n, record_of(n)) for n in range(PRODUCERS)]
    for writer in writers:
        writer.start()
    try:
        for kill in range(KILLS):
            before = acknowledged(writers, SEED)
            for writer in writers:
                writer.limit = (kill + 1) * ROUND_RECORDS
            # Somewhere inside the round, while all of them write.
            target = before + rng.randrange(1, PRODUCERS * ROUND_RECORDS * 3 // 4)
            wait_until(
                lambda goal=target: acknowledged(writers, SEED) >= goal, 120, f"{target} records acknowledged, seed {SEED}"
            )
            broker.kill()
            broker.start()
        total = PRODUCERS * KILLS * ROUND_RECORDS
        wait_until(lambda: acknowledged(writers, SEED) == total, 120, f"all {total} records acknowledged, seed {SEED}")
    finally:
        finish(writers)
    with broker.connect() as c:
        for partition in range(PARTITIONS):
            verify(c, topic_name, partition, writers)
    broker.stop()


def verify(conn, topic, partition, writers):
    records = conn.read_all(topic, partition)
    assert [r.offset for r in records] == list(range(len(records))), f"seed {SEED}: a gap or repeat in the offsets"
    seen = {writer.number: [] for writer in writers}
    for record in records:
        number, i = map(int, record.value.split(b" ")[:2])
        assert record.value == b"%d %d " % (number, i) + b"." * (i % 200) and record.key == b"%d" % number
        seen[number].append((i, record.offset))
    for writer in writers:
        wanted = list(range(partition, writer.written, PARTITIONS))
        assert [i for i, _ in seen[writer.number]] == wanted, f"seed {SEED}: lost, doubled or reordered"
        for i, offset in seen[writer.number]:
            told = writer.acknowledged[i]
            assert told == (partition, offset) or told[1] < 0, f"seed {SEED}: record {i} at {offset}, told {told}"


def test_topics_and_configurations_acknowledged_just_before_a_kill_are_there(fresh_broker, topic_name):
    broker = fresh_broker().start()
    ids = {}
    for i in range(5 if broker.is_barnabas() else 1):
        with broker.connect() as c:
            name = f"{topic_name}-{i}"
            ids[name] = c.create_topic(name, 4, configs={"retention.ms": str(1000000 + i)}).TopicId
        broker.kill()
        broker.start()
    with broker.connect() as c:
        for i, (name, topic_id) in enumerate(ids.items()):
            assert c.await_topic(name, 4).TopicId == topic_id
            asked = [{"ResourceType": 2, "ResourceName": name, "ConfigurationKeys": ["retention.ms"]}]
            assert c.call("DescribeConfigs", Resources=asked).Results[0].Configs[0].Value == str(1000000 + i)
    broker.stop()


def one_partition(fresh_broker, topic_name, count=50):
    """A broker with `count` records in one partition, and the partition's directory."""
    broker = fresh_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name, configs={"segment.bytes": str(1 << 20), "index.interval.bytes": "4096"})
        for i in range(count):
            assert c.produce(topic_name, 0, build([Record(b"%d" % i, b"x" * 50000)])).ErrorCode == 0
    return broker, broker.log_dir / f"{topic_name}-0"


def check_whole(broker, topic_name, count=50):
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        assert [(r.offset, r.key) for r in c.read_all(topic_name, 0)] == [(i, b"%d" % i) for i in range(count)]
        for offset in (0, count // 2, count - 1):
            assert batches.read(c.fetch(topic_name, 0, offset).Records)[0].base_offset == offset
        assert c.produce(topic_name, 0, build([Record(b"next", b"")])).BaseOffset == count
    broker.stop()


@pytest.mark.parametrize("tail", ["half a batch", "zeros", "noise"])
def test_a_torn_end_of_the_log_is_cut(fresh_broker, topic_name, tail):
    broker, directory = one_partition(fresh_broker, topic_name)
    broker.kill()
    last = max(directory.glob("*.log"))
    torn = {
        "half a batch": build([Record(b"torn", b"y" * 5000)], base_offset=50)[:3000],
        "zeros": bytes(5000),
        "noise": random.Random(7).randbytes(5000),
    }[tail]
    with last.open("ab") as file:
        file.write(torn)
    broker.start()
    check_whole(broker, topic_name)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_lost_indexes_are_made_again(fresh_broker, topic_name, end):
    broker, directory = one_partition(fresh_broker, topic_name)
    getattr(broker, end)()
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        path.unlink()
    broker.start()
    check_whole(broker, topic_name)


def test_a_damaged_batch_after_a_kill_is_cut_with_all_behind_it(fresh_broker, topic_name):
    """Recovery looks at what was not flushed; here the whole last segment."""
    broker, directory = one_partition(fresh_broker, topic_name)
    broker.kill()
    last = max(directory.glob("*.log"))
    first_offset = int(last.stem)
    data = bytearray(last.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second + 100] ^= 0xFF
    last.write_bytes(data)
    broker.start()
    check_whole(broker, topic_name, first_offset + 1)


@pytest.mark.barnabas_only
def test_a_deletion_that_a_kill_interrupted_is_finished_at_the_next_start(fresh_broker, topic_name):
    """Logs that were not renamed yet must go too: left behind, they would keep the topic from being made again."""
    broker = fresh_broker({"log.segment.delete.delay.ms": "0"}).start()
    with broker.connect() as c:
        c.new_topic(topic_name, 4)
        assert c.produce(topic_name, 3, build([Record(b"k", b"old")])).ErrorCode == 0
    broker.kill()
    store = sqlite3.connect(broker.log_dir / "barnabas-coord.db")
    with contextlib.closing(store), store:  # what the controller writes first
        store.execute("INSERT INTO node VALUES ('/admin/delete_topics', ?, 1, 1, 1, 0, 0, 0, 0, 0, 0, NULL)", [topic_name])
    shutil.rmtree(broker.log_dir / f"{topic_name}-1")  # it came that far
    broker.start()
    with broker.connect() as c:
        wait_until(lambda: c.metadata(topic_name).Topics[0].ErrorCode == 3, 30, "the topic is gone")
        c.new_topic(topic_name, 4)
        assert c.read_all(topic_name, 3) == []
        assert c.produce(topic_name, 3, build([Record(b"k", b"new")])).BaseOffset == 0
    broker.stop()
