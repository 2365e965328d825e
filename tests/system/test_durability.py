"""What an acknowledgement promises: flush.mode, flush.messages, and a disk that takes its time or fails."""

import pathlib
import select
import subprocess

import pytest

from batches import Record, build, read
from brokers import wait_until
from rawkafka import Kerr

pytestmark = pytest.mark.barnabas_only

HERE = pathlib.Path(__file__).parent
GROUP = {"flush.mode": "group"}
EACH = {"flush.messages": "1"}
KAFKA_STORAGE_ERROR = 56
UNKNOWN_TOPIC_CONFIG = Kerr.INVALID_CONFIG


class Gate:
    """Holds back the syncs of the topic whose name has `gated` in it; see gate.c."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        self.library = directory / "gate.so"
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", HERE / "gate.c", "-o", self.library, "-ldl"]
        subprocess.run(command, check=True)

    def guard(self, broker):
        environment = {
            "GATE_DIR": self.directory,
            "GATE_MATCH": "gated",
            "LD_PRELOAD": self.library,
            "ASAN_OPTIONS": "verify_asan_link_order=0",
        }
        command = broker.command
        broker.command = lambda: ["env", *(f"{key}={value}" for key, value in environment.items()), *command()]
        return broker

    def shut(self):
        (self.directory / "waiting").unlink(missing_ok=True)
        (self.directory / "shut").touch()

    def open(self):
        (self.directory / "shut").unlink()

    def fail(self, how):
        (self.directory / how).touch()

    def mend(self, how):
        (self.directory / how).unlink()

    def await_sync(self):
        wait_until((self.directory / "waiting").exists, 60, "a sync has begun")

    def passed(self):
        path = self.directory / "passed"
        return path.stat().st_size if path.exists() else 0


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "gate")


@pytest.fixture
def gated_broker(fresh_broker, gate):
    broker = fresh_broker()
    broker.config["log.dirs"] = f"{broker.log_dir},{broker.log_dir}2"
    gate.guard(broker).start()
    with broker.connect() as c:
        c.new_topic("free")  # the next one goes to the second directory, without which the broker can live
    yield broker
    (gate.directory / "shut").unlink(missing_ok=True)
    broker.stop()


def record(value=b"v"):
    return build([Record(b"k", value)])


def has_answer(conn):
    return bool(select.select([conn.socket], [], [], 0)[0])


def set_config(conn, kind, name, **configs):
    rows = [{"Name": key, "ConfigOperation": 0, "Value": value} for key, value in configs.items()]
    asked = [{"ResourceType": kind, "ResourceName": name, "Configs": rows}]
    return conn.call("IncrementalAlterConfigs", Resources=asked).Responses[0].ErrorCode


def described(conn, kind, name, key):
    asked = [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": [key]}]
    (row,) = conn.call("DescribeConfigs", Resources=asked).Results[0].Configs
    return row


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("config", [GROUP, EACH], ids=["group", "each"])
def test_no_acknowledgement_leaves_before_its_sync(gated_broker, gate, config, acks):
    with gated_broker.connect() as c, gated_broker.connect() as other:
        c.new_topic("gated", configs=config)
        gate.shut()
        sent = c.send_produce("gated", 0, record(), acks=acks)
        gate.await_sync()
        assert other.produce("free", 0, record(), acks=acks).ErrorCode == Kerr.NONE  # the broker goes on
        assert not has_answer(c)
        seen = other.fetch("gated", 0, 0)
        assert (seen.HighWatermark, read(seen.Records or b"")) == (0, [])
        gate.open()
        assert c.receive(sent).Responses[0].PartitionResponses[0].BaseOffset == 0
        assert other.fetch("gated", 0, 0).HighWatermark == 1
        assert gate.passed() == 1


def test_one_sync_serves_all_that_came_while_the_one_before_ran(gated_broker, gate):
    """Of one connection and of others; each connection's answers come in the order of its requests."""
    with gated_broker.connect() as c, gated_broker.connect() as other:
        c.new_topic("gated", configs=GROUP)
        gate.shut()
        first = c.send_produce("gated", 0, record(), acks=1)
        gate.await_sync()
        later = [c.send_produce("gated", 0, record(b"%d" % i), acks=1) for i in range(20)]
        strangers = [other.send_produce("gated", 0, record(b"other"), acks=-1) for _ in range(20)]
        with gated_broker.connect() as watcher:
            # Written, all of them, which DescribeLogDirs tells, and nobody told of it.
            def size():
                dirs = watcher.call("DescribeLogDirs", Topics=None).Results
                return sum(p.PartitionSize for d in dirs for t in d.Topics if t.Name == "gated" for p in t.Partitions)

            whole = len(record()) + sum(len(record(b"%d" % i)) for i in range(20)) + 20 * len(record(b"other"))
            wait_until(lambda: size() == whole, 60, "all of it is written")
        assert not has_answer(c) and not has_answer(other)
        gate.open()
        offsets = [c.receive(sent).Responses[0].PartitionResponses[0].BaseOffset for sent in (first, *later)]
        others = [other.receive(sent).Responses[0].PartitionResponses[0].BaseOffset for sent in strangers]
        assert offsets == sorted(offsets) and others == sorted(others)
        assert sorted(offsets + others) == list(range(41))
        assert gate.passed() == 2


@pytest.mark.parametrize("how", ["broken", "full"])
@pytest.mark.parametrize("config", [GROUP, EACH], ids=["group", "each"])
def test_a_sync_that_fails_fails_what_waits_for_it_and_is_never_tried_again(gated_broker, gate, config, how):
    """Also for want of space: what the kernel could not place it forgets, and a second sync would say that all is well."""
    with gated_broker.connect() as c, gated_broker.connect() as other:
        c.new_topic("gated", configs=config)
        assert c.produce("gated", 0, record()).ErrorCode == Kerr.NONE
        gate.shut()
        gate.fail(how)
        waiting = [c.send_produce("gated", 0, record(), acks=acks) for acks in (1, -1, 1)]
        gate.await_sync()
        gate.open()
        for sent in waiting:
            assert c.receive(sent).Responses[0].PartitionResponses[0].ErrorCode == KAFKA_STORAGE_ERROR
        gate.mend(how)
        gone = {KAFKA_STORAGE_ERROR, Kerr.NOT_LEADER_OR_FOLLOWER}  # or the controller has heard of it
        assert c.produce("gated", 0, record()).ErrorCode in gone
        assert other.fetch("gated", 0, 0).ErrorCode in gone  # in the cache still, and not after a power cut
        assert gate.passed() == 1
        assert other.produce("free", 0, record()).ErrorCode == Kerr.NONE


def test_acks_0_waits_for_nothing_and_is_flushed_all_the_same(gated_broker, gate):
    with gated_broker.connect() as c:
        c.new_topic("gated", configs=GROUP)
        c.send_produce("gated", 0, record(), acks=0)
        wait_until(lambda: c.fetch("gated", 0, 0).HighWatermark == 1, 60, "it is shown")
        assert gate.passed() == 1


def test_the_mode_is_set_for_a_topic_and_for_the_broker_while_it_runs(gated_broker, gate):
    with gated_broker.connect() as c:
        c.new_topic("gated")
        c.new_topic("gated-too", configs={"flush.mode": "kafka"})
        assert c.produce("gated", 0, record()).ErrorCode == Kerr.NONE
        assert gate.passed() == 0
        assert set_config(c, 4, "", **{"log.flush.mode": "group"}) == Kerr.NONE
        wait_until(lambda: described(c, 2, "gated", "flush.mode").Value == "group", 60, "the topic follows the broker")
        assert described(c, 2, "gated-too", "flush.mode").Value == "kafka"

        def flushed():
            """Rebuilding all topics' settings may take a turn longer than answering."""
            assert c.produce("gated", 0, record()).ErrorCode == Kerr.NONE
            return gate.passed() > 0

        wait_until(flushed, 60, "the broker's mode is in force")
        passed = gate.passed()
        assert c.produce("gated", 0, record()).ErrorCode == Kerr.NONE
        assert gate.passed() == passed + 1
        assert c.produce("gated-too", 0, record()).ErrorCode == Kerr.NONE
        assert gate.passed() == passed + 1
        assert set_config(c, 2, "gated", **{"flush.mode": "kafka"}) == Kerr.NONE
        assert set_config(c, 2, "gated-too", **{"flush.mode": "sometimes"}) == UNKNOWN_TOPIC_CONFIG

        def not_flushed():
            before = gate.passed()
            assert c.produce("gated", 0, record()).ErrorCode == Kerr.NONE
            return gate.passed() == before

        wait_until(not_flushed, 60, "the topic's own mode is in force")


def test_flush_ms_is_kept_by_the_schedulers_interval(fresh_broker, gate):
    broker = gate.guard(fresh_broker({"log.flush.scheduler.interval.ms": "50"})).start()
    with broker.connect() as c:
        c.new_topic("gated", configs={"flush.ms": "1"})
        c.new_topic("gated-never", configs={"flush.ms": "1000000000"})
        assert c.produce("gated-never", 0, record()).ErrorCode == Kerr.NONE
        assert c.produce("gated", 0, record()).ErrorCode == Kerr.NONE
        wait_until(lambda: gate.passed() > 0, 60, "it is flushed by itself")
        assert gate.passed() == 1
    broker.stop()


def test_what_was_acknowledged_in_group_mode_is_there_after_a_kill(fresh_broker, topic_name):
    broker = fresh_broker({"log.flush.mode": "group"}).start()
    with broker.connect() as c:
        c.new_topic(topic_name, 3)
        for i in range(30):
            assert c.produce(topic_name, i % 3, record(b"%d" % i), acks=1).ErrorCode == Kerr.NONE
    broker.kill()
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 3)
        for partition in range(3):
            values = [r.value for r in c.read_all(topic_name, partition)]
            assert values == [b"%d" % i for i in range(partition, 30, 3)]
    broker.stop()
