"""Several log directories: placement, and what fails when a disk does."""

import contextlib

import pytest

from batches import Record, build
from brokers import wait_until
from disks import Disk
from rawkafka import Closed, Kerr

pytestmark = pytest.mark.barnabas_only

PARTITIONS = 6


@pytest.fixture
def disk(tmp_path):
    """The second of three log directories is a disk of its own."""
    with Disk(tmp_path / "disk") as one:
        yield one


@pytest.fixture
def three_dirs(fresh_broker, tmp_path, disk):
    dirs = [tmp_path / "first", disk.path / "logs", tmp_path / "last"]
    config = {"log.dirs": ",".join(map(str, dirs)), "log.flush.offset.checkpoint.interval.ms": "200"}
    return fresh_broker(config | {"log.segment.delete.delay.ms": "0"}), dirs


def placed(dirs, topic):
    """Which of the directories each partition lies in."""
    found = {}
    for at, directory in enumerate(dirs):
        for path in directory.glob(f"{topic}-*"):
            number = path.name.removeprefix(f"{topic}-")
            if number.isdecimal():
                assert int(number) not in found, f"{path} is there twice"
                found[int(number)] = at
    return found


def described(conn):
    return {row.LogDir: row for row in conn.call("DescribeLogDirs", Topics=None).Results}


def fill(conn, topic, partitions, key=b"k"):
    for index in partitions:
        assert conn.produce(topic, index, build([Record(key, b"%d" % index)])).ErrorCode == 0


def partition_rows(conn, topic):
    return {p.PartitionIndex: p for p in conn.metadata(topic).Topics[0].Partitions}


def test_partitions_are_spread_over_the_directories(three_dirs, topic_name):
    broker, dirs = three_dirs
    broker.start()
    with broker.connect() as c:
        c.new_topic(topic_name, PARTITIONS)
        assert sorted(placed(dirs, topic_name).values()) == [0, 0, 1, 1, 2, 2]
    broker.stop()


def fails_alone(broker, dirs, disk, topic):
    """The disk fails while the broker serves; checks that the rest of it lives.  Returns the partitions that are left."""
    where = placed(dirs, topic)
    lost, alive = [p for p in where if where[p] == 1], [p for p in where if where[p] != 1]
    with broker.connect() as c:
        fill(c, topic, where)
        disk.fail()
        row = c.produce(topic, lost[0], build([Record(b"k", b"lost")]))
        assert row.ErrorCode == Kerr.KAFKA_STORAGE_ERROR

        def none_leads():
            rows = partition_rows(c, topic)
            return all(rows[p].LeaderId == -1 and rows[p].ErrorCode == Kerr.LEADER_NOT_AVAILABLE for p in lost)

        wait_until(none_leads, 30, "the controller has moved the leaders away")
        rows = partition_rows(c, topic)
        for p in lost:
            assert list(rows[p].OfflineReplicas) == list(rows[p].ReplicaNodes)
            assert c.produce(topic, p, build([Record(b"k", b"lost")])).ErrorCode == Kerr.KAFKA_STORAGE_ERROR
            assert c.fetch(topic, p, 0).ErrorCode == Kerr.KAFKA_STORAGE_ERROR
        for p in alive:
            assert rows[p].ErrorCode == 0 and list(rows[p].OfflineReplicas) == []
            assert c.produce(topic, p, build([Record(b"k", b"more")])).ErrorCode == 0
            assert len(c.read_all(topic, p)) == 2
        assert described(c)[str(dirs[1])].ErrorCode == Kerr.KAFKA_STORAGE_ERROR
        assert described(c)[str(dirs[0])].ErrorCode == 0
    return alive


def test_a_failing_disk_takes_its_partitions_with_it_and_nothing_else(three_dirs, disk, topic_name):
    broker, dirs = three_dirs
    broker.start()
    with broker.connect() as c:
        c.new_topic(topic_name, PARTITIONS)
    alive = fails_alone(broker, dirs, disk, topic_name)
    with broker.connect() as c:
        after = c.new_topic(f"{topic_name}-after", PARTITIONS)
        assert sorted(placed([dirs[0], dirs[2]], after).values()) == [0, 0, 0, 1, 1, 1]
        fill(c, after, range(PARTITIONS))
    broker.stop()
    assert (dirs[0] / ".kafka_cleanshutdown").exists() and (dirs[2] / ".kafka_cleanshutdown").exists()

    disk.repair()
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, PARTITIONS)
        for p in alive:
            assert [r.value for r in c.read_all(topic_name, p)] == [b"%d" % p, b"more"]
        fill(c, topic_name, range(PARTITIONS))
    broker.stop()


def test_a_directory_that_is_bad_at_start_is_left_out(three_dirs, disk, topic_name):
    broker, dirs = three_dirs
    broker.start()
    with broker.connect() as c:
        c.new_topic(topic_name, PARTITIONS)
        fill(c, topic_name, range(PARTITIONS))
    broker.stop()
    where = placed(dirs, topic_name)
    disk.fail()
    broker.start()
    with broker.connect() as c:
        rows = wait_until(
            lambda: [r for r in [partition_rows(c, topic_name)] if sum(p.LeaderId < 0 for p in r.values()) == 2],
            30,
            "two partitions have no leader",
        )[0]
        for p in where:
            assert (rows[p].LeaderId < 0) == (where[p] == 1)
            error = c.produce(topic_name, p, build([Record(b"k", b"v")])).ErrorCode
            assert error == (Kerr.KAFKA_STORAGE_ERROR if where[p] == 1 else 0)
        assert described(c)[str(dirs[1])].ErrorCode == Kerr.KAFKA_STORAGE_ERROR
    assert placed([dirs[0], dirs[2]], topic_name).keys() == {p for p in where if where[p] != 1}, "made anew elsewhere"
    broker.stop()
    disk.repair()
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, PARTITIONS)
        for p in where:
            assert len(c.read_all(topic_name, p)) == (1 if where[p] == 1 else 2)
    broker.stop()


def test_a_topic_in_a_failed_directory_is_deleted_when_that_is_back(three_dirs, disk, topic_name):
    broker, dirs = three_dirs
    broker.start()
    with broker.connect() as c:
        c.new_topic(topic_name, PARTITIONS)
    fails_alone(broker, dirs, disk, topic_name)
    with broker.connect() as c:
        answer = c.call("DeleteTopics", 5, TopicNames=[topic_name], TimeoutMs=500).Responses[0]
        assert answer.ErrorCode in (Kerr.NONE, Kerr.REQUEST_TIMED_OUT)
    broker.stop()
    disk.repair()
    broker.start()
    with broker.connect() as c:
        wait_until(
            lambda: c.metadata(topic_name).Topics[0].ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION, 30, "it is gone"
        )
        wait_until(lambda: not placed(dirs, topic_name), 30, "its directories are gone")
    broker.stop()


@pytest.mark.parametrize("which", ["the only one", "the coordination store's"])
def test_the_broker_stops_with_a_reason_when_it_cannot_do_without_the_directory(
    fresh_broker, tmp_path, disk, topic_name, which
):
    dirs = [disk.path / "logs"] + ([] if which == "the only one" else [tmp_path / "other"])
    broker = fresh_broker({"log.dirs": ",".join(map(str, dirs))}).start()
    with broker.connect() as c:
        c.new_topic(topic_name, 2)
        disk.fail()
        with contextlib.suppress(Closed):  # it may be gone before it answers
            c.produce(topic_name, 0, build([Record(b"k", b"v")]))
            c.produce(topic_name, 1, build([Record(b"k", b"v")]))
    assert broker.wait() == 1
    reason = "Every log directory has failed" if which == "the only one" else "holds the coordination store"
    assert reason in broker.output() and str(dirs[0]) in broker.output()


def test_a_log_that_cannot_be_made_has_no_leader_until_it_can(fresh_broker, topic_name):
    """And neither its topic's other partitions nor its directory suffer for it."""
    broker = fresh_broker().start()
    broken = broker.log_dir / f"{topic_name}-1"
    broken.write_text("this is no directory")
    with broker.connect() as c:
        c.create_topic(topic_name, 3)
        wait_until(
            lambda: [p.LeaderId for p in partition_rows(c, topic_name).values()].count(-1) == 1, 30, "one has no leader"
        )
        rows = partition_rows(c, topic_name)
        assert rows[1].ErrorCode == Kerr.LEADER_NOT_AVAILABLE and list(rows[1].OfflineReplicas) == [0]
        assert c.produce(topic_name, 1, build([Record(b"k", b"v")])).ErrorCode == Kerr.KAFKA_STORAGE_ERROR
        fill(c, topic_name, [0, 2])
        broken.unlink()
        c.await_topic(topic_name, 3)
        fill(c, topic_name, range(3))
        assert "log_dir_offline" not in broker.output()
    broker.stop()
