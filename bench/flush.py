#!/usr/bin/env python3
"""What it costs to acknowledge only what is on the disk: throughput and latency of each flush mode.

One broker runs at a time; a mode is a topic's configuration.  Producers with pipelined requests of one batch each, acks=1.
Kafka's rows are of 3.9.1, with its only way to promise this: flush.messages=1.
"""
import json
import math
import statistics
import sys
import time

import alone
from alone import Kafka39, median_of
from brokers import Barnabas, Failed, log

CONNECTIONS, INFLIGHT = 64, 5
GOAL = 10
OURS, THEIRS = "barnabas", "kafka 3.9.1"
NONE, EACH, GROUP = "none", "flush.messages=1", "flush.mode=group"
MODES = {OURS: [NONE, EACH, GROUP], THEIRS: [NONE, EACH]}
BATCHES = {"1 KiB": 1100, "16 KiB": 16384}
PARTITIONS = [1, 16, 64]


def run_row(broker, mode, partitions, batch, seconds):
    topic = f"flush-{time.monotonic_ns()}"
    config = {} if mode == NONE else {"config": mode}
    created = broker.kbench("create", topic=topic, partitions=partitions, timeout=60, **config)
    if created.get("failed"):
        raise Failed(f"{broker.name} does not create a topic with {mode}")
    result = broker.kbench(
        "produce",
        topic=topic,
        partitions=partitions,
        connections=CONNECTIONS,
        inflight=INFLIGHT,
        record_size=1024,
        batch_bytes=batch,
        acks=1,
        warmup=1,
        seconds=seconds,
    )
    broker.delete(topic)
    if result.get("failed") or result.get("errors"):
        raise Failed(f"{broker.name} does not take records with {mode}")
    return dict(
        batches_s=result["requests_s"],
        mb_s=result["mb_s"],
        p50_us=result["lat_us"]["p50"],
        p99_us=result["lat_us"]["p99"],
        cpu=round(result["broker_cpu_s"] / result["seconds"], 2),
    )


def measure(brokers, rounds, seconds):
    """(batch, partitions, broker, mode) -> rows; the brokers take turns, each with all modes."""
    rows = {}
    for number in range(rounds):
        for broker in brokers if number % 2 == 0 else reversed(brokers):
            broker.prepare()
            broker.start()
            try:
                run_row(broker, NONE, 16, 16384, 2 * seconds)  # a compiler's warm-up
                run_row(broker, EACH, 16, 1100, seconds)
                for batch in BATCHES:
                    for partitions in PARTITIONS:
                        for mode in MODES[broker.name]:
                            row = run_row(broker, mode, partitions, BATCHES[batch], seconds)
                            rows.setdefault((batch, partitions, broker.name, mode), []).append(row)
                            log(batch, f"{partitions}p", broker.name, mode, json.dumps(row))
            finally:
                broker.clean()
    return rows


def goal_line(rows):
    ratios = {}
    for batch, partitions, name, mode in rows:
        if (name, mode) != (OURS, GROUP):
            continue
        theirs = rows.get((batch, partitions, THEIRS, EACH))
        if theirs:
            ours = median_of(rows[batch, partitions, OURS, GROUP], "batches_s")
            ratios[batch, partitions] = ours / median_of(theirs, "batches_s")
    if not ratios:
        return "Goal: not measured, without Kafka."
    each = ", ".join(f"{batch} {partitions}p {ratio:.1f}" for (batch, partitions), ratio in ratios.items())
    small = [ratio for (batch, _), ratio in ratios.items() if batch == "1 KiB"]
    mean = math.exp(statistics.fmean(map(math.log, small)))
    verdict = "pass" if mean >= GOAL else "FAIL"
    return (
        f"Goal: batches of 1 KiB acknowledged from the disk, {GOAL} times Kafka's flush.messages=1 (geometric mean): "
        f"{mean:.1f}, {verdict}. Row by row: {each}."
    )


def report(rows):
    lines = [
        f"# Flush modes, {time.strftime('%Y-%m-%d')}",
        "",
        f"{CONNECTIONS} producers, {INFLIGHT} requests in flight each, one batch a request, acks=1; medians.",
        "",
        "| batch | partitions | broker | mode | batches/s | MB/s | p50 | p99 | broker CPU |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for batch in BATCHES:
        for partitions in PARTITIONS:
            for name, modes in MODES.items():
                for mode in modes:
                    some = rows.get((batch, partitions, name, mode))
                    if not some:
                        continue
                    lines.append(
                        f"| {batch} | {partitions} | {name} | {mode} | {median_of(some, 'batches_s'):.0f} "
                        f"| {median_of(some, 'mb_s'):.0f} | {median_of(some, 'p50_us') / 1000:.1f} ms "
                        f"| {median_of(some, 'p99_us') / 1000:.1f} ms | {median_of(some, 'cpu'):.2f} |"
                    )
    return "\n".join([*lines, "", goal_line(rows), ""])


def measured(args, data):
    brokers = [Barnabas(OURS, data, args.binary, [])] + ([] if args.no_kafka else [Kafka39(THEIRS, data)])
    return report(measure(brokers, args.rounds, args.seconds))


def main():
    parser = alone.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    return alone.run("flush", parser.parse_args(), measured)


if __name__ == "__main__":
    sys.exit(main())
