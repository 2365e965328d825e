"""After a crash the doors open first, and each partition follows as soon as its log has been read again."""

import re
import shutil
import signal
import struct
import zlib

import pytest

from batches import Record, build, read as read_batches
from brokers import wait_until
from rawkafka import Kerr

pytestmark = pytest.mark.barnabas_only

PARTITIONS = 8
BATCHES = 64  # of 1 MB: what is less in all than 64 MiB is recovered before the doors open
CONFIG = {"log.segment.bytes": str(1 << 30), "log.message.timestamp.type": "CreateTime"}


@pytest.fixture
def crashed(fresh_broker):
    """Killed with half a GiB that was never flushed, in eight partitions of one topic, and a small topic beside it."""
    broker = fresh_broker(CONFIG).start()
    with broker.connect() as c:
        c.new_topic("big", PARTITIONS)
        c.new_topic("small")
        batch = build([Record(b"k", bytes(1_040_000))])
        for _ in range(BATCHES):
            assert c.produce("big", 0, batch).ErrorCode == Kerr.NONE
        assert c.produce("small", 0, build([Record(b"k", b"v")])).ErrorCode == Kerr.NONE
    broker.kill()
    for index in range(1, PARTITIONS):
        shutil.copytree(broker.log_dir / "big-0", broker.log_dir / f"big-{index}", dirs_exist_ok=True)
    return broker


def said_since_last_start(broker):
    output = broker.output()
    return output[output.rindex("recovery_began") :]


def assert_whole(broker):
    with broker.connect() as c:
        c.await_topic("big", PARTITIONS)
        for index in range(PARTITIONS):
            assert c.list_offset("big", index, -1).Offset == BATCHES
            got = read_batches(c.fetch("big", index, BATCHES - 1).Records)
            assert got[0].crc_ok and got[0].base_offset == BATCHES - 1


def test_the_doors_open_before_the_logs_are_read_again(crashed):
    crashed.start()
    wait_until(lambda: "replica recovered " in said_since_last_start(crashed), 60, "recovery ends")
    events = re.findall(r"\b(recovery_began|started|recovered) \w+=", said_since_last_start(crashed))
    assert events == ["recovery_began", "started", "recovered"]
    assert_whole(crashed)
    with crashed.connect() as c:
        for index in range(PARTITIONS):
            assert c.produce("big", index, build([Record(b"more", b"v")])).BaseOffset == BATCHES
        assert [r.value for r in c.read_all("small", 0)] == [b"v"]
    crashed.stop()
    assert (crashed.log_dir / ".kafka_cleanshutdown").exists()


def test_a_stop_in_the_midst_of_it_is_quick_and_claims_nothing(crashed):
    """However far it was: what was not read again is not called clean, and is read again at the next start."""
    crashed.spawn()
    wait_until(
        lambda: "recovery_began" in crashed.output() and "broker started " in said_since_last_start(crashed),
        60,
        "the doors are open",
    )
    crashed.process.send_signal(signal.SIGTERM)
    assert crashed.wait() == 0
    said = said_since_last_start(crashed)
    clean = (crashed.log_dir / ".kafka_cleanshutdown").exists()
    # The last log may have been read while the stop was waiting for it: then it is clean, though nobody said so before.
    assert clean == ("shutdown_unclean" not in said)
    assert clean or "replica recovered " not in said
    crashed.start()
    began = crashed.output().count("recovery_began")
    assert began == 1 or not clean
    assert_whole(crashed)
    crashed.stop()
    assert (crashed.log_dir / ".kafka_cleanshutdown").exists()


def test_topics_come_and_go_meanwhile(crashed):
    crashed.start()
    with crashed.connect() as c:
        assert c.new_topic("new", 2)
        assert c.produce("new", 1, build([Record(b"k", b"v")])).ErrorCode == Kerr.NONE
        row = c.call("DeleteTopics", 5, TopicNames=["big"], TimeoutMs=60000).Responses[0]
        assert row.ErrorCode == Kerr.NONE
        assert sorted(t.Name for t in c.metadata().Topics) == ["new", "small"]
        assert not [d for d in crashed.log_dir.iterdir() if re.fullmatch(r"big-\d+", d.name)]
    crashed.stop()
    assert (crashed.log_dir / ".kafka_cleanshutdown").exists()
    crashed.start()
    with crashed.connect() as c:
        assert [r.value for r in c.read_all("new", 1)] == [b"v"]
    crashed.stop()


def test_checkpoints_keep_what_is_not_open_yet(crashed):
    """A log start that was checkpointed survives a crash in the midst of recovery."""
    checkpoint = crashed.log_dir / "log-start-offset-checkpoint"
    lines = [f"big {index} 5" for index in range(PARTITIONS)]
    checkpoint.write_text(f"0\n{len(lines)}\n" + "".join(f"{line}\n" for line in lines))
    crashed.config["log.flush.start.offset.checkpoint.interval.ms"] = "1"
    crashed.start()
    with crashed.connect() as c:
        c.await_topic("small", 1)
        row = {"Name": "small", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}
        c.call("DeleteRecords", Topics=[row], TimeoutMs=30000)
    wait_until(lambda: "small 0 1\n" in checkpoint.read_text(), 60, "a checkpoint is written")
    assert set(lines) <= set(checkpoint.read_text().splitlines())
    crashed.kill()
    crashed.start()
    with crashed.connect() as c:
        c.await_topic("big", PARTITIONS)
        assert all(c.list_offset("big", index, -2).Offset == 5 for index in range(PARTITIONS))
    crashed.stop()


def test_a_log_of_an_old_format_is_named_and_the_rest_is_served(crashed):
    """A message of format v1, as Kafka before 0.11 wrote it, after an unclean and after a clean stop."""
    body = struct.pack(">bbqii", 1, 0, 1_500_000_000_000, -1, 1) + b"v"
    message = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    (crashed.log_dir / "small-0" / "00000000000000000000.log").write_bytes(message)
    for _ in range(2):
        before = len(crashed.output())
        crashed.start()
        assert_whole(crashed)
        said = crashed.output()[before:]
        named = r"log_open_failed topic=small .*small-0/0{20}\.log holds, at position 0, messages of format v1"
        assert re.search(named, said)
        with crashed.connect() as c:
            assert c.fetch("small", 0, 0).ErrorCode in (Kerr.NOT_LEADER_OR_FOLLOWER, 56)
        crashed.stop()
        assert (crashed.log_dir / "small-0" / "00000000000000000000.log").read_bytes() == message


def old_message(offset, value):
    """Of format v1, in Kafka's log of before 0.11."""
    body = struct.pack(">bbqii", 1, 0, 1_500_000_000_000, -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_an_old_format_in_the_midst_of_a_clean_log_is_told_to_who_asks_for_it(fresh_broker, topic_name):
    """In a segment that was closed long ago, and so is not looked at when the log is opened."""
    broker = fresh_broker({"log.segment.bytes": 1000}).start()
    with broker.connect() as c:
        c.new_topic(topic_name)
        for i in range(6):
            assert c.produce(topic_name, 0, build([Record(value=b"%d" % i * 600)])).ErrorCode == 0
    broker.stop()
    second = broker.log_dir / f"{topic_name}-0" / "00000000000000000001.log"
    size = second.stat().st_size
    second.write_bytes(old_message(1, b"o" * (size - 34)))
    assert second.stat().st_size == size
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        assert c.fetch(topic_name, 0, 1).ErrorCode == Kerr.UNSUPPORTED_VERSION
        said = re.search(rf"old_format dir=\S*/{topic_name}-0 segment=1 offset=1 .*v1", broker.output())
        assert said, broker.output()[-2000:]
        assert [r.value[:1] for r in c.read_all(topic_name, 0, 2)] == [b"2", b"3", b"4", b"5"]
    broker.stop()
