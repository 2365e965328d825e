"""A client without comfort: one TCP connection, one request at a time or several, every field in the test's hand.

with Connection(broker.address) as c:
    c.call("Metadata", Topics=None).Topics
    c.produce("topic", 0, build([Record(b"k", b"v")])).ErrorCode
"""

import enum
import socket
import struct
import threading
import time

import batches
import messages


class Kerr(enum.IntEnum):
    """The error codes that tests name."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FETCH_SESSION_TOPIC_ID_ERROR = 106


class Closed(Exception):
    """The broker closed the connection."""


class Connection:
    """One connection. Calls wait for at most `timeout` seconds."""

    def __init__(self, address, client_id="raw", timeout=30.0):
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self.next_correlation = 1
        self.waiting = {}  # correlation id -> (api, version)
        self._announced = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    # Frames

    def send_bytes(self, data):
        self.socket.sendall(data)

    def send_frame(self, payload):
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def receive_frame(self):
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def _receive_exactly(self, count):
        out = bytearray()
        while len(out) < count:
            try:
                part = self.socket.recv(count - len(out))
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed(f"after {len(out)} of {count} bytes")
            out += part
        return bytes(out)

    def closed_by_peer(self, timeout=30.0):
        """Does the broker close the connection within `timeout` seconds?  What it still sends is dropped."""
        self.socket.settimeout(timeout)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    # Requests

    def request_bytes(self, name, version, fields):
        """Header and body of a request, and the correlation id it carries."""
        api = messages.message(name)
        correlation = self.next_correlation
        self.next_correlation += 1
        head = {
            "RequestApiKey": api.key,
            "RequestApiVersion": version,
            "CorrelationId": correlation,
            "ClientId": self.client_id,
        }
        head_version = api.request.header_by_version[version]
        return (
            messages.header("RequestHeader").encode(head, head_version) + api.request.encode(fields, version),
            correlation,
        )

    def send(self, name, version, **fields):
        payload, correlation = self.request_bytes(name, version, fields)
        self.waiting[correlation] = (messages.message(name), version)
        self.send_frame(payload)
        return correlation

    def receive(self, correlation):
        """The next response, which must be the one to `correlation`: responses come in the order of the requests."""
        frame = messages.Reader(self.receive_frame())
        (got,) = struct.unpack(">i", bytes(frame.data[:4]))
        assert got == correlation, f"response to {got}, expected {correlation}"
        api, version = self.waiting.pop(correlation)
        messages.header("ResponseHeader").decode(frame, api.response.header_by_version[version], whole=False)
        body = bytes(frame.data[frame.at :])
        if api.name == "ApiVersions" and version > 0 and body[:2] == struct.pack(">h", Kerr.UNSUPPORTED_VERSION):
            version = 0
        return api.response.decode(body, version)

    def call(self, name, version=None, **fields):
        """Sends a request and waits for its response. Without `version`: the newest both sides know."""
        return self.receive(self.send(name, self.newest(name) if version is None else version, **fields))

    # Versions

    def announced(self):
        """API key -> (first, last) version, as the broker's ApiVersions says."""
        if self._announced is None:
            answer = self.receive(self.send("ApiVersions", 0))
            assert answer.ErrorCode == Kerr.NONE
            self._announced = {row.ApiKey: (row.MinVersion, row.MaxVersion) for row in answer.ApiKeys}
        return self._announced

    def serves(self, name):
        return messages.message(name).key in self.announced()

    def newest(self, name, upto=None):
        """The newest version of an API that broker and schema share, `upto` at most."""
        api = messages.message(name)
        first, last = self.announced()[api.key]
        last = min(last, api.request.versions.stop - 1, last if upto is None else upto)
        assert first <= last, f"{name}: broker has {first} to {self.announced()[api.key][1]}, wanted up to {upto}"
        return last

    # Short forms for one topic and partition

    def metadata(self, *topics, version=None, create=False):
        wanted = None if not topics else [{"Name": topic} for topic in topics]
        return self.call("Metadata", version, Topics=wanted, AllowAutoTopicCreation=create)

    def topic_id(self, topic):
        return self.metadata(topic).Topics[0].TopicId

    def create_topic(self, topic, partitions=1, replicas=1, configs=None, **more):
        """Creates a topic; returns its row of the response."""
        row = {
            "Name": topic,
            "NumPartitions": partitions,
            "ReplicationFactor": replicas,
            "Configs": [{"Name": key, "Value": value} for key, value in (configs or {}).items()],
        }
        return self.call("CreateTopics", Topics=[row], timeoutMs=30000, **more).Topics[0]

    def topic_row(self, version, topic):
        """How requests name a topic: by name, or by id in the versions that only have that."""
        return {"TopicId": self.topic_id(topic)} if version >= 13 else {"Topic": topic}

    def send_produce(self, topic, partition, records, acks=-1, version=9, timeout_ms=30000, transactional_id=None):
        row = {"TopicId": self.topic_id(topic)} if version >= 13 else {"Name": topic}
        row["PartitionData"] = [{"Index": partition, "Records": records}]
        return self.send(
            "Produce", version, TransactionalId=transactional_id, Acks=acks, TimeoutMs=timeout_ms, TopicData=[row]
        )

    def produce(self, topic, partition, records, **more):
        """Produces one batch (bytes); returns the partition's row of the response."""
        answer = self.receive(self.send_produce(topic, partition, records, **more))
        return answer.Responses[0].PartitionResponses[0]

    def send_fetch(
        self,
        topic,
        partition,
        offset,
        *,
        version=12,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 26,
        partition_max_bytes=1 << 26,
        **more,
    ):
        row = self.topic_row(version, topic)
        row["Partitions"] = [{"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": partition_max_bytes}]
        if "current_leader_epoch" in more:
            row["Partitions"][0]["CurrentLeaderEpoch"] = more.pop("current_leader_epoch")
        if "last_fetched_epoch" in more:
            row["Partitions"][0]["LastFetchedEpoch"] = more.pop("last_fetched_epoch")
        return self.send(
            "Fetch", version, MaxWaitMs=max_wait_ms, MinBytes=min_bytes, MaxBytes=max_bytes, Topics=[row], **more
        )

    def fetch(self, topic, partition, offset, **more):
        """Fetches from one partition; returns its row of the response."""
        answer = self.receive(self.send_fetch(topic, partition, offset, **more))
        assert answer.get("ErrorCode", 0) == Kerr.NONE
        return answer.Responses[0].Partitions[0]

    def read_all(self, topic, partition, offset=0):
        """Every record from `offset` to the high watermark, in as many fetches as it takes."""
        found = []
        while True:
            row = self.fetch(topic, partition, offset)
            assert row.ErrorCode == Kerr.NONE, Kerr(row.ErrorCode)
            got = batches.read(row.Records or b"")
            assert all(batch.crc_ok for batch in got)
            found += [record for batch in got for record in batch.records if record.offset >= offset]
            if got:
                offset = got[-1].last_offset + 1
            if not got or offset >= row.HighWatermark:
                return found

    def list_offset(self, topic, partition, timestamp, *, version=None, **more):
        row = {"PartitionIndex": partition, "Timestamp": timestamp}
        if "current_leader_epoch" in more:
            row["CurrentLeaderEpoch"] = more.pop("current_leader_epoch")
        answer = self.call("ListOffsets", version, ReplicaId=-1, Topics=[{"Name": topic, "Partitions": [row]}], **more)
        return answer.Topics[0].Partitions[0]

    def new_topic(self, topic, partitions=1, configs=None, **more):
        """Creates a topic and waits until every partition has its leader; returns the topic's name."""
        row = self.create_topic(topic, partitions, configs=configs, **more)
        assert row.ErrorCode == Kerr.NONE, (Kerr(row.ErrorCode), row.get("ErrorMessage"))
        self.await_topic(topic, partitions)
        return topic

    def await_topic(self, topic, partitions):
        """Waits until metadata shows `partitions` partitions and the leaders serve them all.

        Apache Kafka announces a leader a little before it knows itself that it leads."""
        deadline = time.monotonic() + 30
        while True:
            row = self.metadata(topic).Topics[0]
            if row.ErrorCode == Kerr.NONE and len(row.Partitions) == partitions:
                if all(p.ErrorCode == Kerr.NONE and p.LeaderId >= 0 for p in row.Partitions):
                    if self._leader_serves(topic, partitions):
                        return row
            assert time.monotonic() < deadline, f"{topic} is not ready: {row}"
            threading.Event().wait(0.01)

    def _leader_serves(self, topic, partitions):
        rows = [{"PartitionIndex": index, "Timestamp": -1} for index in range(partitions)]
        answer = self.call("ListOffsets", 5, ReplicaId=-1, Topics=[{"Name": topic, "Partitions": rows}])
        return all(row.ErrorCode == Kerr.NONE for row in answer.Topics[0].Partitions)


def ascii_id(value):
    """A short name for a test's parameter."""
    return ascii(value)[:16]
