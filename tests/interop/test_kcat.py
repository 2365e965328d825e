"""kcat, which many people have at hand: produce, consume, list, query."""

import json
import shutil
import subprocess

import pytest

from batches import Record, build

BROKER_CONFIG = {"log.retention.ms": "-1"}

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@pytest.fixture
def kcat(broker):
    def run(*arguments, stdin=b""):
        command = ["kcat", "-b", broker.bootstrap, *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')}"
        return done.stdout

    return run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_headers_and_values_in_every_codec(kcat, topic, codec):
    lines = [f"key-{i}|value {i}" for i in range(2000)]
    kcat(
        *("-P", "-t", topic, "-p", 0, "-K", "|", "-H", "one=1", "-H", "one=2", "-H", "empty=", "-z", codec),
        stdin="\n".join(lines).encode() + b"\n",
    )
    got = kcat("-C", "-t", topic, "-p", 0, "-o", "beginning", "-e", "-q", "-f", "%o %h %k|%s\n").decode().splitlines()
    assert got == [f"{i} one=1,one=2,empty= {line}" for i, line in enumerate(lines)]


def test_null_and_empty_as_json(kcat, conn, topic):
    records = [Record(None, None), Record(b"", b""), Record(b"k", None), Record(None, b"v", [("n", None)])]
    conn.produce(topic, 0, build(records, timestamp=1700000000000))
    lines = kcat("-C", "-t", topic, "-p", 0, "-o", "beginning", "-e", "-q", "-J").decode().splitlines()
    got = [json.loads(line) for line in lines]
    assert [(m["offset"], m["key"], m["payload"]) for m in got] == [
        (0, None, None),
        (1, "", ""),
        (2, "k", None),
        (3, None, "v"),
    ]
    assert {m["ts"] for m in got} == {1700000000000} and got[3]["headers"] in (["n", None], {"n": None})


def test_nulls_are_produced(kcat, conn, topic):
    kcat("-P", "-t", topic, "-p", 0, "-Z", "-K", ":", stdin=b"k:\n:v\n")
    assert [(r.key, r.value) for r in conn.read_all(topic, 0)] == [(b"k", None), (None, b"v")]


def test_offsets_from_the_end_and_by_time(kcat, conn, topic):
    for i in range(10):
        conn.produce(topic, 0, build([Record(value=b"%d" % i, timestamp=1700000000000 + i * 1000)]))
    assert kcat("-C", "-t", topic, "-p", 0, "-o", -3, "-e", "-q").split() == [b"7", b"8", b"9"]
    assert kcat("-C", "-t", topic, "-p", 0, "-o", 4, "-c", 2, "-q").split() == [b"4", b"5"]
    assert kcat("-C", "-t", topic, "-p", 0, "-o", "s@1700000006500", "-e", "-q").split() == [b"7", b"8", b"9"]
    assert kcat("-Q", "-t", f"{topic}:0:1700000004500").decode().strip() == f"{topic} [0] offset 5"


def test_metadata(kcat, conn, broker, topic_name):
    topic = conn.new_topic(topic_name, 3)
    found = json.loads(kcat("-L", "-J"))
    assert [b["name"] for b in found["brokers"]] == [broker.bootstrap]
    (mine,) = [t for t in found["topics"] if t["topic"] == topic]
    assert [p["partition"] for p in mine["partitions"]] == [0, 1, 2]
    assert f'topic "{topic}" with 3 partitions' in kcat("-L", "-t", topic).decode()
