"""Questions about very many groups: each is answered, and what the answers take of the broker's memory has a bound."""

import contextlib

import pytest

from groups import await_loaded
from rawkafka import Closed, Kerr

MIB = 1 << 20
BROKER_CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
NAMES = 300000
REPEATS = 40000  # of an answer of 8 KiB


@contextlib.contextmanager
def peak_growth_below(broker, most):
    """What the broker takes meanwhile, though it gives it back."""
    if not broker.is_barnabas():
        yield
        return
    broker.forget_peak_rss()
    before = broker.rss_bytes()
    yield
    growth = broker.peak_rss_bytes() - before
    assert growth < most, f"{growth >> 20} MiB more at its peak"


def test_three_hundred_thousand_names_in_one_question(broker, topic_name):
    with broker.connect(timeout=120) as c:
        await_loaded(c, topic_name)
        with peak_growth_below(broker, 400 * MIB):
            version = c.newest("DescribeGroups", upto=5)
            answer = c.call("DescribeGroups", version, Groups=[f"n{i}" for i in range(NAMES)])
    assert len(answer.Groups) == NAMES
    assert {(row.ErrorCode, row.GroupState) for row in answer.Groups} == {(Kerr.NONE, "Dead")}


@pytest.mark.barnabas_only  # Kafka answers until its memory ends
def test_one_group_again_and_again_in_one_question(broker, topic_name):
    """What was committed is told as long as it may take: the rest is refused."""
    with broker.connect(timeout=120) as c:
        c.new_topic("t", 2)
        await_loaded(c, topic_name)
        rows = [{"PartitionIndex": i, "CommittedOffset": 1, "CommittedMetadata": "m" * 4096} for i in range(2)]
        answer = c.call("OffsetCommit", 8, GroupId=topic_name, Topics=[{"Name": "t", "Partitions": rows}])
        assert {row.ErrorCode for row in answer.Topics[0].Partitions} == {Kerr.NONE}
        with peak_growth_below(broker, 800 * MIB):
            answer = c.call("OffsetFetch", 8, Groups=[{"GroupId": topic_name, "Topics": None}] * REPEATS)
    errors = [row.ErrorCode for row in answer.Groups]
    assert len(errors) == REPEATS
    assert errors[0] == Kerr.NONE and errors[-1] == Kerr.INVALID_REQUEST
    told = errors.index(Kerr.INVALID_REQUEST)
    assert all(len(row.Topics[0].Partitions) == 2 for row in answer.Groups[:told])
    assert errors[told:] == [Kerr.INVALID_REQUEST] * (REPEATS - told)


@pytest.mark.barnabas_only  # Kafka answers until its memory ends
@pytest.mark.parametrize(("api", "version", "field"), [("DescribeGroups", 5, "Groups"), ("DeleteGroups", 2, "GroupsNames")])
def test_more_than_a_million_names_in_one_question_end_the_connection(broker, api, version, field):
    with broker.connect(timeout=120) as c, peak_growth_below(broker, 400 * MIB):
        with pytest.raises(Closed):
            c.call(api, version, **{field: ["g"] * 1000001})
    with broker.connect() as c:
        assert c.call("ListGroups", 0).ErrorCode == Kerr.NONE
