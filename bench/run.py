#!/usr/bin/env python3
"""Compares Barnabas, Apache Kafka and the yardstick server in one run.  See README.md beside this file.

Each row runs on one broker after the other while the rest idle, and the next round takes them in the opposite order,
so that noise on a shared machine falls on all of them alike.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

import cases
import lifecycle
import report
from brokers import BUILD, HERE, Barnabas, Failed, Kafka, Limit, compiled, log

ROOT = HERE.parent


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="few rows, once, in short windows: for tuning")
    effort.add_argument("--full", action="store_true", help="more rows, five times")
    parser.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="only rows whose label has all words of the pattern, for example 'produce 1024 1p'; 'lifecycle' is the"
        " starts, memory and idle CPU; may be given again for more rows",
    )
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--baseline", metavar="PATH", help="another barnabas binary to compare with, row by row")
    parser.add_argument("--binary", default=str(ROOT / "build/release/barnabas"), help="the barnabas binary to measure")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="configuration of Barnabas")
    parser.add_argument("--rounds", type=int, help="how often each row runs")
    parser.add_argument("--list", action="store_true", help="print the labels of the rows and end")
    return parser.parse_args()


def wanted(label, patterns):
    return not patterns or any(all(word in label for word in pattern.split()) for pattern in patterns)


def brokers_of(args):
    data = BUILD / "data"
    data.mkdir(parents=True, exist_ok=True)
    brokers = [Barnabas(report.OURS, data, args.binary, args.override)]
    if args.baseline:
        brokers.append(Barnabas(report.BASELINE, data, args.baseline, args.override))
    brokers.append(Limit(report.YARDSTICK, data))
    if not args.no_kafka:
        brokers.append(Kafka(report.KAFKA, data))
    return brokers


# ---- the record of a run --------------------------------------------------------------------------------------------


def load_average():
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return re.sub(r"\((R|TM)\)", "", line.split(":")[1]).strip()
    return platform.machine()


def version(args):
    described = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return " ".join([described.stdout.strip() or "of unknown version", *args.override])


def new_record(args, effort_name, effort, brokers):
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return dict(
        date=time.strftime("%Y-%m-%d"),
        machine=f"{os.cpu_count()} x {processor()}, {memory_gb:.0f} GB, Linux {platform.release().split('-')[0]}",
        version=version(args),
        effort=effort_name,
        rounds=effort.rounds,
        load_before=load_average(),
        load_after="-",
        brokers=[broker.name for broker in brokers],
        lifecycle={},
        cases=[],
        goals=[],
    )


def save(doc, path):
    doc["load_after"] = load_average()
    doc["goals"] = report.goals(doc)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(doc, indent=1) + "\n")
    path.with_suffix(".md").write_text(report.markdown(doc))


def kept_path(doc):
    """Where the results of a whole run stay: the day, the machine, and a number when that day has some already."""
    machine = f"{os.cpu_count()}x-" + re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
    name = f"{doc['date']}-{machine}"
    taken = [path.stem for path in (HERE / "results").glob(f"{name}*.json")]
    return HERE / "results" / (f"{name}-{len(taken) + 1}" if taken else name)


# ---- the run --------------------------------------------------------------------------------------------------------


def run_lifecycles(doc, brokers, quick):
    for broker in brokers:
        doc["lifecycle"][broker.name] = lifecycle.measure(broker, quick)
        save(doc, BUILD / "last")
    for broker in brokers:  # only now: see lifecycle.topics()
        broker.clean()


def run_cases(doc, brokers, chosen, effort):
    for broker in brokers:
        broker.prepare()
        broker.start()
    for broker in brokers:
        cases.burn_in(broker, effort.burn_in)
    rows = []
    for case in chosen:
        rows.append(dataclasses.asdict(case) | {"results": {broker.name: [] for broker in brokers}})
    doc["cases"] = rows
    for round_index in range(effort.rounds):
        for number, (case, row) in enumerate(zip(chosen, rows)):
            for broker in brokers if round_index % 2 == 0 else reversed(brokers):
                result = cases.run(broker, case, effort, f"{round_index}-{number}")
                row["results"][broker.name].append(result)
                tell(case, broker, result)
            save(doc, BUILD / "last")


def tell(case, broker, result):
    parts = [f"{case.label:48} {broker.name:12}"]
    if "broker_cpu_s_per_gb" in result:
        parts.append(f"{result['mb_s']:7.0f} MB/s {result['broker_cpu_s_per_gb']:7.3f} CPU s/GB")
    latency = result.get("lat_us", {})
    parts.append(f"p50 {latency.get('p50', 0):7.0f} us  p99 {latency.get('p99', 0):7.0f} us")
    if result.get("failed") or result.get("errors"):
        parts.append(f"ERRORS {result.get('errors') or result.get('stderr')}")
    log("  ".join(parts))


def main():
    args = arguments()
    effort_name = "quick" if args.quick else "full" if args.full else "standard"
    effort = cases.EFFORTS[effort_name]
    if args.rounds:
        effort = dataclasses.replace(effort, rounds=args.rounds)
    chosen = [case for case in cases.all_cases(effort_name) if wanted(case.label, args.only)]
    with_lifecycle = wanted("lifecycle", args.only)
    if args.list:
        print("\n".join(["lifecycle", *[case.label for case in cases.all_cases(effort_name)]]))
        return 0
    if not chosen and not with_lifecycle:
        print("no row has these words: --list shows the labels", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for tool in ("kbench", "limit"):
        compiled(tool)
    brokers = brokers_of(args)
    doc = new_record(args, effort_name, effort, brokers)
    try:
        if with_lifecycle:
            run_lifecycles(doc, brokers, args.quick)
        if chosen:
            run_cases(doc, brokers, chosen, effort)
    except Failed as failed:
        log(failed)
        return 1
    finally:
        for broker in brokers:
            broker.clean()
    save(doc, BUILD / "last")
    if not (args.quick or args.only or args.baseline or args.override):
        save(doc, kept_path(doc))
    print(report.markdown(doc))
    return 0


if __name__ == "__main__":
    sys.exit(main())
