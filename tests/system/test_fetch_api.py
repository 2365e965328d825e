"""Fetch: limits, waiting, sessions, topic ids, epochs; and OffsetForLeaderEpoch."""

import uuid

import pytest

import batches
from batches import Record, build
from brokers import wait_until
from rawkafka import Kerr

NO_EPOCH = -1  # of a session: a full fetch outside any
INITIAL = 0  # of a session: a full fetch that opens one


def fill(conn, topic, count, size=100, partition=0):
    """`count` batches of one record of `size` bytes each."""
    for i in range(count):
        assert conn.produce(topic, partition, build([Record(value=b"%d " % i + b"x" * size)])).ErrorCode == 0


class TestReading:
    @pytest.mark.parametrize("version", range(4, 18))
    def test_every_version(self, conn, topic, version):
        first, last = conn.announced()[1]
        if not first <= version <= last:
            pytest.skip(f"only {first} to {last}")
        fill(conn, topic, 3)
        row = conn.fetch(topic, 0, 1, version=version)
        assert (row.ErrorCode, row.PartitionIndex, row.HighWatermark, row.LastStableOffset) == (0, 0, 3, 3)
        assert [r.offset for r in batches.records_of(row.Records)] == [1, 2]
        assert row.AbortedTransactions in (None, [])
        if version >= 5:
            assert row.LogStartOffset == 0
        if version >= 11:
            assert row.PreferredReadReplica == -1

    def test_a_fetch_from_inside_a_batch_gives_the_whole_batch(self, conn, topic):
        conn.produce(topic, 0, build([Record(value=b"%d" % i) for i in range(10)]))
        (batch,) = batches.read(conn.fetch(topic, 0, 7).Records)
        assert (batch.base_offset, batch.count) == (0, 10)

    def test_the_end_gives_nothing_and_no_error(self, conn, topic):
        fill(conn, topic, 2)
        row = conn.fetch(topic, 0, 2)
        assert (row.ErrorCode, row.Records or b"", row.HighWatermark) == (0, b"", 2)

    @pytest.mark.parametrize("offset", [3, 2**62, -1, -2])
    def test_beyond_the_ends_is_out_of_range(self, conn, topic, offset):
        fill(conn, topic, 2)
        row = conn.fetch(topic, 0, offset)
        assert (row.ErrorCode, row.Records or b"") == (Kerr.OFFSET_OUT_OF_RANGE, b"")

    def test_below_the_log_start_is_out_of_range(self, conn, topic):
        fill(conn, topic, 4)
        asked = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}]
        assert conn.call("DeleteRecords", Topics=asked, TimeoutMs=30000).Topics[0].Partitions[0].LowWatermark == 2
        row = conn.fetch(topic, 0, 1)
        assert (row.ErrorCode, row.LogStartOffset) in ((Kerr.OFFSET_OUT_OF_RANGE, -1), (Kerr.OFFSET_OUT_OF_RANGE, 2))
        assert [r.offset for r in conn.read_all(topic, 0, 2)] == [2, 3]

    def test_an_unknown_topic_or_partition(self, conn, topic, topic_name):
        assert conn.fetch(f"{topic_name}-no", 0, 0).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        assert conn.fetch(topic, 1, 0).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    def test_an_unknown_topic_id(self, conn):
        wanted = uuid.uuid4()
        rows = [{"TopicId": wanted, "Partitions": [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000}]}]
        answer = conn.call("Fetch", 13, MaxWaitMs=0, MinBytes=1, Topics=rows)
        assert answer.ErrorCode == Kerr.NONE
        (got,) = answer.Responses
        assert (got.TopicId, got.Partitions[0].ErrorCode) == (wanted, Kerr.UNKNOWN_TOPIC_ID)

    def test_read_committed_sees_what_no_transaction_holds_back(self, conn, topic):
        fill(conn, topic, 2)
        row = conn.fetch(topic, 0, 0, IsolationLevel=1)
        assert row.AbortedTransactions == [] and len(batches.records_of(row.Records)) == 2

    def test_data_over_many_segments(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"segment.bytes": str(1 << 20)})
        payload = bytes(range(256)) * 400
        for i in range(40):
            assert conn.produce(topic_name, 0, build([Record(b"%d" % i, payload)])).ErrorCode == 0
        assert [(r.offset, r.key, r.value) for r in conn.read_all(topic_name, 0)] == [
            (i, b"%d" % i, payload) for i in range(40)
        ]
        for offset in (0, 9, 10, 11, 39):
            assert batches.read(conn.fetch(topic_name, 0, offset).Records)[0].base_offset == offset


class TestLimits:
    @pytest.mark.parametrize("limit", [0, 1, 61, 500])
    def test_the_first_batch_comes_whole_whatever_the_limits(self, conn, topic, limit):
        fill(conn, topic, 3, 5000)
        for limits in (
            {"partition_max_bytes": limit},
            {"max_bytes": limit},
            {"partition_max_bytes": limit, "max_bytes": limit},
        ):
            got = batches.read(conn.fetch(topic, 0, 1, **limits).Records)
            assert got and got[0].base_offset == 1 and got[0].crc_ok

    def test_a_limit_is_not_passed_by_a_second_batch(self, conn, topic):
        fill(conn, topic, 10, 1000)
        size = batches.read(conn.fetch(topic, 0, 0).Records)[0].size
        data = conn.fetch(topic, 0, 0, partition_max_bytes=3 * size + 10).Records
        assert len(data) <= 3 * size + 10 and len(batches.read(data)) == 3

    def test_only_the_first_partition_with_data_may_pass_the_limit(self, conn, topic_name):
        conn.new_topic(topic_name, 3)
        for partition in (1, 2):
            fill(conn, topic_name, 1, 5000, partition)
        parts = [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 100} for p in range(3)]
        answer = conn.call(
            "Fetch", 12, MaxWaitMs=0, MinBytes=1, MaxBytes=100, Topics=[{"Topic": topic_name, "Partitions": parts}]
        )
        whole = {p.PartitionIndex: len(batches.read(p.Records or b"")) for p in answer.Responses[0].Partitions}
        assert whole == {0: 0, 1: 1, 2: 0}

    def test_the_whole_answer_keeps_to_max_bytes(self, conn, topic_name):
        conn.new_topic(topic_name, 4)
        for partition in range(4):
            fill(conn, topic_name, 2, 10000, partition)
        parts = [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20} for p in range(4)]
        answer = conn.call(
            "Fetch", 12, MaxWaitMs=0, MinBytes=1, MaxBytes=25000, Topics=[{"Topic": topic_name, "Partitions": parts}]
        )
        sizes = [len(p.Records or b"") for p in answer.Responses[0].Partitions]
        assert 0 < sum(sizes) <= 25000


class TestWaiting:
    WAIT_MS = 60000  # never reached: the tests end by events

    def test_a_produce_wakes_a_waiting_fetch(self, broker, conn, topic):
        with broker.connect(timeout=self.WAIT_MS / 2000) as waiter:
            asked = waiter.send_fetch(topic, 0, 0, max_wait_ms=self.WAIT_MS)
            conn.produce(topic, 0, build([Record(value=b"wake")]))
            row = waiter.receive(asked).Responses[0].Partitions[0]
        assert [r.value for r in batches.records_of(row.Records)] == [b"wake"]

    def test_min_bytes_gathers_several_produces(self, broker, conn, topic):
        with broker.connect(timeout=self.WAIT_MS / 2000) as waiter:
            asked = waiter.send_fetch(topic, 0, 0, max_wait_ms=self.WAIT_MS, min_bytes=3000)
            fill(conn, topic, 4, 1000)
            row = waiter.receive(asked).Responses[0].Partitions[0]
        assert len(row.Records) >= 3000

    def test_min_bytes_0_answers_at_once(self, broker, topic):
        with broker.connect(timeout=self.WAIT_MS / 2000) as waiter:
            row = waiter.fetch(topic, 0, 0, max_wait_ms=self.WAIT_MS, min_bytes=0)
        assert (row.ErrorCode, row.Records or b"") == (0, b"")

    def test_an_error_answers_at_once(self, broker, topic):
        with broker.connect(timeout=self.WAIT_MS / 2000) as waiter:
            assert waiter.fetch(topic, 0, 99, max_wait_ms=self.WAIT_MS).ErrorCode == Kerr.OFFSET_OUT_OF_RANGE

    def test_without_data_the_wait_ends(self, conn, topic):
        row = conn.fetch(topic, 0, 0, max_wait_ms=100)
        assert (row.ErrorCode, row.Records or b"") == (0, b"")

    def test_any_of_many_partitions_wakes(self, broker, conn, topic_name):
        conn.new_topic(topic_name, 20)
        parts = [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20} for p in range(20)]
        with broker.connect(timeout=self.WAIT_MS / 2000) as waiter:
            asked = waiter.send(
                "Fetch", 12, MaxWaitMs=self.WAIT_MS, MinBytes=1, Topics=[{"Topic": topic_name, "Partitions": parts}]
            )
            conn.produce(topic_name, 17, build([Record(value=b"wake")]))
            answer = waiter.receive(asked)
        assert [p.PartitionIndex for p in answer.Responses[0].Partitions if p.Records] == [17]

    def test_a_deleted_topic_ends_the_wait(self, broker, conn, topic):
        """With an error or with nothing; but it must not hang on to the log."""
        with broker.connect(timeout=self.WAIT_MS / 2000) as waiter:
            waiter.announced()
            asked = waiter.send_fetch(topic, 0, 0, max_wait_ms=5000)
            conn.call("DeleteTopics", 5, TopicNames=[topic], TimeoutMs=30000)
            waiter.receive(asked)


class Session:
    """A fetch session as a client keeps it."""

    def __init__(self, conn, topics, version=12):
        self.conn, self.version = conn, version
        self.id, self.epoch = 0, INITIAL
        self.topics = topics

    def rows(self, wanted):
        """{(topic, partition): offset} as the request's array."""
        rows = {}
        for (topic, partition), offset in wanted.items():
            row = rows.setdefault(topic, {**self.conn.topic_row(self.version, topic), "Partitions": []})
            row["Partitions"].append({"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20})
        return list(rows.values())

    def fetch(self, wanted=None, forget=(), epoch=None, **more):
        fields = {"MaxWaitMs": 0, "MinBytes": 1, "SessionId": self.id, "Topics": self.rows(wanted or {})}
        fields["SessionEpoch"] = self.epoch if epoch is None else epoch
        fields["ForgottenTopicsData"] = [
            {**self.conn.topic_row(self.version, topic), "Partitions": [partition]} for topic, partition in forget
        ]
        answer = self.conn.call("Fetch", self.version, **(fields | more))
        if answer.ErrorCode == Kerr.NONE:
            self.id, self.epoch = answer.SessionId, self.epoch + 1
        return answer

    def got(self, answer):
        assert answer.ErrorCode == Kerr.NONE, Kerr(answer.ErrorCode)
        return {
            p.PartitionIndex: len(batches.records_of(p.Records or b"")) for t in answer.Responses for p in t.Partitions
        }


@pytest.fixture(params=[12, 13], ids=["by name", "by id"])
def session(request, conn, topic_name):
    """An open session over three partitions of which 0 and 1 hold one record each."""
    conn.new_topic(topic_name, 3)
    for partition in (0, 1):
        fill(conn, topic_name, 1, partition=partition)
    one = Session(conn, topic_name, request.param)
    one.name = topic_name
    answer = one.fetch({(topic_name, p): 0 for p in range(3)})
    assert one.id > 0 and one.got(answer) == {0: 1, 1: 1, 2: 0}
    return one


class TestSessions:
    def test_an_incremental_fetch_tells_only_what_changed(self, session):
        assert session.got(session.fetch({(session.name, 0): 1, (session.name, 1): 1})) == {}
        fill(session.conn, session.name, 2, partition=2)
        assert session.got(session.fetch()) == {2: 2}

    def test_without_a_new_offset_the_same_data_comes_again(self, session):
        assert session.got(session.fetch()) == {0: 1, 1: 1}

    def test_a_partition_can_be_added(self, session):
        session.fetch({(session.name, 0): 1, (session.name, 1): 1})
        session.conn.call(
            "CreatePartitions", Topics=[{"Name": session.name, "Count": 4, "Assignments": None}], TimeoutMs=30000
        )
        session.conn.await_topic(session.name, 4)
        fill(session.conn, session.name, 1, partition=3)
        assert session.got(session.fetch({(session.name, 3): 0})) == {3: 1}

    def test_a_forgotten_partition_is_told_no_more(self, session):
        session.fetch({(session.name, 1): 1}, forget=[(session.name, 0)])
        fill(session.conn, session.name, 1, partition=0)
        fill(session.conn, session.name, 1, partition=1)
        assert session.got(session.fetch()) == {1: 1}

    def test_a_wrong_epoch(self, session):
        answer = session.fetch(epoch=session.epoch + 5)
        assert (answer.ErrorCode, answer.Responses) == (Kerr.INVALID_FETCH_SESSION_EPOCH, [])

    def test_an_unknown_session(self, session):
        session.id = session.id ^ 0x5A5A5A
        assert session.fetch().ErrorCode == Kerr.FETCH_SESSION_ID_NOT_FOUND

    def test_the_final_epoch_closes_it(self, session):
        answer = session.fetch({(session.name, p): 0 for p in range(3)}, epoch=NO_EPOCH)
        assert (answer.ErrorCode, answer.SessionId) == (0, 0)
        assert session.got(answer) == {0: 1, 1: 1, 2: 0}

    def test_a_closed_session_is_not_found(self, session):
        old, epoch = session.id, session.epoch
        session.fetch(epoch=NO_EPOCH)
        session.id, session.epoch = old, epoch
        assert session.fetch().ErrorCode == Kerr.FETCH_SESSION_ID_NOT_FOUND

    def test_a_new_full_fetch_with_the_old_id_replaces_it(self, session):
        old = session.id
        answer = session.fetch({(session.name, 0): 0}, epoch=INITIAL)
        assert answer.ErrorCode == 0 and answer.SessionId not in (0, old)

    def test_a_session_error_costs_no_session(self, session):
        session.fetch(epoch=session.epoch + 5)
        assert session.got(session.fetch()) == {0: 1, 1: 1}

    def test_outside_sessions_no_id_is_given(self, conn, topic):
        fill(conn, topic, 1)
        answer = conn.receive(conn.send_fetch(topic, 0, 0))
        assert (answer.ErrorCode, answer.SessionId) == (0, 0)

    def test_a_session_waits_and_wakes(self, broker, session):
        session.fetch({(session.name, 0): 1, (session.name, 1): 1})
        with broker.connect() as other:
            asked = session.conn.send(
                "Fetch",
                session.version,
                MaxWaitMs=60000,
                MinBytes=1,
                SessionId=session.id,
                SessionEpoch=session.epoch,
                Topics=[],
            )
            fill(other, session.name, 1, partition=2)
            assert session.got(session.conn.receive(asked)) == {2: 1}

    def test_a_topic_id_and_a_name_do_not_mix(self, session):
        session.version = 25 - session.version  # 12 <-> 13
        answer = session.fetch()
        assert answer.ErrorCode == Kerr.FETCH_SESSION_TOPIC_ID_ERROR

    def test_a_topic_deleted_in_a_session_is_told_as_unknown(self, session):
        session.conn.call("DeleteTopics", 5, TopicNames=[session.name], TimeoutMs=30000)
        unknown = {Kerr.UNKNOWN_TOPIC_OR_PARTITION, Kerr.UNKNOWN_TOPIC_ID}

        def told():
            answer = session.fetch()
            assert answer.ErrorCode == 0
            codes = {p.ErrorCode for t in answer.Responses for p in t.Partitions}
            return codes and codes <= unknown

        wait_until(told, 30, "the partitions are unknown")


class TestEpochs:
    def test_a_fetch_with_a_leader_epoch_from_the_future_or_the_past(self, conn, topic):
        fill(conn, topic, 1)
        epoch = conn.metadata(topic).Topics[0].Partitions[0].LeaderEpoch
        assert conn.fetch(topic, 0, 0, current_leader_epoch=epoch).ErrorCode == 0
        assert conn.fetch(topic, 0, 0, current_leader_epoch=epoch + 1).ErrorCode == Kerr.UNKNOWN_LEADER_EPOCH
        if epoch > 0:
            assert conn.fetch(topic, 0, 0, current_leader_epoch=epoch - 1).ErrorCode == Kerr.FENCED_LEADER_EPOCH

    def test_batches_carry_the_leader_epoch(self, conn, topic):
        fill(conn, topic, 1)
        epoch = conn.metadata(topic).Topics[0].Partitions[0].LeaderEpoch
        assert batches.read(conn.fetch(topic, 0, 0).Records)[0].leader_epoch == epoch

    def test_a_reader_that_saw_records_of_an_epoch_the_log_has_no_more_of_is_told_where_to_cut(self, conn, topic):
        fill(conn, topic, 2)
        epoch = conn.metadata(topic).Topics[0].Partitions[0].LeaderEpoch
        row = conn.fetch(topic, 0, 2, last_fetched_epoch=epoch)
        assert row.ErrorCode == 0 and row.DivergingEpoch.EndOffset == -1
        row = conn.fetch(topic, 0, 2, last_fetched_epoch=epoch + 7)
        assert row.ErrorCode == Kerr.OFFSET_OUT_OF_RANGE or row.DivergingEpoch.EndOffset >= 0

    def test_offset_for_leader_epoch(self, conn, topic):
        fill(conn, topic, 3)
        epoch = conn.metadata(topic).Topics[0].Partitions[0].LeaderEpoch

        def ask(wanted, partition=0, current=-1):
            rows = [{"Partition": partition, "CurrentLeaderEpoch": current, "LeaderEpoch": wanted}]
            answer = conn.call("OffsetForLeaderEpoch", ReplicaId=-1, Topics=[{"Topic": topic, "Partitions": rows}])
            row = answer.Topics[0].Partitions[0]
            return row.ErrorCode, row.LeaderEpoch, row.EndOffset

        assert ask(epoch) == (0, epoch, 3)
        assert ask(epoch, current=epoch) == (0, epoch, 3)
        assert ask(epoch + 5) == (0, -1, -1)
        assert ask(epoch, current=epoch + 1)[0] == Kerr.UNKNOWN_LEADER_EPOCH
        assert ask(epoch, partition=7)[0] == Kerr.UNKNOWN_TOPIC_OR_PARTITION
