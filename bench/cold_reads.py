#!/usr/bin/env python3
"""What a consumer that reads old data from the disk does to those who write: the p99 of produce with and without it.

Producers write at a fixed rate; meanwhile consumers read, at another, a topic whose pages are dropped from the page cache
all the time.  The ratio says how well a broker keeps its writers from waiting for the disk.  Readers, writers and the
broker share the machine: what that costs by itself is seen when the same reads go to another broker beside the one that
is written to.  Kafka runs alone.
"""
import json
import os
import pathlib
import sys
import threading
import time

import alone
from alone import median_of
from brokers import Barnabas, Failed, Kafka, log

OLD_MB = 2000
RATE_MB_S = 20
READ_MB_S = 100  # bounded, so that it is the disk that is measured and not what a reader takes of two cores
WRITERS = dict(partitions=8, connections=4, record_size=1024, batch_bytes=16384, acks=1, inflight=5, rate=RATE_MB_S)
GOAL = 1.5
OURS, THEIRS = "barnabas", "kafka 4.3.1"


class Evictor(threading.Thread):
    """Drops a topic's files from the page cache again and again."""

    def __init__(self, broker, topic):
        super().__init__(daemon=True)
        self.files = sorted(pathlib.Path(broker.dir).glob(f"**/{topic}-*/*.log"))
        self.done = threading.Event()
        self.dropped = 0

    def drop(self):
        for path in self.files:
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        self.dropped += 1

    def run(self):
        while not self.done.wait(0.1):
            self.drop()


def written(broker, seconds, **more):
    result = broker.kbench("produce", topic="new", seconds=seconds, warmup=2, **WRITERS, **more)
    if result.get("failed"):
        raise Failed(f"{broker.name} does not take records at {RATE_MB_S} MB/s")
    return result


def with_cold_readers(broker, seconds, source):
    """Writes to one broker while old data is read from `source`, the same one or another."""
    evictor = Evictor(source, "old")
    if not evictor.files:
        raise Failed(f"no files of the topic that is read in {source.dir}")
    evictor.drop()
    evictor.start()
    read = {}
    reader = threading.Thread(
        target=lambda: read.update(
            source.kbench("fetch", topic="old", partitions=4, connections=2, rate=READ_MB_S, seconds=seconds + 2)
        )
    )
    reader.start()
    try:
        result = written(broker, seconds)
    finally:
        reader.join()
        evictor.done.set()
        evictor.join()
    return result, read


def fill(broker):
    """The topic that is read."""
    broker.create("old", 4)
    old = dict(topic="old", partitions=4, connections=4, record_size=1024, batch_bytes=65536)
    if broker.kbench("produce", **old, seconds=300, cap_mb=OLD_MB).get("failed"):
        raise Failed(f"{broker.name} does not take what is to be read")
    os.sync()  # a dirty page cannot be dropped


def one_round(broker, neighbour, seconds):
    alone = written(broker, seconds)
    beside, read = with_cold_readers(broker, seconds, broker)
    row = dict(
        alone_p99_us=alone["lat_us"]["p99"],
        beside_p99_us=beside["lat_us"]["p99"],
        alone_p50_us=alone["lat_us"]["p50"],
        beside_p50_us=beside["lat_us"]["p50"],
        read_mb_s=round(read.get("mb_s", 0), 1),
    )
    if neighbour:
        row["elsewhere_p99_us"] = with_cold_readers(broker, seconds, neighbour)[0]["lat_us"]["p99"]
    return row


def measure(broker, neighbour, rounds, seconds):
    brokers = [broker, neighbour] if neighbour else [broker]
    try:
        for one in brokers:
            one.prepare()
            one.start()
            fill(one)
        broker.create("new", WRITERS["partitions"])
        written(broker, seconds)  # a compiler's warm-up
        rows = []
        for _ in range(rounds):
            rows.append(one_round(broker, neighbour, seconds))
            log(broker.name, json.dumps(rows[-1]))
        return rows
    finally:
        for one in brokers:
            one.clean()


def report(results):
    lines = [
        f"# Cold reads beside {RATE_MB_S} MB/s of produce, {time.strftime('%Y-%m-%d')}",
        "",
        "| broker | produce p99 alone | beside cold reads | ratio | p50 alone | beside | read from disk |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in results.items():
        alone, beside = median_of(rows, "alone_p99_us"), median_of(rows, "beside_p99_us")
        lines.append(
            f"| {name} | {alone:.0f} us | {beside:.0f} us | {beside / alone:.2f} | {median_of(rows, 'alone_p50_us'):.0f} us "
            f"| {median_of(rows, 'beside_p50_us'):.0f} us | {median_of(rows, 'read_mb_s'):.0f} MB/s |"
        )
    ours = median_of(results[OURS], "beside_p99_us") / median_of(results[OURS], "alone_p99_us")
    elsewhere = median_of(results[OURS], "elsewhere_p99_us")
    machine = elsewhere / median_of(results[OURS], "alone_p99_us")
    lines += ["", f"The same reads from another broker on this machine: p99 {elsewhere:.0f} us, {machine:.2f} times."]
    lines += ["", f"Goal: at most {GOAL} times: {ours:.2f}, {'pass' if ours <= GOAL else 'FAIL'}", ""]
    return "\n".join(lines)


def measured(args, data):
    ours, neighbour = (Barnabas(name, data, args.binary, []) for name in (OURS, "neighbour"))
    results = {OURS: measure(ours, neighbour, args.rounds, args.seconds)}
    if not args.no_kafka:
        results[THEIRS] = measure(Kafka(THEIRS, data), None, args.rounds, args.seconds)
    return report(results)


def main():
    parser = alone.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=6)
    return alone.run("cold-reads", parser.parse_args(), measured)


if __name__ == "__main__":
    sys.exit(main())
