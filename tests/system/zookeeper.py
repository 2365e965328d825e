"""ZooKeeper ensembles as processes (Debian's package `zookeeper`), of one server or of several.

ensemble = Ensemble(directory, members=3).start()
ensemble.connect                        # HOST:PORT,HOST:PORT,... for zookeeper.connect
ensemble.leader().kill(); ensemble[0].pause(); ensemble[0].resume(); ensemble.start()
ensemble.expire(session_id)             # ends somebody's session, as if it had not been heard of for too long
with ensemble.client() as zk: ...       # a kazoo client
ensemble.close()

A tick is 0.5 s, so that sessions may last from 1 s to 10 s.  Each member is a JVM of some 100 MB.
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess

import kazoo.client

from brokers import ENDS_WITH_US, READY_SECONDS, free_port, wait_until

CLASSES = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"  # the first names what else it needs
_JVM = ["java", "-Xms64M", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
_JVM += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]


class Member:
    """One server with its data directory and ports, which stay the same over restarts."""

    def __init__(self, ensemble, number, host):
        self.ensemble = ensemble
        self.number = number  # its "myid", from 1
        self.host = host
        self.port, self.quorum_port, self.election_port = free_port(), free_port(), free_port()
        self.address = f"{host}:{self.port}"
        self.directory = ensemble.directory / f"zookeeper{number}"
        self.out_path = self.directory / "out"
        self.process = None
        self.paused = False

    def _write_config(self):
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        config = {
            "tickTime": 500,
            "initLimit": 20,
            "syncLimit": 6,
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "forceSync": "no",  # what is killed is a process, not a machine
            **self.ensemble.config,
        }
        if len(self.ensemble.members) > 1:
            for m in self.ensemble.members:
                config[f"server.{m.number}"] = f"{m.host}:{m.quorum_port}:{m.election_port}"
        (self.directory / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in config.items()))

    def spawn(self):
        """Starts the process without waiting for it to serve; nothing when it runs."""
        if self.alive():
            return
        self._write_config()
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*_JVM, "-cp", CLASSES, main, str(self.directory / "zoo.cfg")]
        with self.out_path.open("ab") as out:
            self.process = subprocess.Popen(
                [*ENDS_WITH_US, *self.ensemble.prefix(self), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def start(self):
        """Starts it and waits until it serves, for which a majority must run."""
        self.spawn()
        return self.wait_serving()

    def wait_serving(self):
        wait_until(self.mode, READY_SECONDS, f"{self.address} serves; its output:\n{self.output()[-4000:]}")
        return self

    def stop(self):
        """SIGTERM and wait."""
        self._end(signal.SIGTERM)

    def kill(self):
        """kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, signal_number):
        if not self.alive():
            return
        self.resume()
        self.process.send_signal(signal_number)
        self.process.wait(READY_SECONDS)

    def pause(self):
        """SIGSTOP: its connections stay open and nobody answers."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until(self._stands_still, READY_SECONDS, f"{self.address} stands still")
        self.paused = True

    def _stands_still(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)

    def resume(self):
        if self.paused and self.alive():
            self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def output(self):
        return self.out_path.read_text(errors="replace") if self.out_path.exists() else ""

    def ask(self, word):
        """The answer to one of ZooKeeper's four-letter words; "" when nobody answers."""
        try:
            with socket.create_connection((self.host, self.port), 5) as s:
                s.sendall(word.encode())
                answer = b""
                while piece := s.recv(65536):
                    answer += piece
                return answer.decode()
        except OSError:
            return ""

    def mode(self):
        """standalone, leader or follower; None while it does not serve."""
        assert self.process.poll() is None, f"ZooKeeper {self.address} ended:\n{self.output()[-4000:]}"
        found = re.search(r"^Mode: (\w+)", self.ask("srvr"), re.MULTILINE)
        return found and found.group(1)


class Ensemble:
    """`hosts`: an address for each member, all 127.0.0.1 when not given.  `prefix`: gives the words to put before a
    member's command line (`ip netns exec ...`).  `config`: more lines for zoo.cfg; keys that ZooKeeper does not know
    become its system properties zookeeper.KEY."""

    def __init__(self, directory, members=1, config=None, hosts=None, prefix=None):
        for jar in CLASSES.split(":"):
            assert os.path.exists(jar), f"no {jar}: install Debian's package zookeeper"
        self.directory = pathlib.Path(directory)
        self.config = config or {}
        self.prefix = prefix or (lambda member: [])
        self.members = []
        for number, host in enumerate(hosts or ["127.0.0.1"] * members, 1):
            self.members.append(Member(self, number, host))

    @property
    def connect(self):
        return ",".join(m.address for m in self.members)

    def __getitem__(self, index):
        return self.members[index]

    def spawn(self):
        for m in self.members:
            m.spawn()

    def start(self):
        """Starts whoever does not run, and waits until all serve."""
        self.spawn()
        for m in self.members:
            m.wait_serving()
        return self

    def stop(self):
        for m in self.members:
            m.stop()

    def kill(self):
        for m in self.members:
            m.kill()

    def leader(self):
        """The member that leads, as soon as one does."""
        return wait_until(self._leader_now, READY_SECONDS, "the ensemble has a leader")

    def _leader_now(self):
        running = [m for m in self.members if m.alive() and not m.paused]
        return next((m for m in running if m.mode() in ("leader", "standalone")), None)

    def followers(self):
        """Members that follow, as soon as there is a leader."""
        leader = self.leader()
        return [m for m in self.members if m is not leader and m.alive() and not m.paused]

    @contextlib.contextmanager
    def client(self, chroot="", timeout=10.0, **more):
        """A kazoo client, connected."""
        zk = kazoo.client.KazooClient(hosts=self.connect + chroot, timeout=timeout, **more)
        zk.start(timeout=READY_SECONDS)
        try:
            yield zk
        finally:
            zk.stop()
            zk.close()

    def expire(self, session):
        """Ends the session with this id (the ephemeralOwner of its nodes) at once.  For its client that is an expiry."""
        member = next(m for m in self.members if m.alive() and not m.paused)
        wait_until(lambda: _end_session(member, session), READY_SECONDS, f"session {session:#x} ends")

    def expire_owner(self, path):
        """Ends the session that holds an ephemeral node."""
        with self.client() as zk:
            owner = zk.exists(path).ephemeralOwner
        assert owner, f"{path} is not ephemeral"
        self.expire(owner)

    def close(self):
        """Ends what runs, whatever its state."""
        for m in self.members:
            m.kill()


def _end_session(member, session):
    """Takes the session over and closes it in one breath, or its client would be faster to take it back.  True when it
    is over; False: once more."""
    password = session_password(session)
    connect = struct.pack(">iqiqi16sb", 0, 0, 10000, session, len(password), password, 0)
    close = struct.pack(">ii", 1, -11)
    try:
        with socket.create_connection((member.host, member.port), 10) as s:
            s.sendall(b"".join(struct.pack(">i", len(request)) + request for request in (connect, close)))
            answer = b""
            while len(answer) < 41 + 20:
                piece = s.recv(4096)
                if not piece:
                    break
                answer += piece
    except OSError:
        return False
    if len(answer) < 20:
        return False
    (granted,) = struct.unpack(">q", answer[12:20])
    return granted == 0 or len(answer) > 41


def session_password(session):
    """What ZooKeeper gives the client of a session to prove that it is the same: the first 16 bytes of Java's random
    numbers seeded with the id and a constant."""
    seed = ((session ^ 0xB3415C00) ^ 0x5DEECE66D) & (1 << 48) - 1
    password = b""
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        password += (seed >> 16).to_bytes(4, "little")
    return password
