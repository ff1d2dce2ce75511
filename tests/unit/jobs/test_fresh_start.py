"""A process that begins anew because its policy is stuck: in another process, for it ends there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roost.core import Woke
from roost.jobs.fresh_start import VARIABLE, prepare
from roost.jobs.policy_guard import PolicyGuard
from roost.policies.fifo import fifo
from roost.testing.builders import core_with, node

#: Its policy holds out against everything, in a process that notes how often it began.
STUBBORN = """
import json, sys
from roost.core import Woke
from roost.jobs.fresh_start import prepare
from roost.jobs.policy_guard import PolicyGuard
from roost.jobs.policy_watch import PolicyWatch
from roost.testing.builders import core_with, node

def holds_out(plan):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass

watch = PolicyWatch(tick_s=0.01, stuck_s=0.1)
guard = PolicyGuard(holds_out, patience_s=0.05, watch=watch)
prepare(guard, before=lambda: open(sys.argv[1], "a").write("gone"))
core = core_with(guard)
core.handle(Woke(1.0))
trouble = guard.trouble
print(json.dumps([trouble.why, trouble.until - trouble.since, sys.argv[2:]]))
"""


def test_it_begins_anew_with_the_same_arguments_and_without_the_policy(tmp_path: Path) -> None:
    note = tmp_path / "note"
    found = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", STUBBORN, note, "a b", "--c"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert note.read_text() == "gone"
    why = "it took more than 0.05 s without a look at its plan, and could not be stopped"
    assert json.loads(found.stdout) == [why, 300.0, ["a b", "--c"]]


def test_the_policy_is_set_aside_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []
    for times in ("1", "2", "9", "77"):
        monkeypatch.setenv(VARIABLE, f"{times} it hung")
        guard = PolicyGuard(fifo)
        prepare(guard)
        core_with(guard, node("n0", 1)).handle(Woke(5.0))
        assert guard.trouble is not None
        pauses.append(guard.trouble.until - guard.trouble.since)
    assert pauses == [300, 600, 76800, 86400]


def test_without_such_a_past_the_policy_is_asked_at_once() -> None:
    guard = PolicyGuard(fifo)
    prepare(guard)
    core_with(guard, node("n0", 1)).handle(Woke(5.0))
    assert guard.trouble is None
