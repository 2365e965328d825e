"""Listeners, advertised addresses and the limits of connections."""

import contextlib
import socket
import time

import pytest

import batches
import groups
import messages
import rawkafka
from batches import Record, build
from brokers import free_port, wait_until
from rawkafka import Kerr

IDLE_MS = 1000
PER_IP = 30
BROKER_CONFIG = {
    "max.connections.per.ip": str(PER_IP),
    "max.connections.per.ip.overrides": "127.0.0.9:2",
}


def from_address(broker, source):
    """A connection that comes from another loopback address."""
    c = rawkafka.Connection.__new__(rawkafka.Connection)
    c.socket = socket.create_connection(broker.address, 30, source_address=(source, 0))
    c.client_id, c.next_correlation, c.waiting, c._announced = "raw", 1, {}, None
    return c


def served(c):
    try:
        return c.call("ApiVersions", 0).ErrorCode == Kerr.NONE
    except (rawkafka.Closed, OSError):
        return False


@pytest.fixture
def impatient(fresh_broker):
    """A broker that soon closes idle connections; the other tests' must stay, however slow the machine is."""
    broker = fresh_broker({"connections.max.idle.ms": str(IDLE_MS)}).start()
    yield broker
    broker.stop()


def test_an_idle_connection_is_closed(impatient):
    with impatient.connect() as c:
        assert served(c)
        assert c.closed_by_peer(30)


def test_a_connection_that_never_spoke_is_closed(impatient):
    with impatient.connect() as c:
        assert c.closed_by_peer(30)


def test_a_connection_in_use_stays(impatient):
    def stays():
        """Whether it outlived an idle one.  A try in which this test itself was stopped for so long that the broker
        may call both idle decides nothing: None."""
        with impatient.connect() as c, impatient.connect() as idle:
            used = time.monotonic()
            while True:
                good = served(c)
                gap_ms, used = (time.monotonic() - used) * 1000, time.monotonic()
                if gap_ms >= IDLE_MS:
                    return None
                assert good, f"closed although it was used {gap_ms:.0f} ms before"
                if idle.closed_by_peer(0.01):
                    return served(c) or None

    assert wait_until(stays, 120, "the test has the processor often enough to use a connection all the time")


def test_connections_of_one_address_are_bounded_and_of_another_not_touched(broker):
    source = "127.0.0.7"
    many = [from_address(broker, source) for _ in range(PER_IP + 20)]
    try:
        assert sum(served(c) for c in many) == PER_IP
        other = from_address(broker, "127.0.0.8")
        assert served(other)
        other.close()
    finally:
        for c in many:
            c.close()

    def place_again():
        c = from_address(broker, source)
        try:
            return served(c)
        finally:
            c.close()

    wait_until(place_again, 30, "closed connections free their places")


def test_an_override_for_one_address(broker):
    some = [from_address(broker, "127.0.0.9") for _ in range(6)]
    assert sum(served(c) for c in some) == 2
    for c in some:
        c.close()


def test_each_listener_tells_its_own_advertised_address(fresh_broker):
    inside, outside = free_port(), free_port()
    config = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        "advertised.listeners": f"INSIDE://localhost:{inside},OUTSIDE://broker.example.com:443",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    broker = fresh_broker(config, port=inside)
    if not broker.is_barnabas():
        pytest.skip("the peers' set-up has one listener")
    broker.start()
    for port, wanted in ((inside, ("localhost", inside)), (outside, ("broker.example.com", 443))):
        with rawkafka.Connection(("127.0.0.1", port)) as c:
            (node,) = c.metadata().Brokers
            assert (node.Host, node.Port) == wanted
            (node,) = c.call("DescribeCluster").Brokers
            assert (node.Host, node.Port) == wanted
    broker.stop()


def test_ipv6(fresh_broker):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    port = free_port()
    broker = fresh_broker({"listeners": f"PLAINTEXT://[::1]:{port}"}, port=port)
    if not broker.is_barnabas():
        pytest.skip("the peers' set-up has one listener")
    broker.address = ("::1", port)
    broker.start()
    with broker.connect() as c:
        (node,) = c.metadata().Brokers
        assert (node.Host, node.Port) == ("::1", port)
    broker.stop()


@pytest.mark.barnabas_only
def test_readers_that_wait_do_not_keep_writers_from_being_read(fresh_broker, topic_name):
    """More waiting fetches than queued.max.request.bytes has room for: only what is written ends their wait."""
    broker = fresh_broker({"socket.request.max.bytes": "2000", "queued.max.request.bytes": "2000"}).start()
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(broker.connect())
        writer.new_topic(topic_name)
        readers = [stack.enter_context(broker.connect(timeout=60)) for _ in range(60)]
        waiting = [reader.send_fetch(topic_name, 0, 0, max_wait_ms=600_000) for reader in readers]
        assert writer.produce(topic_name, 0, build([Record(b"k", b"v")])).ErrorCode == 0
        for reader, fetch in zip(readers, waiting):
            assert batches.records_of(reader.receive(fetch).Responses[0].Partitions[0].Records)[0].value == b"v"
    broker.stop()


@pytest.mark.barnabas_only
def test_half_received_requests_count_and_do_not_hold_up_their_own_end(fresh_broker, topic_name):
    """Past queued.max.request.bytes nobody else is read, but who is in the midst of a request can finish it."""
    size = 1 << 20
    broker = fresh_broker({"socket.request.max.bytes": size, "queued.max.request.bytes": size}).start()
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(broker.connect(timeout=60)) for _ in range(4)]
        writers[0].new_topic(topic_name, 4)
        halves = []
        for i, writer in enumerate(writers):
            row = {"Index": i, "Records": build([Record(b"k", b"v" * (size * 3 // 4))])}
            topics = [{"Name": topic_name, "PartitionData": [row]}]
            fields = {"TransactionalId": None, "Acks": 1, "TimeoutMs": 30000, "TopicData": topics}
            payload, sent = writer.request_bytes("Produce", 9, fields)
            writer.waiting[sent] = (messages.message("Produce"), 9)
            frame = len(payload).to_bytes(4, "big") + payload
            writer.send_bytes(frame[: size // 2])
            halves.append((writer, sent, frame[size // 2 :]))

        def nobody_else_is_read():
            with broker.connect(timeout=0.2) as stranger:
                return not served(stranger)

        wait_until(nobody_else_is_read, 60, "the halves are received and counted")
        for writer, sent, rest in halves:
            writer.send_bytes(rest)
        for writer, sent, _ in halves:
            assert writer.receive(sent).Responses[0].PartitionResponses[0].ErrorCode == 0
        with broker.connect(timeout=60) as stranger:
            assert served(stranger)
    broker.stop()


@pytest.mark.barnabas_only
def test_max_connections_of_the_whole_broker(fresh_broker):
    """Past the limit new connections wait or are closed; those that are there are served."""
    broker = fresh_broker({"max.connections": "20"}).start()
    many = [broker.connect(timeout=2) for _ in range(20)]
    wait_until(lambda: served(many[0]), 30, "the first is served")
    more = [broker.connect(timeout=0.2) for _ in range(10)]
    assert sum(served(c) for c in many + more) <= 20
    for c in many + more:
        c.close()
    wait_until(lambda: _serves_one_more(broker), 30, "there is room again")
    broker.stop()


def test_who_waits_for_room_is_served_when_max_connections_is_raised(fresh_broker):
    broker = fresh_broker({"max.connections": "4"}).start()
    wait_until(lambda: _serves_one_more(broker), 30, "the harness's connection is gone")
    many = [broker.connect(timeout=30) for _ in range(4)]
    assert all(served(c) for c in many)
    with broker.connect(timeout=30) as waiting:
        asked = [{"Name": "max.connections", "ConfigOperation": 0, "Value": "10"}]
        answer = many[0].call(
            "IncrementalAlterConfigs",
            Resources=[{"ResourceType": 4, "ResourceName": "", "Configs": asked}],
            ValidateOnly=False,
        )
        assert answer.Responses[0].ErrorCode == 0
        assert served(waiting)
    for c in many:
        c.close()
    broker.stop()


def _serves_one_more(broker):
    with broker.connect() as c:
        return served(c)


def test_connections_that_move_between_loops_lose_nothing(fresh_broker, topic_name):
    """A connection goes to its group's loop after a while; it is used on, with other requests too, and the broker may
    stop meanwhile."""
    broker = fresh_broker({"num.io.threads": "4", "group.initial.rebalance.delay.ms": "0"}).start()
    names = [f"{topic_name}-{i}" for i in range(8)]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(broker.connect()) for _ in range(12)]
        connections[0].new_topic(topic_name)
        for name in names:
            groups.await_loaded(connections[0], name)
        last = {}
        for turn in range(4):
            for n, c in enumerate(connections):
                name = names[(n + turn) % len(names)]
                for _ in range(12):
                    last[name] = last.get(name, 0) + 1
                    assert groups.commit(c, name, {(topic_name, 0): last[name]}) == {(topic_name, 0): 0}
                rows = groups.commit_rows({(topic_name, 0): last[name]})
                sent = []
                for _ in range(20):  # in one go, over the moment at which it moves
                    sent.append(c.send("OffsetCommit", 8, GroupId=name, Topics=rows))
                    sent.append(c.send("ApiVersions", 0))
                answers = [c.receive(one) for one in sent]
                assert {a.Topics[0].Partitions[0].ErrorCode for a in answers[::2]} == {Kerr.NONE}
                assert {a.ErrorCode for a in answers[1::2]} == {Kerr.NONE}
        for name in names:
            assert groups.fetch(connections[0], name, [(topic_name, 0)])[topic_name, 0].CommittedOffset == last[name]
        for n, c in enumerate(connections):
            for _ in range(9):
                c.send("OffsetCommit", 8, GroupId=names[n % 8], Topics=groups.commit_rows({(topic_name, 0): 1}))
        broker.stop()
