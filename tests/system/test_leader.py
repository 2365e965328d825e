"""A partition that is led here, with a follower and a controller that the test plays.

The broker, number `own`, holds topic "t" together with OTHER, who is the controller, too: it is asked for changes of the
in-sync set, and answers what a test tells it to.
"""

import re
import select
import uuid

import pytest

import batches
from brokers import wait_until
from fakebroker import FakeBroker
from rawkafka import Kerr

pytestmark = pytest.mark.barnabas_only

NOT_ENOUGH_REPLICAS, OFFSET_NOT_AVAILABLE, INELIGIBLE_REPLICA = 19, 78, 107
OTHER, STRANGER = 99, 50
TOPIC_ID = uuid.uuid4()
ONE_RECORD = batches.build([batches.Record(b"key", b"value")])


class World:
    """A broker, its controller, and the other replica of the topic "t" with one partition."""

    def __init__(self, broker):
        self.broker = broker
        self.own, self.broker_epoch = map(
            int, re.findall(r" started .*broker=(\d+) .*epoch=(\d+)", broker.output())[-1]
        )
        self.refuse = []  # errors for the next proposals
        self.partition_epoch = 0
        self.topic_id = TOPIC_ID
        self.fake = FakeBroker({"AlterPartition": self._answer})
        self.control = broker.connect()
        self.client = broker.connect()

    def close(self):
        self.control.close()
        self.client.close()
        self.fake.close()

    def _answer(self, version, asked):
        (topic,) = asked.Topics
        (row,) = topic.Partitions
        isr = [one.BrokerId for one in row.NewIsrWithEpochs] if version >= 3 else row.NewIsr
        error = self.refuse.pop(0) if self.refuse else Kerr.NONE
        if not error:
            self.partition_epoch = row.PartitionEpoch + 1
        answer = {
            "PartitionIndex": row.PartitionIndex,
            "ErrorCode": error,
            "LeaderId": self.own,
            "LeaderEpoch": row.LeaderEpoch,
            "Isr": isr,
            "PartitionEpoch": self.partition_epoch,
        }
        return {"Topics": [{"TopicId": topic.TopicId, "Partitions": [answer]}]}

    def proposals(self):
        """The in-sync sets that the broker has asked for."""
        return [
            sorted(one.BrokerId for one in asked.Topics[0].Partitions[0].NewIsrWithEpochs)
            for asked in self.fake.asked("AlterPartition")
        ]

    def head(self):
        return {"ControllerId": OTHER, "ControllerEpoch": 100, "BrokerEpoch": self.broker_epoch}

    def lead(self, isr, epoch, leader=None, partition_epoch=0):
        """Makes the broker, or another, the leader; and tells it of the cluster."""
        state = {
            "TopicName": "t",
            "PartitionIndex": 0,
            "ControllerEpoch": 100,
            "Leader": self.own if leader is None else leader,
            "LeaderEpoch": epoch,
            "Isr": isr,
            "Replicas": [self.own, OTHER],
        }
        topic = {"TopicName": "t", "TopicId": self.topic_id, "PartitionStates": [state]}
        brokers = [
            {
                "Id": number,
                "Endpoints": [{"Port": port, "Host": "127.0.0.1", "Listener": "PLAINTEXT", "SecurityProtocol": 0}],
                "Rack": f"rack{number}",
            }
            for number, port in ((self.own, self.broker.port), (OTHER, self.fake.port))
        ]
        answer = self.control.call("UpdateMetadata", 8, **self.head(), TopicStates=[topic], LiveBrokers=brokers)
        assert answer.ErrorCode == Kerr.NONE
        topic["PartitionStates"] = [state | {"PartitionEpoch": partition_epoch, "IsNew": True}]
        live = [{"BrokerId": OTHER, "HostName": "127.0.0.1", "Port": self.fake.port}]
        answer = self.control.call("LeaderAndIsr", 7, **self.head(), TopicStates=[topic], LiveLeaders=live)
        assert answer.ErrorCode == Kerr.NONE
        return answer.Topics[0].PartitionErrors[0].ErrorCode

    def follow(self, offset, replica=OTHER, **more):
        """Fetches as the other replica, which has everything below `offset`."""
        return self.client.fetch("t", 0, offset, ReplicaId=replica, **more)

    def configure(self, topic, *settings):
        resource = {"ResourceType": 2, "ResourceName": topic, "Configs": list(settings)}
        answer = self.client.call("IncrementalAlterConfigs", Resources=[resource])
        assert answer.Responses[0].ErrorCode == Kerr.NONE, answer

    def high_watermark(self):
        return self.client.fetch("t", 0, 0).HighWatermark


@pytest.fixture
def world(fresh_broker):
    made = []

    def make(**config):
        broker = fresh_broker({key.replace("_", "."): value for key, value in config.items()}).start()
        made.append(World(broker))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert one.broker.alive(), one.broker.output()[-4000:]
        one.broker.stop()


def is_answered(conn):
    """Is there something to read already?"""
    return bool(select.select([conn.socket], [], [], 0)[0])


def test_acks_all_is_held_until_the_follower_has_it(world):
    w = world()
    w.lead([w.own, OTHER], 5)
    with w.broker.connect() as producer:
        waiting = producer.send_produce("t", 0, ONE_RECORD)
        row = w.follow(0, max_wait_ms=30000)
        assert [batch.last_offset for batch in batches.read(row.Records)] == [0]
        assert row.HighWatermark == 0
        assert w.high_watermark() == 0 and not w.client.fetch("t", 0, 0).Records
        assert not is_answered(producer)
        assert w.follow(1).HighWatermark == 1
        row = producer.receive(waiting).Responses[0].PartitionResponses[0]
        assert (row.ErrorCode, row.BaseOffset) == (Kerr.NONE, 0)
        assert w.high_watermark() == 1
        assert producer.produce("t", 0, ONE_RECORD, acks=1).BaseOffset == 1  # that one need not wait
        assert w.high_watermark() == 1
        row = producer.produce("t", 0, ONE_RECORD, timeout_ms=1)
        assert row.ErrorCode == Kerr.REQUEST_TIMED_OUT


def test_a_followers_session_learns_of_the_high_watermark_at_once(world):
    w = world()
    w.lead([w.own, OTHER], 5)
    assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE

    def row(offset):
        return [{"TopicId": TOPIC_ID, "Partitions": [{"Partition": 0, "FetchOffset": offset, "CurrentLeaderEpoch": 5, "PartitionMaxBytes": 1 << 20}]}]

    state = {"ReplicaState": {"ReplicaId": OTHER, "ReplicaEpoch": 7}, "MinBytes": 1, "MaxBytes": 1 << 20}
    with w.broker.connect(timeout=20) as follower:
        full = follower.call("Fetch", 17, **state, MaxWaitMs=0, SessionEpoch=0, Topics=row(0))
        assert full.Responses[0].Partitions[0].HighWatermark == 0
        # What it has fetched moves it, and that is news, though there are no records: no minute is waited for.
        news = follower.call("Fetch", 17, **state, MaxWaitMs=60000, SessionId=full.SessionId, SessionEpoch=1, Topics=row(1))
        assert news.Responses[0].Partitions[0].HighWatermark == 1
        # Now it knows everything, and waits for records.
        waiting = follower.send("Fetch", 17, **state, MaxWaitMs=60000, SessionId=full.SessionId, SessionEpoch=2, Topics=[])
        assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
        news = follower.receive(waiting)
        assert [batch.last_offset for batch in batches.read(news.Responses[0].Partitions[0].Records)] == [1]


def test_a_follower_enters_and_leaves_by_the_controllers_word(world):
    w = world(**{"replica_lag_time_max_ms": "1000"})
    w.lead([w.own], 5)
    assert w.client.produce("t", 0, ONE_RECORD).ErrorCode == Kerr.NONE  # alone, it need not wait
    w.follow(1)
    asked = w.fake.await_asked("AlterPartition")[0]
    assert (asked.BrokerId, asked.BrokerEpoch) == (w.own, w.broker_epoch)
    assert asked.Topics[0].TopicId == TOPIC_ID
    assert asked.Topics[0].Partitions[0].LeaderEpoch == 5
    assert w.proposals() == [sorted([w.own, OTHER])]
    with w.broker.connect() as producer:
        waiting = producer.send_produce("t", 0, ONE_RECORD)
        w.follow(1, max_wait_ms=30000)  # it is there, and nobody fetches any more
        assert not is_answered(producer)
        w.fake.await_asked("AlterPartition", 2)
        assert w.proposals()[1] == [w.own]
        assert w.fake.asked("AlterPartition")[1].Topics[0].Partitions[0].PartitionEpoch == 1
        assert producer.receive(waiting).Responses[0].PartitionResponses[0].ErrorCode == Kerr.NONE


def test_a_follower_that_may_not_enter_is_proposed_again(world):
    w = world()
    w.refuse = [INELIGIBLE_REPLICA]
    w.lead([w.own], 5)
    w.follow(0)
    w.fake.await_asked("AlterPartition")

    def asked_again():
        w.follow(0)
        return len(w.proposals()) == 2

    wait_until(asked_again, 30, "it is proposed once more")
    assert w.client.produce("t", 0, ONE_RECORD, timeout_ms=1).ErrorCode == Kerr.REQUEST_TIMED_OUT


def test_too_few_in_sync_refuse_acks_all(world):
    w = world(**{"min_insync_replicas": "2"})
    w.lead([w.own], 5)
    assert w.client.produce("t", 0, ONE_RECORD).ErrorCode == NOT_ENOUGH_REPLICAS
    assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
    assert w.high_watermark() == 0  # nobody sees what may be lost
    w.follow(1)
    w.fake.await_asked("AlterPartition")
    wait_until(lambda: w.high_watermark() == 1, 30, "with the second one in sync it is safe")
    with w.broker.connect() as producer:
        waiting = producer.send_produce("t", 0, ONE_RECORD)
        w.follow(1, max_wait_ms=30000)
        w.follow(2)
        assert producer.receive(waiting).Responses[0].PartitionResponses[0].ErrorCode == Kerr.NONE


def test_who_waits_is_told_when_leadership_goes(world):
    w = world()
    w.lead([w.own, OTHER], 5)
    with w.broker.connect() as producer:
        waiting = producer.send_produce("t", 0, ONE_RECORD)
        w.follow(0, max_wait_ms=30000)
        w.lead([w.own, OTHER], 6, leader=OTHER)
        row = producer.receive(waiting).Responses[0].PartitionResponses[0]
        assert row.ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
    assert w.follow(0, current_leader_epoch=6).ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
    # A consumer may read here what is known to be replicated, and a debugger may ask for the log's end.
    row = w.client.fetch("t", 0, 0)
    assert (row.ErrorCode, row.HighWatermark, row.Records or b"") == (Kerr.NONE, 0, b"")
    assert w.client.fetch("t", 0, 0, version=10).ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
    assert w.client.list_offset("t", 0, -1).ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
    asked = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]
    row = w.client.call("ListOffsets", 9, ReplicaId=-2, Topics=asked).Topics[0].Partitions[0]
    assert (row.ErrorCode, row.Offset, row.LeaderEpoch) == (Kerr.NONE, 1, 5)


def test_a_new_leader_tells_no_end_before_its_epoch_is_replicated(world):
    w = world()
    w.lead([w.own, OTHER], 5)
    assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
    w.lead([w.own, OTHER], 6, leader=OTHER)
    w.lead([w.own, OTHER], 7)
    assert w.client.list_offset("t", 0, -1, version=5).ErrorCode == OFFSET_NOT_AVAILABLE
    assert w.client.list_offset("t", 0, -1, version=4).ErrorCode == Kerr.LEADER_NOT_AVAILABLE
    w.follow(1)
    assert w.client.list_offset("t", 0, -1).Offset == 1


def test_strangers_and_old_lives_are_no_followers(world):
    w = world()
    w.lead([w.own, OTHER], 5)
    assert w.follow(0, STRANGER).ErrorCode == Kerr.NOT_LEADER_OR_FOLLOWER
    assert w.follow(0, STRANGER, current_leader_epoch=5).ErrorCode == Kerr.UNKNOWN_LEADER_EPOCH
    assert w.follow(0, current_leader_epoch=4).ErrorCode == Kerr.FENCED_LEADER_EPOCH
    assert w.follow(0, current_leader_epoch=6).ErrorCode == Kerr.UNKNOWN_LEADER_EPOCH
    assert w.follow(1).ErrorCode == Kerr.OFFSET_OUT_OF_RANGE

    def in_life(epoch):
        row = {"Topic": "t", "TopicId": TOPIC_ID, "Partitions": [{"Partition": 0, "PartitionMaxBytes": 1 << 20}]}
        state = {"ReplicaId": OTHER, "ReplicaEpoch": epoch}
        return w.client.call("Fetch", 16, ReplicaState=state, Topics=[row]).Responses[0].Partitions[0].ErrorCode

    assert in_life(8) == Kerr.NONE
    assert in_life(7) == Kerr.NOT_LEADER_OR_FOLLOWER


def test_a_follower_with_another_history_is_told_where_it_differs(world):
    w = world()
    w.lead([w.own, OTHER], 5)
    assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
    w.lead([w.own, OTHER], 7, partition_epoch=1)
    for _ in range(2):
        assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
    row = w.follow(3, last_fetched_epoch=6)  # it has followed a leader of epoch 6
    assert (row.ErrorCode, row.DivergingEpoch.Epoch, row.DivergingEpoch.EndOffset) == (Kerr.NONE, 5, 1)
    assert w.high_watermark() == 0  # and has not what we have


def test_a_consumer_is_sent_to_the_replica_in_its_rack(world):
    w = world(**{"replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"})
    w.lead([w.own, OTHER], 5)
    assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE

    def preferred(number):
        return w.client.fetch("t", 0, 0, RackId=f"rack{number}", max_wait_ms=0).get("PreferredReadReplica", -1)

    assert preferred(OTHER) == -1  # it has nothing yet
    w.follow(1)
    assert preferred(OTHER) == OTHER
    assert preferred(w.own) == -1
    assert preferred(STRANGER) == -1
    row = w.client.fetch("t", 0, 0, RackId=f"rack{OTHER}", max_wait_ms=60000, min_bytes=1 << 20)
    assert not row.Records and row.HighWatermark == 1


def test_deleted_records_are_gone_from_all_replicas_when_it_is_answered(world):
    w = world()
    w.lead([w.own, OTHER], 5)
    for _ in range(3):
        assert w.client.produce("t", 0, ONE_RECORD, acks=1).ErrorCode == Kerr.NONE
    w.follow(3)
    topic = {"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}
    with w.broker.connect() as admin:
        waiting = admin.send("DeleteRecords", 2, Topics=[topic], TimeoutMs=60000)
        wait_until(lambda: w.follow(3).LogStartOffset == 2, 30, "the follower is told")
        assert not is_answered(admin)
        row = {"Topic": "t", "Partitions": [{"Partition": 0, "FetchOffset": 3, "LogStartOffset": 2, "PartitionMaxBytes": 1}]}
        w.client.call("Fetch", 12, ReplicaId=OTHER, Topics=[row])
        answer = admin.receive(waiting).Topics[0].Partitions[0]
        assert (answer.ErrorCode, answer.LowWatermark) == (Kerr.NONE, 2)
        topic["Partitions"][0]["Offset"] = 3
        late = admin.call("DeleteRecords", 2, Topics=[topic], TimeoutMs=1).Topics[0].Partitions[0]
        assert late.ErrorCode == Kerr.REQUEST_TIMED_OUT


def test_a_throttled_follower_that_is_not_in_sync_is_held_back(world):
    w = world(**{"leader_replication_throttled_rate": "1000"})
    w.topic_id = w.client.topic_id(w.client.new_topic("t"))  # it is stored, since it is to be configured
    w.lead([w.own], 5)
    batch = batches.build([batches.Record(b"key", bytes(1500))])
    for _ in range(3):
        assert w.client.produce("t", 0, batch, acks=1).ErrorCode == Kerr.NONE
    throttled = {"Name": "leader.replication.throttled.replicas", "ConfigOperation": 0, "Value": f"1:{w.own},0:{w.own}"}
    assert w.follow(0, partition_max_bytes=1).Records  # nothing is throttled yet
    w.configure("t", throttled)
    assert w.follow(0, partition_max_bytes=1).Records  # more than the rate allows in a second
    assert not w.follow(1, partition_max_bytes=1).Records
    assert w.client.fetch("t", 0, 1, partition_max_bytes=1).Records  # a consumer is no replica
    row = wait_until(lambda: w.follow(1, max_wait_ms=100, partition_max_bytes=1).Records, 30, "its time comes")
    assert [one.last_offset for one in batches.read(row)] == [1]
