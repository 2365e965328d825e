"""What record i of an exchange between languages is; README.md has the rule in words. And the Python clients' parts."""

import asyncio
import time

FIRST_TIMESTAMP = 1_700_000_000_000
LARGE = 20_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_SECONDS = 60


def key(i):
    if i % 10 == 0 and i % 7 != 0:  # some clients refuse a record with neither key nor value
        return None
    return b"" if i % 10 == 1 else b"key-%d" % i


def value(i):
    if i % 7 < 2:
        return None if i % 7 == 0 else b""
    tail = LARGE if i % 1000 == 2 else i % 97
    return b"value-%d-" % i + bytes((i + 31 * j) & 0xFF for j in range(tail))


def headers(i, nulls=True):
    return [
        [],
        [("h", b"%d" % i)],
        [("dup", b"a"), ("dup", b"b")],
        [("null", None if nulls else b""), ("empty", b"")],
        [("binary", bytes((0, 0xFF, i & 0xFF)))],
    ][i % 5]


class Progress:
    """Checks what a reader of several topics gets; each topic's records come in order, the topics in any."""

    def __init__(self, topics, count):
        self.next = dict.fromkeys(topics, 0)
        self.left = count * len(topics)
        self.deadline = time.monotonic() + PATIENCE_SECONDS

    def goes_on(self):
        assert not self.left or time.monotonic() < self.deadline, f"after {PATIENCE_SECONDS} s only {self.next}"
        return self.left > 0

    def check(self, topic, offset, timestamp, got_key, got_value, got_headers):
        i = self.next[topic]
        wanted = (i, FIRST_TIMESTAMP + i, key(i), value(i), headers(i, "nonull" not in topic))
        got = (offset, timestamp, got_key, got_value, [(name, data) for name, data in got_headers or []])
        assert got == wanted, f"{topic}: record {i} came back as {got}, not {wanted}"
        self.next[topic] += 1
        self.left -= 1


class Confluent:
    """librdkafka through confluent-kafka."""

    codecs = CODECS

    @staticmethod
    def write(bootstrap, topic, count, codec):
        from confluent_kafka import Producer

        problems = []
        # 'acks=1' in one of them: librdkafka picks other code paths without idempotence
        idempotent = codec != "lz4"
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
            }
        )

        def note(i):
            def delivered(error, message):
                if error is not None or message.offset() != i:
                    problems.append(f"record {i}: {error or message.offset()}")

            return delivered

        for i in range(count):
            producer.produce(
                topic,
                value(i),
                key(i),
                partition=0,
                timestamp=FIRST_TIMESTAMP + i,
                headers=headers(i),
                on_delivery=note(i),
            )
            if i % 1000 == 0:
                producer.poll(0)
        assert producer.flush(PATIENCE_SECONDS) == 0, "not all delivered"
        assert not problems, problems[:5]

    @staticmethod
    def read(bootstrap, topics, count):
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])
            progress = Progress(topics, count)
            while progress.goes_on():
                for m in consumer.consume(10_000, 1.0):
                    assert m.error() is None, m.error()
                    progress.check(m.topic(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers())
        finally:
            consumer.close()


class KafkaPython:
    """kafka-python."""

    codecs = CODECS

    @staticmethod
    def write(bootstrap, topic, count, codec):
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5, acks="all"
        )
        try:
            sent = [
                producer.send(
                    topic, value(i), key(i), headers(i, nulls=False), partition=0, timestamp_ms=FIRST_TIMESTAMP + i
                )
                for i in range(count)
            ]
            producer.flush(PATIENCE_SECONDS)
            assert [future.get(PATIENCE_SECONDS).offset for future in sent] == list(range(count))
        finally:
            producer.close()

    @staticmethod
    def read(bootstrap, topics, count):
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        try:
            partitions = [TopicPartition(topic, 0) for topic in topics]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
            assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, count)
            progress = Progress(topics, count)
            while progress.goes_on():
                for messages in consumer.poll(1000).values():
                    for m in messages:
                        progress.check(m.topic, m.offset, m.timestamp, m.key, m.value, m.headers)
        finally:
            consumer.close()


class AioKafka:
    """aiokafka."""

    codecs = CODECS

    @staticmethod
    def write(bootstrap, topic, count, codec):
        async def main():
            from aiokafka import AIOKafkaProducer

            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
                enable_idempotence=codec != "gzip",
                acks="all",
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(topic, value(i), key(i), 0, FIRST_TIMESTAMP + i, headers(i))
                    for i in range(count)
                ]
                assert [(await future).offset for future in sent] == list(range(count))
            finally:
                await producer.stop()

        asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))

    @staticmethod
    def read(bootstrap, topics, count):
        async def main():
            from aiokafka import AIOKafkaConsumer, TopicPartition

            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
            await consumer.start()
            try:
                partitions = [TopicPartition(topic, 0) for topic in topics]
                consumer.assign(partitions)
                await consumer.seek_to_beginning(*partitions)
                progress = Progress(topics, count)
                while progress.goes_on():
                    for messages in (await consumer.getmany(timeout_ms=1000)).values():
                        for m in messages:
                            progress.check(m.topic, m.offset, m.timestamp, m.key, m.value, m.headers)
            finally:
                await consumer.stop()

        asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))


PYTHON_CLIENTS = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": AioKafka}
