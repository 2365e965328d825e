"""What a broker costs beside its load: starts, memory, idle connections, thousands of partitions, idle CPU.

A broker runs alone here; the others are stopped.
"""
import pathlib
import statistics
import time

from brokers import log

CONNECTIONS = 2000
SMALL_TOPIC, BIG_TOPIC = 1000, 5000
IDLE_CPU_PCT = 10  # below this a broker has settled after what it was asked


def cpu_s(pid):
    """Time on a CPU so far of all threads that live; in nanoseconds in the kernel, where utime and stime are ticks."""
    total_ns = 0
    for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total_ns += int(stat.read_text().split()[0])
        except OSError:
            continue  # the thread has just ended
    return total_ns / 1e9


def rss_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def idle(broker, seconds):
    before, began = cpu_s(broker.pid), time.monotonic()
    time.sleep(seconds)
    spent = cpu_s(broker.pid) - before
    return dict(rss_mb=round(rss_mb(broker.pid), 1), cpu_pct=round(100 * spent / (time.monotonic() - began), 3))


def settle(broker, limit_s=60):
    """Waits until it does nothing more of its own accord: a broker may still be making files, or compiling."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and idle(broker, 1)["cpu_pct"] > IDLE_CPU_PCT:
        pass


def median_ms(values):
    return round(statistics.median(values), 1)


def measure(broker, quick):
    """All of it on one broker, which is left stopped; its data is the caller's to clean up."""
    log("lifecycle", broker.name)
    result = {}
    try:
        starts(broker, 1 if quick else broker.starts, result)
        settle(broker)
        result["idle"] = idle(broker, 5 if quick else 10)
        result["connections"] = connections(broker)
        topics(broker, 1 if quick else min(broker.starts, 3), result)
        settle(broker)
        result["idle_many"] = idle(broker, 5 if quick else 10)
        if broker.durable:
            restarts_with_many(broker, 1 if quick else min(broker.starts, 3), result)
    finally:
        broker.stop()
    return result


def starts(broker, count, result):
    """In a new folder, and again in the same one; the last leaves it running."""
    first, again = [], []
    for _ in range(count):
        broker.stop()
        broker.prepare()
        first.append(broker.start())
    for _ in range(count):
        broker.stop()
        again.append(broker.start())
    result["first_start_ms"], result["start_ms"] = median_ms(first), median_ms(again)
    result["start_cpu_s"] = round(cpu_s(broker.pid), 3)


def connections(broker):
    got = broker.kbench("conns", count=CONNECTIONS, hold=5)
    grown_kb = got.get("rss_after_hold_kb", 0) - got.get("rss_before_kb", 0)
    return dict(
        alive=got.get("alive_after_hold"),
        open_ms=got.get("ms"),
        rss_delta_mb=round(grown_kb / 1024, 1),
        idle_cpu_s=got.get("hold_cpu_s"),
    )


def topics(broker, count, result):
    """A small and a big topic, made in a new folder each time; the last ones stay.

    Nothing is deleted in between: for a minute ext4 passes over the inodes of what was deleted, one by one, and makes
    files several times slower.
    """
    small, big = [], []
    for _ in range(count):
        broker.move_on()
        small.append(broker.create("small", SMALL_TOPIC)["ready_ms"])
        big.append(broker.create("big", BIG_TOPIC)["ready_ms"])
    result["topic_1000_ms"], result["topic_5000_ms"] = median_ms(small), median_ms(big)


def restarts_with_many(broker, count, result):
    stops, again = [], []
    for _ in range(count):
        stops.append(broker.stop())
        again.append(broker.start())
    result["stop_many_ms"], result["start_many_ms"] = median_ms(stops), median_ms(again)
    settle(broker)
    result["restarted_many_rss_mb"] = round(rss_mb(broker.pid), 1)
