"""The ensembles of zookeeper.py do what the tests that use them rely on."""

import kazoo.client
import pytest

import zookeeper
from brokers import wait_until

pytestmark = pytest.mark.barnabas_only


@pytest.fixture
def one(tmp_path):
    ensemble = zookeeper.Ensemble(tmp_path)
    try:
        yield ensemble.start()
    finally:
        ensemble.close()


def test_a_session_is_expired_by_its_id(one):
    held = kazoo.client.KazooClient(hosts=one.connect)
    states = []
    held.add_listener(states.append)
    held.start()
    held.create("/held", b"", ephemeral=True)
    session = held.client_id[0]
    one.expire_owner("/held")
    with one.client() as zk:
        wait_until(lambda: not zk.exists("/held"), 30, "the node goes with its session")
    wait_until(lambda: kazoo.client.KazooState.LOST in states, 30, "the client is told")
    wait_until(lambda: held.client_id and held.client_id[0] != session, 30, "the client begins a new session")
    held.stop()
    held.close()


def test_data_survives_a_kill(one):
    with one.client() as zk:
        zk.create("/kept", b"as it was")
    one.kill()
    one.start()
    with one.client() as zk:
        assert zk.get("/kept")[0] == b"as it was"


def test_three_members_outlive_their_leader(tmp_path):
    ensemble = zookeeper.Ensemble(tmp_path, members=3)
    try:
        ensemble.start()
        first = ensemble.leader()
        assert len(ensemble.followers()) == 2
        with ensemble.client() as zk:
            zk.create("/kept", b"1")
        first.kill()
        second = ensemble.leader()
        assert second is not first
        with ensemble.client() as zk:
            zk.set("/kept", b"2")
        first.start()
        assert first.mode() == "follower"
        second.pause()
        third = ensemble.leader()
        assert third is not second
        second.resume()
        wait_until(lambda: second.mode() == "follower", 60, "the paused leader follows")
        with ensemble.client() as zk:
            assert zk.get("/kept")[0] == b"2"
    finally:
        ensemble.close()
