"""The rows of the measurement: produce, fetch and end-to-end cases, run on one broker at a time."""
import dataclasses
import os
import time

from brokers import Failed, kbench, log

KIB_16, MB_1 = 16384, 1048576
BATCH_TEXT = {KIB_16: "16 KiB", MB_1: "1 MB"}
FETCHED_MB = 1000  # what a fetch case reads again and again
TOUCHED_GB_S = 4  # memory that is touched faster than this has been backed by the host already


@dataclasses.dataclass(frozen=True)
class Case:
    kind: str  # produce, fetch or e2e
    label: str
    partitions: int
    connections: int = 1
    record: int = 1024
    batch: int = KIB_16
    acks: int = 1
    per_request: int = 1
    in_goal: bool = True  # counts in the mean that a goal is held against


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long a case runs and how often."""

    rounds: int
    seconds: float
    warmup: float
    cap_mb: int  # a produce window ends after this volume
    burn_in: float
    settle: float = 1.5  # seconds of rest after a topic's deletion

    @property
    def volume_gb(self):
        """What a produce case writes at most: the warm-up ends after half of the cap."""
        return 1.5 * self.cap_mb / 1000


EFFORTS = {
    "quick": Effort(rounds=1, seconds=3, warmup=1.5, cap_mb=1200, burn_in=6),
    "standard": Effort(rounds=3, seconds=6, warmup=3, cap_mb=1500, burn_in=15),
    "full": Effort(rounds=5, seconds=8, warmup=4, cap_mb=1500, burn_in=20),
}


def produce(record, batch, partitions, connections, acks=1, per_request=1, in_goal=True):
    label = f"produce {record} B, {BATCH_TEXT[batch]}, {partitions}p/{connections}c"
    label += "" if acks == 1 else f", acks {'all' if acks < 0 else acks}"
    label += "" if per_request == 1 else f", {per_request} batches/request"
    return Case("produce", label, partitions, connections, record, batch, acks, per_request, in_goal)


def fetch(batch, partitions, connections):
    label = f"fetch {BATCH_TEXT[batch]}, {partitions}p/{connections}c"
    return Case("fetch", label, partitions, connections, batch=batch)


def e2e(partitions, acks=1):
    label = f"e2e 2000/s, {partitions}p" + ("" if acks == 1 else ", acks all")
    return Case("e2e", label, partitions, acks=acks)


def all_cases(effort):
    """The rows of `quick`, `standard` or `full`.  The goal for produce is a mean over the same rows in the last two."""
    if effort == "quick":
        return [
            produce(1024, KIB_16, 1, 1),
            produce(1024, KIB_16, 16, 8),
            produce(100, KIB_16, 16, 8),
            produce(1024, MB_1, 1, 1),
            produce(1024, MB_1, 16, 8),
            fetch(KIB_16, 16, 8),
            fetch(MB_1, 16, 8),
            e2e(1),
        ]
    spreads = [(1, 1), (16, 8)]
    rows = [produce(r, b, p, c) for r in (100, 1024, 10240) for b in (KIB_16, MB_1) for p, c in spreads]
    rows += [
        produce(1024, KIB_16, 16, 8, acks=-1, in_goal=False),
        produce(1024, KIB_16, 16, 8, acks=0, in_goal=False),
        produce(1024, KIB_16, 16, 8, per_request=8, in_goal=False),
    ]
    if effort == "full":
        crossed = [(1, 8), (16, 1)]
        rows += [produce(r, b, p, c, in_goal=False) for r in (100, 1024) for b in (KIB_16, MB_1) for p, c in crossed]
    rows += [fetch(KIB_16, 1, 1), fetch(KIB_16, 16, 8), fetch(MB_1, 1, 1), fetch(MB_1, 16, 8)]
    return rows + [e2e(1), e2e(16), e2e(16, acks=-1)]


def pretouch(gb):
    """Has the host back the free memory that the page cache is about to take, see kbench.c."""
    for _ in range(3):
        result = kbench("pretouch", "--gb", gb)
        if result.get("failed") or gb / result["seconds"] > TOUCHED_GB_S:
            return


def run(broker, case, effort, number):
    """One run of a case; what kbench printed, and the broker's CPU as the goals want it."""
    topic = f"{case.kind}-{number}-{os.getpid()}"
    broker.create(topic, case.partitions)
    try:
        result = RUNNERS[case.kind](broker, case, effort, topic)
    finally:
        broker.delete(topic)
        time.sleep(effort.settle)
    if result.get("failed") and not result.get("seconds"):
        return result
    result["broker_cpu_pct"] = round(100 * result["broker_cpu_s"] / result["seconds"], 2)
    if result.get("bytes"):
        for whose in ("broker", "client"):
            result[f"{whose}_cpu_s_per_gb"] = round(result[f"{whose}_cpu_s"] / (result["bytes"] / 1e9), 4)
    return result


def run_produce(broker, case, effort, topic):
    pretouch(1.2 * effort.volume_gb)
    return broker.kbench(
        "produce",
        topic=topic,
        partitions=case.partitions,
        connections=case.connections,
        record_size=case.record,
        batch_bytes=case.batch,
        acks=case.acks,
        per_request=case.per_request,
        inflight=5,
        seconds=effort.seconds,
        warmup=effort.warmup,
        cap_mb=effort.cap_mb,
    )


def run_fetch(broker, case, effort, topic):
    """Reads FETCHED_MB again and again, from the page cache."""
    pretouch(1.2 * FETCHED_MB / 1000)
    filled = broker.kbench(
        "produce",
        topic=topic,
        partitions=case.partitions,
        connections=min(case.partitions, 8),
        record_size=case.record,
        batch_bytes=case.batch,
        seconds=120,
        cap_mb=FETCHED_MB,
    )
    if filled.get("failed"):
        raise Failed(f"{broker.name} does not take what is to be fetched")
    return broker.kbench(
        "fetch",
        topic=topic,
        partitions=case.partitions,
        connections=case.connections,
        max_bytes=1 << 20,
        seconds=effort.seconds,
        warmup=min(effort.warmup, 2),
    )


def run_e2e(broker, case, effort, topic):
    return broker.kbench(
        "e2e",
        topic=topic,
        partitions=case.partitions,
        rate=2000,
        record_size=case.record,
        acks=case.acks,
        seconds=effort.seconds,
        warmup=effort.warmup,
    )


RUNNERS = {"produce": run_produce, "fetch": run_fetch, "e2e": run_e2e}


def burn_in(broker, seconds):
    """Load before the first case, for a broker that a compiler speeds up while it runs."""
    log("burn-in", broker.name)
    broker.create("burn-in", 16)
    spread = dict(topic="burn-in", partitions=16)
    for record, batch in ((1024, KIB_16), (100, KIB_16), (1024, MB_1)):
        broker.kbench(
            "produce", **spread, connections=8, record_size=record, batch_bytes=batch, seconds=seconds / 3, cap_mb=2000
        )
    broker.kbench("fetch", **spread, connections=8, seconds=seconds / 5)
    broker.kbench("e2e", **spread, rate=2000, seconds=seconds / 5)
    broker.delete("burn-in")
