"""The brokers under test: how each is prepared, started, stopped, and asked through kbench.

A broker runs as a child in the foreground, with its own data folder and a port of its own on 127.0.0.1; what it prints
goes to a file beside the data.
"""
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "bench"
READY_S = 300
STOP_S = 60
PORTS = 20000, 30000


class Failed(Exception):
    """A broker or the load tool did not do what the measurement stands on."""


def log(*words):
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)


def compiled(name, *libraries):
    """The path of the program made from NAME.c, compiled when the source is newer."""
    source, program = HERE / f"{name}.c", BUILD / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        flags = ["-std=c17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
        subprocess.run([os.environ.get("CC", "cc"), *flags, source, *libraries, "-o", program], check=True)
    return program


def kbench(command, *args):
    """One run of the load tool: its JSON object, with "failed" where it ended in an error."""
    run = subprocess.run([compiled("kbench"), command, *map(str, args)], capture_output=True, text=True)
    try:
        result = json.loads(run.stdout)
    except ValueError:
        result = {"failed": True}
    if run.returncode:
        result["failed"] = True
        result["stderr"] = run.stderr.strip()[-400:]
        log("   kbench failed:", command, result["stderr"])
    return result


def options(**named):
    """Keyword arguments as kbench's options."""
    return [word for key, value in named.items() for word in ("--" + key.replace("_", "-"), value)]


def free_port_pair():
    """A free port whose neighbour is free too: Kafka's controller takes that one.  Below those that the system gives to
    clients: thousands of connections that have just ended keep theirs for a while."""
    while True:
        port = random.randrange(*PORTS, 2)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class Broker:
    """One broker.  What differs between them: `command`, `prepare`, and how often a start can be repeated."""

    starts = 5  # repeated starts whose median counts
    durable = True  # topics are still there after a stop

    def __init__(self, name, data):
        self.name = name
        self.dir = data / name
        self.left = []  # folders of earlier lives
        self.port = free_port_pair()
        self.address = f"127.0.0.1:{self.port}"
        self.child = None

    @property
    def pid(self):
        return self.child.pid

    def command(self):
        raise NotImplementedError

    def prepare(self):
        """Makes an empty data folder with all that the broker needs to start in it."""
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)

    def start(self):
        """Starts it; returns the milliseconds until it answered Metadata as a live broker with a controller.

        kbench asks every millisecond, and is running when the broker is spawned: its own start is not in the time.
        """
        with open(self.dir.with_suffix(".log"), "ab") as output:
            asking = subprocess.Popen(
                [compiled("kbench"), "wait-ready", *options(broker=self.address, timeout=str(READY_S))],
                stdout=subprocess.DEVNULL,
            )
            time.sleep(0.02)
            began = time.monotonic()
            self.child = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        first = first_to_end(asking.pid, self.child.pid)
        ms = (time.monotonic() - began) * 1e3
        if first == self.child.pid:
            asking.kill()
        if asking.wait() != 0:
            tail = self.dir.with_suffix(".log").read_text(errors="replace")[-2000:]
            raise Failed(f"{self.name} does not start; the end of its output:\n{tail}")
        return ms

    def stop(self):
        """Ends it by SIGTERM; returns the milliseconds that took."""
        if not self.child:
            return 0
        began = time.monotonic()
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            log(f"{self.name} did not stop within {STOP_S} s: killed")
            self.child.kill()
            self.child.wait()
        self.child = None
        return (time.monotonic() - began) * 1e3

    def move_on(self):
        """A new life in a new folder; the old one stays until clean()."""
        self.stop()
        self.left.append(self.dir)
        self.dir = self.left[0].with_name(f"{self.left[0].name}-{len(self.left)}")
        self.prepare()
        self.start()

    def clean(self):
        self.stop()
        for folder in [*self.left, self.dir]:
            shutil.rmtree(folder, ignore_errors=True)
        self.left = []

    def kbench(self, command, **named):
        if self.child.poll() is not None:
            raise Failed(f"{self.name} ended by itself, status {self.child.returncode}")
        return kbench(command, *options(broker=self.address, pid=self.pid, **named))

    def create(self, topic, partitions):
        result = self.kbench("create", topic=topic, partitions=partitions, timeout=120)
        if result.get("failed"):
            raise Failed(f"{self.name} does not create a topic of {partitions} partitions")
        return result

    def delete(self, topic):
        self.kbench("delete", topic=topic)


class Barnabas(Broker):
    def __init__(self, name, data, binary, overrides):
        super().__init__(name, data)
        self.binary = binary
        self.overrides = overrides

    def command(self):
        # The delay: a deleted topic's pages shall be free before the next case, as with the other brokers.
        settings = [
            f"listeners=PLAINTEXT://{self.address}",
            f"log.dirs={self.dir}/logs",
            "log.segment.delete.delay.ms=1000",
            *self.overrides,
        ]
        return [self.binary, "broker", *(word for one in settings for word in ("--override", one))]


class Limit(Broker):
    durable = False

    def command(self):
        return [compiled("limit"), "serve", "--port", str(self.port), "--dir", str(self.dir / "logs")]


class Kafka(Broker):
    starts = 1
    script = HERE / "peers" / "kafka43.sh"

    def prepare(self):
        super().prepare()
        with open(self.dir.with_suffix(".log"), "ab") as output:
            subprocess.run([self.script, "prepare", self.dir, str(self.port)], stdout=output, stderr=output, check=True)

    def command(self):
        return [self.script, "run", str(self.dir), str(self.port)]


def first_to_end(*pids):
    """Waits until one of these children ends; which."""
    files = {os.pidfd_open(pid): pid for pid in pids}
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    ended = files[poll.poll()[0][0]]
    for file in files:
        os.close(file)
    return ended
