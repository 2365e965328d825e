"""Apache Kafka's cleaner and ours on the same files: what is left is the same, batch by batch."""

import os
import random
import shutil

import pytest
from confluent_kafka import Producer

import batches
import brokers
from batches import Record, build, now_ms
from brokers import wait_until

TOPIC = "compacted"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "index.interval.bytes": "1000",
    "delete.retention.ms": "1",  # what the first cleaning marks, the second one removes
    "min.cleanable.dirty.ratio": "1",  # nothing is dirtier than that: it waits
}
BROKER_CONFIG = {"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": "4194304"}
KEYS = 60
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def kafka(tmp_path, fetched):
    broker = brokers.new_broker("kafka39", tmp_path / "kafka", BROKER_CONFIG)
    yield broker.start()
    broker.close()


@pytest.fixture
def ours(tmp_path):
    broker = brokers.new_broker("barnabas", tmp_path / "ours", BROKER_CONFIG)
    yield broker.start()
    broker.close()
    broker.check()


def some_records(dice, producer, count):
    for _ in range(count):
        key = f"key {dice.randrange(KEYS)}"
        value = None if dice.random() < 0.2 else b"%d" % dice.randrange(1 << 30) + b"." * dice.randrange(200)
        headers = [("h", key)] if dice.random() < 0.3 else None
        producer.produce(TOPIC, value, key, partition=0, headers=headers)
    assert producer.flush(60) == 0


def write_history(bootstrap, dice):
    """Plain, idempotent and transactional producers in turn, in every codec; half of the transactions are aborted."""
    base = {"bootstrap.servers": bootstrap, "linger.ms": 50}
    plain = [Producer(base | {"compression.type": codec}) for codec in CODECS]
    plain += [Producer(base | {"enable.idempotence": True, "compression.type": codec}) for codec in ("none", "lz4")]
    in_txns = [Producer(base | {"transactional.id": f"t{i}", "compression.type": CODECS[i]}) for i in range(4)]
    for producer in in_txns:
        producer.init_transactions(60)
    is_open = [False] * len(in_txns)
    for _ in range(260):
        i = dice.randrange(len(in_txns))
        if dice.random() < 0.4:
            some_records(dice, dice.choice(plain), dice.randrange(1, 25))
        elif not is_open[i]:
            in_txns[i].begin_transaction()
            is_open[i] = True
        elif dice.random() < 0.5:
            some_records(dice, in_txns[i], dice.randrange(1, 12))
        else:
            in_txns[i].commit_transaction(60) if dice.random() < 0.5 else in_txns[i].abort_transaction(60)
            is_open[i] = False
    for producer in (producer for producer, going_on in zip(in_txns, is_open) if going_on):
        producer.commit_transaction(60)
    some_records(dice, plain[0], 200)  # the active segment is never cleaned


def more_batches(dice, count):
    """The same bytes for both brokers."""
    for _ in range(count):
        records = [
            Record(b"key %d" % dice.randrange(KEYS), None if dice.random() < 0.2 else b"%d" % dice.randrange(1 << 30))
            for _ in range(dice.randrange(1, 20))
        ]
        yield build(records, codec=dice.choice(CODECS), timestamp=now_ms())


def directory(broker):
    return broker.log_dir / f"{TOPIC}-0"


def set_ratio(broker, ratio):
    rows = [{"Name": "min.cleanable.dirty.ratio", "ConfigOperation": 0, "Value": ratio}]
    asked = [{"ResourceType": 2, "ResourceName": TOPIC, "Configs": rows}]
    with broker.connect() as conn:
        conn.await_topic(TOPIC, 1)
        assert conn.call("IncrementalAlterConfigs", Resources=asked).Responses[0].ErrorCode == 0


def segment_paths(broker):
    return sorted(directory(broker).glob("*.log"))


def cleaned_to(broker):
    path = broker.log_dir / "cleaner-offset-checkpoint"
    rows = [line.rsplit(" ", 2) for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return next((int(offset) for name, _, offset in rows if name == TOPIC), -1)


def clean(broker):
    set_ratio(broker, "0")
    active = int(segment_paths(broker)[-1].stem)
    wait_until(lambda: cleaned_to(broker) == active, 120, f"{broker.kind} has cleaned up to {active}")
    set_ratio(broker, "1")


def take_over(kafka, ours):
    """Kafka's files under our topic of the same name."""
    for path in directory(ours).iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in directory(kafka).iterdir():
        if path.name != "partition.metadata":
            shutil.copy2(path, directory(ours) / path.name)


def stored(broker):
    """Every batch with its records."""
    found = [batch for path in segment_paths(broker) for batch in batches.read(path.read_bytes())]
    assert all(batch.crc_ok for batch in found)
    return [
        (b.base_offset, b.last_offset, b.count, b.attributes, b.producer_id, b.producer_epoch, b.base_sequence)
        + (b.max_timestamp, b.leader_epoch)
        + tuple((r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in b.records)
        for b in found
    ]


def is_place_holder(row, active):
    """The last batch below the active segment, emptied: we keep it as Kafka 4.0 does (KAFKA-17076), 3.9 drops it."""
    _, last_offset, count = row[:3]
    return count == 0 and last_offset + 1 == active


def compare(kafka, ours, before):
    theirs, here = stored(kafka), stored(ours)
    assert len(theirs) < before
    active = int(segment_paths(ours)[-1].stem)
    here = [row for row in here if row in theirs or not is_place_holder(row, active)]
    for left, right in zip(theirs, here):
        assert left == right
    assert len(theirs) == len(here)
    return len(here)


def test_what_is_left_is_what_kafka_leaves(kafka, ours):
    seed = int(os.environ.get("BARNABAS_SEED", str(random.randrange(1 << 30))))
    print(f"seed {seed}")  # shown when the test fails
    dice = random.Random(seed)
    with kafka.connect() as conn:
        conn.new_topic(TOPIC, configs=CONFIG)
    with ours.connect() as conn:
        conn.new_topic(TOPIC, configs=CONFIG)
    ours.stop()
    write_history(kafka.bootstrap, dice)
    kafka.stop()
    take_over(kafka, ours)
    before = len(stored(kafka))
    kafka.start()
    ours.start()
    for broker in (kafka, ours):
        clean(broker)
    left = compare(kafka, ours, before)

    for batch in more_batches(dice, 150):
        for broker in (kafka, ours):
            with broker.connect() as conn:
                answer = conn.produce(TOPIC, 0, batch)
                assert answer.ErrorCode == 0
    assert segment_paths(kafka)[-1].name == segment_paths(ours)[-1].name
    for broker in (kafka, ours):
        clean(broker)
    compare(kafka, ours, left + 150)
    ours.stop()
    kafka.stop()
