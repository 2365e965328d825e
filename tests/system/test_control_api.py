"""LeaderAndIsr, UpdateMetadata and StopReplica from another broker's controller, and what is asked of that one.

The test is the controller: it speaks to one broker, whose own controller is deposed by the first word that has a higher
epoch.
"""

import base64
import re
import uuid

import pytest

import batches
from brokers import wait_until
from fakebroker import FakeBroker
from rawkafka import Kerr

pytestmark = pytest.mark.barnabas_only

STALE_CONTROLLER_EPOCH, NOT_CONTROLLER, STALE_BROKER_EPOCH = 11, 41, 77
OTHER = 99  # the id of the controller that the test plays
ONE_RECORD = batches.build([batches.Record(b"key", b"value")])


class Controller:
    """Speaks to one broker as the controller of its cluster."""

    def __init__(self, broker, epoch=100):
        self.broker = broker
        self.epoch = epoch
        self.own_id, self.broker_epoch = map(
            int, re.findall(r" started .*broker=(\d+) .*epoch=(\d+)", broker.output())[-1]
        )
        self.conn = broker.connect()
        self.port = 1  # where the controller listens: nobody does
        self.topic_ids = {}

    def close(self):
        self.conn.close()

    def topic_id(self, topic):
        return self.topic_ids.setdefault(topic, uuid.uuid4())

    def head(self, **more):
        return {"ControllerId": OTHER, "ControllerEpoch": self.epoch, "BrokerEpoch": self.broker_epoch} | more

    def leader_and_isr(self, topic, states, version=7, **more):
        """`states`: partition -> (leader, leader epoch)."""
        rows = [
            {
                "TopicName": topic,
                "PartitionIndex": index,
                "ControllerEpoch": self.epoch,
                "Leader": leader,
                "LeaderEpoch": epoch,
                "Isr": [self.own_id],
                "Replicas": [self.own_id, OTHER],
                "IsNew": True,
            }
            for index, (leader, epoch) in states.items()
        ]
        body = (
            {"TopicStates": [{"TopicName": topic, "TopicId": self.topic_id(topic), "PartitionStates": rows}]}
            if version >= 2
            else {"UngroupedPartitionStates": rows}
        )
        live = {"LiveLeaders": [{"BrokerId": OTHER, "HostName": "127.0.0.1", "Port": self.port}]}
        return self.conn.call("LeaderAndIsr", version, **self.head(**more), **body, **live)

    def update_metadata(self, states=None, version=8, rack=None, **more):
        """`states`: topic -> partition -> (leader, leader epoch)."""
        topics = [
            {
                "TopicName": topic,
                "TopicId": self.topic_id(topic),
                "PartitionStates": [
                    {
                        "TopicName": topic,
                        "PartitionIndex": index,
                        "ControllerEpoch": self.epoch,
                        "Leader": leader,
                        "LeaderEpoch": epoch,
                        "Isr": [self.own_id],
                        "Replicas": [self.own_id, OTHER],
                        "OfflineReplicas": [OTHER],
                    }
                    for index, (leader, epoch) in partitions.items()
                ],
            }
            for topic, partitions in (states or {}).items()
        ]
        ungrouped = [row for topic in topics for row in topic["PartitionStates"]]
        brokers = [
            {
                "Id": number,
                "V0Host": "127.0.0.1",
                "V0Port": port,
                "Endpoints": [
                    {"Port": port, "Host": "127.0.0.1", "Listener": "PLAINTEXT" if version >= 3 else "", "SecurityProtocol": 0}
                ],
                "Rack": rack,
            }
            for number, port in ((self.own_id, self.broker.port), (OTHER, self.port))
        ]
        body = {"TopicStates": topics} if version >= 5 else {"UngroupedPartitionStates": ungrouped}
        return self.conn.call("UpdateMetadata", version, **self.head(**more), **body, LiveBrokers=brokers).ErrorCode

    def stop_replica(self, topic, partitions, version=4, delete=True, epoch=-2, **more):
        states = [{"PartitionIndex": index, "LeaderEpoch": epoch, "DeletePartition": delete} for index in partitions]
        body = {
            0: {"UngroupedPartitions": [{"TopicName": topic, "PartitionIndex": index} for index in partitions]},
            1: {"Topics": [{"Name": topic, "PartitionIndexes": partitions}]},
            3: {"TopicStates": [{"TopicName": topic, "PartitionStates": states}]},
        }[0 if version == 0 else 1 if version < 3 else 3]
        if version < 3:
            body["DeletePartitions"] = delete
        return self.conn.call("StopReplica", version, **self.head(**more), **body)


@pytest.fixture
def controller(fresh_broker):
    broker = fresh_broker().start()
    one = Controller(broker)
    yield one
    one.close()
    assert broker.alive(), broker.output()[-4000:]
    broker.stop()


def partition_errors(answer, version):
    rows = answer.PartitionErrors if version < 5 else [row for topic in answer.Topics for row in topic.PartitionErrors]
    return sorted((row.PartitionIndex, row.ErrorCode) for row in rows)


# Roles


@pytest.mark.parametrize("version", range(8))
def test_roles_are_given_in_every_version(controller, version):
    own = controller.own_id
    for topic in ("a", "b"):
        answer = controller.leader_and_isr(topic, {1: (own, 5), 0: (OTHER, 5), 2: (own, 6)}, version)
        assert answer.ErrorCode == Kerr.NONE
        assert partition_errors(answer, version) == [(0, 0), (1, 0), (2, 0)]
        if version < 5:
            assert {row.TopicName for row in answer.PartitionErrors} == {topic}
        else:
            assert [row.TopicId for row in answer.Topics] == [controller.topic_id(topic)]
    with controller.broker.connect() as client:
        for topic in ("a", "b"):
            assert client.produce(topic, 1, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
            assert client.produce(topic, 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
            assert client.produce(topic, 3, ONE_RECORD, acks=1).ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_that_becomes_a_follower_refuses_to_be_written_to(controller):
    own = controller.own_id
    controller.leader_and_isr("t", {0: (own, 5)})
    with controller.broker.connect() as client:
        assert client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
        assert partition_errors(controller.leader_and_isr("t", {0: (OTHER, 6)}), 7) == [(0, 0)]
        assert client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
        older = partition_errors(controller.leader_and_isr("t", {0: (own, 5)}), 7)
        assert older == [(0, STALE_CONTROLLER_EPOCH)]
        assert client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
        assert partition_errors(controller.leader_and_isr("t", {0: (own, 7)}), 7) == [(0, 0)]
        row = client.produce("t", 0, ONE_RECORD, acks=1)
        assert (row.ErrorCode, row.BaseOffset) == (Kerr.NONE, 1)


def fetch_by_id(connection, topic_id):
    part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000000}
    topics = [{"TopicId": topic_id, "Partitions": [part]}]
    answer = connection.call("Fetch", 13, ReplicaId=-1, MaxWaitMs=0, MinBytes=0, Topics=topics)
    return answer.Responses[0].Partitions[0]


def test_a_topic_of_before_ids_takes_the_one_that_a_controller_names_and_keeps_it(controller):
    own, given = controller.own_id, uuid.uuid4()
    nameless = uuid.UUID(int=0)
    controller.topic_ids["t"] = nameless

    def tell(epoch):
        states = {0: (own, epoch), 1: (OTHER, epoch)}
        assert partition_errors(controller.leader_and_isr("t", states), 7) == [(0, 0), (1, 0)]
        assert controller.update_metadata({"t": states}) == Kerr.NONE

    files = [controller.broker.log_dir / f"t-{p}/partition.metadata" for p in (0, 1)]
    tell(5)
    with controller.broker.connect() as client:
        assert client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
        assert not any(file.exists() for file in files)
        assert fetch_by_id(client, given).ErrorCode == Kerr.UNKNOWN_TOPIC_ID
        for epoch, named in ((6, given), (7, nameless), (7, given)):
            controller.topic_ids["t"] = named
            tell(epoch)
            assert client.metadata("t").Topics[0].TopicId == given
            assert len(batches.read(fetch_by_id(client, given).Records)) == 1
            for file in files:
                text = base64.urlsafe_b64encode(given.bytes).decode().rstrip("=")
                assert file.read_text() == f"version: 0\ntopic_id: {text}"
        controller.topic_ids["t"] = uuid.uuid4()
        errors = partition_errors(controller.leader_and_isr("t", {0: (own, 8)}), 7)
        assert errors == [(0, Kerr.INCONSISTENT_TOPIC_ID)]


@pytest.mark.parametrize("version", range(5))
def test_replicas_are_stopped_in_every_version(controller, version):
    own = controller.own_id
    for topic in ("a", "b"):
        controller.leader_and_isr(topic, {0: (own, 5), 1: (own, 5), 2: (own, 5)})
    answer = controller.stop_replica("a", [0, 2], version)
    assert answer.ErrorCode == Kerr.NONE
    errors = sorted((row.TopicName, row.PartitionIndex, row.ErrorCode) for row in answer.PartitionErrors)
    assert errors == [("a", 0, 0), ("a", 2, 0)]
    wait_until(
        lambda: sorted(p.name for p in controller.broker.log_dir.glob("[ab]-[0-9]")) == ["a-1", "b-0", "b-1", "b-2"],
        30,
        "only what was named has gone",
    )
    with controller.broker.connect() as client:
        assert client.produce("a", 0, ONE_RECORD, acks=1).ErrorCode != Kerr.NONE
        assert client.produce("a", 1, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE


def test_an_older_word_stops_no_replica(controller):
    controller.leader_and_isr("t", {0: (controller.own_id, 5)})
    answer = controller.stop_replica("t", [0], epoch=4)
    assert [row.ErrorCode for row in answer.PartitionErrors] == [Kerr.FENCED_LEADER_EPOCH]
    with controller.broker.connect() as client:
        assert client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE


# What clients are told


@pytest.mark.parametrize("version", range(9))
def test_metadata_is_taken_in_every_version(controller, version):
    own = controller.own_id
    controller.port = 7777
    states = {"a": {1: (own, 3), 0: (OTHER, 4)}, "b": {0: (OTHER, 5)}}
    assert controller.update_metadata(states, version, rack="r1") == Kerr.NONE
    with controller.broker.connect() as client:
        told = client.metadata(version=9)
        assert told.ControllerId == OTHER
        brokers = {row.NodeId: (row.Host, row.Port, row.Rack) for row in told.Brokers}
        rack = "r1" if version >= 2 else None
        assert brokers == {
            own: ("127.0.0.1", controller.broker.port, rack),
            OTHER: ("127.0.0.1", 7777, rack),
        }
        topics = {
            topic.Name: {p.PartitionIndex: (p.LeaderId, p.LeaderEpoch) for p in topic.Partitions}
            for topic in told.Topics
        }
        assert topics == states
        offline = {tuple(p.OfflineReplicas) for topic in told.Topics for p in topic.Partitions}
        assert offline == {(OTHER,) if version >= 4 else ()}


def test_metadata_is_updated_in_parts(controller):
    own = controller.own_id
    controller.update_metadata({"a": {0: (own, 3), 1: (own, 3)}, "b": {0: (own, 3)}})
    controller.update_metadata({"a": {1: (OTHER, 4)}})
    controller.update_metadata({"b": {0: (-2, 0)}})  # is being deleted
    with controller.broker.connect() as client:
        told = {t.Name: {p.PartitionIndex: p.LeaderId for p in t.Partitions} for t in client.metadata().Topics}
    assert told == {"a": {0: own, 1: OTHER}}


# Who may tell us anything


def every_kind(controller, **head):
    """The codes of all three kinds of requests."""
    return [
        controller.leader_and_isr("kind", {0: (controller.own_id, 5)}, **head).ErrorCode,
        controller.update_metadata({"kind": {0: (controller.own_id, 5)}}, **head),
        controller.stop_replica("kind", [0], **head).ErrorCode,
    ]


@pytest.mark.parametrize("first", ["leader_and_isr", "update_metadata", "stop_replica"])
def test_a_controller_that_was_replaced_is_refused(controller, first):
    controller.epoch = 50
    assert every_kind(controller) == [0, 0, 0]
    newer = {
        "leader_and_isr": lambda: controller.leader_and_isr("t", {}, ControllerEpoch=51),
        "update_metadata": lambda: controller.update_metadata(ControllerEpoch=51),
        "stop_replica": lambda: controller.stop_replica("t", [], ControllerEpoch=51),
    }
    newer[first]()
    assert every_kind(controller) == [STALE_CONTROLLER_EPOCH] * 3
    assert not list(controller.broker.log_dir.glob("kind-0"))
    controller.epoch = 51
    assert every_kind(controller) == [0, 0, 0]


def test_what_was_meant_for_an_earlier_life_is_refused(controller):
    stale = controller.broker_epoch - 1
    assert every_kind(controller, BrokerEpoch=stale) == [STALE_BROKER_EPOCH] * 3
    # It does not count as a word of that controller either.
    assert every_kind(controller, ControllerEpoch=200, BrokerEpoch=stale) == [STALE_BROKER_EPOCH] * 3
    assert every_kind(controller) == [0, 0, 0]
    # The controller may learn of our registration before we do.
    assert every_kind(controller, BrokerEpoch=controller.broker_epoch + 1) == [0, 0, 0]
    # Old versions do not tell.
    assert every_kind(controller, BrokerEpoch=-1) == [0, 0, 0]


def test_the_own_controller_is_deposed_by_a_higher_epoch(controller):
    with controller.broker.connect() as client:
        assert client.create_topic("before").ErrorCode == Kerr.NONE
        client.await_topic("before", 1)
        controller.update_metadata()
        client.create_topic("after", validateOnly=False)  # its messages are refused by its own broker
        assert "after" not in [topic.Name for topic in client.metadata().Topics]
    assert not list(controller.broker.log_dir.glob("after-0"))


# What cannot be


@pytest.mark.parametrize(
    ("topic", "partitions"),
    [("../escape", [0]), ("", [0]), ("x" * 250, [0]), ("t", [-1]), ("t", [2**31 - 1]), ("t", [30_000_000])],
)
def test_names_and_numbers_that_cannot_be_are_refused(controller, topic, partitions):
    states = {index: (controller.own_id, 5) for index in partitions}
    assert controller.leader_and_isr(topic, states).ErrorCode == Kerr.INVALID_REQUEST
    assert controller.update_metadata({topic: states}) == Kerr.INVALID_REQUEST
    if partitions[0] <= 0:
        assert controller.stop_replica(topic, partitions).ErrorCode == Kerr.INVALID_REQUEST
    assert not list(controller.broker.directory.glob("**/*escape*"))


def test_a_partition_that_is_named_twice_is_refused(controller):
    row = {
        "PartitionIndex": 0,
        "ControllerEpoch": 100,
        "Leader": controller.own_id,
        "LeaderEpoch": 5,
        "Isr": [controller.own_id],
        "Replicas": [controller.own_id],
        "IsNew": True,
    }
    topic = {"TopicName": "t", "TopicId": uuid.uuid4(), "PartitionStates": [row]}
    for states in ([topic | {"PartitionStates": [row, row]}], [topic, topic]):
        answer = controller.conn.call("LeaderAndIsr", 7, **controller.head(), TopicStates=states)
        assert answer.ErrorCode == Kerr.INVALID_REQUEST
    assert controller.conn.call("LeaderAndIsr", 7, **controller.head(), TopicStates=[topic]).ErrorCode == Kerr.NONE


# What is asked of another broker's controller


@pytest.fixture
def elsewhere(controller):
    """The controller is a fake broker, whose answers a test may replace."""

    def create_topics(version, fields):
        return {"Topics": [{"Name": row.Name} for row in fields.Topics]}

    def allocate(version, fields):
        return {"ProducerIdStart": 7000, "ProducerIdLen": 1000}

    fake = FakeBroker({"CreateTopics": create_topics, "AllocateProducerIds": allocate})
    controller.port = fake.port
    controller.update_metadata()
    yield fake
    fake.close()


def test_topics_made_on_demand_are_asked_of_the_controller(controller, elsewhere):
    with controller.broker.connect() as client:
        told = client.metadata("wanted", create=True).Topics[0]
        assert told.ErrorCode == Kerr.LEADER_NOT_AVAILABLE
        (asked,) = elsewhere.asked("CreateTopics")
        assert [(t.Name, t.NumPartitions, t.ReplicationFactor) for t in asked.Topics] == [("wanted", -1, -1)]
        elsewhere.answers["CreateTopics"] = lambda version, fields: {
            "Topics": [{"Name": row.Name, "ErrorCode": Kerr.INVALID_REPLICATION_FACTOR} for row in fields.Topics]
        }
        assert client.metadata("other", create=True).Topics[0].ErrorCode == Kerr.INVALID_REPLICATION_FACTOR
        found = client.call("FindCoordinator", 3, Key="g", KeyType=0)
        assert found.ErrorCode == Kerr.COORDINATOR_NOT_AVAILABLE
        asked = elsewhere.asked("CreateTopics")[-1].Topics[0]
        assert (asked.Name, asked.NumPartitions) == ("__consumer_offsets", 50)
        assert {c.Name: c.Value for c in asked.Configs}["cleanup.policy"] == "compact"


def test_producer_ids_come_from_the_controller(controller, elsewhere):
    with controller.broker.connect() as client:
        ids = [client.call("InitProducerId", 1, TransactionalId=None, TransactionTimeoutMs=0).ProducerId for _ in "ab"]
        assert ids == [7000, 7001]
        (asked,) = elsewhere.asked("AllocateProducerIds")
        assert (asked.BrokerId, asked.BrokerEpoch) == (controller.own_id, controller.broker_epoch)


def test_what_is_refused_or_lost_is_asked_again(controller, elsewhere):
    verdicts = iter(
        [
            {"ErrorCode": NOT_CONTROLLER},
            None,  # hangs up
            {"ErrorCode": NOT_CONTROLLER},
            {"ProducerIdStart": 9000, "ProducerIdLen": 1000},
        ]
    )
    elsewhere.answers["AllocateProducerIds"] = lambda version, fields: next(verdicts)
    with controller.broker.connect() as client:
        answer = client.call("InitProducerId", 1, TransactionalId=None, TransactionTimeoutMs=0)
        assert (answer.ErrorCode, answer.ProducerId) == (Kerr.NONE, 9000)
    assert len(elsewhere.asked("AllocateProducerIds")) == 4


def test_the_next_controller_is_asked_when_the_first_one_dies(controller, elsewhere):
    elsewhere.close()
    second = FakeBroker({"AllocateProducerIds": lambda version, fields: {"ProducerIdStart": 5000, "ProducerIdLen": 10}})
    try:
        with controller.broker.connect() as client:
            asked = client.send("InitProducerId", 1, TransactionalId=None, TransactionTimeoutMs=0)
            controller.port, controller.epoch = second.port, controller.epoch + 1
            assert controller.update_metadata() == Kerr.NONE
            assert client.receive(asked).ProducerId == 5000
    finally:
        second.close()


def test_without_a_controller_clients_are_told_to_try_again(controller):
    controller.update_metadata()  # nobody listens there
    with controller.broker.connect() as client:
        assert client.metadata("wanted", create=True).Topics[0].ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        answer = client.call("InitProducerId", 1, TransactionalId=None, TransactionTimeoutMs=0)
        assert answer.ErrorCode == Kerr.COORDINATOR_LOAD_IN_PROGRESS
