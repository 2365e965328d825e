"""Everything that can happen to a cluster, at random: for soak.py and a short form of it in the test run.

chaos = Chaos(cluster, load, seed); chaos.run(seconds=180); chaos.end()     # the cluster is whole again, or it fails
"""

import random
import time

from brokers import wait_until

WHOLE_SECONDS = 30
BALLAST = "ballast"


class Chaos:
    """One fault at a time, some of them for long enough that sessions end, with the load going on between them.  What
    has been done is in `history`, a line each, which a failure shows."""

    def __init__(self, cluster, load, seed, say=lambda line: None, gentle=False):
        """`gentle`: no broker is ended, and its memory can be watched."""
        self.cluster, self.load, self.dice, self.say = cluster, load, random.Random(seed), say
        self.history = [f"seed {seed}"]
        self.faults = [self.pause_broker, self.pause_controller, self.kill_zookeeper_leader]
        if not gentle:
            self.faults += [self.kill_broker, self.kill_controller, self.kill_two_brokers, self.restart_broker]
        if all(b.kind == "barnabas" for b in cluster):  # Kafka ends when its only directory fails
            self.faults.append(self.fill_disk)
        if cluster.network:
            self.faults += [self.cut_brokers, self.cut_zookeeper, self.slow_link, self.refuse_port]

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fault = self.dice.choice(self.faults)
            try:
                fault()
                self.load.wait_progress(50, 90)
                self._check_brokers()
            except BaseException:
                print("\n".join(self.history))
                raise

    def end(self):
        """No fault any more: whole within 30 s, whatever came before."""
        self._note("end of all faults")
        self._heal()
        try:
            self.cluster.wait_whole(WHOLE_SECONDS)
            self._check_brokers()
        except BaseException:
            print("\n".join(self.history))
            raise

    def _check_brokers(self):
        """Nobody has ended by itself, nor said what a broker must never say."""
        for broker in self.cluster:
            broker.check()
            assert broker.alive(), f"broker {broker.number} has ended: {broker.process.returncode}"

    def _note(self, text):
        memory = "/".join(str(b.rss_bytes() >> 20) if b.alive() else "-" for b in self.cluster)
        line = f"{time.strftime('%H:%M:%S')} {text} ({self.load.acknowledged()} records, {memory} MB)"
        self.history.append(line)
        self.say(line)

    def _heal(self):
        if self.cluster.network:
            self.cluster.network.heal()
        for broker in self.cluster:
            broker.resume()
            (broker.log_dir / BALLAST).unlink(missing_ok=True)
            if not broker.alive():
                broker.start()
        with self.cluster.clients():
            self.cluster.zookeepers.start()

    def _broker(self):
        return self.dice.choice(list(self.cluster))

    def _some_progress(self):
        """With one broker away the others take over; acks=all needs two in sync, which they are soon."""
        self.load.wait_progress(self.dice.choice([1, 50, 200]), 90)

    # Faults

    def kill_broker(self, broker=None, name="broker"):
        broker = broker or self._broker()
        self._note(f"kill -9 of {name} {broker.number}")
        broker.kill()
        if self.dice.random() < 0.7:
            self._some_progress()
        broker.start()

    def kill_controller(self):
        self.kill_broker(self.cluster.controller(), "the controller")

    def kill_two_brokers(self):
        """Writes wait for the second one in sync; what is acknowledged stays."""
        one, other = self.dice.sample(list(self.cluster), 2)
        self._note(f"kill -9 of brokers {one.number} and {other.number}")
        one.kill()
        other.kill()
        for broker in self.dice.sample([one, other], 2):
            broker.start()

    def pause_broker(self, broker=None, name="broker"):
        broker = broker or self._broker()
        long = self.dice.random() < 0.6
        self._note(f"SIGSTOP of {name} {broker.number}{' past its session' if long else ''}")
        broker.pause()
        if long:
            wait_until(lambda: str(broker.number) not in self._registered(), 60, "its session ends")
        self._some_progress()
        broker.resume()

    def pause_controller(self):
        self.pause_broker(self.cluster.controller(), "the controller")

    def restart_broker(self):
        broker = self._broker()
        self._note(f"clean restart of broker {broker.number}")
        broker.stop()
        self._some_progress()
        broker.start()

    def kill_zookeeper_leader(self):
        with self.cluster.clients():
            leader = self.cluster.zookeepers.leader()
            self._note(f"kill -9 of ZooKeeper's leader {leader.number}")
            leader.kill()
        self._some_progress()
        with self.cluster.clients():
            self.cluster.zookeepers.start()

    def fill_disk(self):
        """Its file system has no byte left for a while; only where each broker has a small one of its own."""
        broker = self._broker()
        if not broker.log_dir.is_mount():
            return
        self._note(f"the disk of broker {broker.number} is full")
        said, goal = len(broker.output()), self.load.acknowledged() + 200
        with open(broker.log_dir / BALLAST, "wb", buffering=0) as ballast:  # nothing is left for the close to write
            try:
                while True:
                    ballast.write(b"\0" * 65536)
            except OSError:
                pass

        def felt():
            """Who leads all of the load and is full refuses all its writes, which then wait for room."""
            full = "log_dir_full" in broker.output()[said:]
            return self.load.acknowledged() >= goal or full and self._leads_all(broker)

        wait_until(felt, 90, "others are written to")
        (broker.log_dir / BALLAST).unlink()

    def _leads_all(self, broker):
        states = self.cluster.states().items()
        return all(leader == broker.number for (topic, _), (leader, _, _) in states if topic == self.load.topic)

    def cut_brokers(self):
        one, other = self.dice.sample([f"b{b.number}" for b in self.cluster], 2)
        ways = self.dice.choice([1, 2])
        self._note(f"cut {one} {'->' if ways == 1 else '<->'} {other}")
        self.cluster.network.cut(one, other, ways)
        self._some_progress()
        self.cluster.network.mend(one, other)

    def cut_zookeeper(self):
        """From one server it goes to another; from all its session ends."""
        broker = f"b{self._broker().number}"
        servers = [f"z{m.number}" for m in self.cluster.zookeepers.members]
        some = self.dice.choice([servers, servers[:1]])
        ways = self.dice.choice([1, 2])
        self._note(f"cut {broker} {'->' if ways == 1 else '<->'} {' '.join(some)}")
        self.cluster.network.cut(broker, some, ways)
        self._some_progress()
        self.cluster.network.mend(broker, some)

    def slow_link(self):
        one, other = self.dice.sample([f"b{b.number}" for b in self.cluster], 2)
        self._note(f"{one} <-> {other} has 30 ms and 1 MB/s")
        self.cluster.network.slow(one, other, 0.03, 1_000_000)
        self._some_progress()
        self.cluster.network.mend(one, other)

    def refuse_port(self):
        """A live broker whose port refuses connections from one other, the controller perhaps."""
        broker, other = self.dice.sample(list(self.cluster), 2)
        self._note(f"the port of broker {broker.number} refuses broker {other.number}")
        self.cluster.network.refuse(f"b{broker.number}", broker.port, f"b{other.number}")
        self._some_progress()
        self.cluster.network.accept(f"b{broker.number}")

    def _registered(self):
        with self.cluster.clients(), self.cluster.zookeepers.client(self.cluster.chroot) as zk:
            return zk.get_children("/brokers/ids")
