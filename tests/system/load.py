"""Load on a cluster while things break, and the checker of what became of it.

load = Load(cluster, "topic", producers=2)      # idempotent producers with acks=all, and a consumer that follows
load.start(); ...; load.stop(); load.check()    # every acknowledged record once, where it was acknowledged, in order

load = Load(cluster, "topic", acks=1)           # or 0: neither idempotent nor trying again, so that nothing is doubled
load.check_order(since=load.settled())          # some may be lost, but none that was written after settled()

Each producer writes "NUMBER:SEQUENCE" with its number as key, so that one producer's records of a partition are in the
order of their sequences.  The consumer reads everything while it is written: what it has seen at an offset must be there
in the end, too, and it must never see an offset twice or leave one out."""

import collections
import json
import subprocess
import threading
import time

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from brokers import ENDS_WITH_US, JVM, jars, wait_until

FOREVER_MS = 10 * 60 * 1000


class Writer(threading.Thread):
    """A producer of librdkafka.  With acks=all it is idempotent and gives no record up for as long as a test may last;
    with less it sends each record once, and what becomes of it is as it may be."""

    def __init__(self, bootstrap, topic, number, per_second, acks="all"):
        super().__init__(daemon=True)
        self.topic, self.number, self.per_second, self.safe = topic, number, per_second, acks == "all"
        self.acknowledged = []  # (partition, offset, sequence), in the order of the acknowledgements
        self.failures = []
        self.finish = threading.Event()
        self.written = 0
        self.longest_wait = 0.0  # from the call to the acknowledgement
        settings = {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": self.safe,
            "message.send.max.retries": 2**31 - 1 if self.safe else 0,
            "message.timeout.ms": FOREVER_MS,
            "linger.ms": 5,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 1000,
            "socket.timeout.ms": 10000,
            "error_cb": self._on_error,
            "log_level": 0,
        }
        self.producer = Producer(settings)

    def _on_error(self, error):
        if error.fatal():
            self.failures.append(str(error))

    def _on_delivery(self, sequence, asked):
        def note(error, message):
            if error is not None:
                if not self.safe:
                    return
                self.failures.append(f"record {sequence}: {error}")
                return
            self.acknowledged.append((message.partition(), message.offset(), sequence))
            self.longest_wait = max(self.longest_wait, time.monotonic() - asked)

        return note

    def run(self):
        due = time.monotonic()
        while not self.finish.is_set() and not self.failures:
            now = time.monotonic()
            if now < due:
                self.producer.poll(due - now)
                continue
            due = max(due + 1 / self.per_second, now - 1)  # what could not be written is not made up for in a burst
            text = f"{self.number}:{self.written}"
            try:
                note = self._on_delivery(self.written, now)
                self.producer.produce(self.topic, text, f"{self.number}-{self.written % 97}", on_delivery=note)
                self.written += 1
            except BufferError:
                self.producer.poll(0.05)

    def stop(self, seconds):
        self.finish.set()
        self.join()
        end = time.monotonic() + seconds
        while len(self.producer) and time.monotonic() < end:  # a flush hides what a callback raises
            self.producer.poll(0.1)
        left = len(self.producer)
        assert not self.failures, f"producer {self.number}: {self.failures[:5]}"
        assert left == 0, f"producer {self.number}: {left} records are not acknowledged {seconds} s after the last fault"


class JavaWriter:
    """Kafka's own VerifiableProducer: the Java client, idempotent, acks=all."""

    def __init__(self, cluster, topic, number, per_second):
        self.number = number
        self._acknowledged, self._read = [], 0
        self._ending = False
        config = cluster.directory / f"java-producer-{number}.properties"
        settings = {
            "enable.idempotence": "true",
            "retries": 2**31 - 1,  # the tool's own value is 0, with which the client does not start
            "delivery.timeout.ms": FOREVER_MS,
            "request.timeout.ms": 10000,
            "reconnect.backoff.max.ms": 500,
            "metadata.max.age.ms": 1000,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [*ENDS_WITH_US, *cluster.prefix("hub"), *JVM, "-cp", jars("3.9.1")]
        command += ["org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", cluster.bootstrap]
        command += ["--topic", topic, "--acks", "-1", "--throughput", str(per_second)]
        command += ["--value-prefix", str(number), "--producer.config", str(config)]
        self.out = (cluster.directory / f"java-producer-{number}.out").open("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT)

    def stop(self, seconds):
        """SIGTERM has it send what it has, and end."""
        self._ending = True
        self.process.terminate()
        try:
            self.process.wait(seconds)
        finally:
            self.process.kill()
        assert self.acknowledged, f"producer {self.number} has written nothing:\n{self._text(2000)}"

    def _text(self, size):
        with open(self.out.name, errors="replace") as file:
            return file.read(size)

    @property
    def acknowledged(self):
        """Lines that are whole are read once."""
        with open(self.out.name) as file:
            file.seek(self._read)
            lines = file.read().split("\n")[:-1]
        self._read += sum(len(line) + 1 for line in lines)  # it writes ASCII
        for line in lines:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            if self._ending and "producer has been closed" in event.get("message", ""):
                continue  # the tool's main thread goes on for a moment: this one was never sent
            assert event["name"] != "producer_send_error", f"producer {self.number}: {event}"
            if event["name"] == "producer_send_success":
                sequence = int(event["value"].split(".")[1])
                self._acknowledged.append((event["partition"], event["offset"], sequence))
        return self._acknowledged


class Follower(threading.Thread):
    """A consumer of all partitions from the first offset on, which notes what it sees and complains of gaps."""

    def __init__(self, bootstrap, topic, partitions):
        super().__init__(daemon=True)
        self.topic = topic
        self.seen = collections.defaultdict(list)  # partition -> values, by offset
        self.failures = []
        self.finish = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "follower",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": False,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def run(self):
        while not self.finish.is_set() and not self.failures:
            for message in self.consumer.consume(500, 0.2):
                self._note(message)
        self.consumer.close()

    def _note(self, message):
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                self.failures.append(f"partition {message.partition()}: {error}")
            return
        seen = self.seen[message.partition()]
        if message.offset() != len(seen):
            self.failures.append(f"partition {message.partition()}: offset {message.offset()} after {len(seen) - 1}")
        seen.append(message.value())


class Load:
    def __init__(self, cluster, topic, producers=2, java=0, per_second=200, partitions=6, config=None, acks="all"):
        self.cluster, self.topic, self.partitions = cluster, topic, partitions
        self._create({"min.insync.replicas": "2", **(config or {})})
        with cluster.clients():
            self.writers = [Writer(cluster.bootstrap, topic, n, per_second, acks) for n in range(producers)]
            self.follower = Follower(cluster.bootstrap, topic, partitions)
        self._java, self._per_second = java, per_second

    def _create(self, config):
        def made():
            with self.cluster.controller().connect() as c:
                row = c.create_topic(self.topic, self.partitions, 3, config)
            return row.ErrorCode in (0, 36)

        wait_until(made, 30, f"{self.topic} is made")

    def start(self):
        first = len(self.writers)
        numbers = range(first, first + self._java)
        self.writers += [JavaWriter(self.cluster, self.topic, n, self._per_second) for n in numbers]
        with self.cluster.clients():
            for writer in self.writers:
                if isinstance(writer, Writer):
                    writer.start()
            self.follower.start()
        for writer in self.writers:
            wait_until(lambda: writer.acknowledged, 60, f"producer {writer.number} begins")  # noqa: B023
        return self

    def acknowledged(self):
        return sum(len(w.acknowledged) for w in self.writers)

    def wait_progress(self, records, seconds=60):
        """Until so many more records are acknowledged."""
        goal = self.acknowledged() + records
        wait_until(lambda: self.acknowledged() >= goal, seconds, f"{records} more records are acknowledged")

    def stop(self, seconds=60):
        """Everything that was written is acknowledged, at the latest so long after the end of all faults."""
        for writer in self.writers:
            writer.stop(seconds)

    def settled(self):
        """The first sequence of each producer of which nothing may be lost, while no more faults come: each partition
        has got something by way of producers that know who leads it now."""
        floors = [writer.written for writer in self.writers]

        def arrived(partition):
            return any(sequence >= floors[number] for number, sequence in map(_parse, self.follower.seen[partition]))

        self._wait_seen(lambda: all(map(arrived, range(self.partitions))), "every partition is written to")
        return [writer.written for writer in self.writers]

    # What must hold in the end

    def check(self):
        final = self._check_consumer()
        self._check_acknowledged(final)
        self._check_order(final)

    def check_order(self, since):
        """Of producers that do not wait for the in-sync replicas.  A record is where it was acknowledged to be, or
        nowhere; none is doubled, none out of order; and of those from the given sequences on none is lost.  Nobody has
        waited for those: the last ones may still be on their way to the leader, or from there to its followers."""
        wanted = {(w.number, n) for w, first in zip(self.writers, since, strict=True) for n in range(first, w.written)}
        self._wait_seen(lambda: wanted <= self._all_seen(), "what was written after the last fault is seen")
        final = self._check_consumer()
        self._check_order(final)
        where = {_parse(value): (p, offset) for p, values in final.items() for offset, value in enumerate(values)}
        for writer, first in zip(self.writers, since, strict=True):
            for partition, offset, sequence in writer.acknowledged:
                found = where.get((writer.number, sequence))
                assert found or sequence < first, f"lost: {writer.number}:{sequence} at {partition}/{offset}"
                at = f"{writer.number}:{sequence} was acknowledged at {partition}/{offset} and is at {found}"
                assert not found or offset is None or offset < 0 or found == (partition, offset), at

    def _wait_seen(self, condition, what):
        try:
            wait_until(lambda: condition() or self.follower.failures, 60, what)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self._reading()}") from None
        assert not self.follower.failures, self.follower.failures

    def _reading(self):
        """How far the consumer is, for messages."""
        ends = self._ends()
        return ", ".join(f"{len(self.follower.seen[p])} of {ends[p]} in {p}" for p in range(self.partitions))

    def _all_seen(self):
        return {_parse(value) for p in range(self.partitions) for value in list(self.follower.seen[p])}

    def _check_consumer(self):
        """What is there in the end, and that it is what the consumer has seen while it came, on every replica."""
        ends = self._ends()
        read = lambda p: len(self.follower.seen[p]) >= ends[p]  # noqa: E731
        self._wait_seen(lambda: all(read(p) for p in range(self.partitions)), "the consumer has read everything")
        self.follower.finish.set()
        self.follower.join()
        assert not self.follower.failures, self.follower.failures
        final = self._read_all(ends)
        for p in range(self.partitions):
            assert self.follower.seen[p] == final[p], f"partition {p}: {_difference(self.follower.seen[p], final[p])}"
        self._check_replicas(ends)
        return final

    def _check_acknowledged(self, final):
        where = {(p, *_parse(value)): offset for p, values in final.items() for offset, value in enumerate(values)}
        for writer in self.writers:
            for partition, offset, sequence in writer.acknowledged:
                if offset is None or offset < 0:  # a repeated batch, of which the broker did not know where it is
                    offset = where.get((partition, writer.number, sequence), len(final[partition]))
                there = final[partition][offset] if offset < len(final[partition]) else None
                assert there is not None, f"lost: {writer.number}:{sequence} at {partition}/{offset}"
                number, found = _parse(there)
                assert (number, found) == (writer.number, sequence), (
                    f"partition {partition} offset {offset} holds {there}, not {writer.number}:{sequence}"
                )

    def _check_order(self, final):
        for p, values in final.items():
            last = collections.defaultdict(lambda: -1)
            for offset, value in enumerate(values):
                number, sequence = _parse(value)
                assert sequence > last[number], f"partition {p} offset {offset}: {value} after {number}:{last[number]}"
                last[number] = sequence

    def _check_replicas(self, ends):
        """Every replica's log has the same end, or gets there; a follower answers for its own log to who asks as a
        debugger."""
        for broker in self.cluster:
            with broker.connect() as c:
                for p in range(self.partitions):
                    at_end = lambda: log_end(c, self.topic, p) == ends[p]  # noqa: B023, E731
                    wait_until(at_end, 60, f"partition {p} ends at {ends[p]} on {broker.number}, too")

    def _ends(self):
        with self.cluster.clients():
            consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": "ends", "log_level": 0})
        try:
            return [high_watermark(consumer, self.topic, p) for p in range(self.partitions)]
        finally:
            consumer.close()

    def _read_all(self, ends):
        """partition -> values, read anew."""
        with self.cluster.clients():
            again = Follower(self.cluster.bootstrap, self.topic, self.partitions)
            again.start()
        wait_until(
            lambda: again.failures or all(len(again.seen[p]) >= ends[p] for p in range(self.partitions)),
            60,
            "everything is read again",
        )
        again.finish.set()
        again.join()
        assert not again.failures, again.failures
        return {p: again.seen[p] for p in range(self.partitions)}


def _parse(value):
    """(producer, sequence) of "NUMBER:SEQUENCE", or "NUMBER.SEQUENCE" as Kafka's tool writes it."""
    number, sequence = value.replace(b".", b":").split(b":")
    return int(number), int(sequence)


def _difference(one, other):
    for offset, (a, b) in enumerate(zip(one, other)):
        if a != b:
            return f"offset {offset} was {a} and is {b}"
    return f"{len(one)} records were seen and {len(other)} are there"


def high_watermark(consumer, topic, partition):
    """A new leader does not know it before its followers have what it began with."""

    def known():
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError.OFFSET_NOT_AVAILABLE:
                raise
            return None

    return wait_until(known, 30, f"the leader of {topic}-{partition} knows its high watermark")[1]


DEBUGGING_REPLICA, LATEST = -2, -1


def log_end(connection, topic, partition):
    row = {"Name": topic, "Partitions": [{"PartitionIndex": partition, "Timestamp": LATEST}]}
    answer = connection.call("ListOffsets", 5, ReplicaId=DEBUGGING_REPLICA, IsolationLevel=0, Topics=[row])
    found = answer.Topics[0].Partitions[0]
    assert found.ErrorCode == 0, found
    return found.Offset


