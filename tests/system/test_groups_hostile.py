"""Members of groups that nobody wants: the broker refuses what the protocol refuses, stays small, and a group that does
all by the book is never refused anything and never rebalances."""

import contextlib
import random
import resource
import socket
import struct

import pytest

from brokers import wait_until
from groups import (
    Member,
    Steady,
    await_loaded,
    commit,
    committed,
    describe,
    fetch,
    settle,
    subscription,
)
from rawkafka import Closed, Connection, Kerr, ascii_id

MIB = 1 << 20
REQUEST_MAX = 8 * MIB
BROKER_CONFIG = {
    "socket.request.max.bytes": REQUEST_MAX,
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
}
# What the broker may have grown by after each test: a sanitizer keeps freed memory for a while, 256 MiB of it.
GROWTH_MAX = 64 * MIB
GROWTH_MAX_SANITIZED = 384 * MIB
JOINS = 10000
GROUPS = 3000


@pytest.fixture(scope="module")
def steady(broker):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with broker.connect() as c:
        c.new_topic("steady", 2)
        c.new_topic("t", 2)
        await_loaded(c, "steady")
    group = Steady(broker, "steady", "steady")
    group.start()
    group.goes_on()
    group.rss_at_start = broker.rss_bytes()
    yield group
    group.finish.set()
    group.join()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert group.error is None, group.error


@pytest.fixture(autouse=True)
def undisturbed(broker, steady):
    yield
    steady.goes_on()
    assert broker.alive(), broker.output()[-4000:]
    if broker.is_barnabas():
        broker.check()
        sanitized = b"__asan_init" in (binary := open(broker.binary(), "rb").read()) or b"__tsan_init" in binary
        most = GROWTH_MAX_SANITIZED if sanitized else GROWTH_MAX
        growth = broker.rss_bytes() - steady.rss_at_start
        assert growth < most, f"{growth >> 20} MiB more than at the start"


@pytest.fixture
def group(broker, steady, topic_name):
    with broker.connect() as c:
        await_loaded(c, topic_name)
    return topic_name


@pytest.fixture
def member(broker, group):
    made = []

    def make(**more):
        made.append(Member(broker, more.pop("group", group), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def await_state(conn, group, *states):
    return wait_until(
        lambda: (row := describe(conn, group)).GroupState in states and row, 120, f"{group} is {' or '.join(states)}"
    )


def frames(conn, requests):
    """Bytes of (api, version, fields), one frame behind the other, whose answers nobody waits for."""
    out = bytearray()
    for api, version, fields in requests:
        payload, _ = conn.request_bytes(api, version, fields)
        out += struct.pack(">i", len(payload)) + payload
    return bytes(out)


def join_fields(group, member_id="", *, metadata=b"", session_ms=30000, rebalance_ms=1000, **more):
    return {
        "GroupId": group,
        "SessionTimeoutMs": session_ms,
        "RebalanceTimeoutMs": rebalance_ms,
        "MemberId": member_id,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": metadata}],
        **more,
    }


def hang_up(conn):
    """Closes with a reset, which leaves nothing behind on either side."""
    conn.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


class TestHuge:
    def test_metadata_that_no_record_can_hold(self, conn, member, group):
        """What a group is, is one record: more than a message may have cannot be written, and is said when it is tried."""
        large = member(protocols=[("range", subscription("t") + bytes(2 * MIB))], session_ms=1000)
        assert large.join().ErrorCode == Kerr.NONE
        assert large.sync({large.id: b"x"}).ErrorCode == Kerr.UNKNOWN_SERVER_ERROR
        assert large.heartbeat() == Kerr.REBALANCE_IN_PROGRESS
        assert describe(conn, group).GroupState == "PreparingRebalance"
        assert large.leave() == Kerr.NONE
        small = member()
        assert small.join().ErrorCode == Kerr.NONE
        assert small.sync({small.id: b"x"}).Assignment == b"x"

    def test_an_assignment_that_no_record_can_hold(self, member, group):
        a = member()
        a.join()
        assert a.sync({a.id: bytes(2 * MIB)}).ErrorCode == Kerr.UNKNOWN_SERVER_ERROR
        a.join()
        assert a.sync({a.id: b"x"}).Assignment == b"x"

    def test_megabytes_again_and_again_are_not_kept(self, broker, conn, group):
        """A hundred members with 4 MiB each, which stay away after their join."""
        metadata = bytes(4 * MIB)
        for _ in range(100):
            with broker.connect() as c:
                answer = c.call("JoinGroup", 4, **join_fields(group, metadata=metadata, session_ms=100))
                assert answer.ErrorCode == Kerr.MEMBER_ID_REQUIRED
                fields = join_fields(group, answer.MemberId, metadata=metadata, session_ms=100, rebalance_ms=100)
                answer = c.call("JoinGroup", 4, **fields)
                # It may have come back too late: it has had a tenth of a second.
                assert answer.ErrorCode in (Kerr.NONE, Kerr.UNKNOWN_MEMBER_ID), Kerr(answer.ErrorCode)
        await_state(conn, group, "Empty", "Dead")

    def test_more_than_a_request_may_have(self, broker, group):
        with broker.connect() as c:
            c.send_bytes(struct.pack(">i", REQUEST_MAX + 1))
            assert c.closed_by_peer()

    def test_thousands_of_protocols(self, member, group):
        many = [(f"p{i}", bytes(10)) for i in range(20000)]
        a, b = member(protocols=many), member(protocols=many[::-1])
        settled = settle(a, b)
        assert settled.joined.ProtocolName == b.joined.ProtocolName != ""

    def test_an_assignment_for_thousands_who_are_not_there(self, member, group):
        a = member()
        a.join()
        assert a.sync({f"somebody {i}": b"x" * 20 for i in range(50000)} | {a.id: b"mine"}).Assignment == b"mine"

    def test_a_commit_of_more_than_a_record_batch_can_hold(self, conn, group):
        rows = {("t", i % 2): {"CommittedOffset": i, "CommittedMetadata": "x" * 4096} for i in range(2)}
        topics = [
            {"Name": topic, "Partitions": [{"PartitionIndex": index, **row}] * 200} for (topic, index), row in rows.items()
        ]
        answer = conn.call("OffsetCommit", 8, GroupId=group, Topics=topics)
        # The same partition many times: one of the commits counts, or none.
        errors = {row.ErrorCode for topic in answer.Topics for row in topic.Partitions}
        assert errors <= {Kerr.NONE, Kerr.INVALID_COMMIT_OFFSET_SIZE}
        assert set(committed(conn, group, list(rows)).values()) <= {-1, 0, 1}


class TestLies:
    def test_ids_and_generations_of_others(self, broker, conn, member, group, steady):
        victim, other = member(), member(group=f"{group}-other")
        settle(victim)
        settle(other)
        where = "t", 0
        assert victim.commit({where: 5}) == {where: 0}
        # A member of another group, with a generation that both have.
        other.group = group
        assert other.generation == victim.generation == 1
        assert other.heartbeat() == Kerr.UNKNOWN_MEMBER_ID
        assert other.sync().ErrorCode == Kerr.UNKNOWN_MEMBER_ID
        assert other.commit({where: 99}) == {where: Kerr.UNKNOWN_MEMBER_ID}
        assert other.leave() == Kerr.UNKNOWN_MEMBER_ID
        assert other.join_once().ErrorCode == Kerr.UNKNOWN_MEMBER_ID
        # The right id with wrong generations.
        for generation in (-1, 0, 2, 2**31 - 1, -(2**31)):
            assert victim.heartbeat(GenerationId=generation) == Kerr.ILLEGAL_GENERATION
            assert victim.sync(GenerationId=generation).ErrorCode == Kerr.ILLEGAL_GENERATION
            told = victim.commit({where: 99}, GenerationIdOrMemberEpoch=generation)
            assert told == {where: Kerr.ILLEGAL_GENERATION}
        # Offsets of the steady group, by somebody who is not in it.
        assert commit(conn, "steady", {("steady", 0): 0}) == {("steady", 0): Kerr.UNKNOWN_MEMBER_ID}
        answer = conn.call("DeleteGroups", GroupsNames=["steady"])
        assert answer.Results[0].ErrorCode == Kerr.NON_EMPTY_GROUP
        assert committed(conn, group) == {where: 5}
        assert victim.heartbeat() == Kerr.NONE

    def test_followers_cannot_assign(self, member, group):
        a, b = member(), member()
        leader = settle(a, b)
        (other,) = [one for one in (a, b) if one is not leader]
        again = leader.send_join()
        wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "it is told to join")
        assert other.join_once().ErrorCode == leader.receive_join(again).ErrorCode == Kerr.NONE
        waits = other.send_sync({leader.id: b"a lie", other.id: b"a lie"})
        assert leader.sync({leader.id: b"l", other.id: b"o"}).Assignment == b"l"
        assert other.receive_sync(waits).Assignment == b"o"
        assert other.sync({leader.id: b"a lie", other.id: b"a lie"}).Assignment == b"o"
        assert leader.sync({leader.id: b"late", other.id: b"late"}).Assignment == b"l"

    @pytest.mark.barnabas_only  # Kafka forgets the first of the two
    def test_one_id_on_two_connections_is_answered_on_both(self, broker, member, group):
        a, b = member(), member()
        leader = settle(a, b)
        (other,) = [one for one in (a, b) if one is not leader]
        with Member(broker, group) as twin:
            twin.id = leader.id
            joins = leader.send_join()
            wait_until(lambda: other.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the group rebalances")
            twins = twin.send_join()
            assert other.join_once().ErrorCode == Kerr.NONE
            answers = [leader.receive_join(joins), twin.receive_join(twins)]
            assert Kerr.NONE in [answer.ErrorCode for answer in answers]
            syncs = leader.send_sync({leader.id: b"l", other.id: b"o"})
            twins = twin.send_sync({leader.id: b"l", other.id: b"o"})
            answers = [leader.receive_sync(syncs), twin.receive_sync(twins)]
            assert b"l" in [answer.Assignment for answer in answers]
            assert other.sync().Assignment == b"o"

    def test_a_thousand_false_ids(self, broker, conn, member, group):
        rng = random.Random(5)
        a = member()
        settle(a)
        with broker.connect() as c:
            told = set()
            for _ in range(1000):
                name = a.id[:-1] + rng.choice("ghijk") if rng.random() < 0.5 else rng.randbytes(40).hex()
                told.add(c.call("Heartbeat", 4, GroupId=group, MemberId=name, GenerationId=1).ErrorCode)
                told.add(c.call("JoinGroup", 7, **join_fields(group, name)).ErrorCode)
            assert told == {Kerr.UNKNOWN_MEMBER_ID}
        assert [row.MemberId for row in describe(conn, group).Members] == [a.id]
        assert a.heartbeat() == Kerr.NONE


class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["/", "a/b", "..", "../../etc", "%", "a\nb", " ", "ünïcode-群组-🙂", "x" * 32767, "consumers/g/offsets"],
        ids=ascii_id,
    )
    def test_any_text_names_a_group(self, broker, conn, steady, name):
        await_loaded(conn, name)
        assert commit(conn, name, {("t", 0): 5}) == {("t", 0): 0}
        assert committed(conn, name) == {("t", 0): 5}
        with Member(broker, name) as a:
            settle(a)
            assert a.heartbeat() == Kerr.NONE
            assert [row.MemberId for row in describe(conn, name).Members] == [a.id]
            assert a.leave() == Kerr.NONE
        assert name in [row.GroupId for row in conn.call("ListGroups").Groups]
        assert conn.call("DeleteGroups", GroupsNames=[name]).Results[0].ErrorCode == Kerr.NONE
        assert committed(conn, name) == {}

    @pytest.mark.peer_differs("any text names a group there")
    @pytest.mark.parametrize("name", ["\0", "\0" * 100, "a\0b"], ids=ascii_id)
    def test_a_zero_names_none(self, broker, conn, steady, name):
        with Member(broker, name) as a:
            assert a.join_once().ErrorCode == Kerr.INVALID_GROUP_ID
            assert a.heartbeat() == Kerr.INVALID_GROUP_ID
        assert commit(conn, name, {("t", 0): 5}) == {("t", 0): Kerr.INVALID_GROUP_ID}
        with Member(broker, "zeros", instance=name) as a:
            assert a.join_once().ErrorCode == Kerr.INVALID_REQUEST

    @pytest.mark.parametrize("name", ["/", "a/b", "../x", "..", ".", "", "\0", "a\0b", "a//b", "/a", "a/"], ids=ascii_id)
    def test_names_in_the_coordination_store_stay_under_consumers(self, conn, kind, steady, name):
        """Version 0 makes a path of them: one that cannot be is an error, and none leads elsewhere."""
        if kind == "kafka43":
            pytest.skip("Apache Kafka 4.3 does not serve version 0")
        told = commit(conn, name, {("t", 0): 5}, 0)[("t", 0)]
        assert told != Kerr.NONE or "\0" not in name
        rows = conn.call("OffsetFetch", 0, GroupId=name, Topics=[{"Name": "t", "PartitionIndexes": [0]}])
        row = rows.Topics[0].Partitions[0]
        if told == Kerr.NONE:
            assert (row.CommittedOffset, row.ErrorCode) == (5, Kerr.NONE)
        else:
            assert told == Kerr.UNKNOWN_SERVER_ERROR, Kerr(told)
            assert row.CommittedOffset == -1 and row.ErrorCode != Kerr.NONE

    def test_names_that_are_no_text_are_told_to_nobody(self, broker, conn, group):
        """Kafka has replacement characters in their place, ours an error: either way others can read what they get."""
        a = Member(broker, group)
        settle(a)
        for data in (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"):
            text = "@" * len(data)
            for fields in (
                join_fields(text),
                join_fields(group, ProtocolType=text),
                join_fields(group, Protocols=[{"Name": "range", "Metadata": b""}, {"Name": text, "Metadata": b""}]),
                join_fields(group, GroupInstanceId=text),
                join_fields(group, a.id, Reason=text),
            ):
                with broker.connect() as c:
                    payload, _ = c.request_bytes("JoinGroup", 9 if "Reason" in fields else 5, fields)
                    c.send_frame(payload.replace(b"@" * len(data), data))
                    with contextlib.suppress(Closed):
                        c.receive_frame()
        for row in conn.call("ListGroups").Groups:
            describe(conn, row.GroupId, IncludeRebalances=True)
        a.close()

    def test_a_name_longer_than_the_protocol_has(self, broker, group):
        with broker.connect() as c, contextlib.suppress(Closed):
            body = struct.pack(">h", -1) + bytes(40)
            c.send_frame(struct.pack(">hhihs", 12, 0, 1, 1, b"c") + body)  # null, which is none
            c.receive_frame()
        with broker.connect() as c, contextlib.suppress(Closed):
            payload, _ = c.request_bytes("Heartbeat", 4, {"GroupId": "g" * 40000, "MemberId": "m", "GenerationId": 1})
            c.send_frame(payload)
            c.receive_frame()


class TestHangingUp:
    def test_halves_of_requests(self, broker, group):
        rng = random.Random(11)
        with broker.connect() as c:
            whole = [
                frames(c, [("JoinGroup", version, join_fields(group, metadata=bytes(2000)))]) for version in range(2, 10)
            ]
        for data in whole * 25:
            with broker.connect() as c:
                c.send_bytes(data[: rng.randrange(1, len(data))])

    def test_members_that_are_gone_while_their_join_waits(self, broker, conn, member, group):
        """They stay until they are missed, as in Kafka, and their answers find nobody."""
        holds = member(rebalance_ms=30000)
        settle(holds)
        for count in (1, 20, 100):
            gone = []
            for _ in range(count):
                one = Member(broker, group, session_ms=500, rebalance_ms=30000)
                one.send_join(3)
                gone.append(one)
            wait_until(lambda: holds.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the group rebalances")
            wait_until(lambda n=count: len(describe(conn, group).Members) == n + 1, 60, "all have joined")
            for one in gone:
                hang_up(one.conn)
            settle(holds)
            # Nobody else is left when those who do not sync have been missed.
            wait_until(lambda: holds_alone(conn, holds), 60, "the gone are out")

    def test_members_that_are_gone_while_their_sync_waits(self, broker, conn, member, group):
        leader = member(rebalance_ms=30000)
        settle(leader)
        gone = [Member(broker, group, session_ms=500, rebalance_ms=30000) for _ in range(30)]
        for one in gone:
            assert one.join_once().ErrorCode == Kerr.MEMBER_ID_REQUIRED
        joins = {one: one.send_join() for one in gone}
        wait_until(lambda: leader.heartbeat() == Kerr.REBALANCE_IN_PROGRESS, 60, "the group rebalances")
        assert leader.join_once().ErrorCode == Kerr.NONE
        for one, join in joins.items():
            assert one.receive_join(join).ErrorCode == Kerr.NONE
            one.send_sync()
        for one in gone:
            hang_up(one.conn)
        assert leader.sync({leader.id: b"l"}).Assignment == b"l"
        wait_until(lambda: holds_alone(conn, leader), 60, "the gone are out")

    @pytest.mark.parametrize("api", ["SyncGroup", "OffsetCommit", "OffsetFetch", "DescribeGroups", "LeaveGroup"])
    def test_gone_before_the_answer(self, broker, conn, member, group, api):
        a = member()
        settle(a)
        fields = {
            "SyncGroup": {"GroupId": group, "MemberId": a.id, "GenerationId": a.generation, "Assignments": []},
            "OffsetCommit": {
                "GroupId": group,
                "MemberId": a.id,
                "GenerationIdOrMemberEpoch": a.generation,
                "Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1}]}],
            },
            "OffsetFetch": {"GroupId": group, "Topics": [{"Name": "t", "PartitionIndexes": [0]}]},
            "DescribeGroups": {"Groups": [group]},
            "LeaveGroup": {"GroupId": group, "MemberId": "somebody"},
        }[api]
        version = {"SyncGroup": 2, "OffsetCommit": 5, "OffsetFetch": 5, "DescribeGroups": 2, "LeaveGroup": 2}[api]
        for _ in range(100):
            with broker.connect() as c:
                c.send_bytes(frames(c, [(api, version, fields)] * 3))
                hang_up(c)
        assert a.heartbeat() == Kerr.NONE


def holds_alone(conn, member):
    """Is it the group's only member, in a stable generation?  It does what it is told meanwhile."""
    if member.heartbeat() == Kerr.REBALANCE_IN_PROGRESS:
        settle(member)
    row = describe(conn, member.group)
    return row.GroupState == "Stable" and [one.MemberId for one in row.Members] == [member.id]


@pytest.mark.timeout(600)
class TestMany:
    def test_ids_that_nobody_comes_back_with(self, broker, conn, member, group):
        """Ten thousand of them, on a hundred connections; they are gone with their sessions."""
        a = member(session_ms=600000)
        settle(a)
        conns = [broker.connect(timeout=60) for _ in range(100)]
        request = join_fields(group, metadata=bytes(1000), session_ms=2000)
        for c in conns:
            c.send_bytes(frames(c, [("JoinGroup", 9, request)] * (JOINS // len(conns))))
        ids = set()
        for c in conns:
            for _ in range(JOINS // len(conns)):
                frame = c.receive_frame()
                assert b"raw-" in frame
                ids.add(frame[frame.index(b"raw-") :][:40])
            c.close()
        assert len(ids) == JOINS
        assert a.heartbeat() == Kerr.NONE
        assert len(describe(conn, group).Members) == 1
        assert a.join_once().GenerationId == 2  # when none of them is awaited any more

    @pytest.mark.barnabas_only  # Kafka handles one request of a connection at a time
    def test_members_that_never_sync(self, broker, conn, group):
        """Ten thousand join, of versions that want no id first, and that is all they do."""
        conns = [broker.connect(timeout=120) for _ in range(200)]
        request = join_fields(group, metadata=bytes(100), session_ms=600000, rebalance_ms=3000)
        each = JOINS // len(conns)
        for c in conns:
            c.send_bytes(frames(c, [("JoinGroup", 3, request)] * each))
        # Each is answered: it has been in a generation, or has been too late for one.
        told = {}
        for c in conns:
            for _ in range(each):
                (error,) = struct.unpack(">h", c.receive_frame()[8:10])
                told[error] = told.get(error, 0) + 1
        assert set(told) <= {Kerr.NONE, Kerr.UNKNOWN_MEMBER_ID, Kerr.REBALANCE_IN_PROGRESS}, told
        await_state(conn, group, "Empty", "Dead")
        for c in conns:
            c.close()

    def test_a_member_on_each_of_a_thousand_connections_that_never_syncs(self, broker, conn, group):
        conns = [broker.connect(timeout=120) for _ in range(1000)]
        request = join_fields(group, metadata=bytes(100), session_ms=600000, rebalance_ms=2000)
        for c in conns:
            c.send_bytes(frames(c, [("JoinGroup", 3, request)]))
        for c in conns:
            (error,) = struct.unpack(">h", c.receive_frame()[8:10])
            assert error in (Kerr.NONE, Kerr.UNKNOWN_MEMBER_ID, Kerr.REBALANCE_IN_PROGRESS), Kerr(error)
        await_state(conn, group, "Empty", "Dead")
        for c in conns:
            c.close()

    def test_groups_with_an_offset_each(self, broker, conn, group):
        """Committed on a few connections, all listed, fetched in one request, deleted in one request."""
        names = [f"{group}-{i}" for i in range(GROUPS)]
        with broker.connect(timeout=120) as c:
            for at in range(0, GROUPS, 100):
                topics = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": at}]}]
                asked = [c.send("OffsetCommit", 8, GroupId=name, Topics=topics) for name in names[at : at + 100]]
                for one in asked:
                    assert c.receive(one).Topics[0].Partitions[0].ErrorCode == Kerr.NONE
            listed = {row.GroupId for row in c.call("ListGroups").Groups}
            assert listed >= set(names)
            rows = [{"GroupId": name, "Topics": None} for name in names]
            answer = c.call("OffsetFetch", 8, Groups=rows)
            assert [row.GroupId for row in answer.Groups] == names
            assert [row.Topics[0].Partitions[0].CommittedOffset for row in answer.Groups] == [
                i // 100 * 100 for i in range(GROUPS)
            ]
            answer = c.call("DescribeGroups", 5, Groups=names)
            assert {row.GroupState for row in answer.Groups} == {"Empty"}
            answer = c.call("DeleteGroups", GroupsNames=names)
            assert {row.ErrorCode for row in answer.Results} == {Kerr.NONE} and len(answer.Results) == GROUPS
            assert not {row.GroupId for row in c.call("ListGroups").Groups} & set(names)

    @pytest.mark.peer_differs("groups stay until the next look for expired offsets, which is in ten minutes")
    def test_groups_of_ids_that_nobody_comes_back_with(self, broker, conn, group):
        """A group a join, and none of them stays."""
        with broker.connect(timeout=120) as c:
            for at in range(0, GROUPS, 100):
                asked = [
                    c.send("JoinGroup", 5, **join_fields(f"{group}-{i}", session_ms=100)) for i in range(at, at + 100)
                ]
                for one in asked:
                    assert c.receive(one).ErrorCode == Kerr.MEMBER_ID_REQUIRED
            prefix = f"{group}-"
            wait_until(
                lambda: not [row for row in c.call("ListGroups").Groups if row.GroupId.startswith(prefix)],
                120,
                "all of these groups are gone",
            )

    def test_thousands_of_members_join_one_by_one_and_leave(self, broker, conn, member, group):
        """Each makes the group begin anew; what it was told before must not stay behind."""
        a = member()
        settle(a)
        with broker.connect(timeout=60) as c:
            for _ in range(1000):
                one = c.call("JoinGroup", 5, **join_fields(group, session_ms=10000))
                assert one.ErrorCode == Kerr.MEMBER_ID_REQUIRED
                assert c.call("LeaveGroup", 2, GroupId=group, MemberId=one.MemberId).ErrorCode == Kerr.NONE
        assert a.heartbeat() == Kerr.NONE
        assert fetch(conn, group) == {}

    @pytest.mark.barnabas_only  # Kafka sets the memory aside that a size announces, and has no more than 640 MB here
    def test_connections_that_stay_without_a_word(self, broker, group):
        """Each has begun a request and ends it much later, if at all."""
        conns = []
        for _ in range(300):
            c = Connection(broker.address)
            c.send_bytes(struct.pack(">i", 4 * MIB) + b"\0\x0b\0\5")
            conns.append(c)
        with broker.connect() as c:
            assert describe(c, group).ErrorCode == Kerr.NONE
        for c in conns:
            hang_up(c)
