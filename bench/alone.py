"""What the measurements that stand alone (recovery, compaction, flush, cold_reads, groups) share: flags, the end, a median."""
import argparse
import statistics
import time

from brokers import BUILD, HERE, Failed, Kafka, compiled, log


class Kafka39(Kafka):
    script = HERE / "peers" / "kafka39.sh"


def median_of(rows, key):
    return statistics.median(row[key] for row in rows)


def arguments(description, no_kafka="leave Apache Kafka out"):
    """A parser with the flags that all have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--binary", default=str(HERE.parent / "build/release/barnabas"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-kafka", action="store_true", help=no_kafka)
    parser.add_argument("--keep", action="store_true", help="write the report to bench/results/")
    return parser


def run(name, args, measured):
    """Runs `measured(args, data)`, which gives the report's text, prints that, and keeps it if told to.  The exit code."""
    compiled("kbench")
    data = BUILD / "data"
    data.mkdir(parents=True, exist_ok=True)
    try:
        text = measured(args, data)
    except Failed as failed:
        log(failed)
        return 1
    print(text)
    if args.keep:
        (HERE / "results" / f"{time.strftime('%Y-%m-%d')}-{name}.md").write_text(text)
    return 0
