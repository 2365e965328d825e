"""More partitions and segments than the process may have files open."""

import pathlib
import re

import pytest

from batches import Record, build, read
from brokers import wait_until
from rawkafka import Connection, Kerr

pytestmark = [pytest.mark.barnabas_only, pytest.mark.timeout(600)]

LIMIT = 512
PARTITIONS = 2000


@pytest.fixture
def narrow_broker(fresh_broker):
    """Makes brokers that may have LIMIT descriptors."""

    def make(config=None):
        broker = fresh_broker(config)
        command = broker.command
        broker.command = lambda: ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *command()]
        return broker

    return make


def open_files(broker):
    return len(list(pathlib.Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def produce_everywhere(conn, topic, value):
    """One request with a batch for each partition: no time to make room between two of them."""
    rows = [{"Index": i, "Records": build([Record(b"%d" % i, value)])} for i in range(PARTITIONS)]
    asked = [{"Name": topic, "PartitionData": rows}]
    answer = conn.call("Produce", 9, TransactionalId=None, Acks=-1, TimeoutMs=30000, TopicData=asked)
    return answer.Responses[0].PartitionResponses


def read_everywhere(conn, topic):
    """Every partition's records, each partition by a fetch of its own."""
    values = []
    for i in range(PARTITIONS):
        row = conn.fetch(topic, i, 0)
        assert row.ErrorCode == Kerr.NONE, f"partition {i}"
        values.append([record.value for batch in read(row.Records) for record in batch.records])
    return values


def test_two_thousand_partitions_are_written_and_read_with_few_descriptors(narrow_broker, topic_name):
    broker = narrow_broker().start()
    with Connection(broker.address, timeout=120) as c:
        c.new_topic(topic_name, PARTITIONS)
        for value in (b"one", b"two"):
            rows = produce_everywhere(c, topic_name, value)
            assert [(r.Index, r.ErrorCode) for r in rows] == [(i, Kerr.NONE) for i in range(PARTITIONS)]
        assert read_everywhere(c, topic_name) == [[b"one", b"two"]] * PARTITIONS
        assert open_files(broker) < LIMIT
    broker.stop()
    assert "log_failed" not in broker.output()
    broker.start()
    with Connection(broker.address, timeout=120) as c:
        c.await_topic(topic_name, PARTITIONS)
        assert read_everywhere(c, topic_name) == [[b"one", b"two"]] * PARTITIONS
    broker.stop()


def test_a_log_of_many_segments_is_read_with_few_descriptors(narrow_broker, topic_name):
    broker = narrow_broker().start()
    with Connection(broker.address, timeout=120) as c:
        c.new_topic(topic_name, configs={"segment.bytes": "200"})
        for i in range(500):
            assert c.produce(topic_name, 0, build([Record(b"%d" % i, b"x" * 100)])).BaseOffset == i
        for i in range(500):  # one by one, so that every segment is opened
            assert read(c.fetch(topic_name, 0, i, partition_max_bytes=100).Records)[0].base_offset == i
        assert open_files(broker) < LIMIT
    broker.stop()


def test_connections_that_take_all_descriptors_fail_no_log(narrow_broker, topic_name):
    """Those beyond wait in the backlog (socket.listen.backlog.size); files of logs are closed for the rest."""
    broker = narrow_broker().start()
    with Connection(broker.address, timeout=120) as c:
        c.new_topic(topic_name, 100)
        idle = []
        try:
            for _ in range(LIMIT + 10):
                idle.append(Connection(broker.address))
            wait_until(lambda: "accept_failed" in broker.output(), 60, "no descriptor is left")
            kerrs = {c.produce(topic_name, i, build([Record(b"k", b"v")])).ErrorCode for i in range(100)}
            assert kerrs <= {Kerr.NONE, 56}  # KAFKA_STORAGE_ERROR, which clients try again
        finally:
            for one in idle:
                one.close()

        def all_taken():
            return all(c.produce(topic_name, i, build([Record(b"k", b"v")])).ErrorCode == 0 for i in range(100))

        wait_until(all_taken, 60, "every partition takes records again")
    assert "log_failed" not in broker.output()
    broker.stop()


def test_logs_that_a_crash_left_are_shut_down_cleanly_with_few_descriptors(narrow_broker, topic_name):
    broker = narrow_broker().start()
    with Connection(broker.address, timeout=120) as c:
        c.new_topic(topic_name, PARTITIONS)
        assert {row.ErrorCode for row in produce_everywhere(c, topic_name, b"value")} == {Kerr.NONE}
    broker.kill()
    broker.start()
    with Connection(broker.address, timeout=120) as c:
        c.await_topic(topic_name, PARTITIONS)
    broker.stop()
    assert "unclean" not in broker.output() and "flush_failed" not in broker.output()


def test_a_log_of_many_segments_moves_with_few_descriptors(narrow_broker, tmp_path, topic_name):
    dirs = [tmp_path / "a", tmp_path / "b"]
    broker = narrow_broker({"log.dirs": ",".join(map(str, dirs))}).start()
    with Connection(broker.address, timeout=120) as c:
        c.new_topic(topic_name, configs={"segment.bytes": "200"})
        for i in range(500):
            assert c.produce(topic_name, 0, build([Record(b"%d" % i, b"x" * 100)])).BaseOffset == i
        (target,) = [d for d in dirs if not (d / f"{topic_name}-0").exists()]
        rows = [{"Path": str(target), "Topics": [{"Name": topic_name, "Partitions": [0]}]}]
        assert c.call("AlterReplicaLogDirs", Dirs=rows).Results[0].Partitions[0].ErrorCode == Kerr.NONE
        wait_until(lambda: re.search(r" replica (moved|move_delayed|move_failed) ", broker.output()), 120, "it moves")
        assert " replica moved " in broker.output()
        assert [r.offset for r in c.read_all(topic_name, 0)] == list(range(500))
    broker.stop()
