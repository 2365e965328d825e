"""Consumer groups of every client: members come, are killed, stand still and go; partitions and topics are added.

All scenarios that were chosen run at the same time on one broker, each in a thread (WORKERS at once), because most of
one is waiting. A test is its scenario's outcome."""

import concurrent.futures

import groups
import pytest
from group_clients import CLIENTS
from groups import FRAIL_SESSION_MS, Group

BROKER_CONFIG = groups.BROKER_CONFIG
WORKERS = int(__import__("os").environ.get("W", 6))


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


SCENARIOS = {
    f"{client}-{assignor}": ((client,), assignor) for client in CLIENTS for assignor in CLIENTS[client].assignors
} | {"mixed": (("confluent", "kafka-python", "aiokafka"), "range")}


@pytest.fixture(scope="module")
def outcomes(request, broker, tmp_path_factory):
    """Scenario -> future of all that this run has chosen."""
    with broker.connect() as conn:
        if not conn.serves("JoinGroup"):
            pytest.skip("this broker coordinates no groups yet")
    chosen = [item.callspec.params["scenario"] for item in request.session.items if item.module is request.module]
    directory = tmp_path_factory.mktemp("groups")
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        yield {
            name: pool.submit(shares_partitions, broker, directory / name, name, *SCENARIOS[name]) for name in chosen
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_members_share_the_partitions(outcomes, scenario):
    outcomes[scenario].result()
