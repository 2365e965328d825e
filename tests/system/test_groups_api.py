"""The group coordinator over the wire: every version of its requests, every error that the protocol has for them."""

import struct
import uuid

import pytest

import messages
from brokers import wait_until
from groups import (
    CONSUMER,
    Member,
    assignment,
    await_loaded,
    commit,
    committed,
    describe,
    fetch,
    fetch_groups,
    find_coordinator,
    settle,
    subscription,
)
from rawkafka import Kerr

METADATA_MAX = 64
SIZE_MAX = 5
SESSION_MIN_MS, SESSION_MAX_MS = 100, 600000
BROKER_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": SESSION_MIN_MS,
    "group.max.session.timeout.ms": SESSION_MAX_MS,
    "group.max.size": SIZE_MAX,
    "offset.metadata.max.bytes": METADATA_MAX,
    "offsets.topic.num.partitions": "5",
    "log.segment.delete.delay.ms": "0",
}
NOBODY = "nobody-00000000-0000-0000-0000-000000000000"


def versions(api, first=0, last=None):
    """A test's parameter: each version that Kafka 3.9 has; what a broker does not serve is skipped."""
    known = messages.message(api).request.versions
    newest = {"OffsetCommit": 9, "OffsetFetch": 9, "DescribeGroups": 5}.get(api, known.stop - 1)
    last = newest if last is None else min(last, newest)
    return pytest.mark.parametrize("version", range(first, last + 1))


@pytest.fixture
def served(conn, request, kind):
    """Skips the versions that later Kafkas have dropped; ours serves them all."""
    version = request.getfixturevalue("version") if "version" in request.fixturenames else None

    def check(api):
        first, last = conn.announced()[messages.message(api).key]
        if version is not None and not first <= version <= last:
            assert kind == "kafka43", f"{api} {version} is not served, only {first} to {last}"
            pytest.skip(f"Apache Kafka 4.3 does not serve {api} {version}")

    return check


@pytest.fixture(scope="module")
def shared_topic(broker):
    with broker.connect() as c:
        return c.new_topic("shared", 4)


@pytest.fixture
def group(broker, topic_name):
    """A group's name that no other test uses, whose coordinator is ready."""
    with broker.connect() as c:
        await_loaded(c, topic_name)
    return topic_name


@pytest.fixture
def member(broker, group):
    """Makes members of the test's group."""
    made = []

    def make(**more):
        made.append(Member(broker, more.pop("group", group), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def state_of(conn, group):
    return describe(conn, group).GroupState


def await_state(conn, group, state):
    wait_until(lambda: state_of(conn, group) == state, 60, f"{group} is {state}")


class TestFindCoordinator:
    @versions("FindCoordinator")
    def test_it_is_this_broker(self, broker, conn, group, version, served):
        served("FindCoordinator")
        answer = find_coordinator(conn, group, version)
        assert (answer.Host, answer.Port) == broker.address
        assert answer.NodeId == conn.metadata().Brokers[0].NodeId

    @versions("FindCoordinator", first=4)
    def test_several_groups_at_once_are_answered_in_their_order(self, broker, conn, group, version):
        names = [f"{group}-{i}" for i in range(20)] + [group]
        answer = conn.call("FindCoordinator", version, KeyType=0, CoordinatorKeys=names)
        assert [row.Key for row in answer.Coordinators] == names
        assert {(row.ErrorCode, row.Host, row.Port) for row in answer.Coordinators} == {(0, *broker.address)}
        assert conn.call("FindCoordinator", version, KeyType=0, CoordinatorKeys=[]).Coordinators == []

    def test_share_groups_are_refused(self, conn, kind):
        if conn.newest("FindCoordinator") < 6 or kind == "kafka43":
            pytest.skip("share groups are not asked for before version 6, and there in Kafka 4")
        answer = conn.call("FindCoordinator", 6, KeyType=2, CoordinatorKeys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
        assert answer.Coordinators[0].ErrorCode in (Kerr.INVALID_REQUEST, Kerr.COORDINATOR_NOT_AVAILABLE)
        assert answer.Coordinators[0].NodeId == -1

    def test_the_topic_is_made_for_the_first_who_ask_and_nothing_is_served_before(self, fresh_broker):
        broker = fresh_broker({"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}).start()
        with broker.connect() as c, Member(broker, "early") as early:
            c.new_topic("t")
            assert "__consumer_offsets" not in [topic.Name for topic in c.metadata().Topics]
            not_here = Kerr.NOT_COORDINATOR
            assert early.join_once().ErrorCode == not_here
            assert early.sync().ErrorCode == not_here
            assert early.heartbeat() == not_here
            assert early.leave() == not_here
            assert commit(c, "early", {("t", 0): 1}) == {("t", 0): not_here}
            assert fetch_groups(c, {"early": [("t", 0)]}) == {"early": (not_here, {})}
            assert describe(c, "early").ErrorCode == not_here
            assert [row.ErrorCode for row in c.call("DeleteGroups", GroupsNames=["early"]).Results] == [not_here]
            assert c.call("OffsetDelete", GroupId="early", Topics=[]).ErrorCode == not_here
            answer = c.call("ListGroups")
            assert answer.ErrorCode == Kerr.NONE and answer.Groups == []

            await_loaded(c, "early")
            row = c.metadata("__consumer_offsets").Topics[0]
            assert row.IsInternal and len(row.Partitions) == 3
            asked = [{"ResourceType": 2, "ResourceName": "__consumer_offsets", "ConfigurationKeys": None}]
            configs = {row.Name: row.Value for row in c.call("DescribeConfigs", Resources=asked).Results[0].Configs}
            assert configs["cleanup.policy"] == "compact"
            assert configs["segment.bytes"] == str(100 << 20)
            assert configs["compression.type"] == "producer"
            assert early.join().ErrorCode == Kerr.NONE


class TestJoin:
    @versions("JoinGroup")
    def test_the_first_member_leads_and_gets_the_members(self, member, version, served):
        served("JoinGroup")
        one = member(protocols=[("range", subscription("range")), ("sticky", subscription("sticky"))])
        first = one.join_once(version)
        if version >= 4:
            assert (first.ErrorCode, first.GenerationId, first.Leader) == (Kerr.MEMBER_ID_REQUIRED, -1, "")
            assert first.Members == [] and first.get("ProtocolName") in ("", None)
            assert first.MemberId.startswith("member-")
            first = one.join_once(version)
        assert first.ErrorCode == Kerr.NONE and first.GenerationId == 1
        assert first.MemberId == first.Leader != ""
        assert first.ProtocolName == "range"
        assert [(row.MemberId, row.Metadata) for row in first.Members] == [(one.id, subscription("range"))]
        if version >= 5:
            assert first.Members[0].GroupInstanceId is None
        if version >= 7:
            assert first.ProtocolType == CONSUMER
        if version >= 9:
            assert first.SkipAssignment is False

    @versions("JoinGroup", first=5)
    def test_a_static_member_needs_no_id_first(self, member, version):
        one = member(instance="i1")
        answer = one.join_once(version)
        assert answer.ErrorCode == Kerr.NONE and answer.MemberId.startswith("i1-")
        assert [row.GroupInstanceId for row in answer.Members] == ["i1"]

    def test_members_agree_on_the_protocol_that_most_prefer_of_those_that_all_have(self, conn, member, group):
        a = member(protocols=[("only-a", b""), ("x", b"ax"), ("y", b"ay")])
        b = member(protocols=[("y", b"by"), ("x", b"bx")])
        c = member(protocols=[("y", b"cy"), ("x", b"cx"), ("only-c", b"")])
        leader = settle(a, b, c)
        assert {one.joined.ProtocolName for one in (a, b, c)} == {"y"}
        assert {row.MemberId: row.Metadata for row in leader.joined.Members} == {a.id: b"ay", b.id: b"by", c.id: b"cy"}
        assert all(one.joined.Members == [] for one in (a, b, c) if one is not leader)
        assert len({one.generation for one in (a, b, c)}) == 1
        assert [one.assignment for one in (a, b, c)] == [one.id.encode() for one in (a, b, c)]

    @pytest.mark.parametrize("session_ms", [SESSION_MIN_MS - 1, SESSION_MAX_MS + 1, -1, 0, 2**31 - 1])
    def test_session_timeouts_out_of_bounds(self, conn, member, group, session_ms):
        answer = member(session_ms=session_ms).join_once()
        assert answer.ErrorCode == Kerr.INVALID_SESSION_TIMEOUT and answer.GenerationId == -1
        assert state_of(conn, group) == "Dead"

    @pytest.mark.parametrize("session_ms", [SESSION_MIN_MS, SESSION_MAX_MS])
    def test_session_timeouts_at_the_bounds(self, member, session_ms):
        assert member(session_ms=session_ms).join().GenerationId == 1

    def test_the_empty_group_id(self, member):
        answer = member(group="").join_once()
        assert answer.ErrorCode == Kerr.INVALID_GROUP_ID and answer.MemberId == ""

    def test_unknown_ids(self, conn, member, group):
        for known in (False, True):
            stranger = member()
            stranger.id = NOBODY
            answer = stranger.join_once()
            assert (answer.ErrorCode, answer.MemberId) == (Kerr.UNKNOWN_MEMBER_ID, NOBODY)
            if not known:
                assert state_of(conn, group) == "Dead"
                settle(member())

    def test_protocols_that_do_not_fit(self, member, group):
        settle(member(protocols=[("a", b""), ("b", b"")]))
        refused = Kerr.INCONSISTENT_GROUP_PROTOCOL
        assert member(protocols=[("c", b"")]).join_once().ErrorCode == refused
        assert member(protocols=[("b", b"")], protocol_type="connect").join_once().ErrorCode == refused
        assert member(protocols=[("b", b"")], protocol_type="").join_once().ErrorCode == refused
        fits = member(protocols=[("b", b"")])
        assert fits.join_once().ErrorCode == Kerr.MEMBER_ID_REQUIRED
        fits.protocols = [("c", b"")]
        assert fits.join_once().ErrorCode == refused

    def test_a_new_group_needs_a_protocol(self, conn, member, group):
        for protocol_type, fields in (("consumer", {"Protocols": []}), ("", {})):
            one = member(protocol_type=protocol_type)
            assert one.join_once(**fields).ErrorCode == Kerr.INCONSISTENT_GROUP_PROTOCOL

    def test_a_full_group_takes_no_more(self, conn, member, group):
        members = [member() for _ in range(SIZE_MAX)]
        settle(*members)
        more = member()
        answer = more.join_once()
        assert (answer.ErrorCode, answer.MemberId) == (Kerr.GROUP_MAX_SIZE_REACHED, "")
        assert more.join_once(3).ErrorCode == Kerr.GROUP_MAX_SIZE_REACHED
        assert {one.heartbeat() for one in members} == {Kerr.NONE}
        assert members[0].leave() == Kerr.NONE
        settle(*members[1:], more)
        assert len(describe(conn, group).Members) == SIZE_MAX

    def test_the_same_join_again_in_one_generation(self, member, group):
        """A member that did not get its answer asks again: no new generation, unless the leader does, or its metadata
        is another."""
        a, b = member(), member()
        leader = settle(a, b)
        (other,) = [one for one in (a, b) if one is not leader]
        generation = leader.generation
        answer = other.join_once()
        assert (answer.ErrorCode, answer.GenerationId) == (Kerr.NONE, generation)
        assert answer.Members == [] and answer.Leader == leader.id
        assert leader.heartbeat() == Kerr.NONE

        other.protocols = [("range", subscription("another"))]
        again = other.send_join()
        wait_until(lambda: leader.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the leader is told to join")
        assert leader.join_once().GenerationId == generation + 1
        assert other.receive_join(again).GenerationId == generation + 1

        # Between Join and Sync both may ask again.
        for one in (leader, other):
            answer = one.join_once()
            assert (answer.ErrorCode, answer.GenerationId) == (Kerr.NONE, generation + 1)
            assert len(answer.Members) == (2 if one is leader else 0)
        assert leader.sync({leader.id: b"l", other.id: b"o"}).Assignment == b"l"
        assert other.sync().Assignment == b"o"

        again = leader.send_join()  # it leads: topics may have changed that it alone looks at
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the other is told to join")
        assert other.join_once().GenerationId == generation + 2
        assert leader.receive_join(again).GenerationId == generation + 2

    def test_members_that_do_not_come_back_are_out_after_the_rebalance_timeout(self, conn, member, group):
        slow, fast = member(rebalance_ms=2000), member(rebalance_ms=2000)
        settle(slow, fast)
        third = member(rebalance_ms=2000)
        assert third.join_once().ErrorCode == Kerr.MEMBER_ID_REQUIRED
        joins = third.send_join()
        wait_until(lambda: fast.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the group rebalances")
        assert state_of(conn, group) == "PreparingRebalance"
        assert fast.join_once().ErrorCode == Kerr.NONE
        assert third.receive_join(joins).ErrorCode == Kerr.NONE
        assert slow.heartbeat() == Kerr.UNKNOWN_MEMBER_ID
        assert slow.join_once().ErrorCode == Kerr.UNKNOWN_MEMBER_ID

    def test_ids_that_nobody_comes_back_with_hold_up_the_group_for_a_session(self, member, group):
        a = member(session_ms=600)
        settle(a)
        pending = member(session_ms=1500)
        assert pending.join_once().ErrorCode == Kerr.MEMBER_ID_REQUIRED
        assert a.heartbeat() == Kerr.NONE  # it is not a member yet
        assert a.join_once().GenerationId == 2  # waits until the id is forgotten, or the others would rebalance again
        assert pending.join_once().ErrorCode == Kerr.UNKNOWN_MEMBER_ID

    def test_an_id_that_was_given_out_can_leave(self, member, group):
        a = member()
        settle(a)
        pending = member(session_ms=SESSION_MAX_MS)
        assert pending.join_once().ErrorCode == Kerr.MEMBER_ID_REQUIRED
        joins = a.send_join()
        assert pending.leave() == Kerr.NONE
        assert a.receive_join(joins).GenerationId == 2
        assert pending.join_once().ErrorCode == Kerr.UNKNOWN_MEMBER_ID

    def test_a_member_that_is_silent_is_out_after_its_session(self, conn, member, group):
        silent, alive = member(session_ms=600), member()
        settle(silent, alive)
        wait_until(lambda: alive.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the silent one is out")
        assert silent.heartbeat() == Kerr.UNKNOWN_MEMBER_ID
        assert alive.join_once().ErrorCode == Kerr.NONE and alive.leads

    def test_the_last_members_session_leaves_an_empty_group(self, conn, member, group, shared_topic):
        last = member(session_ms=500)
        settle(last)
        assert last.commit({(shared_topic, 0): 1}) == {(shared_topic, 0): 0}
        await_state(conn, group, "Empty")
        assert last.heartbeat() == Kerr.UNKNOWN_MEMBER_ID
        assert member().join().GenerationId == 3  # that it became empty was one, too


class TestSync:
    @versions("SyncGroup")
    def test_each_gets_what_the_leader_gives_it(self, member, version, served):
        served("SyncGroup")
        a, b = member(), member()
        leader = settle(a, b)
        for one in (a, b):
            answer = one.sync(version=version)
            assert (answer.ErrorCode, answer.Assignment) == (Kerr.NONE, one.id.encode())
            if version >= 5:
                assert (answer.ProtocolType, answer.ProtocolName) == (CONSUMER, "range")
        again = leader.send_join()
        (other,) = [one for one in (a, b) if one is not leader]
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "it is told to join")
        assert other.join_once().ErrorCode == leader.receive_join(again).ErrorCode == Kerr.NONE
        waits = other.send_sync(version=version)
        given = leader.sync({leader.id: bytes(100000), other.id: b""}, version=version)
        assert given.Assignment == bytes(100000)
        assert other.receive_sync(waits).Assignment == b""

    def test_who_is_not_given_anything_gets_nothing(self, member):
        a = member()
        a.join()
        answer = a.sync({"somebody else": b"x"})
        assert (answer.ErrorCode, answer.Assignment) == (Kerr.NONE, b"")

    def test_errors(self, member, group):
        a = member()
        assert a.sync().ErrorCode == Kerr.UNKNOWN_MEMBER_ID  # there is no group
        settle(a)
        assert a.sync(MemberId=NOBODY).ErrorCode == Kerr.UNKNOWN_MEMBER_ID
        assert a.sync(MemberId="").ErrorCode == Kerr.UNKNOWN_MEMBER_ID
        assert a.sync(GenerationId=a.generation + 1).ErrorCode == Kerr.ILLEGAL_GENERATION
        assert a.sync(GenerationId=-1).ErrorCode == Kerr.ILLEGAL_GENERATION
        assert a.sync(ProtocolType="connect").ErrorCode == Kerr.INCONSISTENT_GROUP_PROTOCOL
        assert a.sync(ProtocolName="sticky").ErrorCode == Kerr.INCONSISTENT_GROUP_PROTOCOL
        assert a.sync(ProtocolType=None).ErrorCode == Kerr.INCONSISTENT_GROUP_PROTOCOL
        assert a.sync(ProtocolName=None).ErrorCode == Kerr.INCONSISTENT_GROUP_PROTOCOL
        assert a.sync(GroupInstanceId="nobody").ErrorCode == Kerr.UNKNOWN_MEMBER_ID
        assert a.sync(GroupId="").ErrorCode == Kerr.INVALID_GROUP_ID
        assert a.sync().Assignment == a.id.encode()

    def test_a_rebalance_meanwhile_sends_all_back_to_join(self, member, group):
        a, b = member(), member()
        leader = settle(a, b)
        (other,) = [one for one in (a, b) if one is not leader]
        again = leader.send_join()
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "it is told to join")
        assert other.sync().ErrorCode == Kerr.REBALANCE_IN_PROGRESS
        assert other.join_once().ErrorCode == leader.receive_join(again).ErrorCode == Kerr.NONE
        waits = other.send_sync()
        assert leader.leave() == Kerr.NONE  # and never assigned anything
        assert other.receive_sync(waits).ErrorCode == Kerr.REBALANCE_IN_PROGRESS
        answer = other.join_once()
        assert answer.ErrorCode == Kerr.NONE and other.leads

    def test_who_does_not_sync_is_out_after_the_rebalance_timeout(self, member, group):
        a, b = member(rebalance_ms=2000), member(rebalance_ms=2000)
        leader = settle(a, b)
        (other,) = [one for one in (a, b) if one is not leader]
        again = leader.send_join()
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "it is told to join")
        assert other.join_once().ErrorCode == leader.receive_join(again).ErrorCode == Kerr.NONE
        assert leader.sync({leader.id: b"l", other.id: b"o"}).Assignment == b"l"
        wait_until(lambda: leader.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the other one is out")
        assert other.heartbeat() == Kerr.UNKNOWN_MEMBER_ID
        assert [row.MemberId for row in leader.join_once().Members] == [leader.id]

    def test_a_leader_that_does_not_sync_is_out_after_the_rebalance_timeout(self, member, group):
        a, b = member(rebalance_ms=2000), member(rebalance_ms=2000)
        leader = settle(a, b)
        (other,) = [one for one in (a, b) if one is not leader]
        again = leader.send_join()
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "it is told to join")
        assert other.join_once().ErrorCode == leader.receive_join(again).ErrorCode == Kerr.NONE
        assert other.sync().ErrorCode == Kerr.REBALANCE_IN_PROGRESS  # when the leader is given up
        assert leader.heartbeat() == Kerr.UNKNOWN_MEMBER_ID
        assert other.join_once().ErrorCode == Kerr.NONE and other.leads


class TestHeartbeatAndLeave:
    @versions("Heartbeat")
    def test_heartbeats(self, member, group, version, served):
        served("Heartbeat")
        a = member()
        assert a.heartbeat(version) == Kerr.UNKNOWN_MEMBER_ID
        settle(a)
        assert a.heartbeat(version) == Kerr.NONE
        assert a.heartbeat(version, MemberId=NOBODY) == Kerr.UNKNOWN_MEMBER_ID
        assert a.heartbeat(version, MemberId="") == Kerr.UNKNOWN_MEMBER_ID
        assert a.heartbeat(version, GenerationId=a.generation - 1) == Kerr.ILLEGAL_GENERATION
        assert a.heartbeat(version, GroupId="") == Kerr.INVALID_GROUP_ID
        if version >= 3:
            assert a.heartbeat(version, GroupInstanceId="nobody") == Kerr.UNKNOWN_MEMBER_ID

    def test_a_heartbeat_between_join_and_sync_is_fine(self, member, group):
        a = member()
        a.join()
        assert a.heartbeat() == Kerr.NONE

    @versions("LeaveGroup")
    def test_leaving_has_the_others_rebalance(self, conn, member, group, version, served):
        served("LeaveGroup")
        a, b = member(), member()
        settle(a, b)
        assert a.leave(version) == Kerr.NONE
        assert a.leave(version) == Kerr.UNKNOWN_MEMBER_ID
        assert b.heartbeat() == Kerr.REBALANCE_IN_PROGRESS
        assert b.join_once().ErrorCode == Kerr.NONE and b.leads
        assert b.leave(version) == Kerr.NONE
        assert state_of(conn, group) == "Empty"
        assert member(group=f"{group}-not").leave(version) == Kerr.UNKNOWN_MEMBER_ID

    @versions("LeaveGroup", first=3)
    def test_several_leave_at_once(self, conn, member, group, version, served):
        dynamic, one, two = member(), member(instance="one"), member(instance="two")
        settle(dynamic, one, two)
        rows = [
            {"MemberId": "", "GroupInstanceId": "one"},
            {"MemberId": NOBODY, "GroupInstanceId": "two"},
            {"MemberId": NOBODY},
            {"MemberId": dynamic.id},
            {"MemberId": "", "GroupInstanceId": "nobody"},
            {"MemberId": ""},
        ]
        if version >= 5:
            rows[0]["Reason"] = "an operator wants it"
        answer = conn.call("LeaveGroup", version, GroupId=group, Members=rows)
        assert answer.ErrorCode == Kerr.NONE
        assert [(row.MemberId, row.GroupInstanceId, row.ErrorCode) for row in answer.Members] == [
            ("", "one", Kerr.NONE),
            (NOBODY, "two", Kerr.FENCED_INSTANCE_ID),
            (NOBODY, None, Kerr.UNKNOWN_MEMBER_ID),
            (dynamic.id, None, Kerr.NONE),
            ("", "nobody", Kerr.UNKNOWN_MEMBER_ID),
            ("", None, Kerr.UNKNOWN_MEMBER_ID),
        ]
        assert two.heartbeat() == Kerr.REBALANCE_IN_PROGRESS
        assert [row.GroupInstanceId for row in describe(conn, group).Members] == ["two"]

    def test_the_empty_group_id(self, conn):
        answer = conn.call("LeaveGroup", 3, GroupId="", Members=[{"MemberId": NOBODY}])
        assert answer.ErrorCode == Kerr.INVALID_GROUP_ID


class TestStaticMembers:
    @versions("JoinGroup", first=5)
    def test_a_restart_is_no_rebalance(self, conn, member, group, version):
        """The new life takes the old one's place and assignment; the old one is fenced."""
        old, other = member(instance="s"), member(instance="o")
        leader = settle(old, other)
        generation = old.generation
        new = member(instance="s")
        answer = new.join_once(version)
        assert (answer.ErrorCode, answer.GenerationId) == (Kerr.NONE, generation)
        assert new.id.startswith("s-") and new.id != old.id
        if leader is old:
            # Before version 9 it may not know that it leads: it would assign anew, and nobody would be told.
            assert answer.Leader == (new.id if version >= 9 else old.id)
            assert sorted(row.GroupInstanceId for row in answer.Members) == (["o", "s"] if version >= 9 else [])
        else:
            assert (answer.Leader, answer.Members) == (other.id, [])
        if version >= 9:
            assert answer.SkipAssignment is (leader is old)
        assert new.sync().Assignment == old.id.encode()
        assert other.heartbeat() == new.heartbeat() == Kerr.NONE
        assert state_of(conn, group) == "Stable"

        fenced = Kerr.FENCED_INSTANCE_ID
        assert old.heartbeat() == fenced
        assert old.sync().ErrorCode == fenced
        assert old.join_once().ErrorCode == fenced
        assert old.leave() == fenced
        assert old.heartbeat(2) == Kerr.UNKNOWN_MEMBER_ID  # without its instance's id
        assert new.heartbeat() == Kerr.NONE

    def test_a_fenced_one_commits_nothing(self, member, group, shared_topic):
        old = member(instance="s")
        settle(old)
        new = member(instance="s")
        assert new.join_once().ErrorCode == Kerr.NONE
        where = shared_topic, 0
        assert old.commit({where: 5}) == {where: Kerr.FENCED_INSTANCE_ID}
        assert new.commit({where: 6}) == {where: Kerr.NONE}
        assert committed(new.conn, group, [where]) == {where: 6}

    def test_a_leader_that_restarts_with_version_9_goes_on_leading(self, member, group):
        leader, other = member(instance="l"), member(instance="o")
        first = settle(leader, other)
        if first is not leader:
            leader, other = other, leader
        new = member(instance=leader.instance)
        answer = new.join_once(9)
        assert answer.SkipAssignment is True and answer.Leader == new.id
        assert {row.GroupInstanceId: row.MemberId for row in answer.Members} == {
            leader.instance: new.id,
            other.instance: other.id,
        }
        assert new.sync().Assignment == leader.id.encode()
        generation = new.generation
        again = new.send_join()  # with its id: it has a rebalance, as any leader
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the other is told to join")
        assert other.join_once().GenerationId == generation + 1
        answer = new.receive_join(again)
        assert answer.GenerationId == generation + 1 and new.leads and not answer.SkipAssignment

    def test_a_restart_that_would_change_the_protocol_is_a_rebalance(self, member, group):
        old = member(instance="s", protocols=[("x", b""), ("y", b"")])
        other = member(instance="o", protocols=[("x", b""), ("y", b"")])
        settle(old, other)
        assert old.joined.ProtocolName == "x"
        new = member(instance="s", protocols=[("y", b"")])
        joins = new.send_join()
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the other is told to join")
        assert other.join_once().ProtocolName == "y"
        assert new.receive_join(joins).ProtocolName == "y"

    def test_a_restart_between_join_and_sync_is_a_rebalance(self, member, group):
        old = member(instance="s")
        old.join()
        new = member(instance="s")
        assert new.join().GenerationId == old.generation + 1
        assert old.sync({old.id: b"x"}).ErrorCode == Kerr.FENCED_INSTANCE_ID
        assert new.sync({new.id: b"y"}).Assignment == b"y"

    def test_a_waiting_join_is_fenced_by_a_newer_life(self, member, group):
        holds, old = member(), member(instance="s")
        settle(holds, old)
        wakes = member()
        assert wakes.join_once().ErrorCode == Kerr.MEMBER_ID_REQUIRED
        wakes_joins = wakes.send_join()
        wait_until(lambda: old.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the group rebalances")
        waits = old.send_join()
        assert old.conn.newest("JoinGroup") >= 5
        new = member(instance="s")
        joins = new.send_join()
        answer = old.receive_join(waits)
        assert answer.ErrorCode == Kerr.FENCED_INSTANCE_ID
        assert holds.join_once().ErrorCode == Kerr.NONE
        assert wakes.receive_join(wakes_joins).ErrorCode == Kerr.NONE
        assert new.receive_join(joins).ErrorCode == Kerr.NONE
        (leader,) = [one for one in (holds, wakes, new) if one.leads]
        assert sorted(row.GroupInstanceId or "" for row in leader.joined.Members) == ["", "", "s"]

    def test_a_static_member_stays_over_a_rebalance_that_it_misses(self, conn, member, group):
        """Only its session ends it, which is what it is for."""
        away, here = member(instance="away", rebalance_ms=500), member(instance="here", rebalance_ms=500)
        settle(away, here)
        here.protocols = [("range", subscription("another"))]
        joins = here.send_join()
        assert here.receive_join(joins).ErrorCode == Kerr.NONE
        assert sorted(row.GroupInstanceId for row in describe(conn, group).Members) == ["away", "here"]

    def test_somebody_elses_instance_with_an_id_of_ones_own(self, member, group):
        static, dynamic = member(instance="s"), member()
        settle(static, dynamic)
        dynamic.instance = "s"
        assert dynamic.heartbeat() == Kerr.FENCED_INSTANCE_ID
        assert dynamic.join_once().ErrorCode == Kerr.FENCED_INSTANCE_ID
        assert static.heartbeat() == Kerr.NONE


class TestOffsets:
    @versions("OffsetCommit", first=1)
    def test_commits_of_no_member(self, conn, group, shared_topic, version, served):
        served("OffsetCommit")
        a, b = (shared_topic, 0), (shared_topic, 3)
        rows = {
            a: {"CommittedOffset": 7, "CommittedMetadata": "meta"},
            b: {"CommittedOffset": 0, "CommittedMetadata": None},
        }
        if version >= 6:
            rows[a]["CommittedLeaderEpoch"] = 4
        assert commit(conn, group, rows, version) == {a: Kerr.NONE, b: Kerr.NONE}
        found = fetch(conn, group, [a, b])
        assert (found[a].CommittedOffset, found[a].Metadata) == (7, "meta")
        assert found[a].CommittedLeaderEpoch == (4 if version >= 6 else -1)
        assert (found[b].CommittedOffset, found[b].Metadata, found[b].CommittedLeaderEpoch) == (0, "", -1)
        assert state_of(conn, group) == "Empty"
        assert commit(conn, group, {a: 6}, version) == {a: Kerr.NONE}  # who commits may go back
        assert committed(conn, group, [a, b]) == {a: 6, b: 0}

    @versions("OffsetCommit", first=1)
    def test_commits_of_members(self, conn, member, group, shared_topic, version, served):
        served("OffsetCommit")
        a = member()
        settle(a)
        where = shared_topic, 1
        assert a.commit({where: 3}, version) == {where: Kerr.NONE}
        assert committed(conn, group, [where]) == {where: 3}
        wrong = {
            Kerr.ILLEGAL_GENERATION: [{"GenerationIdOrMemberEpoch": n} for n in (a.generation + 1, -1)],
            Kerr.UNKNOWN_MEMBER_ID: [{"MemberId": NOBODY}, {"MemberId": "", "GenerationIdOrMemberEpoch": -1}],
        }
        if version >= 7:
            wrong[Kerr.UNKNOWN_MEMBER_ID].append({"GroupInstanceId": "nobody"})
        for kerr, changes in wrong.items():
            for change in changes:
                assert a.commit({where: 4}, version, **change) == {where: kerr}, change
        assert committed(conn, group, [where]) == {where: 3}

    def test_a_generation_of_a_group_that_is_not_there(self, conn, group, shared_topic):
        where = shared_topic, 0
        error = commit(conn, group, {where: 1}, MemberId=NOBODY, GenerationIdOrMemberEpoch=1)
        assert error == {where: Kerr.ILLEGAL_GENERATION}
        assert state_of(conn, group) == "Dead"

    def test_commits_while_the_group_rebalances(self, member, group, shared_topic):
        a, b = member(), member()
        leader = settle(a, b)
        (other,) = [one for one in (a, b) if one is not leader]
        where = shared_topic, 0
        joins = leader.send_join()
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "it is told to join")
        assert other.commit({where: 1}) == {where: Kerr.NONE}
        assert other.join_once().ErrorCode == leader.receive_join(joins).ErrorCode == Kerr.NONE
        assert other.commit({where: 2}) == {where: Kerr.REBALANCE_IN_PROGRESS}
        told = other.commit({where: 2}, GenerationIdOrMemberEpoch=other.generation - 1)
        assert told == {where: Kerr.ILLEGAL_GENERATION}
        assert leader.sync({leader.id: b"", other.id: b""}).ErrorCode == Kerr.NONE
        assert committed(leader.conn, group, [where]) == {where: 1}

    def test_partitions_that_are_not_there(self, conn, group, shared_topic):
        unknown = Kerr.UNKNOWN_TOPIC_OR_PARTITION
        good, no_index, negative, no_topic = (shared_topic, 0), (shared_topic, 4), (shared_topic, -1), ("no-such", 0)
        told = commit(conn, group, {good: 1, no_index: 1, negative: 1, no_topic: 1})
        assert told == {good: Kerr.NONE, no_index: unknown, negative: unknown, no_topic: unknown}
        assert committed(conn, group) == {good: 1}
        assert committed(conn, group, [good, no_index, no_topic]) == {good: 1, no_index: -1, no_topic: -1}

    def test_metadata_too_large_spoils_its_own_partition_alone(self, conn, group, shared_topic):
        rows = {
            (shared_topic, 0): {"CommittedOffset": 1, "CommittedMetadata": "x" * METADATA_MAX},
            (shared_topic, 1): {"CommittedOffset": 1, "CommittedMetadata": "x" * (METADATA_MAX + 1)},
            (shared_topic, 2): {"CommittedOffset": 1, "CommittedMetadata": "x" * 30000},
        }
        told = commit(conn, group, rows)
        assert [told[where] for where in rows] == [0, Kerr.OFFSET_METADATA_TOO_LARGE, Kerr.OFFSET_METADATA_TOO_LARGE]
        assert committed(conn, group) == {(shared_topic, 0): 1}
        assert fetch(conn, group)[shared_topic, 0].Metadata == "x" * METADATA_MAX

    @pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
    def test_any_number_is_an_offset(self, conn, group, shared_topic, offset):
        where = shared_topic, 0
        assert commit(conn, group, {where: offset}) == {where: Kerr.NONE}
        assert committed(conn, group, [where]) == {where: offset}

    def test_the_empty_group_id_may_commit(self, conn, shared_topic):
        """It always could, and clients of long ago did."""
        await_loaded(conn, "")
        where = shared_topic, 0
        assert commit(conn, "", {where: 9}) == {where: Kerr.NONE}
        assert committed(conn, "", [where]) == {where: 9}
        assert describe(conn, "").GroupState == "Empty"
        assert conn.call("DeleteGroups", GroupsNames=[""]).Results[0].ErrorCode == Kerr.NONE
        assert committed(conn, "", [where]) == {where: -1}

    def test_no_topics(self, conn, group):
        assert commit(conn, group, {}) == {}

    @versions("OffsetFetch", first=1)
    def test_fetches(self, conn, group, shared_topic, version, served):
        served("OffsetFetch")
        a, b, none = (shared_topic, 0), (shared_topic, 2), (shared_topic, 1)
        found = fetch(conn, group, [a, none], version)
        assert {where: row.CommittedOffset for where, row in found.items()} == {a: -1, none: -1}
        rows = {a: {"CommittedOffset": 5, "CommittedMetadata": "m", "CommittedLeaderEpoch": 2}, b: 6}
        assert set(commit(conn, group, rows).values()) == {Kerr.NONE}
        found = fetch(conn, group, [a, none, ("no-such", 7)], version)
        assert {where: (row.CommittedOffset, row.Metadata, row.ErrorCode) for where, row in found.items()} == {
            a: (5, "m", 0),
            none: (-1, "", 0),
            ("no-such", 7): (-1, "", 0),
        }
        if version >= 5:
            assert (found[a].CommittedLeaderEpoch, found[none].CommittedLeaderEpoch) == (2, -1)
        if version >= 2:
            found = fetch(conn, group, None, version)
            assert {where: row.CommittedOffset for where, row in found.items()} == {a: 5, b: 6}
        assert fetch(conn, group, [], version) == {}
        if version >= 7:
            assert committed(conn, group, [a], version) == {a: 5}
            assert fetch(conn, group, [a], version, RequireStable=True)[a].CommittedOffset == 5

    @versions("OffsetFetch", first=8)
    def test_several_groups_at_once(self, conn, group, shared_topic, version):
        names = [f"{group}-{i}" for i in range(12)]
        for i, name in enumerate(names):
            await_loaded(conn, name)
            assert set(commit(conn, name, {(shared_topic, 0): i, (shared_topic, 1): 100 + i}).values()) == {Kerr.NONE}
        wanted = {name: None if i % 2 else [(shared_topic, 1), (shared_topic, 3)] for i, name in enumerate(names)}
        wanted[f"{group}-not"] = [(shared_topic, 0)]
        found = fetch_groups(conn, wanted, version)
        assert list(found) == list(wanted)
        for i, name in enumerate(names):
            error, rows = found[name]
            offsets = {where[1]: row.CommittedOffset for where, row in rows.items()}
            assert error == Kerr.NONE
            assert offsets == ({0: i, 1: 100 + i} if i % 2 else {1: 100 + i, 3: -1})
        assert found[f"{group}-not"][1][shared_topic, 0].CommittedOffset == -1

    @pytest.mark.peer_differs("4.3 looks at members of newer groups only", peers=("kafka43",))
    def test_a_member_id_in_a_fetch_is_for_newer_groups(self, conn, group, shared_topic):
        commit(conn, group, {(shared_topic, 0): 4})
        rows = [{"GroupId": group, "MemberId": NOBODY, "MemberEpoch": 77, "Topics": None}]
        (answer,) = conn.call("OffsetFetch", 9, Groups=rows).Groups
        assert answer.ErrorCode == Kerr.NONE and answer.Topics[0].Partitions[0].CommittedOffset == 4


class TestOffsetsByTopicId:
    """Version 10 of both requests (KIP-848), which Kafka 3.9 does not have."""

    @pytest.fixture(autouse=True)
    def only_with_version_10(self, conn):
        if conn.announced()[messages.message("OffsetCommit").key][1] < 10:
            pytest.skip("version 10 is not served")

    @staticmethod
    def commit(conn, group, offsets):
        rows = [
            {"TopicId": topic_id, "Partitions": [{"PartitionIndex": p, "CommittedOffset": at, "CommittedMetadata": ""}]}
            for (topic_id, p), at in offsets.items()
        ]
        answer = conn.call("OffsetCommit", 10, GroupId=group, Topics=rows)
        return {(t.TopicId, row.PartitionIndex): row.ErrorCode for t in answer.Topics for row in t.Partitions}

    @staticmethod
    def fetch(conn, group, topics):
        rows = None if topics is None else [{"TopicId": i, "PartitionIndexes": some} for i, some in topics]
        (answer,) = conn.call("OffsetFetch", 10, Groups=[{"GroupId": group, "Topics": rows}]).Groups
        assert answer.ErrorCode == Kerr.NONE
        return [
            (t.TopicId, row.PartitionIndex, row.CommittedOffset, row.ErrorCode)
            for t in answer.Topics
            for row in t.Partitions
        ]

    def test_ids_stand_for_names(self, conn, group, shared_topic):
        known = conn.topic_id(shared_topic)
        assert self.commit(conn, group, {(known, 1): 7}) == {(known, 1): Kerr.NONE}
        assert committed(conn, group) == {(shared_topic, 1): 7}
        assert self.fetch(conn, group, [(known, [1, 2])]) == [(known, 1, 7, 0), (known, 2, -1, 0)]
        assert self.fetch(conn, group, None) == [(known, 1, 7, 0)]

    def test_unknown_ids_are_told_beside_the_others(self, conn, group, shared_topic):
        known, unknown, zero = conn.topic_id(shared_topic), uuid.uuid4(), uuid.UUID(int=0)
        told = self.commit(conn, group, {(unknown, 0): 1, (known, 0): 2, (zero, 0): 3, (known, 99): 4})
        assert told[unknown, 0] == told[zero, 0] == Kerr.UNKNOWN_TOPIC_ID
        assert told[known, 0] == Kerr.NONE and told[known, 99] == Kerr.UNKNOWN_TOPIC_OR_PARTITION
        rows = self.fetch(conn, group, [(unknown, [5]), (known, [0]), (zero, [6])])
        assert rows[0] == (known, 0, 2, 0)
        assert sorted(rows[1:], key=lambda row: row[1]) == [
            (unknown, 5, -1, Kerr.UNKNOWN_TOPIC_ID),
            (zero, 6, -1, Kerr.UNKNOWN_TOPIC_ID),
        ]

    def test_the_id_of_a_topic_that_is_gone_is_unknown(self, conn, group, shared_topic, topic):
        kept, gone_id = conn.topic_id(shared_topic), conn.topic_id(topic)
        assert set(self.commit(conn, group, {(kept, 0): 1, (gone_id, 0): 2}).values()) == {Kerr.NONE}
        conn.call("DeleteTopics", 5, TopicNames=[topic], TimeoutMs=30000)
        wait_until(
            lambda: self.commit(conn, group, {(gone_id, 0): 3}) == {(gone_id, 0): Kerr.UNKNOWN_TOPIC_ID},
            60,
            "the topic is gone",
        )
        assert self.fetch(conn, group, None) == [(kept, 0, 1, 0)]


class TestOffsetsInTheCoordinationStore:
    """Version 0 of both requests, the way before 0.9; Kafka 4 has it no more."""

    @pytest.fixture(autouse=True)
    def only_with_version_0(self, kind):
        if kind == "kafka43":
            pytest.skip("Apache Kafka 4.3 does not serve version 0")

    def fetch_old(self, conn, group, partitions):
        answer = conn.call(
            "OffsetFetch",
            0,
            GroupId=group,
            Topics=[{"Name": t, "PartitionIndexes": [i for u, i in partitions if u == t]} for t in dict(partitions)],
        )
        return {
            (topic.Name, row.PartitionIndex): (row.CommittedOffset, row.Metadata, row.ErrorCode)
            for topic in answer.Topics
            for row in topic.Partitions
        }

    def test_they_are_apart_from_the_coordinators(self, conn, group, shared_topic):
        where, other = (shared_topic, 2), (shared_topic, 1)
        unknown = (-1, "", Kerr.UNKNOWN_TOPIC_OR_PARTITION)
        assert self.fetch_old(conn, group, [where]) == {where: unknown}
        assert commit(conn, group, {where: {"CommittedOffset": 12, "CommittedMetadata": "is not kept"}}, 0) == {where: 0}
        assert self.fetch_old(conn, group, [where, other]) == {where: (12, "", 0), other: unknown}
        assert committed(conn, group, [where]) == {where: -1}
        assert state_of(conn, group) == "Dead"
        assert commit(conn, group, {where: 99}) == {where: 0}
        assert self.fetch_old(conn, group, [where]) == {where: (12, "", 0)}
        assert commit(conn, group, {where: 11}, 0) == {where: 0}
        assert self.fetch_old(conn, group, [where]) == {where: (11, "", 0)}

    def test_errors(self, conn, group, shared_topic):
        unknown = Kerr.UNKNOWN_TOPIC_OR_PARTITION
        rows = {
            (shared_topic, 0): {"CommittedOffset": 1, "CommittedMetadata": "x" * (METADATA_MAX + 1)},
            (shared_topic, 9): 1,
            ("no-such", 0): 1,
            (shared_topic, 3): -1,
        }
        assert commit(conn, group, rows, 0) == {
            (shared_topic, 0): Kerr.OFFSET_METADATA_TOO_LARGE,
            (shared_topic, 9): unknown,
            ("no-such", 0): unknown,
            (shared_topic, 3): Kerr.NONE,
        }
        found = self.fetch_old(conn, group, [*rows])
        assert {where: row[0] for where, row in found.items()} == {where: -1 for where in rows}
        assert found[shared_topic, 3][2] == Kerr.NONE

    def test_they_are_there_after_a_restart(self, fresh_broker):
        broker = fresh_broker({"offsets.topic.num.partitions": "1"}).start()
        with broker.connect() as c:
            c.new_topic("t")
            assert commit(c, "old way", {("t", 0): 77}, 0) == {("t", 0): 0}
        broker.kill()
        broker.start()
        with broker.connect() as c:
            c.await_topic("t", 1)
            assert self.fetch_old(c, "old way", [("t", 0)]) == {("t", 0): (77, "", 0)}


class TestOffsetDelete:
    def delete(self, conn, group, partitions):
        topics = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append({"PartitionIndex": index})
        rows = [{"Name": topic, "Partitions": some} for topic, some in topics.items()]
        answer = conn.call("OffsetDelete", 0, GroupId=group, Topics=rows)
        return answer.ErrorCode, {
            (topic.Name, row.PartitionIndex): row.ErrorCode for topic in answer.Topics for row in topic.Partitions
        }

    def test_an_empty_groups(self, conn, group, shared_topic):
        a, b, none = (shared_topic, 0), (shared_topic, 1), (shared_topic, 2)
        commit(conn, group, {a: 1, b: 2})
        assert self.delete(conn, group, [a, none]) == (Kerr.NONE, {a: Kerr.NONE, none: Kerr.NONE})
        assert committed(conn, group) == {b: 2}
        missing = ("no-such", 0), (shared_topic, 4)
        unknown = Kerr.UNKNOWN_TOPIC_OR_PARTITION
        assert self.delete(conn, group, [*missing, b]) == (Kerr.NONE, {**dict.fromkeys(missing, unknown), b: Kerr.NONE})
        assert committed(conn, group) == {}

    def test_what_members_are_subscribed_to_stays(self, conn, member, group, shared_topic, topic):
        mine, others = (shared_topic, 0), (topic, 0)
        a = member(topics=[shared_topic])
        settle(a)
        assert set(a.commit({mine: 1, others: 2}).values()) == {Kerr.NONE}
        told = self.delete(conn, group, [mine, others])
        assert told == (Kerr.NONE, {mine: Kerr.GROUP_SUBSCRIBED_TO_TOPIC, others: Kerr.NONE})
        assert committed(conn, group) == {mine: 1}
        assert a.leave() == Kerr.NONE
        assert self.delete(conn, group, [mine]) == (Kerr.NONE, {mine: Kerr.NONE})

    def test_groups_of_another_kind_must_be_empty(self, conn, member, group, shared_topic):
        where = shared_topic, 0
        a = member(protocol_type="connect", protocols=[("default", b"\0")])
        settle(a)
        a.commit({where: 1})
        assert self.delete(conn, group, [where]) == (Kerr.NON_EMPTY_GROUP, {})
        assert committed(conn, group) == {where: 1}

    def test_groups_that_are_not_there(self, conn, group, shared_topic):
        assert self.delete(conn, group, [(shared_topic, 0)]) == (Kerr.GROUP_ID_NOT_FOUND, {})
        assert self.delete(conn, "", [(shared_topic, 0)])[0] == Kerr.INVALID_GROUP_ID


class TestDescribe:
    @versions("DescribeGroups")
    def test_a_stable_group(self, conn, member, group, version, served):
        served("DescribeGroups")
        a = member(client_id="client a", protocols=[("sticky", b"sa"), ("range", b"ra")])
        b = member(client_id="client-b", protocols=[("range", b"rb")], instance="ib")
        settle(a, b)
        row = describe(conn, group, version)
        assert (row.ErrorCode, row.GroupId, row.GroupState) == (Kerr.NONE, group, "Stable")
        assert (row.ProtocolType, row.ProtocolData) == (CONSUMER, "range")
        found = {
            one.MemberId: (one.ClientId, one.ClientHost, one.MemberMetadata, one.MemberAssignment) for one in row.Members
        }
        assert found == {
            a.id: ("client a", "/127.0.0.1", b"ra", a.id.encode()),
            b.id: ("client-b", "/127.0.0.1", b"rb", b.id.encode()),
        }
        if version >= 4:
            assert {one.MemberId: one.GroupInstanceId for one in row.Members} == {a.id: None, b.id: "ib"}
        if version >= 3:
            assert row.AuthorizedOperations == -(2**31)
            with_operations = describe(conn, group, version, IncludeAuthorizedOperations=True)
            assert with_operations.AuthorizedOperations == 1 << 3 | 1 << 6 | 1 << 8  # READ, DELETE, DESCRIBE

    def test_the_states_of_a_group(self, conn, member, group, shared_topic):
        assert state_of(conn, group) == "Dead"
        commit(conn, group, {(shared_topic, 0): 1})
        row = describe(conn, group)
        assert (row.GroupState, row.ProtocolType, row.ProtocolData, row.Members) == ("Empty", "", "", [])
        a = member()
        a.join()
        row = describe(conn, group)
        assert (row.GroupState, row.ProtocolType, row.ProtocolData) == ("CompletingRebalance", CONSUMER, "")
        assert [(one.MemberId, one.MemberMetadata, one.MemberAssignment) for one in row.Members] == [(a.id, b"", b"")]
        a.sync({a.id: b"x"})
        assert state_of(conn, group) == "Stable"
        b = member()
        assert b.join_once().ErrorCode == Kerr.MEMBER_ID_REQUIRED
        joins = b.send_join()
        await_state(conn, group, "PreparingRebalance")
        assert len(describe(conn, group).Members) == 2
        a.join_once()
        b.receive_join(joins)
        a.leave()
        b.leave()
        row = describe(conn, group)
        assert (row.GroupState, row.ProtocolType, row.ProtocolData, row.Members) == ("Empty", CONSUMER, "", [])

    @versions("DescribeGroups")
    def test_several_and_unknown_ones(self, conn, member, group, version, served):
        served("DescribeGroups")
        settle(member())
        answer = conn.call("DescribeGroups", version, Groups=[f"{group}-not", group, ""])
        assert [(row.GroupId, row.ErrorCode) for row in answer.Groups] == [(f"{group}-not", 0), (group, 0), ("", 0)]
        assert [row.GroupState for row in answer.Groups] == ["Dead", "Stable", "Dead"]
        row = answer.Groups[0]
        assert (row.ProtocolType, row.ProtocolData, row.Members) == ("", "", [])
        assert conn.call("DescribeGroups", version, Groups=[]).Groups == []


class TestList:
    @versions("ListGroups")
    def test_groups_with_their_type_and_state(self, conn, member, group, shared_topic, version, served):
        served("ListGroups")
        settle(member())
        commit(conn, f"{group}-simple", {(shared_topic, 0): 1})
        connect = member(group=f"{group}-connect", protocol_type="connect", protocols=[("p", b"")])
        connect.join()
        answer = conn.call("ListGroups", version)
        assert answer.ErrorCode == Kerr.NONE
        rows = {row.GroupId: row for row in answer.Groups if row.GroupId.startswith(group)}
        assert {name[len(group) :]: row.ProtocolType for name, row in rows.items()} == {
            "": CONSUMER,
            "-simple": "",
            "-connect": "connect",
        }
        if version >= 4:
            states = {name[len(group) :]: row.GroupState for name, row in rows.items()}
            assert states == {"": "Stable", "-simple": "Empty", "-connect": "CompletingRebalance"}
        if version >= 5:
            assert {row.GroupType.lower() for row in rows.values()} == {"classic"}

    @versions("ListGroups", first=4)
    def test_by_state(self, conn, member, group, shared_topic, version):
        settle(member())
        commit(conn, f"{group}-simple", {(shared_topic, 0): 1})

        def listed(*states):
            answer = conn.call("ListGroups", version, StatesFilter=list(states))
            assert answer.ErrorCode == Kerr.NONE
            return {row.GroupId[len(group) :] for row in answer.Groups if row.GroupId.startswith(group)}

        assert listed("Stable") == {""}
        assert listed("Empty") == {"-simple"}
        assert listed("stable", "EMPTY") == {"", "-simple"}
        assert listed("Dead") == listed("no such state") == set()
        assert listed("no such state", "Empty") == {"-simple"}

    @versions("ListGroups", first=5)
    def test_by_type(self, conn, member, group, version):
        settle(member())

        def listed(*types):
            answer = conn.call("ListGroups", version, TypesFilter=list(types))
            assert answer.ErrorCode == Kerr.NONE
            return {row.GroupId for row in answer.Groups if row.GroupId == group}

        assert listed("classic") == listed("Classic") == listed("consumer", "CLASSIC") == {group}
        assert listed("consumer") == listed("no such type") == set()


class TestDelete:
    @versions("DeleteGroups")
    def test_groups_are_deleted_one_by_one(self, conn, member, group, shared_topic, version, served):
        served("DeleteGroups")
        commit(conn, f"{group}-old", {(shared_topic, 0): 1, (shared_topic, 1): 2})
        settle(member())
        names = [f"{group}-old", group, f"{group}-not"]
        answer = conn.call("DeleteGroups", version, GroupsNames=names)
        assert {row.GroupId: row.ErrorCode for row in answer.Results} == {
            f"{group}-old": Kerr.NONE,
            group: Kerr.NON_EMPTY_GROUP,
            f"{group}-not": Kerr.GROUP_ID_NOT_FOUND,
        }
        assert committed(conn, f"{group}-old") == {}
        assert state_of(conn, f"{group}-old") == "Dead"
        assert state_of(conn, group) == "Stable"
        answer = conn.call("DeleteGroups", version, GroupsNames=names[:1])
        assert answer.Results[0].ErrorCode == Kerr.GROUP_ID_NOT_FOUND

    def test_a_name_that_is_there_twice_is_deleted_once(self, conn, group, shared_topic):
        commit(conn, group, {(shared_topic, 0): 1})
        answer = conn.call("DeleteGroups", GroupsNames=[group, group])
        assert [(row.GroupId, row.ErrorCode) for row in answer.Results] == [(group, Kerr.NONE)]

    def test_members_of_what_was_deleted_begin_anew(self, conn, member, group):
        a = member()
        settle(a)
        assert a.leave() == Kerr.NONE
        assert conn.call("DeleteGroups", GroupsNames=[group]).Results[0].ErrorCode == Kerr.NONE
        assert a.join_once().ErrorCode == Kerr.UNKNOWN_MEMBER_ID
        a.id = ""
        assert a.join().GenerationId == 1


class TestInitialDelay:
    def test_members_that_come_within_the_delay_make_one_generation(self, fresh_broker):
        config = {"group.initial.rebalance.delay.ms": "1500", "offsets.topic.num.partitions": "1"}
        broker = fresh_broker(config).start()
        with broker.connect() as c:
            await_loaded(c, "g")
            members = [Member(broker, "g") for _ in range(3)]
            joins = {one: one.send_join(3) for one in members}
            answers = [one.receive_join(join) for one, join in joins.items()]
            assert [answer.GenerationId for answer in answers] == [1, 1, 1]
            assert sorted(len(answer.Members) for answer in answers) == [0, 0, 3]
            for one in members:
                one.close()


@pytest.fixture(scope="module")
def expiring(request, kind, tmp_path_factory):
    """A broker that looks for what has expired all the time."""
    import brokers

    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "offsets.retention.check.interval.ms": "200",
        "offsets.topic.num.partitions": "1",
        "log.segment.delete.delay.ms": "0",
    }
    one = brokers.new_broker(kind, tmp_path_factory.mktemp("expiring"), config)
    try:
        one.start()
        with one.connect() as c:
            c.new_topic("t", 4)
            await_loaded(c, "g")
        yield one
        one.stop()
    finally:
        one.close()


def gone(conn, group, where):
    return committed(conn, group, [where]) == {where: -1}


# Version 5 and later leave it to offsets.retention.minutes, and 4.3 knows no other.
@pytest.mark.peer_differs("4.3 has no retention in the request", peers=("kafka43",))
class TestExpiry:
    @versions("OffsetCommit", first=2, last=4)
    def test_offsets_go_after_the_time_that_their_commit_says(self, expiring, topic_name, version):
        short, long, default = ("t", 0), ("t", 1), ("t", 2)
        with expiring.connect() as c:
            assert commit(c, topic_name, {default: 3}, version) == {default: 0}
            assert commit(c, topic_name, {long: 2}, version, RetentionTimeMs=3600000) == {long: 0}
            assert commit(c, topic_name, {short: 1}, version, RetentionTimeMs=1) == {short: 0}
            wait_until(lambda: gone(c, topic_name, short), 60, "the offset expires")
            assert committed(c, topic_name) == {long: 2, default: 3}

    def test_a_group_goes_with_its_last_offset(self, expiring, topic_name):
        with expiring.connect() as c:
            commit(c, topic_name, {("t", 0): 1}, 2, RetentionTimeMs=1)
            await_state(c, topic_name, "Dead")
            names = [row.GroupId for row in c.call("ListGroups").Groups]
            assert topic_name not in names

    def test_what_members_are_subscribed_to_stays(self, expiring, topic_name):
        with expiring.connect() as c, Member(expiring, topic_name, topics=["t"]) as a:
            settle(a)
            c.new_topic(topic_name)
            mine, others = ("t", 0), (topic_name, 0)
            told = a.commit({mine: 1, others: 1}, 2, RetentionTimeMs=1)
            assert told == {mine: 0, others: 0}
            wait_until(lambda: gone(c, topic_name, others), 60, "the other topic's offset expires")
            assert committed(c, topic_name, [mine]) == {mine: 1}
            assert a.leave() == Kerr.NONE
            wait_until(lambda: gone(c, topic_name, mine), 60, "without members it goes, too")

    def test_members_that_do_not_say_what_they_read_keep_everything(self, expiring, topic_name):
        """Nobody can know what a protocol other than a consumer's is about."""
        with (
            expiring.connect() as c,
            Member(expiring, topic_name, protocol_type="connect", protocols=[("p", b"?")]) as a,
        ):
            settle(a)
            where, marker = ("t", 0), ("t", 1)
            assert a.commit({where: 1}, 2, RetentionTimeMs=1) == {where: 0}
            commit(c, f"{topic_name}-marker", {marker: 1}, 2, RetentionTimeMs=1)  # later, and gone only by a check
            wait_until(lambda: gone(c, f"{topic_name}-marker", marker), 60, "a check has run")
            assert committed(c, topic_name, [where]) == {where: 1}


class TestDeletedTopics:
    def test_offsets_go_with_the_topic(self, conn, group, shared_topic, topic):
        kept, lost = (shared_topic, 0), (topic, 0)
        commit(conn, group, {kept: 1, lost: 2})
        conn.call("DeleteTopics", 5, TopicNames=[topic], TimeoutMs=30000)
        wait_until(lambda: committed(conn, group) == {kept: 1}, 60, "the offset goes")
        assert committed(conn, group, [lost]) == {lost: -1}

    def test_members_offsets_go_too_and_do_not_come_back_with_the_name(self, conn, member, group, topic):
        a = member(topics=[topic])
        settle(a)
        where = topic, 0
        assert a.commit({where: 8}) == {where: 0}
        conn.call("DeleteTopics", 5, TopicNames=[topic], TimeoutMs=30000)
        wait_until(lambda: gone(conn, group, where), 60, "the offset goes")

        def made_again():
            return conn.create_topic(topic).ErrorCode == Kerr.NONE

        wait_until(made_again, 60, "the topic is made again")
        conn.await_topic(topic, 1)
        assert committed(conn, group, [where]) == {where: -1}
        assert a.commit({where: 3}) == {where: 0}


class TestRestart:
    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_groups_are_there_after_a_restart(self, fresh_broker, end):
        config = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
        broker = fresh_broker(config).start()
        with broker.connect() as c:
            c.new_topic("t", 3)
            for group in ("members", "simple", "deleted", "left"):
                await_loaded(c, group)
            rows = {("t", 0): {"CommittedOffset": 5, "CommittedMetadata": "five", "CommittedLeaderEpoch": 0}, ("t", 2): 6}
            commit(c, "simple", rows)
            commit(c, "deleted", rows)
            assert c.call("DeleteGroups", GroupsNames=["deleted"]).Results[0].ErrorCode == Kerr.NONE
        a = Member(broker, "members", topics=["t"], client_id="client-a")
        b = Member(broker, "members", topics=["t"], instance="ib")
        left = Member(broker, "left", topics=["t"])
        settle(a, b)
        settle(left)
        assert left.commit({("t", 1): 4}) == {("t", 1): 0}
        assert left.leave() == Kerr.NONE
        assert a.commit({("t", 0): 1}) == {("t", 0): 0}
        assert a.commit({("t", 0): 2, ("t", 1): 3}) == {("t", 0): 0, ("t", 1): 0}
        with broker.connect() as c:
            before = describe(c, "members")
        for one in (a, b, left):
            one.close()
        getattr(broker, end)()
        broker.start()
        with broker.connect() as c:
            c.await_topic("t", 3)
            for group in ("members", "simple", "deleted", "left"):
                await_loaded(c, group)
            after = describe(c, "members")
            assert (after.GroupState, after.ProtocolType, after.ProtocolData) == ("Stable", CONSUMER, "range")
            key = lambda row: row.MemberId  # noqa: E731
            assert sorted(after.Members, key=key) == sorted(before.Members, key=key)
            assert committed(c, "members") == {("t", 0): 2, ("t", 1): 3}
            found = fetch(c, "simple")
            assert (found["t", 0].CommittedOffset, found["t", 0].Metadata) == (5, "five")
            assert (found["t", 0].CommittedLeaderEpoch, found["t", 2].CommittedOffset) == (0, 6)
            assert describe(c, "deleted").GroupState == "Dead" and committed(c, "deleted") == {}
            assert describe(c, "left").GroupState == "Empty" and committed(c, "left") == {("t", 1): 4}
            assert describe(c, "left").ProtocolType == CONSUMER
        # The members go on where they were, in the same generation.
        lives = []
        for old in (a, b):
            new = Member(broker, "members", topics=["t"], instance=old.instance)
            new.id, new.generation, new.joined = old.id, old.generation, old.joined
            assert new.heartbeat() == Kerr.NONE
            assert new.sync().Assignment == old.id.encode()
            assert new.commit({("t", 2): 9}) == {("t", 2): 0}
            lives.append(new)
        for one in lives:
            assert one.leave() == Kerr.NONE
            one.close()
        broker.stop()


def test_assignments_of_real_consumers_are_kept_byte_by_byte(member, group):
    a = member(topics=["t"])
    a.join()
    data = assignment({"t": [0, 1, 2], "u": []}) + struct.pack(">i", 7)
    assert a.sync({a.id: data}).Assignment == data
