"""Groups in a directory that Apache Kafka 3.9.1 left, and groups of ours read by it."""

import confluent_kafka
import pytest

import kafka39
from brokers import Broker, wait_until
from groups import Member, assignment, await_loaded, commit, committed, describe, fetch, settle, subscription
from rawkafka import Kerr

pytestmark = pytest.mark.barnabas_only

# The fixtures are older than any retention.  The client that wrote their metadata sent a C string with its end.
FOR_EVER = {"offsets.retention.minutes": "100000000", "group.initial.rebalance.delay.ms": "0"}
READERS = {("codec-none", 0): (7, "meta-0\0"), ("codec-none", 1): (17, "meta-1\0"), ("codec-none", 2): (27, "meta-2\0")}
READERS_GZIP = {("codec-gzip", 0): 42}


@pytest.fixture
def started():
    """Keeps brokers; what still runs at the end is ended."""
    made = []

    def keep(one):
        made.append(one)
        return one

    yield keep
    for one in made:
        one.close()


def ours_on(started, tmp_path, log_dir):
    one = started(Broker(tmp_path / "ours", {"log.dirs": log_dir, "log.cleaner.enable": "false", **FOR_EVER}))
    one.log_dir = log_dir
    return one


def kafka_on(started, tmp_path, log_dir, broker_id):
    kafka = started(kafka39.KafkaHere(tmp_path / "kafka", log_dir, broker_id, FOR_EVER))
    kafka.load_fixture_znodes()
    return kafka


def await_topics(broker):
    with broker.connect() as c:
        c.await_topic("codec-none", 3)
        c.await_topic("codec-gzip", 2)


def assert_readers(conn):
    """The fixtures' group as its cluster left it."""
    await_loaded(conn, "readers")
    found = fetch(conn, "readers")
    assert {where: (row.CommittedOffset, row.Metadata) for where, row in found.items() if where in READERS} == READERS
    offsets = {where: row.CommittedOffset for where, row in found.items()}
    assert offsets == {where: offset for where, (offset, _) in READERS.items()} | READERS_GZIP
    assert describe(conn, "readers").GroupState == "Empty"
    assert "readers" in [row.GroupId for row in conn.call("ListGroups").Groups]


def first_offsets(bootstrap, group, topic, partitions):
    """Where a real consumer of the group begins, by partition, and what it commits when it closes."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "session.timeout.ms": 30000,
        }
    )
    first = {}
    try:
        consumer.subscribe([topic])

        def read():
            message = consumer.poll(1.0)
            if message is not None:
                assert not message.error(), message.error()
                first.setdefault(message.partition(), message.offset())
            return len(first) == partitions

        wait_until(read, 60, "each partition has given a record")
        places = [confluent_kafka.TopicPartition(topic, index, offset + 1) for index, offset in first.items()]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()
    return first


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_the_fixtures_group_is_there_and_goes_on(started, tmp_path, which):
    log_dir, _ = kafka39.unpack(which, tmp_path)
    broker = ours_on(started, tmp_path, log_dir).start()
    await_topics(broker)
    with broker.connect() as c:
        assert_readers(c)
    assert first_offsets(broker.bootstrap, "readers", "codec-none", 3).keys() == {0, 1, 2}
    wanted = {("codec-none", 0): 8, ("codec-none", 1): 18, ("codec-none", 2): 28} | READERS_GZIP
    for end in ("kill", "stop"):
        with broker.connect() as c:
            await_loaded(c, "readers")
            assert committed(c, "readers") == wanted
        getattr(broker, end)()
        broker.start()
    with broker.connect() as c:
        await_loaded(c, "readers")
        assert committed(c, "readers") == wanted
    broker.stop()


@pytest.fixture
def log_dir(tmp_path):
    return kafka39.unpack("clean", tmp_path)


class Written:
    """Groups of every kind, written through `broker`; and how they must be read anywhere."""

    def __init__(self, broker, prefix):
        self.names = {kind: f"{prefix}-{kind}" for kind in ("simple", "members", "connect", "left", "deleted")}
        here, there, meta = ("codec-none", 0), ("codec-gzip", 0), ("codec-none", 2)
        with broker.connect() as c:
            for name in self.names.values():
                await_loaded(c, name)
            rows = {here: 4, meta: {"CommittedOffset": 5, "CommittedMetadata": "ünïcode", "CommittedLeaderEpoch": 3}}
            for name in (self.names["simple"], self.names["deleted"]):
                commit(c, name, rows | {there: 6})
            topics = [{"Name": there[0], "Partitions": [{"PartitionIndex": there[1]}]}]
            assert c.call("OffsetDelete", GroupId=self.names["simple"], Topics=topics).ErrorCode == Kerr.NONE
            assert c.call("DeleteGroups", GroupsNames=[self.names["deleted"]]).Results[0].ErrorCode == Kerr.NONE
        protocols = [("range", subscription("codec-none")), ("sticky", subscription("codec-none"))]
        self.members = [
            Member(broker, self.names["members"], protocols=protocols, client_id="dynamic one", session_ms=300000),
            Member(broker, self.names["members"], protocols=protocols, instance=f"{prefix}-i", session_ms=300000),
        ]
        settle(*self.members, assign=lambda one: assignment({"codec-none": [0, 1] if "-i-" in one else [2]}))
        connect = Member(broker, self.names["connect"], protocol_type="connect", protocols=[("sessioned", b"\0\1url")])
        left = Member(broker, self.names["left"])
        settle(connect, assign=lambda _: b"tasks")
        settle(left)
        assert self.members[1].commit({here: 9}) == {here: 0}
        assert left.commit({here: 2}) == {here: 0}
        assert left.leave() == Kerr.NONE
        self.before = self.seen(broker)
        for one in (*self.members, connect, left):
            one.close()

    def seen(self, broker):
        """group -> description and offsets."""
        found = {}
        with broker.connect() as c:
            for kind, name in self.names.items():
                await_loaded(c, name)
                row = describe(c, name)
                row.Members.sort(key=lambda one: one.MemberId)
                offsets = fetch(c, name)
                assert not any(one.ErrorCode for one in offsets.values())
                found[kind] = row, {
                    where: (one.CommittedOffset, one.CommittedLeaderEpoch, one.Metadata) for where, one in offsets.items()
                }
        return found

    def check(self):
        """What was to be written, whoever tells."""
        assert self.before["simple"][1] == {("codec-none", 0): (4, -1, ""), ("codec-none", 2): (5, 3, "ünïcode")}
        assert self.before["members"][1] == {("codec-none", 0): (9, -1, "")}
        assert self.before["left"][1] == {("codec-none", 0): (2, -1, "")}
        assert self.before["deleted"][1] == self.before["connect"][1] == {}
        states = {kind: row.GroupState for kind, (row, _) in self.before.items()}
        assert states == {
            "simple": "Empty",
            "members": "Stable",
            "connect": "Stable",
            "left": "Empty",
            "deleted": "Dead",
        }
        assert [len(row.Members) for row, _ in self.before.values()] == [0, 2, 1, 0, 0]

    def go_on(self, broker):
        """The members find themselves where they were, commit, and have a rebalance."""
        lives = []
        for old in self.members:
            new = Member(broker, old.group, instance=old.instance, protocols=old.protocols, session_ms=300000)
            new.id, new.generation, new.joined = old.id, old.generation, old.joined
            assert new.heartbeat() == Kerr.NONE
            assert new.sync().Assignment == old.assignment
            lives.append(new)
        where = "codec-none", 1
        assert lives[0].commit({where: 33}) == {where: 0}
        generation = lives[0].generation
        settle(*lives)
        assert {one.generation for one in lives} == {generation + 1}
        with broker.connect() as c:
            assert committed(c, lives[0].group) == {("codec-none", 0): 9, where: 33}
        for one in lives:
            assert one.leave() == Kerr.NONE
            one.close()


def test_kafka_reads_what_ours_wrote(started, tmp_path, log_dir):
    log_dir, broker_id = log_dir
    broker = ours_on(started, tmp_path, log_dir).start()
    await_topics(broker)
    first_offsets(broker.bootstrap, "readers", "codec-none", 3)
    written = Written(broker, "ours")
    written.check()
    broker.stop()

    kafka = kafka_on(started, tmp_path, log_dir, broker_id)
    kafka.start()
    await_topics(kafka)
    assert written.seen(kafka) == written.before
    with kafka.connect() as c:
        await_loaded(c, "readers")
        wanted = {("codec-none", 0): 8, ("codec-none", 1): 18, ("codec-none", 2): 28} | READERS_GZIP
        assert committed(c, "readers") == wanted
    assert kafka.complaints() == []
    assert "ERROR" not in kafka.said()
    written.go_on(kafka)
    assert first_offsets(kafka.bootstrap, "readers", "codec-none", 3) == {0: 8, 1: 18, 2: 28}
    kafka.stop()


def test_ours_reads_what_kafka_wrote_and_kafka_again(started, tmp_path, log_dir):
    log_dir, broker_id = log_dir
    kafka = kafka_on(started, tmp_path, log_dir, broker_id)
    kafka.start()
    await_topics(kafka)
    with kafka.connect() as c:
        assert_readers(c)
    theirs = Written(kafka, "theirs")
    theirs.check()
    kafka.stop()

    broker = ours_on(started, tmp_path, log_dir).start()
    await_topics(broker)
    with broker.connect() as c:
        assert_readers(c)
    assert theirs.seen(broker) == theirs.before
    theirs.go_on(broker)
    ours = Written(broker, "ours")
    broker.kill()

    kafka.start()
    await_topics(kafka)
    assert ours.seen(kafka) == ours.before
    with kafka.connect() as c:
        assert committed(c, "theirs-members") == {("codec-none", 0): 9, ("codec-none", 1): 33}
        assert describe(c, "theirs-members").GroupState == "Empty"
    ours.go_on(kafka)
    kafka.stop()
