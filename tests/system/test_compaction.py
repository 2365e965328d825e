"""Compacted topics of a running broker: the last value of each key stays, whatever happens beside it."""

import re

import pytest

from batches import Record, build
from brokers import wait_until
from rawkafka import Kerr

BROKER_CONFIG = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.segment.delete.delay.ms": "50",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
}
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "10000", "min.cleanable.dirty.ratio": "0.01"}
KEYS = 10


def fill(conn, topic, count, codec="none", first=0):
    """Each key again and again; the last round's values are what must stay."""
    for i in range(first, first + count):
        records = [Record(b"key %d" % (i % KEYS), b"%d " % i + b"." * 300)]
        assert conn.produce(topic, 0, build(records, codec=codec)).ErrorCode == 0


def values(conn, topic):
    """What a consumer from the start ends up with."""
    return {r.key: int(r.value.split()[0]) for r in conn.read_all(topic, 0)}


def expected(count):
    return {b"key %d" % (i % KEYS): i for i in range(count)}


def alter(conn, kind, name, **configs):
    rows = [{"Name": key, "ConfigOperation": 0, "Value": str(value)} for key, value in configs.items()]
    asked = [{"ResourceType": kind, "ResourceName": name, "Configs": rows}]
    assert conn.call("IncrementalAlterConfigs", Resources=asked).Responses[0].ErrorCode == 0


def cleaned_to(broker, topic):
    """From cleaner-offset-checkpoint; -1 when it does not name the topic."""
    path = broker.log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.rsplit(" ", 2) for line in lines[2:]]
    return next((int(offset) for name, partition, offset in rows if (name, partition) == (topic, "0")), -1)


def active_base(broker, topic):
    return max(int(p.stem) for p in (broker.log_dir / f"{topic}-0").glob("*.log"))


def await_cleaned(broker, topic):
    wait_until(lambda: cleaned_to(broker, topic) == active_base(broker, topic) > 0, 60, "all that can be is cleaned")


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_a_consumer_from_the_start_sees_the_last_values(conn, broker, topic_name, codec):
    conn.new_topic(topic_name, configs=COMPACT)
    fill(conn, topic_name, 300, codec)
    await_cleaned(broker, topic_name)
    below = active_base(broker, topic_name)
    records = conn.read_all(topic_name, 0)
    keys = [r.key for r in records if r.offset < below]
    assert len(keys) == len(set(keys)) == KEYS
    assert [r.offset for r in records if r.offset >= below] == list(range(below, 300))
    assert values(conn, topic_name) == expected(300)
    assert conn.list_offset(topic_name, 0, -1).Offset == 300
    assert conn.list_offset(topic_name, 0, -2).Offset == 0


def test_tombstones_go_after_their_time(conn, broker, topic_name):
    conn.new_topic(topic_name, configs=COMPACT | {"delete.retention.ms": "0"})
    fill(conn, topic_name, KEYS)
    assert conn.produce(topic_name, 0, build([Record(b"key 3", None)])).ErrorCode == 0
    wanted = expected(KEYS)
    del wanted[b"key 3"]

    def gone():
        """The first cleaning says from when on, a later one removes."""
        fill(conn, topic_name, 40, first=1000 * KEYS)
        return b"key 3" not in [r.key for r in conn.read_all(topic_name, 0) if r.offset <= KEYS]

    wait_until(gone, 60, "the tombstone and what it deletes are gone")


def test_a_topic_that_becomes_compacted_is_compacted(conn, broker, topic_name):
    conn.new_topic(topic_name, configs=COMPACT | {"cleanup.policy": "delete"})
    fill(conn, topic_name, 100)
    alter(conn, 2, topic_name, **{"cleanup.policy": "compact"})
    await_cleaned(broker, topic_name)
    assert values(conn, topic_name) == expected(100)
    assert conn.produce(topic_name, 0, build([Record(None, b"no key")])).ErrorCode == Kerr.INVALID_RECORD


def test_compacted_and_deleted_topics_lose_their_old_segments(conn, broker, topic_name):
    conn.new_topic(topic_name, configs=COMPACT | {"cleanup.policy": "compact,delete", "retention.bytes": "30000"})
    for i in range(200):
        records = [Record(b"unique %d" % i, b"." * 1000)]
        assert conn.produce(topic_name, 0, build(records)).ErrorCode == 0

    def nothing_is_due():
        sizes = [path.stat().st_size for path in sorted((broker.log_dir / f"{topic_name}-0").glob("*.log"))]
        return sum(sizes) - 30000 < sizes[0]

    wait_until(nothing_is_due, 60, "retention by size")
    start = conn.list_offset(topic_name, 0, -2).Offset
    wait_until(lambda: cleaned_to(broker, topic_name) >= start, 60, "the rest is cleaned")
    assert start > 150
    assert [r.offset for r in conn.read_all(topic_name, 0, start)] == list(range(start, 200))


@pytest.mark.barnabas_only
def test_a_corrupt_log_is_set_aside_and_the_others_are_cleaned(fresh_broker):
    broker = fresh_broker(BROKER_CONFIG | {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "600000"}).start()
    with broker.connect() as conn:
        for topic in ("sick", "well"):
            conn.new_topic(topic, configs=COMPACT)
            fill(conn, topic, 100)
    broker.stop()
    path = broker.log_dir / "sick-0" / f"{0:020d}.log"
    damaged = bytearray(path.read_bytes())
    damaged[-10] ^= 1
    path.write_bytes(damaged)
    broker.config["log.cleaner.backoff.ms"] = "50"
    broker.start()
    await_cleaned(broker, "well")
    wait_until(lambda: "cleaning_failed topic=sick" in broker.output(), 60, "it is told of")
    assert cleaned_to(broker, "sick") <= 0, "nothing of it counts as cleaned"
    with broker.connect() as conn:
        fill(conn, "well", 100, first=100)
        await_cleaned(broker, "well")
        assert values(conn, "well") == expected(200)
        fill(conn, "sick", 1)  # it serves on
    broker.stop()


@pytest.mark.barnabas_only
def test_what_was_cleaned_is_known_after_a_restart(fresh_broker):
    broker = fresh_broker(BROKER_CONFIG).start()
    with broker.connect() as conn:
        conn.new_topic("topic", configs=COMPACT)
        fill(conn, "topic", 100)
        await_cleaned(broker, "topic")
    broker.stop()
    before = cleaned_to(broker, "topic")
    broker.start()
    with broker.connect() as conn:
        fill(conn, "topic", 100, first=100)
        await_cleaned(broker, "topic")
        assert values(conn, "topic") == expected(200)
        conn.call("DeleteTopics", version=1, TopicNames=["topic"], TimeoutMs=30000)
    assert re.search(rf"log_cleaned topic=topic partition=0 from={before} ", broker.output())
    wait_until(lambda: cleaned_to(broker, "topic") == -1, 60, "the checkpoint forgets a deleted topic")
    broker.stop()


@pytest.mark.barnabas_only
def test_threads_and_pace_change_while_a_cleaning_waits(fresh_broker):
    """At a byte a second a cleaning is not over before the pace is changed; deleting its topic does not wait for it."""
    broker = fresh_broker(BROKER_CONFIG | {"log.cleaner.io.max.bytes.per.second": "1"}).start()
    with broker.connect() as conn:
        for topic in ("first", "second"):
            conn.new_topic(topic, configs=COMPACT)
            fill(conn, topic, 100)
        answer = conn.call("DeleteTopics", version=1, TopicNames=["first"], TimeoutMs=30000)
        assert answer.Responses[0].ErrorCode == 0
        assert max(cleaned_to(broker, topic) for topic in ("first", "second")) <= 0
        alter(conn, 4, "", **{"log.cleaner.io.max.bytes.per.second": "1e9", "log.cleaner.threads": "2"})
        await_cleaned(broker, "second")
        alter(conn, 4, "", **{"log.cleaner.threads": "1"})
        fill(conn, "second", 100, first=100)
        await_cleaned(broker, "second")
        assert values(conn, "second") == expected(200)
    broker.stop()


def test_that_a_log_may_have_holes_is_written_down_before_the_first_one(fresh_broker, topic_name):
    """Recovery goes by it, should the topic not be compacted any more by then."""
    broker = fresh_broker(BROKER_CONFIG | {"log.cleaner.io.max.bytes.per.second": "100"}).start()
    with broker.connect() as c:
        c.new_topic(topic_name, configs=COMPACT)
        fill(c, topic_name, 100)
        wait_until(lambda: cleaned_to(broker, topic_name) == 0, 60, "the first cleaning has begun")
    assert "log_cleaned" not in broker.output()
    broker.stop()
