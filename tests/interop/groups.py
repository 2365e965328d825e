"""Consumer groups of real clients: members as processes, records that keep coming, and what the members tell.

with Group(broker, directory, "g") as group:
    group.create("t", 12)
    a = group.start("confluent", "range", topics=["t"])
    group.until(lambda: len(group.history.owned(a.name)) == 12, "one member owns all")
    a.kill(); group.finish()

All members of a group write to one FIFO, a line a write: the kernel puts the lines in order, and what a member told
before it let go of a partition stands before what the next owner tells. One thread runs a group; only `until` reads.
"""

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import threading
import time

import rawkafka
from batches import Record, build
from brokers import ENDS_WITH_US
from group_clients import CLIENTS
from group_history import History
from rawkafka import Kerr

WAIT_SECONDS = 90  # for anything a test waits for: two busy cores, and JVMs among the members
SESSION_MS = 30_000  # of members that nothing happens to: a busy machine must not make the group expel them
FRAIL_SESSION_MS = 3_000  # of members that are killed or stopped
HEARTBEAT_MS = 300
METADATA_MS = 500  # how soon a member sees new partitions and topics
REBALANCE_MS = 60_000

# What the broker of these tests needs: sessions shorter than usual, and no wait for more members of a new group.
BROKER_CONFIG = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}

PRODUCE_PERIOD_SECONDS = 0.2  # one record a partition each time


class Member:
    """One process in the group. What happens to it is told to the history once it is true."""

    def __init__(self, group, name, client, assignor, **options):
        self.group, self.name, self.client = group, name, client
        self.options = {
            "bootstrap": group.broker.bootstrap,
            "group": group.name,
            "member": name,
            "assignor": assignor,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            "rebalance_ms": REBALANCE_MS,
            "metadata_ms": METADATA_MS,
        } | options
        self.stderr_path = group.directory / f"{name}.stderr"
        self.ends = False  # is it to end?
        out = os.open(group.fifo, os.O_WRONLY)
        with self.stderr_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*ENDS_WITH_US, *map(str, client.command(self.options))],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out if client.tells_on_stderr else stderr,
                start_new_session=True,
            )
        os.close(out)

    def kill(self):
        self.ends = True
        self.process.kill()
        self.process.wait()
        self.group.note(self.name, "killed")

    def stop(self):
        """Returns once the process stands still."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        self.group.note(self.name, "stopped")

    def proceed(self):
        self.group.note(self.name, "continued")
        self.process.send_signal(signal.SIGCONT)

    def ask_to_close(self):
        self.ends = True
        if self.client.closes_on_sigterm:
            self.process.terminate()
        else:
            self.process.stdin.write(b"close\n")
            self.process.stdin.flush()

    def close(self):
        """The member leaves; it must say so and end with 0."""
        if self.client.closes_when_idle:
            with self.group.load.producing:
                self.group.await_handled()
                self.ask_to_close()
                self.await_end()
        else:
            self.ask_to_close()
            self.await_end()

    def await_end(self):
        self.group.until(lambda: self.process.poll() is not None, f"{self.name} ends")
        assert self.process.returncode == 0, f"{self.name}: exit status {self.process.returncode}\n{self.stderr()}"
        if self.client.closes_on_sigterm:
            self.group.note(self.name, "closed")
        self.group.until(lambda: self.group.history.of(self.name, "closed", "fenced"), f"{self.name} says it closed")

    def end_now(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()

    def stderr(self):
        return self.stderr_path.read_text(errors="replace")[-4000:]


class Load(threading.Thread):
    """Produces numbered records to every partition it was told of, each in its turn, until it is stopped."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address = address
        self.ended = threading.Event()
        self.producing = threading.Lock()
        self.partitions = []  # replaced, never changed in place
        self.values = {}  # (topic, partition, offset) -> value
        self.failure = None

    def run(self):
        try:
            with rawkafka.Connection(self.address, timeout=WAIT_SECONDS) as conn:
                while not self.ended.wait(PRODUCE_PERIOD_SECONDS):
                    with self.producing:
                        self._produce(conn)
        except Exception as failure:  # told by the thread that waits for this one
            self.failure = failure

    def _produce(self, conn):
        topics, sent = {}, {}
        for topic, index in self.partitions:
            value = str(len(self.values) + len(sent))
            sent[topic, index] = value
            row = {"Index": index, "Records": build([Record(None, value.encode())])}
            topics.setdefault(topic, {"Name": topic, "PartitionData": []})["PartitionData"].append(row)
        if not sent:
            return
        answer = conn.call("Produce", 9, Acks=-1, TimeoutMs=30000, TransactionalId=None, TopicData=[*topics.values()])
        for topic in answer.Responses:
            for row in topic.PartitionResponses:
                assert row.ErrorCode == Kerr.NONE, (topic.Name, row)
                self.values[topic.Name, row.Index, row.BaseOffset] = sent[topic.Name, row.Index]

    def produce_once(self):
        with rawkafka.Connection(self.address, timeout=WAIT_SECONDS) as conn:
            self._produce(conn)

    def stop(self):
        self.ended.set()
        self.join()
        if self.failure:
            raise self.failure

    def log_ends(self):
        ends = dict.fromkeys(self.partitions, 0)
        for topic, index, offset in self.values:
            ends[topic, index] = max(ends[topic, index], offset + 1)
        return ends


class Group:
    """A group, its topics, its load and its members."""

    def __init__(self, broker, directory, name):
        self.broker, self.name = broker, name
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.fifo = self.directory / "events"
        os.mkfifo(self.fifo)
        self.reading = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.writing = os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK)
        self.unread = b""
        self.history = History()
        self.other_lines = []  # what libraries write where events are expected
        self.members = {}
        self.conn = broker.connect(timeout=WAIT_SECONDS)
        self.load = Load(broker.address)
        self.load.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.load.ended.set()
        for member in self.members.values():
            member.end_now()
        self.load.join()
        self._drain()
        with (self.directory / "events.jsonl").open("w") as out:
            out.writelines(json.dumps(event) + "\n" for event in self.history.events)
        self.conn.close()
        os.close(self.reading)
        os.close(self.writing)
        os.unlink(self.fifo)

    # Members

    def start(self, client, assignor, name=None, **options):
        name = name or f"m{len(self.members)}"
        if CLIENTS[client].commits_by_itself:
            self.history.silent.add(name)
        if options.get("session_ms", SESSION_MS) < SESSION_MS:
            self.history.frail.add(name)
        self.members[name] = Member(self, name, CLIENTS[client], assignor, **options)
        return self.members[name]

    # Topics and records

    def create(self, topic, partitions):
        self.conn.new_topic(topic, partitions)
        self._load_also(topic, range(partitions))

    def add_partitions(self, topic, count):
        row = {"Name": topic, "Count": count, "Assignments": None}
        answer = self.conn.call("CreatePartitions", Topics=[row], TimeoutMs=30000, ValidateOnly=False)
        assert answer.Results[0].ErrorCode == Kerr.NONE, answer.Results[0]
        self.conn.await_topic(topic, count)
        had = {index for name, index in self.load.partitions if name == topic}
        self._load_also(topic, set(range(count)) - had)

    def _load_also(self, topic, indexes):
        self.load.partitions = self.load.partitions + [(topic, index) for index in sorted(indexes)]

    # What the broker says

    def committed(self):
        """(topic, partition) -> committed offset, of all that have one."""
        answer = self._when_loaded(
            lambda: self.conn.call("OffsetFetch", 7, GroupId=self.name, Topics=None, RequireStable=False)
        )
        return {(t.Name, p.PartitionIndex): p.CommittedOffset for t in answer.Topics for p in t.Partitions}

    def described(self):
        answer = self._when_loaded(
            lambda: self.conn.call("DescribeGroups", 5, Groups=[self.name]).Groups[0],
        )
        return answer

    def stable(self):
        """The description once the group is stable: each member sees new topics by itself, and joins again then."""
        rows = []

        def settled():
            rows.append(self.described())
            return rows[-1].GroupState == "Stable"

        self.until(settled, "the group is stable")
        return rows[-1]

    def _when_loaded(self, ask):
        """Apache Kafka loads the first group's partition for a moment after it has made it."""
        answers = []

        def answered():
            answers.append(ask())
            return answers[-1].ErrorCode not in (Kerr.COORDINATOR_LOAD_IN_PROGRESS, 16)

        self.until(answered, "the coordinator has loaded the group")
        assert answers[-1].ErrorCode == Kerr.NONE, answers[-1]
        return answers[-1]

    # Waiting, which is when events are read

    def note(self, member, kind, **fields):
        """Puts an event of the harness behind all that members have told so far."""
        line = json.dumps({"m": member, "ev": kind, **fields}).encode() + b"\n"
        while True:
            try:
                os.write(self.writing, line)
                break
            except BlockingIOError:
                self._read()
        self._read()

    def note_committed(self):
        """The history learns what is committed of the partitions that nobody owns: their next owners start there."""
        owned = self.history.owners()
        rest = [[*where, offset] for where, offset in self.committed().items() if where not in owned]
        self.note("broker", "fetched", offsets=rest)

    def until(self, condition, what, seconds=WAIT_SECONDS):
        """Waits until `condition` holds, reading events. A fault in them, or a member that ends by itself, fails at once."""
        deadline = time.monotonic() + seconds
        while True:
            self._read()
            if condition():
                return
            for member in self.members.values():
                assert member.ends or member.process.poll() is None, self._story(
                    f"{member.name} ended by itself: {member.process.returncode}\n{member.stderr()}"
                )
            assert self.load.failure is None, self.load.failure
            assert time.monotonic() < deadline, self._story(f"not within {seconds} s: {what}")
            select.select([self.reading], [], [], 0.05)

    def _read(self):
        self._drain()
        assert not self.history.faults, self._story("\n".join(self.history.faults))

    def _drain(self):
        while True:
            try:
                data = os.read(self.reading, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            *lines, self.unread = (self.unread + data).split(b"\n")
            for line in lines:
                self._take(line.decode())

    def _take(self, line):
        event = json.loads(line) if line.startswith("{") else kcat_event(line, self.members)
        if event is None:
            self.other_lines.append(line)
        else:
            self.history.take(event)

    def _story(self, text):
        """`text`, and what led to it: few lines, because a history has thousands."""
        shapes = {}
        for where, owner in self.history.owners().items():
            shapes.setdefault(owner, []).append(where)
        lines = [text[:4000], f"in {self.directory}"]
        lines += [f"{owner} owns {_brief(partitions)}" for owner, partitions in shapes.items()]
        rare = [e for e in self.history.events if e["ev"] not in ("record", "committed", "refused")]
        for event in [*rare[-40:], "...", *self.history.events[-10:]]:
            lines.append(event if isinstance(event, str) else _line(event))
        return "\n".join(lines + self.other_lines[-10:])

    # Conditions that scenarios share

    def settle(self, *members, each=None):
        """Waits until these members own every partition between them, `each` so many, and each partition's owner has
        handled a record of it."""
        names = {member.name for member in members}

        def settled():
            owners = self.history.owners()
            if set(owners) != set(self.load.partitions) or set(owners.values()) != names:
                return False
            if each is not None and any(len(self.history.owned(name)) != each for name in names):
                return False
            return all(self.history.started(where) for where in owners)

        self.until(settled, f"{sorted(names)} own {len(self.load.partitions)} partitions, {each} each, and handle them")

    def await_handled(self):
        """The load stands still meanwhile."""
        ends = self.load.log_ends()
        self.until(lambda: all(self.history.handled(w) == end for w, end in ends.items()), "all records are handled")

    def finish(self, *members):
        """Ends the load: all must be handled and committed. The group must have these members, then none."""
        self.load.stop()
        ends = self.load.log_ends()
        self.await_handled()
        self.until(lambda: self.committed() == ends, "the committed offsets are the logs' ends")
        assert self.history.values == self.load.values, "records are not those that were produced"
        row = self.stable()
        assert row.ProtocolType == "consumer"
        instances = [member.options.get("instance") for member in members]
        if any(instances):  # a member that took a static one's place need not be shown with its own client.id
            assert sorted(m.GroupInstanceId for m in row.Members) == sorted(instances)
        else:
            assert sorted(m.ClientId for m in row.Members) == sorted(m.name for m in members)
        assert row.ProtocolData == members[0].options["assignor"]
        for member in members:
            member.ask_to_close()
        if any(member.client.heeds_when_busy for member in members):
            self.load.produce_once()
        for member in members:
            member.await_end()
        left = self.committed()
        assert all(left[where] >= end for where, end in ends.items()), (left, ends)
        if not any(instances):  # static members leave by their session's end only
            row = self.described()
            assert (row.GroupState, list(row.Members)) == ("Empty", [])


def _brief(partitions):
    """[["t", 0], ["t", 1], ["u", 0]] -> t:0,1 u:0"""
    topics = {}
    for topic, index, *offset in partitions:
        topics.setdefault(topic, []).append("@".join(map(str, [index, *offset])))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in sorted(topics.items())) or "nothing"


def _line(event):
    rest = {key: value for key, value in event.items() if key not in ("m", "ev")}
    for key in ("partitions", "offsets"):
        if key in rest:
            rest[key] = _brief(rest[key])
    return f"  {event['m']} {event['ev']} " + " ".join(map(str, rest.values()))[:300]


_KCAT = re.compile(
    r"% Group \S+ rebalanced(?:: incremental (assignment|revoke) of \d+ partition\(s\))?"
    r" \(memberid (\S+?)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(.*?)\): (?:(assigned|revoked): )?(.*)"
)


def kcat_event(line, members):
    """kcat tells of rebalances in words. Its member id starts with its client.id, which is the member's name, or with
    its group.instance.id, which the last member that was started with it has."""
    found = _KCAT.fullmatch(line)
    if not found:
        return None
    incremental, member, more, eager, rest = found.groups()
    kind = "assigned" if "assign" in (incremental or eager) else "lost" if "assignment lost" in more else "revoked"
    partitions = [[topic, int(index)] for topic, index in re.findall(r"(\S+) \[(\d+)\]", rest)]
    of_instance = [name for name, known in members.items() if known.options.get("instance") == member]
    return {"m": (of_instance or [member])[-1], "ev": kind, "partitions": partitions}
