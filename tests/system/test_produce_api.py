"""Produce: what is taken, what is refused and how, and what idempotent producers may rely on."""

import struct
import uuid

import pytest

import batches
from batches import CODECS, Record, build, now_ms
from brokers import wait_until
from rawkafka import Closed, Kerr

BROKER_CONFIG = {"log.retention.ms": "-1"}  # records are dated in 2023

DAY_MS = 24 * 3600 * 1000


def values(conn, topic, partition=0):
    return [record.value for record in conn.read_all(topic, partition)]


def end_of(conn, topic, partition=0):
    return conn.list_offset(topic, partition, -1).Offset


def simple(*texts, **more):
    return build([Record(value=text.encode()) for text in texts], **more)


class TestTaken:
    @pytest.mark.parametrize("version", range(3, 14))
    def test_every_version(self, conn, topic, version):
        first, last = conn.announced()[0]
        if not first <= version <= last:
            pytest.skip(f"only {first} to {last}")
        assert conn.produce(topic, 0, simple("a", "b"), version=version).ErrorCode == Kerr.NONE
        answer = conn.produce(topic, 0, simple("c"), version=version)
        assert (answer.ErrorCode, answer.Index, answer.BaseOffset, answer.LogAppendTimeMs) == (0, 0, 2, -1)
        if version >= 5:
            assert answer.LogStartOffset == 0
        if version >= 8:
            assert (answer.RecordErrors, answer.ErrorMessage) == ([], None)
        assert values(conn, topic) == [b"a", b"b", b"c"]

    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_comes_back_as_it_was(self, conn, topic, codec):
        records = [
            Record(b"key", b"value", [("h", b"1"), ("h", b"2"), ("none", None), ("empty", b"")], 1700000000000),
            Record(None, None, [], 1700000000005),
            Record(b"", b"", [], 1700000000001),
            Record(b"\0\xff", bytes(range(256)) * 300, [("", b"nameless")], 1700000000002),
        ]
        assert conn.produce(topic, 0, build(records, codec)).ErrorCode == 0
        (batch,) = batches.read(conn.fetch(topic, 0, 0).Records)
        assert batch.crc_ok and batch.codec == codec and batch.last_offset_delta == 3
        assert (batch.base_timestamp, batch.max_timestamp) == (1700000000000, 1700000000005)
        got = [(r.key, r.value, r.headers, r.timestamp, r.offset) for r in batch.records]
        assert got == [(r.key, r.value, r.headers, r.timestamp, offset) for offset, r in enumerate(records)]

    def test_the_bytes_of_a_batch_stay_but_for_offset_and_epoch(self, conn, topic):
        conn.produce(topic, 0, simple("first"))
        sent = simple("x", "y", codec="lz4", base_offset=0)
        conn.produce(topic, 0, sent)
        got = conn.fetch(topic, 0, 1).Records
        assert got[8:12] == sent[8:12] and got[16:] == sent[16:]
        assert struct.unpack_from(">q", got) == (1,)

    def test_several_topics_and_partitions_in_one_request(self, conn, topic_name):
        one, two = conn.new_topic(f"{topic_name}-1", 2), conn.new_topic(f"{topic_name}-2")
        data = [
            {
                "Name": one,
                "PartitionData": [{"Index": 1, "Records": simple("1-1")}, {"Index": 0, "Records": simple("1-0")}],
            },
            {
                "Name": two,
                "PartitionData": [{"Index": 0, "Records": simple("2-0")}, {"Index": 9, "Records": simple("no")}],
            },
            {"Name": f"{topic_name}-no", "PartitionData": [{"Index": 0, "Records": simple("no")}]},
        ]
        answer = conn.call("Produce", 9, Acks=-1, TimeoutMs=30000, TopicData=data)
        codes = {(r.Name, p.Index): p.ErrorCode for r in answer.Responses for p in r.PartitionResponses}
        unknown = Kerr.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {(one, 0): 0, (one, 1): 0, (two, 0): 0, (two, 9): unknown, (f"{topic_name}-no", 0): unknown}
        assert (values(conn, one, 0), values(conn, one, 1), values(conn, two)) == ([b"1-0"], [b"1-1"], [b"2-0"])

    def test_acks_0_gets_no_answer_and_is_written(self, conn, topic):
        conn.send_produce(topic, 0, simple("silent"), acks=0)
        following = conn.send("Metadata", 9, Topics=[])
        assert conn.receive(following).Topics == []
        assert values(conn, topic) == [b"silent"]

    def test_nothing_is_answered_behind_an_acks_0_with_an_error(self, broker, topic_name):
        """An answer there would look like one to a request that was never answered."""
        with broker.connect() as c:
            row = {"Name": topic_name, "PartitionData": [{"Index": 0, "Records": simple("nowhere")}]}
            failing, _ = c.request_bytes("Produce", 9, {"Acks": 0, "TimeoutMs": 1000, "TopicData": [row]})
            behind, _ = c.request_bytes("ApiVersions", 0, {})
            c.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in (failing, behind)))
            with pytest.raises(Closed):
                c.receive_frame()

    def test_acks_0_with_an_error_closes_the_connection(self, broker, topic_name):
        """The only way to tell a producer that does not listen."""
        with broker.connect() as c:
            c.announced()
            c.send_produce(topic_name, 0, simple("nowhere"), acks=0)
            assert c.closed_by_peer()

    def test_acks_1(self, conn, topic):
        assert conn.produce(topic, 0, simple("one"), acks=1).ErrorCode == 0

    @pytest.mark.parametrize("codec", ["gzip", "zstd"])
    def test_a_batch_that_is_large_inside_is_looked_into_and_keeps_its_place(self, conn, topic_name, codec):
        """Too much for an event loop to decompress at once; what comes behind must not overtake it."""
        conn.new_topic(topic_name, configs={"cleanup.policy": "compact"})
        big = build([Record(b"big", bytes(8 << 20))], codec)
        keyless = build([Record(None, bytes(8 << 20))], codec)
        small = build([Record(b"small", b"v")])
        sent = [conn.send_produce(topic_name, 0, batch) for batch in (big, small, keyless, small)]
        rows = [conn.receive(c).Responses[0].PartitionResponses[0] for c in sent]
        assert [row.ErrorCode for row in rows] == [0, 0, Kerr.INVALID_RECORD, 0]
        assert [row.BaseOffset for row in rows] == [0, 1, -1, 2]
        assert len(rows[2].RecordErrors) == 1
        assert [r.key for r in conn.read_all(topic_name, 0)] == [b"big", b"small", b"small"]

    def test_pipelined_batches_are_written_in_order(self, conn, topic):
        sent = [conn.send_produce(topic, 0, simple(f"{i}")) for i in range(100)]
        offsets = [conn.receive(c).Responses[0].PartitionResponses[0].BaseOffset for c in sent]
        assert offsets == list(range(100))
        assert values(conn, topic) == [b"%d" % i for i in range(100)]

    def test_a_batch_of_no_records_is_an_error(self, conn, topic):
        assert conn.produce(topic, 0, build([])).ErrorCode in (Kerr.INVALID_RECORD, Kerr.CORRUPT_MESSAGE)
        assert end_of(conn, topic) == 0


class TestRefused:
    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_acks_other_than_0_1_all(self, conn, topic, acks):
        assert conn.produce(topic, 0, simple("x"), acks=acks).ErrorCode == Kerr.INVALID_REQUIRED_ACKS
        assert end_of(conn, topic) == 0

    @pytest.mark.parametrize("index", [1, -1, 2**31 - 1])
    def test_a_partition_that_does_not_exist(self, conn, topic, index):
        assert conn.produce(topic, index, simple("x")).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_topic_that_does_not_exist_is_not_created(self, conn, topic_name):
        assert conn.produce(topic_name, 0, simple("x")).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        assert conn.metadata(topic_name).Topics[0].ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    def test_an_unknown_topic_id(self, conn):
        if conn.announced()[0][1] < 13:
            pytest.skip("produce by id is not served")
        data = [{"TopicId": uuid.uuid4(), "PartitionData": [{"Index": 0, "Records": simple("x")}]}]
        answer = conn.call("Produce", 13, Acks=-1, TimeoutMs=30000, TopicData=data)
        assert answer.Responses[0].PartitionResponses[0].ErrorCode == Kerr.UNKNOWN_TOPIC_ID

    def test_a_wrong_crc(self, conn, topic):
        assert conn.produce(topic, 0, simple("x", crc=12345)).ErrorCode == Kerr.CORRUPT_MESSAGE
        assert end_of(conn, topic) == 0

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_flipped_bit_anywhere(self, conn, topic, codec):
        good = simple("some", "words", codec=codec)
        for at in range(21, len(good), 7):
            bad = bytearray(good)
            bad[at] ^= 0x10
            assert conn.produce(topic, 0, bytes(bad)).ErrorCode == Kerr.CORRUPT_MESSAGE
        assert end_of(conn, topic) == 0

    @pytest.mark.parametrize(
        "lie",
        [{"count": 3}, {"count": 1}, {"last_offset_delta": 0}, {"last_offset_delta": 5}, {"count": -1}],
        ids=str,
    )
    def test_a_record_count_or_offset_that_lies(self, conn, topic, lie):
        answer = conn.produce(topic, 0, simple("a", "b", **lie))
        assert answer.ErrorCode in (Kerr.INVALID_RECORD, Kerr.CORRUPT_MESSAGE)
        assert end_of(conn, topic) == 0

    @pytest.mark.peer_differs("3.9.1 takes them, 4.3.1 has no better answer than UNKNOWN_SERVER_ERROR")
    def test_record_offsets_with_a_gap_inside_a_compressed_batch(self, conn, topic_name):
        """Looked into only where the topic's rules need it, as here for the records' timestamps."""
        conn.new_topic(topic_name, configs={"message.timestamp.before.max.ms": "3600000"})
        batch = simple("a", "b", codec="gzip", offset_deltas=[0, 2], timestamp=now_ms())
        assert conn.produce(topic_name, 0, batch).ErrorCode == Kerr.INVALID_RECORD
        assert end_of(conn, topic_name) == 0

    def test_two_batches_for_one_partition(self, conn, topic):
        assert conn.produce(topic, 0, simple("a") + simple("b")).ErrorCode == Kerr.INVALID_RECORD
        assert end_of(conn, topic) == 0

    @pytest.mark.parametrize("magic", [3, 127, -1])
    def test_an_unknown_magic(self, conn, topic, magic):
        assert conn.produce(topic, 0, simple("x", magic=magic)).ErrorCode != Kerr.NONE
        assert end_of(conn, topic) == 0

    def test_a_batch_cut_short(self, conn, topic):
        whole = simple("some words")
        assert conn.produce(topic, 0, whole[:-1]).ErrorCode in (Kerr.CORRUPT_MESSAGE, Kerr.INVALID_RECORD)
        assert end_of(conn, topic) == 0

    @pytest.mark.parametrize("field", ["length below the header", "length beyond the data"])
    def test_a_length_that_lies(self, conn, topic, field):
        length = 48 if field.startswith("length below") else 5000
        assert conn.produce(topic, 0, simple("x", length=length)).ErrorCode in (
            Kerr.CORRUPT_MESSAGE,
            Kerr.INVALID_RECORD,
        )
        assert end_of(conn, topic) == 0

    def test_control_batches_are_not_for_clients(self, conn, topic):
        control = build(
            [Record(b"\0\0\0\1", b"\0\0\0\0\0\0")], attributes=batches.CONTROL, producer_id=5, producer_epoch=0
        )
        assert conn.produce(topic, 0, control).ErrorCode == Kerr.INVALID_RECORD
        assert end_of(conn, topic) == 0

    def test_zstd_from_a_client_too_old_for_it(self, conn, topic):
        answer = conn.produce(topic, 0, simple("x", codec="zstd"), version=6)
        assert answer.ErrorCode == Kerr.UNSUPPORTED_COMPRESSION_TYPE

    def test_records_larger_than_the_topic_takes(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"max.message.bytes": "2000"})
        fits, large = build([Record(value=b"x" * 1900)]), build([Record(value=b"x" * 2000)])
        assert len(fits) <= 2000 < len(large)
        assert conn.produce(topic_name, 0, large).ErrorCode == Kerr.MESSAGE_TOO_LARGE
        assert conn.produce(topic_name, 0, fits).ErrorCode == 0
        assert end_of(conn, topic_name) == 1

    def test_the_size_limit_is_that_of_the_compressed_batch(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"max.message.bytes": "2000"})
        assert conn.produce(topic_name, 0, build([Record(value=b"x" * 50000)], "gzip")).ErrorCode == 0

    def test_a_compacted_topic_needs_keys(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"cleanup.policy": "compact"})
        mixed = [Record(b"k", b"1"), Record(None, b"2"), Record(b"k", b"3"), Record(None, b"4")]
        for codec in ("none", "gzip"):
            answer = conn.produce(topic_name, 0, build(mixed, codec))
            assert answer.ErrorCode == Kerr.INVALID_RECORD and answer.ErrorMessage
            assert [e.BatchIndex for e in answer.RecordErrors] == [1, 3]
        assert conn.produce(topic_name, 0, build([Record(b"k", b"1")])).ErrorCode == 0
        assert end_of(conn, topic_name) == 1


class TestTimestamps:
    def test_log_append_time_replaces_the_client_s(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"message.timestamp.type": "LogAppendTime"})
        before = now_ms()
        for codec in CODECS:
            answer = conn.produce(topic_name, 0, simple("a", "b", codec=codec, timestamp=1000))
            assert answer.ErrorCode == 0 and before - 5000 <= answer.LogAppendTimeMs <= now_ms() + 5000
            (batch,) = batches.read(conn.fetch(topic_name, 0, answer.BaseOffset).Records)
            assert batch.crc_ok and batch.log_append_time and batch.max_timestamp == answer.LogAppendTimeMs
            assert {r.timestamp for r in batch.records} == {answer.LogAppendTimeMs}

    def test_create_time_outside_the_window_is_refused_record_by_record(self, conn, topic_name):
        window = {"message.timestamp.before.max.ms": str(DAY_MS), "message.timestamp.after.max.ms": str(DAY_MS)}
        conn.new_topic(topic_name, configs=window)
        now = now_ms()
        times = [now, now - 2 * DAY_MS, now - DAY_MS // 2, now + 2 * DAY_MS, now + DAY_MS // 2]
        for codec in ("none", "snappy"):
            answer = conn.produce(topic_name, 0, build([Record(value=b"v", timestamp=t) for t in times], codec))
            assert answer.ErrorCode == Kerr.INVALID_TIMESTAMP and answer.ErrorMessage
            assert [e.BatchIndex for e in answer.RecordErrors] == [1, 3]
        assert end_of(conn, topic_name) == 0
        good = [Record(value=b"v", timestamp=t) for t in (times[0], times[2], times[4])]
        assert conn.produce(topic_name, 0, build(good)).ErrorCode == 0

    def test_by_default_the_past_is_free_and_the_far_future_is_not(self, conn, topic):
        assert conn.produce(topic, 0, simple("old", timestamp=1)).ErrorCode == 0
        answer = conn.produce(topic, 0, simple("new", timestamp=now_ms() + 10 * DAY_MS))
        assert answer.ErrorCode in (Kerr.NONE, Kerr.INVALID_TIMESTAMP)  # 4.x sets after.max.ms to an hour, 3.9 has none

    def test_a_record_without_a_timestamp_keeps_that(self, conn, topic):
        assert conn.produce(topic, 0, simple("none", timestamp=-1)).ErrorCode == 0
        assert conn.read_all(topic, 0)[0].timestamp == -1

    def test_a_compression_type_of_the_topic_s_own_is_applied(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"compression.type": "gzip"})
        for sent in ("none", "gzip", "zstd"):
            answer = conn.produce(topic_name, 0, simple("a", "b", codec=sent, timestamp=1700000000000))
            (batch,) = batches.read(conn.fetch(topic_name, 0, answer.BaseOffset).Records)
            assert batch.crc_ok and batch.codec == "gzip"
            assert [(r.value, r.timestamp) for r in batch.records] == [(b"a", 1700000000000), (b"b", 1700000000000)]

    def test_compression_type_uncompressed_unpacks(self, conn, topic_name):
        conn.new_topic(topic_name, configs={"compression.type": "uncompressed"})
        assert conn.produce(topic_name, 0, simple("a", "b", codec="lz4")).ErrorCode == 0
        (batch,) = batches.read(conn.fetch(topic_name, 0, 0).Records)
        assert batch.codec == "none" and [r.value for r in batch.records] == [b"a", b"b"]


def init_producer_id(conn, version=None):
    """A broker that is still fetching its first block of ids says so, and clients ask again."""

    def answered():
        answer = conn.call("InitProducerId", version, TransactionalId=None, TransactionTimeoutMs=60000)
        return None if answer.ErrorCode == Kerr.COORDINATOR_LOAD_IN_PROGRESS else answer

    answer = wait_until(answered, 30, "a producer id")
    assert answer.ErrorCode == Kerr.NONE
    return answer


class Producer:
    """An idempotent producer at the wire: its id, epoch and the next sequence."""

    def __init__(self, conn, topic):
        self.conn, self.topic = conn, topic
        self.time = now_ms()  # a producer whose last record is old may be forgotten
        answer = init_producer_id(conn)
        self.id, self.epoch = answer.ProducerId, answer.ProducerEpoch

    def send(self, sequence, count=1, epoch=None, codec="none"):
        records = [Record(value=b"%d" % (sequence + i), timestamp=self.time) for i in range(count)]
        batch = build(
            records,
            codec,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        return self.conn.produce(self.topic, 0, batch)


class TestIdempotence:
    def test_producer_ids_differ_and_start_at_epoch_0(self, conn, topic):
        made = [Producer(conn, topic) for _ in range(20)]
        assert len({p.id for p in made}) == 20 and {p.epoch for p in made} == {0} and min(p.id for p in made) >= 0

    def test_every_version_of_init_producer_id(self, conn):
        first, last = conn.announced()[22]
        for version in range(first, min(last, 5) + 1):
            answer = init_producer_id(conn, version)
            assert answer.ProducerEpoch == 0 and answer.ProducerId >= 0

    def test_sequences_go_on_batch_by_batch(self, conn, topic):
        p = Producer(conn, topic)
        assert [p.send(s, 3).BaseOffset for s in (0, 3, 6)] == [0, 3, 6]

    def test_a_batch_sent_again_is_not_written_again(self, conn, topic):
        p = Producer(conn, topic)
        first = [p.send(s, 2).BaseOffset for s in range(0, 10, 2)]
        assert first == [0, 2, 4, 6, 8]
        again = [p.send(s, 2) for s in range(0, 10, 2)]
        assert [a.ErrorCode for a in again] == [0] * 5 and [a.BaseOffset for a in again] == first
        assert end_of(conn, topic) == 10

    def test_a_duplicate_older_than_the_last_five_is_told_so(self, broker, conn, topic):
        p = Producer(conn, topic)
        for sequence in range(7):
            p.send(sequence)
        answer = p.send(0)
        told = Kerr.DUPLICATE_SEQUENCE_NUMBER if broker.kind == "barnabas" else Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (answer.ErrorCode, answer.BaseOffset) == (told, -1)
        assert end_of(conn, topic) == 7

    @pytest.mark.parametrize("sequence", [2, 0, 1000])
    def test_a_gap_is_refused(self, conn, topic, sequence):
        p = Producer(conn, topic)
        assert p.send(0, 3).ErrorCode == 0
        if sequence < 3:
            return self._overlap(p, sequence)
        assert p.send(sequence).ErrorCode == Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert p.send(3).BaseOffset == 3

    @staticmethod
    def _overlap(p, sequence):
        assert p.send(sequence, 2).ErrorCode == Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert p.send(3).BaseOffset == 3

    def test_a_new_producer_may_start_anywhere(self, conn, topic):
        """The broker may have forgotten what came before (retention)."""
        assert Producer(conn, topic).send(100).ErrorCode == 0

    @pytest.mark.barnabas_only  # Kafka's brokers take what comes behind
    def test_what_comes_behind_a_refused_batch_does_not_take_its_place(self, conn, topic_name):
        """Clients take the success of a later batch for the success of those before it (librdkafka)."""
        p = Producer(conn, topic_name)
        assert p.send(0, 2).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        conn.new_topic(topic_name)
        assert p.send(2).ErrorCode == Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert p.send(3).ErrorCode == Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [p.send(0, 2).BaseOffset, p.send(2).BaseOffset, p.send(3).BaseOffset] == [0, 2, 3]

    @pytest.mark.barnabas_only
    def test_nobody_else_waits_for_a_refused_batch(self, conn, topic_name):
        p, other = Producer(conn, topic_name), Producer(conn, topic_name)
        assert p.send(0).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        conn.new_topic(topic_name)
        assert other.send(100).ErrorCode == 0
        assert p.send(1).ErrorCode == Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [p.send(s, epoch=1).ErrorCode for s in (0, 1)] == [0, 0]  # it begins anew

    def test_a_new_epoch_starts_at_sequence_0_and_fences_the_old(self, conn, topic):
        p = Producer(conn, topic)
        assert p.send(0).ErrorCode == 0
        assert p.send(1, epoch=1).ErrorCode == Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert p.send(0, epoch=1).BaseOffset == 1
        assert p.send(1, epoch=0).ErrorCode == Kerr.INVALID_PRODUCER_EPOCH
        assert p.send(1, epoch=1).BaseOffset == 2

    def test_sequences_wrap_around_to_0(self, conn, topic):
        p = Producer(conn, topic)
        assert p.send(2**31 - 3, 2).ErrorCode == 0
        batch = build(
            [Record(value=b"a"), Record(value=b"b")], producer_id=p.id, producer_epoch=0, base_sequence=2**31 - 1
        )
        assert conn.produce(topic, 0, batch).BaseOffset == 2
        assert p.send(1).BaseOffset == 4

    def test_a_producer_id_without_a_sequence_is_invalid(self, conn, topic):
        p = Producer(conn, topic)
        batch = build([Record(value=b"x")], producer_id=p.id, producer_epoch=0, base_sequence=-1)
        assert conn.produce(topic, 0, batch).ErrorCode in (Kerr.INVALID_RECORD, Kerr.CORRUPT_MESSAGE)

    def test_describe_producers_shows_them(self, conn, topic):
        p = Producer(conn, topic)
        p.send(0, 4)
        asked = [{"Name": topic, "PartitionIndexes": [0, 5]}]
        parts = {r.PartitionIndex: r for r in conn.call("DescribeProducers", Topics=asked).Topics[0].Partitions}
        (state,) = parts[0].ActiveProducers
        assert (state.ProducerId, state.ProducerEpoch, state.LastSequence) == (p.id, 0, 3)
        assert (state.LastTimestamp, state.CurrentTxnStartOffset) == (p.time, -1)
        assert parts[5].ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_producers_are_remembered_over_a_restart(self, fresh_broker, topic_name, end):
        broker = fresh_broker().start()
        with broker.connect() as c:
            c.new_topic(topic_name)
            p = Producer(c, topic_name)
            before = [p.send(s, 2).BaseOffset for s in range(0, 12, 2)]
        getattr(broker, end)()
        broker.start()
        with broker.connect() as c:
            c.await_topic(topic_name, 1)
            p.conn = c
            # Kafka's snapshots hold each producer's last batch only: older ones may be refused, but never written.
            for sequence, offset in zip(range(2, 10, 2), before[1:]):
                answer = p.send(sequence, 2)
                assert (answer.ErrorCode, answer.BaseOffset) in ((0, offset), (Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER, -1))
            assert p.send(10, 2).BaseOffset == before[5]
            assert end_of(c, topic_name) == 12
            assert p.send(14).ErrorCode == Kerr.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert p.send(12).BaseOffset == 12
            assert Producer(c, topic_name).id != p.id
        broker.stop()
