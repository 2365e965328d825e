"""Kafka's tools for groups and in groups, of 3.9.1 and 4.3.1."""

import collections
import concurrent.futures
import contextlib
import datetime
import itertools
import json
import re

import confluent_kafka
import pytest

from batches import Record, build, now_ms
from brokers import wait_until
from rawkafka import Kerr

BROKER_CONFIG = {"group.initial.rebalance.delay.ms": "0", "log.retention.ms": "-1"}

HOUR_MS = 3_600_000


@pytest.fixture
def group(conn, topic_name):
    """A group's name; the topic of offsets is there, which is made when somebody looks for a coordinator."""
    name = f"g-{topic_name}"

    def found():
        return conn.call("FindCoordinator", 3, Key=name, KeyType=0).ErrorCode == Kerr.NONE

    wait_until(found, 30, "the group has a coordinator")
    return name


@pytest.fixture(autouse=True)
def coordinated(conn):
    if not conn.serves("JoinGroup"):
        pytest.skip("this broker coordinates no groups yet")


@pytest.fixture
def filled(conn, topic_name):
    """Two partitions of ten records, record i being 10 - i hours old; the first two of partition 0 are gone."""
    topic = conn.new_topic(topic_name, 2)
    for index in (0, 1):
        rows = [Record(value=f"{index}/{i}".encode(), timestamp=now_ms() - (10 - i) * HOUR_MS) for i in range(10)]
        for row in rows:
            assert conn.produce(topic, index, build([row])).ErrorCode == Kerr.NONE
    gone = {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}
    answer = conn.call("DeleteRecords", Topics=[gone], TimeoutMs=30000)
    assert answer.Topics[0].Partitions[0].LowWatermark == 2
    return topic


@pytest.fixture
def groups(tool):
    """groups("--list"): kafka-consumer-groups."""
    return lambda *arguments, **more: tool("consumer.group.ConsumerGroupCommand", *arguments, **more)


def settled(ask):
    """The answer, once the coordinator has loaded its partition, which Apache Kafka makes on demand."""

    def answered():
        answer = ask()
        return answer if answer.ErrorCode not in (Kerr.COORDINATOR_LOAD_IN_PROGRESS, 15, 16) else None

    answer = wait_until(answered, 30, "the coordinator has loaded the group")
    assert answer.ErrorCode == Kerr.NONE, answer
    return answer


def committed(conn, group):
    """(topic, partition) -> offset"""
    answer = settled(lambda: conn.call("OffsetFetch", 7, GroupId=group, Topics=None, RequireStable=False))
    return {(t.Name, p.PartitionIndex): p.CommittedOffset for t in answer.Topics for p in t.Partitions}


def commit(conn, group, offsets):
    """As a program without a group membership does it: {(topic, partition): offset}."""
    rows = [
        {
            "Name": topic,
            "Partitions": [{"PartitionIndex": index, "CommittedOffset": offset, "CommittedMetadata": ""}],
        }
        for (topic, index), offset in offsets.items()
    ]

    def done():
        answer = conn.call("OffsetCommit", 7, GroupId=group, GenerationIdOrMemberEpoch=-1, MemberId="", Topics=rows)
        codes = {p.ErrorCode for t in answer.Topics for p in t.Partitions}
        return codes == {Kerr.NONE}

    wait_until(done, 30, "the offsets are committed")


def described(conn, group):
    return settled(lambda: conn.call("DescribeGroups", 5, Groups=[group]).Groups[0])


@contextlib.contextmanager
def member(broker, topic, group, **config):
    """A member that owns all partitions of the topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "watcher",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    owned = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: owned.extend(partitions))

    def joined():
        consumer.poll(0.05)
        return owned

    try:
        wait_until(joined, 60, "the member owns partitions")
        yield consumer
    finally:
        consumer.close()


def table(text, *header):
    """The rows of a table that a tool has printed, as dicts. Lines do not count: 3.9.1 prints some tables on one."""
    start = re.search(r"\s+".join(map(re.escape, header)), text)
    assert start, text
    words = text[start.end() :].split()
    assert len(words) % len(header) == 0, text
    return [dict(zip(header, words[i:])) for i in range(0, len(words), len(header))]


OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
MEMBERS = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
NEW_OFFSETS = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")


# The console consumer


def console(tool, topic, *arguments):
    text = tool("consumer.ConsoleConsumer", "--topic", topic, *arguments)
    return [line for line in text.splitlines() if not line.startswith("Option --")]


def test_console_consumer_in_a_group_of_its_own(tool, conn, filled):
    before = {g.GroupId for g in conn.call("ListGroups").Groups}
    lines = console(tool, filled, "--from-beginning", "--max-messages", 18)
    assert sorted(lines) == sorted(f"{p}/{i}" for p in (0, 1) for i in range(10) if (p, i) not in ((0, 0), (0, 1)))
    (made,) = {g.GroupId for g in conn.call("ListGroups").Groups} - before
    assert re.fullmatch(r"console-consumer-\d+", made)
    assert committed(conn, made) == {}
    assert described(conn, made).GroupState == "Empty"


def test_console_consumer_ends_when_nothing_comes_any_more(tool, java, filled):
    lines = console(tool, filled, "--from-beginning", "--timeout-ms", 5000)
    assert len([line for line in lines if re.fullmatch(r"\d/\d", line)]) == 18  # 4.x logs the end on standard output
    assert "Processed a total of 18 messages" in java.errors


def test_console_consumer_with_default_settings_gets_what_is_written_from_now_on(tool, conn, topic):
    for _ in range(3):
        conn.produce(topic, 0, build([Record(value=b"before")]))
    before = {g.GroupId for g in conn.call("ListGroups").Groups}
    numbers = itertools.count()
    with concurrent.futures.ThreadPoolExecutor(1) as other:  # the time-out: this must end, whatever goes wrong
        reading = other.submit(console, tool, topic, "--max-messages", 20, "--timeout-ms", 60000)

        def joined():
            return {g.GroupId for g in conn.call("ListGroups", 4, StatesFilter=["Stable"]).Groups} - before

        def written():
            conn.produce(topic, 0, build([Record(value=b"%d" % next(numbers))]))
            return reading.done()

        (made,) = wait_until(joined, 60, "the console consumer has joined a group of its own")
        (one,) = described(conn, made).Members
        assert one.ClientId == "console-consumer" and one.MemberId.startswith("console-consumer-")
        assert one.ClientHost == "/127.0.0.1"
        wait_until(written, 60, "the console consumer has had 20 records")
        got = reading.result()
    first = int(got[0])
    assert got == [str(i) for i in range(first, first + 20)]


def test_console_consumer_goes_on_where_its_group_was(tool, conn, filled, group):
    first = console(tool, filled, "--group", group, "--from-beginning", "--max-messages", 7)
    assert len(first) == 7
    offsets = committed(conn, group)
    assert offsets[filled, 0] - 2 + offsets[filled, 1] == 7
    second = console(tool, filled, "--group", group, "--max-messages", 11)
    assert sorted(first + second) == sorted([f"0/{i}" for i in range(2, 10)] + [f"1/{i}" for i in range(10)])
    assert committed(conn, group) == {(filled, 0): 10, (filled, 1): 10}


def test_verifiable_consumer(java, broker, conn, filled, group):
    text = java.run(
        *("org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", broker.bootstrap, "--topic", filled),
        *("--group-id", group, "--max-messages", 18, "--verbose", "--session-timeout", 10000),
    )
    events = collections.defaultdict(list)
    for line in text.splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            events[event["name"]].append(event)
    both = [{"topic": filled, "partition": 0}, {"topic": filled, "partition": 1}]
    (assigned,) = events["partitions_assigned"]
    assert sorted(assigned["partitions"], key=lambda p: p["partition"]) == both
    assert sum(event["count"] for event in events["records_consumed"]) == 18
    handled = sorted((e["partition"], e["offset"], e["value"]) for e in events["record_data"])
    assert handled == [(p, i, f"{p}/{i}") for p in (0, 1) for i in range(2 - 2 * p, 10)]
    assert all(event["success"] for event in events["offsets_committed"])
    assert committed(conn, group) == {(filled, 0): 10, (filled, 1): 10}
    assert len(events["shutdown_complete"]) == 1
    assert described(conn, group).GroupState == "Empty"


# kafka-consumer-groups


def test_groups_are_listed_with_state_and_type(groups, java, broker, conn, filled, group):
    idle = f"{group}-idle"
    commit(conn, idle, {(filled, 0): 5})
    with member(broker, filled, group):
        wait_until(lambda: described(conn, group).GroupState == "Stable", 30, "the group is stable")
        assert {group, idle} <= set(groups("--list").split())
        states = {row["GROUP"]: row["STATE"] for row in table(groups("--list", "--state"), "GROUP", "STATE")}
        assert (states[group], states[idle]) == ("Stable", "Empty")
        stable = {row["GROUP"] for row in table(groups("--list", "--state", "stable"), "GROUP", "STATE")}
        assert group in stable and idle not in stable
        if conn.announced()[16][1] >= 5:  # ListGroups 5 is the first that knows types
            types = table(groups("--list", "--type"), "GROUP", "TYPE")
            assert {"GROUP": group, "TYPE": "Classic"} in types and {"GROUP": idle, "TYPE": "Classic"} in types
            assert group not in groups("--list", "--type", "consumer").split()


def test_an_active_group_is_described(groups, java, broker, conn, filled, group):
    with member(broker, filled, group, **{"partition.assignment.strategy": "roundrobin"}) as consumer:
        wait_until(lambda: described(conn, group).GroupState == "Stable", 30, "the group is stable")
        offsets = [confluent_kafka.TopicPartition(filled, 0, 5), confluent_kafka.TopicPartition(filled, 1, 7)]
        consumer.commit(offsets=offsets, asynchronous=False)
        (one,) = described(conn, group).Members

        for arguments in ((), ("--offsets",)):
            rows = table(groups("--describe", "--group", group, *arguments), *OFFSETS)
            assert sorted((row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows) == [
                ("0", "5", "5"),
                ("1", "7", "3"),
            ]
            for row in rows:
                assert (row["GROUP"], row["TOPIC"], row["LOG-END-OFFSET"]) == (group, filled, "10")
                assert (row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"]) == (one.MemberId, "/127.0.0.1", "watcher")

        (row,) = table(groups("--describe", "--group", group, "--members"), *MEMBERS)
        assert row == {
            "GROUP": group,
            "CONSUMER-ID": one.MemberId,
            "HOST": "/127.0.0.1",
            "CLIENT-ID": "watcher",
            "#PARTITIONS": "2",
        }
        text = groups("--describe", "--group", group, "--members", "--verbose")
        assert ("(0,1)" if java.version == "3.9.1" else f"{filled}:0,1") in text

        text = groups("--describe", "--group", group, "--state")
        found = re.search(r"^(\S+)\s+(\S+)\s+\((\d+)\)\s+(\S+)\s+(\S+)\s+(\d+)\s*$", text, re.MULTILINE)
        node = conn.metadata().Brokers[0].NodeId
        assert found.groups() == (group, broker.bootstrap, str(node), "roundrobin", "Stable", "1")

        assert f"\n{group} " in groups("--describe", "--all-groups")
        assert one.MemberId in groups("--describe", "--all-groups", "--members")
        assert "Stable" in groups("--describe", "--all-groups", "--state")


def test_a_group_without_members_and_one_that_is_not_there_are_described(groups, java, conn, filled, group):
    commit(conn, group, {(filled, 0): 4})
    rows = table(groups("--describe", "--group", group), *OFFSETS)
    assert f"Consumer group '{group}' has no active members." in java.errors
    (row,) = rows
    assert (row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("0", "4", "10", "6")
    assert (row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"]) == ("-", "-", "-")
    text = groups("--describe", "--group", group, "--state")
    assert re.search(rf"^{re.escape(group)}\s.*\sEmpty\s+0\s*$", text, re.MULTILINE)
    groups("--describe", "--group", group, "--members")
    assert f"Consumer group '{group}' has no active members." in java.errors
    text = groups("--describe", "--group", f"{group}-none", status=None)
    assert f"onsumer group '{group}-none' does not exist" in text + java.errors or "not found" in text + java.errors


COMMITTED = {0: 5, 1: 7}
RESETS = {
    "to-earliest": (("--to-earliest",), (2, 0)),
    "to-latest": (("--to-latest",), (10, 10)),
    "to-current": (("--to-current",), (5, 7)),
    "to-offset": (("--to-offset", 4), (4, 4)),
    "to-offset below": (("--to-offset", 1), (2, 1)),
    "to-offset above": (("--to-offset", 100), (10, 10)),
    "shift-by": (("--shift-by", 2), (7, 9)),
    "shift-by back": (("--shift-by", -2), (3, 5)),
    "shift-by past the end": (("--shift-by", 100), (10, 10)),
    "shift-by before the start": (("--shift-by", -100), (2, 0)),
    "by-duration": (("--by-duration", "PT6H30M"), (4, 4)),
}


def new_offsets(text, group):
    rows = table(text, *NEW_OFFSETS)
    assert {row["GROUP"] for row in rows} == {group}
    return {(row["TOPIC"], int(row["PARTITION"])): int(row["NEW-OFFSET"]) for row in rows}


def test_offsets_are_reset_in_every_way(groups, conn, filled, group):
    start = {(filled, index): offset for index, offset in COMMITTED.items()}
    for arguments, wanted in RESETS.values():
        commit(conn, group, start)
        text = groups("--reset-offsets", "--group", group, "--topic", filled, *arguments, "--execute")
        assert new_offsets(text, group) == {(filled, 0): wanted[0], (filled, 1): wanted[1]}, arguments
        assert committed(conn, group) == {(filled, 0): wanted[0], (filled, 1): wanted[1]}, arguments


def test_offsets_are_reset_to_a_time(groups, conn, filled, group):
    commit(conn, group, {(filled, 0): 5, (filled, 1): 7})

    def at(hours_ago):
        moment = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=hours_ago)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")

    for hours_ago, offset in ((3.5, 7), (9.5, 1), (-1, 10)):
        text = groups(
            "--reset-offsets", "--group", group, "--topic", f"{filled}:1", "--to-datetime", at(hours_ago), "--execute"
        )
        assert new_offsets(text, group) == {(filled, 1): offset}
        assert committed(conn, group) == {(filled, 0): 5, (filled, 1): offset}


def test_a_plan_is_shown_exported_and_read_from_a_file(groups, conn, filled, group, tmp_path):
    start = {(filled, 0): 5, (filled, 1): 7}
    commit(conn, group, start)
    for how in (("--dry-run",), ()):
        text = groups("--reset-offsets", "--group", group, "--all-topics", "--to-latest", *how)
        assert new_offsets(text, group) == {(filled, 0): 10, (filled, 1): 10}
    assert committed(conn, group) == start

    text = groups("--reset-offsets", "--group", group, "--all-topics", "--shift-by", 1, "--dry-run", "--export")
    plan = sorted(line.replace('"', "") for line in text.splitlines() if line.count(",") == 2)
    assert plan == [f"{filled},0,6", f"{filled},1,8"]
    assert committed(conn, group) == start

    path = tmp_path / "plan.csv"
    path.write_text("".join(f"{line}\n" for line in plan))
    groups("--reset-offsets", "--group", group, "--from-file", path, "--execute")
    assert committed(conn, group) == {(filled, 0): 6, (filled, 1): 8}


def test_several_groups_are_reset_at_once(groups, conn, filled, group):
    pair = [f"{group}-1", f"{group}-2"]
    for one in pair:
        commit(conn, one, {(filled, 0): 5})
    text = groups(
        *("--reset-offsets", "--group", pair[0], "--group", pair[1], "--all-topics", "--to-earliest", "--execute")
    )
    assert {row["GROUP"] for row in table(text, *NEW_OFFSETS)} == set(pair)
    assert [committed(conn, one) for one in pair] == [{(filled, 0): 2}] * 2


def test_an_active_group_is_not_reset(groups, java, broker, conn, filled, group):
    with member(broker, filled, group):
        text = groups("--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--execute", status=None)
        text += java.errors
        assert f"can only be reset if the group '{group}' is inactive, but the current state is Stable" in text
        assert committed(conn, group) == {}


def test_groups_are_deleted(groups, java, broker, conn, filled, group):
    pair = [f"{group}-1", f"{group}-2"]
    for one in pair:
        commit(conn, one, {(filled, 0): 5, (filled, 1): 1})
    text = groups("--delete", "--group", pair[0], "--group", pair[1])
    assert "was successful" in text and all(f"'{one}'" in text or one in text for one in pair)
    listed = {g.GroupId for g in conn.call("ListGroups").Groups}
    assert not listed & set(pair)
    assert all(committed(conn, one) == {} for one in pair)

    text = groups("--delete", "--group", pair[0], status=None) + java.errors
    assert "GroupIdNotFoundException" in text
    with member(broker, filled, group):
        text = groups("--delete", "--group", group, status=None) + java.errors
        assert "GroupNotEmptyException" in text
        assert described(conn, group).GroupState == "Stable"


def test_offsets_of_a_topic_are_deleted(groups, java, broker, conn, filled, group, topic_name):
    other = conn.new_topic(f"{topic_name}-other", 1)
    commit(conn, group, {(filled, 0): 5, (filled, 1): 6, (other, 0): 0})
    text = groups("--delete-offsets", "--group", group, "--topic", f"{filled}:1")
    assert table(text, "TOPIC", "PARTITION", "STATUS") == [{"TOPIC": filled, "PARTITION": "1", "STATUS": "Successful"}]
    assert committed(conn, group) == {(filled, 0): 5, (other, 0): 0}
    groups("--delete-offsets", "--group", group, "--topic", other)
    assert committed(conn, group) == {(filled, 0): 5}

    with member(broker, filled, group):
        wait_until(lambda: described(conn, group).GroupState == "Stable", 30, "the group is stable")
        text = groups("--delete-offsets", "--group", group, "--topic", filled, status=None) + java.errors
        assert "GroupSubscribedToTopicException" in text or "actively subscribed" in text
        assert committed(conn, group) == {(filled, 0): 5}
