"""Retention by time and size, and rolling of segments."""

import pytest

from batches import Record, build, now_ms
from brokers import wait_until

BROKER_CONFIG = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "100",
}
SEGMENT = 1 << 20
PAYLOAD = b"x" * 100_000
HOUR_MS = 3600 * 1000


def earliest(conn, topic):
    return conn.list_offset(topic, 0, -2).Offset


def fill(conn, topic, count, timestamp=None):
    for _ in range(count):
        assert conn.produce(topic, 0, build([Record(value=PAYLOAD)], timestamp=timestamp)).ErrorCode == 0


def keep_for(conn, topic, ms):
    """Sets retention.ms once the records are there: before, it might run between two of them and shift the segments."""
    rows = [{"Name": "retention.ms", "ConfigOperation": 0, "Value": str(ms)}]
    asked = [{"ResourceType": 2, "ResourceName": topic, "Configs": rows}]
    assert conn.call("IncrementalAlterConfigs", Resources=asked).Responses[0].ErrorCode == 0


def logs(broker, topic):
    return sorted(p.name for p in (broker.log_dir / f"{topic}-0").glob("*.log"))


def test_segments_roll_by_size(conn, broker, topic_name):
    conn.new_topic(topic_name, configs={"segment.bytes": str(SEGMENT)})
    fill(conn, topic_name, 25)
    assert logs(broker, topic_name) == [f"{base:020d}.log" for base in (0, 10, 20)]


def test_retention_by_size_keeps_at_least_that_much(conn, broker, topic_name):
    conn.new_topic(topic_name, configs={"segment.bytes": str(SEGMENT), "retention.bytes": str(2 * SEGMENT)})
    fill(conn, topic_name, 55)
    wait_until(lambda: earliest(conn, topic_name) == 30, 60, "whole segments above the limit are gone")
    wait_until(lambda: len(logs(broker, topic_name)) == 3, 60, "their files are gone")
    assert [r.offset for r in conn.read_all(topic_name, 0, 30)] == list(range(30, 55))


def test_retention_by_time_goes_by_the_records_times(conn, topic_name):
    conn.new_topic(topic_name, configs={"segment.bytes": str(SEGMENT), "retention.ms": "-1"})
    fill(conn, topic_name, 20, now_ms() - 2 * HOUR_MS)
    fill(conn, topic_name, 15, now_ms())
    keep_for(conn, topic_name, HOUR_MS)
    wait_until(lambda: earliest(conn, topic_name) == 20, 60, "old segments are gone")
    assert len(conn.read_all(topic_name, 0, 20)) == 15


def test_the_active_segment_goes_too_when_it_is_old(conn, topic_name):
    conn.new_topic(topic_name, configs={"retention.ms": "-1"})
    fill(conn, topic_name, 3, now_ms() - 2 * HOUR_MS)
    keep_for(conn, topic_name, HOUR_MS)
    wait_until(lambda: earliest(conn, topic_name) == 3, 60, "all records are gone")
    assert conn.produce(topic_name, 0, build([Record(value=b"next")])).BaseOffset == 3


def test_compacted_only_topics_are_not_cut(conn, topic_name):
    conn.new_topic(
        topic_name, configs={"cleanup.policy": "compact", "retention.ms": "1000", "segment.bytes": str(SEGMENT)}
    )
    for i in range(15):
        conn.produce(topic_name, 0, build([Record(b"%d" % i, PAYLOAD)], timestamp=now_ms() - HOUR_MS))
    other = conn.new_topic(f"{topic_name}-other", configs={"retention.ms": "1000"})
    fill(conn, other, 1, now_ms() - HOUR_MS)
    wait_until(lambda: earliest(conn, other) == 1, 60, "retention has run")
    assert earliest(conn, topic_name) == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_retention_deleted_stays_deleted(fresh_broker, topic_name, end):
    broker = fresh_broker(BROKER_CONFIG).start()
    with broker.connect() as c:
        c.new_topic(topic_name, configs={"segment.bytes": str(SEGMENT), "retention.bytes": str(SEGMENT)})
        fill(c, topic_name, 35)
        wait_until(lambda: earliest(c, topic_name) == 20, 60, "old segments are gone")
        wait_until(lambda: len(logs(broker, topic_name)) == 2, 60, "their files are gone")
    getattr(broker, end)()
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        assert earliest(c, topic_name) == 20
        assert len(c.read_all(topic_name, 0, 20)) == 15
    broker.stop()
