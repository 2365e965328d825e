"""ApiVersions, and how requests of versions and APIs that are not served are refused."""

import struct

import pytest

import messages
import rawkafka
from rawkafka import Kerr

# What the issue asks for: every client from 2018 to today needs these.
SERVED = {
    "Produce": (3, 11),
    "Fetch": (4, 16),
    "ListOffsets": (1, 9),
    "Metadata": (0, 12),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "DescribeLogDirs": (1, 4),
    "CreatePartitions": (0, 3),
    "IncrementalAlterConfigs": (0, 1),
    "DescribeCluster": (0, 1),
    "DescribeProducers": (0, 0),
}


@pytest.mark.parametrize("name", SERVED)
def test_every_version_that_clients_use_is_announced(conn, name):
    first, last = SERVED[name]
    got_first, got_last = conn.announced()[messages.message(name).key]
    assert got_first <= first and got_last >= last, (got_first, got_last)


def test_produce_is_announced_from_0_for_the_clients_that_derive_features_from_it(conn):
    assert conn.announced()[0][0] == 0


@pytest.mark.parametrize("version", range(5))
def test_api_versions_answers_in_every_version(conn, version):
    answer = conn.call(
        "ApiVersions", version, **({"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1"} if version > 2 else {})
    )
    assert answer.ErrorCode == Kerr.NONE
    assert {row.ApiKey: (row.MinVersion, row.MaxVersion) for row in answer.ApiKeys} == conn.announced()


def test_api_versions_of_an_unknown_version_is_answered_in_v0_with_the_error_and_its_own_range(conn):
    head = messages.header("RequestHeader").encode(
        {"RequestApiKey": 18, "RequestApiVersion": 127, "CorrelationId": 77, "ClientId": "raw"}, 2
    )
    conn.send_frame(head + b"\x04raw\x021\x00")
    frame = conn.receive_frame()
    assert struct.unpack(">i", frame[:4]) == (77,)
    answer = messages.message("ApiVersions").response.decode(frame[4:], 0)
    assert answer.ErrorCode == Kerr.UNSUPPORTED_VERSION
    assert [(row.ApiKey, row.MinVersion, row.MaxVersion) for row in answer.ApiKeys if row.ApiKey == 18] == [(18, 0, 4)]
    assert conn.call("ApiVersions", 4, ClientSoftwareName="raw", ClientSoftwareVersion="1").ErrorCode == Kerr.NONE


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("raw", ""), ("raw client", "1"), ("-raw", "1"), ("raw", "1/2")]
)
def test_api_versions_refuses_a_software_name_or_version_that_is_not_a_word(conn, name, version):
    answer = conn.call("ApiVersions", 3, ClientSoftwareName=name, ClientSoftwareVersion=version)
    assert answer.ErrorCode == Kerr.INVALID_REQUEST


def test_a_version_that_is_not_announced_ends_the_connection(conn):
    last = conn.announced()[3][1]
    head = messages.header("RequestHeader").encode(
        {"RequestApiKey": 3, "RequestApiVersion": last + 1, "CorrelationId": 1, "ClientId": "raw"}, 2
    )
    conn.send_frame(head + b"\x00\x01\x00\x00")
    assert conn.closed_by_peer()


def test_an_api_that_does_not_exist_ends_the_connection(conn):
    head = messages.header("RequestHeader").encode(
        {"RequestApiKey": 999, "RequestApiVersion": 0, "CorrelationId": 1, "ClientId": "raw"}, 1
    )
    conn.send_frame(head)
    assert conn.closed_by_peer()


@pytest.mark.peer_differs("3.9.1 still takes them", peers=("kafka39",))
@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_before_3_is_refused(broker, topic, version):
    old = messages.message("Produce").request.encode(
        {"Acks": 1, "TimeoutMs": 1000, "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": b""}]}]},
        version,
    )
    with broker.connect() as c:
        head = messages.header("RequestHeader").encode(
            {"RequestApiKey": 0, "RequestApiVersion": version, "CorrelationId": 1, "ClientId": "raw"}, 1
        )
        c.send_frame(head + old)
        try:
            frame = c.receive_frame()
        except rawkafka.Closed:
            return
        answer = messages.message("Produce").response.decode(frame[4:], version)
        code = answer.Responses[0].PartitionResponses[0].ErrorCode
        assert code in (Kerr.UNSUPPORTED_VERSION, Kerr.UNSUPPORTED_FOR_MESSAGE_FORMAT)


def test_answers_come_in_the_order_of_the_requests(conn, topic):
    """A fetch that waits does not let the answers behind it pass."""
    waiting = conn.send_fetch(topic, 0, 0, max_wait_ms=500, min_bytes=1)
    behind = [conn.send("Metadata", 9, Topics=[{"Name": topic}]) for _ in range(20)]
    assert conn.receive(waiting).Responses[0].Partitions[0].ErrorCode == Kerr.NONE
    for correlation in behind:
        assert conn.receive(correlation).Topics[0].Name == topic
