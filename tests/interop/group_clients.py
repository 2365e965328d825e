"""The clients that join groups: how a member of each is started, and what it can.  README.md has the contract."""

import dataclasses
import json
import sys
from collections.abc import Callable

from programs import BUILD, INTEROP, JVM


@dataclasses.dataclass(frozen=True)
class Client:
    command: Callable  # options (README.md) -> words
    assignors: tuple
    follows_patterns: bool = True  # does a new topic that matches its regular expression come to it?
    static: bool = True  # does it know group.instance.id?
    fenced: bool = True  # and ends when another process takes its place by it?
    commits_by_itself: bool = False  # and tells nothing of it
    closes_on_sigterm: bool = False  # instead of by a word on its standard input
    closes_when_idle: bool = False  # a record that comes just then would be committed, but not handled
    heeds_when_busy: bool = False  # listens to nothing while it waits for records
    tells_on_stderr: bool = False


def _python(name):
    return lambda options: [sys.executable, INTEROP / "members" / f"{name}_member.py", json.dumps(options)]


def _go(client):
    return lambda options: [BUILD / "interop/go-member", client, json.dumps(options)]


def _node(options):
    return ["node", BUILD / "interop/node/kafkajs_member.js", json.dumps(options)]


def _java(version):
    classpath = f"{BUILD}/interop/java:{BUILD}/kafka-{version}/libs/*"
    return lambda options: [*JVM, "-cp", classpath, "Member", json.dumps(options)]


def _kcat(options):
    """stdbuf: kcat writes a line in pieces, and each line must reach the pipe as one."""
    settings = {
        "client.id": options["member"],
        "partition.assignment.strategy": options["assignor"],
        "session.timeout.ms": options["session_ms"],
        "heartbeat.interval.ms": options["heartbeat_ms"],
        "max.poll.interval.ms": options["rebalance_ms"],
        "topic.metadata.refresh.interval.ms": options["metadata_ms"],
        "auto.commit.interval.ms": 200,
        "auto.offset.reset": "earliest",
    }
    if options.get("instance"):
        settings["group.instance.id"] = options["instance"]
    line = '{"m":"%s","ev":"record","t":"%%t","p":%%p,"o":%%o,"v":"%%s"}\n' % options["member"]
    words = ["stdbuf", "-oL", "-eL", "kcat", "-b", options["bootstrap"], "-f", line]
    for key, value in settings.items():
        words += ["-X", f"{key}={value}"]
    return [*words, "-G", options["group"], *(options.get("topics") or [options["pattern"]])]


CLIENTS = {
    "kcat": Client(
        _kcat,
        ("range", "cooperative-sticky"),
        fenced=False,
        commits_by_itself=True,
        closes_on_sigterm=True,
        closes_when_idle=True,
        tells_on_stderr=True,
    ),
    "confluent": Client(_python("confluent"), ("range", "roundrobin", "cooperative-sticky")),
    "kafka-python": Client(_python("kafka_python"), ("range", "roundrobin", "sticky"), heeds_when_busy=True),
    "aiokafka": Client(_python("aiokafka"), ("range", "roundrobin", "sticky"), fenced=False),
    "franz-go": Client(_go("franz-go"), ("range", "roundrobin", "sticky", "cooperative-sticky")),
    "sarama": Client(_go("sarama"), ("range", "roundrobin", "sticky")),
    "kafkajs": Client(_node, ("roundrobin",), static=False),
    "java-3.9.1": Client(_java("3.9.1"), ("range", "sticky", "cooperative-sticky")),
    "java-4.3.1": Client(_java("4.3.1"), ("range", "sticky", "cooperative-sticky")),
}
