"""A group member: confluent-kafka (librdkafka)."""

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from telling import OPTIONS, Handled, closing, tell

handled = Handled()
BATCH = 50  # records between two commits, at most


def pairs(partitions):
    return [[p.topic, p.partition] for p in partitions]


def commit(consumer):
    def send(offsets):
        consumer.commit(
            offsets=[TopicPartition(*where, offset) for where, offset in offsets.items()], asynchronous=False
        )

    handled.commit(send)


def on_assign(consumer, partitions):
    tell("assigned", partitions=pairs(partitions))


def on_revoke(consumer, partitions):
    commit(consumer)
    handled.forget(pairs(partitions))
    if partitions:
        tell("revoked", partitions=pairs(partitions))


def on_lost(consumer, partitions):
    handled.forget(pairs(partitions))
    if partitions:
        tell("lost", partitions=pairs(partitions))


def handle(message):
    """Each record is handled before the next poll, in which a rebalance may take its partition. False: fenced."""
    error = message.error()
    if error is None:
        handled.record(message.topic(), message.partition(), message.offset(), message.value())
    elif error.code() in (KafkaError._FENCED, KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL):
        tell("fenced", why=str(error))
        return False
    else:
        tell("refused", why=str(error))
    return True


def main():
    settings = {
        "bootstrap.servers": OPTIONS["bootstrap"],
        "group.id": OPTIONS["group"],
        "client.id": OPTIONS["member"],
        "partition.assignment.strategy": OPTIONS["assignor"],
        "session.timeout.ms": OPTIONS["session_ms"],
        "heartbeat.interval.ms": OPTIONS["heartbeat_ms"],
        "max.poll.interval.ms": OPTIONS["rebalance_ms"],
        "topic.metadata.refresh.interval.ms": OPTIONS["metadata_ms"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if OPTIONS.get("instance"):
        settings["group.instance.id"] = OPTIONS["instance"]
    consumer = Consumer(settings)
    topics = [OPTIONS["pattern"]] if OPTIONS.get("pattern") else OPTIONS["topics"]
    consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    while not closing.is_set():
        for turn in range(BATCH):
            message = consumer.poll(0 if turn else 0.1)
            if message is None:
                break
            if not handle(message):
                return
        commit(consumer)
    consumer.close()
    tell("closed")


try:
    main()
except KafkaException as failure:
    tell("failed", why=repr(failure))
    raise
