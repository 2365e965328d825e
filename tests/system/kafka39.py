"""Apache Kafka 3.9.1 with ZooKeeper on a log directory that is there already: ours, or a fixture.

kafka = KafkaHere(directory, log_dir, broker_id=1)
kafka.start(); kafka.complaints(); snapshot(kafka.bootstrap); kafka.stop()
"""

import json
import lzma
import pathlib
import re
import tarfile

import confluent_kafka
import confluent_kafka.admin
import kazoo.client
import kazoo.exceptions

from brokers import Kafka39, READY_SECONDS, wait_until
from messages import REPOSITORY

DATA = REPOSITORY / "tests/data"
FIXTURES = {"clean": ("kafka39-broker1-clean.tar.xz", "b1", 1), "killed": ("kafka39-broker2-killed.tar.xz", "b2", 2)}

# What Kafka says when something in a log directory is not as a clean shutdown leaves it.  Its own clean restarts say
# "Skipping recovery of all logs" and "rebuilding producer state", which is no complaint.
_COMPLAINT = re.compile(
    r"(WARN|ERROR|FATAL).*\((kafka\.log|kafka\.server\.(log|epoch|checkpoints)|org\.apache\.kafka\.storage|"
    r"org\.apache\.kafka\.server)|Recovering unflushed|corrupt|Truncating|truncat.*conflict|rebuilding index|stray",
    re.IGNORECASE,
)
_RECOVERY = re.compile(r"Recovering unflushed", re.IGNORECASE)


class KafkaHere(Kafka39):
    """Listens on a port of its own; `log_dir` and the ZooKeeper's data stay over restarts."""

    def __init__(self, directory, log_dir, broker_id, config=None, port=None):
        super().__init__(directory, {"broker.id": broker_id, "log.cleaner.enable": "false", **(config or {})}, port)
        self.log_dir = pathlib.Path(log_dir)
        self._said = 0

    def prepare(self):
        super().prepare()
        path = self.directory / "log4j.properties"
        path.write_text(
            path.read_text()
            + "log4j.logger.kafka.log=INFO\nlog4j.logger.org.apache.kafka.storage=INFO\n"
            + "log4j.logger.kafka.server.epoch=INFO\nlog4j.logger.kafka.server.LogDirFailureChannel=INFO\n"
        )

    def start(self):
        self._said = len(self.output())
        return super().start()

    def said(self):
        """Its output since the last start."""
        return self.output()[self._said :]

    def complaints(self):
        """Lines since the last start that speak of recovery, corruption or anything else amiss in a log."""
        return [line for line in self.said().splitlines() if _COMPLAINT.search(line)]

    def complaints_beyond_recovery(self):
        """The same after a kill, when reading again what was not flushed is as it should be, and must have been."""
        complaints = self.complaints()
        assert any(_RECOVERY.search(line) for line in complaints), "nothing was recovered"
        return [line for line in complaints if not _RECOVERY.search(line)]

    def zookeeper_client(self):
        client = kazoo.client.KazooClient(hosts=f"127.0.0.1:{self.zookeeper_port}")
        client.start(timeout=READY_SECONDS)
        return client

    def load_fixture_znodes(self):
        """Starts ZooKeeper and gives it what the fixtures' cluster had, with this broker as the only one."""
        self.prepare()
        client = self.zookeeper_client()
        try:
            for path, data in fixture_znodes(int(self.properties()["broker.id"])):
                try:
                    client.create(path, data)
                except kazoo.exceptions.NodeExistsError:
                    client.set(path, data)
        finally:
            client.stop()
            client.close()


def fixture_znodes(broker_id):
    """(path, data) of the fixtures' persistent znodes, parents first; partitions are left to `broker_id` alone, or None:
    as they were."""
    for line in (DATA / "kafka39-znodes.txt").read_text().splitlines():
        path, flags, data = re.fullmatch(r"(\S+) \[([^]]*)\] ?(.*)", line).groups()
        if "ephemeral" in flags or path == "/":
            continue
        if broker_id is not None and re.fullmatch(r"/brokers/topics/[^/]+", path):
            topic = json.loads(data)
            topic["partitions"] = {index: [broker_id] for index in topic["partitions"]}
            data = json.dumps(topic)
        if broker_id is not None and path.endswith("/state"):
            data = json.dumps(json.loads(data) | {"leader": broker_id, "isr": [broker_id]})
        yield path, data.encode()


def unpack(which, directory):
    """Unpacks a fixture; returns the log directory and its broker's id.  Holes stay holes."""
    archive, name, broker_id = FIXTURES[which]
    with tarfile.open(DATA / archive) as tar:
        # Python before 3.11.4 has no filters, and later ones want to be told.
        tar.extractall(directory, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    return pathlib.Path(directory) / name, broker_id


def expected_records():
    """(isolation, topic, partition) -> (log start, end, records) as the fixtures' cluster gave them to a consumer."""
    bounds, records = {}, {}
    with lzma.open(DATA / "kafka39-expected.jsonl.xz", "rt") as lines:
        for row in map(json.loads, lines):
            where = row["isolation"], row["topic"], row["partition"]
            if "end" in row:
                bounds[where] = row["log_start"], row["end"]
                records[where] = []
            else:
                records[where].append(
                    (
                        row["offset"],
                        row["leader_epoch"],
                        row["timestamp_type"],
                        row["timestamp"],
                        _unhex(row["key"]),
                        _unhex(row["value"]),
                        [(name, _unhex(value)) for name, value in row["headers"]],
                    )
                )
    return {where: (*bounds[where], records[where]) for where in bounds}


def _unhex(text):
    return None if text is None else bytes.fromhex(text)


def topics_of(bootstrap):
    """(topic, partition) of all partitions that clients use and that have a leader."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.list_topics(timeout=30).topics
    return sorted(
        (name, index)
        for name in topics
        if not name.startswith("__")
        for index, partition in topics[name].partitions.items()
        if partition.error is None and partition.leader >= 0
    )


def read(bootstrap, isolation):
    """What snapshot() gives, in one isolation level."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
        }
    )
    found = {}
    try:
        places = []
        for topic, index in topics_of(bootstrap):
            place = confluent_kafka.TopicPartition(topic, index)
            start, end = consumer.get_watermark_offsets(place, timeout=30)
            found[isolation, topic, index] = start, end, []
            places.append(confluent_kafka.TopicPartition(topic, index, start))
        consumer.assign(places)
        at_end = set()

        def read_some():
            for message in consumer.consume(1000, timeout=1.0):
                where = isolation, message.topic(), message.partition()
                if message.error():
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                    at_end.add(where)
                    continue
                found[where][2].append(
                    (
                        message.offset(),
                        message.leader_epoch(),
                        *message.timestamp(),
                        message.key(),
                        message.value(),
                        message.headers() or [],
                    )
                )
            return len(at_end) == len(found)

        wait_until(read_some, READY_SECONDS, "every partition is read to its end")
    finally:
        consumer.close()
    return found


def await_partitions(bootstrap, like):
    """Waits until all that the snapshot `like` has is served: just started, Kafka knows its topics one by one."""
    wanted = {where[1:] for where in like}
    wait_until(lambda: wanted <= set(topics_of(bootstrap)), READY_SECONDS, "every partition has its leader")


def snapshot(bootstrap):
    """(isolation, topic, partition) -> (log start, end, records) in both isolation levels.  A record is offset, leader
    epoch, timestamp type, timestamp, key, value, headers."""
    return read(bootstrap, "read_uncommitted") | read(bootstrap, "read_committed")


def assert_same(got, wanted):
    """Says where two snapshots differ, not only that they do."""
    assert sorted(got) == sorted(wanted)
    for where in wanted:
        assert got[where][:2] == wanted[where][:2], (where, "log start and end")
        pairs = zip(got[where][2], wanted[where][2], strict=False)
        assert not (differs := [pair for pair in pairs if pair[0] != pair[1]]), (where, differs[0])
        assert len(got[where][2]) == len(wanted[where][2]), where
