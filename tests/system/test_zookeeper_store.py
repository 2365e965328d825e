"""The ZooKeeper store (src/coord/zookeeper.h) through zookeeper_store.c, with servers that stop, die and forget it."""

import json
import pathlib
import subprocess
import threading

import pytest

import zookeeper
from brokers import ENDS_WITH_US, READY_SECONDS, Broker, free_port, wait_until

pytestmark = pytest.mark.barnabas_only

PROGRAM = pathlib.Path(Broker.binary()).parent / "tests/zookeeper_store"


class Store:
    """One session.  ask() returns a call's number at once, answer() waits for its result."""

    def __init__(self, connect, **options):
        words = [f"{name}={value}" for name, value in {"connect": connect, **options}.items()]
        self.process = subprocess.Popen(
            [*ENDS_WITH_US, PROGRAM, "drive", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines, self.calls, self.errors = [], 0, ""
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def _read_errors(self):
        self.errors = ""
        for line in self.process.stderr:
            self.errors += line

    def _find(self, wanted, what, start=0):
        def found():
            return next((line for line in self.lines[start:] if wanted(line)), None)

        return wait_until(found, READY_SECONDS, f"{what}; what came: {self.lines[-20:]}\n{self.errors[-4000:]}")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.say(line)
        self.calls += 1
        return self.calls

    def answer(self, number):
        return self._find(lambda line: line.get("call") == number, f"the answer to call {number}")

    def call(self, line):
        return self.answer(self.ask(line))

    def answered(self, number):
        return any(line.get("call") == number for line in self.lines)

    def state(self, name, start=0):
        """The news of this name, waiting for it; `start`: only what came after that many lines."""
        return self._find(lambda line: line.get("state") == name, f"the session is {name}", start)

    def event(self, name, path, start=0):
        return self._find(lambda line: line.get("event") == name and line["path"] == path, f"{name} {path}", start)

    def events(self):
        return [(line["event"], line["path"]) for line in self.lines if "event" in line]

    def end(self):
        """Waits for the end of the process, which must find nothing wrong."""
        assert self.process.wait(READY_SECONDS) == 0, self.errors[-4000:]
        for thread in self._threads:
            thread.join()

    def close(self):
        self.say("close")
        self._find(lambda line: "closed" in line, "the session is closed")
        self.process.stdin.close()
        self.end()


@pytest.fixture
def ensemble(tmp_path):
    one = zookeeper.Ensemble(tmp_path)
    try:
        yield one.start()
    finally:
        one.close()


@pytest.fixture
def three(tmp_path):
    ensemble = zookeeper.Ensemble(tmp_path, members=3)
    try:
        yield ensemble.start()
    finally:
        ensemble.close()


@pytest.fixture
def open_store():
    made = []

    def make(connect, **options):
        made.append(Store(connect, **options))
        return made[-1]

    yield make
    for store in made:
        if store.process.poll() is None:
            store.process.kill()
            store.process.wait()


def test_zookeepers_rules_hold(ensemble):
    done = subprocess.run([PROGRAM, "cases", ensemble.connect], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_calls_wait_for_a_server_that_comes_back(ensemble, open_store):
    store = open_store(ensemble.connect, session=10000)
    first = store.state("connected")["session"]
    assert store.call("create /mine e x")["err"] == "OK"
    assert store.call("get /mine w")["err"] == "OK"
    ensemble.kill()
    store.state("disconnected")
    waiting = [store.ask("create /late - -"), store.ask("get /late -"), store.ask("create /late - -")]
    assert not any(store.answered(number) for number in waiting)
    at = len(store.lines)
    ensemble.start()
    assert store.state("connected", at)["session"] == first
    assert [store.answer(number)["err"] for number in waiting] == ["OK", "OK", "ERR_EXISTS"]
    assert store.call("get /mine -")["owner"] == first  # the session is the same
    with ensemble.client() as zk:
        zk.set("/mine", b"y")
    store.event("changed", "/mine")  # and so is its watch
    store.close()
    with ensemble.client() as zk:
        assert not zk.exists("/mine")


def test_a_change_that_was_missed_fires_the_watch(ensemble, open_store, tmp_path):
    store = open_store(ensemble.connect, session=10000)
    for path in ("/changed", "/gone", "/parent"):
        store.call(f"create {path} - 1")
    store.call("get /changed w")
    store.call("get /gone w")
    store.call("children /parent w")
    store.call("exists /new w")
    store.process.send_signal(19)
    with ensemble.client() as zk:
        zk.set("/changed", b"2")
        zk.delete("/gone")
        zk.create("/parent/child")
        zk.create("/new")
    ensemble.kill()  # the connection with what is on its way goes
    store.process.send_signal(18)
    ensemble.start()
    for name, path in (("changed", "/changed"), ("deleted", "/gone"), ("children", "/parent"), ("created", "/new")):
        store.event(name, path)
    assert len(store.events()) == 4
    store.close()


def test_writes_that_were_out_are_unsure_and_reads_are_asked_again(ensemble, open_store):
    store = open_store(ensemble.connect, session=10000)
    store.state("connected")
    store.call("create /a - old")
    ensemble[0].pause()
    out = [store.ask("create /b - x"), store.ask("get /a -"), store.ask("set /a -1 new"), store.ask("get /a -")]
    ensemble[0].kill()
    store.state("disconnected")
    assert store.answer(out[0])["err"] == "ERR_UNSURE"
    assert not store.answered(out[2])  # in order: the read before it is still to come
    ensemble.start()
    results = [store.answer(number) for number in out]
    assert [r["err"] for r in results] == ["ERR_UNSURE", "OK", "ERR_UNSURE", "OK"]
    assert results[1]["data"] == results[3]["data"] == "old"  # nothing had been sent to the dead server's disk
    order = [line["call"] for line in store.lines if "call" in line]
    assert order == sorted(order)
    store.close()


def test_an_expired_session_ends_everything_and_is_renewed(ensemble, open_store):
    store = open_store(ensemble.connect, session=4000)
    first = store.state("connected")["session"]
    store.call("create /mine e -")
    store.call("create /kept - -")
    store.call("get /kept w")
    at = len(store.lines)
    ensemble.expire_owner("/mine")
    store.state("expired", at)
    assert store.call("get /kept -")["err"] == "ERR_EXPIRED"
    assert store.call("create /late - -")["err"] == "ERR_EXPIRED"
    at = len(store.lines)
    store.say("renew")
    late = store.ask("create /mine e -")
    second = store.state("connected", at)["session"]
    assert second != first
    assert store.answer(late)["err"] == "OK"
    assert store.call("get /mine -")["owner"] == second
    store.call("set /kept -1 x")
    assert store.call("get /kept -")["data"] == "x"
    assert store.events() == []  # the watch went with its session
    store.close()


def test_a_process_that_stood_still_past_its_timeout_has_expired(ensemble, open_store):
    store = open_store(ensemble.connect, session=1000)
    store.state("connected")
    store.call("create /mine e -")
    store.process.send_signal(19)
    with ensemble.client() as zk:
        wait_until(lambda: not zk.exists("/mine"), READY_SECONDS, "the session expires")
    at = len(store.lines)
    lost = store.ask("get /mine -")
    store.process.send_signal(18)
    assert store.answer(lost)["err"] == "ERR_EXPIRED"
    store.state("expired", at)
    store.close()


def test_what_is_out_when_a_session_turns_out_to_be_over_is_answered(ensemble, open_store):
    """The library drops answers that its threads have not told yet when a handle is closed."""
    store = open_store(ensemble.connect, session=1000)
    store.state("connected")
    store.call("create /kept - -")
    for _ in range(5):
        assert store.call("create /mine e -")["err"] == "OK"
        store.process.send_signal(19)
        with ensemble.client() as zk:
            wait_until(lambda: not zk.exists("/mine"), READY_SECONDS, "the session expires")  # noqa: B023
        at = len(store.lines)
        lost = [(store.ask("get /kept -"), store.ask("set /kept -1 x")) for _ in range(200)]
        store.process.send_signal(18)
        for read, write in lost:
            assert store.answer(read)["err"] == "ERR_EXPIRED"
            assert store.answer(write)["err"] in ("ERR_EXPIRED", "ERR_UNSURE")
        store.state("expired", at)
        at = len(store.lines)
        store.say("renew")
        store.state("connected", at)
    store.close()


def test_three_servers_lose_their_leader(three, open_store):
    store = open_store(three.connect, session=10000)
    first = store.state("connected")["session"]
    store.call("create /mine e -")
    for _ in range(2):
        leader = three.leader()
        leader.kill()
        numbers = [store.ask("get /mine -") for _ in range(20)]
        for number in numbers:
            assert store.answer(number)["owner"] == first
        leader.start()
    assert store.call("set /mine -1 x")["err"] in ("OK", "ERR_UNSURE")
    assert not any(line.get("state") == "expired" for line in store.lines)
    store.close()


def test_ten_thousand_creates_are_pipelined_in_order(ensemble, open_store):
    store = open_store(ensemble.connect + "/flood", in_flight=1000)
    store.call("create /topics - -")
    done = store.call("flood /topics/a-topic-with-a-name-of-some-length- 10000")
    assert (done["err"], done["wrong"]) == ("OK", 0)
    names = store.call("children /topics -")["children"]
    assert len(names) == 10000 and names == sorted(names)
    store.close()


def test_more_children_than_fit_a_request_are_listed(ensemble, open_store):
    store = open_store(ensemble.connect, in_flight=1000)
    store.call("create /topics - -")
    long_name = "n" * 120
    store.call(f"flood /topics/{long_name} 12000")
    assert len(store.call("children /topics -")["children"]) == 12000  # 1.5 MB, more than jute.maxbuffer
    store.close()


def test_more_watches_than_fit_a_request_outlive_a_connection(ensemble, open_store):
    store = open_store(ensemble.connect + "/w", session=10000, in_flight=1000)
    first = store.state("connected")["session"]
    long_name = "n" * 120
    assert store.call(f"watch /{long_name} 12000")["err"] == "OK"  # 1.5 MB of paths
    at = len(store.lines)
    ensemble.kill()
    ensemble.start()
    assert store.state("connected", at)["session"] == first
    assert store.call("exists / -")["err"] == "OK"
    given_up = len(store.events())
    assert 0 < given_up < 12000
    with ensemble.client("/w") as zk:
        for number in (0, 11999):
            zk.create(f"/{long_name}{number}")
    # The one was given up and has fired, the other is watched still.
    wait_until(
        lambda: len({path for _, path in store.events()} & {f"/{long_name}0", f"/{long_name}11999"}) == 2,
        READY_SECONDS,
        "both watches fire",
    )
    assert sum(name == "created" for name, _ in store.events()) >= 1
    assert sum(line.get("state") == "disconnected" for line in store.lines) == 1
    store.close()


def test_a_multi_is_all_or_nothing_below_a_chroot(ensemble, open_store):
    store = open_store(ensemble.connect + "/a/b")
    steps = ["create,/n,-,1", "create,/n/s_,s,2", "set,/n,0,3", "check,/n,1"]
    done = store.call("multi " + " ".join(steps))
    assert [step["err"] for step in done["steps"]] == ["OK"] * 4
    assert done["steps"][1]["path"] == "/n/s_0000000000"
    assert done["steps"][2]["version"] == 1
    big = [f"create,/n/{i:04},-,{'x' * 400}" for i in range(1500)]
    assert store.call("multi " + " ".join(big))["err"] == "OK"
    failed = store.call("multi create,/m,-,- check,/n,7 create,/l,-,-")
    assert [step["err"] for step in failed["steps"]] == ["OK", "ERR_VERSION", "ERR_AGAIN"]
    assert store.call("exists /m -")["err"] == "ERR_NOT_FOUND"
    with ensemble.client() as zk:
        assert zk.get("/a/b/n")[0] == b"3"
        assert len(zk.get_children("/a/b/n")) == 1501
    store.close()


def test_nobody_there_is_a_failure_that_names_the_servers(open_store):
    ports = free_port(), free_port()
    connect = f"127.0.0.1:{ports[0]},[::1]:{ports[1]}/kafka"
    store = open_store(connect, connection=1500)
    waiting = store.ask("get /a -")
    news = store.state("failed")
    assert news["err"] == "ERR_TIMEOUT"
    assert f"127.0.0.1:{ports[0]}" in news["text"] and "1500 ms" in news["text"]
    assert store.answer(waiting)["err"] == "ERR_TIMEOUT"
    assert store.call("get /a -")["err"] == "ERR_TIMEOUT"
    store.close()


def test_names_that_nobody_knows_are_a_failure(open_store):
    store = open_store("no-such-host.invalid:2181", connection=1000)
    assert "no-such-host.invalid" in store.state("failed")["text"]
    store.close()


def test_a_server_that_comes_late_is_waited_for(ensemble, open_store):
    ensemble.kill()
    store = open_store(ensemble.connect + "/late", connection=60000)
    waiting = store.ask("create /a - -")
    ensemble.start()
    assert store.answer(waiting)["err"] == "OK"
    store.close()


@pytest.mark.parametrize(
    "connect, words",
    [
        ("a:b", "'a:b'"),
        ("", "''"),
        ("a,,b", "''"),
        ("a:70000", "'a:70000'"),
        ("[::1:2181", "'[::1:2181'"),
        ("a:1/x//y", "'/x//y'"),
        ("a:1/" + "x" * 200, "longer than"),
    ],
)
def test_bad_addresses_are_refused_at_once(connect, words):
    done = subprocess.run([PROGRAM, "drive", f"connect={connect}"], capture_output=True, text=True, timeout=60)
    refused = json.loads(done.stdout)
    assert refused["refused"] == "ERR_INVALID" and words in refused["text"], refused


def test_what_the_library_cannot_do_is_refused():
    done = subprocess.run([PROGRAM, "drive", "connect=a:1", "tls=1"], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["refused"] == "ERR_UNSUPPORTED"
    done = subprocess.run([PROGRAM, "drive", "connect=a:1", "set_acl=1"], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["refused"] == "ERR_INVALID"


def test_ipv6_and_the_default_port_are_understood(tmp_path, open_store):
    one = zookeeper.Ensemble(tmp_path, hosts=["::1"])
    try:
        one.start()
        store = open_store(f"[::1]:{one[0].port}")
        assert store.call("create /a - -")["err"] == "OK"
        store.close()
    finally:
        one.close()


def test_closing_out_of_reach_ends_soon_with_an_answer_to_each(ensemble, open_store):
    store = open_store(ensemble.connect, session=4000)
    store.call("create /a - -")
    ensemble.kill()
    store.state("disconnected")
    numbers = [store.ask("create /b - -"), store.ask("get /a -")]
    store.close()
    assert [store.answer(number)["err"] for number in numbers] == ["ERR_CLOSED", "ERR_CLOSED"]


def test_closing_on_a_server_that_hangs_ends(ensemble, open_store):
    store = open_store(ensemble.connect, session=2000)
    store.call("create /a - -")
    ensemble[0].pause()
    numbers = [store.ask("create /b - -"), store.ask("get /a -")]
    store.close()
    assert [store.answer(number)["err"] for number in numbers] == ["ERR_UNSURE", "ERR_CLOSED"]


def test_a_user_owns_its_nodes_as_kafka_has_it(ensemble, open_store):
    store = open_store(ensemble.connect + "/kafka", user="barnabas", password="a-secret", set_acl=1)
    store.state("connected")
    for path in ("/brokers", "/brokers/topics", "/config", "/config/users", "/config/users/alice", "/consumers"):
        assert store.call(f"create {path} - x")["err"] == "OK"
    store.call("multi create,/brokers/topics/t,-,x create,/config/brokers,-,x")

    def acl(zk, path):
        return sorted((entry.id.scheme, entry.id.id.split(":")[0], entry.perms) for entry in zk.get_acls(path)[0])

    with ensemble.client(auth_data=[("digest", "barnabas:a-secret")]) as zk:
        shared = [("digest", "barnabas", 31), ("world", "anyone", 1)]
        private = [("digest", "barnabas", 31)]
        for path in ("", "/brokers", "/brokers/topics/t", "/config"):
            assert acl(zk, "/kafka" + path) == shared, path
        for path in ("/config/users", "/config/users/alice", "/config/brokers"):
            assert acl(zk, "/kafka" + path) == private, path
        assert acl(zk, "/kafka/consumers") == [("world", "anyone", 31)]
    other = open_store(ensemble.connect + "/kafka", user="somebody", password="else")
    assert other.call("get /brokers -")["data"] == "x"
    denied = other.call("set /brokers -1 y")
    assert denied["err"] == "ERR_DENIED" and "authenticated" in denied["text"]
    assert other.call("get /config/users/alice -")["err"] == "ERR_DENIED"
    refused = other.call("multi set,/consumers,-1,y set,/brokers,-1,y")
    assert [step["err"] for step in refused["steps"]] == ["OK", "ERR_DENIED"]
    # A new connection says again who it is.
    at = len(store.lines)
    ensemble.kill()
    store.state("disconnected", at)
    ensemble.start()
    assert store.call("set /config/users/alice -1 y")["err"] == "OK"
    for one in (store, other):
        one.close()
        assert "a-secret" not in one.errors and "a-secret" not in json.dumps(one.lines)


def test_a_server_that_refuses_the_user_is_a_failure(tmp_path, open_store):
    one = zookeeper.Ensemble(tmp_path, config={"DigestAuthenticationProvider.enabled": "false"})
    try:
        one.start()
        store = open_store(one.connect, user="barnabas", password="a-secret")
        waiting = store.ask("get /a -")
        news = store.state("failed")
        assert news["err"] == "ERR_DENIED" and "'barnabas'" in news["text"]
        assert store.answer(waiting)["err"] == "ERR_DENIED"
        store.close()
        assert "a-secret" not in store.errors
    finally:
        one.close()
