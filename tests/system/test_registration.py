"""A broker's place in a cluster: its id, its registration, its session with ZooKeeper, and how it leaves."""

import json
import pathlib
import re
import signal

import pytest

from batches import Record, build
from brokers import READY_SECONDS, wait_until
from cluster import Cluster

pytestmark = [pytest.mark.barnabas_only, pytest.mark.timeout(600)]

ONE = {"offsets.topic.replication.factor": "1", "default.replication.factor": "1"}
# So long that no session of a dead process can end by itself while a test runs.
LONG = ONE | {"zookeeper.session.timeout.ms": "600000"}
LONG_SESSIONS = {"maxSessionTimeout": "600000"}


def make(tmp_path, brokers=1, config=None, long_sessions=False):
    cluster = Cluster(tmp_path, brokers, config=LONG if long_sessions else ONE | (config or {}))
    if long_sessions:
        cluster.zookeepers.config = LONG_SESSIONS
    return cluster


def registration(cluster, number):
    """(czxid, owner) of the broker's node; None when it is not there."""
    with cluster.zookeepers.client(cluster.chroot) as zk:
        stat = zk.exists(f"/brokers/ids/{number}")
        return stat and (stat.czxid, stat.ephemeralOwner)


def is_live(cluster, session):
    """Whether ZooKeeper counts a session as live."""
    return f"0x{session:x}" in cluster.zookeepers.leader().ask("dump")


def start_refused(broker):
    """What a broker says that does not start."""
    broker.spawn()
    assert broker.wait(READY_SECONDS) == 1
    broker.check()
    return broker.output()


def produce(conn, value):
    row = conn.produce("t", 0, build([Record(value=value)]))
    assert row.ErrorCode == 0, row


def values(conn, offset=0):
    return [record.value for record in conn.read_all("t", 0, offset)]


# Ids


def test_the_second_broker_with_an_id_stops_and_names_both(tmp_path):
    with make(tmp_path, 2) as cluster:
        first, second = cluster[1], cluster[2]
        second.extra["broker.id"] = "1"
        cluster.zookeepers.start()
        first.start()
        before = registration(cluster, 1)
        text = start_refused(second)
        assert "Broker id 1 is in use" in text
        assert f"127.0.0.1:{first.port}" in text
        assert f"127.0.0.1:{second.port}" in text
        assert registration(cluster, 1) == before
        assert first.alive()


def test_an_address_of_another_broker_is_refused(tmp_path):
    with make(tmp_path, 2) as cluster:
        first, second = cluster[1], cluster[2]
        second.extra["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{first.port}"
        cluster.zookeepers.start()
        first.start()
        text = start_refused(second)
        assert f"127.0.0.1:{first.port}" in text and "broker 1" in text


def test_ids_are_generated_above_the_reserved_ones_and_kept(tmp_path):
    with make(tmp_path, 2) as cluster:
        cluster.zookeepers.start()
        for broker, number in ((cluster[1], 1001), (cluster[2], 1002)):
            broker.extra["broker.id"] = "-1"
            broker.number = number
            broker.start()
            assert registration(cluster, number)
        cluster[1].stop()
        cluster[1].start()
        assert registration(cluster, 1001)
        assert "broker.id=1001" in (cluster[1].log_dir / "meta.properties").read_text()


def test_directories_of_another_cluster_are_refused(tmp_path):
    with make(tmp_path) as cluster:
        cluster.start()
        cluster[1].stop()
        own = cluster.znode("/cluster/id")["id"]
        with cluster.zookeepers.client() as zk:
            zk.set("/cluster/id", json.dumps({"version": "1", "id": "other-cluster"}).encode())
        text = start_refused(cluster[1])
        assert "InconsistentClusterId" in text and own in text and "other-cluster" in text
        cluster.chroot = "/empty"
        text = start_refused(cluster[1]).split("other-cluster")[-1]
        assert "InconsistentClusterId" in text and own in text
        with cluster.zookeepers.client() as zk:
            assert not zk.exists("/empty/cluster/id")


def test_a_start_without_zookeeper_ends_with_a_clear_sentence(tmp_path):
    with make(tmp_path, config={"zookeeper.connection.timeout.ms": "500"}) as cluster:
        text = start_refused(cluster[1])
        assert cluster.zookeepers.connect in text
        cluster.zookeepers.start()
        cluster[1].start()


# Registration after a death


def test_a_killed_broker_takes_its_registration_over_at_once(tmp_path):
    with make(tmp_path, long_sessions=True) as cluster:
        cluster.start()
        _, old = registration(cluster, 1)
        cluster[1].kill()
        cluster[1].start()  # until it is the controller again, whose node the dead process held, too
        _, new = registration(cluster, 1)
        assert new != old
        assert is_live(cluster, old)
        with cluster[1].connect() as c:
            c.new_topic("after")


def test_an_id_is_taken_over_on_an_empty_disk(tmp_path):
    with make(tmp_path, long_sessions=True) as cluster:
        cluster.start()
        cluster_id = cluster.znode("/cluster/id")["id"]
        cluster[1].kill()
        cluster[1].forget_data()
        cluster[1].start()
        assert f"cluster.id={cluster_id}" in (cluster[1].log_dir / "meta.properties").read_text()


def test_a_dead_controller_is_removed_by_who_saw_it_die(tmp_path):
    with make(tmp_path, 2, long_sessions=True) as cluster:
        cluster.start()
        first = cluster.controller()
        other = cluster[3 - first.number]
        with cluster.zookeepers.client() as zk:
            held = zk.exists("/controller").ephemeralOwner
        first.kill()
        wait_until(lambda: (cluster.znode("/controller") or {}).get("brokerid") == other.number, 60, "another is elected")
        assert is_live(cluster, held)
        assert "controller_removed" in other.output()


def test_a_dead_controller_stays_where_fast_detection_is_off(tmp_path):
    with make(tmp_path, 2, long_sessions=True) as cluster:
        cluster.config["controller.fast.failure.detection"] = "false"
        cluster.start()
        first = cluster.controller()
        other = cluster[3 - first.number]
        first.kill()
        wait_until(lambda: "controller_not_reached" in other.output(), 60, "the other notices")
        assert cluster.znode("/controller")["brokerid"] == first.number
        first.start()


# The session


def test_an_expired_session_is_followed_by_a_new_registration(tmp_path):
    with make(tmp_path) as cluster:
        cluster.start()
        broker = cluster[1]
        with broker.connect() as c:
            c.new_topic("t")
            produce(c, b"before")
        czxid, owner = registration(cluster, 1)
        broker.pause()
        wait_until(lambda: registration(cluster, 1) is None, 60, "the session of the paused broker ends")
        broker.resume()
        wait_until(lambda: registration(cluster, 1), 60, "it registers anew")
        again, owner_again = registration(cluster, 1)
        assert again > czxid and owner_again != owner
        wait_until(lambda: cluster.znode("/controller"), 60, "there is a controller again")
        with broker.connect() as c:
            c.await_topic("t", 1)
            produce(c, b"after")
            assert values(c) == [b"before", b"after"]


def test_serving_goes_on_while_zookeeper_is_away(tmp_path):
    with make(tmp_path) as cluster:
        cluster.start()
        broker = cluster[1]
        with broker.connect() as c:
            c.new_topic("t")
            czxid, _ = registration(cluster, 1)
            cluster.zookeepers.kill()
            wait_until(lambda: "coordination_away" in broker.output(), 60, "the broker notices")
            for i in range(10):
                produce(c, b"%d" % i)
            assert values(c) == [b"%d" % i for i in range(10)]
        with broker.connect() as c:
            assert values(c, 5) == [b"%d" % i for i in range(5, 10)]
        cluster.zookeepers.start()
        wait_until(lambda: re.search("coordination_back|registered_anew", broker.output()), 60, "it is back")
        with broker.connect() as c:
            c.await_topic("t", 1)
            produce(c, b"10")


def test_settings_that_change_while_a_broker_is_out_are_found(tmp_path):
    def setting(key):
        with broker.connect() as c:
            asked = [{"ResourceType": 2, "ResourceName": "t", "ConfigurationKeys": None}]
            (got,) = c.call("DescribeConfigs", 4, Resources=asked).Results
            return next(entry.Value for entry in got.Configs if entry.Name == key)

    with make(tmp_path) as cluster:
        cluster.start()
        broker = cluster[1]
        with broker.connect() as c:
            c.new_topic("t", configs={"retention.ms": "5000000"})
        broker.pause()
        wait_until(lambda: registration(cluster, 1) is None, 60, "the session of the paused broker ends")
        with cluster.zookeepers.client() as zk:  # and nobody is notified
            zk.set("/config/topics/t", json.dumps({"version": 1, "config": {"retention.ms": "7000000"}}).encode())
        broker.resume()
        wait_until(lambda: setting("retention.ms") == "7000000", 60, "the new setting")
        broker.pause()
        wait_until(lambda: registration(cluster, 1) is None, 60, "the session of the paused broker ends")
        with cluster.zookeepers.client() as zk:
            zk.delete("/config/topics/t")
        broker.resume()
        wait_until(lambda: setting("retention.ms") == "604800000", 60, "the default")


def test_a_broker_starts_with_settings_in_zookeeper_that_make_no_sense(tmp_path):
    """It says which and why, and removes no record whose retention it cannot know; an alteration mends them."""

    def settings(kind, name, *keys):
        with broker.connect() as c:
            asked = [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": list(keys)}]
            (got,) = c.call("DescribeConfigs", 4, Resources=asked).Results
            return [entry.Value for entry in got.Configs]

    def alter(kind, name, key, value):
        with broker.connect() as c:
            asked = [{"ResourceType": kind, "ResourceName": name, "Configs": [{"Name": key, "Value": value}]}]
            asked[0]["Configs"][0]["ConfigOperation"] = 0
            answer = c.call("IncrementalAlterConfigs", Resources=asked).Responses[0]
            assert answer.ErrorCode == 0, answer

    topic, own = 2, 4
    nonsense = {
        "/config/topics/torn": b'{"version":1,"conf',
        "/config/topics/wrong": b'{"version":1,"config":{"retention.ms":"soon","max.message.bytes":"77"}}',
        "/config/brokers/1": b"[]",
        "/config/brokers/<default>": b'{"version":1,"config":{"log.retention.ms":7,"message.max.bytes":"2000000"}}',
    }
    with make(tmp_path) as cluster:
        cluster.start()
        broker = cluster[1]
        with broker.connect() as c:
            c.new_topic("torn")
            c.new_topic("wrong")
        broker.stop()
        with cluster.zookeepers.client() as zk:
            for path, data in nonsense.items():
                zk.ensure_path(path)
                zk.set(path, data)
        broker.start()
        for path in nonsense:
            assert re.search(f"stored_(config|setting)_un(readable|usable) path={re.escape(path)} .*reason=", broker.output())
        with broker.connect() as c:
            c.await_topic("torn", 1)
        assert settings(topic, "torn", "retention.ms", "retention.bytes") == ["-1", "-1"]
        assert settings(topic, "wrong", "max.message.bytes", "retention.ms") == ["77", "-1"]
        assert settings(own, "1", "message.max.bytes") == ["2000000"]
        alter(topic, "torn", "segment.ms", "1000000")
        alter(own, "1", "log.retention.ms", "2000000")
        wait_until(lambda: settings(topic, "torn", "retention.ms") == ["2000000"], 60, "the broker's retention holds")
        assert settings(topic, "torn", "segment.ms") == ["1000000"]
        alter(topic, "wrong", "retention.ms", "3000000")
        wait_until(lambda: settings(topic, "wrong", "retention.ms") == ["3000000"], 60, "the topic's own retention")


def test_a_registration_that_is_deleted_by_hand_is_made_anew(tmp_path):
    with make(tmp_path) as cluster:
        cluster.start()
        czxid, owner = registration(cluster, 1)
        with cluster.zookeepers.client() as zk:
            zk.delete("/brokers/ids/1")
        wait_until(lambda: registration(cluster, 1), 60, "it is there again")
        again, owner_again = registration(cluster, 1)
        assert again > czxid and owner_again == owner


def test_who_finds_its_id_taken_when_it_comes_back_stops_and_names_both(tmp_path):
    """Its session ended while it stood still, and another process registered with its id meanwhile."""
    node = {
        "version": 5,
        "host": "other.example",
        "port": 9999,
        "jmx_port": -1,
        "timestamp": "1",
        "endpoints": ["PLAINTEXT://other.example:9999"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }
    with make(tmp_path) as cluster:
        cluster.start()
        broker = cluster[1]
        broker.pause()
        wait_until(lambda: registration(cluster, 1) is None, 60, "the session of the paused broker ends")
        with cluster.zookeepers.client() as zk:
            zk.create("/brokers/ids/1", json.dumps(node).encode(), ephemeral=True)
            broker.resume()
            assert broker.wait(READY_SECONDS) == 1
            assert json.loads(zk.get("/brokers/ids/1")[0]) == node, "the other one is left alone"
        broker.check()
        said = broker.output()
        assert "Broker id 1 is in use" in said
        assert "other.example:9999" in said and f"{broker.host}:{broker.port}" in said


# Leaving


# Who is in office and answers nothing.
NOBODY = {"version": 2, "brokerid": 99, "timestamp": "1", "kraftControllerEpoch": -1}


def test_a_broker_stops_cleanly_where_there_is_no_controller(tmp_path):
    """All the attempts together take no longer than one that is not answered, and the waits between them."""
    config = {"controlled.shutdown.max.retries": "3", "controlled.shutdown.retry.backoff.ms": "200"}
    config["controller.socket.timeout.ms"] = "1000"
    with make(tmp_path, 2, config) as cluster:
        cluster.start()
        with cluster[1].connect() as c:
            c.create_topic("t", partitions=4, replicas=2)
        cluster.wait_whole()
        old = cluster.controller()
        with cluster.zookeepers.client() as zk:
            change = zk.transaction()
            change.delete("/controller")
            change.create("/controller", json.dumps(NOBODY).encode(), ephemeral=True)
            change.set_data("/controller_epoch", b"1000")
            assert not [r for r in change.commit() if isinstance(r, Exception)]
            left = lambda: "state=standby" in old.output().rpartition("state=active")[2]  # noqa: E731
            wait_until(left, 30, "the old one has left office")
            cluster[1].stop()
        assert 1 <= cluster[1].output().count("controlled_shutdown_again") <= 2
        assert "controlled_shutdown_failed" in cluster[1].output()
        assert (cluster[1].log_dir / ".kafka_cleanshutdown").exists()


def test_a_broker_that_stops_hands_its_leaders_over(tmp_path):
    with make(tmp_path, 2) as cluster:
        cluster.start()
        with cluster[1].connect() as c:
            c.create_topic("t", partitions=4, replicas=2)
        cluster.wait_whole()
        cluster[1].stop()
        assert all(leader == 2 for leader, _, _ in cluster.states().values())
        assert "controlled_shutdown broker=1" in cluster[1].output()


def takes_signals(pid):
    """Whether SIGTERM is read from a descriptor, for which it is blocked, and does not just end the process.  All are
    blocked for a moment while a process or a thread begins."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    blocked = int(re.search(r"SigBlk:\s+(\w+)", status).group(1), 16)
    return blocked >> (signal.SIGTERM - 1) & 1 and not blocked >> (signal.SIGUSR1 - 1) & 1


def test_sigterm_ends_a_start_that_waits_for_zookeeper(tmp_path):
    with make(tmp_path, config={"zookeeper.connection.timeout.ms": "600000"}) as cluster:
        cluster[1].spawn()
        wait_until(lambda: takes_signals(cluster[1].process.pid), 60, "the broker minds SIGTERM")
        cluster[1].stop()
