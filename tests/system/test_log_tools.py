"""`barnabas log dump, verify, repair, explain`: over what Apache Kafka 3.9.1 left on disk, and over files damaged in every way."""

import hashlib
import json
import lzma
import pathlib
import shutil
import struct
import subprocess

import pytest

import kafka39
from batches import Record, build, now_ms
from brokers import Broker, wait_until
from messages import REPOSITORY
from messages import record as record_message

pytestmark = pytest.mark.barnabas_only

DATA = REPOSITORY / "tests/data"
FIXTURES = [name for _, name, _ in kafka39.FIXTURES.values()]  # the directories: b1, b2


def run(*words, status=0):
    done = subprocess.run([Broker.binary(), *map(str, words)], capture_output=True, timeout=120)
    assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.decode()


def errors(*words, status=1):
    """What goes to standard error."""
    done = subprocess.run([Broker.binary(), *map(str, words)], capture_output=True, timeout=120)
    assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stderr.decode()


def rows(*words, status=0):
    return [json.loads(line) for line in run("log", *words, "--json", status=status).splitlines()]


def state_of(directory):
    """{file: digest} of everything below a directory."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    """Both log directories, to be looked at."""
    root = tmp_path_factory.mktemp("kafka39")
    for which in kafka39.FIXTURES:
        kafka39.unpack(which, root)
    return root


@pytest.fixture
def partition(unpacked, tmp_path):
    """partition("txn-0"): a copy in a log directory of its own."""

    def copy(name, broker="b1"):
        log_dir = tmp_path / "data"
        log_dir.mkdir(exist_ok=True)
        (log_dir / ".kafka_cleanshutdown").touch()
        return pathlib.Path(shutil.copytree(unpacked / broker / name, log_dir / name))

    return copy


# Dumping


@pytest.mark.parametrize("broker", FIXTURES)
def test_committed_offsets_come_out_of_dump(unpacked, broker):
    found = {}
    for row in rows("dump", "--records", *sorted((unpacked / broker).glob("__consumer_offsets-*"))):
        if row["type"] == "record" and row["recordType"] == "OffsetCommitKey":
            key, value = row["key"]["data"], row["value"]["data"]
            found[key["group"], key["topic"], key["partition"]] = value["offset"], value["metadata"].rstrip("\0")
    assert found == {
        ("readers", "codec-none", 0): (7, "meta-0"),
        ("readers", "codec-none", 1): (17, "meta-1"),
        ("readers", "codec-none", 2): (27, "meta-2"),
        ("readers", "codec-gzip", 0): (42, ""),
    }


def text_or_hex(row, name):
    """In hexadecimal; a record's bytes are in one of two fields."""
    value = row.get(f"{name}Hex", row.get(name))
    return value if value is None or f"{name}Hex" in row else value.encode().hex()


def expected_records():
    with lzma.open(DATA / "kafka39-expected.jsonl.xz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["isolation"] == "read_uncommitted" and "offset" in row:
                yield row


@pytest.mark.parametrize("broker", FIXTURES)
def test_dump_shows_every_record_that_kafka_consumers_read(unpacked, broker):
    shown = {}
    for path in sorted((unpacked / broker).glob("[a-z]*-[0-9]")):
        for row in rows("dump", "--records", *sorted(path.glob("*.log"))):
            if row["type"] == "record" and "control" not in row:
                shown[path.name, row["offset"]] = row
    count = 0
    for want in expected_records():
        row = shown[f"{want['topic']}-{want['partition']}", want["offset"]]
        assert row["timestamp"] == want["timestamp"]
        assert text_or_hex(row, "key") == want["key"] and text_or_hex(row, "value") == want["value"]
        headers = [[h["key"], text_or_hex(h, "value")] for h in row.get("headers", [])]
        assert headers == want["headers"]
        count += 1
    assert count > 2000


def test_dump_shows_each_kind_of_file(unpacked):
    kinds = {row["type"] for row in rows("dump", "--records", unpacked / "b1", unpacked / "b2")}
    assert kinds == {
        *("batch", "record", "offsetIndexEntry", "timeIndexEntry", "abortedTransaction", "producer", "leaderEpoch"),
        *("checkpoint", "partitionMetadata", "metaProperties", "cleanShutdown", "preallocated"),
    }


def test_dump_decodes_the_transaction_log(unpacked):
    states = [
        row["value"]["data"]["transactionStatus"]
        for row in rows("dump", "--records", *sorted((unpacked / "b1").glob("__transaction_state-*")))
        if row["type"] == "record"
    ]
    assert set(states) == {0, 1, 2, 3, 4, 5}


def group_record(key_name, key_id, key, value_name=None, version=None, value=None):
    key = struct.pack(">h", key_id) + record_message(key_name).encode(key, 0)
    if value is not None:
        value = struct.pack(">h", version) + record_message(value_name).encode(value, version)
    return Record(key=key, value=value)


def test_dump_decodes_groups_and_names_the_newer_records(tmp_path):
    subscription = struct.pack(">h", 1) + record_message("ConsumerProtocolSubscription").encode(
        {"Topics": ["t"], "UserData": b"\xff", "OwnedPartitions": [{"Topic": "t", "Partitions": [1, 2]}]}, 1
    )
    member = dict(memberId="m-1", clientId="c", clientHost="/h", sessionTimeout=1, rebalanceTimeout=2)
    member |= dict(subscription=subscription, assignment=b"\x00", groupInstanceId=None)
    group = dict(protocolType="consumer", generation=3, protocol="range", leader="m-1", members=[member])
    records = [
        group_record("GroupMetadataKey", 2, {"group": "g"}, "GroupMetadataValue", v, group | {"currentStateTimestamp": 9})
        for v in (2, 3)
    ]
    records.append(group_record("GroupMetadataKey", 2, {"group": "gone"}))
    records.append(
        group_record("ConsumerGroupMetadataKey", 3, {"GroupId": "new"}, "ConsumerGroupMetadataValue", 0, {"Epoch": 5})
    )
    records.append(Record(key=struct.pack(">h", 999), value=b"?"))
    log = tmp_path / "__consumer_offsets-7" / ("0" * 20 + ".log")
    log.parent.mkdir()
    log.write_bytes(build(records))
    found = [row for row in rows("dump", "--records", log, status=1) if row["type"] in ("record", "error")]
    values = [row.get("value") for row in found if row["type"] == "record"]
    for version, value in zip((2, 3), values):
        assert value["version"] == str(version) and value["data"]["generation"] == 3
        assert value["data"]["members"][0]["subscription"] == {
            "topics": ["t"],
            "userData": "/w==",
            "ownedPartitions": [{"topic": "t", "partitions": [1, 2]}],
        }
        assert value["data"]["members"][0]["assignment"] == "AA=="  # no assignment: shown as it is
    assert values[2] is None and values[3]["data"] == {"epoch": 5}
    assert found[3]["recordType"] == "ConsumerGroupMetadataKey"
    assert [row["error"] for row in found if row["type"] == "error"] == [
        "the key at offset 4 cannot be decoded: its type is not known."
    ]
    assert found[-1]["keyHex"] == "03e7" and found[-1]["value"] == "?"


def test_what_cannot_be_printed_is_escaped(tmp_path):
    log = tmp_path / ("0" * 20 + ".log")
    log.write_bytes(build([Record(key=b"a\x1b[31m\n\"", value=b"\xff\x00", headers=[("h", b"\x80")])]))
    line = run("log", "dump", "--records", log).splitlines()[-1]
    assert r'key: "a\u001B[31m\n\""' in line and "valueHex: ff00" in line
    assert r'[{"key":"h","valueHex":"80"}]' in line


def test_a_corrupt_file_is_told_with_its_position_and_the_next_has_its_turn(partition):
    log = sorted(partition("codec-none-1").glob("*.log"))[0]
    data = log.read_bytes()
    log.write_bytes(data[:-10])
    other = log.parent / "partition.metadata"
    found = rows("dump", log, other, status=1)
    assert found[-1]["type"] == "partitionMetadata"
    assert found[-2]["type"] == "error" and found[-2]["position"] > 0
    assert "position " in errors("log", "dump", log)


@pytest.mark.parametrize(
    "name, data, said",
    [
        ("0" * 20 + ".index", b"\0" * 7, "behind the last whole entry"),
        ("0" * 20 + ".txnindex", b"\1" * 34, "malformed or corrupt"),
        ("0" * 20 + ".txnindex", b"\0" * 35, "behind the last whole entry"),
        ("0" * 20 + ".snapshot", b"\0\1abcdefgh", "malformed or corrupt"),
        ("leader-epoch-checkpoint", b"0\n1\nx 1\n", "line 3"),
        ("recovery-point-offset-checkpoint", b"7\n1\n", "version 7"),
        ("partition.metadata", b"version: 0\n", "topic_id"),
        ("meta.properties", b"version=x\n", "version is no number"),
    ],
)
def test_dump_says_what_is_wrong_with_a_small_file(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    assert said in errors("log", "dump", tmp_path / name)


# Verifying


@pytest.mark.parametrize("broker", FIXTURES)
def test_what_kafka_left_is_sound(unpacked, broker):
    before = state_of(unpacked / broker)
    assert ": sound." in run("log", "verify", "--deep", unpacked / broker)
    assert state_of(unpacked / broker) == before


def write_at(path, pos, data):
    with path.open("r+b") as f:
        f.seek(pos)
        f.write(data)


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def first(directory, suffix):
    return sorted(directory.glob(f"*{suffix}"))[0]


def last(directory, suffix):
    return sorted(directory.glob(f"*{suffix}"))[-1]


def batch_positions(log):
    data, at, found = log.read_bytes(), 0, []
    while at < len(data):
        found.append(at)
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    return found


def rewrite_batch(log, index, at, data):
    """Changes bytes of a batch's header and puts its CRC right, which covers what lies behind byte 21."""
    import crc32c

    start = batch_positions(log)[index]
    write_at(log, start + at, data)
    whole = log.read_bytes()
    end = start + 12 + struct.unpack_from(">i", whole, start + 8)[0]
    write_at(log, start + 17, struct.pack(">I", crc32c.crc32c(whole[start + 21 : end])))


def spoil_snapshot_entry(snapshot):
    import crc32c

    data = bytearray(snapshot.read_bytes())
    data[10 + 17] ^= 1  # the first producer's last sequence
    data[2:6] = struct.pack(">I", crc32c.crc32c(bytes(data[6:])))
    snapshot.write_bytes(data)


DERIVED = {
    "index_missing": ("offset_index", lambda d: first(d, ".index").unlink()),
    "index_torn": ("offset_index", lambda d: cut(first(d, ".index"), 21)),
    "index_leads_into_a_batch": ("offset_index", lambda d: write_at(first(d, ".index"), 7, b"\x01")),
    "index_has_a_wrong_offset": ("offset_index", lambda d: write_at(first(d, ".index"), 3, b"\x01")),
    "index_leads_behind_the_end": ("offset_index", lambda d: write_at(first(d, ".index"), 20, b"\x7f")),
    "index_does_not_ascend": ("offset_index", lambda d: write_at(first(d, ".index"), 8, struct.pack(">ii", 1, 1))),
    "time_index_missing": ("time_index", lambda d: first(d, ".timeindex").unlink()),
    "time_index_torn": ("time_index", lambda d: cut(first(d, ".timeindex"), 13)),
    "time_index_has_a_wrong_time": ("time_index", lambda d: write_at(first(d, ".timeindex"), 7, b"\x01")),
    "time_index_lacks_the_largest_time": ("time_index", lambda d: cut(first(d, ".timeindex"), 12)),
    "txn_index_missing": ("txn_index", lambda d: first(d, ".txnindex").unlink()),
    "txn_index_torn": ("txn_index", lambda d: cut(first(d, ".txnindex"), 40)),
    "txn_index_lacks_an_entry": ("txn_index", lambda d: cut(first(d, ".txnindex"), 34)),
    "txn_index_has_a_wrong_producer": ("txn_index", lambda d: write_at(first(d, ".txnindex"), 9, b"\x63")),
    "snapshot_corrupt": ("snapshot", lambda d: write_at(last(d, ".snapshot"), 20, b"\xff")),
    "snapshot_tells_something_else": ("snapshot", lambda d: spoil_snapshot_entry(last(d, ".snapshot"))),
    "snapshot_behind_the_end": ("snapshot", lambda d: shutil.copy(last(d, ".snapshot"), d / f"{9999:020}.snapshot")),
    "epochs_missing": ("epochs_file", lambda d: (d / "leader-epoch-checkpoint").unlink()),
    "epochs_unreadable": ("epochs_file", lambda d: (d / "leader-epoch-checkpoint").write_text("0\n1\nx\n")),
    "epochs_wrong": ("epochs_file", lambda d: (d / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")),
    "epochs_contradict": ("epochs_file", lambda d: (d / "leader-epoch-checkpoint").write_text("0\n2\n3 5\n0 0\n")),
}
TORN = {
    "last_batch_torn": ("torn_tail", lambda d: cut(last(d, ".log"), last(d, ".log").stat().st_size - 3)),
    "zeros_behind_the_last_batch": ("torn_tail", lambda d: last(d, ".log").open("ab").write(b"\0" * 5000)),
    "last_batch_has_a_wrong_crc": ("torn_tail", lambda d: write_at(last(d, ".log"), last(d, ".log").stat().st_size - 1, b"\xfe")),
}
LOSSY = {
    "crc_of_a_batch_in_the_last_segment": ("bad_batch", lambda d: write_at(last(d, ".log"), 100, b"\xfe\xfe")),
    "length_of_a_batch_in_the_last_segment": ("bad_batch", lambda d: write_at(last(d, ".log"), 8, b"\x7f")),
    "crc_of_a_batch_in_the_middle": ("bad_batch", lambda d: write_at(first(d, ".log"), 100, b"\xfe\xfe")),
    "length_of_a_batch_in_the_middle": ("bad_batch", lambda d: write_at(first(d, ".log"), 8, b"\x7f")),
    "closed_segment_torn": ("bad_batch", lambda d: cut(first(d, ".log"), first(d, ".log").stat().st_size - 3)),
    "offset_falls": ("bad_batch", lambda d: write_at(first(d, ".log"), batch_positions(first(d, ".log"))[2], b"\0" * 8)),
    "segment_overlaps": ("offsets", lambda d: [p.rename(d / f"{60:020}{p.suffix}") for p in d.glob(f"{62:020}.*")]),
}
BEYOND = {
    "metadata_unreadable": ("metadata", lambda d: (d / "partition.metadata").write_text("version: 0\n")),
    "epoch_falls": ("epoch_falls", lambda d: write_at(first(d, ".log"), 12, b"\0\0\0\5")),
    "old_format": ("old_format", lambda d: last(d, ".log").write_bytes(old_message() + last(d, ".log").read_bytes())),
    "records_unreadable": ("bad_records", lambda d: rewrite_batch(first(d, ".log"), 0, 57, struct.pack(">i", 77))),
}


def old_message():
    import zlib

    body = struct.pack(">bbqii", 1, 0, 1700000000000, -1, -1)
    return struct.pack(">qiI", 62, len(body) + 4, zlib.crc32(body)) + body


DAMAGES = DERIVED | TORN | LOSSY | BEYOND


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_finds(partition, name):
    directory = partition("txn-0")
    kind, spoil = DAMAGES[name]
    spoil(directory)
    before = state_of(directory.parent)
    found = [row for row in rows("verify", "--deep", directory, status=1) if row["type"] == "finding"]
    assert kind in [row["id"] for row in found if row["level"] == "damage"], found
    assert all(row["text"] and row["advice"] for row in found)
    assert state_of(directory.parent) == before


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication", "cleaner"])
def test_verify_compares_checkpoints_with_the_log(partition, name):
    directory = partition("txn-0")
    file = directory.parent / f"{name}-offset-checkpoint"
    file.write_text("0\n1\ntxn 0 112\n")
    assert ": sound." in run("log", "verify", directory.parent)
    file.write_text("0\n1\ntxn 0 113\n")
    found = [row for row in rows("verify", directory.parent, status=1) if row["type"] == "finding"]
    assert [row["id"] for row in found] == ["checkpoint"] and found[0]["file"] == str(file)
    assert "would be written anew" in run("log", "repair", "--dry-run", directory.parent, status=1)
    run("log", "repair", directory.parent)
    assert file.read_text() == "0\n1\ntxn 0 112\n"
    file.write_text("nonsense")
    assert "line 1" in run("log", "verify", directory.parent, status=1)
    run("log", "repair", directory.parent)
    assert ": sound." in run("log", "verify", directory.parent)


def test_verify_tells_leftovers_only_when_asked(partition):
    directory = partition("trimmed-0")
    (directory / "notes.txt").touch()
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 101\n1 999\n")
    (directory.parent / "lost+found").mkdir()
    assert "notes.txt" not in run("log", "verify", directory.parent)
    text = run("log", "verify", "--notes", directory.parent)
    assert "notes.txt" in text and ".log.deleted" in text and "lost+found" in text


def test_verify_cannot_look_at_what_is_not_there(tmp_path):
    assert "cannot be read" in errors("log", "verify", tmp_path / "nothing", status=2)


def test_verify_takes_no_directory_for_sound_that_holds_no_log(partition, tmp_path):
    directory = partition("txn-0")
    assert "is no log directory" in errors("log", "verify", tmp_path, status=2)
    assert "at the end" in errors("log", "verify", f"{directory}/.", status=2)
    assert ": sound." in run("log", "verify", f"{directory}/")


def test_verify_beside_a_running_broker_changes_nothing_and_finds_closed_damage(fresh_broker, topic_name):
    broker = fresh_broker({"log.segment.bytes": "2000", "log.flush.offset.checkpoint.interval.ms": "600000"})
    broker.start()
    with broker.connect() as conn:
        conn.new_topic(topic_name)
        for i in range(12):
            conn.produce(topic_name, 0, build([Record(value=bytes(1000))]))
    directory = broker.log_dir / f"{topic_name}-0"
    found = rows("verify", broker.log_dir)
    assert [row["id"] for row in found if row["type"] == "finding"] == ["live"]
    before = state_of(directory)
    write_at(first(directory, ".log"), 80, b"\xfe")
    found = rows("verify", broker.log_dir, status=1)
    assert [row["id"] for row in found if row["type"] == "finding" and row["level"] == "damage"] == ["bad_batch"]
    write_at(first(directory, ".log"), 80, b"\0")
    assert state_of(directory) == before
    assert "Stop it first" in errors("log", "repair", broker.log_dir, status=2)
    assert "Stop it first" in errors("log", "repair", "--dry-run", broker.log_dir, status=2)
    broker.stop()
    assert ": sound." in run("log", "verify", broker.log_dir)


# Repairing


def records_of(directory):
    return [
        {key: value for key, value in row.items() if key != "file"}
        for row in rows("dump", "--records", *sorted(directory.glob("*.log")))
        if row["type"] == "record"
    ]


@pytest.mark.parametrize("name", DERIVED)
def test_repair_makes_anew_what_can_be_made_from_the_records(partition, name):
    directory = partition("txn-0")
    records = records_of(directory)
    DERIVED[name][1](directory)
    before = state_of(directory.parent)
    assert "made anew" in run("log", "repair", "--dry-run", directory, status=1)
    assert state_of(directory.parent) == before
    assert "it is sound now and ends at offset 112" in run("log", "repair", directory)
    assert ": sound." in run("log", "verify", directory)
    assert records_of(directory) == records
    assert "nothing to repair" in run("log", "repair", directory)


@pytest.mark.parametrize("name", TORN)
def test_repair_cuts_a_torn_tail_and_keeps_the_bytes(partition, name):
    directory = partition("txn-0")
    sound = last(directory, ".log").read_bytes()
    TORN[name][1](directory)
    spoilt = last(directory, ".log").read_bytes()
    text = run("log", "repair", directory)
    assert ": sound." in run("log", "verify", directory)
    left = last(directory, ".log").read_bytes()
    assert sound.startswith(left) and len(left) > 0
    if name == "zeros_behind_the_last_batch":
        assert left == sound and "5000 zeros" in text and not list(directory.glob("*.cut-*"))
    else:
        (kept,) = directory.glob("*.cut-*")
        assert str(kept) in text and left + kept.read_bytes() == spoilt


def test_repair_empties_no_log_whose_start_is_behind_its_end(partition):
    directory = partition("txn-0")
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\ntxn 0 500\n")
    records = records_of(directory)
    DERIVED["index_missing"][1](directory)
    run("log", "repair", directory)
    assert records_of(directory) == records
    assert (directory.parent / "log-start-offset-checkpoint").read_text() == "0\n1\ntxn 0 112\n"


@pytest.mark.parametrize("name", LOSSY)
def test_repair_takes_no_record_without_being_told_and_keeps_what_it_takes(partition, name):
    directory = partition("txn-0")
    LOSSY[name][1](directory)
    before = state_of(directory.parent)
    bytes_before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    text = run("log", "repair", directory, status=1)
    assert "--allow-loss" in text
    after = state_of(directory.parent)
    after.pop(".lock")
    assert after == before
    run("log", "repair", "--allow-loss", directory)
    assert ": sound." in run("log", "verify", directory)
    for log, data in bytes_before.items():
        left = (directory / log).read_bytes() if (directory / log).exists() else b""
        kept = b"".join(path.read_bytes() for path in directory.glob(f"{log}.cut-*"))
        assert left + kept == data


def test_repair_takes_a_gap_between_segments_for_that_of_a_compacted_log(partition):
    directory = partition("txn-0")
    log = first(directory, ".log")
    cut(log, batch_positions(log)[-1])  # and so the index leads behind the end
    records = records_of(directory)
    assert records[-1]["offset"] > 62
    run("log", "repair", directory)
    assert ": sound." in run("log", "verify", directory)
    assert records_of(directory) == records


@pytest.mark.parametrize("name", ["metadata_unreadable", "old_format", "epoch_falls", "records_unreadable"])
def test_repair_leaves_alone_what_it_cannot_mend(partition, name):
    directory = partition("txn-0")
    BEYOND[name][1](directory)
    before = state_of(directory)
    if name != "records_unreadable":  # only --deep finds those
        assert "Nothing is done" in run("log", "repair", directory, status=1)
    assert state_of(directory) == before


def test_a_broker_opens_what_was_repaired(partition, fresh_broker):
    directory = partition("txn-0")
    for name in ("index_torn", "time_index_missing", "txn_index_missing", "snapshot_corrupt", "last_batch_torn"):
        DAMAGES[name][1](directory)
    run("log", "repair", directory)
    assert ": sound." in run("log", "verify", directory.parent)
    assert [r["offset"] for r in records_of(directory)][:3] == [0, 1, 2]


# Explaining


def explained(topic, *words):
    """(the log's row, {base offset: the segment's row})"""
    found = rows("explain", topic, *words)
    (log,) = [row for row in found if row["type"] == "log"]
    return log, {row["baseOffset"]: row for row in found if row["type"] == "segment"}


def test_explain_tells_what_keeps_each_segment(unpacked):
    words = ("--partition", 0, "--dir", unpacked / "b1", "--config")
    log, segments = explained("txn", *words, "retention.ms=1000000000000")
    assert (log["startOffset"], log["endOffset"], log["highWatermark"], log["retention.ms"]) == (0, 112, 112, 10**12)
    assert {base: row["reason"] for base, row in segments.items()} == {0: "within_limits", 62: "within_limits"}
    assert segments[0]["endOffset"] == 62 and not segments[0]["active"] and segments[62]["active"]
    assert segments[0]["newestTimestamp"] == 1795970837767
    assert segments[0]["expiresMs"] == 1795970837767 + 10**12 + 1
    _, segments = explained("txn", *words, "retention.ms=0")
    assert [row["reason"] for row in segments.values()] == ["expired", "expired"]
    assert all(row["goes"] for row in segments.values())
    log, segments = explained("txn", *words, "retention.ms=-1", "--config", "retention.bytes=10000")
    assert segments[0]["reason"] == "within_limits" and segments[0]["bytesUntilOverSize"] == 10000 - segments[62]["size"]
    _, segments = explained("txn", *words, "retention.bytes=9000")
    assert segments[0]["reason"] == "over_size"
    _, segments = explained("txn", *words, "retention.ms=-1")
    assert "nothing limits it" in segments[0]["text"]


def test_explain_tells_of_deleted_trimmed_and_compacted_segments(unpacked, tmp_path):
    _, segments = explained("trimmed", "--dir", unpacked / "b1", "--config", "retention.ms=-1")
    assert [row["reason"] for row in segments.values()] == ["deleted", *["within_limits"] * 3]
    _, segments = explained("compacted", "--dir", unpacked / "b1", "--config", "cleanup.policy=compact")
    assert [row["reason"] for row in segments.values()] == ["compaction"] * 3
    assert "has been cleaned" in segments[0]["text"] and "when it is closed" in segments[540]["text"]
    log_dir = pathlib.Path(shutil.copytree(unpacked / "b1" / "trimmed-0", tmp_path / "trimmed-0")).parent
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\ntrimmed 0 250\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed 0 240\n")
    _, segments = explained("trimmed", "--dir", log_dir, "--config", "retention.ms=0")
    reasons = [row["reason"] for row in segments.values()]
    assert reasons == ["deleted", "log_start", "above_high_watermark", "above_high_watermark"]
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\ntrimmed 0 400\n")
    _, segments = explained("trimmed", "--dir", log_dir, "--config", "retention.ms=0")
    assert [row["reason"] for row in segments.values()] == ["deleted", "log_start", "expired", "expired"]


def test_a_running_broker_deletes_just_what_explain_said(fresh_broker, topic_name):
    broker = fresh_broker({"log.segment.bytes": "2000", "log.retention.check.interval.ms": "3600000"})
    broker.start()
    with broker.connect() as conn:
        conn.new_topic(topic_name, configs={"retention.ms": "3600000"})
        for age in (9, 8, 7, 0, 0):
            stamp = now_ms() - age * 3600000
            conn.produce(topic_name, 0, build([Record(value=bytes(1500), timestamp=stamp)]))
    before = state_of(broker.log_dir / f"{topic_name}-0")
    watermarks = broker.log_dir / "replication-offset-checkpoint"
    wait_until(lambda: watermarks.exists() and f"{topic_name} 0 5" in watermarks.read_text(), 60, "the high watermark")
    log, segments = explained(topic_name, "--dir", broker.log_dir)
    assert log["retention.ms"] == 3600000 and log["settingsFrom"] == "the embedded store"
    assert [segments[base]["reason"] for base in range(5)] == ["expired"] * 3 + ["within_limits"] * 2
    assert state_of(broker.log_dir / f"{topic_name}-0") == before
    broker.stop()
    broker.config |= {"log.retention.check.interval.ms": "100"}
    broker.start()
    directory = broker.log_dir / f"{topic_name}-0"
    wait_until(lambda: not (directory / f"{2:020}.log").exists(), 60, "what is expired goes")
    assert sorted(path.name for path in directory.glob("*.log")) == [f"{3:020}.log", f"{4:020}.log"]
    broker.stop()


def test_explain_says_what_it_cannot_do(unpacked, tmp_path):
    assert "no log of topic nope" in errors("log", "explain", "nope", "--dir", unpacked / "b1")
    assert "cannot be read" in errors("log", "explain", "txn", "--dir", tmp_path / "nothing")
    assert "retention.ms" in errors("log", "explain", "txn", "--dir", unpacked / "b1", "--config", "retention.ms=x")


# The command line


@pytest.mark.parametrize(
    "words", [["log"], ["log", "nothing"], ["log", "dump"], ["log", "dump", "--bogus", "x"], ["log", "verify"]]
    + [["log", "repair"], ["log", "explain"], ["log", "explain", "t", "--partition", "x"], ["log", "explain", "a", "b"]],
)
def test_a_wrong_command_line_is_told(words):
    assert "--help" in errors(*words, status=2)


def test_help_tells_of_every_subcommand():
    text = run("log", "--help")
    assert all(word in text for word in ("dump", "verify", "repair", "explain", "--allow-loss", "--decode"))
