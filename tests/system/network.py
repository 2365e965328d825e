"""Network namespaces for brokers, ZooKeeper servers and clients, and the wire between them (wire.c).

with Network(directory, ["hub", "b1", "b2"]) as network:
    network.address("b1")                     # 10.99.0.2
    network.command("b1") + ["barnabas", ...] # a process inside
    with network.inside("hub"): ...           # this thread's sockets are made there, also by libraries and new threads
    network.cut("b1", "b2"); network.cut("b1", "b2", ways=1); network.delay("b1", "b2", 0.02); network.heal()
    network.refuse("b1", 9092)                # connections to that port are reset, as by a packet filter
"""

import contextlib
import ctypes
import itertools
import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).parent
CLONE_NEWNET = 0x40000000
MTU = 65000  # packets as large as the wire takes: it is a test of faults, not of small packets
_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


def missing():
    """Why there can be no namespaces here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip") or not shutil.which("nft"):
        return "ip or nft is not installed"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    return None


def _run(*command):
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)


class Network:
    def __init__(self, directory, names):
        self.names = list(names)
        prefix = f"barnabas-{os.getpid()}-{next(_numbers)}"
        self.namespaces = {name: f"{prefix}-{name}" for name in self.names}
        self._wire = None
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        program = directory / "wire"
        subprocess.run(["cc", "-std=c17", "-O2", "-Wall", "-Werror", HERE / "wire.c", "-o", program], check=True)
        try:
            self._make(program)
        except BaseException:
            self.close()
            raise

    def _make(self, program):
        for namespace in self.namespaces.values():
            _run("ip", "netns", "add", namespace)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
        self._wire = subprocess.Popen(
            [str(program), *self.namespaces.values()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._wire.stdout.readline() == "ok\n", "the wire does not start"
        for name, namespace in self.namespaces.items():
            _run("ip", "-n", namespace, "address", "add", f"{self.address(name)}/24", "dev", "wire")
            _run("ip", "-n", namespace, "link", "set", "wire", "up", "mtu", MTU)

    def close(self):
        if self._wire is not None:
            self._wire.stdin.close()
            self._wire.wait()
            self._wire.stdout.close()
        for namespace in self.namespaces.values():
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def number(self, name):
        return self.names.index(name) + 1

    def address(self, name):
        return f"10.99.0.{self.number(name)}"

    def command(self, name):
        """What a command line must begin with to run inside."""
        return ["ip", "netns", "exec", self.namespaces[name]]

    @contextlib.contextmanager
    def inside(self, name):
        with open("/proc/thread-self/ns/net") as before, open(f"/var/run/netns/{self.namespaces[name]}") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    # Faults

    def _set(self, source, target, delay_seconds=0.0, bytes_per_second=0, cut=False):
        line = f"{self.number(source)} {self.number(target)} {int(delay_seconds * 1e6)} {bytes_per_second} {int(cut)}"
        self._wire.stdin.write(f"set {line}\n")
        self._wire.stdin.flush()
        answer = self._wire.stdout.readline()
        assert answer == "ok\n", answer

    def _each_way(self, one, other, ways, **state):
        for a in [one] if isinstance(one, str) else one:
            for b in [other] if isinstance(other, str) else other:
                self._set(a, b, **state)
                if ways == 2:
                    self._set(b, a, **state)

    def cut(self, one, other, ways=2):
        """Nothing comes through, and nobody is told; `ways` 1: only what `one` sends is lost.  Names or lists of them."""
        self._each_way(one, other, ways, cut=True)

    def mend(self, one, other):
        self._each_way(one, other, 2)

    def delay(self, one, other, seconds, ways=2):
        self._each_way(one, other, ways, delay_seconds=seconds)

    def throttle(self, one, other, bytes_per_second, ways=2):
        self._each_way(one, other, ways, bytes_per_second=bytes_per_second)

    def slow(self, one, other, seconds, bytes_per_second):
        self._each_way(one, other, 2, delay_seconds=seconds, bytes_per_second=bytes_per_second)

    def isolate(self, name):
        self.cut(name, [other for other in self.names if other != name])

    def heal(self):
        """Every way is as at the start, and no port refuses."""
        for one, other in itertools.permutations(self.names, 2):
            self._set(one, other)
        for name in self.names:
            self.accept(name)

    def refuse(self, name, port, source=None):
        """Connections to the port are reset, also those that are there; `source`: only that node's."""
        namespace = self.namespaces[name]
        origin = ["ip", "saddr", self.address(source)] if source else []
        _run("ip", "netns", "exec", namespace, "nft", "add", "table", "inet", "faults")
        _run("ip", "netns", "exec", namespace, "nft", "add chain inet faults input { type filter hook input priority 0; }")
        rule = ["add", "rule", "inet", "faults", "input", *origin, "tcp", "dport", port, "reject", "with", "tcp", "reset"]
        _run("ip", "netns", "exec", namespace, "nft", *rule)

    def accept(self, name):
        """Ends refuse()."""
        subprocess.run(
            [*self.command(name), "nft", "delete", "table", "inet", "faults"], capture_output=True
        )  # fails where there is none


def _enter(descriptor):
    if _libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
