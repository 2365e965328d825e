#!/usr/bin/env python3
"""How long a cleaner takes: Apache Kafka 3.9.1 and Barnabas compact the same segments, in turn, with one thread.

A broker first compacts a small topic, so that a JVM has compiled what it needs.  Then it is told to compact the one that
is measured (min.cleanable.dirty.ratio), until cleaner-offset-checkpoint says that it has: CPU and wall seconds from one
to the other, and the most memory in between.  The segments are in the page cache.
"""
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time

import alone
from alone import Kafka39, median_of
from brokers import BUILD, Barnabas, Failed, compiled, kbench, log, options
from lifecycle import cpu_s, settle

OURS, THEIRS = "barnabas", "kafka 3.9.1"
GOAL = 3
WAIT_S = 900
WARM = "warm"
SEGMENT_MB = 128
# topic: segments, keys, bytes of a value, records of a batch, codec
ROWS = {
    "small records": (16, 1_000_000, 100, 100, "none"),
    "1 KiB records": (16, 1_000_000, 1000, 16, "none"),
    "lz4": (8, 1_000_000, 200, 100, "lz4"),
    "mostly unique keys": (16, 10_000_000, 200, 50, "none"),
}
WARM_ROW = (2, 100_000, 200, 50, "none")


CLEANER = "log.cleaner.backoff.ms=50"  # it shall see soon that it may begin


class EagerKafka39(Kafka39):
    def prepare(self):
        super().prepare()
        with open(self.dir / "server.properties", "a") as properties:
            properties.write(CLEANER + "\n")


def topic_of(row):
    return row.replace(" ", "-")


# ---- Telling a broker to compact


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise Failed("a broker closed the connection")
        data += part
    return data


def set_ratio(broker, topic, ratio):
    """IncrementalAlterConfigs, version 0."""
    body = struct.pack(">ib", 1, 2) + text(topic) + struct.pack(">i", 1) + text("min.cleanable.dirty.ratio")
    body += struct.pack(">b", 0) + text(ratio) + struct.pack(">b", 0)
    head = struct.pack(">hhi", 44, 0, 1) + text("bench")
    host, port = broker.address.split(":")
    for _ in range(100):  # after a start Kafka learns of the topic a little later than it answers
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(struct.pack(">i", len(head + body)) + head + body)
            answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
        (error,) = struct.unpack_from(">h", answer, 12)
        if error == 0:
            return
        time.sleep(0.1)
    raise Failed(f"{broker.name} does not alter {topic}: error {error}")


def cleaned_to(broker, topic):
    path = broker.dir / "logs" / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    rows = [line.rsplit(" ", 2) for line in lines]
    return next((int(offset) for name, _, offset in rows if name == topic), -1)


# ---- One cleaning


def partition_dir(broker, topic):
    return broker.dir / "logs" / f"{topic}-0"


def log_bytes(broker, topic):
    return sum(path.stat().st_size for path in partition_dir(broker, topic).glob("*.log"))


def status_mb(pid, key):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise Failed(f"no {key} of {pid}")


def compact(broker, topic):
    active = max(int(path.stem) for path in partition_dir(broker, topic).glob("*.log"))
    before = log_bytes(broker, topic)
    pathlib.Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # VmHWM starts anew
    cpu, began = cpu_s(broker.pid), time.monotonic()
    set_ratio(broker, topic, "0")
    while cleaned_to(broker, topic) < active:
        if time.monotonic() > began + WAIT_S or broker.child.poll() is not None:
            raise Failed(f"{broker.name} has not compacted {topic}")
        time.sleep(0.02)
    wall = time.monotonic() - began
    return dict(
        wall_s=round(wall, 2),
        cpu_s=round(cpu_s(broker.pid) - cpu, 2),
        peak_mb=round(status_mb(broker.pid, "VmHWM")),
        before_mb=before >> 20,
        after_mb=log_bytes(broker, topic) >> 20,
    )


def generated(row, spec):
    """The segments of a row, made once."""
    folder = BUILD / "data" / f"keyed-{topic_of(row)}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        segments, keys, value, records, codec = map(str, spec)
        program = [compiled("keyed", "-llz4"), folder, segments, str(SEGMENT_MB), keys, value, records, codec]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        (folder / "complete").touch()
    return folder


CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_MB << 20), "min.cleanable.dirty.ratio": "1"}


def with_topics(broker, rows):
    """Starts it in a new folder that has these topics with their segments."""
    broker.prepare()
    broker.start()
    for row in rows:
        config = [word for key, value in CONFIG.items() for word in ("--config", f"{key}={value}")]
        asked = options(broker=broker.address, topic=topic_of(row), partitions=1, timeout=60)
        if kbench("create", *asked, *config).get("failed"):
            raise Failed(f"{broker.name} does not create {row}")
    broker.stop()
    for row, spec in rows.items():
        folder = partition_dir(broker, topic_of(row))
        for path in folder.glob("0*"):
            path.unlink()
        for path in generated(row, spec).glob("*.log"):
            shutil.copyfile(path, folder / path.name)
    os.sync()  # the cleaner's own syncs shall not wait for this
    broker.start()


def measure(broker, row, spec):
    try:
        with_topics(broker, {WARM: WARM_ROW, row: spec})
        compact(broker, WARM)
        settle(broker)
        result = compact(broker, topic_of(row))
        log(broker.name, row, json.dumps(result))
        return result
    finally:
        broker.clean()


# ---- The report


def report(results, names):
    lines = [
        f"# Compaction, {time.strftime('%Y-%m-%d')}",
        "",
        "| data | broker | CPU s | wall s | peak memory, MB | MB before | MB after |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, of_row in results.items():
        for name in names:
            cells = [median_of(of_row[name], key) for key in ("cpu_s", "wall_s", "peak_mb", "before_mb", "after_mb")]
            lines.append(f"| {row} | {name} | " + " | ".join(f"{cell:g}" for cell in cells) + " |")
    if THEIRS in names:
        for key, what, goal in ("wall_s", "times faster", GOAL), ("cpu_s", "times less CPU", GOAL), (
            "peak_mb",
            "times less memory",
            1,
        ):
            ratios = {row: median_of(of[THEIRS], key) / median_of(of[OURS], key) for row, of in results.items()}
            mean = statistics.geometric_mean(ratios.values())
            each = ", ".join(f"{row} {ratio:.1f}" for row, ratio in ratios.items())
            lines += ["", f"Goal: {goal} {what}: {mean:.1f} ({each}), {'pass' if mean > goal else 'FAIL'}"]
    return "\n".join([*lines, ""])


def measured(args, data):
    ours = Barnabas(OURS, data, args.binary, [CLEANER])
    brokers = [ours] + ([] if args.no_kafka else [EagerKafka39(THEIRS, data)])
    rows = {row: spec for row, spec in ROWS.items() if args.only in (None, row)}
    results = {row: {broker.name: [] for broker in brokers} for row in rows}
    for _ in range(args.rounds):
        for row, spec in rows.items():
            for broker in brokers:
                results[row][broker.name].append(measure(broker, row, spec))
    return report(results, [broker.name for broker in brokers])


def main():
    parser = alone.arguments(__doc__)
    parser.add_argument("--only", choices=list(ROWS), help="one kind of data")
    return alone.run("compaction", parser.parse_args(), measured)


if __name__ == "__main__":
    sys.exit(main())
