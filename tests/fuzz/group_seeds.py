"""Seeds of group_fuzz: records that Kafka's own classes wrote (protocol/golden.tsv), in the form that it cuts apart."""

import pathlib
import struct
import sys

GOLDEN = pathlib.Path(__file__).resolve().parent.parent.parent / "protocol" / "golden.tsv"
KINDS = {"OffsetCommit": 1, "GroupMetadata": 2, "ConsumerGroupMetadata": 3}
PLAIN, TRANSACTIONAL, ABORT, COMMIT = 0, 2, 1, 3
PRODUCER = 1 << 4


def bodies():
    """By message and version: what each kind of fill looks like."""
    found = {}
    for line in GOLDEN.read_text().splitlines()[1:]:
        _, name, kind, version, _, _, data = line.split("\t")
        if kind == "record":
            found.setdefault(name, []).append((int(version), bytes.fromhex(data)))
    return found


def sized(data):
    return struct.pack(">H", len(data)) + data


def record(kind, key, value):
    return bytes([kind]) + sized(key) + (b"\xff\xff" if value is None else sized(value))


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    found = bodies()
    for name, number in KINDS.items():
        keys = [struct.pack(">h", number) + body for _, body in found[name + "Key"]]
        values = [struct.pack(">h", version) + body for version, body in found[name + "Value"]]
        for at, value in enumerate(values):
            records = b"".join(record(PLAIN, key, value) for key in keys)
            in_transaction = b"".join(record(TRANSACTIONAL | PRODUCER, key, value) for key in keys)
            seeds = {
                "plain": records,
                "gone": records + b"".join(record(PLAIN, key, None) for key in keys),
                "committed": in_transaction + bytes([COMMIT | PRODUCER]) + records,
                "aborted": in_transaction + bytes([ABORT | PRODUCER]),
                "open": records + in_transaction,
            }
            for what, data in seeds.items():
                (folder / f"{name}-{at}-{what}").write_bytes(data)


main(pathlib.Path(sys.argv[1]))
