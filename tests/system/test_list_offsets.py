"""ListOffsets and DeleteRecords: where a log begins and ends, and where a time lies in it."""

import pytest

from batches import CODECS, Record, build
from brokers import wait_until
from rawkafka import Kerr

BROKER_CONFIG = {"log.retention.ms": "-1"}  # records are dated in 2023

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
T0 = 1_700_000_000_000


@pytest.fixture
def timed(conn, topic):
    """Three batches of three records: times 0 10 20 | 100 90 80 | 50 200 60 after T0."""
    for times in ((0, 10, 20), (100, 90, 80), (50, 200, 60)):
        answer = conn.produce(topic, 0, build([Record(value=b"v", timestamp=T0 + t) for t in times]))
        assert answer.ErrorCode == 0
    return topic


def ask(conn, topic, timestamp, version=None, **more):
    row = conn.list_offset(topic, 0, timestamp, version=version, **more)
    assert row.ErrorCode == 0, Kerr(row.ErrorCode)
    return row.Offset, row.Timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version(conn, timed, version):
    first, last = conn.announced()[2]
    if not first <= version <= last:
        pytest.skip(f"only {first} to {last}")
    assert ask(conn, timed, LATEST, version) == (9, -1)
    assert ask(conn, timed, EARLIEST, version) == (0, -1)
    assert ask(conn, timed, T0 + 15, version) == (2, T0 + 20)
    if version >= 4:
        epoch = conn.metadata(timed).Topics[0].Partitions[0].LeaderEpoch
        assert conn.list_offset(timed, 0, LATEST, version=version).LeaderEpoch == epoch
    if version >= 7:
        assert ask(conn, timed, MAX_TIMESTAMP, version) == (7, T0 + 200)
    if version >= 8:
        assert ask(conn, timed, EARLIEST_LOCAL, version)[0] == 0


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-5, (0, 0)),
        (0, (0, 0)),
        (1, (1, 10)),
        (20, (2, 20)),
        (21, (3, 100)),
        (95, (3, 100)),
        (101, (7, 200)),
        (200, (7, 200)),
    ],
)
def test_a_time_gives_the_first_record_at_or_after_it(conn, timed, after, expected):
    offset, time = expected
    assert ask(conn, timed, T0 + after) == (offset, T0 + time)


def test_a_time_after_all_records_gives_nothing(conn, timed):
    assert ask(conn, timed, T0 + 201) == (-1, -1)


@pytest.mark.parametrize("codec", CODECS)
def test_times_are_found_inside_compressed_batches(conn, topic, codec):
    conn.produce(topic, 0, build([Record(value=b"v", timestamp=T0 + 10 * i) for i in range(5)], codec))
    assert ask(conn, topic, T0 + 25) == (3, T0 + 30)
    assert ask(conn, topic, MAX_TIMESTAMP) == (4, T0 + 40)


def test_the_maximum_timestamp_s_first_record_is_meant(conn, topic):
    conn.produce(topic, 0, build([Record(value=b"v", timestamp=T0 + t) for t in (1, 9, 5, 9)]))
    conn.produce(topic, 0, build([Record(value=b"v", timestamp=T0 + t) for t in (9, 3)]))
    assert ask(conn, topic, MAX_TIMESTAMP) == (1, T0 + 9)


def test_an_empty_log(conn, topic):
    assert ask(conn, topic, LATEST) == (0, -1)
    assert ask(conn, topic, EARLIEST) == (0, -1)
    assert ask(conn, topic, MAX_TIMESTAMP) == (-1, -1)
    assert ask(conn, topic, T0) == (-1, -1)


def test_nothing_is_tiered(conn, timed):
    first, last = conn.announced()[2]
    if last < 9:
        pytest.skip("version 9 is not served")
    assert ask(conn, timed, LATEST_TIERED, 9)[0] in (-1, 0)


@pytest.mark.parametrize(("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8)])
def test_specials_in_versions_too_old_for_them(conn, timed, timestamp, version):
    row = conn.list_offset(timed, 0, timestamp, version=version)
    assert (row.ErrorCode, row.Offset) == (Kerr.UNSUPPORTED_VERSION, -1)


def test_an_unknown_topic_or_partition(conn, topic, topic_name):
    assert conn.list_offset(f"{topic_name}-no", 0, LATEST).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
    assert conn.list_offset(topic, 1, LATEST).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_epochs_are_checked(conn, timed):
    epoch = conn.metadata(timed).Topics[0].Partitions[0].LeaderEpoch
    assert conn.list_offset(timed, 0, LATEST, current_leader_epoch=epoch).Offset == 9
    assert conn.list_offset(timed, 0, LATEST, current_leader_epoch=epoch + 1).ErrorCode == Kerr.UNKNOWN_LEADER_EPOCH


def test_read_committed_ends_at_the_last_stable_offset(conn, timed):
    assert ask(conn, timed, LATEST, IsolationLevel=1) == (9, -1)


def test_times_over_many_segments(conn, topic_name):
    conn.new_topic(topic_name, configs={"segment.bytes": str(1 << 20)})
    payload = b"x" * 100_000
    for i in range(30):
        assert conn.produce(topic_name, 0, build([Record(value=payload, timestamp=T0 + 1000 * i)])).ErrorCode == 0
    for i in (0, 9, 10, 11, 20, 29):
        assert ask(conn, topic_name, T0 + 1000 * i) == (i, T0 + 1000 * i)
        assert ask(conn, topic_name, T0 + 1000 * i - 999) == (i, T0 + 1000 * i)
    assert ask(conn, topic_name, MAX_TIMESTAMP) == (29, T0 + 29000)


def test_log_append_time_is_what_is_looked_up(conn, topic_name):
    conn.new_topic(topic_name, configs={"message.timestamp.type": "LogAppendTime"})
    given = conn.produce(topic_name, 0, build([Record(value=b"v", timestamp=T0)])).LogAppendTimeMs
    assert ask(conn, topic_name, T0 + 1) == (0, given)
    assert ask(conn, topic_name, MAX_TIMESTAMP) == (0, given)
    assert ask(conn, topic_name, given + 1) == (-1, -1)


class TestDeleteRecords:
    def delete(self, conn, topic, offset, partition=0, version=None):
        asked = [{"Name": topic, "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}]
        row = conn.call("DeleteRecords", version, Topics=asked, TimeoutMs=30000).Topics[0].Partitions[0]
        return row.ErrorCode, row.LowWatermark

    def test_every_version(self, conn, timed):
        first, last = conn.announced()[21]
        for version in range(first, last + 1):
            assert self.delete(conn, timed, version + 1, version=version) == (0, version + 1)

    def test_the_log_starts_later(self, conn, timed):
        assert self.delete(conn, timed, 4) == (0, 4)
        assert ask(conn, timed, EARLIEST) == (4, -1)
        assert [r.offset for r in conn.read_all(timed, 0, 4)] == [4, 5, 6, 7, 8]
        assert ask(conn, timed, T0)[0] == 4
        assert conn.produce(timed, 0, build([Record(value=b"v")])).LogStartOffset == 4

    def test_minus_one_deletes_up_to_the_high_watermark(self, conn, timed):
        assert self.delete(conn, timed, -1) == (0, 9)
        assert ask(conn, timed, EARLIEST) == ask(conn, timed, LATEST) == (9, -1)

    def test_what_is_deleted_already_stays_so(self, conn, timed):
        self.delete(conn, timed, 5)
        assert self.delete(conn, timed, 2) == (0, 5)

    @pytest.mark.parametrize("offset", [10, -2])
    def test_beyond_the_end_is_out_of_range(self, conn, timed, offset):
        assert self.delete(conn, timed, offset)[0] == Kerr.OFFSET_OUT_OF_RANGE
        assert ask(conn, timed, EARLIEST) == (0, -1)

    def test_an_unknown_partition(self, conn, topic):
        assert self.delete(conn, topic, 0, partition=5)[0] == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_compacted_topic_refuses(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"cleanup.policy": "compact"})
        assert self.delete(conn, topic_name, -1)[0] == Kerr.POLICY_VIOLATION

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_the_log_start_survives_a_restart(self, fresh_broker, topic_name, end):
        broker = fresh_broker({"log.flush.start.offset.checkpoint.interval.ms": "100"}).start()
        with broker.connect() as c:
            c.new_topic(topic_name)
            c.produce(topic_name, 0, build([Record(value=b"v") for _ in range(5)]))
            assert self.delete(c, topic_name, 3) == (0, 3)
            if end == "kill":
                _await_checkpoint(broker, topic_name, 3)
        getattr(broker, end)()
        broker.start()
        with broker.connect() as c:
            c.await_topic(topic_name, 1)
            assert ask(c, topic_name, EARLIEST) == (3, -1)
            assert ask(c, topic_name, LATEST) == (5, -1)
        broker.stop()

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_a_topic_made_again_under_the_same_name_starts_at_0(self, fresh_broker, topic_name, end):
        broker = fresh_broker({"log.flush.start.offset.checkpoint.interval.ms": "100"}).start()
        with broker.connect() as c:
            c.new_topic(topic_name)
            c.produce(topic_name, 0, build([Record(value=b"old") for _ in range(5)]))
            assert self.delete(c, topic_name, 3) == (0, 3)
            _await_checkpoint(broker, topic_name, 3)
        broker.stop()
        broker.start()
        with broker.connect() as c:
            c.await_topic(topic_name, 1)
            answer = c.call("DeleteTopics", 5, TopicNames=[topic_name], TimeoutMs=30000)
            assert answer.Responses[0].ErrorCode == 0
            assert f"{topic_name} 0 3" not in (broker.log_dir / "log-start-offset-checkpoint").read_text()
            c.new_topic(topic_name)
            assert c.produce(topic_name, 0, build([Record(value=b"new")])).BaseOffset == 0
        getattr(broker, end)()
        broker.start()
        with broker.connect() as c:
            c.await_topic(topic_name, 1)
            assert [(r.offset, r.value) for r in c.read_all(topic_name, 0)] == [(0, b"new")]
        broker.stop()


def _await_checkpoint(broker, topic, offset):
    path = broker.log_dir / "log-start-offset-checkpoint"
    wait_until(
        lambda: path.exists() and f"{topic} 0 {offset}" in path.read_text(), 30, "the log start is in its checkpoint"
    )
