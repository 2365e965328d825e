"""Log directories with Kafka's own admin client and tool."""

import json

import pytest

from batches import Record, build
from programs import BUILD, java_tools, run_program

pytestmark = pytest.mark.barnabas_only  # Apache Kafka would need a directory that it has formatted


@pytest.fixture
def two_dirs(fresh_broker, tmp_path):
    dirs = [tmp_path / "a", tmp_path / "b"]
    broker = fresh_broker({"log.dirs": ",".join(map(str, dirs))}).start()
    yield broker, dirs
    broker.stop()


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_the_java_admin_client_moves_a_replica(two_dirs, topic_name, version):
    broker, dirs = two_dirs
    with broker.connect() as c:
        c.new_topic(topic_name)
        for i in range(20):
            assert c.produce(topic_name, 0, build([Record(b"%d" % i, b"x" * 50000)])).ErrorCode == 0
        (here,) = [d for d in dirs if (d / f"{topic_name}-0").exists()]
        there = next(d for d in dirs if d != here)
        classpath = f"{BUILD}/interop/java:{BUILD}/kafka-{version}/libs/*"
        moved = run_program(
            ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", classpath, "MoveReplica"]
            + [broker.bootstrap, topic_name, "0", "0", str(there)]
        )
        assert f"ok: {there} lag 0" in moved
        assert [r.key for r in c.read_all(topic_name, 0)] == [b"%d" % i for i in range(20)]
        tool = java_tools(version).run(
            "org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", broker.bootstrap, "--describe"
        )
        described = json.loads(tool.splitlines()[-1])
        rows = {d["logDir"]: d for d in described["brokers"][0]["logDirs"]}
        assert [p["partition"] for p in rows[str(there)]["partitions"]] == [f"{topic_name}-0"]
        assert rows[str(here)]["partitions"] == [] and rows[str(here)]["error"] is None
