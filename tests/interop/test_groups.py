"""Consumer groups of every client: members come, are killed, stand still and go; partitions and topics are added.

All scenarios that were chosen run at the same time on one broker, each in a thread (WORKERS at once), because most of
one is waiting. A test is its scenario's outcome."""

import concurrent.futures

import groups
import pytest
from group_clients import CLIENTS
from groups import FRAIL_SESSION_MS, Group

BROKER_CONFIG = groups.BROKER_CONFIG
WORKERS = 6


def shares_partitions(broker, directory, name, clients, assignor):
    """The members m0, m1, ... are clients of the given kinds, in turn."""
    with Group(broker, directory, name) as group:
        can_follow = all(CLIENTS[client].follows_patterns for client in clients)
        wanted = {"pattern": rf"^{name}\..*"} if can_follow else {"topics": [f"{name}.a"]}

        def start(**options):
            return group.start(clients[len(group.members) % len(clients)], assignor, **wanted, **options)

        group.create(f"{name}.a", 12)
        stays = start()
        victim = start(session_ms=FRAIL_SESSION_MS)
        group.settle(stays, victim, each=6)

        joins = start()
        group.settle(stays, victim, joins, each=4)

        victim.kill()
        group.note_committed()
        group.settle(stays, joins, each=6)

        sleeper = start(session_ms=FRAIL_SESSION_MS)
        group.settle(stays, joins, sleeper, each=4)
        sleeper.stop()
        group.note_committed()
        group.settle(stays, joins, each=6)
        sleeper.proceed()
        group.settle(stays, joins, sleeper, each=4)

        last = start()
        sleeper.close()
        group.settle(stays, joins, last, each=4)

        group.add_partitions(f"{name}.a", 15)
        group.settle(stays, joins, last, each=5)
        if can_follow:
            group.create(f"{name}.b", 3)
            group.settle(stays, joins, last, each=6)
        group.finish(stays, joins, last)


def keeps_static_members(broker, directory, name, clients, assignor):
    """Members with a group.instance.id come back without a rebalance, unless they are away for a session's time."""
    with Group(broker, directory, name) as group:
        client, topic = clients[0], f"{name}.a"

        def start(instance, **options):
            return group.start(client, assignor, topics=[topic], instance=f"{name}-{instance}", **options)

        def others_hear_nothing(since, *members):
            names = {member.name for member in members}
            told = [e for e in group.history.events[since:] if e["m"] in names]
            assert not [e for e in told if e["ev"] not in ("record", "committed")]

        def comes_back(old, instance, *others):
            since = len(group.history.events)
            had = group.history.owned(old.name)
            old.kill()
            group.note_committed()
            new = start(instance)
            group.settle(new, *others, each=4)
            assert group.history.owned(new.name) == had
            others_hear_nothing(since, *others)
            return new

        group.create(topic, 12)
        first = start(0)
        second = start(1)
        third = start(2, session_ms=FRAIL_SESSION_MS)
        group.settle(first, second, third, each=4)
        first = comes_back(first, 0, second, third)
        second = comes_back(second, 1, first, third)

        if CLIENTS[client].fenced:
            since, had = len(group.history.events), group.history.owned(first.name)
            first.ends = True
            group.history.frail.add(first.name)  # it hears of it when the other has its partitions already
            other = start(0)
            first.await_end()
            group.note_committed()
            group.settle(other, second, third, each=4)
            assert group.history.owned(other.name) == had
            others_hear_nothing(since, second, third)
            first = other

        third.kill()
        group.note_committed()
        group.settle(first, second, each=6)
        group.finish(first, second)


SAME = ("java-3.9.1",)  # as a static member, the client of 4.3.1 does what this one does, and a JVM takes its time

# name -> (scenario, clients in turn, assignor)
SCENARIOS = {
    **{f"{c}-{a}": (shares_partitions, (c,), a) for c in CLIENTS for a in CLIENTS[c].assignors},
    **{f"{c}-static": (keeps_static_members, (c,), "range") for c in CLIENTS if CLIENTS[c].static and c not in SAME},
    "three-in-python": (shares_partitions, ("confluent", "kafka-python", "aiokafka"), "range"),
    "three-languages": (shares_partitions, ("java-3.9.1", "confluent", "franz-go"), "range"),
    "three-cooperative": (shares_partitions, ("franz-go", "java-4.3.1", "confluent"), "cooperative-sticky"),
    "three-roundrobin": (shares_partitions, ("kafkajs", "sarama", "aiokafka"), "roundrobin"),
}


@pytest.fixture(scope="module")
def outcomes(request, broker, tmp_path_factory):
    """Scenario -> future of all that this run has chosen."""
    with broker.connect() as conn:
        if not conn.serves("JoinGroup"):
            pytest.skip("this broker coordinates no groups yet")
    chosen = [item.callspec.params["scenario"] for item in request.session.items if item.module is request.module]
    directory = tmp_path_factory.mktemp("groups")
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        futures = {}
        for name in chosen:
            scenario, clients, assignor = SCENARIOS[name]
            futures[name] = pool.submit(scenario, broker, directory / name, name, clients, assignor)
        yield futures
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_group_of(outcomes, scenario):
    outcomes[scenario].result()
