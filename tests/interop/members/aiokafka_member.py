"""A group member: aiokafka.

Its listener runs in another task than the one that reads: a lock keeps handling and giving up apart. It must not be
held while records are waited for, because that waits for the end of a rebalance, and thus for the listener.
"""

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from telling import OPTIONS, Handled, closing, tell

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
BATCH = 50
handled = Handled()


def pairs(partitions):
    return sorted([p.topic, p.partition] for p in partitions)


async def commit(consumer):
    offsets = {TopicPartition(*where): offset for where, offset in handled.next.items()}
    try:
        if offsets:
            await consumer.commit(offsets)
    except Exception as error:
        handled.refused(error)
    else:
        handled.committed()


class Listener(ConsumerRebalanceListener):
    """There is no call for partitions that are lost: they are revoked, and committing them is refused."""

    def __init__(self, consumer, lock):
        self.consumer, self.lock = consumer, lock
        self.held = []
        self.leaving = False
        self.given_up = 0  # how often: what was read before the last time is not ours to handle

    async def on_partitions_assigned(self, assigned):
        if self.leaving:  # it may be assigned more until it has left, and never handles it
            return
        self.held = pairs(assigned)
        tell("assigned", partitions=self.held)

    async def on_partitions_revoked(self, revoked):
        async with self.lock:
            await self.give_up()

    async def give_up(self):
        await commit(self.consumer)
        if self.held:
            tell("revoked", partitions=self.held)
        handled.forget(self.held)
        self.held = []
        self.given_up += 1


async def handle(consumer, found):
    for records in found.values():
        for record in records:
            handled.record(record.topic, record.partition, record.offset, record.value)
    await commit(consumer)


async def main():
    consumer = AIOKafkaConsumer(
        bootstrap_servers=OPTIONS["bootstrap"],
        group_id=OPTIONS["group"],
        group_instance_id=OPTIONS.get("instance"),
        client_id=OPTIONS["member"],
        partition_assignment_strategy=[ASSIGNORS[OPTIONS["assignor"]]],
        session_timeout_ms=OPTIONS["session_ms"],
        heartbeat_interval_ms=OPTIONS["heartbeat_ms"],
        rebalance_timeout_ms=OPTIONS["rebalance_ms"],
        max_poll_interval_ms=OPTIONS["rebalance_ms"],
        request_timeout_ms=OPTIONS["rebalance_ms"] + 5000,
        metadata_max_age_ms=OPTIONS["metadata_ms"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    lock = asyncio.Lock()
    listener = Listener(consumer, lock)
    wanted = {"pattern": OPTIONS["pattern"]} if OPTIONS.get("pattern") else {"topics": OPTIONS["topics"]}
    consumer.subscribe(**wanted, listener=listener)
    await consumer.start()
    while not closing.is_set():
        found = await consumer.getmany(timeout_ms=100, max_records=BATCH)
        given_up = listener.given_up
        async with lock:
            if given_up == listener.given_up:
                await handle(consumer, found)
    async with lock:
        listener.leaving = True
        await listener.give_up()
    await consumer.stop()
    tell("closed")


try:
    asyncio.run(main())
except Exception as failure:
    tell("failed", why=repr(failure))
    raise
