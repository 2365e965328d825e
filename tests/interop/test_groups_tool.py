"""`barnabas kafka-consumer-groups` against kafka-consumer-groups.sh of Kafka 3.9.1, line by line, on the same groups;
and `barnabas groups`. Both on Barnabas and on Apache Kafka, which they must serve alike.

What differs, and why:
- Kafka's tool has groups and partitions in the order of its hash tables, ours sorts them: lines are compared sorted.
- Kafka 3.9's --reset-offsets and --delete-offsets print their whole table in one line; ours has one row a line, as
  before and after 3.9: compared() cuts Kafka's line into its rows.
- A partition that there is not makes Kafka's tool wait until its time is over; ours says so at once.
- A stack trace follows each "Error: ..." on standard error.
"""

import contextlib
import json
import re
import socket
import subprocess
import time

import confluent_kafka as ck
import confluent_kafka.admin
import pytest

import brokers
import programs
from brokers import Broker, wait_until

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LONG = "a-topic-with-a-rather-long-name-indeed"  # more than Jackson leaves without quotes
TOPICS = {"t1": 12, "t2": 1, LONG: 2, "empty": 1}
COORDINATOR_IS_COMING = (
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError._WAIT_COORD,
)
RECORDS = 10  # in each partition of all topics but the last


class World:
    """A broker with topics, groups that have only offsets, and groups with members."""

    def __init__(self, broker, java):
        self.broker, self.java = broker, java
        self.members = []
        self.made = 0
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})

    def fill(self):
        new = [confluent_kafka.admin.NewTopic(name, count, 1) for name, count in TOPICS.items()]
        for done in self.admin.create_topics(new).values():
            done.result()
        producer = ck.Producer({"bootstrap.servers": self.broker.bootstrap})
        for topic, count in TOPICS.items():
            for i in range(count * RECORDS if topic != "empty" else 0):
                producer.produce(topic, b"v", partition=i % count)
        assert producer.flush(60) == 0
        self.commit("g-empty", [("t1", i, i % 7) for i in range(12)] + [("t2", 0, 3)])
        self.commit("g two", [(LONG, 0, 4), ("t2", 0, RECORDS)])
        self.join("g-live", {"client.id": "c0"}, "t1", "t2")
        self.join("g-live", {"client.id": "c1"}, "t1", "t2")
        self.join("g-static", {"client.id": "st", "group.instance.id": "inst-1"}, "t2")
        wait_until(self.settled, 60, "every member has partitions")
        self.members[0].commit(offsets=[ck.TopicPartition("t1", 0, 5)], asynchronous=False)

    def commit(self, group, offsets):
        places = [ck.TopicPartition(*offset) for offset in offsets]

        def done():
            try:
                return consumer.commit(offsets=places, asynchronous=False)
            except ck.KafkaException as failed:
                if failed.args[0].code() not in COORDINATOR_IS_COMING:
                    raise
                return None

        with self.consumer(group) as consumer:
            wait_until(done, 60, "the coordinator has loaded and takes offsets")

    def committed(self, group):
        with self.consumer(group) as consumer:
            places = [ck.TopicPartition(topic, i) for topic, count in TOPICS.items() for i in range(count)]
            return {(p.topic, p.partition): p.offset for p in consumer.committed(places, 60) if p.offset >= 0}

    @contextlib.contextmanager
    def consumer(self, group, config=None):
        common = {"bootstrap.servers": self.broker.bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = ck.Consumer(common | (config or {}))
        try:
            yield consumer
        finally:
            consumer.close()

    def join(self, group, config, *topics):
        common = {"bootstrap.servers": self.broker.bootstrap, "group.id": group, "enable.auto.commit": False}
        member = ck.Consumer(common | config)
        self.members.append(member)
        member.subscribe(list(topics))
        return member

    def settled(self):
        for member in self.members:
            member.poll(0.1)
        # 13 partitions for the two of g-live, one for the third
        return all(m.assignment() for m in self.members) and sum(len(m.assignment()) for m in self.members[:2]) == 13

    def fresh_group(self, offsets):
        self.made += 1
        name = f"made-{self.made}"
        self.commit(name, offsets)
        return name

    def close(self):
        for member in self.members:
            member.close()

    # The two tools

    def ours(self, *words, status=0, command="kafka-consumer-groups"):
        line = [Broker.binary(), command, *words, "--bootstrap-server", self.broker.bootstrap]
        done = subprocess.run(line, capture_output=True, timeout=120, text=True)
        assert status is None or done.returncode == status, (line, done.returncode, done.stdout, done.stderr)
        assert not brokers._BAD_SIGNS.search(done.stderr), done.stderr
        self.errors = done.stderr
        return done.stdout

    def groups(self, *words, **more):
        return self.ours(*words, command="groups", **more)

    def groups_json(self, *words, **more):
        return [json.loads(line) for line in self.groups(*words, "--json", **more).splitlines()]

    def theirs(self, *words, status=0):
        common = ("--bootstrap-server", self.broker.bootstrap, "--timeout", 60000)
        return self.java.run(TOOL, *common, *words, status=status)


# A row of the tables that Kafka 3.9.1 forgets to break into lines, each as wide as its columns at least.
ROW_39 = {
    "NEW-OFFSET": r"\S.*?\s+\S+\s+\d+\s+\d+ {5,}",
    "STATUS": r"\S+\s+(?:\d+|Not Provided)\s+(?:Successful {5}|Error: :.*?\.(?=\S+ {20,}|$))",
}


def compared(text):
    """Lines, sorted; Kafka's one line is cut into its rows."""
    for heading, row in ROW_39.items():
        found = re.search(rf"^.*\b{heading} *", text, re.MULTILINE)
        if found and text[found.end() : found.end() + 1] not in ("", "\n"):
            rows = re.findall(row, text[found.end() :].rstrip("\n"))
            assert "".join(rows) == text[found.end() :].rstrip("\n")
            text = text[: found.end()] + "\n" + "\n".join(rows)
    return sorted(line.rstrip() for line in text.splitlines())


@pytest.fixture(scope="module", params=["barnabas", "kafka39", "kafka43"])
def world(request, fetched, tmp_path_factory):
    broker = brokers.new_broker(request.param, tmp_path_factory.mktemp("groups"))
    try:
        broker.start()
        with broker.connect() as connection:
            if not connection.serves("ListGroups"):
                pytest.skip("this broker coordinates no groups")
        made = World(broker, programs.java_tools("3.9.1"))
        try:
            made.fill()
            yield made
        finally:
            made.close()
        broker.stop()
    finally:
        broker.close()


def same(world, *words, status=0):
    theirs = world.theirs(*words, status=status)
    ours = world.ours(*words, status=status)
    assert compared(ours) == compared(theirs)
    return ours


@pytest.mark.parametrize(
    "words",
    [
        "--list",
        "--list --state",
        "--list --type",
        "--list --state --type",
        "--list --state stable,empty --type classic",
        "--list --state=dead",
        "--describe --group g-empty",
        "--describe --group g-live",
        "--describe --group g-live --offsets --verbose",
        "--describe --group g-static",
        "--describe --all-groups",
        "--describe --group nope",
        "--describe --group g-live --group g-empty --group nope",
        "--describe --group g-live --members",
        "--describe --group g-live --members --verbose",
        "--describe --group g-static --members --verbose",
        "--describe --group g-empty --members --verbose",
        "--describe --group nope --members",
        "--describe --all-groups --members",
        "--describe --group g-live --state",
        "--describe --group g-empty --state",
        "--describe --group nope --state",
        "--describe --all-groups --state --verbose",
    ],
)
def test_what_is_shown_is_what_kafka_shows(world, words):
    same(world, *words.split())


def test_a_name_with_a_blank_is_a_name(world):
    assert "g two" in same(world, "--describe", "--group", "g two")


DRY_RUNS = [
    "--to-earliest --all-topics",
    "--to-earliest --topic t1",
    "--to-latest --topic t1:0,3 --topic t2",
    "--to-offset 4 --topic t1:0,3 --topic t2",
    "--to-offset 400 --topic t1:0,3 --topic t2",
    "--to-offset -4 --topic t1:0,3",
    "--shift-by 2 --topic t1",
    "--shift-by -3 --all-topics",
    "--shift-by=100 --all-topics",
    "--to-current --topic t1 --topic empty",
    "--to-datetime 2020-01-01T00:00:00.000 --all-topics",
    "--to-datetime 2099-01-01T00:00:00.000+01:00 --all-topics",
    "--to-datetime 2099-01-01T00:00:00.000Z --topic empty",
    "--by-duration PT1H --topic empty --topic t1",
    "--by-duration P-1DT2H3M4.5S --topic t2",
]


@pytest.mark.parametrize("words", DRY_RUNS)
@pytest.mark.parametrize("last", ["--dry-run", "--dry-run --export"])
def test_every_way_to_reset_is_planned_as_kafka_plans_it(world, words, last):
    same(world, "--reset-offsets", "--group", "g-empty", *words.split(), *last.split())
    assert world.committed("g-empty")["t2", 0] == 3


@pytest.mark.parametrize("words", DRY_RUNS)
def test_every_way_to_reset_does_what_kafka_does(world, words):
    offsets = [("t1", i, i % 7) for i in range(12)] + [("t2", 0, 3)]
    ours, theirs = world.fresh_group(offsets), world.fresh_group(offsets)
    world.ours("--reset-offsets", "--group", ours, *words.split(), "--execute")
    world.theirs("--reset-offsets", "--group", theirs, *words.split(), "--execute")
    assert world.committed(ours) == world.committed(theirs)


def test_groups_without_offsets_can_be_given_some(world):
    same(world, "--reset-offsets", "--group", "never-seen", "--to-latest", "--topic", "t2", "--dry-run")
    world.ours("--reset-offsets", "--group", "born", "--to-latest", "--topic", "t2", "--execute")
    assert world.committed("born") == {("t2", 0): RECORDS}


def test_plans_go_from_tool_to_tool(world, tmp_path):
    single = tmp_path / "single.csv"
    words = ("--reset-offsets", "--group", "g two", "--to-earliest", "--all-topics", "--export", "--dry-run")
    single.write_text(same(world, *words).strip() + "\n")
    assert f'"{LONG}",0,0\n' in single.read_text()
    same(world, "--reset-offsets", "--group", "g two", "--from-file", str(single), "--dry-run")
    many = tmp_path / "many.csv"
    words = ("--reset-offsets", "--group", "g two", "--group", "g-empty", "--to-latest", "--all-topics", "--export")
    many.write_text(same(world, *words, "--dry-run").strip() + "\n")
    assert f'"g two","{LONG}",0,{RECORDS}\n' in many.read_text()
    same(world, "--reset-offsets", "--group", "g two", "--group", "g-empty", "--from-file", str(many), "--dry-run")
    same(world, "--reset-offsets", "--group", "g two", "--group", "absent", "--from-file", str(many), "--dry-run")
    one = tmp_path / "one.csv"
    one.write_text("t1,0,2\n\"t1\",1,300\nt2,0,-7\n")  # within the log, above it, below it
    group = world.fresh_group([("t1", 0, 1)])
    world.ours("--reset-offsets", "--group", group, "--from-file", str(one), "--execute")
    assert world.committed(group) == {("t1", 0): 2, ("t1", 1): RECORDS, ("t2", 0): 0}


def test_a_group_with_members_is_not_reset(world):
    text = same(world, "--reset-offsets", "--group", "g-live", "--to-earliest", "--topic", "t1", "--execute")
    assert "can only be reset if the group 'g-live' is inactive, but the current state is Stable." in text
    assert world.committed("g-live") == {("t1", 0): 5}


def test_offsets_are_forgotten(world):
    same(world, "--delete-offsets", "--group", "nope", "--topic", "t2")
    same(world, "--delete-offsets", "--group", "g-live", "--topic", "t1")
    same(world, "--delete-offsets", "--group", "g-empty", "--topic", "unknown")
    ours, theirs = (world.fresh_group([("t1", 0, 1), ("t1", 1, 2), ("t2", 0, 3)]) for _ in range(2))
    for topics in (["t1:0,99"], ["unknown", "t2"]):
        words = [word for topic in topics for word in ("--topic", topic)]
        got = world.ours("--delete-offsets", "--group", ours, *words)
        wanted = world.theirs("--delete-offsets", "--group", theirs, *words)
        assert compared(got.replace(ours, theirs)) == compared(wanted)
    assert world.committed(ours) == {("t1", 1): 2} == world.committed(theirs)


def test_groups_are_deleted(world):
    same(world, "--delete", "--group", "nope")
    same(world, "--delete", "--group", "g-live")
    (ours, second), (theirs, fourth) = ([world.fresh_group([("t2", 0, 1)]) for _ in range(2)] for _ in range(2))
    got = world.ours("--delete", "--group", ours)
    assert got.replace(ours, theirs) == world.theirs("--delete", "--group", theirs)
    got = world.ours("--delete", "--group", second, "--group", "g-live")
    wanted = world.theirs("--delete", "--group", fourth, "--group", "g-live")
    assert compared(got.replace(second, fourth)) == compared(wanted)
    left = world.ours("--list").split("\n")
    assert not {ours, second, theirs, fourth} & set(left) and "g-live" in left


@pytest.mark.parametrize(
    "words",
    [
        "--list --state bogus",
        "--list --type bogus",
        "--describe",
        "--delete",
        "--delete-offsets --group g",
        "--reset-offsets",
        "--delete --group g --topic t",
        "--describe --group g --state x",
        "--describe --group g --state --members",
        "--describe --group g --all-groups",
        "--list --group g",
        "--list --delete --all-groups",
        "--group a",
        "--reset-offsets --group g-empty --all-topics --to-latest --to-earliest --dry-run",
        "--reset-offsets --group g-empty --all-topics --to-latest --execute --dry-run",
        "--reset-offsets --group g-empty --shift-by 1 --topic empty --dry-run",
        "--reset-offsets --group nope --to-latest --topic t2:x --dry-run",
        "--reset-offsets --group nope --to-latest --topic t2:1:2 --dry-run",
    ],
)
def test_a_wrong_command_line_is_refused_in_kafka_s_words(world, words):
    world.theirs(*words.split(), status=1)
    said = [told(line) for line in world.java.errors.splitlines()]
    assert world.ours(*words.split(), status=1) == ""
    assert [told(line) for line in world.errors.splitlines() if not line.startswith("WARN")][0] in said


def told(line):
    """Kafka names options in the order of a hash table, and for some actions the wrong ones."""
    return re.sub(r"(these|following) options: \[.*", r"\1 options", line)


def test_what_fails_ends_as_in_kafka(world, tmp_path):
    """With status 0, and the reason on standard output."""
    words = ("--reset-offsets", "--group", "nope", "--to-latest", "--topic", "unknown", "--dry-run")
    same(world, *words)
    bad = tmp_path / "bad.csv"
    bad.write_text("t1,zero,3\n")
    text = world.ours("--reset-offsets", "--group", "g-empty", "--from-file", str(bad), "--dry-run")
    assert "Error: Executing consumer group command failed due to" in text and "bad.csv, line 1" in text
    text = world.ours("--reset-offsets", "--group", "g-empty", "--to-datetime", "soon", "--all-topics")
    assert "Error: Executing consumer group command failed due to 'soon', which is no moment" in text


# ---- barnabas groups


def produce_old(world, topic, age_ms, count, config=None, size=1):
    """Records of that age, one millisecond apart; returns the first one's timestamp."""
    first = int(time.time() * 1000) - age_ms
    producer = ck.Producer({"bootstrap.servers": world.broker.bootstrap, "linger.ms": 500} | (config or {}))
    for i in range(count):
        producer.produce(topic, b"v" * size, partition=0, timestamp=first + i)
    assert producer.flush(60) == 0
    return first


@pytest.mark.parametrize(
    "config, size",
    [({}, 1), ({"compression.type": "lz4"}, 100), ({"compression.type": "gzip"}, 1), ({}, 5000)],
    ids=["plain", "lz4", "gzip", "larger-than-a-first-look"],
)
def test_lag_is_told_in_seconds(world, config, size):
    topic = f"aged-{world.made}-{size}"
    world.admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1)])[topic].result()
    first = produce_old(world, topic, 100_000, 40, config, size)
    group = world.fresh_group([(topic, 0, 25), (topic, 1, 0)])
    before = time.time() * 1000
    (got,) = world.groups_json("describe", group)
    after = time.time() * 1000
    lagging, level = got["partitions"]
    assert (lagging["committed"], lagging["end"], lagging["lag"]) == (25, 40, 15)
    assert before - (first + 25) - 1 <= lagging["lagMs"] <= after - (first + 25) + 1
    assert (level["lag"], level["lagMs"]) == (0, 0)
    text = world.groups("describe", group)
    assert re.search(rf"^{topic} +0 +25 +40 +15 +\d+\.\d{{3}} +- +- +-$", text, re.MULTILINE), text
    assert re.search(r"^lag +15 records in 2 partitions, the oldest 1\d\d\.\d+ s old$", text, re.MULTILINE), text


def test_groups_are_listed_and_described(world):
    listed = {row["group"]: row for row in world.groups_json("list")}
    assert listed["g-live"] == {"group": "g-live", "state": "Stable", "type": "classic", "protocol": "consumer"}
    assert listed["g two"]["state"] == "Empty"
    assert {row["group"] for row in world.groups_json("list", "--state", "stable")} == {"g-live", "g-static"}
    (live,) = world.groups_json("describe", "g-live")
    assert (live["state"], live["assignor"], live["coordinator"]["port"]) == ("Stable", "range", world.broker.port)
    assert len(live["members"]) == 2 and len(live["partitions"]) == 13
    rows = {(row["topic"], row["partition"]): row for row in live["partitions"]}
    assert (rows["t1", 0]["committed"], rows["t1", 0]["lag"]) == (5, RECORDS - 5)
    assert (rows["t1", 1]["committed"], rows["t1", 1]["lag"], rows["t1", 1]["lagMs"]) == (None, None, None)
    assert {row["member"] for row in live["partitions"]} == {member["member"] for member in live["members"]}
    owned = [(p["topic"], p["partition"]) for member in live["members"] for p in member["partitions"]]
    assert sorted(owned) == sorted(rows)
    (static,) = world.groups_json("members", "g-static")
    assert static["members"][0]["instance"] == "inst-1"
    assert "inst-1" in world.groups("members", "--all") and "t2:0" in world.groups("members", "g-static")


@pytest.mark.parametrize(
    "words",
    ["--to-datetime 1969-12-31T23:59:59.999", "--to-datetime 0001-01-01T00:00:00", "--by-duration P200000D"],
)
def test_before_1970_is_before_all_records(world, words):
    """To a broker such a time is a question of another kind: one millisecond before 1970 is the end."""
    group = world.fresh_group([("t2", 0, 3)])
    world.groups("reset-offsets", group, "--topic", "t2", *words.split(), "--execute")
    assert world.committed(group) == {("t2", 0): 0}


def test_so_far_in_the_future_that_no_clock_shows_it_is_the_end(world):
    group = world.fresh_group([("t2", 0, 3)])
    world.groups("reset-offsets", group, "--topic", "t2", "--by-duration", "P-106751991167D", "--execute")
    assert world.committed(group) == {("t2", 0): RECORDS}


def test_rebalances_are_told_where_the_broker_keeps_them(world):
    (live,) = world.groups_json("describe", "g-live")
    text = world.groups("describe", "g-live")
    if not world.broker.is_barnabas():
        assert live["rebalances"] == [] and "tells of no rebalances: Apache Kafka never does" in text
        return
    assert live["rebalances"], live
    newest = live["rebalances"][0]
    assert newest["generation"] >= 1 and newest["reason"] and newest["tookMs"] >= 0
    assert "REASON" in text and newest["reason"].split()[0] in text


def test_groups_are_changed(world):
    group = world.fresh_group([("t1", 0, 1), ("t2", 0, 3)])
    plan = world.groups_json("reset-offsets", group, "--topic", "t1:0,1", "--to-offset", "99")
    note = {"note": "the log ends here", "done": False, "offset": RECORDS, "group": group, "topic": "t1"}
    assert plan == [note | {"partition": 0}, note | {"partition": 1}]
    assert world.committed(group) == {("t1", 0): 1, ("t2", 0): 3}
    world.groups("reset-offsets", group, "--all-topics", "--shift-by", "2", "--execute")
    assert world.committed(group) == {("t1", 0): 3, ("t2", 0): 5}
    world.groups("delete-offsets", group, "--topic", "t1:0")
    assert world.committed(group) == {("t2", 0): 5}
    assert world.groups_json("delete", group) == [{"group": group, "deleted": True}]
    assert group not in {row["group"] for row in world.groups_json("list")}


def test_groups_failures_have_their_status(world):
    world.groups("describe", "nope", status=1)
    assert "there is no group 'nope'" in world.errors
    world.groups("delete", "nope", "g-live", status=1)
    assert "nope: GROUP_ID_NOT_FOUND" in world.errors and "g-live: NON_EMPTY_GROUP" in world.errors
    world.groups("reset-offsets", "g-live", "--topic", "t1", "--to-latest", "--execute", status=1)
    assert "stop them first" in world.errors
    world.groups("reset-offsets", "g-empty", "--topic", "unknown", "--to-latest", status=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in world.errors
    for words in ("describe", "reset-offsets a b", "list --execute", "reset-offsets a --to-latest"):
        world.groups(*words.split(), status=2)


def test_groups_of_the_newer_protocol_are_shown(world):
    if world.broker.kind != "kafka43":
        pytest.skip("only Kafka 4 has them")
    with world.consumer("g-new", {"group.protocol": "consumer", "client.id": "n"}) as member:
        member.subscribe(["t2"])
        wait_until(lambda: member.poll(0.1) or member.assignment(), 60, "it has its partition")
        same(world, "--list", "--type", "consumer")
        same(world, "--describe", "--group", "g-new")
        same(world, "--describe", "--group", "g-new", "--members", "--verbose")
        same(world, "--describe", "--group", "g-new", "--state")
        (got,) = world.groups_json("describe", "g-new")
        assert got["type"] == "Consumer" and got["members"][0]["partitions"] == [{"topic": "t2", "partition": 0}]


# ---- without a broker


def alone(*words, command="kafka-consumer-groups"):
    done = subprocess.run([Broker.binary(), command, *words], capture_output=True, timeout=60, text=True)
    assert not brokers._BAD_SIGNS.search(done.stderr), done.stderr
    return done


def test_a_broker_that_is_not_there_is_told():
    dead = f"127.0.0.1:{brokers.free_port()}"
    done = alone("--bootstrap-server", dead, "--list", "--timeout", "300")
    assert done.returncode == 0 and "nothing listens there" in done.stdout
    done = alone("list", "--bootstrap-server", dead, "--timeout", "300", command="groups")
    assert done.returncode == 1 and "nothing listens there" in done.stderr


@pytest.mark.parametrize(
    "line, said",
    [
        ("security.protocol=SASL_SSL", "cannot be honoured: this build speaks PLAINTEXT only"),
        ("ssl.truststore.location=/x", "this build has neither TLS nor SASL"),
        ("sasl.mechanism=PLAIN", "this build has neither TLS nor SASL"),
        ("request.timeout.ms=soon", "must be a number of milliseconds"),
    ],
)
def test_a_configuration_that_cannot_be_honoured_is_refused(tmp_path, line, said):
    path = tmp_path / "admin.properties"
    path.write_text(f"# an admin client\nclient.id=me\n{line}\n")
    done = alone("--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", str(path))
    assert done.returncode == 1 and f"{path}, line 3: " in done.stderr and said in done.stderr
    done = alone("list", "--command-config", str(path), command="groups")
    assert done.returncode == 1 and said in done.stderr


@pytest.mark.parametrize(
    "words, said",
    [
        (["--bogus"], "there is no option '--bogus'"),
        (["list"], "'list' is no option"),
        (["--list"], 'Missing required argument "[bootstrap-server]"'),
        (["--bootstrap-server"], "--bootstrap-server needs a value"),
        (["--bootstrap-server", "nowhere", "--list"], "'nowhere' is no address of a broker"),
        (["--bootstrap-server", "a:1", "--timeout", "x", "--list"], "--timeout needs a number, not 'x'"),
        (["--validate-regex", "a.*"], "cannot be honoured"),
    ],
)
def test_what_is_no_command_line_is_refused(words, said):
    done = alone(*words)
    assert done.returncode == 1 and said in done.stderr


def test_a_server_of_another_kind_is_told():
    """Something listens, but it is no Kafka."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = [Broker.binary(), "groups", "list", "--bootstrap-server", f"127.0.0.1:{port}", "--timeout", "60000"]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and out == "" and "is it a Kafka listener without TLS?" in err, err
