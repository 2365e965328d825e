#!/usr/bin/env python3
"""`./dev soak`: a cluster of three brokers and three ZooKeeper servers in network namespaces, a checked load, and one
fault after the other for an hour.  Ends with what was checked, or with the history of faults and what was wrong."""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import network
from cluster import Cluster
from faults import Chaos
from load import Load

CONFIG = {"replica.lag.time.max.ms": "3000", "num.io.threads": "2", "log.retention.ms": "-1"}
DISK_BYTES = 2 << 30


def small_disks(cluster):
    """A file system of its own for each broker's logs, in memory: to fill one hurts nobody else."""
    for broker in cluster:
        broker.log_dir.mkdir(parents=True)
        options = f"size={DISK_BYTES}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "barnabas-soak", str(broker.log_dir)], check=True)


def drop_disks(cluster):
    for broker in cluster:
        subprocess.run(["umount", str(broker.log_dir)], capture_output=True)


def soak(directory, seconds, seed, say, kinds=None):
    """Returns how many records were acknowledged and checked."""
    cluster = Cluster(directory, 3, zookeepers=3, config=CONFIG, network=True, kinds=kinds)
    try:
        small_disks(cluster)
        cluster.start()
        load = Load(cluster, "soak", producers=2, java=1).start()
        load.wait_progress(100)
        chaos = Chaos(cluster, load, seed, say)
        chaos.run(seconds)
        chaos.end()
        load.stop()
        load.check()
        return load.acknowledged()
    finally:
        cluster.close()
        drop_disks(cluster)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--peer", choices=["barnabas", "kafka39"], default="barnabas")
    arguments = parser.parse_args()
    reason = network.missing()
    if reason:
        sys.exit(f"soak: {reason}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="barnabas-soak-") as directory:
        kinds = [arguments.peer] * 3
        count = soak(pathlib.Path(directory), arguments.minutes * 60, arguments.seed, lambda l: print(l, flush=True), kinds)
    print(f"{count} records acknowledged and checked, {(time.monotonic() - began) / 60:.1f} min, seed {arguments.seed}")


if __name__ == "__main__":
    main()
