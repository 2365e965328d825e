"""Brokers as processes: ours and, to prove the tests right, Apache Kafka. All listen on 127.0.0.1 only.

broker = start_broker("barnabas", directory, {"num.partitions": "3"})
broker.kill(); broker.start(); broker.stop(); broker.check()
"""

import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import rawkafka
from messages import REPOSITORY

READY_SECONDS = 90  # a JVM on two busy cores; ours is up long before
STOP_SECONDS = 60
_BAD_SIGNS = re.compile(
    r"ERROR: AddressSanitizer|runtime error:|LeakSanitizer|ThreadSanitizer|UndefinedBehaviorSanitizer|broken invariant"
)
# Ends what it starts when the tests themselves are killed: nobody else would, and a port or gigabytes would stay taken.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
_tick = threading.Event()  # never set: a wait() on it is a pause between two looks at a condition


def wait_until(condition, seconds, what):
    """Looks at `condition` until it gives something true, which is returned; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        _tick.wait(0.02)


_given_ports = set()  # a broker that is stopped keeps its port


def free_port():
    """A port nobody listens on, below the range that outgoing connections are given theirs from; each only once."""
    while True:
        port = random.randrange(15000, 32000)
        if port in _given_ports:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port


class Broker:
    """A broker process with its data directory and port, which stay the same over restarts."""

    kind = "barnabas"

    def __init__(self, directory, config=None, port=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.address = ("127.0.0.1", self.port)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.config = {str(key): str(value) for key, value in (config or {}).items()}
        self.log_dir = self.directory / "data"
        self.stderr_path = self.directory / "stderr"
        self.process = None
        self._scanned = 0

    # What differs between kinds

    def properties(self):
        base = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "log.dirs": str(self.log_dir)}
        return base | self.config

    @staticmethod
    def binary():
        return os.path.abspath(os.environ.get("BARNABAS_BINARY", REPOSITORY / "build/debug/barnabas"))

    def command(self):
        line = [self.binary(), "broker"]
        for key, value in self.properties().items():
            line += ["--override", f"{key}={value}"]
        return line

    def clean_exit_statuses(self):
        return (0,)

    def prepare(self):
        """Whatever must be there before the process starts."""

    # Life

    def spawn(self):
        """Starts the process without waiting for it to serve."""
        assert self.process is None or self.process.poll() is not None, "already running"
        with self.stderr_path.open("ab") as stderr:
            self.process = subprocess.Popen(
                ENDS_WITH_US + self.command(),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                cwd=self.directory,
                start_new_session=True,
            )

    def start(self):
        self.prepare()
        self.spawn()
        wait_until(self._serves, READY_SECONDS, f"{self.kind} answers; its output:\n{self.output()[-4000:]}")
        return self

    def _serves(self):
        assert self.process.poll() is None, f"exit status {self.process.returncode} at start:\n{self.output()[-4000:]}"
        try:
            with rawkafka.Connection(self.address, timeout=10) as c:
                c.announced()
                told = c.metadata()
                return told.ControllerId >= 0 and len(told.Brokers) == 1
        except (OSError, rawkafka.Closed):
            return False

    def stop(self):
        """SIGTERM; the exit status must be that of a clean stop."""
        self.process.send_signal(signal.SIGTERM)
        status = self.wait()
        assert status in self.clean_exit_statuses(), f"exit status {status}:\n{self.output()[-4000:]}"
        self.check()

    def kill(self):
        self.process.kill()
        self.wait()
        self.check()

    def wait(self, seconds=STOP_SECONDS):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running {seconds} s later:\n{self.output()[-4000:]}") from None

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def close(self):
        """Ends the process whatever its state; for clean-up after a failed test."""
        if self.alive():
            self.process.kill()
            self.process.wait()

    # What can be seen of it

    def output(self):
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    def check(self):
        """No sanitizer report and no broken invariant on stderr."""
        text = self.output()
        found = _BAD_SIGNS.search(text)
        assert not found, text[max(0, found.start() - 500) : found.start() + 6000]

    def _status_bytes(self, what):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{what}:\s+(\d+) kB", status).group(1)) * 1024

    def rss_bytes(self):
        return self._status_bytes("VmRSS")

    def peak_rss_bytes(self):
        """Since the start, or since it was forgotten."""
        return self._status_bytes("VmHWM")

    def forget_peak_rss(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def connect(self, **more):
        return rawkafka.Connection(self.address, **more)

    def is_barnabas(self):
        return self.kind == "barnabas"


JVM = ["java", "-Xms256M", "-Xmx640M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]


def write_properties(path, properties):
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def jars(version):
    """The class path of a release of Apache Kafka."""
    libs = REPOSITORY / f"build/kafka-{version}/libs"
    assert (libs / ".complete").exists(), f"no jars in {libs}: run tests/interop/fetch.sh jars"
    return f"{libs}/*"


def prepare_kafka39(directory, properties):
    """The files that Kafka 3.9 starts with."""
    (directory / "log4j.properties").write_text(
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
    )
    write_properties(directory / "server.properties", properties)


class _ApacheKafka(Broker):
    version = ""
    common = {
        "num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.segment.delete.delay.ms": "1000",
    }

    @property
    def classpath(self):
        return jars(self.version)

    def clean_exit_statuses(self):
        return (0, 128 + signal.SIGTERM)

    def check(self):
        pass

    def command(self):
        return [*JVM, *self.logging(), "-cp", self.classpath, "kafka.Kafka", str(self.directory / "server.properties")]


class Kafka43(_ApacheKafka):
    """Apache Kafka 4.3.1, KRaft, broker and controller in one process."""

    kind, version = "kafka43", "4.3.1"

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.controller_port = free_port()

    def properties(self):
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        return {
            **self.common,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": listeners,
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "log.dirs": str(self.log_dir),
            **self.config,
        }

    def logging(self):
        return [f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties"]

    def prepare(self):
        (self.directory / "log4j2.properties").write_text(
            "appender.out.type=Console\nappender.out.name=OUT\nappender.out.layout.type=PatternLayout\n"
            "appender.out.layout.pattern=[%d] %p %m (%c)%n\nrootLogger.level=warn\nrootLogger.appenderRef.out.ref=OUT\n"
        )
        write_properties(self.directory / "server.properties", self.properties())
        if not (self.log_dir / "meta.properties").exists():
            shutil.copytree(self._formatted(), self.log_dir, dirs_exist_ok=True)

    def _formatted(self):
        """A freshly formatted directory to copy: formatting takes a JVM start, so it is done once for all brokers."""
        template = REPOSITORY / "build/kafka-4.3.1/formatted"
        if not (template / "meta.properties").exists():
            properties = self.directory / "format.properties"
            write_properties(properties, self.properties() | {"log.dirs": str(template)})
            subprocess.run(
                [*JVM, *self.logging(), "-cp", self.classpath, "kafka.tools.StorageTool", "format"]
                + ["-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        return template


class Kafka39(_ApacheKafka):
    """Apache Kafka 3.9.1 with a ZooKeeper of its own."""

    kind, version = "kafka39", "3.9.1"

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.zookeeper_port = free_port()
        self.zookeeper = None

    def properties(self):
        return {
            **self.common,
            "broker.id": "0",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            "zookeeper.connection.timeout.ms": "18000",
            "zookeeper.session.timeout.ms": "3000",
            "log.dirs": str(self.log_dir),
            **self.config,
        }

    def logging(self):
        return [f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"]

    def prepare(self):
        prepare_kafka39(self.directory, self.properties())
        if self.zookeeper is None:
            self._start_zookeeper()

    def start(self):
        """After a kill Kafka cannot register before ZooKeeper has given up the old session, and exits: again then."""

        def started():
            try:
                return super(Kafka39, self).start()
            except AssertionError:
                if "NodeExists" not in self.output() or self.alive():
                    raise
                return None

        return wait_until(started, READY_SECONDS, "the old session ends")

    def _start_zookeeper(self):
        write_properties(
            self.directory / "zoo.cfg",
            {
                "tickTime": 1000,
                "dataDir": self.directory / "zookeeper",
                "clientPort": self.zookeeper_port,
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
            },
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.directory / "zookeeper.out").open("ab") as out:
            self.zookeeper = subprocess.Popen(
                [*ENDS_WITH_US, *JVM, *self.logging(), "-cp", self.classpath, main, str(self.directory / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        wait_until(self._zookeeper_listens, READY_SECONDS, "ZooKeeper listens")

    def _zookeeper_listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.zookeeper_port), 5).close()
            return True
        except OSError:
            return False

    def close(self):
        super().close()
        if self.zookeeper is not None:
            self.zookeeper.kill()
            self.zookeeper.wait()


KINDS = {broker.kind: broker for broker in (Broker, Kafka43, Kafka39)}


def new_broker(kind, directory, config=None, port=None):
    return KINDS[kind](directory, config, port)
