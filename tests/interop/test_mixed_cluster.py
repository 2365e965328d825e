"""Barnabas and Apache Kafka 3.9.1 in one cluster: brokers are replaced one at a time under a checked load, there and
back, and each kind is controller, leader, follower and group coordinator along the way."""

import json

import kazoo.exceptions
import programs
import pytest

from brokers import wait_until
from cluster import Cluster
from committer import Committer
from load import Load

pytestmark = [pytest.mark.timeout(900), pytest.mark.barnabas_only]
CONFIG = {"replica.lag.time.max.ms": "4000", "num.io.threads": "2"}
WHOLE_SECONDS = 90  # a JVM starts in that time
OFFSETS = "__consumer_offsets"
OTHER = {"barnabas": "kafka39", "kafka39": "barnabas"}


def make_controller(cluster, broker):
    """Takes the office from whoever has it until this broker wins."""

    def won():
        if cluster.controller() is broker:
            return True
        with cluster.zookeepers.client() as zk:
            try:
                zk.delete("/controller")
            except kazoo.exceptions.NoNodeError:
                pass
        return cluster.controller() is broker

    wait_until(won, 60, f"broker {broker.number} is the controller")


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


@pytest.mark.parametrize("keep", [True, False], ids=["kafkas-directories", "empty-directories"])
def test_brokers_are_replaced_one_at_a_time_and_back(tmp_path, tool, keep):
    with Cluster(tmp_path, 3, config=CONFIG, kinds=["kafka39"] * 3) as cluster:
        cluster.start()
        load = Load(cluster, "moving", java=1).start()
        group = Committer(cluster, "moving", "steady")
        roles = Roles("moving")
        for kind in ("barnabas", "kafka39"):
            for broker in cluster:
                load.wait_progress(100)
                broker.stop()
                load.wait_progress(50)
                if not keep:
                    broker.forget_data()
                broker.become(kind).start()
                cluster.wait_whole(WHOLE_SECONDS)
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
    """Two brokers of ours and one of Kafka's."""
    kinds = ["barnabas", "barnabas", "kafka39"]
    with Cluster(tmp_path_factory.mktemp("mixed"), 3, config=CONFIG, kinds=kinds) as one:
        yield one.start()


CASES = [(controller, asked) for controller in OTHER for asked in OTHER]


@pytest.fixture(params=CASES, ids=[f"{c}-controls-{a}-is-asked" for c, a in CASES])
def asked(request, mixed):
    """A broker of one kind to ask, while one of some kind is the controller."""
    controller, kind = request.param
    make_controller(mixed, next(b for b in mixed if b.kind == controller))
    return next(b for b in mixed if b.kind == kind)


def test_topics_are_made_grown_described_and_deleted(mixed, asked, tool, topic_name):
    topic = topic_name.replace(".", "-").replace("_", "-")
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


def test_settings_are_changed_and_seen_by_both_kinds(mixed, asked, tool, topic_name):
    topic = topic_name.replace(".", "-").replace("_", "-")
    tool(asked, "TopicCommand", "--create", "--topic", topic, "--partitions", 1, "--replication-factor", 3)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    java = programs.java_tools("3.9.1")
    configs = lambda broker, *more: java.run(  # noqa: E731
        "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *entity, *more
    )
    configs(asked, "--alter", "--add-config", "retention.ms=1234567")
    for broker in mixed:
        wait_until(
            lambda: "retention.ms=1234567" in configs(broker, "--describe"),  # noqa: B023
            30,
            f"broker {broker.number} knows the setting",
        )
    tool(asked, "TopicCommand", "--delete", "--topic", topic)


def test_partitions_are_reassigned_and_led_as_asked(mixed, asked, tool, topic_name):
    topic = topic_name.replace(".", "-").replace("_", "-")
    tool(asked, "TopicCommand", "--create", "--topic", topic, "--replica-assignment", "1:2,2:3,3:1")
    mixed.wait_whole()
    plan = mixed.directory / "reassign.json"
    wanted = {0: [3, 1], 1: [1, 2], 2: [2, 3]}
    rows = [{"topic": topic, "partition": p, "replicas": r} for p, r in wanted.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    with_plan = ("--reassignment-json-file", plan)
    tool(asked, "reassign.ReassignPartitionsCommand", *with_plan, "--execute")
    wait_until(
        lambda: "is completed" in tool(asked, "reassign.ReassignPartitionsCommand", *with_plan, "--verify")
        and all(mixed.states()[topic, p][1] == r for p, r in wanted.items()),
        60,
        "the reassignment is over",
    )
    mixed.wait_whole()
    tool(asked, "LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", 0, status=None)
    wait_until(lambda: mixed.states()[topic, 0][0] == 3, 30, "the preferred replica leads")
    tool(asked, "TopicCommand", "--delete", "--topic", topic)


def test_groups_are_described_by_whoever_is_asked(mixed, asked, tool, topic_name):
    topic = topic_name.replace(".", "-").replace("_", "-")
    tool(asked, "TopicCommand", "--create", "--topic", topic, "--partitions", 2, "--replication-factor", 3)
    load = Load(mixed, topic, producers=1, partitions=2).start()
    group = Committer(mixed, topic, f"group-{topic}")
    wait_until(lambda: len(group.committed) == 2, 60, "the group has committed")
    text = tool(asked, "consumer.group.ConsumerGroupCommand", "--describe", "--group", f"group-{topic}")
    assert len([line for line in text.splitlines() if topic in line]) == 2, text
    load.stop()
    group.stop()
    load.check()
