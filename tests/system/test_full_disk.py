"""A full disk is a state: produce is refused, all that makes room goes on, and service comes back by itself."""

import os
import random

import pytest

import batches
from batches import Record, build
from brokers import wait_until
from disks import Disk
from rawkafka import Kerr
from writers import Writer, acknowledged, finish

pytestmark = pytest.mark.barnabas_only

PARTITIONS = 3
WRITERS = 3
SEED = int(os.environ.get("BARNABAS_SEED", str(random.randrange(1 << 30))))
MEGABYTE = 1 << 20
BYTES = random.Random(SEED).randbytes(64 * 1024)
WAYS = ["a file of others", "retention", "DeleteRecords", "deletion of a topic"]


@pytest.fixture(params=["with a reserve", "to the last byte"])
def disk_broker(request, fresh_broker, tmp_path):
    """A broker that has all it has, the coordination store too, on a small disk."""
    reserve = {"with a reserve": "2000000", "to the last byte": "0"}[request.param]
    with Disk(tmp_path / "disk", megabytes=48) as disk:
        config = {
            "log.dirs": disk.path / "logs",
            "log.dir.reserve.bytes": reserve,
            "log.segment.bytes": MEGABYTE,
            "log.segment.delete.delay.ms": 0,
            "log.flush.offset.checkpoint.interval.ms": 100,
            "log.flush.start.offset.checkpoint.interval.ms": 100,
        }
        broker = fresh_broker(config).start()
        broker.disk = disk
        yield broker


def record_of(number):
    def record(i):
        at = (i * 37) % (len(BYTES) - 8000)
        return {"value": b"%d %d " % (number, i) + BYTES[at : at + 8000], "partition": i % PARTITIONS}

    return record


def times_full(broker):
    return broker.output().count("log_dir_full")


def go_on(writers):
    """Lets them write a little ahead of what was acknowledged."""
    for writer in writers:
        writer.limit = len(writer.acknowledged) + 100
    return True


def alter_topic(conn, topic, **settings):
    rows = [{"Name": k.replace("_", "."), "ConfigOperation": 0, "Value": str(v)} for k, v in settings.items()]
    asked = [{"ResourceType": 2, "ResourceName": topic, "Configs": rows}]

    def altered():
        code = conn.call("IncrementalAlterConfigs", Resources=asked).Responses[0].ErrorCode
        assert code in (Kerr.NONE, Kerr.KAFKA_STORAGE_ERROR), Kerr(code)
        return code == Kerr.NONE

    # Filled to the last byte, the disk has room for it when the reserve file has been given back.
    wait_until(altered, 30, "the configuration is changed")


def fill_other(conn, broker, topic):
    """Half of what there is goes to another topic."""
    conn.new_topic(topic)
    while broker.disk.free() > 20 * MEGABYTE:
        assert conn.produce(topic, 0, build([Record(value=BYTES)])).ErrorCode == 0


def make_room(way, broker, conn, topic, other):
    if way == "a file of others":
        (broker.disk.path / "ballast").unlink()
    elif way == "retention":
        alter_topic(conn, topic, retention_bytes=2 * MEGABYTE)
    elif way == "DeleteRecords":
        rows = [{"PartitionIndex": p, "Offset": -1} for p in range(PARTITIONS)]
        answer = conn.call("DeleteRecords", Topics=[{"Name": topic, "Partitions": rows}], TimeoutMs=30000)
        assert all(row.ErrorCode == Kerr.NONE for row in answer.Topics[0].Partitions)
    else:
        answer = conn.call("DeleteTopics", 5, TopicNames=[other], TimeoutMs=30000).Responses[0]
        assert answer.ErrorCode == Kerr.NONE, Kerr(answer.ErrorCode)


def check_while_full(conn, topic):
    """What goes on while the disk is full."""
    wait_until(
        lambda: conn.produce(topic, 0, build([Record(value=BYTES)])).ErrorCode == Kerr.KAFKA_STORAGE_ERROR,
        60,
        "produce is refused",
    )
    for p in range(PARTITIONS):
        fetched = conn.fetch(topic, p, conn.list_offset(topic, p, -2).Offset)
        assert fetched.ErrorCode == Kerr.NONE and batches.read(fetched.Records)
    alter_topic(conn, topic, max_message_bytes=900000)


def verify(conn, topic, writers):
    """Everything acknowledged that is not below the start is there, once and in order."""
    for p in range(PARTITIONS):
        start = conn.list_offset(topic, p, -2).Offset
        records = conn.read_all(topic, p, start)
        assert [r.offset for r in records] == list(range(start, start + len(records))), f"seed {SEED}"
        found = {}
        for record in records:
            words = record.value.split(b" ", 2)
            if len(words) == 3 and words[0].isdigit() and len(words[0]) == 1 and words[1].isdigit():
                writer, i = int(words[0]), int(words[1])
                assert record.value == record_of(writer)(i)["value"], f"seed {SEED}"
                found.setdefault(writer, []).append((i, record.offset))
        for writer in writers:
            seen = found.get(writer.number, [])
            assert [i for i, _ in seen] == sorted({i for i, _ in seen}), f"seed {SEED}: doubled or out of order"
            wanted = {i for i, (q, at) in writer.acknowledged.items() if q == p and at >= start}
            assert wanted <= {i for i, _ in seen}, f"seed {SEED}: lost in partition {p}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS)
def test_a_disk_fills_up_and_service_comes_back_when_there_is_room(disk_broker, topic_name, way):
    broker, other = disk_broker, f"{topic_name}-other"
    with broker.connect() as c:
        c.new_topic(topic_name, PARTITIONS)
        if way == "deletion of a topic":
            fill_other(c, broker, other)
    if way == "a file of others":
        broker.disk.ballast(leave=20 * MEGABYTE)
    pid = broker.process.pid
    writers = [Writer(broker, topic_name, n, record_of(n)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        wait_until(lambda: go_on(writers) and times_full(broker) > 0, 120, "the disk is full")
        with broker.connect() as c:
            check_while_full(c, topic_name)
            for writer in writers:
                writer.limit += 20
            make_room(way, broker, c, topic_name, other)
            wait_until(
                lambda: acknowledged(writers, SEED) == sum(w.written for w in writers)
                and all(w.written == w.limit for w in writers),
                120,
                "every record is acknowledged",
            )
    finally:
        finish(writers)
    with broker.connect() as c:
        verify(c, topic_name, writers)
    assert broker.process.pid == pid and broker.alive()
    assert "log_dir_offline" not in broker.output()
    assert "log_dir_has_room" in broker.output()
    broker.stop()
    assert (broker.disk.path / "logs/.kafka_cleanshutdown").exists()
    assert not (broker.disk.path / "logs/barnabas-reserve").exists(), "Kafka's directory holds what Kafka knows"
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, PARTITIONS)
        verify(c, topic_name, writers)
    broker.stop()


def test_the_clients_are_told_why(disk_broker, topic_name):
    with disk_broker.connect() as c:
        c.new_topic(topic_name)
        ballast = disk_broker.disk.ballast(leave=100_000)

        def told():
            row = c.produce(topic_name, 0, build([Record(value=BYTES)]))
            return row.ErrorCode == Kerr.KAFKA_STORAGE_ERROR and row.ErrorMessage

        assert "full" in wait_until(told, 60, "an error with its reason")
        ballast.unlink()
        wait_until(
            lambda: c.produce(topic_name, 0, build([Record(value=b"")])).ErrorCode == 0, 60, "there is room again"
        )
    disk_broker.stop()


def test_inodes_can_run_out_too(fresh_broker, tmp_path, topic_name):
    with Disk(tmp_path / "disk", megabytes=16) as disk:
        broker = fresh_broker({"log.dirs": disk.path / "logs", "log.segment.delete.delay.ms": 0}).start()
        with broker.connect() as c:
            c.new_topic(topic_name)
            crowd = disk.path / "crowd"
            crowd.mkdir()
            for i in range(os.statvfs(disk.path).f_favail - 50):
                (crowd / str(i)).touch()
            wait_until(
                lambda: c.produce(topic_name, 0, build([Record(value=b"v")])).ErrorCode == Kerr.KAFKA_STORAGE_ERROR,
                60,
                "produce is refused",
            )
            assert "no inodes left" in broker.output()
            for path in crowd.iterdir():
                path.unlink()
            wait_until(
                lambda: c.produce(topic_name, 0, build([Record(value=b"v")])).ErrorCode == 0, 60, "it is served again"
            )
        broker.stop()
