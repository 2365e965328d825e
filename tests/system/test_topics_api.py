"""CreateTopics, DeleteTopics, CreatePartitions."""

import contextlib
import sqlite3
import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from batches import Record, build
from brokers import wait_until
from rawkafka import Kerr, ascii_id

BROKER_CONFIG = {"num.partitions": "2", "default.replication.factor": "1"}


def creation(conn, *rows, **more):
    return conn.call("CreateTopics", Topics=list(rows), timeoutMs=30000, **more).Topics


def row(name, **more):
    return {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1} | more


def exists(conn, name):
    return conn.metadata(name).Topics[0].ErrorCode == Kerr.NONE


def gone(conn, name):
    wait_until(lambda: not exists(conn, name), 30, f"{name} is gone")
    return True


def make_again(conn, name):
    """Creates a topic that was just deleted: deleting may still be going on behind an answer that says it is done."""

    def created():
        (got,) = creation(conn, row(name))
        assert got.ErrorCode in (Kerr.NONE, Kerr.TOPIC_ALREADY_EXISTS), got
        return got.ErrorCode == Kerr.NONE

    wait_until(created, 60, f"{name} is created again")
    conn.await_topic(name, 1)


def node_id(conn):
    return conn.metadata().Brokers[0].NodeId


class TestCreate:
    def test_every_version_creates(self, conn, topic_name):
        first, last = conn.announced()[19]
        for version in range(first, last + 1):
            (got,) = creation(conn, row(f"{topic_name}-{version}"), version=version)
            assert got.ErrorCode == Kerr.NONE, got
            conn.await_topic(f"{topic_name}-{version}", 1)

    def test_the_answer_says_what_was_made(self, conn, topic_name):
        (got,) = creation(
            conn, row(topic_name, NumPartitions=3, Configs=[{"Name": "retention.ms", "Value": "1234567"}])
        )
        assert (got.ErrorCode, got.ErrorMessage, got.NumPartitions, got.ReplicationFactor) == (0, None, 3, 1)
        assert got.TopicId == conn.topic_id(topic_name) != uuid.UUID(int=0)
        configs = {c.Name: c for c in got.Configs}
        assert (configs["retention.ms"].Value, configs["retention.ms"].ConfigSource) == ("1234567", 1)
        assert configs["cleanup.policy"].Value == "delete" and configs["cleanup.policy"].ConfigSource in (4, 5)

    def test_minus_one_takes_the_broker_s_defaults(self, conn, topic_name):
        (got,) = creation(conn, row(topic_name, NumPartitions=-1, ReplicationFactor=-1))
        assert (got.ErrorCode, got.NumPartitions, got.ReplicationFactor) == (0, 2, 1)
        conn.await_topic(topic_name, 2)

    def test_a_topic_that_exists_is_an_error_and_unchanged(self, conn, topic):
        before = conn.topic_id(topic)
        (got,) = creation(conn, row(topic, NumPartitions=4))
        assert got.ErrorCode == Kerr.TOPIC_ALREADY_EXISTS and topic in got.ErrorMessage
        assert conn.topic_id(topic) == before and len(conn.metadata(topic).Topics[0].Partitions) == 1

    def test_names_that_differ_only_in_dot_and_underscore_collide(self, conn, topic_name):
        base = topic_name.replace("_", "-").replace(".", "-")
        conn.new_topic(f"{base}.x")
        (got,) = creation(conn, row(f"{base}_x"))
        assert got.ErrorCode == Kerr.INVALID_TOPIC_EXCEPTION and "collide" in got.ErrorMessage
        assert not exists(conn, f"{base}_x")

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250], ids=ascii_id)
    def test_illegal_names_are_refused(self, conn, name):
        (got,) = creation(conn, row(name))
        assert got.ErrorCode == Kerr.INVALID_TOPIC_EXCEPTION and got.ErrorMessage

    def test_a_name_of_249_characters_is_legal(self, conn, topic_name):
        name = topic_name[:100].ljust(249, "x")
        conn.new_topic(name)

    @pytest.mark.parametrize("partitions", [0, -2])
    def test_partition_counts_below_one_are_refused(self, conn, topic_name, partitions):
        (got,) = creation(conn, row(topic_name, NumPartitions=partitions))
        assert got.ErrorCode == Kerr.INVALID_PARTITIONS

    @pytest.mark.parametrize("factor", [0, -2, 2, 32767])
    def test_replication_factors_that_cannot_be_are_refused(self, conn, topic_name, factor):
        (got,) = creation(conn, row(topic_name, ReplicationFactor=factor))
        assert got.ErrorCode == Kerr.INVALID_REPLICATION_FACTOR
        assert not exists(conn, topic_name)

    def test_a_manual_assignment_is_taken(self, conn, topic_name):
        me = node_id(conn)
        assignments = [{"PartitionIndex": index, "BrokerIds": [me]} for index in range(3)]
        (got,) = creation(conn, row(topic_name, NumPartitions=-1, ReplicationFactor=-1, Assignments=assignments))
        assert (got.ErrorCode, got.NumPartitions) == (0, 3)
        conn.await_topic(topic_name, 3)

    def test_a_manual_assignment_excludes_counts(self, conn, topic_name):
        one = [{"PartitionIndex": 0, "BrokerIds": [node_id(conn)]}]
        (got,) = creation(conn, row(topic_name, NumPartitions=1, ReplicationFactor=1, Assignments=one))
        assert got.ErrorCode == Kerr.INVALID_REQUEST

    @pytest.mark.peer_differs("3.9.1 times out on some of these", peers=("kafka39",))
    @pytest.mark.parametrize("wrong", ["gap", "unknown broker", "doubled broker", "no broker", "uneven"])
    def test_a_wrong_manual_assignment_is_refused(self, conn, topic_name, wrong):
        me = node_id(conn)
        lists = {
            "gap": {0: [me], 2: [me]},
            "unknown broker": {0: [me + 77]},
            "doubled broker": {0: [me, me]},
            "no broker": {0: []},
            "uneven": {0: [me], 1: [me, me + 77]},
        }[wrong]
        assignments = [{"PartitionIndex": index, "BrokerIds": ids} for index, ids in lists.items()]
        (got,) = creation(conn, row(topic_name, NumPartitions=-1, ReplicationFactor=-1, Assignments=assignments))
        assert got.ErrorCode in (Kerr.INVALID_REPLICA_ASSIGNMENT, Kerr.INVALID_REPLICATION_FACTOR)
        assert not exists(conn, topic_name)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("no.such.config", "1"),
            ("retention.ms", "soon"),
            ("cleanup.policy", "burn"),
            ("min.insync.replicas", "0"),
            ("segment.bytes", "1"),
            ("compression.type", "rar"),
            ("message.timestamp.type", "WhenEver"),
            ("retention.ms", None),
        ],
    )
    def test_wrong_configs_are_refused(self, conn, topic_name, key, value):
        (got,) = creation(conn, row(topic_name, Configs=[{"Name": key, "Value": value}]))
        assert got.ErrorCode == Kerr.INVALID_CONFIG and got.ErrorMessage
        assert not exists(conn, topic_name)

    def test_validate_only_checks_and_makes_nothing(self, conn, topic, topic_name):
        name = f"{topic_name}-new"
        good, bad = creation(conn, row(name, NumPartitions=7), row(topic), validateOnly=True)
        assert (good.ErrorCode, bad.ErrorCode) == (Kerr.NONE, Kerr.TOPIC_ALREADY_EXISTS)
        assert not exists(conn, name)

    def test_one_bad_topic_does_not_spoil_the_others(self, conn, topic_name):
        got = creation(conn, row(f"{topic_name}-good"), row("bad/name"), row(f"{topic_name}-zero", NumPartitions=0))
        codes = {r.Name: r.ErrorCode for r in got}
        assert codes == {
            f"{topic_name}-good": Kerr.NONE,
            "bad/name": Kerr.INVALID_TOPIC_EXCEPTION,
            f"{topic_name}-zero": Kerr.INVALID_PARTITIONS,
        }
        conn.await_topic(f"{topic_name}-good", 1)

    def test_a_name_twice_in_one_request_is_an_error(self, conn, topic_name):
        got = creation(conn, row(topic_name), row(topic_name))
        assert {r.ErrorCode for r in got} == {Kerr.INVALID_REQUEST}
        assert not exists(conn, topic_name)

    def test_the_topic_is_usable_at_once(self, conn, topic_name):
        """Created, then the first metadata without waiting: a client of our own kind needs no retry."""
        creation(conn, row(topic_name, NumPartitions=50))
        conn.await_topic(topic_name, 50)


class TestDelete:
    def delete(self, conn, *names, version=5):
        return conn.call("DeleteTopics", version, TopicNames=list(names), TimeoutMs=30000).Responses

    def test_every_version_by_name(self, conn, topic_name):
        first, last = conn.announced()[20]
        for version in range(first, last + 1):
            make_again(conn, topic_name)
            fields = {"Topics": [{"Name": topic_name}]} if version >= 6 else {"TopicNames": [topic_name]}
            (got,) = conn.call("DeleteTopics", version, TimeoutMs=30000, **fields).Responses
            assert (got.ErrorCode, got.Name) == (0, topic_name)
            assert gone(conn, topic_name)

    def test_by_id(self, conn, topic):
        wanted = conn.topic_id(topic)
        (got,) = conn.call("DeleteTopics", 6, Topics=[{"Name": None, "TopicId": wanted}], TimeoutMs=30000).Responses
        assert (got.ErrorCode, got.Name, got.TopicId) == (0, topic, wanted)
        assert gone(conn, topic)

    def test_an_unknown_name_and_an_unknown_id(self, conn, topic_name):
        (got,) = self.delete(conn, topic_name)
        assert got.ErrorCode == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        (got,) = conn.call(
            "DeleteTopics", 6, Topics=[{"Name": None, "TopicId": uuid.uuid4()}], TimeoutMs=1000
        ).Responses
        assert got.ErrorCode == Kerr.UNKNOWN_TOPIC_ID

    def test_a_name_and_an_id_at_once_is_an_error(self, conn, topic):
        fields = [{"Name": topic, "TopicId": conn.topic_id(topic)}]
        (got,) = conn.call("DeleteTopics", 6, Topics=fields, TimeoutMs=1000).Responses
        assert got.ErrorCode == Kerr.INVALID_REQUEST
        assert exists(conn, topic)

    def test_one_unknown_topic_does_not_spoil_the_others(self, conn, topic, topic_name):
        got = self.delete(conn, topic, f"{topic_name}-none")
        assert {r.Name: r.ErrorCode for r in got} == {topic: 0, f"{topic_name}-none": Kerr.UNKNOWN_TOPIC_OR_PARTITION}
        assert gone(conn, topic)

    def test_a_topic_made_again_is_empty_and_has_a_new_id(self, conn, topic):
        assert conn.produce(topic, 0, build([Record(value=b"old")])).ErrorCode == 0
        before = conn.topic_id(topic)
        self.delete(conn, topic)
        assert gone(conn, topic)
        make_again(conn, topic)
        assert conn.topic_id(topic) != before
        assert conn.read_all(topic, 0) == []
        assert conn.produce(topic, 0, build([Record(value=b"new")])).BaseOffset == 0


class TestCreatePartitions:
    def grow(self, conn, name, count, assignments=None, version=None, **more):
        fields = [{"Name": name, "Count": count, "Assignments": assignments}]
        (got,) = conn.call("CreatePartitions", version, Topics=fields, TimeoutMs=30000, **more).Results
        return got.ErrorCode

    def test_every_version_grows(self, conn, topic):
        first, last = conn.announced()[37]
        for version in range(first, last + 1):
            assert self.grow(conn, topic, 2 + version, version=version) == Kerr.NONE
            conn.await_topic(topic, 2 + version)

    def test_records_and_id_stay(self, conn, topic):
        conn.produce(topic, 0, build([Record(value=b"stays")]))
        before = conn.topic_id(topic)
        assert self.grow(conn, topic, 3) == Kerr.NONE
        conn.await_topic(topic, 3)
        assert [r.value for r in conn.read_all(topic, 0)] == [b"stays"]
        assert conn.topic_id(topic) == before
        assert conn.produce(topic, 2, build([Record(value=b"new")])).BaseOffset == 0

    @pytest.mark.parametrize("count", [2, 1, 0, -1])
    def test_it_never_shrinks_nor_stays(self, conn, topic_name, count):
        conn.new_topic(topic_name, 2)
        assert self.grow(conn, topic_name, count) == Kerr.INVALID_PARTITIONS
        conn.await_topic(topic_name, 2)

    def test_validate_only_changes_nothing(self, conn, topic):
        assert self.grow(conn, topic, 4, ValidateOnly=True) == Kerr.NONE
        conn.await_topic(topic, 1)

    def test_an_unknown_topic(self, conn, topic_name):
        assert self.grow(conn, topic_name, 4) == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    def test_an_assignment_for_exactly_the_new_partitions(self, conn, topic):
        me = node_id(conn)
        assert self.grow(conn, topic, 3, [{"BrokerIds": [me]}]) == Kerr.INVALID_REPLICA_ASSIGNMENT
        assert (
            self.grow(conn, topic, 3, [{"BrokerIds": [me]}, {"BrokerIds": [me + 9]}]) == Kerr.INVALID_REPLICA_ASSIGNMENT
        )
        assert self.grow(conn, topic, 3, [{"BrokerIds": [me]}, {"BrokerIds": [me]}]) == Kerr.NONE
        conn.await_topic(topic, 3)


def test_the_admin_client_of_librdkafka(broker, conn, topic_name):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic_name, 2, 1, config={"retention.ms": "1000000"})])[topic_name].result(30)
    conn.await_topic(topic_name, 2)
    admin.create_partitions([NewPartitions(topic_name, 5)])[topic_name].result(30)
    conn.await_topic(topic_name, 5)
    assert len(admin.list_topics(topic_name, timeout=30).topics[topic_name].partitions) == 5
    admin.delete_topics([topic_name])[topic_name].result(30)
    assert gone(conn, topic_name)


def test_topics_are_there_after_a_restart(fresh_broker, topic_name):
    broker = fresh_broker(BROKER_CONFIG).start()
    with broker.connect() as c:
        c.new_topic(topic_name, 3)
        before = c.topic_id(topic_name), c.metadata().ClusterId
        c.new_topic(f"{topic_name}-deleted")
        self_gone = c.call("DeleteTopics", 5, TopicNames=[f"{topic_name}-deleted"], TimeoutMs=30000).Responses
        assert self_gone[0].ErrorCode == 0
    broker.stop()
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 3)
        assert (c.topic_id(topic_name), c.metadata().ClusterId) == before
        assert not exists(c, f"{topic_name}-deleted")
    broker.stop()


@pytest.mark.barnabas_only
def test_a_deletion_that_the_end_of_the_broker_cut_off_is_finished_at_the_next_start(fresh_broker, topic_name):
    broker = fresh_broker().start()
    with broker.connect() as c:
        c.new_topic(topic_name, 3)
        assert c.produce(topic_name, 1, build([Record(value=b"old")])).ErrorCode == 0
    broker.stop()
    _mark_for_deletion(broker, topic_name)
    broker.start()
    with broker.connect() as c:
        gone(c, topic_name)
        wait_until(lambda: not list(broker.log_dir.glob(f"{topic_name}-[0-9]")), 30, "its directories are renamed")
        wait_until(lambda: _created_again(c, topic_name), 30, "the name is free again")
        c.await_topic(topic_name, 3)
        assert c.produce(topic_name, 1, build([Record(value=b"new")])).BaseOffset == 0
    broker.stop()


def _created_again(conn, name):
    return conn.create_topic(name, 3).ErrorCode == 0


def _mark_for_deletion(broker, name):
    """What DeleteTopics writes first, before brokers remove their replicas."""
    with contextlib.closing(sqlite3.connect(broker.log_dir / "barnabas-coord.db")) as db, db:
        db.execute(
            "INSERT INTO node VALUES ('/admin/delete_topics', ?, 900000, 900000, 900000, 1, 1, 0, 0, 0, 0, NULL)",
            (name,),
        )
        db.execute("UPDATE node SET children = children + 1 WHERE parent = '/admin' AND name = 'delete_topics'")
        db.execute("UPDATE meta SET value = 900000 WHERE key = 'zxid'")
