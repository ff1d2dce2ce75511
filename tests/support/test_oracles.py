"""The oracles see what they are there to see: each is shown a history that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import oracles
from tests.support.oracles import Line, Told

from roost.core import (
    CancelRequested,
    Core,
    Event,
    Exited,
    JobId,
    NodeJoined,
    Outcome,
    RunId,
    Started,
    Submitted,
    snapshot,
)
from roost.core.wire import encode_decision, encode_event
from roost.live.recovery import snapshot_of
from roost.placement import placer
from roost.policies.fifo import fifo
from roost.store.rows import JobRow, JournalEntry
from roost.testing.builders import node, spec

A, B = JobId("a-1"), JobId("b-2")
HISTORY: tuple[Event, ...] = (
    NodeJoined(0.0, node("n0", 2)),
    Submitted(1.0, A, spec(2, 9.0)),
    Started(2.0, RunId(A, 1)),
    Submitted(3.0, B, spec(1, 9.0)),
    Exited(4.0, RunId(A, 1), Outcome.SUCCEEDED),
    Started(5.0, RunId(B, 1)),
    CancelRequested(6.0, B),
    Exited(7.0, RunId(B, 1), Outcome.CANCELLED),
)


def written(*events: Event) -> tuple[Core, list[JournalEntry]]:
    """A core and the journal of what it was told, one entry for each event."""
    core, entries = Core(fifo, placer("consolidate")), list[JournalEntry]()
    for seq, event in enumerate(events, start=1):
        core.handle(event)
        body = {
            "v": 1,
            "events": [encode_event(event)],
            "decisions": [encode_decision(decision) for decision in core.decisions],
            "notes": {"request": f"key-{event.job}"} if isinstance(event, Submitted) else {},
        }
        entries.append(JournalEntry(seq, f"id-{seq}", event.time, json.loads(json.dumps(body))))
    return core, entries


CORE, ENTRIES = written(*HISTORY)
ROWS: dict[str, JobRow] = {
    A: JobRow(A, "a", "ada", "default", "succeeded"),
    B: JobRow(B, "b", "ada", "default", "cancelled"),
}
TOLD = (Told("submit", A, f"key-{A}"), Told("submit", B, f"key-{B}"), Told("cancel", B))


def test_a_sound_history_passes() -> None:
    folding = oracles.folded(ENTRIES)
    kept = [(8, snapshot_of(CORE)), (3, snapshot_of(written(*HISTORY[:3])[0]))]
    assert folding.problems == []
    assert oracles.accounted(ENTRIES, TOLD, ROWS) == []
    assert oracles.same_state(folding.core, snapshot.digest(CORE), ENTRIES, kept) == []
    assert oracles.unfinished(folding.core) == []
    assert oracles.agree(folding, ROWS) == []


def test_o1_sees_a_job_that_was_promised_and_lost() -> None:
    (found,) = oracles.accounted(ENTRIES, [Told("submit", "c-3")], ROWS)
    assert found == "submit of c-3 was acknowledged and is not in the journal"
    assert oracles.accounted(ENTRIES, [Told("cancel", A)], ROWS)
    assert not oracles.accounted(ENTRIES, [Told("cancel", A, over=True)], ROWS)


def test_o1_sees_a_job_that_was_made_twice() -> None:
    again = ENTRIES[1]._replace(seq=9)
    assert "job a-1 was submitted 2 times" in oracles.accounted([*ENTRIES, again], TOLD, ROWS)
    body = {**again.body, "events": [{**again.body["events"][0], "job": "c-3"}]}
    other = again._replace(body=body)
    found = oracles.accounted([*ENTRIES, other], TOLD, {**ROWS, "c-3": ROWS[A]})
    assert "request key-a-1 made 2 jobs: ['a-1', 'c-3']" in found


def test_o1_sees_a_job_that_no_list_has() -> None:
    assert oracles.accounted(ENTRIES, TOLD, {A: ROWS[A]}) == [
        "job b-2 is in the journal and in no list"
    ]


def test_o2_sees_two_trees_and_attempts_that_go_back() -> None:
    fine = [Line("start", A, "0", "1", 7), Line("stop", A, "0", "1", 7)]
    assert oracles.overlaps([*fine, Line("start", A, "0", "2", 8)]) == []
    assert oracles.overlaps([*fine, Line("clash", A, "0", "1", 8)])
    assert oracles.overlaps([Line("start", A, "0", "2", 8), *fine])


def test_the_ledger_is_read_back(tmp_path: Path) -> None:
    assert oracles.read_ledger(tmp_path / "none") == []
    (tmp_path / "ledger").write_text("start a-1 0 1 4711\n")
    assert oracles.read_ledger(tmp_path / "ledger") == [Line("start", "a-1", "0", "1", 4711)]


def test_o3_sees_a_device_that_is_held_twice() -> None:
    place = ENTRIES[1].body["decisions"]
    entry = ENTRIES[3]
    wrong = entry._replace(body={**entry.body, "decisions": [{**place[0], "job": B}]})
    folding = oracles.folded([*ENTRIES[:3], wrong])
    assert folding.problems
    assert folding.problems[0].startswith("entry 4: ")


def test_o4_sees_a_process_that_outlived_its_run() -> None:
    mark = f"ROOST_ORACLE_TEST={os.getpid()}"
    name, _, value = mark.partition("=")
    env = {name: value, "ROOST_RUN_TOKEN": "t", "ROOST_JOB": A, "ROOST_ATTEMPT": "2", "RANK": "0"}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert oracles.leftovers(mark, {(A, 2)}) == []
        assert oracles.leftovers(mark, {(A, 1)}) == [f"process {child.pid} of a-1#2 is left over"]
        child.kill()
    assert oracles.leftovers(mark, ()) == []


def test_o5_sees_another_state() -> None:
    folding = oracles.folded(ENTRIES)
    assert oracles.same_state(folding.core, "0" * 64, ENTRIES, ())
    stale = snapshot_of(written(*HISTORY[:3])[0])
    found = oracles.same_state(folding.core, snapshot.digest(CORE), ENTRIES[4:], [(4, stale)])
    assert found


def test_o6_sees_who_still_waits() -> None:
    folding = oracles.folded(ENTRIES[:-2])
    assert oracles.unfinished(folding.core) == ["b-2 is still running"]


def test_o7_sees_an_end_that_was_taken_back() -> None:
    folding = oracles.folded(ENTRIES[:5])
    folding.core.jobs[A].state = folding.core.jobs[B].state
    folding.take(ENTRIES[5])
    assert any("a-1 was succeeded, is" in problem for problem in folding.problems)


def test_lists_that_say_something_else_are_seen() -> None:
    wrong = {A: replace(ROWS[A], state="failed"), "c-3": replace(ROWS[A], id="c-3")}
    assert oracles.agree(oracles.folded(ENTRIES), wrong) == [
        "a-1 is listed as failed, the journal says succeeded",
        "c-3 is listed and the journal does not know it",
    ]


def test_a_journal_is_saved_and_read_back(tmp_path: Path) -> None:
    oracles.save_journal(tmp_path / "j", ENTRIES, {"seed": 7})
    assert oracles.load_journal(tmp_path / "j") == ({"seed": 7}, ENTRIES)


def test_nobody_is_asked_while_folding() -> None:
    core = oracles.Folding().core
    with pytest.raises(AssertionError, match="was asked while"):
        core.handle(NodeJoined(0.0, node("n0", 2)), Submitted(1.0, A, spec(1, 9.0)))


def test_a_member_that_is_started_twice_is_seen() -> None:
    once = [Line("start", "a", "worker-1.0", "1", 10), Line("stop", "a", "worker-1.0", "1", 10)]
    others = [
        Line("start", "a", "worker-1.1", "1", 11),
        Line("start", "a", "worker-2.0", "1", 12),
        Line("start", "a", "worker-1.0", "2", 13),
    ]
    assert oracles.doubles([*once, *others]) == []
    assert oracles.doubles([*once, *once]) == ["a#1: member worker-1.0 was started 2 times"]


@pytest.mark.parametrize(
    ("counted", "wrong"),
    [
        ([1, 2, 3], []),
        ([1, 2, 2, 1, 2, 3], []),
        ([2, 3], []),  # a clone begins where its snapshot ends
        ([1, 2], ["a counted to 2 in place of 3"]),
        ([], ["a counted to 0 in place of 3"]),
        ([1, 3], ["a went from step 1 to 3"]),
    ],
)
def test_steps_that_were_left_out_are_seen(counted: list[int], wrong: list[str]) -> None:
    assert oracles.miscounted("a", counted, 3) == wrong
