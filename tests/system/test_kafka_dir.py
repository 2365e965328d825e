"""A directory that Apache Kafka 3.9.1 left, opened in place; and Kafka and ours on one directory in turn."""

import base64
import json
import re
import shutil

import confluent_kafka
import confluent_kafka.admin
import pytest

import kafka39
from batches import Record, build, read as read_batches
from brokers import Broker, wait_until

pytestmark = pytest.mark.barnabas_only


@pytest.fixture
def started(tmp_path):
    """Makes brokers of ours and Kafka's in directories of their own; what still runs at the end is ended."""
    made = []

    def keep(one):
        made.append(one)
        return one

    yield keep
    for one in made:
        one.close()


def ours_on(started, tmp_path, log_dir, **config):
    one = started(Broker(tmp_path / "ours", {"log.dirs": log_dir, "log.cleaner.enable": "false", **config}))
    one.log_dir = log_dir
    return one


@pytest.fixture(params=["clean", "killed"])
def fixture_dir(request, tmp_path):
    return kafka39.unpack(request.param, tmp_path)


@pytest.fixture(scope="module")
def expected():
    return kafka39.expected_records()


class TestFixtures:
    def test_every_record_is_read_as_kafka_gave_it(self, started, tmp_path, fixture_dir, expected):
        log_dir, broker_id = fixture_dir
        broker = ours_on(started, tmp_path, log_dir).start()
        assert_adopted(broker, broker_id)
        assert_as_expected(broker, expected)
        broker.stop()
        broker.start()  # with what we wrote: checkpoints, snapshots, the store
        assert "topic_adopted" not in broker.output()[broker.output().rindex("stopped") :]
        assert_as_expected(broker, expected)
        broker.stop()

    def test_raw_batches_carry_their_epochs_and_markers(self, started, tmp_path, fixture_dir, expected):
        broker = ours_on(started, tmp_path, fixture_dir[0]).start()
        with broker.connect() as c:
            for (isolation, topic, partition), (start, end, records) in expected.items():
                if isolation == "read_committed":
                    continue
                seen, offset = [], start
                while offset < end:
                    row = c.fetch(topic, partition, offset)
                    got = read_batches(row.Records)
                    assert got, (topic, partition, offset, row)
                    assert all(batch.crc_ok for batch in got)
                    for batch in got:
                        if not batch.attributes & 32:
                            seen += [(r.offset, batch.leader_epoch, r.key, r.value) for r in batch.records]
                    offset = got[-1].last_offset + 1
                assert [r for r in seen if r[0] >= start] == [(r[0], r[1], r[4], r[5]) for r in records]
                ends = {"Partition": partition, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}
                answer = c.call("OffsetForLeaderEpoch", 4, ReplicaId=-1, Topics=[{"Topic": topic, "Partitions": [ends]}])
                assert answer.Topics[0].Partitions[0].EndOffset == end
        broker.stop()

    def test_kafka_takes_it_back_without_a_word(self, started, tmp_path, fixture_dir, expected):
        """After ours appended, trimmed, rolled and compacted there, and stopped."""
        log_dir, broker_id = fixture_dir
        cleaning = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "50"}
        broker = ours_on(started, tmp_path, log_dir, **cleaning).start()
        append_idempotently(broker.bootstrap, "codec-none", 3, 50)
        append_idempotently(broker.bootstrap, "append-time", 1, 20)
        trim(broker.bootstrap, "codec-zstd", 1, 77)
        compact(broker, log_dir)
        wanted = kafka39.snapshot(broker.bootstrap)
        broker.stop()
        kafka = started(kafka39.KafkaHere(tmp_path / "kafka", log_dir, broker_id))
        kafka.load_fixture_znodes()
        kafka.start()
        assert kafka.complaints() == []
        assert_reads(kafka, wanted)
        append_in_transactions(kafka.bootstrap, "txn", 2)
        wanted = kafka39.snapshot(kafka.bootstrap)
        kafka.stop()
        broker.start()
        assert_reads(broker, wanted)
        broker.stop()


def assert_reads(broker, wanted):
    kafka39.await_partitions(broker.bootstrap, wanted)
    kafka39.assert_same(kafka39.snapshot(broker.bootstrap), wanted)


def assert_as_expected(broker, expected):
    """The fixtures' cluster told of read_committed only where it differs."""
    got = kafka39.snapshot(broker.bootstrap)
    wanted = {
        (isolation, topic, partition): expected.get(
            (isolation, topic, partition), expected["read_uncommitted", topic, partition]
        )
        for isolation in ("read_uncommitted", "read_committed")
        for _, topic, partition in expected
    }
    kafka39.assert_same(got, wanted)


def assert_adopted(broker, broker_id):
    output = broker.output()
    assert re.search(rf"started broker={broker_id} cluster=CUF5uH7BSf2lfYu0LxD3wQ", output)
    assert len(re.findall("topic_adopted", output)) == 11 and "adopted topics=11 partitions=24" in output
    znodes = {}
    for path, data in kafka39.fixture_znodes(broker_id):
        if re.fullmatch(r"/brokers/topics/[^/]+", path):
            znodes[path.rsplit("/", 1)[1]] = json.loads(data)
    with broker.connect() as c:
        topics = {topic.Name: topic for topic in c.metadata().Topics}
        assert sorted(topics) == sorted(znodes)
        for name, topic in topics.items():
            assert kafka_uuid(topic.TopicId) == znodes[name]["topic_id"]
            assert sorted(p.PartitionIndex for p in topic.Partitions) == sorted(map(int, znodes[name]["partitions"]))
            assert all(p.LeaderId == broker_id and p.ReplicaNodes == [broker_id] for p in topic.Partitions)


def kafka_uuid(topic_id):
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


class TestAdoption:
    """What is odd in a directory, on the clean fixture."""

    @pytest.fixture
    def log_dir(self, tmp_path):
        return kafka39.unpack("clean", tmp_path)[0]

    def test_a_missing_partition_is_named_and_made_empty(self, started, tmp_path, log_dir):
        (log_dir / "codec-none-1").rename(tmp_path / "away")
        broker = ours_on(started, tmp_path, log_dir).start()
        assert "partition_missing topic=codec-none partition=1" in broker.output()
        with broker.connect() as c:
            c.await_topic("codec-none", 3)
            assert [c.list_offset("codec-none", index, -1).Offset for index in range(3)] == [113, 0, 146]
        broker.stop()

    def test_several_log_directories_are_one_broker(self, started, tmp_path, log_dir, expected):
        second = tmp_path / "second"
        second.mkdir()
        for name in ("meta.properties", ".kafka_cleanshutdown"):
            (second / name).write_bytes((log_dir / name).read_bytes())
        for name in ("codec-none-1", "txn-0", "trimmed-0", "__consumer_offsets-2"):
            (log_dir / name).rename(second / name)
        (second / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed 0 123\n")
        (log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
        broker = ours_on(started, tmp_path, f"{log_dir},{second}").start()
        assert_adopted(broker, 1)
        assert_as_expected(broker, expected)
        broker.stop()
        assert (second / ".kafka_cleanshutdown").exists()

    def test_two_ids_of_one_topic_are_an_error(self, started, tmp_path, log_dir):
        (log_dir / "codec-none-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        broker = ours_on(started, tmp_path, log_dir)
        broker.spawn()
        assert broker.wait() == 1
        assert re.search(r"codec-none-0 belongs to the topic with id B6R7\S+, but \S+codec-none-1 to one", broker.output())

    def test_an_id_that_differs_from_the_stored_one_is_named_and_the_rest_served(self, started, tmp_path, log_dir):
        broker = ours_on(started, tmp_path, log_dir).start()
        broker.stop()
        (log_dir / "codec-none-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        broker.start()
        assert re.search(r"topic_id_differs dir=\S+/codec-none-1 id=AAAAAAAAAAAAAAAAAAAAAQ", broker.output())
        with broker.connect() as c:
            assert c.fetch("codec-none", 1, 0).ErrorCode != 0
            assert c.list_offset("codec-none", 0, -1).Offset == 113
        broker.stop()

    def test_what_the_store_does_not_know_is_named_and_left_alone(self, started, tmp_path, log_dir):
        broker = ours_on(started, tmp_path, log_dir, **{"log.retention.check.interval.ms": "50"}).start()
        broker.stop()
        for name, topic_id in (("other-0", "AAAAAAAAAAAAAAAAAAAAAQ"), ("codec-none-9", "B6R7BzEgQtuLPnDmh_9qpw")):
            shutil.copytree(log_dir / "codec-none-1", log_dir / name)
            (log_dir / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        before = {path: path.read_bytes() for name in ("other-0", "codec-none-9") for path in (log_dir / name).iterdir()}
        broker.config["log.retention.ms"] = "1"
        for _ in range(2):
            broker.start()
            for name in ("other-0", "codec-none-9"):
                assert re.search(rf"partition_unknown dir=\S+/{name} ", broker.output())
            with broker.connect() as c:
                assert "other" not in [topic.Name for topic in c.metadata().Topics]
                c.new_topic("new", configs={"segment.bytes": "16384"})  # whose segments go by retention
                for _ in range(4):
                    assert c.produce("new", 0, build([Record(b"k", bytes(10000), timestamp=1)])).ErrorCode == 0
                wait_until(lambda: c.list_offset("new", 0, -2).Offset > 0, 60, "retention has run")
                c.call("DeleteTopics", 5, TopicNames=["new"], TimeoutMs=60000)
            broker.stop()
        assert {path: path.read_bytes() for path in before} == before

    def test_an_adoption_that_was_cut_off_goes_on(self, started, tmp_path):
        for index in range(5):
            log_dir, _ = kafka39.unpack("killed", tmp_path / str(index))
            broker = started(Broker(tmp_path / str(index) / "ours", {"log.dirs": log_dir}))
            broker.spawn()
            wait_until(lambda: "adopting" in broker.output(), 60, "it has begun")
            broker.kill()
            broker.start()
            with broker.connect() as c:
                topics = {topic.Name: len(topic.Partitions) for topic in c.metadata().Topics}
                assert len(topics) == 11 and sum(topics.values()) == 24
                assert c.list_offset("codec-none", 0, -1).Offset == 113
            broker.stop()

    def test_a_crash_soon_after_a_start_has_nothing_older_read_again(self, started, tmp_path):
        """What lies below Kafka's recovery points was sound, and damage there must not cost what lies behind it."""
        log_dir, _ = kafka39.unpack("killed", tmp_path / "killed")
        checkpoint = log_dir / "recovery-point-offset-checkpoint"
        before = set(checkpoint.read_text().splitlines())
        assert {"append-time 0 338", "codec-gzip 0 152"} <= before
        broker = ours_on(started, tmp_path, log_dir)
        for _ in range(3):
            broker.start()
            broker.kill()
        assert {"append-time 0 338", "codec-gzip 0 152"} <= set(checkpoint.read_text().splitlines())

    def test_leader_epochs_never_fall(self, started, tmp_path, log_dir):
        """Kafka has led in the meantime, in epoch 7, and written in one partition and not in another."""
        broker = ours_on(started, tmp_path, log_dir).start()
        broker.stop()
        for name, entries in (("codec-none-0", "0 0\n7 113\n"), ("codec-none-1", "0 0\n7 100\n")):
            (log_dir / name / "leader-epoch-checkpoint").write_text(f"0\n2\n{entries}")
        broker.start()
        with broker.connect() as c:
            c.await_topic("codec-none", 3)
            rows = {p.PartitionIndex: p.LeaderEpoch for p in c.metadata("codec-none").Topics[0].Partitions}
            assert rows == {0: 7, 1: 7, 2: 0}
            assert c.produce("codec-none", 0, build([Record(b"k", b"v")])).BaseOffset == 113
            assert read_batches(c.fetch("codec-none", 0, 113).Records)[0].leader_epoch == 7
        broker.stop()

    def test_producers_get_ids_that_kafka_never_gives(self, started, tmp_path, log_dir):
        broker = ours_on(started, tmp_path, log_dir).start()
        with broker.connect() as c:
            answer = c.call("InitProducerId", 4, TransactionalId=None, TransactionTimeoutMs=60000)
            assert answer.ErrorCode == 0 and 1 << 40 <= answer.ProducerId < 1 << 53
        broker.stop()


# What clients do in each turn


def append_idempotently(bootstrap, topic, partitions, count, **config):
    failed = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **config}
    )
    for index in range(count):
        producer.produce(
            topic,
            key=b"key %d" % (index % 7),
            value=b"value %d " % index * 20,
            headers=[("h", b"%d" % index), ("none", None)],
            partition=index % partitions,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    assert producer.flush(60) == 0 and not failed


def append_in_transactions(bootstrap, topic, partitions):
    """Two that are committed, one that is aborted between them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "in-turn"})
    producer.init_transactions(60)
    for fate in ("kept", "dropped", "kept too"):
        producer.begin_transaction()
        for index in range(10):
            producer.produce(topic, key=b"%d" % index, value=fate.encode(), partition=index % partitions)
        producer.flush(60)
        if fate == "dropped":
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def compact(broker, log_dir):
    """Appends to the compacted topic and waits until all but its active segment are clean."""
    with broker.connect() as c:
        settings = {"segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01"}
        rows = [{"Name": key, "ConfigOperation": 0, "Value": value} for key, value in settings.items()]
        resource = {"ResourceType": 2, "ResourceName": "compacted", "Configs": rows}
        answer = c.call("IncrementalAlterConfigs", Resources=[resource], ValidateOnly=False)
        assert answer.Responses[0].ErrorCode == 0
    append_idempotently(broker.bootstrap, "compacted", 1, 700, **{"batch.size": "4000"})
    cleaned = log_dir / "cleaner-offset-checkpoint"

    def all_clean():
        active = max(int(file.name[:20]) for file in (log_dir / "compacted-0").glob("*.log"))
        return active > 600 and f"compacted 0 {active}\n" in cleaned.read_text()

    wait_until(all_clean, 60, "the topic is compacted")


def trim(bootstrap, topic, partition, offset):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([confluent_kafka.TopicPartition(topic, partition, offset)]).values():
        done.result(60)


def create(bootstrap, topic, partitions, **config):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    new = confluent_kafka.admin.NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([new])[topic].result(60)


# How ours ends its turn, and how Kafka ends the one before it.
TURNS = [("stop", "stop"), ("kill", "stop"), ("stop", "kill"), ("kill", "kill")]


def test_kafka_and_ours_read_in_turn_what_the_other_wrote(started, tmp_path):
    log_dir = tmp_path / "logs"
    kafka = started(kafka39.KafkaHere(tmp_path / "kafka", log_dir, 0)).start()
    ours = ours_on(started, tmp_path, log_dir, **{"log.flush.start.offset.checkpoint.interval.ms": "100"})
    small = {"segment.bytes": "16384", "index.interval.bytes": "512"}
    create(kafka.bootstrap, "plain", 2, **small)
    create(kafka.bootstrap, "txn", 2, **small)
    create(kafka.bootstrap, "empty", 3)
    for turn, (ours_ends, kafka_ends) in enumerate(TURNS):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            append_idempotently(kafka.bootstrap, "plain", 2, 60, **{"compression.type": codec})
        append_in_transactions(kafka.bootstrap, "txn", 2)
        wanted = kafka39.snapshot(kafka.bootstrap)
        getattr(kafka, kafka_ends)()

        ours.start()
        assert_reads(ours, wanted)
        append_idempotently(ours.bootstrap, "plain", 2, 200)
        append_idempotently(ours.bootstrap, "txn", 2, 30, **{"compression.type": "lz4"})
        start = 40 * (turn + 1)
        trim(ours.bootstrap, "plain", turn % 2, start)
        checkpoint = log_dir / "log-start-offset-checkpoint"  # without it a kill forgets it, as Kafka's does
        wait_until(lambda: f"plain {turn % 2} {start}\n" in checkpoint.read_text(), 60, "the start is on the disk")
        wanted = kafka39.snapshot(ours.bootstrap)
        getattr(ours, ours_ends)()

        kafka.start()
        complaints = kafka.complaints() if ours_ends == "stop" else kafka.complaints_beyond_recovery()
        assert complaints == []
        assert_reads(kafka, wanted)
    kafka.stop()
