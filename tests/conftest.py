"""Fixtures of the system and interoperability tests. See system/README.md."""

import os
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "system"))

import brokers  # noqa: E402  (found by the line above)


def pytest_addoption(parser):
    parser.addoption(
        "--peer",
        default=os.environ.get("BARNABAS_TEST_BROKER", "barnabas"),
        choices=sorted(brokers.KINDS),
        help="the broker to test; Apache Kafka proves the tests themselves",
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--peer") == "barnabas":
        return
    for item in items:
        if item.get_closest_marker("barnabas_only"):
            item.add_marker(pytest.mark.skip(reason="about the barnabas program itself"))
        for mark in item.iter_markers("peer_differs"):
            if config.getoption("--peer") in mark.kwargs.get("peers", ("kafka39", "kafka43")):
                item.add_marker(pytest.mark.skip(reason=f"Apache Kafka differs: {mark.args[0]}"))


@pytest.fixture(scope="session")
def kind(request):
    return request.config.getoption("--peer")


@pytest.fixture(scope="module")
def broker(request, kind, tmp_path_factory):
    """One running broker for all tests of a module, which may set BROKER_CONFIG."""
    config = getattr(request.module, "BROKER_CONFIG", {})
    one = brokers.new_broker(kind, tmp_path_factory.mktemp("broker"), config)
    try:
        yield one.start()
        assert one.alive(), f"the broker ended by itself:\n{one.output()[-8000:]}"
        one.stop()
    finally:
        one.close()


@pytest.fixture
def fresh_broker(kind, tmp_path):
    """Makes brokers that are not started yet; what still runs when the test ends is ended."""
    made = []

    def make(config=None, directory=None, port=None):
        one = brokers.new_broker(kind, directory or tmp_path / f"broker{len(made)}", config, port)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
        one.check()


@pytest.fixture
def conn(broker):
    """A raw connection to the module's broker."""
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def topic_name(request):
    """A legal topic name that no other test uses."""
    topic_name.count += 1
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")[:200] + f"-{topic_name.count}"


topic_name.count = 0


@pytest.fixture
def topic(conn, topic_name):
    """A new topic of one partition."""
    return conn.new_topic(topic_name)
