"""Idempotent producers in threads, which outlive the broker that they write to."""

import threading

from confluent_kafka import Producer

from batches import CODECS


class Writer(threading.Thread):
    """Writes record(i), a dict of arguments for produce(), for i = 0, 1, ... as long as `limit` allows, and never gives
    one up: in the end every record is acknowledged.  The thread ends when `finish` is set or a record has failed."""

    def __init__(self, broker, topic, number, record):
        super().__init__(daemon=True)
        self.topic, self.number, self.record = topic, number, record
        self.limit = 0
        self.finish = False
        self.acknowledged = {}  # i -> (partition, offset)
        self.failures = []
        self.written = 0
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "compression.type": CODECS[number % len(CODECS)],
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 1000,
                "error_cb": self.on_error,
                "log_level": 0,
            }
        )

    def on_error(self, error):
        if error.fatal():
            self.failures.append(f"{error.name()}: {error}")

    def on_delivery(self, i):
        def note(error, message):
            if error is not None:
                self.failures.append(f"record {i}: {error}")
            else:
                self.acknowledged[i] = (message.partition(), message.offset())

        return note

    def run(self):
        while not self.finish and not self.failures:
            if self.written < self.limit:
                try:
                    self.producer.produce(
                        self.topic, **self.record(self.written), on_delivery=self.on_delivery(self.written)
                    )
                    self.written += 1
                    self.producer.poll(0)
                except BufferError:
                    self.producer.poll(0.01)
            else:
                self.producer.poll(0.01)


def acknowledged(writers, seed):
    """How many records of all of them; none may have failed."""
    failures = [failure for writer in writers for failure in writer.failures]
    assert not failures, f"seed {seed}: {failures[:5]}"
    return sum(len(writer.acknowledged) for writer in writers)


def finish(writers):
    for writer in writers:
        writer.finish = True
    for writer in writers:
        writer.join()
