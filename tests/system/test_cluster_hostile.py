"""A peer that lies: a controller whose words cannot be, a leader that sends anything, a follower that claims anything.

The broker refuses what it is told, or takes what it can; it never dies, hangs, grows without bound or serves what is not
so, and what was there before stays.  The world of test_leader.py: one broker, and a test that plays the others.
"""

import json
import random
import struct
import uuid
from contextlib import ExitStack

import crc32c
import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError

import batches
import test_leader
from batches import Record, build
from brokers import wait_until
from cluster import Cluster
from rawkafka import Kerr
from test_leader import OTHER, TOPIC_ID

pytestmark = [pytest.mark.barnabas_only, pytest.mark.timeout(120)]

world = test_leader.world  # a fixture
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
INVALID_REQUEST = 42
ONE_RECORD = build([Record(b"key", b"value")])


# ---- A controller whose words cannot be


def state(one, **more):
    return {
        "TopicName": "u",
        "PartitionIndex": 0,
        "ControllerEpoch": 100,
        "Leader": one.own,
        "LeaderEpoch": 0,
        "Isr": [one.own],
        "Replicas": [one.own, OTHER],
        "IsNew": True,
    } | more


def leader_and_isr(one, *states, name="u", **head):
    topic = {"TopicName": name, "TopicId": uuid.uuid5(uuid.NAMESPACE_DNS, name), "PartitionStates": list(states)}
    live = [{"BrokerId": OTHER, "HostName": "127.0.0.1", "Port": one.fake.port}]
    return one.control.call("LeaderAndIsr", 7, **one.head() | head, TopicStates=[topic], LiveLeaders=live)


REFUSED = {
    "a negative leader epoch": dict(LeaderEpoch=-1),
    "the least leader epoch": dict(LeaderEpoch=-(2**31)),
    "a replica many times": dict(Replicas=[0] + [OTHER] * 100_000),
    "replicas as many as no cluster has brokers": dict(Replicas=list(range(300_000))),
    "as many in sync": dict(Isr=list(range(300_000))),
}
TAKEN = {
    "the greatest leader epoch": dict(LeaderEpoch=INT32_MAX),
    "a negative partition epoch": dict(PartitionEpoch=-7),
    "no replicas": dict(Replicas=[], Isr=[]),
    "nobody in sync": dict(Isr=[]),
    "strangers in sync": dict(Isr=[5, 6, 7]),
    "a leader that is no replica": dict(Leader=77),
    "a leader that cannot be": dict(Leader=-77),
    "negative replicas": dict(Replicas=[-1, -2, -(2**31)], Isr=[-1]),
    "negative replicas beside us": dict(Replicas=[1, 0, -5], Isr=[1, 0, -5]),
}


@pytest.mark.parametrize("word", REFUSED | TAKEN)
def test_roles_that_cannot_be(world, word):
    one = world()
    assert one.lead([one.own], 0) == Kerr.NONE
    assert one.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
    answer = leader_and_isr(one, state(one, **(REFUSED | TAKEN)[word]))
    assert answer.ErrorCode == (INVALID_REQUEST if word in REFUSED else Kerr.NONE)
    for acks in (1, -1):
        one.client.send_produce("u", 0, ONE_RECORD, acks=acks, timeout_ms=100)
    with one.broker.connect() as late:
        late.fetch("u", 0, 0)
        late.fetch("u", 0, 0, ReplicaId=OTHER)
        late.list_offset("u", 0, -1)
        assert late.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
    assert leader_and_isr(one, state(one, LeaderEpoch=3)).ErrorCode == Kerr.NONE


# ---- A leader that sends anything


class Leader:
    """The other replica as the leader of "t": answers fetches and look-ups with what a test gives it."""

    def __init__(self, one):
        self.one = one
        self.epoch = 1
        self.log = []  # batches, each of one record, from offset 0
        self.lie = None  # offset asked for -> fields of the partition's answer
        self.told = 0
        self.session = 0
        one.fake.answers |= {"Fetch": self._fetch, "ListOffsets": self._list_offsets}

    def append(self, value):
        record = build([Record(None, value)], base_offset=len(self.log), leader_epoch=self.epoch)
        self.log.append(record)

    def _row(self, offset):
        if self.lie:
            self.told += 1
            return {"PartitionIndex": 0, "HighWatermark": len(self.log)} | self.lie(offset)
        if not 0 <= offset <= len(self.log):
            return {"PartitionIndex": 0, "ErrorCode": Kerr.OFFSET_OUT_OF_RANGE, "HighWatermark": -1}
        return {
            "PartitionIndex": 0,
            "HighWatermark": len(self.log),
            "LogStartOffset": 0,
            "Records": b"".join(self.log[offset:]),
        }

    def _fetch(self, version, asked):
        """Sessions of one answer: each fetch tells of everything."""
        rows = [self._row(part.FetchOffset) for topic in asked.Topics for part in topic.Partitions]
        topic = {"TopicId": self.one.topic_id, "Topic": "t", "Partitions": rows}
        return {"SessionId": 0, "Responses": [topic] if rows else []}

    def _list_offsets(self, version, asked):
        rows = [
            {"PartitionIndex": part.PartitionIndex, "Offset": 0 if part.Timestamp == -2 else len(self.log)}
            for part in asked.Topics[0].Partitions
        ]
        return {"Topics": [{"Name": "t", "Partitions": rows}]}


def log_file(broker):
    return b"".join(path.read_bytes() for path in sorted((broker.log_dir / "t-0").glob("*.log")))


@pytest.fixture
def led(world):
    """Follows a leader that has three records."""
    one = world(replica_fetch_wait_max_ms="50", replica_fetch_backoff_ms="20")
    leader = Leader(one)
    for number in range(3):
        leader.append(b"value%d" % number)
    assert one.lead([one.own, OTHER], leader.epoch, leader=OTHER) == Kerr.NONE
    wait_until(lambda: log_file(one.broker) == b"".join(leader.log), 30, "the follower has the log")
    return leader


def batch(offset, **more):
    return build([Record(None, b"lie")], **dict(base_offset=offset, leader_epoch=1) | more)


def with_crc(data, at, value):
    """Something else in a header, with the checksum that belongs to it."""
    data = data[:at] + value + data[at + len(value) :]
    return data[:17] + struct.pack(">I", crc32c.crc32c(data[21:])) + data[21:]


def records(make):
    return lambda offset: {"Records": make(offset)}


rubbish = random.Random(7)
LIES = {
    "noise": records(lambda at: rubbish.randbytes(10_000)),
    "zeroes": records(lambda at: bytes(10_000)),
    "a torn header": records(lambda at: batch(at)[:40]),
    "a torn batch": records(lambda at: batch(at)[:-1]),
    "a wrong checksum": records(lambda at: batch(at, crc=1)),
    "an old format": records(lambda at: batch(at, magic=1)),
    "a format to come": records(lambda at: batch(at, magic=3)),
    "a negative length": records(lambda at: batch(at, length=-1)),
    "a length that is too short": records(lambda at: batch(at, length=10)),
    "a length without end": records(lambda at: batch(at, length=INT32_MAX)),
    "an offset before the end": records(lambda at: batch(at - 1)),
    "offset zero": records(lambda at: batch(0)),
    "a negative offset": records(lambda at: batch(-1)),
    "the least offset": records(lambda at: batch(-(2**63))),
    "the last offset": records(lambda at: batch(INT64_MAX)),
    "an offset behind which no segment begins": records(lambda at: batch(INT64_MAX - INT32_MAX - 1)),
    "a negative offset delta": records(lambda at: batch(at, last_offset_delta=-1)),
    "a later epoch": records(lambda at: batch(at, leader_epoch=2)),
    "the last epoch": records(lambda at: batch(at, leader_epoch=INT32_MAX)),
    "no error that there is": lambda at: {"ErrorCode": 9999},
    "a negative error": lambda at: {"ErrorCode": -1},
    "a storage error": lambda at: {"ErrorCode": 56},
    "a start above its end": lambda at: {"LogStartOffset": INT64_MAX, "HighWatermark": 3},
    "a negative start": lambda at: {"LogStartOffset": -(2**63), "HighWatermark": -(2**63)},
    "a high watermark above everything": lambda at: {"HighWatermark": INT64_MAX},
    "records of another partition": lambda at: {"PartitionIndex": 5, "Records": batch(at)},
    "a partition that cannot be": lambda at: {"PartitionIndex": -(2**31), "Records": batch(at)},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_follower_takes_no_batch_that_cannot_be(led, lie):
    one, before = led.one, b"".join(led.log)
    led.append(b"the next")
    led.lie = LIES[lie]
    wait_until(lambda: led.told >= 5, 30, "the lie is told")
    assert log_file(one.broker) == before
    led.lie = None
    wait_until(lambda: log_file(one.broker) == b"".join(led.log), 30, "the truth is taken")
    assert one.lead([one.own], 2, partition_epoch=1) == Kerr.NONE
    assert batches.records_of(one.client.fetch("t", 0, 0).Records)[-1].value == b"the next"
    assert one.client.produce("t", 0, ONE_RECORD, acks=1).BaseOffset == 4


BAD_SESSIONS = {
    "an error as a whole": {"ErrorCode": 55},
    "an error that there is not": {"ErrorCode": 9999},
    "a negative session": {"SessionId": -5},
    "another session each time": {"SessionId": 0},
    "topics that nobody asked for": {
        "Responses": [
            {"TopicId": uuid.UUID(int=n), "Topic": f"x{n}", "Partitions": [{"PartitionIndex": n, "Records": batch(3)}]}
            for n in range(1, 2000)
        ]
    },
    "one partition many times": {
        "Responses": [
            {"TopicId": TOPIC_ID, "Topic": "t", "Partitions": [{"PartitionIndex": 0, "Records": batch(3, crc=5)}] * 2000}
        ]
    },
}


@pytest.mark.parametrize("lie", BAD_SESSIONS)
def test_a_follower_bears_answers_that_cannot_be(led, lie):
    one, before, told = led.one, b"".join(led.log), []
    honest = one.fake.answers["Fetch"]

    def lying(version, asked):
        told.append(version)
        made = BAD_SESSIONS[lie]
        return made | ({"SessionId": len(told)} if lie == "another session each time" else {})

    led.append(b"the next")
    one.fake.answers["Fetch"] = lying
    wait_until(lambda: len(told) >= 5, 30, "the lie is told")
    assert log_file(one.broker) == before
    one.fake.answers["Fetch"] = honest
    wait_until(lambda: log_file(one.broker) == b"".join(led.log), 30, "the truth is taken")


def test_what_a_leader_says_of_epochs_cuts_no_more_than_it_must(led):
    """Epochs that never were, and ends that cannot be: the log is cut and fetched again, and comes out right."""
    one = led.one
    dice = random.Random(3)
    ends = [-1, 0, 1, 2, 3, 4, INT64_MAX, -(2**63)]
    led.lie = lambda at: {
        "DivergingEpoch": {"Epoch": dice.choice([0, 1, 2, INT32_MAX]), "EndOffset": dice.choice(ends)},
        "Records": batch(at),
    }
    wait_until(lambda: led.told >= 60, 30, "the lies are told")
    led.lie = None
    wait_until(lambda: log_file(one.broker) == b"".join(led.log), 30, "the log is the leader's again")


@pytest.mark.parametrize("start, end", [(0, -5), (-5, 3), (INT64_MAX, 3), (5, 2), (INT64_MAX, INT64_MAX), (-1, -1)])
def test_a_leader_that_does_not_know_where_its_log_lies(led, start, end):
    one, told = led.one, []
    honest = one.fake.answers["ListOffsets"]

    def lying(version, asked):
        told.append(version)
        rows = [
            {"PartitionIndex": part.PartitionIndex, "Offset": start if part.Timestamp == -2 else end}
            for part in asked.Topics[0].Partitions
        ]
        return {"Topics": [{"Name": "t", "Partitions": rows}]}

    one.fake.answers["ListOffsets"] = lying
    led.lie = lambda at: {"ErrorCode": Kerr.OFFSET_OUT_OF_RANGE, "HighWatermark": -1}
    wait_until(lambda: len(told) >= 6, 30, "it is asked")
    one.fake.answers["ListOffsets"] = honest
    led.lie = None
    wait_until(lambda: log_file(one.broker) == b"".join(led.log), 30, "the log is the leader's again")


# ---- What should not be in ZooKeeper


def registration(**more):
    good = {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://127.0.0.1:1"],
        "jmx_port": -1,
        "features": {},
        "host": "127.0.0.1",
        "timestamp": "0",
        "port": 1,
        "version": 5,
    }
    return json.dumps(good | more).encode()


def assignment(**partitions):
    return json.dumps({"version": 3, "partitions": {name[1:]: ids for name, ids in partitions.items()}}).encode()


BAD_BROKERS = [
    *(b"\xff\xfe{", b"", b"[]", b"7", b"[" * 100_000),
    registration(endpoints=["PLAINTEXT://h:99999999"]),
    registration(endpoints=["PLAINTEXT://h:-1"], port=-1),
    registration(endpoints=[]),
    registration(endpoints=["PLAINTEXT://:1"]),
    registration(endpoints=[f"L{n}://h:{n % 60000}" for n in range(20_000)]),
    registration(endpoints=5, version="x", timestamp={}),
    registration(endpoints=["PLAINTEXT://" + "h" * 100_000 + ":1"], rack="r" * 100_000),
]
BAD_TOPICS = [
    *(b"\xff{", b"", b"{}", b"[]", b"{" * 100_000),
    assignment(p0="x"),
    assignment(p2000000000=[1]),
    json.dumps({"version": 3, "partitions": {"-1": [1]}}).encode(),
    assignment(p0=[1, 1, 1]),
    assignment(p0=[-5, 1]),
    assignment(p0=[]),
    assignment(p0=[99999999999999]),
    assignment(p0=list(range(100_000))),
    assignment(p5=[1]),
    json.dumps({"version": 3, "topic_id": "zzz", "partitions": {"0": [1]}}).encode(),
]
BAD_STATES = [b"", b"{", b"[]", b'{"leader":"x","isr":[1]}', b'{"leader":-9,"isr":[-9],"leader_epoch":-9,"version":1}']
BAD_OTHERS = {
    "/config/topics/sound": b"\xff",
    "/config/brokers/1": b"[]",
    "/config/changes/config_change_0000000000": b"{",
    "/isr_change_notification/isr_change_0000000000": b"{",
    "/log_dir_event_notification/log_dir_event_0000000000": b"\xff",
    "/admin/reassign_partitions": b"\xff{",
    "/admin/preferred_replica_election": b"[",
    "/latest_producer_id_block": b"{",
    "/brokers/ids/x": b"{}",
    "/brokers/ids/99999999999": registration(),
    "/brokers/topics/not a name/partitions/x/state": b"{}",
}


def is_json(zk, path):
    try:
        return json.loads(zk.get(path)[0])
    except (NoNodeError, ValueError):
        return None


def test_what_nobody_can_read_in_zookeeper_harms_nothing_else(tmp_path):
    def creates(name):
        """A topic is made, and both brokers have heard of their roles."""

        def created():
            with cluster.controller().connect() as c:
                row = {"Name": name, "NumPartitions": 2, "ReplicationFactor": 2}
                return c.call("CreateTopics", Topics=[row], timeoutMs=5000).Topics[0].ErrorCode in (0, 36)

        wait_until(created, 60, f"{name} is made")

        def written():
            with cluster.controller().connect() as c:
                for part in c.metadata(name).Topics[0].Partitions:
                    if part.LeaderId in (1, 2):
                        with cluster[part.LeaderId].connect() as leader:
                            if leader.produce(name, part.PartitionIndex, ONE_RECORD, acks=1).ErrorCode:
                                return False
                return True

        wait_until(written, 30, f"{name} is written to")

    with Cluster(tmp_path, 2) as cluster, ExitStack() as stack:
        cluster.start()
        zk = stack.enter_context(cluster.zookeepers.client())
        creates("sound")
        for number, data in enumerate(BAD_BROKERS, 10):
            zk.create(f"/brokers/ids/{number}", data)
        for number, data in enumerate(BAD_TOPICS):
            zk.create(f"/brokers/topics/bad{number}", data)
        for number, data in enumerate(BAD_STATES):
            zk.create(f"/brokers/topics/state{number}", assignment(p0=[1, 2]))
            zk.create(f"/brokers/topics/state{number}/partitions/0/state", data, makepath=True)
        for path, data in BAD_OTHERS.items():
            try:
                zk.create(path, data, makepath=True)
            except NodeExistsError:
                zk.set(path, data)
        creates("while-in-office")
        for _ in range(2):
            zk.delete("/controller")
            creates(f"after-{zk.get('/controller_epoch')[0].decode()}")
        for path in ("/config/brokers/1", "/config/topics/sound"):  # settings are not ignored: it would not start
            zk.set(path, b'{"version":1,"config":{}}')
        zk.set("/controller", b"\xff")  # who was in office sees that, and goes
        wait_until(lambda: is_json(zk, "/controller"), 30, "there is another controller")
        creates("at-last")
        for broker in cluster:
            broker.stop()
            broker.start()
        creates("after-a-new-start")
