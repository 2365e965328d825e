"""Metadata, DescribeCluster, DescribeTopicPartitions: what clients learn of topics and brokers."""

import uuid

import pytest

from batches import Record, build
from brokers import wait_until
from rawkafka import Kerr, ascii_id

NONE_ALLOWED = -2147483648  # "authorized operations" where they were not asked for


def names(answer):
    return [row.Name for row in answer.Topics]


def test_null_topics_means_all_and_an_empty_list_none(conn, topic):
    assert topic in names(conn.call("Metadata", 9, Topics=None))
    assert names(conn.call("Metadata", 9, Topics=[])) == []


def test_version_0_takes_an_empty_list_as_all(conn, topic):
    if conn.announced()[3][0] > 0:
        pytest.skip("version 0 is not served")
    assert topic in names(conn.call("Metadata", 0, Topics=[]))


def test_every_version_describes_the_topic_alike(conn, topic, broker):
    first, last = conn.announced()[3]
    for version in range(first, last + 1):
        answer = conn.call("Metadata", version, Topics=[{"Name": topic}])
        (row,), (node,) = answer.Topics, answer.Brokers
        assert (node.Host, node.Port) == broker.address
        assert row.ErrorCode == Kerr.NONE and row.Name == topic and not row.get("IsInternal")
        (part,) = row.Partitions
        assert (part.ErrorCode, part.PartitionIndex, part.LeaderId) == (0, 0, node.NodeId)
        assert part.ReplicaNodes == part.IsrNodes == [node.NodeId]
        assert part.get("OfflineReplicas", []) == []
        assert part.get("LeaderEpoch", 0) >= 0
        if version >= 1:
            assert answer.ControllerId == node.NodeId
        if version >= 2:
            assert answer.ClusterId
        if version >= 8:
            assert row.TopicAuthorizedOperations == NONE_ALLOWED
        if version >= 10:
            assert row.TopicId != uuid.UUID(int=0)


def test_authorized_operations_are_given_when_asked_for(conn, topic):
    answer = conn.call(
        "Metadata",
        9,
        Topics=[{"Name": topic}],
        IncludeTopicAuthorizedOperations=True,
        IncludeClusterAuthorizedOperations=True,
    )
    # READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11
    assert answer.Topics[0].TopicAuthorizedOperations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    # CREATE 5, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12
    assert answer.ClusterAuthorizedOperations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def test_a_topic_is_found_by_id(conn, topic):
    topic_id = conn.topic_id(topic)
    (row,) = conn.call("Metadata", 12, Topics=[{"TopicId": topic_id, "Name": None}]).Topics
    assert (row.ErrorCode, row.Name, row.TopicId) == (0, topic, topic_id)


def test_an_unknown_id_is_an_error_of_its_own(conn):
    wanted = uuid.uuid4()
    (row,) = conn.call("Metadata", 12, Topics=[{"TopicId": wanted, "Name": None}]).Topics
    assert (row.ErrorCode, row.Name, row.TopicId, row.Partitions) == (Kerr.UNKNOWN_TOPIC_ID, None, wanted, [])


def test_an_unknown_name_without_creation_is_unknown(conn, topic_name):
    (row,) = conn.metadata(topic_name).Topics
    assert (row.ErrorCode, row.Name, row.Partitions) == (Kerr.UNKNOWN_TOPIC_OR_PARTITION, topic_name, [])
    assert topic_name not in names(conn.metadata())


def test_an_unknown_name_is_created_when_the_request_allows(conn, topic_name):
    wait_until(lambda: conn.metadata(topic_name, create=True).Topics[0].ErrorCode == 0, 30, "the topic is created")
    assert topic_name in names(conn.metadata())


def test_versions_before_4_always_create(conn, topic_name):
    def created():
        return conn.call("Metadata", 3, Topics=[{"Name": topic_name}]).Topics[0].ErrorCode == 0

    wait_until(created, 30, "the topic is created")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "höhe"], ids=ascii_id)
def test_a_name_that_can_be_no_topic_is_invalid_and_never_created(conn, name):
    (row,) = conn.metadata(name, create=True).Topics
    assert row.ErrorCode == Kerr.INVALID_TOPIC_EXCEPTION
    assert name not in names(conn.metadata())


def test_describe_cluster_names_the_broker(conn, broker):
    meta = conn.metadata()
    answer = conn.call("DescribeCluster")
    assert answer.ErrorCode == Kerr.NONE
    assert answer.ClusterId == meta.ClusterId
    (node,) = answer.Brokers
    assert (node.Host, node.Port, node.BrokerId) == (*broker.address, meta.Brokers[0].NodeId)
    assert answer.ControllerId == node.BrokerId
    assert answer.ClusterAuthorizedOperations == NONE_ALLOWED


class TestDescribeTopicPartitions:
    @pytest.fixture(autouse=True)
    def served(self, conn):
        if not conn.serves("DescribeTopicPartitions"):
            pytest.skip("not served")

    def test_all_partitions_of_a_topic(self, conn, topic_name):
        conn.new_topic(topic_name, 3)
        answer = conn.call("DescribeTopicPartitions", Topics=[{"Name": topic_name}])
        (row,) = answer.Topics
        assert answer.NextCursor is None
        assert (row.ErrorCode, row.Name, row.TopicId) == (0, topic_name, conn.topic_id(topic_name))
        assert [p.PartitionIndex for p in row.Partitions] == [0, 1, 2]
        assert all(p.LeaderId == p.ReplicaNodes[0] == p.IsrNodes[0] for p in row.Partitions)

    def test_paging_visits_every_partition_once(self, conn, topic_name):
        topics = [conn.new_topic(f"{topic_name}-{letter}", 5) for letter in "abc"]
        seen, cursor = [], None
        for _ in range(20):
            answer = conn.call(
                "DescribeTopicPartitions", Topics=[{"Name": t} for t in topics], ResponsePartitionLimit=4, Cursor=cursor
            )
            page = [(row.Name, p.PartitionIndex) for row in answer.Topics for p in row.Partitions]
            assert len(page) <= 4
            seen += page
            cursor = answer.NextCursor
            if cursor is None:
                break
        assert seen == [(t, p) for t in sorted(topics) for p in range(5)]

    def test_an_unknown_topic_is_unknown(self, conn, topic_name):
        (row,) = conn.call("DescribeTopicPartitions", Topics=[{"Name": topic_name}]).Topics
        assert (row.ErrorCode, row.Name, row.Partitions) == (Kerr.UNKNOWN_TOPIC_OR_PARTITION, topic_name, [])


@pytest.mark.barnabas_only
def test_a_partition_whose_log_cannot_be_made_is_told_so_in_every_version(broker, conn, topic_name):
    """Only Produce 10 and Fetch 16 have room for a leader's address; older versions get the error alone."""
    obstacle = broker.log_dir / f"{topic_name}-0"
    obstacle.write_text("where the log would be")
    assert conn.create_topic(topic_name).ErrorCode == Kerr.NONE
    for version in range(3, conn.newest("Produce") + 1):
        row = conn.produce(topic_name, 0, build([Record(b"k", b"v")]), version=version)
        assert row.ErrorCode == Kerr.KAFKA_STORAGE_ERROR, version
    for version in range(4, conn.newest("Fetch") + 1):
        assert conn.fetch(topic_name, 0, 0, version=version).ErrorCode == Kerr.KAFKA_STORAGE_ERROR, version
    conn.call("DeleteTopics", 5, TopicNames=[topic_name], TimeoutMs=10000)
    assert not obstacle.exists(), "it was in the place of the log, and goes with the topic"
