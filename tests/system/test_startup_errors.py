"""What stops a broker from starting: it says so clearly, exits with a status other than 0 and damages nothing."""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess

import pytest

from batches import Record, build
from brokers import free_port, wait_until
from rawkafka import Kerr

pytestmark = pytest.mark.barnabas_only

EXIT_SECONDS = 30


@pytest.fixture
def fails(fresh_broker):
    """fails(config, "text", ...): starting must end by itself, and what it prints must match every text."""

    def run(config, *texts, directory=None, arguments=None, port=None):
        broker = fresh_broker(config, directory=directory, port=port)
        if arguments is not None:
            broker.command = lambda: [broker.binary(), "broker", *map(str, arguments)]
        before = len(broker.output())
        broker.spawn()
        status = broker.wait(EXIT_SECONDS)
        output = broker.output()[before:]
        assert 0 < status < 126, f"exit status {status}:\n{output}"
        for text in texts:
            assert re.search(text, output, re.IGNORECASE), f"{text!r} is not in:\n{output}"
        broker.check()
        return output

    return run


def hashes(directory):
    """Path -> digest of all files below; lock files, which a try to start may touch, left out."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(pathlib.Path(directory).rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def stopped(fresh_broker):
    """A broker that has run, holds a topic with records, and is stopped."""
    broker = fresh_broker().start()
    with broker.connect() as c:
        c.new_topic("kept", 2)
        for i in range(10):
            assert c.produce("kept", i % 2, build([Record(value=b"%d" % i)])).ErrorCode == 0
    broker.stop()
    return broker


def still_good(broker):
    broker.start()
    with broker.connect() as c:
        c.await_topic("kept", 2)
        assert [r.value for r in c.read_all("kept", 0)] == [b"0", b"2", b"4", b"6", b"8"]
    broker.stop()


class TestConfiguration:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("num.partitions", "many"),
            ("num.partitions", "0"),
            ("log.segment.bytes", "1"),
            ("log.retention.ms", "1 week"),
            ("compression.type", "rar"),
            ("auto.create.topics.enable", "perhaps"),
            ("listeners", "PLAINTEXT://127.0.0.1:99999"),
            ("listeners", "NOSUCH://127.0.0.1:0"),
            ("listeners", "PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"),
            ("listeners", "nonsense"),
            ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092"),
            ("num.io.threads", "99999999999999999999"),
            ("log.cleanup.policy", "burn"),
        ],
    )
    def test_a_wrong_value_is_named_with_its_key(self, fails, key, value):
        fails(
            {key: value},
            re.escape(key),
            re.escape(value) if key != "listeners" and key != "advertised.listeners" else "listener",
        )

    def test_the_line_of_the_file_is_named(self, fails, tmp_path):
        file = tmp_path / "server.properties"
        file.write_text("# a comment\n\nlog.dirs=x\nnum.partitions=three\n")
        fails({}, r"server\.properties:4", r"num\.partitions", "three", arguments=[file])

    def test_a_file_that_is_not_there(self, fails, tmp_path):
        fails({}, r"no-such\.properties", arguments=[tmp_path / "no-such.properties"])

    @pytest.mark.parametrize("arguments", [["--override"], ["--override", "words"], ["--no-such-option"], ["a", "b"]])
    def test_a_wrong_command_line(self, fails, arguments):
        fails({}, "barnabas", arguments=arguments)

    def test_an_unknown_key_is_only_warned_of_and_the_nearest_is_named(self, fresh_broker):
        broker = fresh_broker({"num.partitons": "3"}).start()
        broker.stop()
        assert "num.partitons" in broker.output() and "num.partitions" in broker.output()


class TestAddresses:
    def test_a_port_in_use(self, fails):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            fails({}, f"{port}", "in use", port=port)

    def test_a_port_in_use_by_another_broker_leaves_that_alone(self, fails, fresh_broker):
        running = fresh_broker().start()
        fails({}, f"{running.port}", "in use", port=running.port)
        with running.connect() as c:
            assert c.new_topic("fine")
        running.stop()

    def test_an_address_that_is_not_ours(self, fails):
        fails({"listeners": f"PLAINTEXT://192.0.2.77:{free_port()}"}, r"192\.0\.2\.77")


class TestDirectories:
    def test_a_directory_in_use_by_another_process(self, fails, fresh_broker):
        running = fresh_broker().start()
        fails({"log.dirs": running.log_dir}, re.escape(str(running.log_dir)), "use|lock")
        with running.connect() as c:
            c.new_topic("fine")
            assert c.produce("fine", 0, build([Record(value=b"v")])).ErrorCode == 0
        running.stop()

    def test_the_second_of_two_directories_in_use(self, fails, fresh_broker, tmp_path):
        running = fresh_broker().start()
        fails({"log.dirs": f"{tmp_path / 'free'},{running.log_dir}"}, re.escape(str(running.log_dir)), "use|lock")
        running.stop()

    def test_a_partition_in_two_directories(self, fails, stopped, tmp_path):
        second = tmp_path / "second"
        shutil.copytree(stopped.log_dir / "kept-1", second / "kept-1")
        dirs = f"{stopped.log_dir},{second}"
        fails({"log.dirs": dirs}, r"two logs of one partition.*kept-1", directory=stopped.directory)
        shutil.rmtree(second)
        still_good(stopped)

    def test_a_directory_that_only_looks_like_a_partition_costs_nothing(self, stopped):
        (stopped.log_dir / "copy-2024010112").mkdir()
        still_good(stopped)
        assert stopped.start().rss_bytes() < 1 << 30
        stopped.stop()

    def test_a_lock_that_a_dead_process_left_is_none(self, stopped):
        stopped.start()
        stopped.kill()
        still_good(stopped)

    def test_a_file_in_the_place_of_the_directory(self, fails, tmp_path):
        (tmp_path / "file").write_text("mine")
        fails({"log.dirs": tmp_path / "file"}, re.escape(str(tmp_path / "file")))
        fails({"log.dirs": tmp_path / "file/below"}, re.escape(str(tmp_path / "file")))
        assert (tmp_path / "file").read_text() == "mine"

    def test_a_directory_that_may_not_be_written(self, fails, tmp_path):
        directory = tmp_path / "sealed"
        directory.mkdir()
        if os.geteuid() == 0:  # to whom permissions mean nothing
            with mounted(directory, "ro"):
                fails({"log.dirs": directory}, re.escape(str(directory)))
            return
        directory.chmod(0o500)
        fails({"log.dirs": directory}, re.escape(str(directory)), "permission|denied|written")

    def test_a_full_disk(self, fails, tmp_path):
        directory = tmp_path / "full"
        directory.mkdir()
        with mounted(directory, "size=64k"):
            fill(directory / "ballast")
            before = hashes(directory)
            fails({"log.dirs": directory}, re.escape(str(directory)), "full|space")
            assert hashes(directory) == before

    def test_a_disk_that_is_full_when_the_broker_comes_back(self, fails, fresh_broker, tmp_path):
        """It starts or it says why not; the records are there once there is room again."""
        directory = tmp_path / "full"
        directory.mkdir()
        with mounted(directory, "size=4m"):
            broker = fresh_broker({"log.dirs": directory}).start()
            with broker.connect() as c:
                c.new_topic("kept")
                assert c.produce("kept", 0, build([Record(value=b"v")])).ErrorCode == 0
            broker.stop()
            fill(directory / "ballast")
            broker.spawn()
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert broker.process.wait(5) != 0
                assert re.search("full|space", broker.output())
            broker.close()
            (directory / "ballast").unlink()
            broker.start()
            with broker.connect() as c:
                c.await_topic("kept", 1)
                assert [r.value for r in c.read_all("kept", 0)] == [b"v"]
            broker.stop()


@contextlib.contextmanager
def mounted(directory, options):
    """A small file system of its own on `directory`; the test is skipped where that may not be made."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(directory)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"no tmpfs may be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(path):
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


class TestDamage:
    @pytest.mark.parametrize("how", ["overwritten", "first page", "cut in half"])
    def test_a_corrupt_coordination_store(self, fails, stopped, how):
        store = stopped.log_dir / "barnabas-coord.db"
        good = store.read_bytes()
        bad = {
            "overwritten": os.urandom(len(good)),
            "first page": os.urandom(4096) + good[4096:],
            "cut in half": good[: len(good) // 2],
        }[how]
        store.write_bytes(bad)
        before = hashes(stopped.log_dir)
        fails({}, r"barnabas-coord\.db", directory=stopped.directory, port=stopped.port)
        assert hashes(stopped.log_dir) == before
        store.write_bytes(good)
        still_good(stopped)

    def test_a_coordination_store_of_another_program(self, fails, stopped):
        store = stopped.log_dir / "barnabas-coord.db"
        good = store.read_bytes()
        store.unlink()
        with contextlib.closing(sqlite3.connect(store)) as other:
            other.execute("create table bookmarks (url text)")
            other.commit()
        before = hashes(stopped.log_dir)
        fails({}, r"barnabas-coord\.db", directory=stopped.directory, port=stopped.port)
        assert hashes(stopped.log_dir) == before
        store.write_bytes(good)
        still_good(stopped)

    @pytest.mark.parametrize("end", ["stop", "kill"])
    @pytest.mark.parametrize("content", [b"0\n5\nkept 0 9", b"1\n1\nkept 0 4\n", bytes(range(256))])
    @pytest.mark.parametrize(
        "name",
        [
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
            "cleaner-offset-checkpoint",
        ],
    )
    def test_a_damaged_checkpoint_file_counts_as_empty_and_is_made_anew(self, stopped, name, content, end):
        stopped.start()
        getattr(stopped, end)()
        (stopped.log_dir / name).write_bytes(content)
        still_good(stopped)
        assert name in stopped.output() and "checkpoint_lost" in stopped.output()
        seen = len(stopped.output())
        still_good(stopped)
        assert "checkpoint_lost" not in stopped.output()[seen:]

    @pytest.mark.parametrize("line", ["broker.id=77", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", "version=9"])
    def test_meta_properties_of_another_broker_or_cluster(self, fails, stopped, line):
        meta = stopped.log_dir / "meta.properties"
        good = meta.read_text()
        key = line.split("=")[0]
        meta.write_text(re.sub(rf"(?m)^{re.escape(key)}=.*$", line, good))
        assert meta.read_text() != good
        before = hashes(stopped.log_dir)
        # Without a broker.id of its own a broker takes the one that the directory names.
        fails(
            {"broker.id": "0"},
            r"meta\.properties|broker\.id|cluster\.id",
            directory=stopped.directory,
            port=stopped.port,
        )
        assert hashes(stopped.log_dir) == before
        meta.write_text(good)
        still_good(stopped)

    def test_meta_properties_that_name_no_broker(self, fails, stopped):
        meta = stopped.log_dir / "meta.properties"
        good = meta.read_text()
        meta.write_text(re.sub(r"(?m)^broker\.id=.*\n", "", good))
        assert meta.read_text() != good
        before = hashes(stopped.log_dir)
        fails({"broker.id": "-1"}, r"meta\.properties .* Set broker\.id", directory=stopped.directory, port=stopped.port)
        assert hashes(stopped.log_dir) == before
        stopped.config["broker.id"] = "0"
        still_good(stopped)
        assert meta.read_text().count("broker.id=0") == 1


class TestStopping:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signals_stop_it_cleanly(self, fresh_broker, number):
        broker = fresh_broker().start()
        broker.process.send_signal(number)
        assert broker.wait() == 0
        broker.check()
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()

    def test_a_stop_with_connections_and_long_polls_does_not_wait_for_them(self, fresh_broker):
        broker = fresh_broker().start()
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(broker.connect()) for _ in range(20)]
            connections[0].new_topic("quiet")
            for c in connections:
                c.announced()
                c.send_fetch("quiet", 0, 0, max_wait_ms=600_000)
            broker.stop()

    def test_a_stop_does_not_wait_for_what_the_controller_cannot_finish(self, fresh_broker):
        broker = fresh_broker().start()
        with broker.connect() as c:
            c.new_topic("stuck")
            with mounted(broker.log_dir / "stuck-0", "size=1m"):  # a mount point cannot be renamed
                c.send("DeleteTopics", 5, TopicNames=["stuck"], TimeoutMs=600_000)
                wait_until(lambda: "replica_not_deleted" in broker.output(), 30, "the deletion has failed")
                broker.stop()
        broker.start()
        wait_until(lambda: not (broker.log_dir / "stuck-0").exists(), 30, "the next start has deleted it")
        broker.stop()

    def test_a_start_removes_what_a_broker_has_deleted_and_no_directory_besides(self, fresh_broker):
        broker = fresh_broker()
        left = broker.log_dir / ("gone-0." + "0" * 32 + "-delete")
        others = [broker.log_dir / name for name in ("backup-delete", "gone-0-delete", "a.b-delete")]
        for directory in (left, *others):
            directory.mkdir(parents=True)
            (directory / "file").write_text("precious")
        broker.start()
        wait_until(lambda: not left.exists(), 30, "what was deleted is removed")
        broker.stop()
        assert all((directory / "file").read_text() == "precious" for directory in others)
        assert broker.output().count("not the name of a deleted partition") == len(others)

    def test_a_deletion_that_could_not_rename_is_tried_again_while_the_broker_runs(self, fresh_broker):
        broker = fresh_broker({"log.segment.delete.delay.ms": "0"}).start()
        with broker.connect() as c:
            c.new_topic("stuck")
            with mounted(broker.log_dir / "stuck-0", "size=1m"):
                answer = c.call("DeleteTopics", 5, TopicNames=["stuck"], TimeoutMs=100).Responses[0]
                assert answer.ErrorCode == Kerr.REQUEST_TIMED_OUT
                assert "replica_not_deleted" in broker.output()
            wait_until(lambda: not (broker.log_dir / "stuck-0").exists(), 30, "it has been tried again")
            c.new_topic("stuck")
        broker.stop()

    def test_the_clean_mark_goes_when_it_runs(self, stopped):
        mark = stopped.log_dir / ".kafka_cleanshutdown"
        assert json.loads(mark.read_text())["version"] == 0
        stopped.start()
        assert not mark.exists()
        stopped.stop()
        assert mark.exists()
