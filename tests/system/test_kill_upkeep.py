"""kill -9 while logs are compacted and deleted under produce: upkeep must lose nothing that it is not asked to remove."""

import os
import random

import pytest

from brokers import wait_until
from writers import Writer, acknowledged, finish

KILLS = int(os.environ.get("BARNABAS_KILLS", "100"))
SEED = int(os.environ.get("BARNABAS_SEED", str(random.randrange(1 << 30))))
PARTITIONS = 2
KEYS = 40  # of each producer in the compacted topic
ROUND_RECORDS = 150  # of each producer between two kills
TOMBSTONE_EVERY = 7

BUSY_UPKEEP = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "30",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
SHORT = {"cleanup.policy": "delete", "segment.bytes": "10000", "retention.bytes": "30000"}


def key_of(number, i):
    return b"%d/%d" % (number, i // PARTITIONS % KEYS)


def compacted_record(number):
    """Keys come again and again, each in one partition; now and then a tombstone."""
    return lambda i: {
        "key": key_of(number, i),
        "value": None if i % TOMBSTONE_EVERY == 0 else b"%d %d " % (number, i) + b"." * (i % 150),
        "partition": i % PARTITIONS,
        "headers": {"i": b"%d %d" % (number, i)},
    }


def short_record(number):
    return lambda i: {
        "key": b"%d" % number,
        "value": b"." * (i % 300),
        "partition": i % PARTITIONS,
        "headers": {"i": b"%d %d" % (number, i)},
    }


def identity(record):
    """Who wrote it, and the how-manieth it was."""
    number, i = record.headers[0][1].split(b" ")
    return int(number), int(i)


def check_told(records, writers, partition):
    """Offsets ascend, and at each one stands what was acknowledged there."""
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), f"seed {SEED}: offsets do not ascend"
    by_number = {writer.number: writer for writer in writers}
    for record in records:
        number, i = identity(record)
        told = by_number[number].acknowledged[i]
        assert told == (partition, record.offset) or told[1] < 0, f"seed {SEED}: {number}/{i} at {record.offset}: {told}"


def check_compacted(records, writers, partition):
    """The last record of each key is the last that was written; a tombstone may be gone."""
    last = {record.key: record for record in records}
    for writer in writers:
        wanted = {writer.record(i)["key"]: i for i in range(partition, writer.written, PARTITIONS)}
        for key, i in wanted.items():
            record = last.get(key)
            if record is None:
                assert i % TOMBSTONE_EVERY == 0, f"seed {SEED}: the last value {i} of {key} is lost"
            else:
                assert identity(record) == (writer.number, i), f"seed {SEED}: {key} has an old value"
                assert record.value == writer.record(i)["value"]


def check_complete(records, start, end):
    """Retention takes from the front only."""
    assert [record.offset for record in records] == list(range(start, end)), f"seed {SEED}: lost, doubled or reordered"


def kill_again_and_again(broker, writers, rng):
    for kill in range(KILLS):
        before = acknowledged(writers, SEED)
        for writer in writers:
            writer.limit = (kill + 1) * ROUND_RECORDS
        target = before + rng.randrange(1, len(writers) * ROUND_RECORDS * 3 // 4)
        wait_until(
            lambda goal=target: acknowledged(writers, SEED) >= goal, 120, f"{target} records acknowledged, seed {SEED}"
        )
        broker.kill()
        broker.start()
    total = len(writers) * KILLS * ROUND_RECORDS
    wait_until(lambda: acknowledged(writers, SEED) == total, 120, f"all {total} records acknowledged, seed {SEED}")


@pytest.mark.timeout(1800)
def test_compaction_and_deletion_that_are_killed_again_and_again_lose_nothing(fresh_broker, topic_name):
    rng = random.Random(SEED)
    broker = fresh_broker(BUSY_UPKEEP).start()
    with broker.connect() as c:
        c.new_topic(f"{topic_name}-c", PARTITIONS, configs=COMPACTED)
        c.new_topic(f"{topic_name}-d", PARTITIONS, configs=SHORT)
    compacted = [Writer(broker, f"{topic_name}-c", n, compacted_record(n)) for n in range(3)]
    short = [Writer(broker, f"{topic_name}-d", n, short_record(n)) for n in range(3)]
    for writer in compacted + short:
        writer.start()
    try:
        kill_again_and_again(broker, compacted + short, rng)
    finally:
        finish(compacted + short)
    # Or retention would go on while the log is read from what was its start.
    broker.stop()
    broker.config["log.retention.check.interval.ms"] = str(24 * 3600 * 1000)
    broker.start()
    with broker.connect() as c:
        for partition in range(PARTITIONS):
            written = sum(len(range(partition, writer.written, PARTITIONS)) for writer in compacted)
            records = c.read_all(f"{topic_name}-c", partition)
            check_told(records, compacted, partition)
            check_compacted(records, compacted, partition)
            assert len(records) < written * 3 // 4, f"seed {SEED}: hardly anything was compacted"

            start = c.list_offset(f"{topic_name}-d", partition, -2).Offset
            end = c.list_offset(f"{topic_name}-d", partition, -1).Offset
            records = c.read_all(f"{topic_name}-d", partition, start)
            check_told(records, short, partition)
            check_complete(records, start, end)
            assert start > 0, f"seed {SEED}: nothing was deleted"
    broker.stop()
