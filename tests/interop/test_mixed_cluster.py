"""Barnabas and Apache Kafka 3.9.1 in one cluster: brokers are replaced one at a time under a checked load, there and
back, and each kind is controller, leader, follower and group coordinator along the way."""

import json
import re
import subprocess

import confluent_kafka
import programs
import pytest

import batches
from brokers import wait_until
from cluster import Cluster
from committer import Committer
from load import Load

pytestmark = [pytest.mark.timeout(900), pytest.mark.barnabas_only]
CONFIG = {"replica.lag.time.max.ms": "4000", "num.io.threads": "2"}
WHOLE_SECONDS = 90  # a JVM starts in that time
OFFSETS = "__consumer_offsets"
TIMED_OUT = 7
OTHER = {"barnabas": "kafka39", "kafka39": "barnabas"}


def make_controller(cluster, broker):
    """Gives it the office: it is the only one to run for it.  Kafka's controller must have nothing to do then: one that
    is deposed in the midst of a change forgets to clear its messages, and does nothing right from then on (3.9.1)."""
    if cluster.controller() is broker:
        return
    others = [b for b in cluster if b is not broker]
    for other in others:
        other.pause()
    try:
        with cluster.zookeepers.client() as zk:
            zk.delete("/controller")
        wait_until(lambda: cluster.controller() is broker, 60, f"broker {broker.number} is the controller")
    finally:
        for other in others:
            other.resume()
    with broker.connect() as c:  # its node is there before it has read the cluster's state
        ask = lambda: c.call("ListPartitionReassignments", 0, TimeoutMs=30000, Topics=None).ErrorCode == 0  # noqa: E731
        wait_until(ask, 60, f"broker {broker.number} works as the controller")


def lead(cluster, broker, topics, tool):
    """Every partition of the topics has this broker first, and is led by it."""
    states = cluster.states()
    rows = []
    for (topic, partition), (_, replicas, _) in states.items():
        if topic in topics:
            others = sorted(set(replicas) - {broker.number})
            rows.append({"topic": topic, "partition": partition, "replicas": [broker.number, *others]})
    plan = cluster.directory / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    tool(cluster, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", plan, "--execute")
    wanted = {(row["topic"], row["partition"]): row["replicas"] for row in rows}
    wait_until(
        lambda: all(cluster.states()[key][1] == replicas for key, replicas in wanted.items()), 60, "it is reassigned"
    )
    tool(cluster, "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    wait_until(
        lambda: all(cluster.states()[key][0] == broker.number for key in wanted), 60, f"{broker.number} leads"
    )


@pytest.fixture
def tool():
    java = programs.java_tools("3.9.1")

    def run(where, name, *arguments, **more):
        return java.run(f"org.apache.kafka.tools.{name}", "--bootstrap-server", where.bootstrap, *arguments, **more)

    return run


class Roles:
    """Which kind has been seen in which role."""

    def __init__(self, topic):
        self.topic, self.seen = topic, set()

    def note(self, cluster):
        self.seen.add((cluster.controller().kind, "controller"))
        for (topic, _), (leader, replicas, _) in cluster.states().items():
            if leader < 0 or topic not in (self.topic, OFFSETS):
                continue
            self.seen.add((cluster[leader].kind, "leader" if topic == self.topic else "coordinator"))
            if topic == self.topic:
                self.seen |= {(cluster[r].kind, "follower") for r in replicas if r != leader}

    def check(self):
        kinds, roles = ("barnabas", "kafka39"), ("controller", "leader", "follower", "coordinator")
        missing = {(kind, role) for kind in kinds for role in roles} - self.seen
        assert not missing, f"never seen: {sorted(missing)}"


def replace(cluster, load, broker, kind, empty):
    """The broker's id goes to one of the other kind, while the load goes on."""
    load.wait_progress(100)
    broker.stop()
    load.wait_progress(50)
    if empty:
        broker.forget_data()
    broker.become(kind).start()
    cluster.wait_whole(WHOLE_SECONDS)


# Whose directories are lost: over both ways each kind starts on the other's directory, and on none.
EMPTY = {"barnabas": {2}, "kafka39": {1, 3}}


def test_brokers_are_replaced_one_at_a_time_and_back_with_and_without_their_directories(tmp_path, tool):
    with Cluster(tmp_path, 3, config=CONFIG, kinds=["kafka39"] * 3) as cluster:
        cluster.start()
        load = Load(cluster, "moving", java=1).start()
        group = Committer(cluster, "moving", "steady")
        roles = Roles("moving")
        for kind in ("barnabas", "kafka39"):
            for broker in cluster:
                replace(cluster, load, broker, kind, broker.number in EMPTY[kind])
                make_controller(cluster, broker)
                lead(cluster, broker, ("moving", OFFSETS), tool)
                load.wait_progress(100)
                cluster.wait_whole(WHOLE_SECONDS)
                roles.note(cluster)
        load.stop()
        group.stop()
        load.check()
        roles.check()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two brokers of ours and one of Kafka's, each in a rack of its own."""
    kinds = ["barnabas", "barnabas", "kafka39"]
    config = CONFIG | {
        "zookeeper.session.timeout.ms": "8000",
        "replica.lag.time.max.ms": "2000",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "log.cleaner.backoff.ms": "100",
    }
    with Cluster(tmp_path_factory.mktemp("mixed"), 3, config=config, kinds=kinds) as one:
        for broker in one:
            broker.extra = {"broker.rack": f"rack{broker.number}"}
        yield one.start()


BROKER = {"barnabas": 1, "kafka39": 3}  # one of each kind in `mixed`
SECOND = 2  # another one of ours
CASES = [(controller, asked) for controller in OTHER for asked in OTHER]


@pytest.fixture(params=CASES, ids=[f"{c}-controls-{a}-is-asked" for c, a in CASES])
def asked(request, mixed):
    """A broker of one kind to ask, while one of some kind is the controller."""
    controller, kind = request.param
    make_controller(mixed, mixed[BROKER[controller]])
    return mixed[BROKER[kind]]


@pytest.fixture(params=list(OTHER), ids=[f"{kind}-controls" for kind in OTHER])
def controller(request, mixed):
    broker = mixed[BROKER[request.param]]
    make_controller(mixed, broker)
    return broker


@pytest.fixture
def topic(topic_name):
    """A name that has none of what metrics cannot tell apart."""
    return topic_name.replace(".", "-").replace("_", "-")[-100:]


def make_topic(cluster, topic, assignment, config=None):
    """`assignment`: brokers of each partition; the first one leads."""
    rows = [{"PartitionIndex": p, "BrokerIds": ids} for p, ids in enumerate(assignment)]
    settings = [{"Name": name, "Value": value} for name, value in (config or {}).items()]
    row = {"Name": topic, "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": rows, "Configs": settings}
    with cluster.controller().connect() as c:
        answer = c.call("CreateTopics", 5, Topics=[row], timeoutMs=30000, validateOnly=False)
    assert answer.Topics[0].ErrorCode == 0, answer
    cluster.wait_whole()


def ask_to_delete(cluster, topic):
    with cluster.controller().connect() as c:
        answer = c.call("DeleteTopics", 5, TopicNames=[topic], TimeoutMs=1000)
    assert answer.Responses[0].ErrorCode in (0, TIMED_OUT), answer


def delete_topic(cluster, topic):
    ask_to_delete(cluster, topic)
    wait_until(lambda: cluster.znode(f"/brokers/topics/{topic}") is None, 60, f"{topic} is deleted")


def write(cluster, topic, count, partition=0):
    batch = batches.build([batches.Record(value=b"v")] * count)
    with cluster[cluster.states()[topic, partition][0]].connect() as c:
        assert c.produce(topic, partition, batch, acks=-1).ErrorCode == 0


def start_reassignment(cluster, topic, replicas):
    """Of partition 0, by the controller."""
    row = {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Replicas": replicas}]}
    with cluster.controller().connect() as c:
        answer = c.call("AlterPartitionReassignments", 0, TimeoutMs=30000, Topics=[row])
    assert answer.Responses[0].Partitions[0].ErrorCode == 0, answer


def is_reassigned_to(cluster, topic, replicas):
    node = cluster.znode(f"/brokers/topics/{topic}")
    return node["partitions"]["0"] == replicas and not node["adding_replicas"] and not node["removing_replicas"]


# Kafka's tools


def test_topics_are_made_grown_described_and_deleted(mixed, asked, tool, topic):
    tool(asked, "TopicCommand", "--create", "--topic", topic, "--partitions", 6, "--replication-factor", 3)
    mixed.wait_whole()
    tool(asked, "TopicCommand", "--alter", "--topic", topic, "--partitions", 9)
    mixed.wait_whole()
    text = tool(asked, "TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 9" in text and "ReplicationFactor: 3" in text
    tool(asked, "TopicCommand", "--delete", "--topic", topic)
    wait_until(lambda: not any(t == topic for t, _ in mixed.states()), 60, "the topic is gone")
    for broker in mixed:
        wait_until(lambda: not list(broker.log_dir.glob(f"{topic}-*")), 60, "its logs are gone")  # noqa: B023


@pytest.fixture
def configs():
    java = programs.java_tools("3.9.1")

    def run(where, *arguments):
        return java.run("kafka.admin.ConfigCommand", "--bootstrap-server", where.bootstrap, *arguments)

    return run


def test_settings_of_topics_brokers_and_all_brokers_are_changed_and_seen_by_both_kinds(mixed, asked, configs, topic):
    make_topic(mixed, topic, [[1, 2, 3]])
    entities = [
        (("--entity-type", "topics", "--entity-name", topic), "retention.ms", "1234567"),
        (("--entity-type", "brokers", "--entity-default"), "log.retention.ms", "7654321"),
        *((("--entity-type", "brokers", "--entity-name", b.number), "log.retention.ms", "76543") for b in mixed),
    ]
    for entity, name, value in entities:
        configs(asked, "--alter", *entity, "--add-config", f"{name}={value}")
        for broker in mixed:
            wait_until(
                lambda: f"{name}={value}" in configs(broker, "--describe", *entity),  # noqa: B023
                30,
                f"broker {broker.number} knows {name} of {entity}",
            )
        configs(asked, "--alter", *entity, "--delete-config", name)
        gone = lambda: f"{name}={value}" not in configs(asked, "--describe", *entity)  # noqa: B023, E731
        wait_until(gone, 30, "it is gone")
    delete_topic(mixed, topic)


def test_reassignments_are_proposed_done_listed_and_taken_back(mixed, asked, tool, topic):
    reassign = "reassign.ReassignPartitionsCommand"
    make_topic(mixed, topic, [[1, 2], [2, 3], [3, 2]])
    moved = mixed.directory / "topics.json"
    moved.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    proposal = tool(asked, reassign, "--topics-to-move-json-file", moved, "--broker-list", "1,3", "--generate")
    rows = json.loads(proposal.strip().splitlines()[-1])["partitions"]
    assert {number for row in rows for number in row["replicas"]} == {1, 3}
    plan = mixed.directory / "reassign.json"
    with_plan = ("--reassignment-json-file", plan)
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    tool(asked, reassign, *with_plan, "--execute")
    done = lambda: tool(asked, reassign, *with_plan, "--verify").count("is completed") == 3  # noqa: E731
    wait_until(done, 60, "the replicas have moved")
    assert all(mixed.states()[topic, row["partition"]][1] == row["replicas"] for row in rows)
    # One that cannot end, as the replica to come stands still.
    before = mixed.states()[topic, 0][1]
    row = {"topic": topic, "partition": 0, "replicas": [before[0], SECOND]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    mixed[SECOND].pause()
    try:
        tool(asked, reassign, *with_plan, "--execute")
        assert f"{topic}-0" in tool(asked, reassign, "--list")
        tool(asked, reassign, *with_plan, "--cancel", "--preserve-throttles")  # those of who stands still too
        assert topic not in tool(asked, reassign, "--list")
    finally:
        mixed[SECOND].resume()
    assert mixed.states()[topic, 0][1] == before
    delete_topic(mixed, topic)


def test_leaders_are_elected_preferred_and_unclean(mixed, controller, tool, topic):
    elect = ("LeaderElectionCommand", "--topic", topic, "--partition", 0, "--election-type")
    gone, behind = (b for b in mixed if b is not controller)
    make_topic(mixed, topic, [[gone.number, behind.number]], {"min.insync.replicas": "1"})
    write(mixed, topic, 10)
    behind.pause()
    state = lambda: mixed.states()[topic, 0]  # noqa: E731
    wait_until(lambda: state()[2] == [gone.number], 60, "the other one is out of sync")
    gone.kill()
    behind.resume()
    wait_until(lambda: state()[0] == -1, 60, "there is no leader")
    for election in ("unclean", "preferred"):
        tool(controller, *elect, election, status=None)
        leader = behind if election == "unclean" else gone
        wait_until(lambda: state()[0] == leader.number, 30, f"{election}: {leader.number} leads")  # noqa: B023
        if election == "unclean":
            gone.start()
            mixed.wait_whole(WHOLE_SECONDS)
    delete_topic(mixed, topic)


def group_at(cluster, kind, stem):
    """A group's name whose coordinator is of this kind."""
    leaders = {p: s[0] for (t, p), s in cluster.states().items() if t == OFFSETS}
    for number in range(1000):
        name, code = f"{stem}-{number}", 0
        for letter in name:
            code = (31 * code + ord(letter)) & 0xFFFFFFFF
        code = code if code < 1 << 31 else (1 << 32) - code
        if cluster[leaders[code % len(leaders)]].kind == kind:
            return name
    raise AssertionError(f"no group is coordinated by {kind}")


@pytest.mark.parametrize("coordinator", OTHER)
def test_groups_of_either_kind_are_described_reset_and_deleted_by_kafkas_tool_and_ours(mixed, coordinator, tool, topic):
    command = "consumer.group.ConsumerGroupCommand"
    load = Load(mixed, topic, producers=1, partitions=2).start()
    first = Committer(mixed, topic, "opens-the-offsets")
    wait_until(lambda: len(first.committed) == 2, 60, "the offsets topic is there")
    mixed.wait_whole()
    first.stop()
    lead(mixed, mixed[BROKER[coordinator]], (OFFSETS,), tool)
    name = group_at(mixed, coordinator, topic)
    group = Committer(mixed, topic, name)
    wait_until(lambda: len(group.committed) == 2, 60, "the group has committed")
    for broker in (mixed[1], mixed[3]):
        text = tool(broker, command, "--describe", "--group", name)
        assert len([line for line in text.splitlines() if topic in line]) == 2, text
    line = [mixed[1].binary(), "groups", "describe", name, "--bootstrap-server", mixed[3].bootstrap]
    assert len([row for row in run_tool(line).splitlines() if row.startswith(f"{topic} ")]) == 2
    load.stop()
    group.stop()
    load.check()
    for number, broker in enumerate((mixed[1], mixed[3])):
        offsets = ("--to-offset", number + 3, "--all-topics", "--execute")
        tool(broker, command, "--reset-offsets", "--group", name, *offsets)
        for other in (mixed[1], mixed[3]):
            rows = [r.split() for r in tool(other, command, "--describe", "--group", name).splitlines() if topic in r]
            assert [row[3] for row in rows] == [str(number + 3)] * 2, rows
    tool(mixed[3 if coordinator == "barnabas" else 1], command, "--delete", "--group", name)
    assert name not in tool(mixed[1], command, "--list")
    delete_topic(mixed, topic)


def run_tool(line):
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout


# Controllers that follow each other


@pytest.mark.parametrize("kind", OTHER)
def test_a_reassignment_and_a_deletion_go_on_when_the_controller_of_this_kind_is_killed(mixed, kind, topic):
    killed, successor, idle = mixed[BROKER[kind]], mixed[BROKER[OTHER[kind]]], mixed[SECOND]
    doomed = f"{topic}-doomed"
    make_topic(mixed, topic, [[killed.number, successor.number]])
    make_topic(mixed, doomed, [[successor.number, idle.number]])
    write(mixed, topic, 100)
    make_controller(mixed, killed)
    idle.pause()
    try:
        start_reassignment(mixed, topic, [successor.number, idle.number])
        ask_to_delete(mixed, doomed)
        assert not is_reassigned_to(mixed, topic, [successor.number, idle.number])
        killed.kill()
        wait_until(lambda: mixed.controller() is successor, 60, "the other kind is the controller")
    finally:
        idle.resume()
    killed.start()
    wait_until(lambda: is_reassigned_to(mixed, topic, [successor.number, idle.number]), 60, "the replicas have moved")
    wait_until(lambda: mixed.znode(f"/brokers/topics/{doomed}") is None, 60, "the other topic is deleted")
    mixed.wait_whole(WHOLE_SECONDS)
    with successor.connect() as c:
        wait_until(lambda: c.fetch(topic, 0, 0).ErrorCode == 0, 30, "it leads")
        assert len(c.read_all(topic, 0)) == 100
    for broker in mixed:
        wait_until(lambda: not list(broker.log_dir.glob(f"{doomed}-0")), 60, "no log of it is left")  # noqa: B023
    delete_topic(mixed, topic)


def test_a_topic_of_before_ids_is_given_one_that_both_kinds_write_down(mixed, controller, topic):
    with mixed.zookeepers.client() as zk:
        zk.create(f"/brokers/topics/{topic}", b'{"version":1,"partitions":{"0":[1,2,3]}}')
    wait_until(lambda: (topic, 0) in mixed.states(), 60, "the topic is started")
    mixed.wait_whole()
    named = mixed.znode(f"/brokers/topics/{topic}")["topic_id"]
    for broker in mixed:
        file = broker.log_dir / f"{topic}-0/partition.metadata"
        wait_until(lambda: file.exists() and f"topic_id: {named}" in file.read_text(), 30, str(file))  # noqa: B023
    delete_topic(mixed, topic)


def znodes_of(cluster, topic, controller):
    """What the controller leaves in ZooKeeper as it makes, sets, moves and deletes a topic; numbers that differ from
    run to run are left out."""
    texts = {}

    def note(name, path):
        with cluster.zookeepers.client() as zk:
            text = zk.get(path)[0].decode()
        for pattern, by in (
            (r'"topic_id":"[^"]+"', '"topic_id":"ID"'),
            (r'"(controller_epoch|brokerid|leader_epoch)":\d+', r'"\1":N'),
            (r'"(timestamp|block_start|block_end)":"\d+"', r'"\1":"N"'),
            (r'"broker":\d+', '"broker":N'),
            (re.escape(topic), "TOPIC"),
        ):
            text = re.sub(pattern, by, text)
        texts[name] = text

    make_controller(cluster, controller)
    make_topic(cluster, topic, [[3, 1], [1, 3]], {"retention.ms": "7"})
    note("made", f"/brokers/topics/{topic}")
    note("state", f"/brokers/topics/{topic}/partitions/0/state")
    note("settings", f"/config/topics/{topic}")
    note("controller", "/controller")
    cluster[SECOND].pause()
    try:
        start_reassignment(cluster, topic, [2, 3])
        note("moving", f"/brokers/topics/{topic}")
        note("state while it moves", f"/brokers/topics/{topic}/partitions/0/state")
    finally:
        cluster[SECOND].resume()
    wait_until(lambda: is_reassigned_to(cluster, topic, [2, 3]), 60, "it has moved")
    note("moved", f"/brokers/topics/{topic}")
    with cluster.zookeepers.client() as zk:
        texts["epoch"] = re.sub(r"\d+", "N", zk.get("/controller_epoch")[0].decode())
        texts["below"] = sorted(zk.get_children(f"/brokers/topics/{topic}"))
    with controller.connect() as c:
        asks = {"BrokerId": controller.number, "BrokerEpoch": epoch_of(cluster, controller)}
        assert c.call("AllocateProducerIds", 0, **asks).ErrorCode == 0
    note("producer ids", "/latest_producer_id_block")
    delete_topic(cluster, topic)
    with cluster.zookeepers.client() as zk:
        assert not zk.exists(f"/admin/delete_topics/{topic}") and not zk.exists(f"/config/topics/{topic}")
    return texts


def epoch_of(cluster, broker):
    with cluster.zookeepers.client() as zk:
        return zk.get(f"/brokers/ids/{broker.number}")[1].czxid


def test_controllers_of_both_kinds_write_the_same_into_zookeeper(mixed, topic):
    ours, kafkas = (znodes_of(mixed, topic, mixed[BROKER[kind]]) for kind in ("barnabas", "kafka39"))
    assert ours == kafkas


def test_brokers_of_both_kinds_register_alike(mixed):
    nodes = [mixed.znode(f"/brokers/ids/{number}") for number in (1, 3)]
    assert [list(node) for node in nodes][0] == [list(node) for node in nodes][1]
    for node in nodes:
        assert node["version"] == 5 and node["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT"}


# Replication between the kinds

PAIRS = [("barnabas", "kafka39"), ("kafka39", "barnabas")]
PAIR_IDS = [f"{leader}-leads-{follower}-follows" for leader, follower in PAIRS]


@pytest.mark.parametrize(("leader", "follower"), PAIRS, ids=PAIR_IDS)
def test_a_follower_that_stands_still_leaves_the_in_sync_set_and_comes_back(mixed, leader, follower, topic):
    leader, follower = mixed[BROKER[leader]], mixed[BROKER[follower]]
    make_controller(mixed, mixed[SECOND])
    make_topic(mixed, topic, [[leader.number, follower.number]], {"min.insync.replicas": "1"})
    follower.pause()
    try:
        write(mixed, topic, 10)  # acknowledged when the follower is out
        assert mixed.states()[topic, 0][2] == [leader.number]
    finally:
        follower.resume()
    mixed.wait_whole()
    write(mixed, topic, 10)
    delete_topic(mixed, topic)


@pytest.mark.parametrize(("leader", "follower"), PAIRS, ids=PAIR_IDS)
def test_consumers_read_from_the_follower_in_their_rack(mixed, leader, follower, topic):
    leader, follower = mixed[BROKER[leader]], mixed[BROKER[follower]]
    make_topic(mixed, topic, [[leader.number, follower.number]])
    write(mixed, topic, 10)
    with leader.connect() as c:
        wait_until(
            lambda: c.fetch(topic, 0, 0, RackId=f"rack{follower.number}").PreferredReadReplica == follower.number,
            30,
            "the leader names its follower",
        )
    with follower.connect() as c:
        wait_until(lambda: c.fetch(topic, 0, 0).HighWatermark == 10, 30, "the follower knows how far it may give")
        assert len(c.read_all(topic, 0)) == 10
        write(mixed, topic, 5)
        wait_until(lambda: len(c.read_all(topic, 0)) == 15, 30, "it gives what is new too")
    delete_topic(mixed, topic)


def read_committed(cluster, topic, count):
    """(offset, key, value) of the first `count` records that a reader of committed ones sees, and of no more."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reads-committed",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, f"only {len(found)} records within 30 s"
            if message.error():
                if message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF and len(found) >= count:
                    return found
                continue
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def write_transactions(cluster, topic):
    """Asked of a broker of ours, which knows where the coordinator is.  How many records are committed."""
    settings = {"bootstrap.servers": cluster[1].bootstrap, "transactional.id": f"txn-{topic}", "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(60)
    committed = 0
    for number in range(12):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, f"{number}:{i}", f"key{(number + i) % 7}", partition=0)
        if number % 3 == 1:
            producer.flush()
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            committed += 5
    return committed


def open_transactions(cluster, tool):
    """Kafka's brokers lead all of __transaction_state: ours have no coordinator."""
    with cluster[3].connect() as c:
        ask = lambda: c.call("FindCoordinator", 3, Key="any", KeyType=1).ErrorCode == 0  # noqa: E731
        wait_until(ask, 60, "there is a coordinator of transactions")
    cluster.wait_whole()
    lead(cluster, cluster[3], ("__transaction_state",), tool)


def test_transactions_written_through_kafka_are_the_same_when_barnabas_leads(mixed, tool, topic):
    open_transactions(mixed, tool)
    make_topic(mixed, topic, [[3, 1, 2]])
    count = write_transactions(mixed, topic)
    before = read_committed(mixed, topic, count)
    assert len(before) == count
    for leader in (mixed[1], mixed[3], mixed[2]):
        lead(mixed, leader, (topic,), tool)
        mixed.wait_whole()
        assert read_committed(mixed, topic, count) == before


def test_a_compacted_log_with_transactions_is_the_same_when_barnabas_leads(mixed, tool, topic):
    open_transactions(mixed, tool)
    config = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
    make_topic(mixed, topic, [[3, 1, 2]], config)
    for _ in range(3):
        write_transactions(mixed, topic)
    last = confluent_kafka.Producer({"bootstrap.servers": mixed[1].bootstrap, "log_level": 0})

    def cleaned():
        """The segment that is written to is not cleaned: it must become another one."""
        last.produce(topic, "last", "key0", partition=0)
        assert last.flush(30) == 0
        return sum(1 for _ in read_committed(mixed, topic, 0)) <= 15

    wait_until(cleaned, 90, "Kafka's cleaner has removed records")
    newest = {}
    for _, key, value in read_committed(mixed, topic, 0):
        newest[key] = value
    assert len(newest) == 7
    for leader in (mixed[1], mixed[2]):
        lead(mixed, leader, (topic,), tool)
        mixed.wait_whole()
        assert {key: value for _, key, value in read_committed(mixed, topic, 7)} == newest


# What is said of it in the logs; last, when all has been done

KAFKA_COMPLAINS = re.compile(
    r"InvalidRequestException|UnsupportedVersion|SchemaException|BufferUnderflow|CorruptRecord|UnknownServerException"
    r"|INVALID_REQUEST|UNSUPPORTED_VERSION|Unexpected (error|exception)|Error (processing|getting) request|malformed"
)
WE_COMPLAIN = re.compile(r" (WARN|ERROR) .*(bad_request|message_refused|states_refused|controller_failed|malformed)")


def test_neither_kind_complains_of_the_other(mixed):
    for broker in mixed:
        pattern = WE_COMPLAIN if broker.kind == "barnabas" else KAFKA_COMPLAINS
        found = [line for line in broker.output().splitlines() if pattern.search(line)]
        assert not found, f"broker {broker.number}: {found[:5]}"
