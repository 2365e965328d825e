"""Replicas and leaders that move by request, under a checked load."""

import pytest

from brokers import wait_until
from cluster import Cluster
from load import Load

pytestmark = pytest.mark.timeout(300)
CONFIG = {"num.io.threads": "2"}
PREFERRED = 0
ELECTION_NOT_NEEDED = 84
NO_REASSIGNMENT_IN_PROGRESS = 85


@pytest.fixture
def cluster(kind, tmp_path):
    kinds = ["kafka39" if kind == "kafka43" else kind] * 3
    with Cluster(tmp_path, 3, config=CONFIG, kinds=kinds) as one:
        yield one.start()


def reassign(cluster, topic, replicas):
    """{partition: brokers, or None to take it back} -> {partition: error code}."""
    rows = [{"PartitionIndex": p, "Replicas": ids} for p, ids in replicas.items()]
    with cluster.controller().connect() as c:
        answer = c.call(
            "AlterPartitionReassignments",
            version=0,
            TimeoutMs=30000,
            Topics=[{"Name": topic, "Partitions": rows}],
        )
    assert answer.ErrorCode == 0, answer
    return {p.PartitionIndex: p.ErrorCode for p in answer.Responses[0].Partitions}


def ongoing(cluster):
    with cluster.controller().connect() as c:
        answer = c.call("ListPartitionReassignments", version=0, TimeoutMs=30000, Topics=None)
    assert answer.ErrorCode == 0, answer
    return [(t.Name, p.PartitionIndex) for t in answer.Topics for p in t.Partitions]


@pytest.mark.peer_differs("3.9.1 was seen to take a producer's records out of order while it moved their leaders")
def test_replicas_move_and_back_while_records_flow(cluster):
    load = Load(cluster, "moving", partitions=3, config={"min.insync.replicas": "1"}).start()
    load.wait_progress(100)
    for replicas in ([1, 2], [3, 1], [2], [1, 2, 3]):
        assert reassign(cluster, "moving", {p: replicas for p in range(3)}) == {0: 0, 1: 0, 2: 0}
        wait_until(lambda: not ongoing(cluster), 60, f"the replicas are on {replicas}")
        states = cluster.states()
        for p in range(3):
            leader, held, in_sync = states["moving", p]
            assert held == replicas
            assert leader in replicas and set(in_sync) <= set(replicas)
        load.wait_progress(50)
    assert reassign(cluster, "moving", {0: None}) == {0: NO_REASSIGNMENT_IN_PROGRESS}
    cluster.wait_whole()
    load.stop()
    load.check()


def test_the_preferred_leader_gets_the_lead_when_it_is_asked_for(cluster):
    load = Load(cluster, "preferred", partitions=3).start()
    load.wait_progress(50)
    broker = next(b for b in cluster if b is not cluster.controller())
    broker.kill()
    wait_until(lambda: all(s[0] not in (broker.number, -1) for s in cluster.states().values()), 60, "others lead")
    broker.start()
    cluster.wait_whole()
    rows = [{"Topic": "preferred", "Partitions": [0, 1, 2]}]
    with cluster.controller().connect() as c:
        answer = c.call("ElectLeaders", ElectionType=PREFERRED, TopicPartitions=rows, TimeoutMs=30000)
    assert answer.ErrorCode == 0, answer
    codes = [p.ErrorCode for p in answer.ReplicaElectionResults[0].PartitionResult]
    assert set(codes) <= {0, ELECTION_NOT_NEEDED} and 0 in codes
    for (topic, _), (leader, replicas, _) in cluster.states().items():
        if topic == "preferred":
            assert leader == replicas[0]
    load.wait_progress(50)
    load.stop()
    load.check()
