"""A follower of either kind has its leader's log byte for byte, whichever kind leads; also after they had parted."""

import pytest

from batches import Record, build
from brokers import wait_until
from cluster import Cluster
from load import log_end
from test_failover import leader_of, make_topic

pytestmark = pytest.mark.timeout(300)
# In-sync sets shrink only by what the controller does.
CONFIG = {"replica.lag.time.max.ms": "60000", "num.io.threads": "2", "min.insync.replicas": "1"}
LEADER, FOLLOWER = 1, 2


@pytest.fixture(params=["kafka39", "barnabas"])
def cluster(kind, request, tmp_path):
    """Led by a Kafka 3.9.1 or by ours; the kind under test follows."""
    follower = "kafka39" if kind == "kafka43" else kind
    # A third one, so that a controller is left whoever goes.
    with Cluster(tmp_path, 3, config=CONFIG, kinds=[request.param, follower, "barnabas"]) as one:
        yield one.start()


def log_bytes(broker, topic, partition=0):
    directory = broker.log_dir / f"{topic}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def wait_same(cluster, topic, end):
    def same():
        for number in (LEADER, FOLLOWER):
            with cluster[number].connect() as c:
                if log_end(c, topic, 0) != end:
                    return False
        return log_bytes(cluster[LEADER], topic) == log_bytes(cluster[FOLLOWER], topic)

    wait_until(same, 60, "both have the same")


def write(broker, topic, value, count, acks=-1):
    batch = build([Record(value=value)] * 10)
    with broker.connect() as c:
        # A Kafka broker may lead already and not know the topic yet.
        wait_until(lambda: c.produce(topic, 0, batch, acks=acks).ErrorCode == 0, 30, "it takes a batch")
        for _ in range(count - 1):
            assert c.produce(topic, 0, batch, acks=acks).ErrorCode == 0


def test_a_follower_has_the_leaders_log(cluster):
    make_topic(cluster, "same", [[LEADER, FOLLOWER]], {"segment.bytes": "20000"})
    write(cluster[LEADER], "same", b"plain" * 50, 20)
    wait_same(cluster, "same", 200)
    cluster[FOLLOWER].kill()
    write(cluster[LEADER], "same", b"while it was away" * 20, 20, acks=1)
    cluster[FOLLOWER].start()
    cluster.wait_whole()
    wait_same(cluster, "same", 400)


def test_a_follower_cuts_what_its_new_leader_does_not_have(cluster):
    """It led, and wrote what nobody else had, when it was killed."""
    make_topic(cluster, "parted", [[FOLLOWER, LEADER]])
    write(cluster[FOLLOWER], "parted", b"for both", 5)
    wait_same(cluster, "parted", 50)
    cluster[LEADER].pause()
    write(cluster[FOLLOWER], "parted", b"lost, as acks=1 may be", 200, acks=1)
    cluster[FOLLOWER].kill()
    cluster[LEADER].resume()
    wait_until(lambda: leader_of(cluster, "parted") == LEADER, 60, "the other one leads")
    write(cluster[LEADER], "parted", b"in a later epoch", 1, acks=1)
    cluster[FOLLOWER].start()
    cluster.wait_whole()
    with cluster[LEADER].connect() as c:
        end = log_end(c, "parted", 0)
    assert 60 <= end < 2060  # one answer was on its way at most, which had not waited for all
    wait_same(cluster, "parted", end)
