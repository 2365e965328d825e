"""Clusters of brokers with ZooKeeper, ours and Apache Kafka 3.9.1 in any mixture, on loopback or in network namespaces.

cluster = Cluster(directory, brokers=3, zookeepers=1).start()
cluster[1].kill(); cluster[1].start(); cluster.controller(); cluster.wait_whole()
cluster[2].stop(); cluster[2].become("kafka39"); cluster[2].start()      # the same id, port and data directory

with Cluster(directory, brokers=3, zookeepers=3, network=True) as cluster:
    cluster.network.cut("b1", "b2")

With a network, brokers are in namespaces b1, b2, ..., ZooKeeper's servers in z1, ..., and clients in `hub`: threads and
sockets of clients are made within `with cluster.clients():`, which is harmless without a network.
"""

import contextlib
import json
import pathlib
import shutil
import signal

import kazoo.exceptions

from brokers import JVM, READY_SECONDS, Broker, free_port, jars, prepare_kafka39, wait_until
from network import Network
from rawkafka import Closed
from zookeeper import Ensemble

# Kafka's defaults but for what makes a test quick: the session may not outlive the patience of a test.
COMMON = {
    "zookeeper.session.timeout.ms": "4000",
    "zookeeper.connection.timeout.ms": "18000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
    "auto.leader.rebalance.enable": "false",
}
CLIENT_PORT = 9092  # in namespaces, where nobody else listens


class ClusterBroker(Broker):
    """One broker of a cluster, of either kind; id, port and data directory stay the same when it becomes another."""

    def __init__(self, cluster, number, host, port, kind):
        super().__init__(cluster.directory / f"broker{number}", port=port)
        self.cluster, self.number, self.host, self.kind = cluster, number, host, kind
        self.address = (host, port)
        self.bootstrap = f"{host}:{port}"
        self.paused = False
        self.extra = {}  # configuration of this one

    def become(self, kind):
        assert not self.alive()
        self.kind = kind
        return self

    def properties(self):
        own = {
            "broker.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "zookeeper.connect": self.cluster.zookeepers.connect + self.cluster.chroot,
            "log.dirs": str(self.log_dir),
        }
        kafka = {"log.cleaner.dedupe.buffer.size": "16777216"} if self.kind == "kafka39" else {}
        return COMMON | kafka | own | self.cluster.config | self.extra

    def command(self):
        if self.kind == "barnabas":
            line = super().command()
        else:
            logging = f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"
            line = [*JVM, logging, "-cp", jars("3.9.1"), "kafka.Kafka", str(self.directory / "server.properties")]
        return [*self.cluster.prefix(f"b{self.number}"), *line]

    def prepare(self):
        if self.kind == "kafka39":
            prepare_kafka39(self.directory, self.properties())

    def _serves(self):
        assert self.process.poll() is None, f"exit status {self.process.returncode} at start:\n{self.output()[-4000:]}"
        try:
            with self.connect(timeout=10) as c:
                c.announced()
                told = c.metadata()  # before a controller speaks to it, it knows of itself alone
                return told.ControllerId >= 0 and any(b.NodeId == self.number for b in told.Brokers)
        except (OSError, Closed):
            return False

    def start(self):
        """Until it serves and a controller has told it of itself.  Kafka that was killed is tried again until ZooKeeper
        has given up its old session."""
        if self.kind == "kafka39":
            return wait_until(self._start_kafka, READY_SECONDS, f"broker {self.number} starts")
        return super().start()

    def _start_kafka(self):
        try:
            return super().start()
        except AssertionError:
            if self.alive() or "NodeExists" not in self.output():
                raise
            return None

    def connect(self, **more):
        with self.cluster.clients():
            return super().connect(**more)

    def clean_exit_statuses(self):
        return (0,) if self.kind == "barnabas" else (0, 128 + signal.SIGTERM)

    def check(self):
        if self.kind == "barnabas":
            super().check()

    def pause(self):
        """SIGSTOP, with everything below it (`ip netns exec` becomes the broker)."""
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self):
        if self.paused and self.alive():
            self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self):
        self.resume()
        super().kill()

    def forget_data(self):
        """As after the loss of its disk."""
        assert not self.alive()
        shutil.rmtree(self.log_dir)


class Cluster:
    def __init__(self, directory, brokers=3, zookeepers=1, config=None, network=False, kinds=None, chroot=""):
        self.directory = pathlib.Path(directory)
        self.config = {str(key): str(value) for key, value in (config or {}).items()}
        self.chroot = chroot
        self.network = None
        broker_names = [f"b{i}" for i in range(1, brokers + 1)]
        zookeeper_names = [f"z{i}" for i in range(1, zookeepers + 1)]
        if network:
            self.network = Network(self.directory / "network", ["hub", *broker_names, *zookeeper_names])
        self.zookeepers = Ensemble(
            self.directory,
            hosts=[self._host(name) for name in zookeeper_names],
            prefix=lambda member: self.prefix(f"z{member.number}"),
        )
        kinds = kinds or ["barnabas"] * brokers
        self.brokers = {}
        for number, (name, kind) in enumerate(zip(broker_names, kinds), 1):
            port = CLIENT_PORT if network else free_port()
            self.brokers[number] = ClusterBroker(self, number, self._host(name), port, kind)

    def _host(self, name):
        return self.network.address(name) if self.network else "127.0.0.1"

    def prefix(self, name):
        return self.network.command(name) if self.network else []

    def clients(self):
        """Where sockets and threads of clients are made."""
        return self.network.inside("hub") if self.network else contextlib.nullcontext()

    # Life

    def start(self):
        with self.clients():
            self.zookeepers.start()
        for broker in self.brokers.values():
            broker.prepare()
            broker.spawn()
        for broker in self.brokers.values():
            wait_until(broker._serves, READY_SECONDS, f"broker {broker.number} serves:\n{broker.output()[-4000:]}")
        return self

    def close(self):
        for broker in self.brokers.values():
            broker.close()
        self.zookeepers.close()
        if self.network:
            self.network.close()
        for broker in self.brokers.values():
            broker.check()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __getitem__(self, number):
        return self.brokers[number]

    def __iter__(self):
        return iter(self.brokers.values())

    def live(self):
        return [b for b in self if b.alive() and not b.paused]

    @property
    def bootstrap(self):
        return ",".join(b.bootstrap for b in self)

    # What ZooKeeper says

    def znode(self, path):
        """The JSON of a node; None when it is not there."""
        with self.clients(), self.zookeepers.client(self.chroot) as zk:
            try:
                return json.loads(zk.get(path)[0])
            except kazoo.exceptions.NoNodeError:
                return None

    def controller(self, seconds=READY_SECONDS):
        """The broker that is the controller, as soon as there is one."""
        node = wait_until(lambda: self.znode("/controller"), seconds, "there is a controller")
        return self.brokers[node["brokerid"]]

    def states(self):
        """(topic, partition) -> (leader, replicas, in-sync set), of all topics."""
        found = {}
        with self.clients(), self.zookeepers.client(self.chroot) as zk:
            for topic in zk.get_children("/brokers/topics"):
                try:
                    assignment = json.loads(zk.get(f"/brokers/topics/{topic}")[0])["partitions"]
                    for partition, replicas in assignment.items():
                        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
                        state = json.loads(zk.get(path)[0])
                        found[topic, int(partition)] = (state["leader"], replicas, state["isr"])
                except kazoo.exceptions.NoNodeError:
                    continue  # is being made or deleted
        return found

    def wait_whole(self, seconds=30):
        """Every partition has a leader and all its replicas in sync, and every broker's Metadata says so."""

        def whole():
            states = self.states()
            broken = [key for key, (leader, replicas, isr) in states.items() if leader < 0 or set(isr) != set(replicas)]
            self._broken = broken or [f"metadata of {b.number}" for b in self if not self._knows(b, states)]
            return not self._broken

        self._broken = []
        try:
            wait_until(whole, seconds, "the cluster is whole")
        except AssertionError as error:
            raise AssertionError(f"{error}; not yet: {self._broken[:10]} of {len(self._broken)}") from None

    @staticmethod
    def _knows(broker, states):
        leaders = {key: state[0] for key, state in states.items()}
        try:
            with broker.connect(timeout=10) as c:
                topics = c.metadata(*sorted({topic for topic, _ in states})).Topics
            return leaders == {(t.Name, p.PartitionIndex): p.LeaderId for t in topics for p in t.Partitions}
        except (OSError, Closed):
            return False
