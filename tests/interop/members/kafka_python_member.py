"""A group member: kafka-python."""

import logging
import sys

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import FencedInstanceIdError
from kafka.structs import OffsetAndMetadata

from telling import OPTIONS, Fenced, Handled, closing, tell

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
BATCH = 50
POLL_MS = 20_000  # a rebalance that outlasts a call of poll() can hang: kafka-python then waits for metadata each time
handled = Handled()
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
logging.getLogger("kafka.coordinator").setLevel(logging.INFO)


def pairs(partitions):
    return sorted([p.topic, p.partition] for p in partitions)


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer):
        self.consumer = consumer

    def on_partitions_assigned(self, assigned):
        tell("assigned", partitions=pairs(assigned))

    def on_partitions_revoked(self, revoked):
        commit(self.consumer)
        handled.forget(pairs(revoked))
        if revoked:
            tell("revoked", partitions=pairs(revoked))

    def on_partitions_lost(self, lost):
        handled.forget(pairs(lost))
        if lost:
            tell("lost", partitions=pairs(lost))


def commit(consumer):
    def send(offsets):
        try:
            consumer.commit({TopicPartition(*w): OffsetAndMetadata(offset, "", -1) for w, offset in offsets.items()})
        except FencedInstanceIdError as error:
            raise Fenced(error) from error

    handled.commit(send)


def main():
    consumer = KafkaConsumer(
        bootstrap_servers=OPTIONS["bootstrap"],
        group_id=OPTIONS["group"],
        group_instance_id=OPTIONS.get("instance"),
        client_id=OPTIONS["member"],
        partition_assignment_strategy=[ASSIGNORS[OPTIONS["assignor"]]],
        session_timeout_ms=OPTIONS["session_ms"],
        heartbeat_interval_ms=OPTIONS["heartbeat_ms"],
        max_poll_interval_ms=OPTIONS["rebalance_ms"],
        request_timeout_ms=OPTIONS["rebalance_ms"] + 5000,
        metadata_max_age_ms=OPTIONS["metadata_ms"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=BATCH,
    )
    wanted = {"pattern": OPTIONS["pattern"]} if OPTIONS.get("pattern") else {"topics": OPTIONS["topics"]}
    consumer.subscribe(**wanted, listener=Listener(consumer))
    while not closing.is_set():
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            for record in records:
                handled.record(record.topic, record.partition, record.offset, record.value)
        commit(consumer)
    consumer.close()
    tell("closed")


try:
    main()
except (FencedInstanceIdError, Fenced) as error:
    tell("fenced", why=repr(error))
except Exception as failure:
    tell("failed", why=repr(failure))
    raise
