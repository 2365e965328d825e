"""Three brokers and a checked load, while things break: nothing acknowledged is lost, doubled or reordered.

The same tests with three Apache Kafka 3.9.1 brokers prove them: --peer kafka39."""

import os
import random

import network
import pytest

from brokers import wait_until
from cluster import Cluster
from load import Load
from soak import soak

pytestmark = pytest.mark.timeout(600)
ROUNDS = int(os.environ.get("BARNABAS_FAULTS", "6"))
SOAK_SECONDS = int(os.environ.get("BARNABAS_SOAK_SECONDS", "120"))
WHOLE_SECONDS = 30  # after the last fault; for a JVM that has to start as well:
PEER_WHOLE_SECONDS = 90
# A follower that is stopped leaves the in-sync set before the producers' patience is over.
CONFIG = {"replica.lag.time.max.ms": "3000", "num.io.threads": "2"}


@pytest.fixture
def seed():
    return int(os.environ.get("BARNABAS_SEED", random.randrange(1 << 30)))


def peer_of(kind):
    return "kafka39" if kind == "kafka43" else kind


@pytest.fixture
def cluster(kind, tmp_path):
    with Cluster(tmp_path, 3, config=CONFIG, kinds=[peer_of(kind)] * 3) as one:
        yield one.start()


def whole(cluster):
    cluster.wait_whole(WHOLE_SECONDS if all(b.kind == "barnabas" for b in cluster) else PEER_WHOLE_SECONDS)


def test_killed_brokers_lose_nothing(cluster, seed):
    dice = random.Random(seed)
    load = Load(cluster, "killed", java=1).start()
    load.wait_progress(200)
    for _ in range(ROUNDS):
        broker = dice.choice(list(cluster))
        broker.kill()
        load.wait_progress(100)
        broker.start()
        load.wait_progress(100)
        whole(cluster)
    load.stop()
    load.check()


@pytest.mark.parametrize("acks", [0, 1])
def test_who_waits_for_less_than_all_loses_records_but_has_none_doubled_or_out_of_order(cluster, seed, acks):
    """And no consumer sees what is lost later: it reads what every in-sync replica has."""
    dice = random.Random(seed)
    load = Load(cluster, "unsafe", acks=acks).start()
    load.wait_progress(200)
    for _ in range(3):
        broker = dice.choice(list(cluster))
        broker.kill()
        load.wait_progress(100)
        broker.start()
        whole(cluster)
    first = load.settled()
    load.wait_progress(200)
    load.stop()
    load.check_order(since=first)


def test_a_killed_controller_is_replaced(cluster):
    load = Load(cluster, "controller").start()
    load.wait_progress(100)
    for _ in range(2):
        old = cluster.controller()
        old.kill()
        wait_until(lambda: cluster.controller() is not old, 60, "another broker is the controller")
        load.wait_progress(100)
        old.start()
        whole(cluster)
    load.stop()
    load.check()


def test_clean_restarts_lose_nothing(cluster):
    load = Load(cluster, "restarted", java=1).start()
    for broker in cluster:
        load.wait_progress(100)
        broker.stop()
        load.wait_progress(100)
        broker.start()
        whole(cluster)
    load.stop()
    load.check()


def test_a_stopped_broker_that_wakes_up_changes_nothing(cluster, seed):
    """SIGSTOP past the session: others lead meanwhile; what it thinks when it wakes is fenced."""
    dice = random.Random(seed)
    load = Load(cluster, "stopped").start()
    for broker in (cluster.controller(), dice.choice(list(cluster))):
        load.wait_progress(100)
        broker.pause()
        gone = lambda: str(broker.number) not in registered(cluster)  # noqa: E731, B023
        wait_until(gone, 30, "its session ends")
        load.wait_progress(100)
        broker.resume()
        wait_until(lambda: str(broker.number) in registered(cluster), 30, "it registers anew")  # noqa: B023
        whole(cluster)
    load.stop()
    load.check()


def registered(cluster):
    with cluster.clients(), cluster.zookeepers.client() as zk:
        return zk.get_children("/brokers/ids")


@pytest.mark.skipif(bool(network.missing()), reason=network.missing() or "")
def test_cut_links_lose_nothing(kind, tmp_path, seed):
    dice = random.Random(seed)
    with Cluster(tmp_path, 3, zookeepers=3, config=CONFIG, network=True, kinds=[peer_of(kind)] * 3) as cluster:
        cluster.start()
        load = Load(cluster, "cut").start()
        load.wait_progress(100)
        names = ["b1", "b2", "b3", "z1", "z2", "z3"]
        for _ in range(ROUNDS):
            one = dice.choice(["b1", "b2", "b3"])
            other = dice.choice([name for name in names if name != one])
            cluster.network.cut(one, other, ways=dice.choice([1, 2]))
            load.wait_progress(200, seconds=90)
            cluster.network.heal()
            load.wait_progress(50)
        whole(cluster)
        load.stop()
        load.check()


@pytest.mark.barnabas_only
@pytest.mark.skipif(bool(network.missing()), reason=network.missing() or "")
@pytest.mark.timeout(SOAK_SECONDS + 300)
def test_whatever_happens_loses_nothing(tmp_path, seed):
    """A short form of `./dev soak`: faults.py says what happens."""
    assert soak(tmp_path, SOAK_SECONDS, seed, print, disk_bytes=256 << 20) > 0
