#!/usr/bin/env python3
"""How long partitions are away when a broker starts: after a crash with 4 GB unflushed, and on 2,000 clean partitions.

Apache Kafka 3.9.1 writes both directories; it and Barnabas then start on copies of them, in turn.  A start ends when the
leader of every partition answers ListOffsets.  Of opening, what the same broker needs for an empty directory is measured
beside it and taken off: a JVM and a ZooKeeper start slowly, and that is not what is compared.  Recovery is compared by
what each broker says that it took: "Loaded 8 logs in ... ms" and "recovered ... ms=...".  The page cache is warm.
"""
import pathlib
import re
import shutil
import socket
import statistics
import struct
import sys
import time

import alone
from alone import Kafka39
from brokers import BUILD, Barnabas, Failed, log

OURS, THEIRS = "barnabas", "kafka 3.9.1"
TOPIC = "measured"
BIG_PARTITIONS, MANY_PARTITIONS = 8, 2000
GOALS = {"recovery": 5, "opening": 10}
WAIT_S = 600
CHECKPOINTS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"


# ---- Is every partition served?


def call(connection, key, version, body):
    head = struct.pack(">hhih", key, version, 1, -1)
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    size = struct.unpack(">i", receive(connection, 4))[0]
    return receive(connection, size)[4:]


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise OSError("closed")
        data += part
    return data


def unserved(connection, partitions):
    """How many of the topic's partitions do not answer ListOffsets, version 1, for their end."""
    topic = TOPIC.encode()
    rows = b"".join(struct.pack(">iq", index, -1) for index in range(partitions))
    body = struct.pack(">iih", -1, 1, len(topic)) + topic + struct.pack(">i", partitions) + rows
    answer = call(connection, 2, 1, body)
    at = 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", answer, at)
    errors = [struct.unpack_from(">h", answer, at + 4 + row * 22 + 4)[0] for row in range(count)]
    return sum(error != 0 for error in errors)


def wait_served(broker, partitions, began):
    """Milliseconds since `began` until all are served."""
    host, port = broker.address.split(":")
    connection = None
    while time.monotonic() < began + WAIT_S:
        if broker.child.poll() is not None:
            raise Failed(f"{broker.name} ended by itself")
        try:
            connection = connection or socket.create_connection((host, int(port)), 60)
            if unserved(connection, partitions) == 0:
                return (time.monotonic() - began) * 1e3
        except OSError:
            connection = None
        time.sleep(0.002)
    raise Failed(f"{broker.name} does not serve all partitions within {WAIT_S} s")


# ---- The directories


def make(kafka, kind, gigabytes, keep):
    """Has Kafka write a directory and keeps a copy of it, with the ZooKeeper's; stopped cleanly in both cases."""
    partitions = BIG_PARTITIONS if kind == "recovery" else MANY_PARTITIONS
    kafka.prepare()
    kafka.start()
    try:
        kafka.create(TOPIC, partitions)
        logs = kafka.dir / "logs"
        while sum(file.stat().st_size for file in logs.glob("*/*.log")) < gigabytes * 1e9:
            result = kafka.kbench(
                "produce",
                topic=TOPIC,
                partitions=partitions,
                connections=8,
                inflight=4,
                record_size=1024,
                batch_bytes=16384,
                acks=1,
                warmup=0,
                seconds=10,
                cap_mb=1000,
            )
            if result.get("failed"):
                raise Failed("Kafka does not take records")
    finally:
        kafka.stop()
    if kind == "recovery":
        (logs / ".kafka_cleanshutdown").unlink()
        for name in CHECKPOINTS:
            (logs / name).write_text("0\n0\n")
    shutil.rmtree(keep, ignore_errors=True)
    shutil.copytree(kafka.dir, keep)
    return sum(file.stat().st_size for file in keep.glob("logs/*/*.log"))


def said_recovery(broker, said_before):
    """Milliseconds of recovery since then, by the broker's own account; None: it told of none."""
    text = broker.dir.with_suffix(".log").read_text(errors="replace")[said_before:]
    told = re.findall(r"replica recovered .*\bms=(\d+)|Loaded \d+ logs in (\d+)ms", text)
    return float(told[-1][0] or told[-1][1]) if told else None


def start_on(broker, kept, partitions):
    """Starts the broker on a copy; milliseconds until every partition is served, and of recovery."""
    broker.prepare()
    for part in ("logs", "zookeeper"):
        if part == "logs" or isinstance(broker, Kafka39):
            shutil.copytree(kept / part, broker.dir / part, dirs_exist_ok=True)
    output = broker.dir.with_suffix(".log")
    said_before = len(output.read_text(errors="replace")) if output.exists() else 0
    began = time.monotonic()
    broker.start()
    served = wait_served(broker, partitions, began)
    broker.stop()
    return served, said_recovery(broker, said_before)


def start_empty(broker):
    broker.prepare()
    took = broker.start()
    broker.stop()
    return took


def measure(brokers, kept, rounds):
    """broker -> kind -> milliseconds of each round; "empty" beside the kinds."""
    rows = {broker.name: {kind: [] for kind in ("empty", "served", *GOALS)} for broker in brokers}
    for number in range(rounds):
        for broker in brokers if number % 2 == 0 else reversed(brokers):
            row = rows[broker.name]
            row["empty"].append(start_empty(broker))
            for kind in GOALS:
                partitions = BIG_PARTITIONS if kind == "recovery" else MANY_PARTITIONS
                served, recovered = start_on(broker, kept[kind], partitions)
                if kind == "recovery":
                    row["served"].append(served)
                    row[kind].append(recovered)
                else:
                    row[kind].append(served)
                log(broker.name, kind, f"served after {served:.0f} ms, recovery {recovered} ms")
            broker.clean()
    return rows


def report(rows, size):
    lines = [
        f"# Starts on a full directory, {time.strftime('%Y-%m-%d')}",
        "",
        f"Until every partition is served: {size / 1e9:.1f} GB unflushed in {BIG_PARTITIONS} partitions; "
        f"{MANY_PARTITIONS} clean partitions.  Medians; in brackets the recovery itself, and what opening takes beyond an "
        "empty start.",
        "",
        "| broker | empty | unflushed | many clean |",
        "|---|---|---|---|",
    ]
    beyond = {}
    for name, row in rows.items():
        middle = {kind: statistics.median(times) for kind, times in row.items()}
        beyond[name] = {"recovery": middle["recovery"], "opening": max(middle["opening"] - middle["empty"], 0.1)}
        lines.append(
            f"| {name} | {middle['empty']:.0f} ms | {middle['served']:.0f} ms ({middle['recovery']:.0f}) "
            f"| {middle['opening']:.0f} ms ({beyond[name]['opening']:.0f}) |"
        )
    lines.append("")
    for kind, goal in GOALS.items():
        if THEIRS in beyond:
            ratio = beyond[THEIRS][kind] / beyond[OURS][kind]
            lines.append(f"Goal: {kind} {goal} times faster: {ratio:.1f}, {'pass' if ratio >= goal else 'FAIL'}.")
    return "\n".join([*lines, ""])


def measured(args, data):
    ours, theirs = Barnabas(OURS, data, args.binary, []), Kafka39(THEIRS, data)
    kept = {kind: BUILD / f"kept-{kind}" for kind in GOALS}
    try:
        for kind, keep in kept.items():
            if not (args.no_kafka and pathlib.Path(keep).exists()):
                make(theirs, kind, args.gb if kind == "recovery" else 0, keep)
        theirs.clean()
        size = sum(file.stat().st_size for file in kept["recovery"].glob("logs/*/*.log"))
        return report(measure([ours] if args.no_kafka else [ours, theirs], kept, args.rounds), size)
    finally:
        theirs.clean()
        ours.clean()


def main():
    parser = alone.arguments(__doc__, no_kafka="measure Barnabas alone, on directories kept from before")
    parser.add_argument("--gb", type=float, default=4)
    return alone.run("recovery", parser.parse_args(), measured)


if __name__ == "__main__":
    sys.exit(main())
