"""Kafka's own command-line tools, of 3.9.1 and 4.3.1."""

import base64
import json
import re

import pytest

from batches import Record, build, now_ms
from brokers import wait_until

BROKER_CONFIG = {"log.retention.ms": "-1"}

def consume(tool, topic, count, *more):
    arguments = ("--topic", topic, "--partition", 0, "--max-messages", count, "--timeout-ms", 60000)
    lines = tool("consumer.ConsoleConsumer", *arguments, *(more or ("--offset", "earliest"))).splitlines()
    return [line for line in lines if not line.startswith("Option --")]  # 4.x has new names for some


def test_api_versions(tool, broker):
    text = tool("BrokerApiVersionsCommand")
    assert f"127.0.0.1:{broker.port} (id: " in text
    for api in ("Produce(0)", "Fetch(1)", "ListOffsets(2)", "Metadata(3)", "CreateTopics(19)", "DescribeCluster(60)"):
        assert re.search(re.escape(api) + r": .*\[usable: \d+\]", text), text
    assert "Fetch(1): UNSUPPORTED" not in text


def test_console_producer_with_default_settings_and_console_consumer(tool, topic):
    lines = [f"line {i} with some words" for i in range(1000)] + ["", "ümläut ✓"]
    tool("ConsoleProducer", "--topic", topic, stdin="\n".join(lines).encode() + b"\n")
    assert consume(tool, topic, len(lines)) == lines
    assert consume(tool, topic, 2, "--offset", "500") == lines[500:502]


def test_console_keys_headers_and_codecs(tool, topic):
    written = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        rows = [f"h:{codec}\tkey-{i}\tvalue-{codec}-{i}" for i in range(20)]
        tool(
            *("ConsoleProducer", "--topic", topic, "--compression-codec", codec),
            *("--property", "parse.key=true", "--property", "parse.headers=true"),
            stdin="\n".join(rows).encode() + b"\n",
        )
        written += rows
    properties = [f"print.{what}=true" for what in ("key", "headers", "value")]
    got = consume(
        tool, topic, len(written), *("--offset", "earliest"), *[w for p in properties for w in ("--property", p)]
    )
    assert got == written


def test_topics_are_created_listed_described_grown_and_deleted(tool, conn, topic_name):
    topic = topic_name.replace(".", "-").replace("_", "-")
    made = tool("TopicCommand", "--create", "--topic", topic, "--partitions", 3, "--config", "retention.ms=123456")
    assert f"Created topic {topic}." in made
    conn.await_topic(topic, 3)
    assert topic in tool("TopicCommand", "--list").split()
    text = tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in text and "ReplicationFactor: 1" in text and "retention.ms=123456" in text
    assert f"TopicId: {base64_id(conn, topic)}" in text
    assert len(re.findall(r"Partition: \d\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", text)) == 3
    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", 5)
    conn.await_topic(topic, 5)
    tool("TopicCommand", "--create", "--topic", topic, "--if-not-exists")
    tool("TopicCommand", "--create", "--topic", topic, status=1)
    tool("TopicCommand", "--delete", "--topic", topic)
    wait_until(lambda: topic not in tool("TopicCommand", "--list").split(), 30, "the topic is gone")
    tool("TopicCommand", "--delete", "--topic", topic, status=1)


def base64_id(conn, topic):
    return base64.urlsafe_b64encode(conn.topic_id(topic).bytes).decode().rstrip("=")


def test_topic_creation_with_the_broker_s_defaults_and_a_manual_assignment(tool, conn, topic_name):
    one, two = (
        f"{topic_name}-1".replace("_", "-").replace(".", "-"),
        f"{topic_name}-2".replace("_", "-").replace(".", "-"),
    )
    tool("TopicCommand", "--create", "--topic", one)
    conn.await_topic(one, 1)
    node = conn.metadata().Brokers[0].NodeId
    tool("TopicCommand", "--create", "--topic", two, "--replica-assignment", f"{node},{node},{node}")
    conn.await_topic(two, 3)


def test_configs_of_a_topic(tool, conn, topic):
    command = ("kafka.admin.ConfigCommand", "--entity-type", "topics", "--entity-name", topic)
    tool(*command, "--alter", "--add-config", "retention.ms=4321,cleanup.policy=[compact,delete]")
    wait_until(lambda: "retention.ms=4321" in tool(*command, "--describe"), 30, "the configuration is there")
    text = tool(*command, "--describe")
    assert "cleanup.policy=compact,delete" in text and "DYNAMIC_TOPIC_CONFIG:retention.ms=4321" in text
    assert "min.insync.replicas=1" in tool(*command, "--describe", "--all")
    tool(*command, "--alter", "--delete-config", "retention.ms")
    wait_until(lambda: "retention.ms" not in tool(*command, "--describe"), 30, "the config is gone")
    tool(*command, "--alter", "--add-config", "retention.ms=soon", status=1)


def test_configs_of_brokers(tool, conn):
    node = conn.metadata().Brokers[0].NodeId
    one = ("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-name", node)
    everyone = ("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--entity-default")
    tool(*one, "--alter", "--add-config", "log.cleaner.backoff.ms=16001")
    tool(*everyone, "--alter", "--add-config", "log.cleaner.backoff.ms=16002")

    def described():
        text = tool(*one, "--describe")
        return (
            "DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=16001" in text
            and "BROKER_CONFIG:log.cleaner.backoff.ms=16002" in text
        )

    wait_until(described, 30, "both values are described")
    assert "log.cleaner.backoff.ms=16001" in tool(*one, "--describe", "--all")
    tool(*one, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    tool(*everyone, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    wait_until(lambda: "16001" not in tool(*one, "--describe"), 30, "the value is gone")


def test_offsets(tool, conn, topic):
    start = now_ms() - 100_000
    for i in range(5):
        conn.produce(topic, 0, build([Record(value=b"v", timestamp=start + i * 1000)]))

    def offset(time):
        return tool("GetOffsetShell", "--topic", topic, "--time", time).strip()

    assert offset("latest") == f"{topic}:0:5"
    assert offset("earliest") == f"{topic}:0:0"
    assert offset("max-timestamp") == f"{topic}:0:4"
    assert offset(-1) == f"{topic}:0:5"
    assert offset(start + 1500) == f"{topic}:0:2"
    assert offset("earliest-local") == f"{topic}:0:0"


def test_delete_records(tool, conn, topic, tmp_path):
    for _ in range(5):
        conn.produce(topic, 0, build([Record(value=b"v")]))
    asked = tmp_path / "offsets.json"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    text = tool("DeleteRecordsCommand", "--offset-json-file", asked)
    assert re.search(rf"{re.escape(topic)}-0\s+low_watermark: 3", text), text
    assert [r.offset for r in conn.read_all(topic, 0, 3)] == [3, 4]


def test_log_dirs(tool, conn, broker, topic):
    data = build([Record(value=b"v" * 500)])
    conn.produce(topic, 0, data)
    text = tool("LogDirsCommand", "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    (node,) = found["brokers"]
    (directory,) = node["logDirs"]
    assert directory["logDir"] == str(broker.log_dir) and directory["error"] is None
    assert directory["partitions"] == [
        {"partition": f"{topic}-0", "size": len(data), "offsetLag": 0, "isFuture": False}
    ]


def test_producer_performance(java, broker, conn, topic):
    text = java.run(
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", 50000, "--record-size", 100),
        *("--throughput", -1, "--producer-props", f"bootstrap.servers={broker.bootstrap}", "compression.type=lz4"),
    )
    assert "50000 records sent" in text
    assert conn.list_offset(topic, 0, -1).Offset == 50000
