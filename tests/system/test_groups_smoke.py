"""Consumer groups from end to end: what real clients commit is there after restarts and crashes; where it is kept; what
the coordinator's host does with requests that wait."""

import struct
import subprocess

import confluent_kafka
import pytest

import kafka39

from brokers import wait_until
from rawkafka import Closed, Kerr

pytestmark = pytest.mark.barnabas_only

SESSION_MS = 6000
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53


# ---- Raw requests


def coordinator(conn, group, version=3):
    return conn.call("FindCoordinator", version, Key=group, KeyType=0)


def await_coordinator(conn, group):
    """Waits until this broker is the group's coordinator and has loaded it."""

    def ready():
        if coordinator(conn, group).ErrorCode != Kerr.NONE:
            return False
        return conn.call("DescribeGroups", 5, Groups=[group]).Groups[0].ErrorCode == Kerr.NONE

    wait_until(ready, 30, f"{group} has a coordinator")


def join_fields(group, member="", session_ms=SESSION_MS, instance=None, rebalance_ms=60000):
    return {
        "GroupId": group,
        "SessionTimeoutMs": session_ms,
        "RebalanceTimeoutMs": rebalance_ms,
        "MemberId": member,
        "GroupInstanceId": instance,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}],
    }


def join(conn, group, **more):
    """Joins as a client does: a member id first, then in earnest."""
    answer = conn.call("JoinGroup", 5, **join_fields(group, **more))
    assert answer.ErrorCode == Kerr.MEMBER_ID_REQUIRED
    return conn.call("JoinGroup", 5, **join_fields(group, member=answer.MemberId, **more))


def sync_as_leader(conn, group, joined, assignment=b"mine"):
    return conn.call(
        "SyncGroup",
        3,
        GroupId=group,
        GenerationId=joined.GenerationId,
        MemberId=joined.MemberId,
        Assignments=[{"MemberId": joined.MemberId, "Assignment": assignment}],
    )


def commit_fields(group, topic, offsets, member="", generation=-1, metadata=""):
    rows = [
        {"PartitionIndex": index, "CommittedOffset": offset, "CommittedMetadata": metadata}
        for index, offset in offsets.items()
    ]
    return {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": generation,
        "MemberId": member,
        "Topics": [{"Name": topic, "Partitions": rows}],
    }


def commit(conn, group, topic, offsets, version=7, **more):
    answer = conn.call("OffsetCommit", version, **commit_fields(group, topic, offsets, **more))
    return {p.PartitionIndex: p.ErrorCode for t in answer.Topics for p in t.Partitions}


def committed(conn, group, topic, partitions, version=7):
    topics = [{"Name": topic, "PartitionIndexes": list(partitions)}]
    answer = conn.call("OffsetFetch", version, GroupId=group, Topics=topics)
    return {p.PartitionIndex: p.CommittedOffset for t in answer.Topics for p in t.Partitions}


# ---- Real clients


def produce(broker, topic, values):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consumer(broker, group):
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
        }
    )


def consume(one, count):
    got = []

    def some():
        message = one.poll(0.2)
        if message is not None and not message.error():
            got.append(message.value().decode())
        return len(got) >= count

    wait_until(some, 60, f"{count} messages")
    return got


def kcat(broker, group, topic):
    line = ["kcat", "-b", broker.bootstrap, "-X", "auto.offset.reset=earliest", "-e", "-G", group, topic]
    return subprocess.run(line, check=True, capture_output=True, timeout=90, text=True).stdout.split()


def test_a_group_goes_on_where_it_has_committed(fresh_broker, topic_name):
    broker = fresh_broker().start()
    produce(broker, topic_name, ["a", "b", "c", "d"])
    assert kcat(broker, "kcats", topic_name) == ["a", "b", "c", "d"]
    first = consumer(broker, "readers")
    first.subscribe([topic_name])
    assert consume(first, 4) == ["a", "b", "c", "d"]
    first.commit(asynchronous=False)
    first.close()
    broker.stop()
    broker.start()
    produce(broker, topic_name, ["e"])
    assert kcat(broker, "kcats", topic_name) == ["e"]
    second = consumer(broker, "readers")
    second.subscribe([topic_name])
    assert consume(second, 1) == ["e"]
    second.commit(asynchronous=False)
    second.close()
    broker.stop()


def test_what_was_committed_survives_a_kill(fresh_broker, topic_name):
    broker = fresh_broker().start()
    with broker.connect() as conn:
        conn.new_topic(topic_name, 3)
        await_coordinator(conn, "g")
        for offset in range(1, 30):
            assert commit(conn, "g", topic_name, {0: offset, 2: 100 + offset}) == {0: Kerr.NONE, 2: Kerr.NONE}
    broker.kill()
    broker.start()
    with broker.connect() as conn:
        await_coordinator(conn, "g")
        assert committed(conn, "g", topic_name, range(3)) == {0: 29, 1: -1, 2: 129}
    broker.stop()


def test_members_of_a_stable_group_stay_over_a_restart(fresh_broker):
    broker = fresh_broker().start()
    with broker.connect() as conn:
        await_coordinator(conn, "g")
        joined = join(conn, "g", session_ms=60000)
        assert joined.ErrorCode == Kerr.NONE
        assert sync_as_leader(conn, "g", joined).Assignment == b"mine"
    broker.stop()
    broker.start()
    with broker.connect() as conn:
        await_coordinator(conn, "g")
        beat = conn.call("Heartbeat", 3, GroupId="g", GenerationId=joined.GenerationId, MemberId=joined.MemberId)
        assert beat.ErrorCode == Kerr.NONE
        group = conn.call("DescribeGroups", 5, Groups=["g"]).Groups[0]
        assert (group.GroupState, [m.MemberAssignment for m in group.Members]) == ("Stable", [b"mine"])
        assert [m.ClientHost for m in group.Members] == ["/127.0.0.1"]
    broker.stop()


# ---- The offsets topic


def test_the_offsets_topic_is_made_when_somebody_asks(fresh_broker):
    broker = fresh_broker({"offsets.topic.num.partitions": 7, "auto.create.topics.enable": "false"}).start()
    with broker.connect() as conn:
        assert conn.metadata().Topics == []
        wait_until(lambda: coordinator(conn, "g").ErrorCode == Kerr.NONE, 30, "a coordinator")
        row = conn.metadata("__consumer_offsets").Topics[0]
        assert (row.IsInternal, len(row.Partitions)) == (True, 7)
        answer = conn.call(
            "DescribeConfigs", 4, Resources=[{"ResourceType": 2, "ResourceName": "__consumer_offsets"}]
        ).Results[0]
        settings = {entry.Name: entry.Value for entry in answer.Configs}
        assert settings["cleanup.policy"] == "compact"
        assert settings["segment.bytes"] == "104857600"
        assert settings["compression.type"] == "producer"
        found = coordinator(conn, "g")
        assert (found.NodeId, found.Host, found.Port) == (0, "127.0.0.1", broker.port)


def test_several_coordinators_are_found_at_once(fresh_broker):
    broker = fresh_broker().start()
    with broker.connect() as conn:
        await_coordinator(conn, "a")
        answer = conn.call("FindCoordinator", 6, KeyType=0, CoordinatorKeys=["a", "b", ""])
        assert [(c.Key, c.ErrorCode, c.NodeId) for c in answer.Coordinators] == [("a", 0, 0), ("b", 0, 0), ("", 0, 0)]
        refused = {1: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 2: Kerr.INVALID_REQUEST, 7: Kerr.INVALID_REQUEST}
        for kind, code in refused.items():
            answer = conn.call("FindCoordinator", 6, KeyType=kind, CoordinatorKeys=["x"])
            assert [(c.ErrorCode, c.NodeId, c.Port) for c in answer.Coordinators] == [(code, -1, -1)]
        assert conn.call("FindCoordinator", 0, Key="a").ErrorCode == Kerr.NONE


def test_offsets_and_groups_of_many_shards_in_one_request(fresh_broker, topic_name):
    broker = fresh_broker({"num.io.threads": 3}).start()
    names = [f"group-{i}" for i in range(40)]
    with broker.connect() as conn:
        conn.new_topic(topic_name, 2)
        await_coordinator(conn, names[0])
        for i, name in enumerate(names):
            assert commit(conn, name, topic_name, {1: i}) == {1: Kerr.NONE}
        asked = [{"GroupId": name, "Topics": [{"Name": topic_name, "PartitionIndexes": [0, 1]}]} for name in names]
        answer = conn.call("OffsetFetch", 8, Groups=asked)
        got = {g.GroupId: {p.PartitionIndex: p.CommittedOffset for p in g.Topics[0].Partitions} for g in answer.Groups}
        assert got == {name: {0: -1, 1: i} for i, name in enumerate(names)}
        all_topics = conn.call("OffsetFetch", 8, Groups=[{"GroupId": names[3], "Topics": None}]).Groups[0]
        assert [(t.Name, [(p.PartitionIndex, p.CommittedOffset) for p in t.Partitions]) for t in all_topics.Topics] == [
            (topic_name, [(1, 3)])
        ]
        listed = conn.call("ListGroups", 4, StatesFilter=[])
        assert listed.ErrorCode == Kerr.NONE
        assert sorted((g.GroupId, g.GroupState) for g in listed.Groups) == sorted((name, "Empty") for name in names)
        described = conn.call("DescribeGroups", 5, Groups=names + ["nobody"], IncludeAuthorizedOperations=True).Groups
        assert [(g.GroupId, g.GroupState) for g in described] == [(n, "Empty") for n in names] + [("nobody", "Dead")]
        deleted = conn.call("DeleteGroups", 2, GroupsNames=names[:20] + names[:1] + ["nobody"]).Results
        assert sorted((r.GroupId, r.ErrorCode) for r in deleted) == sorted(
            [(name, Kerr.NONE) for name in names[:20]] + [("nobody", Kerr.GROUP_ID_NOT_FOUND)]
        )
        assert committed(conn, names[0], topic_name, [1]) == {1: -1}
        assert committed(conn, names[20], topic_name, [1]) == {1: 20}
    broker.stop()
    broker.start()
    with broker.connect() as conn:
        for name in (names[0], names[20]):
            await_coordinator(conn, name)
        assert committed(conn, names[0], topic_name, [1]) == {1: -1}
        assert committed(conn, names[20], topic_name, [1]) == {1: 20}
    broker.stop()


def test_topics_that_are_not_there_are_refused_one_by_one(fresh_broker, topic_name):
    broker = fresh_broker().start()
    with broker.connect() as conn:
        conn.new_topic(topic_name, 2)
        await_coordinator(conn, "g")
        assert commit(conn, "g", topic_name, {0: 5, 2: 6}) == {0: Kerr.NONE, 2: Kerr.UNKNOWN_TOPIC_OR_PARTITION}
        assert commit(conn, "g", "nowhere", {0: 5}) == {0: Kerr.UNKNOWN_TOPIC_OR_PARTITION}
        rows = [{"Name": topic_name, "Partitions": [{"PartitionIndex": 0}, {"PartitionIndex": 9}]}]
        answer = conn.call("OffsetDelete", 0, GroupId="g", Topics=rows)
        assert answer.ErrorCode == Kerr.NONE
        assert {p.PartitionIndex: p.ErrorCode for p in answer.Topics[0].Partitions} == {
            0: Kerr.NONE,
            9: Kerr.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert committed(conn, "g", topic_name, [0]) == {0: -1}


def test_a_deleted_topic_takes_its_offsets_along(fresh_broker, topic_name):
    broker = fresh_broker().start()
    with broker.connect() as conn:
        conn.new_topic(topic_name)
        await_coordinator(conn, "g")
        assert commit(conn, "g", topic_name, {0: 5}) == {0: Kerr.NONE}
        assert conn.call("DeleteTopics", 3, TopicNames=[topic_name], TimeoutMs=30000).Responses[0].ErrorCode == Kerr.NONE
        wait_until(lambda: committed(conn, "g", topic_name, [0]) == {0: -1}, 30, "the offset goes")
        conn.new_topic(topic_name)
        assert committed(conn, "g", topic_name, [0]) == {0: -1}
    broker.kill()  # its tombstones may be in the log or not: nobody was told
    broker.start()
    broker.stop()


def test_a_commit_that_is_too_large_for_a_batch_is_refused(fresh_broker, topic_name):
    broker = fresh_broker({"offset.metadata.max.bytes": 100000}).start()
    with broker.connect() as conn:
        conn.new_topic(topic_name)
        await_coordinator(conn, "g")
        change = [{"Name": "max.message.bytes", "ConfigOperation": 0, "Value": "2000"}]
        row = {"ResourceType": 2, "ResourceName": "__consumer_offsets", "Configs": change}
        assert conn.call("IncrementalAlterConfigs", 1, Resources=[row]).Responses[0].ErrorCode == Kerr.NONE
        assert commit(conn, "g", topic_name, {0: 5}, metadata="x" * 4000) == {0: Kerr.INVALID_COMMIT_OFFSET_SIZE}
        assert commit(conn, "g", topic_name, {0: 6}, metadata="x" * 400) == {0: Kerr.NONE}
        assert committed(conn, "g", topic_name, [0]) == {0: 6}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_offsets_topic_in_every_codec(fresh_broker, topic_name, codec):
    broker = fresh_broker({"offsets.topic.compression.codec": codec, "offsets.topic.num.partitions": 1}).start()
    with broker.connect() as conn:
        conn.new_topic(topic_name)
        await_coordinator(conn, "g")
        assert commit(conn, "g", topic_name, {0: 7}, metadata="m" * 500) == {0: Kerr.NONE}
        records = conn.fetch("__consumer_offsets", 0, 0).Records
        (attributes,) = struct.unpack_from(">h", bytes(records), 21)
        assert attributes & 7 == codec
    broker.stop()
    broker.start()
    with broker.connect() as conn:
        await_coordinator(conn, "g")
        assert committed(conn, "g", topic_name, [0]) == {0: 7}


def test_commits_go_on_while_their_partition_moves(fresh_broker, topic_name, tmp_path):
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    broker = fresh_broker({"log.dirs": ",".join(dirs), "offsets.topic.num.partitions": 1}).start()

    def where():
        rows = [{"Topic": "__consumer_offsets", "Partitions": [0]}]
        found = conn.call("DescribeLogDirs", Topics=rows).Results
        return [(r.LogDir, p.IsFutureKey) for r in found for t in r.Topics for p in t.Partitions]

    with broker.connect() as conn:
        conn.new_topic(topic_name)
        await_coordinator(conn, "g")
        joined = join(conn, "g", session_ms=60000)
        sync_as_leader(conn, "g", joined)
        here = {"member": joined.MemberId, "generation": joined.GenerationId}
        offset = 0
        for _ in range(4):
            ((was, _),) = where()
            to = dirs[1 - dirs.index(was)]
            rows = [{"Path": to, "Topics": [{"Name": "__consumer_offsets", "Partitions": [0]}]}]
            answer = conn.call("AlterReplicaLogDirs", Dirs=rows).Results[0].Partitions[0]
            assert answer.ErrorCode == Kerr.NONE

            def committed_and_moved():
                nonlocal offset
                offset += 1
                assert commit(conn, "g", topic_name, {0: offset}, **here) == {0: Kerr.NONE}
                return where() == [(to, False)]

            wait_until(committed_and_moved, 60, "the move is over")
        assert committed(conn, "g", topic_name, [0]) == {0: offset}
    broker.kill()
    broker.start()
    with broker.connect() as conn:
        await_coordinator(conn, "g")
        assert committed(conn, "g", topic_name, [0]) == {0: offset}
        beat = conn.call("Heartbeat", 3, GroupId="g", GenerationId=joined.GenerationId, MemberId=joined.MemberId)
        assert beat.ErrorCode == Kerr.NONE
    broker.stop()


# ---- Offsets in the coordination store


def store_offsets(broker):
    """What stands below /consumers, of a broker that is stopped."""
    out = subprocess.run(
        [broker.binary(), "coord", "dump", str(broker.log_dir)], check=True, capture_output=True, text=True
    ).stdout
    lines = [line.split(" ", 2) for line in out.splitlines() if line.startswith("/consumers/")]
    return {line[0]: line[2] for line in lines if len(line) == 3 and line[2]}


def test_version_0_keeps_offsets_in_the_store(fresh_broker, topic_name):
    broker = fresh_broker().start()
    with broker.connect() as conn:
        conn.new_topic(topic_name, 2)
        unknown = Kerr.UNKNOWN_TOPIC_OR_PARTITION
        ask = [{"Name": topic_name, "PartitionIndexes": [0, 1, 2]}]
        before = conn.call("OffsetFetch", 0, GroupId="old", Topics=ask).Topics[0].Partitions
        assert [(p.CommittedOffset, p.ErrorCode) for p in before] == [(-1, unknown)] * 3
        assert commit(conn, "old", topic_name, {0: 41, 1: 7, 2: 9}, version=0) == {0: 0, 1: 0, 2: unknown}
        assert commit(conn, "old", topic_name, {0: 42}, version=0) == {0: 0}
        assert commit(conn, "old", topic_name, {0: 43}, version=0, metadata="x" * 4097) == {
            0: Kerr.OFFSET_METADATA_TOO_LARGE
        }
        after = conn.call("OffsetFetch", 0, GroupId="old", Topics=ask).Topics[0].Partitions
        assert [(p.CommittedOffset, p.Metadata, p.ErrorCode) for p in after] == [(42, "", 0), (7, "", 0), (-1, "", unknown)]
        await_coordinator(conn, "old")
        assert committed(conn, "old", topic_name, [0]) == {0: -1}  # the coordinator knows nothing of it
    broker.stop()
    path = f"/consumers/old/offsets/{topic_name}"
    assert store_offsets(broker) == {f"{path}/0": "42", f"{path}/1": "7"}


# ---- Requests that wait


def start_waiting_join(conn, group):
    """A member leads a stable group; a second one's JoinGroup then waits for the first to join again."""
    leader = join(conn, group, session_ms=60000)
    sync_as_leader(conn, group, leader)
    return leader


def test_a_stop_answers_a_waiting_join(fresh_broker):
    broker = fresh_broker({"num.io.threads": 2}).start()
    with broker.connect() as conn, broker.connect() as other:
        await_coordinator(conn, "g")
        start_waiting_join(conn, "g")
        named = other.call("JoinGroup", 5, **join_fields("g", session_ms=60000))
        waiting = other.send("JoinGroup", 5, **join_fields("g", member=named.MemberId, session_ms=60000))
        wait_until(
            lambda: conn.call("DescribeGroups", 5, Groups=["g"]).Groups[0].GroupState == "PreparingRebalance",
            30,
            "the rebalance begins",
        )
        broker.stop()
        try:
            assert other.receive(waiting).ErrorCode == Kerr.NOT_COORDINATOR
        except Closed:
            pytest.fail("the join was not answered")


def test_who_goes_away_while_joining_is_forgotten_by_the_request_only(fresh_broker):
    broker = fresh_broker({"num.io.threads": 2}).start()
    with broker.connect() as conn:
        await_coordinator(conn, "g")
        leader = start_waiting_join(conn, "g")
        for _ in range(20):  # connections are spread over the loops
            other = broker.connect()
            named = other.call("JoinGroup", 5, **join_fields("g"))
            other.send("JoinGroup", 5, **join_fields("g", member=named.MemberId))
            other.close()
        beat = {"GroupId": "g", "GenerationId": leader.GenerationId, "MemberId": leader.MemberId}
        wait_until(
            lambda: conn.call("Heartbeat", 3, **beat).ErrorCode == Kerr.REBALANCE_IN_PROGRESS, 30, "the rebalance"
        )
        again = conn.call("JoinGroup", 5, **join_fields("g", member=leader.MemberId, session_ms=60000))
        assert again.ErrorCode == Kerr.NONE
        assert again.Leader == leader.MemberId
    broker.stop()


def test_answers_keep_their_order_behind_a_waiting_join(fresh_broker, topic_name):
    broker = fresh_broker().start()
    with broker.connect() as conn, broker.connect() as other:
        conn.new_topic(topic_name)
        await_coordinator(conn, "g")
        leader = start_waiting_join(conn, "g")
        named = other.call("JoinGroup", 5, **join_fields("g"))
        waiting = other.send("JoinGroup", 5, **join_fields("g", member=named.MemberId))
        behind = other.send("OffsetCommit", 7, **commit_fields("elsewhere", topic_name, {0: 3}))
        wait_until(lambda: committed(conn, "elsewhere", topic_name, [0]) == {0: 3}, 30, "the commit is done")
        rejoin = conn.send("JoinGroup", 5, **join_fields("g", member=leader.MemberId, session_ms=60000))
        assert other.receive(waiting).ErrorCode == Kerr.NONE
        assert other.receive(behind).Topics[0].Partitions[0].ErrorCode == Kerr.NONE
        assert conn.receive(rejoin).ErrorCode == Kerr.NONE


# ---- Kafka's own directory


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_the_fixtures_groups_are_there(fresh_broker, tmp_path, which):
    log_dir, broker_id = kafka39.unpack(which, tmp_path)
    broker = fresh_broker({"log.dirs": log_dir, "log.cleaner.enable": "false"}).start()
    with broker.connect() as conn:
        await_coordinator(conn, "readers")
        listed = {g.GroupId for g in conn.call("ListGroups", 4, StatesFilter=[]).Groups}
        assert "readers" in listed
        found = conn.call("OffsetFetch", 7, GroupId="readers", Topics=None)
        assert found.ErrorCode == Kerr.NONE
        assert {(t.Name, p.PartitionIndex): (p.CommittedOffset, p.Metadata.rstrip("\0")) for t in found.Topics for p in t.Partitions} == {
            ("codec-none", 0): (7, "meta-0"),
            ("codec-none", 1): (17, "meta-1"),
            ("codec-none", 2): (27, "meta-2"),
            ("codec-gzip", 0): (42, ""),
        }
    broker.stop()
