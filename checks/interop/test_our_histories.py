"""A bounded part of `make histories`, and tests that its oracle detects violations.

`SCALLA_HISTORIES=N` runs N histories against our server, `SCALLA_HISTORIES_THEIRS=N` against the real
one."""

import os

import pytest

import histories
from model import HERE, THERE

FIRST_SEED = 1
COUNTS = {"ours": int(os.environ.get("SCALLA_HISTORIES", "100")), "theirs": int(os.environ.get("SCALLA_HISTORIES_THEIRS", "20"))}
# Enough histories for each kind of sabotage to occur.
SABOTAGED = 60


@pytest.mark.parametrize("kind", COUNTS)
def test_random_histories_change_what_was_asked_for_alone(kind):
    violations, counts = histories.run(kind, range(FIRST_SEED, FIRST_SEED + COUNTS[kind]), processes=2)
    assert violations == []
    assert counts["commands"] >= COUNTS[kind] and counts["status 0"] and counts["status 1"]
    print(dict(counts))


def roots(history):
    return {HERE: history.here, THERE: history.there}


def change_beside(history, expectation, run):
    """A file changes that the command was not about."""
    (history.there / "precious" / "late").write_bytes(b"x")
    return run


def touch_beside(history, expectation, run):
    """The time of a file changes."""
    if os.path.lexists(history.here / "single"):
        os.utime(history.here / "single", (1, 1))
    return run


def succeed_always(history, expectation, run):
    """A failure ends with 0."""
    run.status = 0
    return run


def fail_always(history, expectation, run):
    """A success ends with 1."""
    run.status = run.status or 1
    return run


def cut_target(history, expectation, run):
    """A file that was copied ends too early."""
    for (side, path), states in expectation.want.items():
        place = os.fsencode(roots(history)[side]) + b"/" + path
        if any(isinstance(state, tuple) and len(state[1]) > 1 for state in states) and os.path.isfile(place):
            os.truncate(place, 1)
    return run


def undo_removal(history, expectation, run):
    """A file that was removed is there again."""
    for (side, path), states in expectation.want.items():
        place = os.fsencode(roots(history)[side]) + b"/" + path
        if "absent" in states and not os.path.lexists(place) and os.path.isdir(os.path.dirname(place)):
            open(place, "wb").close()
    return run


@pytest.mark.parametrize("sabotage", [change_beside, touch_beside, succeed_always, fail_always, cut_target, undo_removal],
                         ids=lambda sabotage: sabotage.__name__)
def test_the_oracle_notices(sabotage):
    with histories.Worker("ours", sabotage) as worker:
        for seed in range(FIRST_SEED, FIRST_SEED + SABOTAGED):
            try:
                worker.history(seed)
            except histories.Violation:
                return
    pytest.fail(f"{SABOTAGED} histories without a violation")
