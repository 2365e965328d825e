"""Fixtures of the interoperability tests."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import programs  # noqa: E402  (found by the line above)

OLD_PLACES = {
    "org.apache.kafka.tools.ConsoleProducer": "kafka.tools.ConsoleProducer",
    "org.apache.kafka.tools.BrokerApiVersionsCommand": "kafka.admin.BrokerApiVersionsCommand",
}


@pytest.fixture(scope="session", autouse=True)
def fetched():
    """Everything fetch.sh makes; a second run has nothing to do."""
    subprocess.run([str(programs.INTEROP / "fetch.sh")], check=True)


@pytest.fixture(scope="module", params=["3.9.1", "4.3.1"])
def java(request, fetched):
    """Kafka's own tools, of both releases in turn."""
    return programs.java_tools(request.param)


@pytest.fixture
def tool(java, broker):
    """tool("TopicCommand", "--list"): runs it against the broker and returns what it printed."""

    def run(name, *arguments, **more):
        name = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        if java.version == "3.9.1":
            name = OLD_PLACES.get(name, name)
        return java.run(name, "--bootstrap-server", broker.bootstrap, *arguments, **more)

    return run
