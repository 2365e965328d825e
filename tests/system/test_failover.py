"""Who leads after a failure, and what a wrong suspicion costs: nothing that was acknowledged."""

import json

import network
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from batches import Record, build
from brokers import READY_SECONDS, wait_until
from cluster import Cluster
from load import Load, high_watermark, log_end

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(network.missing()), reason=network.missing() or ""),
]
# In-sync sets shrink only by what the controller does.
CONFIG = {"replica.lag.time.max.ms": "30000", "num.io.threads": "2"}
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS = 7, 19
OUT_OF_ORDER_SEQUENCE_NUMBER = 45


@pytest.fixture
def cluster(kind, tmp_path):
    kinds = ["kafka39" if kind == "kafka43" else kind] * 3
    with Cluster(tmp_path, 3, config=CONFIG, network=True, kinds=kinds) as one:
        yield one.start()


def make_topic(cluster, name, assignment, config=None):
    rows = [{"PartitionIndex": p, "BrokerIds": ids} for p, ids in enumerate(assignment)]
    configs = [{"Name": key, "Value": value} for key, value in (config or {}).items()]
    row = {"Name": name, "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": rows, "Configs": configs}
    with cluster.controller().connect() as c:
        made = c.call("CreateTopics", Topics=[row], timeoutMs=30000).Topics[0]
        assert made.ErrorCode == 0, made
    cluster.wait_whole()


def leader_of(cluster, topic, partition=0):
    return cluster.states()[topic, partition][0]


def kept_records(cluster, topic):
    """The numbers that the values begin with, in the order of offsets, which leave nothing out."""
    with cluster.clients():
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "kept", "log_level": 0})
    end = high_watermark(consumer, topic, 0)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    wait_until(lambda: found.extend(consumer.consume(500, 0.2)) or len(found) >= end, 60, "everything is read")
    consumer.close()
    assert [m.offset() for m in found] == list(range(end))
    return [int(m.value().split()[0]) for m in found]


def others(cluster, *taken):
    return [b for b in cluster if b not in taken]


@pytest.mark.barnabas_only
def test_the_replica_with_the_most_records_succeeds_a_killed_leader(cluster):
    """Written with acks=1 while one follower is slow: it is in sync still, and stands first, but has less."""
    controller = cluster.controller()
    slow, fast = others(cluster, controller)
    leader = controller
    make_topic(cluster, "most", [[leader.number, slow.number, fast.number]])
    cluster.network.throttle(f"b{leader.number}", f"b{slow.number}", 20_000, ways=1)
    batch = build([Record(value=b"x" * 1000)] * 100)
    with leader.connect() as c:
        for _ in range(20):
            assert c.produce("most", 0, batch, acks=1).ErrorCode == 0
    with fast.connect() as c:
        wait_until(lambda: log_end(c, "most", 0) == 2000, 30, "the fast follower has everything")
    with slow.connect() as c:
        assert log_end(c, "most", 0) < 2000
    assert set(cluster.states()["most", 0][2]) == {1, 2, 3}
    leader.kill()
    wait_until(lambda: leader_of(cluster, "most") not in (leader.number, -1), 60, "another leads")
    assert leader_of(cluster, "most") == fast.number
    with fast.connect() as c:
        assert log_end(c, "most", 0) == 2000
    cluster.network.heal()
    leader.start()
    cluster.wait_whole()
    for broker in cluster:
        with broker.connect() as c:
            assert log_end(c, "most", 0) == 2000


def kill_all_at_once(cluster):
    """Nobody sees another die."""
    for broker in cluster:
        broker.pause()
    for broker in cluster:
        broker.process.kill()
        broker.process.wait(READY_SECONDS)
        broker.paused = False


@pytest.mark.barnabas_only
def test_the_replica_with_the_most_records_leads_when_all_have_died_and_the_leader_stays_away(cluster):
    """Both followers start anew, and are there before a controller is, which has not told them anything yet: each knows
    what its log holds all the same."""
    leader = cluster.controller()
    slow, fast = others(cluster, leader)
    make_topic(cluster, "most", [[leader.number, slow.number, fast.number]])
    cluster.network.throttle(f"b{leader.number}", f"b{slow.number}", 20_000, ways=1)
    batch = build([Record(value=b"x" * 1000)] * 100)
    with leader.connect() as c:
        for _ in range(20):
            assert c.produce("most", 0, batch, acks=1).ErrorCode == 0
    with fast.connect() as c:
        wait_until(lambda: log_end(c, "most", 0) == 2000, 30, "the fast follower has everything")
    with slow.connect() as c:
        assert log_end(c, "most", 0) < 2000
    assert set(cluster.states()["most", 0][2]) == {1, 2, 3}
    kill_all_at_once(cluster)
    cluster.network.heal()
    nobody = {"version": 2, "brokerid": 99, "timestamp": "1", "kraftControllerEpoch": -1}
    with cluster.clients(), cluster.zookeepers.client() as zk:
        for number in zk.get_children("/brokers/ids"):
            cluster.zookeepers.expire_owner(f"/brokers/ids/{number}")
        wait_until(lambda: zk.exists("/controller") is None, 30, "the office is free")
        zk.create("/controller", json.dumps(nobody).encode(), ephemeral=True)
        for broker in (slow, fast):
            broker.extra["controller.election.log.end.wait.ms"] = "10000"
            broker.spawn()
        wait_until(lambda: len(zk.get_children("/brokers/ids")) == 2, 60, "both are registered")
        zk.delete("/controller")
    wait_until(lambda: leader_of(cluster, "most") not in (leader.number, -1), 60, "another leads")
    assert leader_of(cluster, "most") == fast.number
    leader.start()
    cluster.wait_whole()
    for broker in cluster:
        with broker.connect() as c:
            assert log_end(c, "most", 0) == 2000


def test_with_acks_1_only_what_no_living_in_sync_replica_had_is_lost(cluster):
    """The leader dies while its followers, both in sync, are behind it by different amounts."""
    make_topic(cluster, "one", [[b.number for b in cluster]])
    acknowledged = []
    for _ in range(2):
        leader = cluster[leader_of(cluster, "one")]
        followers = slow, fast = others(cluster, leader)
        cluster.network.throttle(f"b{leader.number}", f"b{slow.number}", 10_000, ways=1)
        cluster.network.throttle(f"b{leader.number}", f"b{fast.number}", 60_000, ways=1)
        start = len(acknowledged)
        with leader.connect() as c, fast.connect() as follower:
            for number in range(start, start + 200):
                answer = c.produce("one", 0, build([Record(value=b"%d " % number + b"x" * 2000)]), acks=1)
                assert (answer.ErrorCode, answer.BaseOffset) == (0, number)
                acknowledged.append(number)
                if number < start + 60:
                    near = lambda: log_end(follower, "one", 0) > number - 20  # noqa: B023, E731
                    wait_until(near, 60, "the fast follower is not far behind")
        leader.kill()
        cluster.network.heal()
        ends = []
        for follower in followers:
            with follower.connect() as c:
                ends.append(log_end(c, "one", 0))
        wait_until(lambda: leader_of(cluster, "one") not in (leader.number, -1), 60, "another leads")  # noqa: B023
        leader.start()
        cluster.wait_whole()
        kept = kept_records(cluster, "one")
        assert start < len(kept) < len(acknowledged), "the kill was to cost something, and not everything"
        assert len(kept) >= (max(ends) if leader.kind == "barnabas" else min(ends))
        assert kept == acknowledged[: len(kept)]
        for broker in cluster:
            with broker.connect() as c:
                assert log_end(c, "one", 0) == len(kept)
        del acknowledged[len(kept) :]


def test_an_append_whose_replicas_go_waits_for_as_many_as_were_asked_for(cluster):
    """It has been written when the in-sync set shrinks below min.insync.replicas.  The high watermark stays where it was
    (since Kafka 3.7): the append is told that its time is up, the next ones that there are too few, and what was
    written is there when the follower is back."""
    leader = cluster.controller()
    follower = others(cluster, leader)[0]
    make_topic(cluster, "few", [[leader.number, follower.number]], {"min.insync.replicas": "2"})
    batch = build([Record(value=b"x")])
    with leader.connect(timeout=120) as c:
        assert c.produce("few", 0, batch).ErrorCode == 0
        follower.pause()
        assert set(cluster.states()["few", 0][2]) == {leader.number, follower.number}, "it is in sync still"
        waits = c.send_produce("few", 0, batch, timeout_ms=20_000)
        wait_until(lambda: cluster.states()["few", 0][2] == [leader.number], 60, "the in-sync set has one member")
        row = c.receive(waits).Responses[0].PartitionResponses[0]
        assert row.ErrorCode == REQUEST_TIMED_OUT, row
        row = c.produce("few", 0, batch)
        assert row.ErrorCode == NOT_ENOUGH_REPLICAS, row
        assert log_end(c, "few", 0) == 2, "that one was not written, the one before was"
        follower.resume()
        cluster.wait_whole(60)
        row = c.produce("few", 0, batch)
        assert (row.ErrorCode, row.BaseOffset) == (0, 2)
    assert visible(cluster, "few") == 3


def visible(cluster, topic):
    with cluster.clients():
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "visible", "log_level": 0})
    end = high_watermark(consumer, topic, 0)
    consumer.close()
    return end


@pytest.mark.parametrize("whom", ["the-controller", "everybody"])
def test_a_live_broker_whose_port_refuses_costs_no_record(cluster, whom):
    """It looks dead to the controller (or to all), while it lives and has its session."""
    load = Load(cluster, "refused").start()
    load.wait_progress(200)
    controller = cluster.controller()
    victim = others(cluster, controller)[0]
    name = f"b{victim.number}"
    cluster.network.refuse(name, victim.port, f"b{controller.number}" if whom == "the-controller" else None)
    row = {"PartitionIndex": 0, "BrokerIds": [controller.number]}
    with controller.connect() as c:  # it is noticed when there is something to say
        made = {"Name": "news", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": [row], "Configs": []}
        assert c.call("CreateTopics", Topics=[made], timeoutMs=30000).Topics[0].ErrorCode == 0
    load.wait_progress(500, 90)
    if victim.kind == "barnabas":
        led = lambda: [k for k, (leader, _, _) in cluster.states().items() if leader == victim.number]  # noqa: E731
        wait_until(lambda: not led(), 30, "it has lost its leaders")
    cluster.network.accept(name)
    cluster.wait_whole()
    load.wait_progress(100)
    load.stop()
    load.check()


def test_a_broker_that_only_the_controller_cannot_reach_costs_no_record(cluster):
    """Packets between them are lost without a word: only time tells.  It leads everything, and the controller holds a
    replica in sync of all that, which then is not written to while it leads."""
    controller = cluster.controller()
    victim, witness = others(cluster, controller)
    make_topic(cluster, "led", [[victim.number, controller.number, witness.number]] * 2)
    load = Load(cluster, "led", partitions=2).start()
    load.wait_progress(200)
    cluster.network.cut(f"b{controller.number}", f"b{victim.number}")
    if victim.kind == "barnabas":
        led = lambda: [k for k, (leader, _, _) in cluster.states().items() if leader == victim.number]  # noqa: E731
        wait_until(lambda: not led(), 60, "it has lost its leaders")
        load.wait_progress(500, 90)
    cluster.network.heal()
    cluster.wait_whole()
    load.stop()
    load.check()


@pytest.mark.barnabas_only
def test_a_controller_cut_off_from_all_brokers_leaves_the_office_to_one_of_them(cluster):
    """It has its session with ZooKeeper.  A leader on the other side waits for the replica at the controller, which is in
    sync, and has nobody who would take it out.  Kafka's stays in office as long as the cut lasts."""
    old = cluster.controller()
    leader, witness = others(cluster, old)
    make_topic(cluster, "stuck", [[leader.number, old.number, witness.number]], {"min.insync.replicas": "2"})
    load = Load(cluster, "load").start()
    load.wait_progress(200)
    cluster.network.cut(f"b{old.number}", [f"b{leader.number}", f"b{witness.number}"])
    batch = build([Record(value=b"x")])
    with leader.connect(timeout=120) as c:
        assert c.produce("stuck", 0, batch, timeout_ms=100_000).ErrorCode == 0
    wait_until(lambda: cluster.controller() is not old, 60, "another is in office")
    load.wait_progress(200, 90)
    epoch = cluster.znode("/controller_epoch")
    cluster.network.heal()
    cluster.wait_whole()
    assert cluster.znode("/controller_epoch") == epoch, "it stays with that one"
    load.stop()
    load.check()


def test_a_controller_cut_off_from_zookeeper_is_deposed_and_changes_nothing(cluster):
    load = Load(cluster, "deposed").start()
    load.wait_progress(100)
    old = cluster.controller()
    epoch = cluster.znode("/controller_epoch")
    cluster.network.cut(f"b{old.number}", ["z1"])
    wait_until(lambda: cluster.controller() is not old, 60, "another is elected")
    load.wait_progress(200, 90)
    before = cluster.states()
    cluster.network.heal()
    cluster.wait_whole()
    assert cluster.znode("/controller_epoch") == epoch + 1, "the deposed one took the office again by itself"
    epochs = {key: state["controller_epoch"] for key, state in states_in_full(cluster).items()}
    assert all(e <= epoch + 1 for e in epochs.values()) and before.keys() == epochs.keys()
    load.stop()
    load.check()


def states_in_full(cluster):
    found = {}
    with cluster.clients(), cluster.zookeepers.client() as zk:
        for topic, partition in cluster.states():
            found[topic, partition] = json.loads(zk.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0])
    return found


def test_a_producer_is_told_to_try_again_while_nobody_leads_and_succeeds_after(cluster):
    controller = cluster.controller()
    owner, witness = others(cluster, controller)
    make_topic(cluster, "alone", [[owner.number]])
    with cluster.clients():
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 120000, "log_level": 0})
    results = []
    note = lambda error, message: results.append((error, message.offset()))  # noqa: E731
    producer.produce("alone", b"before", on_delivery=note)
    assert producer.flush(30) == 0
    owner.kill()
    wait_until(lambda: leader_of(cluster, "alone") == -1, 60, "nobody leads")
    with witness.connect() as c:
        answer = c.produce("alone", 0, build([Record(value=b"x")]), acks=1)
        assert answer.ErrorCode in (3, NOT_LEADER_OR_FOLLOWER), answer  # 3: it is no replica of it
        row = c.metadata("alone").Topics[0].Partitions[0]
        assert (row.ErrorCode, row.LeaderId) == (5, -1), "LEADER_NOT_AVAILABLE"
    producer.produce("alone", b"after", on_delivery=note)
    producer.poll(0)
    owner.start()
    assert producer.flush(60) == 0
    assert results == [(None, 0), (None, 1)]


@pytest.mark.barnabas_only
def test_a_deposed_leader_that_wakes_up_does_not_take_its_producers_for_out_of_order(cluster):
    """It has not seen what its successor was sent; and clients give up for that answer."""
    controller = cluster.controller()
    old, new = others(cluster, controller)
    make_topic(cluster, "t", [[old.number, new.number, controller.number]])
    with new.connect() as c:
        ask = lambda: c.call("InitProducerId", TransactionalId=None, TransactionTimeoutMs=60000)  # noqa: E731
        made = wait_until(lambda: (answer := ask()).ErrorCode == 0 and answer, 30, "a producer id")

    def batch(sequence):
        ids = {"producer_id": made.ProducerId, "producer_epoch": made.ProducerEpoch}
        return build([Record(value=b"%d" % sequence)], base_sequence=sequence, **ids)

    with old.connect() as waking, new.connect() as c:
        assert waking.produce("t", 0, batch(0)).ErrorCode == 0
        old.pause()
        wait_until(lambda: leader_of(cluster, "t") == new.number, 60, "another leads")
        wait_until(lambda: c.produce("t", 0, batch(1)).ErrorCode == 0, 60, "it knows that")
        sent = waking.send_produce("t", 0, batch(2))  # the first that it reads
        old.resume()
        answer = waking.receive(sent).Responses[0].PartitionResponses[0]
        assert answer.ErrorCode == NOT_LEADER_OR_FOLLOWER, answer
        assert c.produce("t", 0, batch(3)).ErrorCode == OUT_OF_ORDER_SEQUENCE_NUMBER  # who leads says so
        assert c.produce("t", 0, batch(2)).BaseOffset == 2


def test_a_lost_broker_comes_back_on_an_empty_disk_with_all_its_data(cluster):
    load = Load(cluster, "lost").start()
    load.wait_progress(500)
    victim = others(cluster, cluster.controller())[0]
    victim.kill()
    victim.forget_data()
    load.wait_progress(200, 90)
    victim.start()
    cluster.wait_whole(60)
    load.stop()
    load.check()


def test_a_running_controller_elects_out_of_sync_once_the_cluster_allows_it(cluster, kind):
    """`unclean.leader.election.enable` as the cluster's default, changed while a partition waits for its last replica.
    Kafka's controller reads the topic's settings from ZooKeeper when it elects, and looks at once as ours does."""
    controller = cluster.controller()
    last, behind = others(cluster, controller)
    make_topic(cluster, "waits", [[last.number, behind.number]])
    behind.kill()
    wait_until(lambda: cluster.states()["waits", 0][2] == [last.number], 60, "the in-sync set has one member")
    last.kill()
    wait_until(lambda: leader_of(cluster, "waits") == -1, 60, "nobody leads")
    behind.start()
    with controller.connect() as c:
        wait_until(lambda: len(c.metadata("waits").Brokers) == 2, 60, "it is registered again")
        assert leader_of(cluster, "waits") == -1
        allow = [{"Name": "unclean.leader.election.enable", "ConfigOperation": 0, "Value": "true"}]
        asked = [{"ResourceType": 4, "ResourceName": "", "Configs": allow}]
        assert c.call("IncrementalAlterConfigs", Resources=asked).Responses[0].ErrorCode == 0
    wait_until(lambda: cluster.states()["waits", 0][::2] == (behind.number, [behind.number]), 60, "it leads")
    last.start()
    cluster.wait_whole(60)
