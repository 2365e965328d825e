"""Members of consumer groups, each step of the classic protocol a call of its own; and ones that live by themselves.

a, b = Member(broker, "g"), Member(broker, "g")
settle(a, b)
a.commit({("topic", 0): 7}); a.heartbeat(); b.leave()
"""

import select
import struct
import threading
import time

import rawkafka
from brokers import wait_until
from rawkafka import Kerr

CONSUMER = "consumer"
# The newest versions without what came after Kafka 3.9: topic ids, and an error for groups that are not there.
NEWEST = {"OffsetCommit": 9, "OffsetFetch": 9, "DescribeGroups": 5}
DEADLINE_SECONDS = 60
AGAIN = (Kerr.REBALANCE_IN_PROGRESS, Kerr.ILLEGAL_GENERATION)  # join again, with the same id


def _string(text):
    return struct.pack(">h", len(text)) + text.encode()


def subscription(*topics):
    """A consumer's metadata: the topics that it wants (ConsumerProtocolSubscription v0)."""
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_string, topics)) + struct.pack(">i", -1)


def assignment(partitions):
    """topic -> partitions, as consumers read it (ConsumerProtocolAssignment v0)."""
    rows = b"".join(
        _string(topic) + struct.pack(f">i{len(some)}i", len(some), *some) for topic, some in partitions.items()
    )
    return struct.pack(">hi", 0, len(partitions)) + rows + struct.pack(">i", -1)


def find_coordinator(conn, group, version=None):
    """Asks until the coordinator is there: the first ones to ask have its topic made."""

    def asked():
        newest = conn.newest("FindCoordinator") if version is None else version
        if newest >= 4:
            answer = conn.call("FindCoordinator", newest, KeyType=0, CoordinatorKeys=[group]).Coordinators[0]
        else:
            answer = conn.call("FindCoordinator", newest, Key=group, KeyType=0)
        assert answer.ErrorCode in (Kerr.NONE, Kerr.COORDINATOR_NOT_AVAILABLE), Kerr(answer.ErrorCode)
        return answer if answer.ErrorCode == Kerr.NONE else None

    return wait_until(asked, DEADLINE_SECONDS, "the coordinator is there")


def await_loaded(conn, group):
    """Waits until the group's coordinator has read what its partition holds."""
    find_coordinator(conn, group)
    loading = (Kerr.COORDINATOR_LOAD_IN_PROGRESS, Kerr.NOT_COORDINATOR, Kerr.COORDINATOR_NOT_AVAILABLE)
    wait_until(lambda: describe(conn, group).ErrorCode not in loading, DEADLINE_SECONDS, "the coordinator has loaded")


def describe(conn, group, version=None, **more):
    version = conn.newest("DescribeGroups", upto=NEWEST["DescribeGroups"]) if version is None else version
    return conn.call("DescribeGroups", version, Groups=[group], **more).Groups[0]


def commit_rows(offsets):
    """(topic, partition) -> offset, or a dict of the request's fields, as the request's topics."""
    topics = {}
    for (topic, partition), offset in offsets.items():
        row = dict(offset) if isinstance(offset, dict) else {"CommittedOffset": offset}
        topics.setdefault(topic, []).append({"PartitionIndex": partition, "CommittedMetadata": "", **row})
    return [{"Name": topic, "Partitions": rows} for topic, rows in topics.items()]


def commit(conn, group, offsets, version=None, **more):
    """Commits without being a member; returns (topic, partition) -> error code."""
    version = conn.newest("OffsetCommit", upto=NEWEST["OffsetCommit"]) if version is None else version
    answer = conn.call("OffsetCommit", version, GroupId=group, Topics=commit_rows(offsets), **more)
    return {(topic.Name, row.PartitionIndex): row.ErrorCode for topic in answer.Topics for row in topic.Partitions}


def _fetch_topics(partitions):
    topics = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"Name": topic, "PartitionIndexes": some} for topic, some in topics.items()]


def fetch_groups(conn, wanted, version=None, **more):
    """group -> partitions, or None for all; returns group -> (error code, (topic, partition) -> row)."""
    version = conn.newest("OffsetFetch", upto=NEWEST["OffsetFetch"]) if version is None else version
    asked = {group: None if some is None else _fetch_topics(some) for group, some in wanted.items()}
    if version >= 8:
        rows = [{"GroupId": group, "Topics": topics} for group, topics in asked.items()]
        groups = conn.call("OffsetFetch", version, Groups=rows, **more).Groups
        named = [(row.GroupId, row) for row in groups]
    else:
        ((group, topics),) = asked.items()
        named = [(group, conn.call("OffsetFetch", version, GroupId=group, Topics=topics, **more))]
    found = {}
    for group, answer in named:
        assert group not in found, f"{group} is there twice"
        rows = {(topic.Name, row.PartitionIndex): row for topic in answer.Topics for row in topic.Partitions}
        found[group] = answer.get("ErrorCode", 0), rows
    return found


def fetch(conn, group, partitions=None, version=None, **more):
    """(topic, partition) -> row of what is committed; all that is, without `partitions`."""
    error, rows = fetch_groups(conn, {group: partitions}, version, **more)[group]
    assert error == Kerr.NONE, Kerr(error)
    return rows


def committed(conn, group, partitions=None, version=None):
    """(topic, partition) -> offset; -1 for none."""
    rows = fetch(conn, group, partitions, version)
    assert all(row.ErrorCode == Kerr.NONE for row in rows.values()), rows
    return {where: row.CommittedOffset for where, row in rows.items()}


class Member:
    """One member on a connection of its own, which remembers its id and generation."""

    def __init__(
        self,
        broker,
        group,
        *,
        instance=None,
        topics=("t",),
        protocols=None,
        protocol_type=CONSUMER,
        session_ms=30000,
        rebalance_ms=30000,
        client_id="member",
        timeout=30.0,
    ):
        self.conn = broker.connect(client_id=client_id, timeout=timeout)
        self.group, self.instance = group, instance
        self.protocol_type = protocol_type
        self.protocols = protocols or [("range", subscription(*topics))]
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.id, self.generation = "", -1
        self.joined = None  # the last good answer to a JoinGroup
        self.assignment = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.conn.close()

    def _version(self, api, version):
        return self.conn.newest(api, upto=NEWEST.get(api)) if version is None else version

    def send_join(self, version=None, **more):
        fields = {
            "GroupId": self.group,
            "SessionTimeoutMs": self.session_ms,
            "RebalanceTimeoutMs": self.rebalance_ms,
            "MemberId": self.id,
            "GroupInstanceId": self.instance,
            "ProtocolType": self.protocol_type,
            "Protocols": [{"Name": name, "Metadata": metadata} for name, metadata in self.protocols],
        }
        return self.conn.send("JoinGroup", self._version("JoinGroup", version), **fields | more)

    def receive_join(self, correlation):
        answer = self.conn.receive(correlation)
        if answer.ErrorCode == Kerr.NONE:
            self.id, self.generation, self.joined = answer.MemberId, answer.GenerationId, answer
        elif answer.ErrorCode == Kerr.MEMBER_ID_REQUIRED:
            self.id = answer.MemberId
        return answer

    def join_once(self, version=None, **more):
        """One JoinGroup and its answer, whatever that is."""
        return self.receive_join(self.send_join(version, **more))

    def join(self, version=None, **more):
        """Joins, coming back with the id where the coordinator wants that first."""
        answer = self.join_once(version, **more)
        if answer.ErrorCode == Kerr.MEMBER_ID_REQUIRED:
            answer = self.join_once(version, **more)
        assert answer.ErrorCode == Kerr.NONE, Kerr(answer.ErrorCode)
        return answer

    @property
    def leads(self):
        return self.joined.Leader == self.id

    def send_sync(self, assignments=None, version=None, **more):
        """`assignments`: member id -> bytes, from the leader."""
        fields = {
            "GroupId": self.group,
            "GenerationId": self.generation,
            "MemberId": self.id,
            "GroupInstanceId": self.instance,
            "ProtocolType": self.protocol_type,
            "ProtocolName": self.joined.ProtocolName if self.joined else self.protocols[0][0],
            "Assignments": [{"MemberId": one, "Assignment": what} for one, what in (assignments or {}).items()],
        }
        return self.conn.send("SyncGroup", self._version("SyncGroup", version), **fields | more)

    def receive_sync(self, correlation):
        answer = self.conn.receive(correlation)
        if answer.ErrorCode == Kerr.NONE:
            self.assignment = answer.Assignment
        return answer

    def sync(self, assignments=None, version=None, **more):
        return self.receive_sync(self.send_sync(assignments, version, **more))

    def heartbeat(self, version=None, **more):
        """The error code."""
        fields = {
            "GroupId": self.group,
            "GenerationId": self.generation,
            "MemberId": self.id,
            "GroupInstanceId": self.instance,
        }
        return self.conn.call("Heartbeat", self._version("Heartbeat", version), **fields | more).ErrorCode

    def leave(self, version=None):
        """The error code of this member."""
        version = self._version("LeaveGroup", version)
        if version < 3:
            return self.conn.call("LeaveGroup", version, GroupId=self.group, MemberId=self.id).ErrorCode
        rows = [{"MemberId": self.id, "GroupInstanceId": self.instance}]
        answer = self.conn.call("LeaveGroup", version, GroupId=self.group, Members=rows)
        return answer.ErrorCode or answer.Members[0].ErrorCode

    def commit(self, offsets, version=None, **more):
        fields = {
            "MemberId": self.id,
            "GenerationIdOrMemberEpoch": self.generation,
            "GroupInstanceId": self.instance,
        }
        return commit(self.conn, self.group, offsets, version, **fields | more)


def settle(*members, assign=None):
    """Takes all of them into one generation; what each is assigned is `assign(member id)`, or its id."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    waiting = {}  # member -> its JoinGroup
    for member in members:
        if not member.id and member.instance is None:
            assert member.join_once().ErrorCode in (Kerr.MEMBER_ID_REQUIRED, Kerr.NONE)
    for member in members:
        waiting[member] = member.send_join()
    while True:
        while waiting:
            assert time.monotonic() < deadline, "the group does not settle"
            for conn in select.select([one.conn.socket for one in waiting], [], [], 0.02)[0]:
                (member,) = [one for one in waiting if one.conn.socket is conn]
                answer = member.receive_join(waiting.pop(member))
                assert answer.ErrorCode == Kerr.NONE, Kerr(answer.ErrorCode)
            # Who was answered for a generation that is over already is told so by its heartbeat.
            for member in members:
                if member not in waiting and member.heartbeat() in AGAIN:
                    waiting[member] = member.send_join()
        (leader,) = [member for member in members if member.leads]
        give = assign or (lambda one: one.encode())
        answers = [leader.sync({row.MemberId: give(row.MemberId) for row in leader.joined.Members})]
        answers += [member.sync() for member in members if member is not leader]
        if all(answer.ErrorCode == Kerr.NONE for answer in answers):
            return leader
        assert all(answer.ErrorCode in (Kerr.NONE, *AGAIN) for answer in answers), [Kerr(a.ErrorCode) for a in answers]
        waiting = {member: member.send_join() for member in members}


class Steady(threading.Thread):
    """A group of its own that does all by the book, on one connection a member, and expects that of the broker: any
    error, and any rebalance after the first, ends the thread and stays in `error`."""

    def __init__(self, broker, group, topic, count=2):
        super().__init__(daemon=True)
        self.broker, self.group, self.topic, self.count = broker, group, topic, count
        self.rounds = 0
        self.error = None
        self.finish = threading.Event()

    def run(self):
        try:
            # Far longer than anything that is done to the broker: only a refusal could end a session.
            members = [Member(self.broker, self.group, session_ms=60000, timeout=60) for _ in range(self.count)]
            settle(*members)
            while not self.finish.is_set():
                for index, member in enumerate(members):
                    error = member.heartbeat()
                    assert error == Kerr.NONE, f"heartbeat: {Kerr(error)!r}"
                    where = self.topic, index
                    told = member.commit({where: self.rounds})
                    assert told == {where: Kerr.NONE}, f"commit: {told}"
                    assert committed(member.conn, self.group, [where]) == {where: self.rounds}
                self.rounds += 1
                self.finish.wait(0.01)
            for member in members:
                assert member.leave() == Kerr.NONE
                member.close()
        except BaseException as error:  # noqa: BLE001  (whatever it is, the tests must see it)
            self.error = error

    def goes_on(self, rounds=3, seconds=DEADLINE_SECONDS):
        goal = self.rounds + rounds

        def reached():
            assert self.error is None, f"the steady group: {self.error!r}"
            return self.rounds >= goal

        wait_until(reached, seconds, "the steady group is served")


class Lasting(threading.Thread):
    """A member that outlives brokers: it finds its coordinator again, joins again, and goes on committing ever higher
    offsets of the partitions that it is assigned, beginning behind what is committed.

    What was acknowledged is in `acknowledged`: partition -> offset; `wrong` has what must not happen.  The members of a
    group share one object for both, `Promises`."""

    # Errors after which clients join without their id, or ask again a little later.
    FORGET = (Kerr.UNKNOWN_MEMBER_ID,)
    REFIND = (Kerr.NOT_COORDINATOR, Kerr.COORDINATOR_NOT_AVAILABLE, Kerr.COORDINATOR_LOAD_IN_PROGRESS)

    def __init__(self, broker, group, topic, partitions, promises, *, session_ms, instance=None):
        super().__init__(daemon=True)
        self.broker, self.group, self.topic, self.partitions = broker, group, topic, partitions
        self.promises, self.session_ms, self.instance = promises, session_ms, instance
        self.id = ""
        self.commits = 0
        self.stable = None  # (life of the broker, generation) of the last commit that was acknowledged
        self.rejoin = threading.Event()  # set: leave the generation by joining anew
        self.finish = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self.finish.is_set():
                try:
                    self._live()
                except (OSError, rawkafka.Closed):
                    self.finish.wait(0.02)  # the broker is away; there is nothing to wait for but its port
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _live(self):
        """One connection's time."""
        with Member(
            self.broker,
            self.group,
            instance=self.instance,
            topics=[self.topic],
            session_ms=self.session_ms,
            rebalance_ms=self.session_ms,
        ) as member:
            # Asked for with the connection there: one to a broker that is dead by now has nothing acknowledged any more.
            life = self.promises.life
            member.id = self.id if self.instance is None else ""
            while not self.finish.is_set():
                error = self._generation(member, life)
                self.id = member.id
                if error in self.FORGET:
                    member.id = self.id = ""
                elif error in self.REFIND:
                    self.finish.wait(0.02)
                else:
                    assert error in (*AGAIN, Kerr.NONE), f"{self.group}: {Kerr(error)!r}"

    def _generation(self, member, life):
        """Joins and commits until told to join again; the error that ended it."""
        answer = member.join_once()
        if answer.ErrorCode == Kerr.MEMBER_ID_REQUIRED:
            self.id = member.id
            answer = member.join_once()
        if answer.ErrorCode != Kerr.NONE:
            return answer.ErrorCode
        assignments = None
        if member.leads and not answer.get("SkipAssignment", False):
            names = sorted(row.MemberId for row in answer.Members)
            shares = {name: list(range(at, self.partitions, len(names))) for at, name in enumerate(names)}
            assignments = {name: struct.pack(f">{len(some)}i", *some) for name, some in shares.items()}
        answer = member.sync(assignments)
        if answer.ErrorCode != Kerr.NONE:
            return answer.ErrorCode
        data = answer.Assignment
        mine = list(struct.unpack(f">{len(data) // 4}i", data))
        if not mine:
            return self._idle(member)
        at = self._begin(member, mine)
        if not isinstance(at, dict):
            return at
        while not self.finish.is_set() and not self.rejoin.is_set():
            error = member.heartbeat()
            if error != Kerr.NONE:
                return error
            wanted = {(self.topic, index): offset + 1 for index, offset in at.items()}
            errors = set(member.commit(wanted).values())
            if errors != {Kerr.NONE}:
                assert len(errors) == 1, f"{self.group}: one commit, several outcomes: {errors}"
                return errors.pop()
            at = {index: offset + 1 for index, offset in at.items()}
            self.promises.acknowledge(at)
            self.commits += 1
            self.stable = life, member.generation
            self.finish.wait(0.002)
        self.rejoin.clear()
        return Kerr.NONE

    def _idle(self, member):
        """There are more members than partitions."""
        while not self.finish.is_set() and not self.rejoin.is_set():
            error = member.heartbeat()
            if error != Kerr.NONE:
                return error
            self.finish.wait(0.02)
        self.rejoin.clear()
        return Kerr.NONE

    def _begin(self, member, mine):
        """Where to go on: what is committed, which may not be less than what had been acknowledged before."""
        before = {index: self.promises.of(index) for index in mine}
        found = fetch_groups(member.conn, {self.group: [(self.topic, index) for index in mine]})
        error, rows = found[self.group]
        if error != Kerr.NONE:
            return error
        at = {index: rows[self.topic, index].CommittedOffset for index in mine}
        for index in mine:
            if at[index] < before[index]:
                self.promises.wrong.append(f"{self.group}/{index}: {at[index]} committed after {before[index]}")
        return at


class Promises:
    """What a group's members have had acknowledged, and which of the broker's lives this is."""

    def __init__(self):
        self.life = 0
        self.wrong = []
        self._acknowledged = {}
        self._lock = threading.Lock()

    def acknowledge(self, offsets):
        with self._lock:
            for index, offset in offsets.items():
                self._acknowledged[index] = max(offset, self._acknowledged.get(index, -1))

    def of(self, index):
        with self._lock:
            return self._acknowledged.get(index, -1)

    def all(self):
        with self._lock:
            return dict(self._acknowledged)
