"""Kafka Streams' word count: two instances share the work, at least once, and one of them is killed.

What at least once promises: without a failure each count is exact. After a kill, what the dead instance had counted
since its last commit is counted again: no count is below the true one, and no word is there that was not written. When
all input is committed, the last count of each word is final."""

import collections
import random
import struct
import subprocess

import pytest

from batches import Record, build
from brokers import ENDS_WITH_US, wait_until
from programs import BUILD, JVM
from rawkafka import Kerr

BROKER_CONFIG = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
PARTITIONS = 4
WORDS = [f"word{i}" for i in range(200)]


class Instance:
    def __init__(self, version, directory, name, bootstrap, application, source, sink):
        self.stdout, self.stderr = directory / f"{name}.stdout", directory / f"{name}.stderr"
        words = ["-cp", f"{BUILD}/interop/java:{BUILD}/kafka-{version}/libs/*", "WordCount"]
        words += [bootstrap, application, str(directory / name), source, sink]
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(
                [*ENDS_WITH_US, *JVM, *words], stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
            )

    def runs(self):
        assert self.process.poll() is None, self.said()
        told = self.stdout.read_text().splitlines()
        assert "state ERROR" not in told, self.said()
        return told and told[-1] == "state RUNNING"

    def said(self):
        return self.stdout.read_text()[-2000:] + self.stderr.read_text(errors="replace")[-6000:]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(90) == 0, self.said()
        assert "closed" in self.stdout.read_text().splitlines()

    def end_now(self):
        self.kill()
        self.process.stdin.close()


class Job:
    """The application as seen from outside: what is written to it, what it has committed, what it says it counted."""

    def __init__(self, conn, name, source, sink):
        self.conn, self.name, self.source, self.sink = conn, name, source, sink
        self.random = random.Random(7)
        self.true = collections.Counter()
        self.counts = {}
        self.read_to = dict.fromkeys(range(PARTITIONS), 0)

    def write(self, lines):
        """So many lines of ten words to each partition."""
        for index in range(PARTITIONS):
            rows = []
            for _ in range(lines):
                words = self.random.choices(WORDS, k=10)
                self.true.update(words)
                rows.append(Record(value=" ".join(words).encode()))
            assert self.conn.produce(self.source, index, build(rows)).ErrorCode == Kerr.NONE

    def latest(self):
        """word -> the last count of it in the output; the words of one partition are in it in order."""
        for index in self.read_to:
            for record in self.conn.read_all(self.sink, index, self.read_to[index]):
                self.counts[record.key.decode()] = struct.unpack(">q", record.value)[0]
                self.read_to[index] = record.offset + 1
        return self.counts

    def all_committed(self):
        answer = self.conn.call("OffsetFetch", 7, GroupId=self.name, Topics=None, RequireStable=True)
        assert answer.ErrorCode == Kerr.NONE, answer
        committed = {(t.Name, p.PartitionIndex): p.CommittedOffset for t in answer.Topics for p in t.Partitions}
        topics = (self.source, f"{self.name}-counts-repartition")
        wanted = {(t, p): self.conn.list_offset(t, p, -1).Offset for t in topics for p in range(PARTITIONS)}
        return all(committed.get(where, 0) == end for where, end in wanted.items())

    def members(self):
        """Of a stable group, each with an assignment."""
        row = self.conn.call("DescribeGroups", 5, Groups=[self.name]).Groups[0]
        if row.ErrorCode != Kerr.NONE or row.GroupState != "Stable":
            return 0
        return sum(len(member.MemberAssignment) > 0 for member in row.Members)


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_word_count(broker, conn, topic_name, tmp_path, version):
    if not conn.serves("JoinGroup"):
        pytest.skip("this broker coordinates no groups yet")
    source, sink = conn.new_topic(f"{topic_name}-in", PARTITIONS), conn.new_topic(f"{topic_name}-out", PARTITIONS)
    job = Job(conn, f"{topic_name}-app", source, sink)
    job.write(50)
    instances = []

    def start(name):
        instances.append(Instance(version, tmp_path, name, broker.bootstrap, job.name, source, sink))
        return instances[-1]

    try:
        victim, stays = start("victim"), start("stays")
        wait_until(lambda: victim.runs() and stays.runs() and job.members() == 4, 90, "two instances share the work")
        job.write(50)
        wait_until(lambda: job.latest() == job.true and job.all_committed(), 60, "every word is counted, exactly")

        for name, wanted in (("counts-repartition", "delete"), ("counts-changelog", "compact")):
            assert config(conn, f"{job.name}-{name}", "cleanup.policy") == wanted

        job.write(200)
        victim.kill()
        job.write(50)
        wait_until(lambda: stays.runs() and job.members() == 2, 90, "one instance has all the work")
        wait_until(job.all_committed, 90, "all is committed")
        final = job.latest()
        assert set(final) == set(job.true)
        assert not {word: (final[word], job.true[word]) for word in final if final[word] < job.true[word]}
        stays.close()
        assert job.latest() == final and job.all_committed()
    finally:
        for instance in instances:
            instance.end_now()


def config(conn, topic, key):
    resource = {"ResourceType": 2, "ResourceName": topic, "ConfigurationKeys": [key]}
    answer = conn.call("DescribeConfigs", Resources=[resource]).Results[0]
    assert answer.ErrorCode == Kerr.NONE, answer
    return answer.Configs[0].Value
