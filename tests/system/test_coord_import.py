"""`barnabas coord import` from a real ZooKeeper that has what the fixtures' cluster left in it."""

import json
import re
import subprocess

import pytest

import kafka39
from brokers import Broker

pytestmark = pytest.mark.barnabas_only


@pytest.fixture
def zookeeper(tmp_path):
    """A ZooKeeper with the fixtures' znodes as they were: two brokers, each partition on both."""
    kafka = kafka39.KafkaHere(tmp_path / "kafka", tmp_path / "nowhere", 1)
    try:
        kafka.prepare()
        client = kafka.zookeeper_client()
        for path, data in kafka39.fixture_znodes(None):
            client.ensure_path(path)
            client.set(path, data)
        for path, data in {
            "/config/users/alice": {"version": 1, "config": {"producer_byte_rate": "1024"}},
            "/config/brokers/1": {"version": 1, "config": {"log.cleaner.threads": "2"}},
            "/config/brokers/2": {"version": 1, "config": {"log.cleaner.threads": "3"}},
            "/config/topics/elsewhere": {"version": 1, "config": {}},
            "/brokers/topics/elsewhere": {
                "version": 3,
                "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
                "partitions": {"0": [2], "1": [2]},
                "adding_replicas": {},
                "removing_replicas": {},
            },
            "/kafka-acl/Topic/codec-none": {"version": 1, "acls": []},
        }.items():
            client.create(path, json.dumps(data).encode(), makepath=True)
        yield kafka, client
        client.stop()
        client.close()
    finally:
        kafka.close()


def run(*arguments):
    return subprocess.run([Broker.binary(), "coord", *map(str, arguments)], capture_output=True, text=True, timeout=120)


def dumped(log_dir):
    """path -> data of the embedded store."""
    lines = run("dump", log_dir).stdout.splitlines()
    return {path: data for path, data in (re.fullmatch(r"(\S+) \[[^]]*\] ?(.*)", line).groups() for line in lines)}


def test_topics_settings_and_the_rest_come_from_zookeeper(zookeeper, tmp_path):
    kafka, client = zookeeper
    log_dir, broker_id = kafka39.unpack("clean", tmp_path)
    address = f"127.0.0.1:{kafka.zookeeper_port}"
    done = run("import", "--zookeeper", address, log_dir)
    assert done.returncode == 0, done.stderr
    assert "imported for broker 1: 11 topics with 24 partitions that are here; 1 topics left out" in done.stdout
    assert "topic elsewhere: none of its 2 partitions is here: left out" in done.stdout
    store = dumped(log_dir)
    for path, data in kafka39.fixture_znodes(broker_id):
        if path.startswith(("/brokers/topics/", "/config/", "/cluster/", "/controller_epoch")):
            assert path in store
            if data:
                assert json.loads(store[path]) == json.loads(data), path
    assert json.loads(store["/config/users/alice"])["config"] == {"producer_byte_rate": "1024"}
    assert "/config/brokers/1" in store and "/config/brokers/2" not in store
    assert "/kafka-acl/Topic/codec-none" in store
    assert "/brokers/ids/1" not in store and "/brokers/topics/elsewhere" not in store

    broker = Broker(tmp_path / "ours", {"log.dirs": log_dir, "log.cleaner.enable": "false"})
    try:
        broker.start()
        assert "topic_adopted" not in broker.output() and "partition_unknown" not in broker.output()
        with broker.connect() as c:
            row = c.call(
                "DescribeConfigs",
                Resources=[{"ResourceType": 2, "ResourceName": "compacted", "ConfigurationKeys": None}],
            ).Results[0]
            settings = {config.Name: config.Value for config in row.Configs}
            assert settings["cleanup.policy"] == "compact" and settings["segment.ms"] == "100"
        got = kafka39.read(broker.bootstrap, "read_uncommitted")
        wanted = {where: rows for where, rows in kafka39.expected_records().items() if where[0] == "read_uncommitted"}
        kafka39.assert_same(got, wanted)
        broker.stop()
    finally:
        broker.close()
    again = run("import", "--zookeeper", address, log_dir)
    assert again.returncode == 1 and "There is a coordination store already" in again.stderr


def test_a_partition_that_is_on_other_brokers_alone_is_named(zookeeper, tmp_path):
    kafka, client = zookeeper
    log_dir, _ = kafka39.unpack("clean", tmp_path)
    (log_dir / "codec-gzip-1").rename(tmp_path / "codec-gzip-1")
    done = run("import", "--zookeeper", f"127.0.0.1:{kafka.zookeeper_port}", log_dir)
    assert done.returncode == 0, done.stderr
    assert "partition 1 lies on other brokers (2, 1): it will be empty here" in done.stdout
    assert "23 partitions that are here, 1 that are empty" in done.stdout


def test_what_cannot_be_imported_leaves_no_store(zookeeper, tmp_path):
    kafka, client = zookeeper
    log_dir, _ = kafka39.unpack("clean", tmp_path)
    address = f"127.0.0.1:{kafka.zookeeper_port}"
    before = sorted(path.name for path in log_dir.iterdir())
    client.set("/cluster/id", b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')
    other = run("import", "--zookeeper", address, log_dir)
    assert other.returncode == 1 and "of cluster AAAAAAAAAAAAAAAAAAAAAA" in other.stderr
    client.set("/cluster/id", b'{"version":"1","id":"CUF5uH7BSf2lfYu0LxD3wQ"}')
    client.set("/brokers/topics/txn", b"no json")
    bad = run("import", "--zookeeper", address, log_dir)
    assert bad.returncode == 1 and "/brokers/topics/txn" in bad.stderr
    assert sorted(path.name for path in log_dir.iterdir() if path.name != ".lock") == before
    assert run("import", log_dir).returncode == 2
    assert run("import", "--zookeeper", address).returncode == 2
