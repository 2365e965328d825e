#!/usr/bin/env python3
"""`./dev soak`: a cluster of three brokers and three ZooKeeper servers in network namespaces, a checked load, and one
fault after the other for an hour.  Ends with what was checked, or with the history of faults and what was wrong; then
the brokers' directories, with what they have said, stay where the last line says."""

import argparse
import contextlib
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import network
from cluster import Cluster
from committer import Bookkeeper
from faults import Chaos
from load import Load

CONFIG = {"replica.lag.time.max.ms": "3000", "num.io.threads": "2", "log.retention.ms": "-1"}
DISK_BYTES = 1 << 30


@contextlib.contextmanager
def small_disks(cluster, size=DISK_BYTES):
    """A file system of its own for each broker's logs, in memory: to fill one hurts nobody else.  What a failure leaves
    on them is kept."""
    mounted = []
    try:
        for broker in cluster:
            broker.log_dir.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "barnabas-soak", str(broker.log_dir)]
            subprocess.run(command, check=True)
            mounted.append(broker.log_dir)
        yield
    except BaseException:
        for path in mounted:
            shutil.copytree(path, path.with_name("data-kept"), ignore=shutil.ignore_patterns("ballast"))
        raise
    finally:
        for path in mounted:
            subprocess.run(["umount", "-l", str(path)], capture_output=True)


def soak(directory, seconds, seed, say, kinds=None, gentle=False, config=None, disk_bytes=DISK_BYTES):
    """Returns how many records were acknowledged and checked."""
    cluster = Cluster(directory, 3, zookeepers=3, config=CONFIG | (config or {}), network=True, kinds=kinds)
    with small_disks(cluster, disk_bytes), cluster:
        cluster.start()
        load = Load(cluster, "soak", producers=2, java=1).start()
        load.wait_progress(100)
        group = Bookkeeper(cluster, "soak", "soak-group")
        chaos = Chaos(cluster, load, seed, say, gentle)
        chaos.run(seconds)
        chaos.end()
        load.stop()
        group.stop()
        load.check()
        for broker in cluster:  # a clean stop: what a leak checker finds, it says now
            broker.stop()
        say(f"{group.commits} commits, asked for {group.asked} times")
        return load.acknowledged()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--peer", choices=["barnabas", "kafka39"], default="barnabas")
    parser.add_argument("--gentle", action="store_true", help="no fault that ends a broker, so that its memory can grow")
    parser.add_argument("--debug", action="store_true", help="brokers say everything (log.level=debug)")
    arguments = parser.parse_args()
    reason = network.missing()
    if reason:
        sys.exit(f"soak: {reason}")
    began = time.monotonic()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="barnabas-soak-"))
    try:
        count = soak(
            directory,
            arguments.minutes * 60,
            arguments.seed,
            lambda line: print(line, flush=True),
            kinds=[arguments.peer] * 3,
            gentle=arguments.gentle,
            config={"log.level": "debug"} if arguments.debug else None,
        )
    except BaseException:
        print(f"seed {arguments.seed} failed; what brokers said and wrote is in {directory}", flush=True)
        raise
    shutil.rmtree(directory)
    print(f"{count} records acknowledged and checked, {(time.monotonic() - began) / 60:.1f} min, seed {arguments.seed}")


if __name__ == "__main__":
    main()
