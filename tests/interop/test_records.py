"""Records between languages: every client writes with every codec it has, and every client reads what all wrote.

README.md says what record i is. kafka-python, aiokafka and librdkafka run in this process, the others as programs."""

import pytest
from programs import BUILD, java_tools, run_program
from records import CODECS, PYTHON_CLIENTS

BROKER_CONFIG = {"log.retention.ms": "-1"}  # the records are dated in 2023

FEW = 1200  # holds each kind of record, two large ones among them
MANY = 100_000


class Program:
    """A client that is a program: COMMAND BOOTSTRAP write|read COUNT CODEC TOPIC..."""

    def __init__(self, *command, codecs=CODECS):
        self.command = [str(word) for word in command]
        self.codecs = codecs

    def write(self, bootstrap, topic, count, codec):
        run_program([*self.command, bootstrap, "write", str(count), codec, topic])

    def read(self, bootstrap, topics, count):
        run_program([*self.command, bootstrap, "read", str(count), "-", *topics])


class Java:
    """The Java client, in the JVM that also runs Kafka's tools of its release."""

    codecs = CODECS

    def __init__(self, version):
        self.version = version

    def write(self, bootstrap, topic, count, codec):
        java_tools(self.version).run("Records", bootstrap, "write", count, codec, topic)

    def read(self, bootstrap, topics, count):
        java_tools(self.version).run("Records", bootstrap, "read", count, "-", *topics)


# aiokafka's LZ4 frames (made by cramjam) are beyond these two clients' decoders, whatever the broker.
UNREADABLE = {"franz-go": {"aiokafka-lz4"}, "kafkajs": {"aiokafka-lz4"}}

CLIENTS = PYTHON_CLIENTS | {
    "franz-go": Program(BUILD / "interop/franz"),
    "kafkajs": Program("node", BUILD / "interop/node/kafkajs_records.js", codecs=("none", "gzip", "snappy", "zstd")),
    "java-3.9.1": Java("3.9.1"),
    "java-4.3.1": Java("4.3.1"),
}


def topic_of(client, codec):
    """Topics of writers that cannot write a null header say so in their name, for the readers."""
    return f"{client}-{codec}" + ("-nonull" if client in ("kafkajs", "kafka-python") else "")


@pytest.fixture(scope="module")
def written(broker):
    """Topics that tests of writing made: what the tests of reading read."""
    return []


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_write(broker, conn, written, client, codec):
    if codec not in CLIENTS[client].codecs:
        pytest.skip(f"{client} has no {codec}")
    topic = conn.new_topic(topic_of(client, codec))
    CLIENTS[client].write(broker.bootstrap, topic, FEW, codec)
    assert conn.list_offset(topic, 0, -1).Offset == FEW
    written.append(topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_read_what_all_have_written(broker, written, client):
    assert written, "the tests of writing run first"
    topics = [topic for topic in written if topic not in UNREADABLE.get(client, ())]
    CLIENTS[client].read(broker.bootstrap, topics, FEW)


@pytest.mark.parametrize("client", ["confluent", "franz-go", "java-4.3.1"])
def test_a_hundred_thousand_records(broker, conn, client):
    topic = conn.new_topic(f"{client}-many")
    CLIENTS[client].write(broker.bootstrap, topic, MANY, "lz4")
    CLIENTS[client].read(broker.bootstrap, [topic], MANY)


def test_kafkajs_in_a_group(broker, conn, written):
    if not conn.serves("JoinGroup"):
        pytest.skip("this broker coordinates no groups yet")
    topic = topic_of("kafkajs", "gzip")
    assert topic in written
    command = [
        "node",
        str(BUILD / "interop/node/kafkajs_records.js"),
        broker.bootstrap,
        "read-group",
        str(FEW),
        "-",
        topic,
    ]
    run_program(command)
