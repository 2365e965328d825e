"""What no client should send: the broker answers or closes, stays small, and serves everybody else meanwhile.

A steady client writes and reads all along; every test ends by looking that it went on without an error."""

import contextlib
import io
import gzip
import os
import random
import resource
import socket
import struct
import threading

import lz4.frame
import pytest
import zstandard

import messages
import rawkafka
from batches import CODECS, Record, build, compress, varint
from brokers import wait_until
from messages import uvarint
from rawkafka import Kerr

MIB = 1 << 20
REQUEST_MAX = 8 * MIB
BROKER_CONFIG = {"socket.request.max.bytes": REQUEST_MAX, "auto.create.topics.enable": "false"}
RSS_GROWTH_MAX = 256 * MIB  # under a sanitizer, which keeps freed memory for a while
BOMB_BYTES = 512 * MIB
INT_MAX = 2**31 - 1
# Requests that brokers send each other: a random one of these may rightly change the cluster.
BROKER_ONLY = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}


class Steady(threading.Thread):
    """Produces a record and reads it back, over and over, on one connection."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.broker = broker
        self.rounds = 0
        self.error = None
        self.finish = threading.Event()

    def run(self):
        try:
            with self.broker.connect(client_id="steady") as c:
                c.new_topic("steady")
                while not self.finish.is_set():
                    value = b"%d" % self.rounds
                    row = c.produce("steady", 0, build([Record(value=value)]))
                    assert row.ErrorCode == 0, Kerr(row.ErrorCode)
                    got = c.read_all("steady", 0, row.BaseOffset)
                    assert [(r.value, r.offset) for r in got] == [(value, row.BaseOffset)]
                    self.rounds += 1
                    self.finish.wait(0.002)
        except BaseException as error:  # noqa: BLE001  (whatever it is, the tests must see it)
            self.error = error

    def goes_on(self, rounds=5, seconds=60):
        goal = self.rounds + rounds

        def reached():
            assert self.error is None, f"the steady client: {self.error!r}"
            return self.rounds >= goal

        wait_until(reached, seconds, "the steady client is served")


@pytest.fixture(scope="module")
def steady(broker):
    client = Steady(broker)
    client.start()
    client.goes_on()
    client.rss_at_start = broker.rss_bytes()
    yield client
    client.finish.set()
    client.join()
    assert client.error is None, client.error


@pytest.fixture(autouse=True)
def undisturbed(broker, steady):
    yield
    steady.goes_on()
    assert broker.alive(), broker.output()[-4000:]
    with broker.connect() as c:
        assert c.call("ApiVersions", 0).ErrorCode == 0
    if broker.is_barnabas():
        growth = broker.rss_bytes() - steady.rss_at_start
        assert growth < RSS_GROWTH_MAX, f"{growth >> 20} MiB more than at the start"
        broker.check()


def frame(payload):
    return struct.pack(">i", len(payload)) + payload


def head(api, version, client_id=b"bad", header=None):
    if header is None:
        header = messages.message(api).request.header_by_version[version]
    key = messages.message(api).key
    return struct.pack(">hhih", key, version, 1, len(client_id)) + client_id + (b"\0" if header == 2 else b"")


def refused(broker, data, half_close=False, patience=30):
    """Sends bytes and waits for an answer: True if the broker closed the connection instead."""
    with broker.connect(timeout=patience) as c:
        with contextlib.suppress(OSError):
            c.send_bytes(data)
            if half_close:
                c.socket.shutdown(socket.SHUT_WR)
        try:
            c.receive_frame()
        except rawkafka.Closed:
            return True
        except TimeoutError:
            assert patience < 30, "neither answered nor closed"
    return False


class TestFrames:
    @pytest.mark.parametrize("seed", range(5))
    def test_random_bytes(self, broker, seed):
        data = random.Random(seed).randbytes(50000)
        refused(broker, data, half_close=True)

    @pytest.mark.parametrize(
        "text",
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(508),
            b"EHLO there\r\n",
        ],
        ids=["http", "tls", "smtp"],
    )
    def test_other_protocols(self, broker, text):
        assert refused(broker, text, half_close=True)

    @pytest.mark.parametrize("size", [-2, -1, -(2**31), INT_MAX, REQUEST_MAX + 1])
    def test_sizes_that_cannot_be(self, broker, size):
        assert refused(broker, struct.pack(">i", size) + b"\0\x12\0\0\0\0\0\1\xff\xff")

    @pytest.mark.parametrize("size", range(0, 8))
    def test_frames_shorter_than_a_header(self, broker, size):
        refused(broker, frame((b"\0\x12\0\0\0\0\0\1")[:size]), half_close=True)

    def test_a_size_and_nothing_more_then_gone(self, broker):
        with broker.connect() as c:
            c.send_bytes(struct.pack(">i", REQUEST_MAX))

    def test_the_largest_size_promised_many_times(self, broker):
        """Memory is taken for bytes that came, not for bytes that were promised."""
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                c = stack.enter_context(broker.connect())
                c.send_bytes(struct.pack(">i", REQUEST_MAX) + b"\0\0\0\x09")
            if broker.is_barnabas():
                with broker.connect() as c:
                    assert c.call("ApiVersions", 0).ErrorCode == 0
                assert broker.rss_bytes() < 100 * REQUEST_MAX

    def test_a_frame_cut_in_the_middle_then_half_closed(self, broker, topic):
        with broker.connect() as c:
            c.announced()
            payload, _ = c.request_bytes("Metadata", 9, {"Topics": [{"Name": topic}]})
            c.send_bytes(frame(payload)[:-3])
            c.socket.shutdown(socket.SHUT_WR)
            assert c.closed_by_peer()

    def test_a_whole_request_then_half_closed(self, broker, topic):
        """The answer may come or not; the connection must not stay."""
        with broker.connect() as c:
            payload, _ = c.request_bytes("Metadata", 9, {"Topics": [{"Name": topic}]})
            c.send_frame(payload)
            c.socket.shutdown(socket.SHUT_WR)
            assert c.closed_by_peer()

    def test_reset_while_requests_are_under_way(self, broker, topic):
        for _ in range(30):
            c = broker.connect()
            for _ in range(20):
                c.send_produce(topic, 0, build([Record(value=b"v" * 1000)]))
            c.send_fetch(topic, 0, 10**6, max_wait_ms=30000)
            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()

    def test_one_byte_at_a_time(self, broker, steady, topic):
        with broker.connect() as c:
            payload, _ = c.request_bytes("Metadata", 9, {"Topics": [{"Name": topic}]})
            for byte in frame(payload):
                c.send_bytes(bytes([byte]))
                steady.goes_on(1)
            assert c.receive_frame()


class TestHeaders:
    @pytest.mark.parametrize("key", [-1, 93, 999, 32767, -32768])
    def test_apis_that_do_not_exist(self, broker, key):
        assert refused(broker, frame(struct.pack(">hhihB", key, 0, 1, -1, 0)))

    @pytest.mark.parametrize("version", [-1, 99, 32767])
    @pytest.mark.parametrize("api", ["Produce", "Fetch", "Metadata", "CreateTopics"])
    def test_versions_that_do_not_exist(self, broker, api, version):
        assert refused(broker, frame(struct.pack(">hhih", messages.message(api).key, version, 1, -1) + bytes(20)))

    @pytest.mark.parametrize("length", [-2, 32767, -32768])
    def test_client_id_lengths_that_lie(self, broker, length):
        assert refused(broker, frame(struct.pack(">hhih", 3, 5, 1, length) + b"x" * 20), half_close=True)

    def test_header_tags_that_lie(self, broker):
        start = struct.pack(">hhih", 3, 9, 1, -1)
        body = b"\1\0\0\0\0"
        for tags in (b"\xff\xff\xff\xff\x0f", b"\1\5\xff\xff\xff\x7f", b"\x80" * 12, b"\2\5\0\5\0"):
            refused(broker, frame(start + tags + body), half_close=True)


class TestBodies:
    @pytest.mark.parametrize("count", [INT_MAX, -2, -(2**31), 10**6])
    def test_array_counts_that_lie(self, broker, count):
        bodies = {
            ("Metadata", 5): struct.pack(">i", count),
            ("Produce", 7): struct.pack(">hhii", -1, 1, 1000, count),
            ("Fetch", 7): struct.pack(">iiiibiii", -1, 0, 1, 1000, 0, 0, -1, count),
            ("ListOffsets", 5): struct.pack(">ibi", -1, 0, count),
            ("CreateTopics", 4): struct.pack(">i", count),
            ("DeleteTopics", 3): struct.pack(">i", count),
            ("DescribeConfigs", 3): struct.pack(">i", count),
            ("OffsetForLeaderEpoch", 3): struct.pack(">ii", -1, count),
        }
        for (api, version), body in bodies.items():
            assert refused(broker, frame(head(api, version) + body)), (api, version)

    @pytest.mark.parametrize(
        "length",
        [uvarint(2**32 - 1), uvarint(2**31), uvarint(10**6), b"\xff" * 9 + b"\x01", b"\x80" * 11],
        ids=bytes.hex,
    )
    def test_compact_lengths_that_lie(self, broker, length):
        for api, version, before in (
            ("Metadata", 9, b""),  # the array
            ("Metadata", 9, b"\2"),  # a string
            ("Produce", 9, b"\0\0\1\0\0\3\xe8\2\2t\2\0\0\0\0"),  # the records
            ("Fetch", 12, struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)),
        ):
            assert refused(broker, frame(head(api, version) + before + length)), (api, version, before)

    def test_tag_counts_that_lie(self, broker):
        """Kafka takes a count past 2^31 as none at all; refusing it is as good."""
        for count in (uvarint(2**32 - 1), uvarint(10**6), b"\xff" * 9 + b"\x01"):
            refused(broker, frame(head("Metadata", 9) + b"\1\0\0\0" + count), half_close=True)

    def test_null_where_there_must_be_something(self, broker):
        assert refused(broker, frame(head("Produce", 9) + b"\0\0\1\0\0\3\xe8\0\0"))
        assert refused(broker, frame(head("DeleteTopics", 4) + b"\0\0\0\3\xe8\0"))
        assert refused(broker, frame(head("CreateTopics", 5) + b"\0\0\0\3\xe8\0\0"))

    def test_bytes_behind_a_request(self, broker, topic):
        with broker.connect() as c:
            payload, _ = c.request_bytes("Metadata", 9, {"Topics": [{"Name": topic}]})
        refused(broker, frame(payload + b"extra"), half_close=True)

    def test_every_request_cut_at_every_length(self, broker, conn):
        for name in messages.names():
            api = messages.message(name)
            if api.key not in conn.announced() or name in BROKER_ONLY:
                continue
            version = conn.newest(name)
            whole = head(name, version) + api.request.encode({}, version)
            for length in range(8, len(whole)):
                refused(broker, frame(whole[:length]), half_close=True)

    def test_mutated_requests(self, broker, conn, topic):
        """Valid requests with some bytes changed; a fixed seed, so that a failure can be looked at."""
        rng = random.Random(20240)
        seeds = {
            "Metadata": {"Topics": [{"Name": topic}]},
            "Produce": None,
            "Fetch": None,
            "ListOffsets": {"Topics": [{"Name": topic, "Partitions": [{"Timestamp": 5}]}]},
            "DescribeConfigs": {
                "Resources": [{"ResourceType": 2, "ResourceName": topic, "ConfigurationKeys": ["retention.ms"]}]
            },
            "OffsetForLeaderEpoch": {"Topics": [{"Topic": topic, "Partitions": [{}]}]},
            "DescribeProducers": {"Topics": [{"Name": topic, "PartitionIndexes": [0]}]},
            "DescribeLogDirs": {"Topics": [{"Topic": topic, "Partitions": [0]}]},
        }
        for name, fields in seeds.items():
            version = conn.newest(name, upto=12)
            if name == "Produce":
                rows = [{"Index": 0, "Records": build([Record(b"k", b"v")])}]
                fields = {"Acks": 1, "TimeoutMs": 1000, "TopicData": [{"Name": topic, "PartitionData": rows}]}
            elif name == "Fetch":
                rows = [{"Partition": 0, "PartitionMaxBytes": 1000}]
                fields = {"MaxBytes": 1000, "Topics": [{"Topic": topic, "Partitions": rows}]}
            whole = head(name, version) + messages.message(name).request.encode(fields, version)
            for _ in range(60):
                bad = bytearray(whole)
                for _ in range(rng.randint(1, 4)):
                    bad[rng.randrange(8, len(bad))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                # Some are fetches that wait for very long, rightly.
                refused(broker, frame(bytes(bad)), half_close=True, patience=0.5)

    def test_numbers_nobody_means(self, conn, topic):
        for more in (
            {"max_bytes": -1}, {"max_bytes": 0}, {"partition_max_bytes": -1}, {"partition_max_bytes": -(2**31)},
            {"min_bytes": INT_MAX}, {"min_bytes": -1}, {"max_wait_ms": -1},
        ):  # fmt: skip
            conn.fetch(topic, 0, 0, **more)
        for partition in (-1, INT_MAX, -(2**31)):
            assert conn.fetch(topic, partition, 0).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        for timestamp in (-6, -99, -(2**63)):
            conn.list_offset(topic, 0, timestamp)

    def test_a_topic_of_absurdly_many_partitions(self, conn, topic_name):
        assert conn.create_topic(topic_name, INT_MAX).ErrorCode != Kerr.NONE
        assert conn.metadata(topic_name).Topics[0].ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_hundred_thousand_unknown_topics_at_once(self, conn):
        answer = conn.call(
            "Metadata", 9, Topics=[{"Name": f"no-{i}"} for i in range(100_000)], AllowAutoTopicCreation=False
        )
        assert {row.ErrorCode for row in answer.Topics} == {Kerr.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.fixture
def compacted(conn, topic_name):
    """A topic for which the broker must look into every batch."""
    return conn.new_topic(topic_name, configs={"cleanup.policy": "compact"})


class TestBatches:
    BAD = (Kerr.CORRUPT_MESSAGE, Kerr.INVALID_RECORD, Kerr.UNKNOWN_SERVER_ERROR, Kerr.MESSAGE_TOO_LARGE)

    def refuses(self, conn, topic, batch, some=BAD):
        try:
            answer = conn.produce(topic, 0, batch)
        except rawkafka.Closed:
            return
        assert answer.ErrorCode in some, answer

    def test_wrong_crc(self, conn, topic):
        self.refuses(conn, topic, build([Record(value=b"v")], crc=1))

    @pytest.mark.parametrize("count", [INT_MAX, -1, -(2**31), 0, 2])
    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_wrong_record_counts(self, conn, compacted, codec, count):
        batch = build([Record(b"k", b"v")], codec, count=count, last_offset_delta=max(0, min(count - 1, INT_MAX)))
        self.refuses(conn, compacted, batch)

    @pytest.mark.parametrize("length", [INT_MAX, -1, -(2**31), 0, 49, 50])
    def test_wrong_batch_lengths(self, broker, topic, length):
        with broker.connect() as c:
            c.announced()
            self.refuses(c, topic, build([Record(b"k", b"v")], length=length))

    @pytest.mark.parametrize("size", [0, 1, 11, 12, 60, 61])
    def test_batches_cut_short(self, broker, topic, size):
        with broker.connect() as c:
            c.announced()
            self.refuses(c, topic, build([Record(b"k", b"v")])[:size])

    @pytest.mark.parametrize("codec", CODECS)
    def test_records_that_lie_about_their_lengths(self, conn, compacted, codec):
        for plain in (
            varint(-5),
            varint(INT_MAX) + b"\0",
            b"\xff" * 12,
            varint(6) + b"\0\0\0" + varint(-2) + varint(0) + varint(0),  # key length
            varint(10) + b"\0\0\0" + varint(1 << 30) + b"k",
            varint(9) + b"\0\0\0" + varint(1) + b"k" + varint(5) + b"v",
            varint(12) + b"\0\0\0" + varint(1) + b"k" + varint(0) + varint(1 << 30),  # header count
            varint(8) + b"\0\0\0" + varint(1) + b"k" + varint(0) + varint(-1),
            varint(9) + b"\0\0\0" + varint(1) + b"k" + varint(0) + varint(1) + varint(-1),  # a header without a name
            varint(4) + b"\0" * 30,
            b"",
        ):
            batch = build([Record(b"k", b"v")], codec, payload=compress(codec, plain))
            self.refuses(conn, compacted, batch)
        assert conn.list_offset(compacted, 0, -1).Offset == 0

    @pytest.mark.parametrize("codec", CODECS[1:])
    def test_compressed_data_that_is_none(self, conn, compacted, codec):
        rng = random.Random(5)
        good = build([Record(b"k", b"v" * 1000)], codec)[61:]
        for payload in (
            b"",
            b"\0",
            rng.randbytes(300),
            good[:-1],
            good[: len(good) // 2],
            good[:10] + rng.randbytes(50),
        ):
            if payload == good[:-1] and codec in ("gzip", "zstd", "lz4"):
                continue  # a cut trailer is taken by some decoders, also by Kafka's
            self.refuses(conn, compacted, build([Record(b"k", b"v" * 1000)], codec, payload=payload))
        assert conn.list_offset(compacted, 0, -1).Offset == 0

    @pytest.mark.parametrize("number", [5, 6, 7])
    def test_codecs_that_do_not_exist(self, conn, topic, number):
        batch = bytearray(build([Record(b"k", b"v")], attributes=number))
        self.refuses(conn, topic, bytes(batch), (*self.BAD, Kerr.UNSUPPORTED_COMPRESSION_TYPE))

    @pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
    def test_decompression_bombs(self, broker, compacted, codec):
        """Half a gigabyte of zeros in little: one record, whose key the broker wants to see."""
        payload = bomb(codec)
        with broker.connect(timeout=120) as c:
            c.announced()
            c.call("IncrementalAlterConfigs", Resources=[{"ResourceType": 2, "ResourceName": compacted, "Configs": [
                {"Name": "max.message.bytes", "ConfigOperation": 0, "Value": str(REQUEST_MAX)}]}])  # fmt: skip
            with contextlib.suppress(rawkafka.Closed):
                c.produce(compacted, 0, build([Record(b"k", b"v")], codec, payload=payload))

    def test_a_snappy_block_that_promises_four_gigabytes(self, conn, compacted):
        block = uvarint(2**32 - 1) + b"\xfe\0\0" * 20
        xerial = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
        for payload in (block, xerial, xerial[:16] + struct.pack(">i", INT_MAX), xerial[:16] + struct.pack(">i", -1)):
            self.refuses(conn, compacted, build([Record(b"k", b"v")], "snappy", payload=payload))


def bomb(codec):
    """One record with a null key and a value of BOMB_BYTES zeros, compressed piece by piece."""
    value_head = b"\0\0\0" + varint(-1) + varint(BOMB_BYTES)
    start = varint(len(value_head) + BOMB_BYTES + 1) + value_head
    piece = bytes(16 * MIB)
    out = io.BytesIO()
    if codec == "gzip":
        with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as file:
            _pour(file.write, start, piece)
    elif codec == "zstd":
        with zstandard.ZstdCompressor(level=1).stream_writer(out, closefd=False) as file:
            _pour(file.write, start, piece)
    else:
        with lz4.frame.LZ4FrameCompressor(block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB) as c:
            out.write(c.begin())
            _pour(lambda data: out.write(c.compress(data)), start, piece)
            out.write(c.flush())
    assert out.tell() < REQUEST_MAX
    return out.getvalue()


def _pour(write, start, piece):
    write(start)
    for _ in range(BOMB_BYTES // len(piece)):
        write(piece)
    write(b"\0")


class TestManyAndSlow:
    def test_requests_without_reading_the_answers(self, broker, topic):
        """Past some point the broker stops reading; nothing piles up."""
        with broker.connect() as c:
            c.announced()
            payload, _ = c.request_bytes("Metadata", 9, {"Topics": None})
            c.socket.settimeout(1)
            with contextlib.suppress(TimeoutError, ConnectionError):
                for _ in range(200):
                    c.send_bytes(frame(payload) * 1000)

    def test_large_fetches_without_reading_the_answers(self, broker, conn, topic):
        for _ in range(4):
            assert conn.produce(topic, 0, build([Record(value=os.urandom(900_000))])).ErrorCode == 0
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(broker.connect()) for _ in range(20)]
            for c in slow:
                c.announced()
                for _ in range(20):
                    c.send_fetch(topic, 0, 0)
            assert conn.fetch(topic, 0, 0).ErrorCode == 0
            if broker.is_barnabas():
                assert broker.rss_bytes() < 20 * 20 * 3_600_000

    def test_connections_that_come_and_go(self, broker):
        for _ in range(20):
            for c in [broker.connect() for _ in range(40)]:
                c.close()
            with broker.connect() as c:
                assert c.call("ApiVersions", 0).ErrorCode == 0

    def test_five_thousand_idle_connections(self, broker, steady):
        wanted = 5000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < wanted + 500:
            pytest.skip(f"this process may open {hard} files only")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 500), hard))
        idle = []
        try:
            while len(idle) < wanted:
                # No more at once than wait in the listening socket's queue (socket.listen.backlog.size): what is beyond
                # it is dropped and tried again by the kernel a second later.
                idle += [broker.connect() for _ in range(40)]
                assert idle[-1].call("ApiVersions", 0).ErrorCode == 0
            steady.goes_on()
            for c in idle[::500]:
                assert c.call("ApiVersions", 0).ErrorCode == 0
        finally:
            for c in idle:
                c.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
