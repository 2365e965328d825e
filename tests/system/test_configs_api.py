"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, DescribeLogDirs."""

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from batches import Record, build
from brokers import wait_until
from rawkafka import Kerr

BROKER_CONFIG = {"log.retention.ms": "7654321", "message.max.bytes": "1000012"}

TOPIC, BROKER = 2, 4  # resource types
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5  # sources
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(conn, kind, name, keys=None, version=None, synonyms=False, **more):
    """Name -> row of one resource's configs."""
    asked = [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}]
    (got,) = conn.call("DescribeConfigs", version, Resources=asked, IncludeSynonyms=synonyms, **more).Results
    assert (got.ErrorCode, got.ResourceType, got.ResourceName) == (0, kind, name), got.ErrorMessage
    return {row.Name: row for row in got.Configs}


def alter(conn, kind, name, *operations, version=None, **more):
    """Operations: (key, operation, value). Returns (error code, message)."""
    rows = [{"Name": key, "ConfigOperation": op, "Value": value} for key, op, value in operations]
    asked = [{"ResourceType": kind, "ResourceName": name, "Configs": rows}]
    (got,) = conn.call("IncrementalAlterConfigs", version, Resources=asked, **more).Responses
    return got.ErrorCode, got.ErrorMessage


def replace(conn, kind, name, configs, version=None, **more):
    """The old AlterConfigs: what is not named goes back to its default."""
    rows = [{"Name": key, "Value": value} for key, value in configs.items()]
    asked = [{"ResourceType": kind, "ResourceName": name, "Configs": rows}]
    (got,) = conn.call("AlterConfigs", version, Resources=asked, **more).Responses
    return got.ErrorCode


def await_value(conn, kind, name, key, value):
    wait_until(lambda: describe(conn, kind, name, [key])[key].Value == value, 30, f"{key}={value}")


@pytest.fixture
def me(conn):
    return str(conn.metadata().Brokers[0].NodeId)


class TestDescribe:
    @pytest.mark.parametrize("version", range(1, 5))
    def test_every_version(self, conn, topic, version):
        rows = describe(conn, TOPIC, topic, version=version)
        assert rows["cleanup.policy"].Value == "delete" and rows["cleanup.policy"].ConfigSource == DEFAULT
        assert not rows["cleanup.policy"].ReadOnly and not rows["cleanup.policy"].IsSensitive
        if version >= 3:
            types = {"cleanup.policy": LIST, "retention.ms": LONG, "segment.bytes": INT, "preallocate": BOOLEAN}
            assert {key: rows[key].ConfigType for key in types} == types
            assert rows["min.cleanable.dirty.ratio"].ConfigType == DOUBLE

    def test_all_topic_configs_of_3_9_are_there(self, conn, topic):
        expected = {
            "cleanup.policy", "compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages",
            "flush.ms", "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes",
            "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
            "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate",
            "retention.bytes", "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms",
            "segment.ms", "unclean.leader.election.enable",
        }  # fmt: skip
        assert expected <= set(describe(conn, TOPIC, topic))

    def test_only_the_keys_asked_for_and_unknown_ones_not_at_all(self, conn, topic):
        assert set(describe(conn, TOPIC, topic, ["retention.ms", "flush.ms", "no.such.key"])) == {
            "retention.ms",
            "flush.ms",
        }

    def test_a_topic_value_from_the_broker_s_configuration(self, conn, topic):
        row = describe(conn, TOPIC, topic, ["retention.ms"], synonyms=True)["retention.ms"]
        assert (row.Value, row.ConfigSource) == ("7654321", STATIC_BROKER)
        first = row.Synonyms[0]
        assert (first.Name, first.Value, first.Source) == ("log.retention.ms", "7654321", STATIC_BROKER)

    def test_synonyms_name_every_place_in_order_of_precedence(self, conn, topic):
        assert alter(conn, TOPIC, topic, ("max.message.bytes", SET, "5000"))[0] == 0
        await_value(conn, TOPIC, topic, "max.message.bytes", "5000")
        row = describe(conn, TOPIC, topic, ["max.message.bytes"], synonyms=True)["max.message.bytes"]
        assert [(s.Name, s.Value, s.Source) for s in row.Synonyms] == [
            ("max.message.bytes", "5000", DYNAMIC_TOPIC),
            ("message.max.bytes", "1000012", STATIC_BROKER),
            ("message.max.bytes", "1048588", DEFAULT),
        ]

    def test_synonyms_and_documentation_only_when_asked_for(self, conn, topic):
        row = describe(conn, TOPIC, topic, ["retention.ms"])["retention.ms"]
        assert row.Synonyms == [] and row.Documentation is None
        row = describe(conn, TOPIC, topic, ["retention.ms"], IncludeDocumentation=True)["retention.ms"]
        assert len(row.Documentation) > 20

    def test_a_broker(self, conn, me):
        rows = describe(conn, BROKER, me)
        assert (rows["log.retention.ms"].Value, rows["log.retention.ms"].ConfigSource) == ("7654321", STATIC_BROKER)
        assert rows["message.max.bytes"].Value == "1000012"
        assert rows["num.partitions"].Value == "1"
        assert rows["log.dirs"].ReadOnly and not rows["log.retention.ms"].ReadOnly
        assert {"listeners", "num.io.threads", "log.segment.bytes", "socket.request.max.bytes"} <= set(rows)

    def test_passwords_are_never_told(self, conn, me):
        row = describe(conn, BROKER, me, ["ssl.keystore.password"])["ssl.keystore.password"]
        assert (row.Value, row.IsSensitive, row.ConfigType) == (None, True, PASSWORD)

    def test_the_defaults_of_all_brokers_are_the_dynamic_ones_only(self, conn):
        assert {row.ConfigSource for row in describe(conn, BROKER, "").values()} <= {DYNAMIC_DEFAULT}

    def test_an_unknown_topic_and_an_unknown_broker(self, conn, topic_name, me):
        asked = [{"ResourceType": TOPIC, "ResourceName": topic_name, "ConfigurationKeys": None}]
        (got,) = conn.call("DescribeConfigs", 4, Resources=asked).Results
        assert (got.ErrorCode, got.Configs) == (Kerr.UNKNOWN_TOPIC_OR_PARTITION, [])
        for name in (str(int(me) + 50), "one"):
            asked = [{"ResourceType": BROKER, "ResourceName": name, "ConfigurationKeys": None}]
            (got,) = conn.call("DescribeConfigs", 4, Resources=asked).Results
            assert got.ErrorCode == Kerr.INVALID_REQUEST


class TestIncremental:
    @pytest.mark.parametrize("version", range(2))
    def test_set_and_delete(self, conn, topic, version):
        assert alter(conn, TOPIC, topic, ("retention.ms", SET, "5000"), version=version)[0] == 0
        await_value(conn, TOPIC, topic, "retention.ms", "5000")
        assert describe(conn, TOPIC, topic, ["retention.ms"])["retention.ms"].ConfigSource == DYNAMIC_TOPIC
        assert alter(conn, TOPIC, topic, ("retention.ms", DELETE, None), version=version)[0] == 0
        await_value(conn, TOPIC, topic, "retention.ms", "7654321")

    def test_what_is_not_named_stays(self, conn, topic):
        alter(conn, TOPIC, topic, ("retention.ms", SET, "5000"), ("flush.ms", SET, "10"))
        alter(conn, TOPIC, topic, ("flush.ms", SET, "20"))
        await_value(conn, TOPIC, topic, "flush.ms", "20")
        assert describe(conn, TOPIC, topic, ["retention.ms"])["retention.ms"].Value == "5000"

    def test_append_and_subtract_on_lists(self, conn, topic):
        assert alter(conn, TOPIC, topic, ("cleanup.policy", APPEND, "compact"))[0] == 0
        await_value(conn, TOPIC, topic, "cleanup.policy", "delete,compact")
        assert alter(conn, TOPIC, topic, ("cleanup.policy", APPEND, "compact"))[0] == 0
        assert alter(conn, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))[0] == 0
        await_value(conn, TOPIC, topic, "cleanup.policy", "compact")

    @pytest.mark.parametrize(
        ("key", "operation", "value", "code"),
        [
            ("retention.ms", APPEND, "1", Kerr.INVALID_CONFIG),
            ("retention.ms", SET, "soon", Kerr.INVALID_CONFIG),
            ("no.such.key", SET, "1", Kerr.INVALID_CONFIG),
            ("cleanup.policy", SET, "burn", Kerr.INVALID_CONFIG),
            ("min.insync.replicas", SET, "0", Kerr.INVALID_CONFIG),
            ("retention.ms", SET, None, Kerr.INVALID_REQUEST),
        ],
    )
    def test_what_cannot_be_is_refused_and_changes_nothing(self, conn, topic, key, operation, value, code):
        got, message = alter(conn, TOPIC, topic, ("flush.ms", SET, "33"), (key, operation, value))
        assert got == code and message
        assert describe(conn, TOPIC, topic, ["flush.ms"])["flush.ms"].ConfigSource == DEFAULT

    def test_an_unknown_operation_is_refused(self, conn, topic):
        assert alter(conn, TOPIC, topic, ("flush.ms", 9, "1"))[0] != Kerr.NONE

    def test_a_key_twice_is_refused(self, conn, topic):
        got, _ = alter(conn, TOPIC, topic, ("flush.ms", SET, "1"), ("flush.ms", DELETE, None))
        assert got == Kerr.INVALID_REQUEST

    def test_validate_only_changes_nothing(self, conn, topic):
        assert alter(conn, TOPIC, topic, ("flush.ms", SET, "33"), ValidateOnly=True)[0] == 0
        assert alter(conn, TOPIC, topic, ("flush.ms", SET, "x"), ValidateOnly=True)[0] == Kerr.INVALID_CONFIG
        assert describe(conn, TOPIC, topic, ["flush.ms"])["flush.ms"].ConfigSource == DEFAULT

    def test_an_unknown_topic(self, conn, topic_name):
        assert alter(conn, TOPIC, topic_name, ("flush.ms", SET, "33"))[0] == Kerr.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_change_has_its_effect(self, conn, topic):
        large = build([Record(value=b"x" * 3000)])
        alter(conn, TOPIC, topic, ("max.message.bytes", SET, "1000"))
        wait_until(lambda: conn.produce(topic, 0, large).ErrorCode == Kerr.MESSAGE_TOO_LARGE, 30, "the limit holds")
        alter(conn, TOPIC, topic, ("max.message.bytes", DELETE, None))
        wait_until(lambda: conn.produce(topic, 0, large).ErrorCode == 0, 30, "the limit is gone")

    def test_a_broker_s_own_value_goes_before_that_of_all_brokers(self, conn, me):
        key = "log.cleaner.backoff.ms"
        try:
            assert alter(conn, BROKER, "", (key, SET, "16000"))[0] == 0
            await_value(conn, BROKER, me, key, "16000")
            assert describe(conn, BROKER, me, [key])[key].ConfigSource == DYNAMIC_DEFAULT
            assert describe(conn, BROKER, "")[key].Value == "16000"
            assert alter(conn, BROKER, me, (key, SET, "17000"))[0] == 0
            await_value(conn, BROKER, me, key, "17000")
            row = describe(conn, BROKER, me, [key], synonyms=True)[key]
            assert [(s.Value, s.Source) for s in row.Synonyms] == [
                ("17000", DYNAMIC_BROKER),
                ("16000", DYNAMIC_DEFAULT),
                ("15000", DEFAULT),
            ]
        finally:
            alter(conn, BROKER, me, (key, DELETE, None))
            alter(conn, BROKER, "", (key, DELETE, None))
        await_value(conn, BROKER, me, key, "15000")

    def test_a_dynamic_broker_value_is_the_default_of_topics(self, conn, topic):
        try:
            assert alter(conn, BROKER, "", ("log.flush.interval.ms", SET, "123456"))[0] == 0
            await_value(conn, TOPIC, topic, "flush.ms", "123456")
            assert describe(conn, TOPIC, topic, ["flush.ms"])["flush.ms"].ConfigSource == DYNAMIC_DEFAULT
        finally:
            alter(conn, BROKER, "", ("log.flush.interval.ms", DELETE, None))

    def test_read_only_broker_keys_are_refused(self, conn, me):
        code, message = alter(conn, BROKER, me, ("log.dirs", SET, "/tmp/other"))
        assert code in (Kerr.INVALID_REQUEST, Kerr.INVALID_CONFIG) and message
        assert describe(conn, BROKER, me, ["log.dirs"])["log.dirs"].ConfigSource == STATIC_BROKER


class TestReplace:
    @pytest.mark.parametrize("version", range(3))
    def test_what_is_not_named_goes_back_to_its_default(self, conn, topic, version):
        assert replace(conn, TOPIC, topic, {"retention.ms": "5000", "flush.ms": "10"}, version=version) == 0
        await_value(conn, TOPIC, topic, "flush.ms", "10")
        assert replace(conn, TOPIC, topic, {"retention.ms": "6000"}, version=version) == 0
        await_value(conn, TOPIC, topic, "retention.ms", "6000")
        assert describe(conn, TOPIC, topic, ["flush.ms"])["flush.ms"].ConfigSource == DEFAULT

    def test_validate_only_and_wrong_values(self, conn, topic):
        assert replace(conn, TOPIC, topic, {"flush.ms": "10"}, ValidateOnly=True) == 0
        assert replace(conn, TOPIC, topic, {"flush.ms": "ten"}) == Kerr.INVALID_CONFIG
        assert describe(conn, TOPIC, topic, ["flush.ms"])["flush.ms"].ConfigSource == DEFAULT


def test_dynamic_configs_survive_a_restart(fresh_broker, topic_name):
    broker = fresh_broker().start()
    with broker.connect() as c:
        me = str(c.metadata().Brokers[0].NodeId)
        c.new_topic(topic_name, configs={"retention.ms": "4444"})
        alter(c, TOPIC, topic_name, ("flush.ms", SET, "10"))
        alter(c, BROKER, me, ("log.cleaner.backoff.ms", SET, "17000"))
        await_value(c, TOPIC, topic_name, "flush.ms", "10")
        await_value(c, BROKER, me, "log.cleaner.backoff.ms", "17000")
    broker.stop()
    broker.start()
    with broker.connect() as c:
        c.await_topic(topic_name, 1)
        await_value(c, TOPIC, topic_name, "flush.ms", "10")
        await_value(c, TOPIC, topic_name, "retention.ms", "4444")
        await_value(c, BROKER, me, "log.cleaner.backoff.ms", "17000")
    broker.stop()


class TestLogDirs:
    @pytest.mark.parametrize("version", range(1, 5))
    def test_every_version_tells_directories_and_sizes(self, conn, broker, topic, version):
        data = build([Record(value=b"x" * 1000)])
        conn.produce(topic, 0, data)
        answer = conn.call("DescribeLogDirs", version, Topics=[{"Topic": topic, "Partitions": [0]}])
        assert answer.get("ErrorCode", 0) == 0
        (got,) = answer.Results
        assert (got.ErrorCode, got.LogDir) == (0, str(broker.log_dir))
        assert [t.Name for t in got.Topics] == [topic]
        (part,) = got.Topics[0].Partitions
        assert (part.PartitionIndex, part.PartitionSize, part.OffsetLag, part.IsFutureKey) == (0, len(data), 0, False)
        if version >= 4:
            assert got.TotalBytes > got.UsableBytes > 0

    def test_null_means_all_and_an_empty_list_none(self, conn, topic):
        def topics(wanted):
            return {t.Name for result in conn.call("DescribeLogDirs", 4, Topics=wanted).Results for t in result.Topics}

        assert topic in topics(None)
        assert topics([]) == set()

    def test_several_directories(self, fresh_broker, topic_name, tmp_path):
        dirs = [str(tmp_path / name) for name in "abc"]
        broker = fresh_broker({"log.dirs": ",".join(dirs)})
        if not broker.is_barnabas():
            pytest.skip("the peers' set-up formats one directory")
        broker.start()
        with broker.connect() as c:
            c.new_topic(topic_name, 6)
            results = c.call("DescribeLogDirs", 4, Topics=None).Results
            assert sorted(r.LogDir for r in results) == dirs
            placed = {r.LogDir: sum(len(t.Partitions) for t in r.Topics if t.Name == topic_name) for r in results}
            assert placed == {d: 2 for d in dirs}
        broker.stop()


def test_the_admin_client_of_librdkafka(broker, conn, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("retention.ms", "777777", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    await_value(conn, TOPIC, topic, "retention.ms", "777777")
    asked = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([asked])[asked].result(30)["retention.ms"].value == "777777"
    cluster = admin.describe_cluster().result(30)
    assert [(n.host, n.port) for n in cluster.nodes] == [broker.address]
