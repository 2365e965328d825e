"""Consumer groups that commit while things break: what is committed must never go back.

group = Committer(cluster, "topic", "group"); ...; group.stop()     # stop() fails with what was wrong
group = Bookkeeper(cluster, "topic", "group"); ...; group.stop()    # without librdkafka, which has waits without an end
"""

import threading

import confluent_kafka

import groups
from brokers import wait_until
from rawkafka import Closed


class Committer(threading.Thread):
    """A group of one that reads a topic and commits."""

    def __init__(self, cluster, topic, group):
        super().__init__(daemon=True)
        self.topic = topic
        self.committed = {}
        self.failures = []
        self.finish = threading.Event()
        with cluster.clients():
            self.consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": cluster.bootstrap,
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 20000,
                    "log_level": 0,
                }
            )
            self.consumer.subscribe([topic])
            self.start()

    def run(self):
        while not self.finish.is_set():
            self.consumer.consume(100, 0.2)
            try:
                for done in self.consumer.commit(asynchronous=False):
                    self._note(done)
            except confluent_kafka.KafkaException:
                continue  # nothing to commit, or the coordinator moves
        self.consumer.close()

    def _note(self, done):
        if done.error is not None or done.offset < 0:
            return
        before = self.committed.get(done.partition, 0)
        if done.offset < before:
            self.failures.append(f"partition {done.partition}: {done.offset} after {before}")
        self.committed[done.partition] = done.offset

    def stop(self):
        self.finish.set()
        self.join()
        assert not self.failures, self.failures


class Bookkeeper(threading.Thread):
    """Commits for a group by hand, one partition after the other, ever higher offsets, at whichever broker coordinates.

    A broker that has just acknowledged a commit is the coordinator, and knows whatever was acknowledged before: so the
    other partitions are asked for right after it.  Who has not done so may be an old one that does not know it yet, and
    its answers mean nothing."""

    PARTITIONS = 5

    def __init__(self, cluster, topic, group):
        super().__init__(daemon=True)
        self.cluster, self.topic, self.group = cluster, topic, group
        self.acknowledged = {}  # partition -> offset
        self.asked_at = -1  # the broker asked last for the coordinator
        self.sent = self.commits = self.asked = 0
        self.failures = []
        self.finish = threading.Event()
        self.start()

    def run(self):
        while not self.finish.is_set() and not self.failures:
            try:
                with self._coordinator() as conn:
                    while not self.finish.is_set() and not self.failures and self._step(conn):
                        self.finish.wait(0.02)  # it is not a test of speed
            except (OSError, Closed):
                self.finish.wait(0.02)

    def _coordinator(self):
        brokers = list(self.cluster)
        self.asked_at = (self.asked_at + 1) % len(brokers)
        with brokers[self.asked_at].connect(timeout=5) as conn:
            found = conn.call("FindCoordinator", 3, Key=self.group, KeyType=0)
        if found.ErrorCode:
            raise Closed(f"no coordinator: {found.ErrorCode}")
        return self.cluster[found.NodeId].connect(timeout=10)

    def _step(self, conn):
        """False: it is not the coordinator, or not able to."""
        self.sent += 1
        partition = self.sent % self.PARTITIONS
        before = dict(self.acknowledged)
        where = (self.topic, partition)
        if groups.commit(conn, self.group, {where: self.sent})[where]:
            return False
        self.acknowledged[partition] = self.sent
        self.commits += 1
        others = [(self.topic, p) for p in before if p != partition]
        error, rows = groups.fetch_groups(conn, {self.group: others})[self.group]
        if error:
            return False
        for (_, p), row in rows.items():
            if row.ErrorCode == 0 and row.CommittedOffset < before[p]:
                self.failures.append(f"partition {p}: {before[p]} was committed and {row.CommittedOffset} is there")
            self.asked += 1
        return True

    def stop(self):
        """What was acknowledged is there in the end."""
        commits = self.commits
        wait_until(lambda: self.failures or self.commits >= commits + self.PARTITIONS, 60, "commits are acknowledged")
        self.finish.set()
        self.join()
        assert not self.failures, self.failures
