#!/usr/bin/env python3
"""What a group coordinator costs: one big group that comes together, and thousands of small ones that live.

One broker runs at a time, each in a folder of its own; a round takes both, the next in the opposite order.  Members are
kgroups', each on a connection of its own.  Both brokers have the same group.initial.rebalance.delay.ms.
"""
import json
import os
import subprocess
import sys
import time

import alone
import lifecycle
from alone import median_of
from brokers import HERE, Barnabas, Failed, Kafka, log, options

ROOT = HERE.parent
OURS, THEIRS = "barnabas", "kafka 4.3.1"
CPU_GOAL, TIME_GOAL = 1 / 5, 1 / 2
DELAYS_MS = [0, 3000]  # 3000 is Kafka's default, of which no coordinator can save anything
BIG, MANY = "1 group of 1,000", "2,000 groups of 3"


class KafkaWith(Kafka):
    """With settings of ours behind those of its distribution."""

    def __init__(self, name, data, settings):
        super().__init__(name, data)
        self.settings = settings

    def prepare(self):
        super().prepare()
        with open(self.dir / "server.properties", "a") as file:
            file.writelines(f"{line}\n" for line in self.settings)


def kgroups(broker, **named):
    """One run of the load: its JSON object."""
    if broker.child.poll() is not None:
        raise Failed(f"{broker.name} ended by itself, status {broker.child.returncode}")
    program = ROOT / "build/release/kgroups"
    run = subprocess.run(
        [program, *map(str, options(broker=broker.address, pid=broker.pid, **named))], capture_output=True, text=True
    )
    if run.returncode:
        raise Failed(f"kgroups with {broker.name}: {run.stderr.strip()[-400:]}")
    return json.loads(run.stdout)


def settled(row):
    return dict(
        settle_ms=row["settle_ms"],
        settle_cpu_s=row["settle_broker_cpu_s"],
        generations=row["generation_max"],
        rss_mb=round(row["settled_rss_kb"] / 1024, 1),
    )


def measure_one(broker, seconds, warmup):
    """Rows of one broker's life: (what, row)."""
    broker.create("small", 3)
    broker.create("big", 1000)
    lifecycle.settle(broker)  # of what a thousand partitions are to it
    # A compiler's warm-up, alike for both, and the coordinator's topic.
    kgroups(broker, topic="big", partitions=1000, groups=1, members=300)
    kgroups(broker, topic="small", partitions=3, groups=300, members=3, seconds=warmup / 2)
    yield BIG, settled(kgroups(broker, topic="big", partitions=1000, groups=1, members=1000))
    row = kgroups(broker, topic="small", partitions=3, groups=2000, members=3, seconds=seconds, warmup=warmup)
    if row["rebalances"]:
        raise Failed(f"{broker.name}: {row['rebalances']} rebalances of groups that had settled")
    served = row["heartbeats"] + row["commits"]
    yield (
        MANY,
        settled(row)
        | dict(
            cpu_s_per_min=row["broker_cpu_s_per_min"],
            client_cpu_s_per_min=row["client_cpu_s_per_min"],
            served_pct=round(100 * served / (2 * 6000 * row["seconds"]), 1),
            cpu_us_per_request=round(row["broker_cpu_s_per_min"] / 60 * row["seconds"] / served * 1e6, 2),
            p50_ms=row["lat_us"]["p50"] / 1000,
            p99_ms=row["lat_us"]["p99"] / 1000,
            living_rss_mb=round(row["rss_kb"] / 1024, 1),
        ),
    )


def measure(args, data):
    """(delay, what, broker) -> rows."""
    rows = {}
    for number in range(args.rounds):
        for delay_ms in DELAYS_MS if args.delay is None else [args.delay]:
            setting = f"group.initial.rebalance.delay.ms={delay_ms}"
            brokers = [Barnabas(OURS, data, args.binary, [setting])]
            if not args.no_kafka:
                brokers.append(KafkaWith(THEIRS, data, [setting]))
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                broker.prepare()
                broker.start()
                try:
                    for what, row in measure_one(broker, args.seconds, args.warmup):
                        rows.setdefault((delay_ms, what, broker.name), []).append(row)
                        log(f"delay {delay_ms} ms,", what, broker.name, json.dumps(row))
                finally:
                    broker.clean()
    return rows


# what it is; of which row; its key; how much of Kafka's is allowed.  Without a delay: it is the brokers' alone.
GOALS = [
    ("a group of 1,000 settles: time", BIG, "settle_ms", TIME_GOAL),
    ("a group of 1,000 settles: CPU", BIG, "settle_cpu_s", CPU_GOAL),
    ("2,000 groups settle: time", MANY, "settle_ms", TIME_GOAL),
    ("2,000 groups settle: CPU", MANY, "settle_cpu_s", CPU_GOAL),
    ("2,000 groups heartbeat and commit: CPU a request", MANY, "cpu_us_per_request", CPU_GOAL),
]


def goal_lines(rows):
    for name, what, key, most in GOALS:
        ours, theirs = rows.get((0, what, OURS)), rows.get((0, what, THEIRS))
        if not ours or not theirs:
            yield f"- {name}: not measured, without Kafka."
            continue
        ratio = median_of(ours, key) / median_of(theirs, key)
        yield f"- {name}, x {THEIRS}: {ratio:.3f}, at most {most:g}: {'pass' if ratio <= most else 'FAIL'}."


def report(rows, args, load_before):
    lines = [
        f"# Group coordinators, {time.strftime('%Y-%m-%d')}",
        "",
        f"Load average before {load_before:.1f}, after {os.getloadavg()[0]:.1f}; {args.rounds} rounds, medians; windows"
        f" of {args.seconds:g} s after {args.warmup:g} s.",
        "A group has settled when all its members have been assigned their partitions in one generation; the time"
        " counts from the first JoinGroup. Each of the 6,000 members of the small groups heartbeats and commits one"
        " offset every second: 12,000 requests a second, of which `served` were answered; the rest was due while a"
        " member still waited.",
        "",
        "| delay | groups | broker | settled | CPU for that | generations | CPU a minute | CPU a request | served | p50"
        " | p99 | memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (delay_ms, what, name), some in sorted(rows.items(), key=lambda item: item[0]):
        living = "cpu_s_per_min" in some[0]
        cells = [f"{median_of(some, 'settle_ms'):.0f} ms", f"{median_of(some, 'settle_cpu_s'):.2f} s"]
        cells.append(f"{median_of(some, 'generations'):.0f}")
        if living:
            cells += [f"{median_of(some, 'cpu_s_per_min'):.2f} s", f"{median_of(some, 'cpu_us_per_request'):.1f} us"]
            cells.append(f"{median_of(some, 'served_pct'):.0f} %")
            cells += [f"{median_of(some, key):.2f} ms" for key in ("p50_ms", "p99_ms")]
        else:
            cells += [""] * 5
        cells.append(f"{median_of(some, 'living_rss_mb' if living else 'rss_mb'):.0f} MB")
        lines.append(f"| {delay_ms} ms | {what} | {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "Goals, without a delay:", "", *goal_lines(rows), ""])


def measured(args, data):
    subprocess.run(["ninja", "-C", ROOT / "build/release", "kgroups"], check=True, stdout=subprocess.DEVNULL)
    load_before = os.getloadavg()[0]
    return report(measure(args, data), args, load_before)


def main():
    parser = alone.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="the window in which the small groups live")
    parser.add_argument("--warmup", type=float, default=20, help="before it")
    parser.add_argument("--delay", type=int, choices=DELAYS_MS, help="only rows with this initial rebalance delay, in ms")
    return alone.run("groups", parser.parse_args(), measured)


if __name__ == "__main__":
    sys.exit(main())
