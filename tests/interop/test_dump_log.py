"""`barnabas kafka-dump-log` against kafka-dump-log.sh of Kafka 3.9.1, line by line, over the files that Kafka left.

What differs, and why:
- Kafka's tool ends with a stack trace at a file that it cannot read (a name without a dot, the preallocated index of an
  empty log, in a sanity check a preallocated time index); ours says so in a sentence and goes on. Left out here.
- On standard error Kafka tells what does not agree file by file in the order of a hash table: compared sorted. It names
  files by their absolute paths, which the test gives anyway.
- Partitions of a transaction come in the order of a hash table too; the fixtures' order is the same.
"""

import subprocess

import pytest

import kafka39
import programs
from batches import Record, build
from brokers import Broker
from messages import record as record_message

PREALLOCATED = 10 << 20


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    root = tmp_path_factory.mktemp("kafka39")
    for which in kafka39.FIXTURES:
        kafka39.unpack(which, root)
    return root


@pytest.fixture(scope="module")
def kafka(fetched):
    return programs.java_tools("3.9.1")


def ours(*words):
    done = subprocess.run([Broker.binary(), "kafka-dump-log", *map(str, words)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def compare(kafka, files, *words):
    files = ",".join(map(str, files))
    theirs = kafka.run("kafka.tools.DumpLogSegments", *words, "--files", files)
    out, err = ours(*words, "--files", files)
    assert out.splitlines() == theirs.splitlines()
    said = [line for line in kafka.errors.splitlines() if "log4j" not in line]
    assert sorted(err.splitlines()) == sorted(said)
    return out


def crashes_kafka(path, sanity):
    if "." not in path.name.lstrip(".") or path.stat().st_size < PREALLOCATED - 8:
        return "." not in path.name.lstrip(".")
    if path.suffix == ".index":
        return path.with_suffix(".log").stat().st_size == 0
    return sanity


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--deep-iteration"],
        ["--print-data-log"],
        ["--print-data-log", "--skip-record-metadata"],
        ["--max-bytes", "5000"],
        ["--max-bytes=1"],
        ["--index-sanity-check"],
        ["--verify-index-only"],
        ["--value-decoder-class", "org.apache.kafka.tools.api.StringDecoder", "--key-decoder-class"],
    ],
    ids=lambda words: " ".join(words) or "plain",
)
def test_every_line_is_kafkas(kafka, unpacked, words):
    sanity = "--index-sanity-check" in words
    files = [path for path in sorted(unpacked.rglob("*")) if path.is_file() and not crashes_kafka(path, sanity)]
    assert len(files) > 200
    assert len(compare(kafka, files, *words).splitlines()) > 500


@pytest.mark.parametrize("words", [["--offsets-decoder"], ["--offsets-decoder", "--skip-record-metadata"]])
def test_offsets_are_decoded_as_kafka_does(kafka, unpacked, words):
    text = compare(kafka, sorted(unpacked.rglob("__consumer_offsets-*/*.log")), *words)
    assert '"topic":"codec-gzip","partition":0}} payload: {"version":"3","data":{"offset":42,' in text


def test_transactions_are_decoded_as_kafka_does(kafka, unpacked):
    text = compare(kafka, sorted(unpacked.rglob("__transaction_state-*/*.log")), "--transaction-log-decoder")
    assert "state=CompleteAbort,partitions=[]" in text


def prefixed(name, version, values, prefix=None):
    return (version if prefix is None else prefix).to_bytes(2, "big") + record_message(name).encode(values, version)


def test_groups_and_every_version_are_decoded_as_kafka_does(kafka, tmp_path):
    subscription = {"Topics": ["t", "u"], "UserData": b"\1\2", "OwnedPartitions": [{"Topic": "t", "Partitions": [1]}]}
    assignment = {"AssignedPartitions": [{"Topic": "t", "Partitions": [0, 1]}], "UserData": None}
    member = {
        **{"memberId": "m-1", "clientId": "c", "clientHost": "/127.0.0.1", "rebalanceTimeout": 3, "sessionTimeout": 4},
        "subscription": prefixed("ConsumerProtocolSubscription", 1, subscription),
        "assignment": prefixed("ConsumerProtocolAssignment", 1, assignment),
    }
    group = {"generation": 5, "protocol": "range", "leader": "m-1"}
    commit = {"group": "g", "topic": "t", "partition": 1}
    offset = {"offset": 7, "leaderEpoch": 2, "metadata": 'a "b"\n', "commitTimestamp": 8, "expireTimestamp": 9}
    records = []
    for version in range(4):
        for kind in ("consumer", "connect"):
            one = member | ({"groupInstanceId": "i"} if version >= 3 else {})
            more = {"currentStateTimestamp": 11} if version >= 2 else {}
            value = group | more | {"protocolType": kind, "members": [one | {"assignment": b""} if version == 1 else one]}
            key = prefixed("GroupMetadataKey", 0, {"group": "g"}, 2)
            records.append(Record(key=key, value=prefixed("GroupMetadataValue", version, value)))
        records.append(
            Record(
                key=prefixed("OffsetCommitKey", 0, commit, min(version, 1)),
                value=prefixed("OffsetCommitValue", version, offset),
            )
        )
    records.append(Record(key=prefixed("OffsetCommitKey", 0, commit, 1), value=None))
    records.append(Record(key=prefixed("GroupMetadataKey", 0, {"group": "g"}, 2), value=None))
    epoch = prefixed("ConsumerGroupMetadataValue", 0, {"Epoch": 3})
    records.append(Record(key=prefixed("ConsumerGroupMetadataKey", 0, {"GroupId": "n"}, 3), value=epoch))
    records.append(Record(key=b"\x03\xe7", value=b"?"))
    log = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(build(records))
    text = compare(kafka, [log], "--offsets-decoder")
    assert '"ownedPartitions":[{"topic":"t","partitions":[1]}]' in text and "<DELETE>" in text
    assert "Unknown record type 999" in text


def test_a_decoder_of_transactions_meets_every_state(kafka, tmp_path):
    records = []
    for version in (0, 1):
        for status in range(8):
            value = {
                **{"ProducerId": 1, "ProducerEpoch": 2, "TransactionTimeoutMs": 3, "TransactionStatus": status},
                "TransactionPartitions": [{"Topic": "t", "PartitionIds": [4]}],
                **{"TransactionLastUpdateTimestampMs": 5, "TransactionStartTimestampMs": 6},
            }
            key = prefixed("TransactionLogKey", 0, {"TransactionalId": "x y"}, 0)
            records.append(Record(key=key, value=prefixed("TransactionLogValue", version, value)))
    records.append(Record(key=prefixed("TransactionLogKey", 0, {"TransactionalId": "x"}, 0), value=None))
    records.append(Record(key=b"\0\7", value=b"?"))
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(build(records))
    text = compare(kafka, [log], "--transaction-log-decoder")
    assert "state=PrepareEpochFence,partitions=[t-4]" in text and "<DELETE>" in text


def test_damaged_indexes_are_told_as_kafka_tells_them(kafka, unpacked, tmp_path):
    source = unpacked / "b1" / "codec-none-1"
    for path in source.glob(f"{0:020}.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    index, times = tmp_path / f"{0:020}.index", tmp_path / f"{0:020}.timeindex"
    data = bytearray(index.read_bytes())
    data[3] ^= 3  # the first entry's offset
    index.write_bytes(data)
    data = bytearray(times.read_bytes())
    data[7] ^= 1  # the first entry's timestamp
    data[12 + 11] ^= 7  # the second one's offset
    times.write_bytes(data)
    for words in ([], ["--verify-index-only"], ["--index-sanity-check"]):
        compare(kafka, [index, times], *words)


def test_gaps_and_torn_ends_are_told_as_kafka_tells_them(kafka, unpacked, tmp_path):
    source = unpacked / "b1" / "compacted-0" / f"{0:020}.log"
    log = tmp_path / source.name
    log.write_bytes(source.read_bytes()[:-20])
    text = compare(kafka, [log], "--deep-iteration")
    assert "invalid bytes at the end of" in text


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "--files is required"),
        (["--files", "x", "--cluster-metadata-decoder"], "cannot be honoured"),
        (["--files", "x", "--remote-log-metadata-decoder"], "cannot be honoured"),
        (["--files", "x", "--value-decoder-class", "com.example.Mine"], "cannot be loaded here"),
        (["--files", "x", "--max-bytes", "many"], "needs a number"),
        (["--files", "x", "--bogus"], "there is no option"),
    ],
)
def test_what_cannot_be_honoured_is_refused(words, said):
    done = subprocess.run([Broker.binary(), "kafka-dump-log", *words], capture_output=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr.decode()
