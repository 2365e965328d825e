"""The broker's own log: log.file, log.level, and SIGHUP after a rotation."""
import signal

import pytest

from brokers import wait_until

pytestmark = pytest.mark.barnabas_only


def test_sighup_opens_the_log_file_anew(fresh_broker, tmp_path):
    log, rotated = tmp_path / "broker.log", tmp_path / "broker.log.1"
    broker = fresh_broker({"log.file": log})
    broker.start()
    wait_until(lambda: " started " in log.read_text(), 30, "the line that it has started")
    log.rename(rotated)
    broker.process.send_signal(signal.SIGHUP)
    wait_until(log.exists, 30, "a new log file")
    before = rotated.read_text()
    broker.stop()
    assert " stopped " in log.read_text()
    assert rotated.read_text() == before


def test_debug_shows_requests_and_answers(fresh_broker, tmp_path):
    log = tmp_path / "broker.log"
    broker = fresh_broker({"log.file": log, "log.level": "debug"})
    broker.start()
    with broker.connect() as conn:
        conn.new_topic("shown")
    wait_until(lambda: "api=CreateTopics" in log.read_text(), 30, "the request in the log")
    broker.stop()
    lines = [line for line in log.read_text().splitlines() if "api=CreateTopics" in line]
    assert any(" request " in line and '"name":"shown"' in line for line in lines)
    assert any(" answer " in line and '"errorCode":0' in line for line in lines)
