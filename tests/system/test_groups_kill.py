"""Brokers that are killed and restarted again and again while groups rebalance and commit: no acknowledged commit is
lost or goes back, no group is stuck, and every member is back within a session timeout."""

import os
import random

import pytest

from brokers import wait_until
from groups import Lasting, Promises, await_loaded, committed, describe

KILLS = int(os.environ.get("BARNABAS_KILLS", "50"))
SEED = int(os.environ.get("BARNABAS_SEED", str(random.randrange(1 << 30))))
SESSION_MS = 30000
PARTITIONS = 4
MEMBERS = 3
GROUPS = {"dynamic": False, "another": False, "static": True}  # name -> its members are static
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "65536",  # so that the log is compacted, too
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
}


class Group:
    def __init__(self, broker, name, topic, static):
        self.name, self.topic = name, topic
        self.promises = Promises()
        self.members = [
            Lasting(
                broker,
                name,
                topic,
                PARTITIONS,
                self.promises,
                session_ms=SESSION_MS,
                instance=f"{name}-{number}" if static else None,
            )
            for number in range(MEMBERS)
        ]

    def commits(self):
        return sum(member.commits for member in self.members)

    def check(self):
        assert not self.promises.wrong, f"seed {SEED}: {self.promises.wrong[:5]}"
        for member in self.members:
            assert member.error is None, f"seed {SEED}: {member.error!r}"

    def is_back(self):
        """Every member has had a commit acknowledged in this life of the broker, and all in one generation."""
        self.check()
        stable = {member.stable for member in self.members}
        return len(stable) == 1 and None not in stable and stable.pop()[0] == self.promises.life

    def check_kept(self, conn, promised):
        """What is committed now is no less than what had been acknowledged."""
        found = committed(conn, self.name, [(self.topic, index) for index in range(PARTITIONS)])
        for index, offset in promised.items():
            now = found[self.topic, index]
            assert now >= offset, f"seed {SEED}: {self.name}/{index} is at {now}, {offset} was acknowledged"


@pytest.mark.timeout(1200)
def test_acknowledged_commits_stay_and_groups_come_back(fresh_broker, topic_name):
    rng = random.Random(SEED)
    broker = fresh_broker(CONFIG).start()
    with broker.connect() as c:
        c.new_topic(topic_name, PARTITIONS)
        for name in GROUPS:
            await_loaded(c, name)
    groups = [Group(broker, name, topic_name, static) for name, static in GROUPS.items()]
    members = [member for group in groups for member in group.members]
    for member in members:
        member.start()
    try:
        for kill in range(KILLS):
            for group in groups:
                wait_until(group.is_back, SESSION_MS / 1000, f"seed {SEED}, kill {kill}: {group.name} is back")
            # Somewhere in a rebalance of some groups, or soon after it, and amid the commits of the others.
            goal = sum(group.commits() for group in groups) + rng.randrange(60)
            for member in rng.sample(members, rng.randrange(4)):
                member.rejoin.set()

            def reached(goal=goal):
                for group in groups:
                    group.check()
                return sum(group.commits() for group in groups) >= goal

            wait_until(reached, 60, f"seed {SEED}: commits go on")
            promised = {group: group.promises.all() for group in groups}
            broker.stop() if rng.random() < 0.2 else broker.kill()
            for group in groups:
                group.promises.life += 1
            broker.start()
            with broker.connect() as c:
                for group in groups:
                    await_loaded(c, group.name)
                    group.check_kept(c, promised[group])
        for group in groups:
            wait_until(group.is_back, SESSION_MS / 1000, f"seed {SEED}, the last: {group.name} is back")
    finally:
        for member in members:
            member.finish.set()
        for member in members:
            member.join()
    with broker.connect() as c:
        for group in groups:
            group.check()
            group.check_kept(c, group.promises.all())
            # Nobody came back under another name while the old one was still there.
            assert len(describe(c, group.name).Members) == MEMBERS, f"seed {SEED}"
            assert set(group.promises.all()) == set(range(PARTITIONS)), "a partition has had no commit"
    broker.stop()
