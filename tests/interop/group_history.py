"""What a group's members told, in the order they told it, and everything in it that must not be.

history = History()
history.take({"m": "a", "ev": "assigned", "partitions": [["t", 0]]}); history.faults; history.owners

Events are those of a member (README.md, "Consumer groups") and these of the harness, which come after all that the
member told before: "stopped" and "killed" (told when it no longer runs), "continued" (told before it runs again), and
"fetched": committed offsets as the broker gave them.

A partition's *owner* is the member that was assigned it last, unless it gave it up, was killed, stopped or expelled.
What a member tells of partitions it held when it was stopped or expelled counts for nothing until it gave them up or
was assigned them again: by then they may be somebody else's.
"""


class _Partition:
    def __init__(self):
        self.owner = None
        self.start = None  # the first offset that the present owner handled; None: it handled none yet
        self.position = 0  # where the present owner goes on
        self.handled = 0  # every record below was handled by an owner
        self.committed = 0  # every commit so far that the group must still know is at or below


class _Member:
    def __init__(self):
        self.runs = True
        self.refused = False  # was its last commit refused?
        self.stale = set()  # partitions it may believe to own, but was stopped or expelled


class History:
    """`silent` members commit by themselves and tell nothing of it. `frail` ones have so short a session that a busy
    machine may make the group expel them, which they hear of when somebody else owns their partitions already."""

    def __init__(self, silent=(), frail=()):
        self.events = []
        self.faults = []
        self.partitions = {}
        self.members = {}
        self.silent = set(silent)
        self.frail = set(frail)
        self.values = {}  # (topic, partition, offset) -> value, as members handled them

    def take(self, event):
        self.events.append(event)
        getattr(self, "_" + event["ev"])(event, self.members.setdefault(event["m"], _Member()))

    # What can be asked of it

    def owners(self):
        return {where: p.owner for where, p in self.partitions.items() if p.owner}

    def owned(self, name):
        return {where for where, p in self.partitions.items() if p.owner == name}

    def handled(self, where):
        return self.partitions[where].handled if where in self.partitions else 0

    def started(self, where):
        """Has the present owner handled a record?"""
        return self.partitions[where].start is not None

    def of(self, name, *kinds):
        return [e for e in self.events if e["m"] == name and e["ev"] in kinds]

    # Events

    def _fault(self, event, text):
        self.faults.append(f"{text}: event {len(self.events) - 1}, {event}")

    def _each(self, event):
        for topic, index in event["partitions"]:
            yield (topic, index), self.partitions.setdefault((topic, index), _Partition())

    def _assigned(self, event, member):
        for where, p in self._each(event):
            if p.owner in self.frail - {event["m"]}:
                self.members[p.owner].stale.add(where)
            elif p.owner == event["m"] and p.start is None:
                pass  # franz-go tells again of what it was assigned just before the next rebalance began
            elif p.owner:
                self._fault(event, f"{where} has an owner, {p.owner}")
            member.stale.discard(where)
            p.owner, p.start = event["m"], None

    def _revoked(self, event, member):
        for where, p in self._each(event):
            if where in member.stale:
                member.stale.discard(where)
                continue
            if p.owner != event["m"]:
                self._fault(event, f"{where} was not its own to give up")
                continue
            if p.start is not None and event["m"] not in self.silent and p.committed != p.position:
                self._fault(event, f"{where} given up at {p.position} but committed {p.committed}")
            p.owner = None

    def _lost(self, event, member):
        for where, p in self._each(event):
            if where in member.stale:
                member.stale.discard(where)
                continue
            if event["m"] not in self.frail and not member.refused:
                self._fault(event, f"{where} lost by a member that was never stopped")
            if p.owner == event["m"]:
                p.owner = None

    def _record(self, event, member):
        where = event["t"], event["p"]
        p = self.partitions.setdefault(where, _Partition())
        if self.values.setdefault((*where, event["o"]), event["v"]) != event["v"]:
            self._fault(event, "the record was another one before")
        if where in member.stale:
            return
        if p.owner != event["m"]:
            self._fault(event, f"handled, but the owner is {p.owner}")
            return
        if p.start is None:
            if not p.committed <= event["o"] <= p.handled:
                self._fault(event, f"the new owner starts outside committed {p.committed} to handled {p.handled}")
            p.start = event["o"]
        elif event["o"] != p.position:
            self._fault(event, f"handled out of order, expected {p.position}")
        p.position = event["o"] + 1
        p.handled = max(p.handled, p.position)

    def _committed(self, event, member):
        member.refused = False
        for topic, index, offset in event["offsets"]:
            where = topic, index
            p = self.partitions.setdefault(where, _Partition())
            if where in member.stale:
                # Sent before it was stopped, this came true. After somebody else had started, it must not.
                if p.start is not None and offset > p.start:
                    self._fault(event, f"a fenced member's commit of {where} over that of {p.owner}")
            elif p.owner != event["m"]:
                self._fault(event, f"committed {where}, but the owner is {p.owner}")
            elif p.start is None:
                self._fault(event, f"committed {where} without having handled a record of it")
            elif not p.committed <= offset <= p.position:
                self._fault(event, f"committed {where} outside committed {p.committed} to handled {p.position}")
            else:
                p.committed = offset

    def _refused(self, event, member):
        """What was not committed is committed later, or handled again. librdkafka gives up all it has when a commit of
        the last generation comes when the next has begun, which a cooperative member cannot avoid."""
        member.refused = True

    def _fetched(self, event, member):
        for topic, index, offset in event["offsets"]:
            p = self.partitions.setdefault((topic, index), _Partition())
            if not p.committed <= offset <= p.handled:
                self._fault(event, f"{topic}-{index}: outside committed {p.committed} to handled {p.handled}")
            p.committed = max(p.committed, offset)

    def _stopped(self, event, member):
        member.stale |= self._disown(event["m"])

    def _continued(self, event, member):
        pass

    def _killed(self, event, member):
        member.runs = False
        member.stale.clear()
        self._disown(event["m"])

    def _fenced(self, event, member):
        """Another process took the member's place by its group.instance.id; it ends without giving up anything."""
        member.runs = False
        member.stale.clear()
        self._disown(event["m"])

    def _closed(self, event, member):
        member.runs = False
        if held := self._disown(event["m"]):
            self._fault(event, f"left without giving up {sorted(held)}")

    def _failed(self, event, member):
        self._fault(event, "a member failed")

    def _disown(self, name):
        held = self.owned(name)
        for where in held:
            self.partitions[where].owner = None
        return held
