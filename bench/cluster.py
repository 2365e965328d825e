#!/usr/bin/env python3
"""A cluster of three brokers with ZooKeeper: big topics, lost brokers and controllers, replicated produce, catch-up.

One cluster runs at a time.  Every part of a round works on the cluster that the part before left, so that a JVM is warm;
with --peer kafka39 the same parts run on three brokers of Apache Kafka 3.9.1 afterwards.  cluster_probe.c measures how
long writes stall, kbench.c makes the load.
"""
import contextlib
import ctypes
import glob
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

import alone
from brokers import BUILD, HERE, Failed, compiled, kbench, log, options

ROOT = HERE.parent
OURS, THEIRS = "barnabas", "kafka 3.9.1"
IDS = 1, 2, 3
SESSION_MS = 6000
TURN_MS = 200  # between two writes to a partition, during a failover
SETTLED_CORES = 0.3  # a cluster that uses less is at rest
TICKS_S = os.sysconf("SC_CLK_TCK")
LIBS = ROOT / "build/kafka-3.9.1/libs"
# Kafka's own server.properties, two in-sync replicas for a write, and leaders that move back only when they are told to.
SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "zookeeper.connection.timeout.ms": 18000,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "num.network.threads": 3,
    "num.io.threads": 8,
    "socket.send.buffer.bytes": 102400,
    "socket.receive.buffer.bytes": 102400,
    "offsets.topic.replication.factor": 3,
    "log.segment.delete.delay.ms": 1000,
}
JVM = "-Xms512m -Xmx1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35".split()

# The figure; what it is; its unit; the most that is allowed, or the least when it is negative.
GOALS = [
    ("kill_led_s", "kill -9, 1,000 partitions: its partitions are written again", "s", 0.1),
    ("kill_others_s", "kill -9: acks=all writes to surviving leaders stall", "s", 0.1),
    ("kill_back_s", "a killed broker is back in all in-sync sets", "s", 0.5),
    ("controller_small_s", "killed controller, 1,000 partitions: all is written again, a topic created", "s", 0.2),
    ("controller_large_s", "killed controller, 5,000 partitions: the same", "s", 0.5),
    ("shutdown_ms", "controlled shutdown: the slowest acks=all write", "ms", 60),
    ("create_small_s", "a topic of 1,000 partitions, three replicas: ready", "s", 1),
    ("create_large_s", "a topic of 5,000 partitions, three replicas: ready", "s", 4),
    ("small_mb_s", "produce, acks=all, batches of 16 KiB", "MB/s", -250),
    ("small_cpu", "produce, acks=all, batches of 16 KiB: CPU of the three brokers", "s/GB", 6),
    ("big_cpu", "produce, acks=all, batches of 1 MB: CPU of the three brokers", "s/GB", 2.5),
]
CATCH_UP, CATCH_UP_GOAL = "catch_up_s", 1 / 2  # of Kafka's time


# ---- The few requests that are sent from here


def text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


class Answer:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return values[0]

    def text(self):
        size = self.take("h")
        self.at += max(size, 0)
        return self.data[self.at - size : self.at].decode() if size >= 0 else None

    def ints(self):
        return [self.take("i") for _ in range(max(0, self.take("i")))]


def ask(address, api, version, body, timeout_s=60):
    host, port = address.split(":")
    message = struct.pack(">hhi", api, version, 1) + text("cluster") + body
    with socket.create_connection((host, int(port)), timeout_s) as sock:
        sock.sendall(struct.pack(">i", len(message)) + message)
        with sock.makefile("rb") as answer:
            head = answer.read(4)
            if len(head) < 4:
                raise ConnectionError("no answer")
            return Answer(answer.read(struct.unpack(">i", head)[0])[4:])


def create_topic(address, name, partitions=-1, replicas=3, assignment=(), timeout_s=120):
    """The error code of CreateTopics."""
    head = (-1, -1) if assignment else (partitions, replicas)
    body = struct.pack(">i", 1) + text(name) + struct.pack(">ih", *head) + struct.pack(">i", len(assignment))
    for number, ids in enumerate(assignment):
        body += struct.pack(f">ii{len(ids)}i", number, len(ids), *ids)
    body += struct.pack(">iib", 0, timeout_s * 1000, 0)
    answer = ask(address, 19, 4, body, timeout_s + 30)
    answer.take("ii")
    answer.text()
    return answer.take("h")


def metadata(address, topic=None):
    """The controller's id, and the leaders of the topic's partitions."""
    body = struct.pack(">i", 1) + text(topic) if topic else struct.pack(">i", 0)
    answer = ask(address, 3, 7, body + b"\0")
    answer.take("i")
    for _ in range(answer.take("i")):
        answer.take("i")
        answer.text()
        answer.take("i")
        answer.text()
    answer.text()
    controller = answer.take("i")
    leaders = {}
    for _ in range(answer.take("i")):
        answer.take("h")
        answer.text()
        answer.take("b")
        for _ in range(answer.take("i")):
            answer.take("h")
            number, leader = answer.take("i"), answer.take("i")
            answer.take("i")
            for _ in range(3):
                answer.ints()
            leaders[number] = leader
    return controller, leaders


# ---- A cluster


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def end_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def cpu_s(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def wait_until(condition, limit_s, what):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {limit_s} s")
        time.sleep(0.01)


class Cluster:
    """Three brokers and one ZooKeeper, in a folder of their own."""

    def __init__(self, name, data, command):
        self.name, self.command = name, command
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cluster-", dir=data))
        self.ports = {number: free_port() for number in IDS}
        self.zookeeper_port = free_port()
        self.children = {}

    def __enter__(self):
        try:
            self.spawn("zookeeper", self.zookeeper_command())
            wait_until(lambda: self.listens(self.zookeeper_port), 60, "ZooKeeper")
            for number in IDS:
                self.start(number)
            for number in IDS:
                self.wait_ready(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in self.children.values():
            child.kill()
            child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def zookeeper_command(self):
        config = self.dir / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={self.dir}/zookeeper\nclientPort={self.zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nminSessionTimeout=1000\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", "-Xmx256m", "-cp", "/usr/share/java/*", main, str(config)]

    @staticmethod
    def listens(port):
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    def spawn(self, what, command):
        with open(self.dir / f"{what}.log", "ab") as output:
            self.children[what] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=end_with_us
            )

    def start(self, number):
        settings = {
            "broker.id": number,
            "listeners": f"PLAINTEXT://{self.address(number)}",
            "log.dirs": f"{self.dir}/logs{number}",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            **SETTINGS,
        }
        (self.dir / f"logs{number}").mkdir(exist_ok=True)
        self.spawn(number, self.command(self, number, settings))

    def wait_ready(self, number):
        if kbench("wait-ready", *options(broker=self.address(number), timeout=90)).get("failed"):
            raise Failed(f"{self.name}: broker {number} does not answer")

    def address(self, number):
        return f"127.0.0.1:{self.ports[number]}"

    def pid(self, number):
        return self.children[number].pid

    def controller(self):
        found = []

        def look():
            for number in IDS:
                with contextlib.suppress(OSError):
                    found[:] = [metadata(self.address(number))[0]]
                    return found[0] in IDS
            return False

        wait_until(look, 60, "a controller")
        return found[0]

    def others(self):
        controller = self.controller()
        return [number for number in IDS if number != controller]

    def cpu(self):
        return sum(cpu_s(self.pid(number)) for number in IDS)

    def settle(self):
        """Until the brokers are at rest; a minute at most, and what comes then is measured all the same."""
        for _ in range(120):
            before = self.cpu()
            time.sleep(0.5)
            if self.cpu() - before < 0.5 * SETTLED_CORES:
                return

    def wait_whole(self, topic, partitions, in_sync=3, ids=IDS, since=None):
        """Waits until all of these brokers know leaders and full in-sync sets; seconds since `since`, or now."""
        since = time.monotonic() if since is None else since
        named = options(
            brokers=",".join(map(self.address, ids)),
            topic=topic,
            partitions=str(partitions),
            isr=str(in_sync),
            timeout="240",
            since=str(int(since * 1e9)),
        )
        run = subprocess.run([compiled("cluster_probe"), "wait", *named], capture_output=True, text=True)
        if run.returncode:
            raise Failed(f"{self.name}: {run.stderr.strip()}")
        return json.loads(run.stdout)["full_ms"] / 1e3

    def create(self, topic, partitions=-1, assignment=()):
        """Seconds until every broker knows of all leaders, and CreateTopics is answered; the latter alone."""
        began = time.monotonic()
        answered = {}

        def create():
            answered["error"] = create_topic(self.address(controller), topic, partitions, assignment=assignment)
            answered["s"] = time.monotonic() - began

        controller = self.controller()
        began = time.monotonic()
        thread = threading.Thread(target=create)
        thread.start()
        whole_s = self.wait_whole(topic, len(assignment) or partitions, since=began)
        thread.join()
        if answered.get("error"):
            raise Failed(f"{self.name} does not create {topic}: error {answered['error']}")
        return whole_s, answered["s"]

    def delete(self, topic):
        kbench("delete", *options(broker=self.address(self.controller()), topic=topic))
        wait_until(lambda: not glob.glob(f"{self.dir}/logs*/{topic}-[0-9]*"), 120, f"deletion of {topic}")
        self.settle()

    def prefer(self, topic):
        """Moves the leaders back to the first replicas."""
        body = struct.pack(">bii", 0, -1, 60000)
        ask(self.address(self.controller()), 43, 1, body, 90)

        def even():
            leaders = list(metadata(self.address(self.controller()), topic)[1].values())
            return all(abs(leaders.count(number) * len(IDS) - len(leaders)) <= 3 * len(IDS) for number in IDS)

        wait_until(even, 60, "leaders where they were assigned")
        self.settle()


def barnabas_command(binary):
    def command(_cluster, _number, settings):
        return [binary, "broker", *(word for key, value in settings.items() for word in ("--override", f"{key}={value}"))]

    return command


def kafka_command(cluster, number, settings):
    config, log4j = cluster.dir / f"server{number}.properties", cluster.dir / "log4j.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log4j.write_text(
        "log4j.rootLogger=WARN, stdout\nlog4j.appender.stdout=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.stdout.layout=org.apache.log4j.SimpleLayout\n"
    )
    return ["java", *JVM, f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{LIBS}/*", "kafka.Kafka", str(config)]


# ---- Failovers


class Probe:
    """Small writes to a sample of a topic's partitions, half of them acks=all."""

    def __init__(self, cluster, topic, partitions):
        named = options(
            brokers=",".join(map(cluster.address, IDS)),
            topic=topic,
            partitions=str(partitions),
            sample="120",
            interval_ms=str(TURN_MS),
            acks="-1,1",
        )
        self.quiet = 0  # reports, one after the other, of which none told of a stall
        self.result = None
        self.child = subprocess.Popen(
            [compiled("cluster_probe"), "probe", *named], stdout=subprocess.PIPE, text=True, preexec_fn=end_with_us
        )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            if line.startswith("S"):
                self.quiet = 0 if int(line.split()[2]) else self.quiet + 1
            elif line.startswith("R"):
                self.result = json.loads(line[2:])

    def begin(self):
        wait_until(lambda: self.quiet >= 5, 60, "steady writes")
        self.child.send_signal(signal.SIGUSR1)
        time.sleep(TURN_MS / 1e3)

    def end(self):
        self.child.terminate()
        self.reader.join()
        self.child.wait()
        return [dict(zip(self.result["columns"], row)) for row in self.result["rows"]]


def stall_s(rows):
    """How much longer than a turn it took to write again: the pause between two turns is the prober's own."""
    if any(not row["gap_to_ns"] for row in rows):
        raise Failed("partitions that were never written again")
    return max([0.0, *(row["gap_ms"] - TURN_MS for row in rows)]) / 1e3


def create_after(cluster, victim, began, seen):
    """Creates a topic as soon as some broker that is left can have it done."""
    name = f"after-{time.time_ns()}"
    while time.monotonic() < began + 120:
        for number in IDS:
            if number == victim:
                continue
            with contextlib.suppress(OSError):
                if create_topic(cluster.address(number), name, 1, 2, timeout_s=60) in (0, 36):  # it is there already
                    seen["created_s"] = time.monotonic() - began
                    return
        time.sleep(0.005)


def failover(cluster, topic, partitions, victim, how, creates=False):
    """Ends a broker while clients write: the probe's rows, and seconds until a topic was created if that is asked for."""
    probe, seen = Probe(cluster, topic, partitions), {}
    try:
        probe.begin()
        began = time.monotonic()
        cluster.children[victim].send_signal(how)
        if creates:
            create_after(cluster, victim, began, seen)
        cluster.children[victim].wait(120)
        time.sleep(SESSION_MS / 1e3 + 1)  # what happens when the session ends belongs to it
        probe.quiet = 0
        wait_until(lambda: probe.quiet >= 5, 240, "all partitions written again")
    finally:
        rows = probe.end()
    return rows, seen.get("created_s")


def rejoin(cluster, topic, partitions, victim):
    """Seconds from the start of the process until it is back in all in-sync sets."""
    began = time.monotonic()
    cluster.start(victim)
    back_s = cluster.wait_whole(topic, partitions, ids=[number for number in IDS if number != victim], since=began)
    cluster.settle()
    return back_s


def kill_broker(cluster, partitions):
    topic, victim = f"t{partitions}", cluster.others()[0]
    rows, _ = failover(cluster, topic, partitions, victim, signal.SIGKILL)
    out = {
        "kill_led_s": stall_s([row for row in rows if row["leader_before"] == victim]),
        "kill_others_s": stall_s([row for row in rows if row["leader_before"] != victim and row["acks"] == -1]),
        "kill_back_s": rejoin(cluster, topic, partitions, victim),
    }
    cluster.prefer(topic)
    return out


def shut_down(cluster, partitions):
    topic, victim = f"t{partitions}", cluster.others()[0]
    rows, _ = failover(cluster, topic, partitions, victim, signal.SIGTERM)
    out = {"shutdown_ms": max(row["write_ms"] for row in rows if row["acks"] == -1)}
    out["shutdown_back_s"] = rejoin(cluster, topic, partitions, victim)
    cluster.prefer(topic)
    return out


def kill_controller(cluster, partitions, size):
    topic, victim = f"t{partitions}", cluster.controller()
    rows, created_s = failover(cluster, topic, partitions, victim, signal.SIGKILL, creates=True)
    if created_s is None:
        raise Failed(f"{cluster.name}: no topic could be created after the controller was killed")
    back_s = rejoin(cluster, topic, partitions, victim)
    return {f"controller_{size}_s": max(stall_s(rows), created_s), f"controller_{size}_back_s": back_s}


def create(cluster, partitions, size):
    cluster.settle()
    before = cluster.cpu()
    ready_s, answered_s = cluster.create(f"t{partitions}", partitions)
    cluster.settle()
    return {
        f"create_{size}_s": ready_s,
        f"create_{size}_answered_s": answered_s,
        f"create_{size}_cpu_s": cluster.cpu() - before,
    }


# ---- Bytes


def rest(number):
    return [number, *(other for other in IDS if other != number)]


def produce(cluster, batch_bytes, seconds, cap_mb, size):
    """Twelve partitions, a third led by each broker, and for each broker a producer with four connections."""
    topics = {number: f"p{batch_bytes}-{number}" for number in IDS}
    for number, topic in topics.items():
        cluster.create(topic, assignment=[rest(number)] * 4)
    cluster.settle()
    kbench("pretouch", *options(gb=str(cap_mb * 4.5 / 1e3 + 0.5)))
    before = cluster.cpu()
    jobs = []
    for number, topic in topics.items():
        named = options(
            broker=cluster.address(number),
            topic=topic,
            partitions="4",
            record_size="1024",
            batch_bytes=str(batch_bytes),
            connections="4",
            inflight="5",
            acks="-1",
            seconds=str(seconds),
            warmup=str(seconds / 2),
            cap_mb=str(cap_mb / 3),
        )
        jobs.append(subprocess.Popen([compiled("kbench"), "produce", *named], stdout=subprocess.PIPE, text=True))
    results = [json.loads(job.communicate()[0]) for job in jobs]
    cluster.settle()
    spent_s = cluster.cpu() - before
    # By all that lies in the leaders' logs: the three windows are not quite the same.
    logs = [name for number, topic in topics.items() for name in glob.glob(f"{cluster.dir}/logs{number}/{topic}-*/*.log")]
    written_gb = sum(map(os.path.getsize, logs)) / 1e9
    for topic in topics.values():
        cluster.delete(topic)
    if any(result["errors"] for result in results):
        raise Failed(f"{cluster.name}: produce had errors")
    return {
        f"{size}_mb_s": sum(result["mb_s"] for result in results),
        f"{size}_cpu": spent_s / written_gb,
        f"{size}_p99_ms": max(result["lat_us"]["p99"] for result in results) / 1e3,
    }


def catch_up(cluster, megabytes):
    """Seconds from the start of a follower until it has what was written meanwhile and is in all in-sync sets."""
    controller = cluster.controller()
    leader, follower = cluster.others()
    cluster.create("catch", assignment=[[leader, controller, follower]] * 12)
    cluster.children[follower].terminate()
    cluster.children[follower].wait(120)
    kbench("pretouch", *options(gb=str(megabytes * 3 / 1e3 + 0.5)))
    named = dict(partitions="12", record_size="1024", batch_bytes=str(1 << 20), connections="2", inflight="3", acks="-1")
    result = kbench(
        "produce",
        *options(broker=cluster.address(leader), topic="catch", seconds="300", warmup="0", cap_mb=str(megabytes), **named),
    )
    if result.get("failed") or result["errors"]:
        raise Failed(f"{cluster.name}: produce to two replicas failed")
    cluster.settle()
    before, began = cluster.cpu() - cpu_s(cluster.pid(follower)), time.monotonic()
    cluster.start(follower)
    seconds = cluster.wait_whole("catch", 12, ids=[leader, controller], since=began)
    spent_s = cluster.cpu() - before
    cluster.delete("catch")
    return {CATCH_UP: seconds, "catch_up_mb_s": megabytes / seconds, "catch_up_cpu": spent_s / megabytes * 1e3}


# ---- A run


def measure(cluster, args):
    """Part by part: (what, its figures)."""
    small, large = args.small, args.large
    yield "produce, 16 KiB", produce(cluster, 16 << 10, args.seconds, args.cap_mb, "small")
    yield "produce, 1 MB", produce(cluster, 1 << 20, args.seconds, args.cap_mb, "big")
    yield "catch-up", catch_up(cluster, args.catch_mb)
    yield f"a topic of {small}", create(cluster, small, "small")
    yield "a killed broker", kill_broker(cluster, small)
    yield "a controlled shutdown", shut_down(cluster, small)
    yield "a killed controller", kill_controller(cluster, small, "small")
    cluster.delete(f"t{small}")
    yield f"a topic of {large}", create(cluster, large, "large")
    yield f"a killed controller with {large}", kill_controller(cluster, large, "large")


def verdict(value, most):
    return "pass" if (value <= most if most > 0 else value >= -most) else "FAIL"


def cell(rows, key):
    values = [row[key] for row in rows if key in row]
    if not values:
        return "not measured"
    spread = f" [{min(values):.3g} - {max(values):.3g}]" if len(values) > 1 else ""
    return f"{statistics.median(values):.3g}{spread}"


def report(results, args, load_before):
    names = list(results)
    lines = [
        f"# A cluster of three brokers, {time.strftime('%Y-%m-%d')}",
        "",
        f"Load average before {load_before:.1f}, after {os.getloadavg()[0]:.1f}; {args.rounds} rounds, medians; topics of"
        f" {args.small} and {args.large} partitions.",
        f"Brokers, ZooKeeper and load share the machine; the session timeout is {SESSION_MS / 1e3:g} s. Partitions are"
        f" written every {TURN_MS} ms during a failover: a stall is the longest time between two acknowledged writes"
        " without that pause.",
        "",
        "| goal | at most | " + " | ".join(names) + " | |",
        "|---|---|" + "---|" * len(names) + "---|",
    ]
    for key, name, unit, most in GOALS:
        limit = f"{most:g} {unit}" if most > 0 else f"at least {-most:g} {unit}"
        ours = [row[key] for row in results[OURS] if key in row]
        passed = verdict(statistics.median(ours), most) if ours else "FAIL"
        lines.append(f"| {name} | {limit} | " + " | ".join(cell(results[n], key) for n in names) + f" | {passed} |")
    lines.append(catch_up_line(results, names, args.catch_mb))
    goal_keys = {key for key, *_ in GOALS} | {CATCH_UP}
    others = dict.fromkeys(key for rows in results.values() for row in rows for key in row if key not in goal_keys)
    lines += ["", "| for information | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    lines += [f"| {key} | " + " | ".join(cell(results[name], key) for name in names) + " |" for key in others]
    return "\n".join([*lines, ""])


def catch_up_line(results, names, megabytes):
    both = [[row[CATCH_UP] for row in results.get(name, []) if CATCH_UP in row] for name in (OURS, THEIRS)]
    passed = "not measured, without Kafka"
    if all(both):
        passed = verdict(statistics.median(both[0]) / statistics.median(both[1]), CATCH_UP_GOAL)
    cells = " | ".join(cell(results[name], CATCH_UP) + " s" for name in names)
    return f"| a stopped follower catches up {megabytes} MB | half of Kafka's time | {cells} | {passed} |"


def run_kind(name, command, args, data):
    rows = []
    for number in range(args.rounds):
        row = {}
        with Cluster(name, data, command) as cluster:
            for what, figures in measure(cluster, args):
                log(name, f"round {number + 1},", what, json.dumps({key: round(v, 3) for key, v in figures.items()}))
                row |= figures
        rows.append(row)
    return rows


def measured(args, data):
    compiled("cluster_probe")
    load_before = os.getloadavg()[0]
    results = {OURS: run_kind(OURS, barnabas_command(args.binary), args, data)}
    if args.peer:
        if not (LIBS / ".complete").exists():
            subprocess.run([ROOT / "tests/interop/fetch.sh", "jars"], check=True)
        results[THEIRS] = run_kind(THEIRS, kafka_command, args, data)
    (BUILD / "cluster.json").write_text(json.dumps(results, indent=1))
    return report(results, args, load_before)


def main():
    parser = alone.arguments(__doc__)
    parser.add_argument("--peer", choices=["kafka39"], help="the same with three brokers of Apache Kafka 3.9.1")
    parser.add_argument("--quick", action="store_true", help="one round with little of everything: does it work?")
    parser.add_argument("--small", type=int, default=1000, help="partitions of the smaller topic")
    parser.add_argument("--large", type=int, default=5000, help="partitions of the larger one")
    parser.add_argument("--seconds", type=float, default=8, help="the window of a produce row")
    parser.add_argument("--cap-mb", type=int, default=1000, help="what a produce row writes at most, warm-up apart")
    parser.add_argument("--catch-mb", type=int, default=2000, help="what the stopped follower misses")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.small, args.large, args.seconds, args.cap_mb, args.catch_mb = 1, 30, 60, 2, 60, 60
    return alone.run("cluster", args, measured)


if __name__ == "__main__":
    sys.exit(main())
