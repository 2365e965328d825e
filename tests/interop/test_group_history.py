"""The checker of consumer groups finds each fault, and finds none where there is none."""

import pytest
from group_history import History


def play(*events, **more):
    """Events in short: "a assigned 0 1", "a record 0 5" (partition, offset, value), "a committed 0 6", "a stopped"."""
    history = History(**more)
    for event in events:
        name, kind, *numbers = event.split()
        numbers = [int(number) for number in numbers]
        fields = {}
        if kind in ("assigned", "revoked", "lost"):
            fields["partitions"] = [["t", index] for index in numbers]
        elif kind == "record":
            fields = {"t": "t", "p": numbers[0], "o": numbers[1], "v": f"{numbers[0]}-{numbers[-1]}"}
        elif kind in ("committed", "fetched"):
            fields["offsets"] = [["t", *numbers]]
        history.take({"m": name, "ev": kind, **fields})
    return history


SOUND = {
    "assigned again before it began": ["a assigned 0", "a assigned 0 1", "a record 0 0"],
    "a handover": [
        "a assigned 0 1",
        "a record 0 0",
        "a committed 0 1",
        "a revoked 0 1",
        "b assigned 0",
        "b record 0 1",
    ],
    "a crash, and what was not committed again": [
        *("a assigned 0", "a record 0 0", "a committed 0 1", "a record 0 1", "a killed"),
        *("b assigned 0", "b record 0 1", "b record 0 2", "b committed 0 3"),
    ],
    "a crash after a commit nobody told of": [
        *("a assigned 0", "a record 0 0", "a record 0 1", "a killed", "broker fetched 0 2"),
        *("b assigned 0", "b record 0 2"),
    ],
    "a stopped member that hears of it late": [
        *("a assigned 0", "a record 0 0", "a record 0 1", "a stopped", "b assigned 0", "b record 0 0", "a continued"),
        *("a record 0 2", "a refused", "a lost 0", "b revoked", "b record 0 1", "b committed 0 2"),
        *("b revoked 0", "a assigned 0", "a record 0 2"),
    ],
    "a refused commit, for which a client gives up": [
        *("a assigned 0", "a record 0 0", "a refused", "a lost 0", "a assigned 0", "a record 0 0", "a committed 0 1"),
    ],
    "a commit that came true before the member stopped": [
        *(
            "a assigned 0",
            "a record 0 0",
            "a stopped",
            "b assigned 0",
            "b record 0 1",
            "a continued",
            "a committed 0 1",
        ),
    ],
}

FAULTY = {
    "two owners": (["a assigned 0", "b assigned 0"], "has an owner, a"),
    "assigned again amid its work": (["a assigned 0", "a record 0 0", "a assigned 0"], "has an owner, a"),
    "handled by another": (["a assigned 0", "b record 0 0"], "the owner is a"),
    "handled after giving up": (["a assigned 0", "a revoked 0", "a record 0 0"], "the owner is None"),
    "a record skipped": (["a assigned 0", "a record 0 0", "a record 0 2"], "expected 1"),
    "a record repeated": (["a assigned 0", "a record 0 0", "a record 0 0"], "expected 1"),
    "the first record skipped": (["a assigned 0", "a record 0 1"], "starts outside"),
    "another value at the same offset": (
        ["a assigned 0", "a record 0 0", "a killed", "b assigned 0", "b record 0 0 7"],
        "another one before",
    ),
    "a takeover ahead of what was handled": (
        ["a assigned 0", "a record 0 0", "a killed", "b assigned 0", "b record 0 2"],
        "starts outside committed 0 to handled 1",
    ),
    "a takeover behind the commit": (
        [
            "a assigned 0",
            "a record 0 0",
            "a record 0 1",
            "a committed 0 2",
            "a revoked 0",
            "b assigned 0",
            "b record 0 1",
        ],
        "starts outside committed 2 to handled 2",
    ),
    "a takeover behind what the broker has": (
        ["a assigned 0", "a record 0 0", "a killed", "broker fetched 0 1", "b assigned 0", "b record 0 0"],
        "starts outside committed 1 to handled 1",
    ),
    "a commit that went back": (
        ["a assigned 0", "a record 0 0", "a committed 0 1", "a killed", "broker fetched 0 0"],
        "outside committed 1",
    ),
    "a commit of what nobody handled": (["a assigned 0", "a record 0 0", "a committed 0 2"], "outside committed 0"),
    "a commit by another": (["a assigned 0", "a record 0 0", "b committed 0 1"], "the owner is a"),
    "a fenced member's commit": (
        [
            *(
                "a assigned 0",
                "a record 0 0",
                "a record 0 1",
                "a stopped",
                "b assigned 0",
                "b record 0 0",
                "a continued",
            ),
            "a committed 0 2",
        ],
        "a fenced member's commit",
    ),
    "given up without a commit": (["a assigned 0", "a record 0 0", "a revoked 0"], "given up at 1 but committed 0"),
    "expelled for nothing": (["a assigned 0", "a lost 0"], "never stopped"),
    "expelled after a commit": (
        ["a assigned 0", "a record 0 0", "a refused", "a committed 0 1", "a lost 0"],
        "never stopped",
    ),
    "gave up another's": (["a assigned 0", "b revoked 0"], "not its own"),
    "left with a partition": (["a assigned 0", "a closed"], "left without giving up"),
    "failed": (["a failed"], "a member failed"),
}


@pytest.mark.parametrize("what", SOUND)
def test_a_sound_history_has_no_fault(what):
    assert play(*SOUND[what]).faults == []


@pytest.mark.parametrize("what", FAULTY)
def test_a_fault_is_found(what):
    *before, last = FAULTY[what][0]
    assert play(*before).faults == []
    assert FAULTY[what][1] in " ".join(play(*before, last).faults)


def test_a_frail_member_may_be_expelled_and_its_late_commit_is_found():
    events = ["a assigned 0", "a record 0 0", "a record 0 1", "b assigned 0", "b record 0 0", "a record 0 2"]
    assert play(*events, "a lost 0", frail=["a"]).faults == []
    assert "fenced" in play(*events, "a committed 0 2", frail=["a"]).faults[0]
    assert "has an owner, a" in play(*events).faults[0]


def test_a_member_that_commits_silently_need_not_tell_before_it_gives_up():
    assert (
        play("a assigned 0", "a record 0 0", "a revoked 0", "b assigned 0", "b record 0 1", silent=["a"]).faults == []
    )


def test_what_is_handled_and_owned_can_be_asked():
    history = play("a assigned 0 1", "a record 0 0", "a record 0 1", "a killed", "b assigned 0", "b record 0 0")
    assert history.owners() == {("t", 0): "b"} and history.owned("b") == {("t", 0)}
    assert (history.handled(("t", 0)), history.handled(("t", 1)), history.handled(("u", 0))) == (2, 0, 0)
    assert history.started(("t", 0)) and not history.started(("t", 1))
