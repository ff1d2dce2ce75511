"""A core as lines: only what changed is written anew, and what is damaged is refused."""

from __future__ import annotations

import json
import math

import pytest

from roost import placement
from roost.core import (
    Core,
    Job,
    JobId,
    JobSpec,
    NodeId,
    NodeJoined,
    NodeSpec,
    RunId,
    Started,
    Submitted,
)
from roost.core import snapshot as core_snapshot
from roost.core.wire import canonical
from roost.errors import InvalidSpec
from roost.live import state_text
from roost.live.recovery import read_snapshot, snapshot_of
from roost.live.state_text import StateText, is_packed, packed, state_pieces, unpacked
from roost.policies.fifo import fifo

PLACER = placement.placer("first-fit")


def crowd(jobs: int) -> Core:
    core = Core(fifo, PLACER)
    core.handle(NodeJoined(0.0, NodeSpec(NodeId("n"), gpus=2)))
    for number in range(jobs):
        core.handle(Submitted(1.0 + number, JobId(f"j{number}"), JobSpec(run_time_s=60.0)))
    return core


def test_lines_come_back_however_many_are_packed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = StateText(crowd(20)).lines()
    whole = packed(lines)
    monkeypatch.setattr(state_text, "_PACKED", 3)

    _, text = unpacked(packed(lines), fifo, PLACER)

    assert text.lines() == unpacked(whole, fifo, PLACER)[1].lines() == lines


def test_only_lines_of_jobs_that_changed_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    core = crowd(50)
    core.handle(Started(60.0, RunId(JobId("j0"), 1)), Started(60.0, RunId(JobId("j1"), 1)))
    text = StateText(core)
    before = text.lines()
    written: list[str] = []

    def write(core: Core, job: Job) -> str:
        written.append(job.id)
        return core_snapshot.job_line(core, job)

    monkeypatch.setattr(state_text, "job_line", write)
    assert text.lines() == before
    core.handle(Submitted(70.0, JobId("late"), JobSpec()))
    text.touch([JobId("late")])
    after = text.lines()

    assert written == ["late"]
    assert after[1:-1] == before[1:]
    assert core_snapshot.digest(unpacked(packed(after), fifo, PLACER)[0]) == core_snapshot.digest(
        core
    )


def test_jobs_that_ask_for_the_same_share_it_after_a_start() -> None:
    core, _ = read_snapshot(snapshot_of(crowd(5)), fifo, PLACER)

    assert len({id(job.spec) for job in core.jobs.values()}) == 1


def test_a_snapshot_in_plain_json_of_an_older_roost_is_read() -> None:
    core = crowd(3)
    again, text = read_snapshot(canonical(core_snapshot.dump(core)), fifo, PLACER)

    assert core_snapshot.digest(again) == core_snapshot.digest(core)
    assert text.lines() == StateText(again).lines()


def test_what_cannot_be_unpacked_is_refused() -> None:
    good = snapshot_of(crowd(3))
    head, first, *rest = StateText(crowd(3)).lines()
    bad = {
        "cut off": good[:-9],
        "no base64": f"{good}ü",
        "no job": packed([head, "nothing"]),
        "no spec": packed([head, first.partition("\t")[0]]),
        "twice": packed([head, first, first, *rest]),
        "no head": packed([]),
        "a list": packed(["[]"]),
        "other version": packed([head.replace('"version":2', '"version":3')]),
    }
    for what, text in bad.items():
        assert is_packed(text), what
        with pytest.raises(InvalidSpec):
            read_snapshot(text, fifo, PLACER)


def test_the_whole_state_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_text, "_PIECE", 3)
    for jobs in (0, 1, 3, 10):
        core = crowd(jobs)
        pieces = list(state_pieces(StateText(core).lines(), {"seq": 7}))
        told = json.loads("".join(pieces))

        assert len(pieces) == 2 + -(-jobs // 3)
        assert told["core"] == core_snapshot.dump(core)
        assert (told["seq"], told["digest"]) == (7, core_snapshot.digest(core))


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"seq": "1"}, "seq: expected a whole number"),
        ({"seq": True}, "seq: expected a whole number"),
        ({"id": 7}, "id: expected a text"),
        ({"submitted_at": math.nan}, "submitted_at: expected a number"),
        ({"queued_at": "soon"}, "queued_at: expected a number"),
        ({"run_time_s": "long"}, "run_time_s: expected a number"),
        ({"waits": [0.0]}, "has 1 waits"),
        ({"waits": 0.0}, "waits: expected a list"),
        ({"waiting": 1}, "waiting: expected true or false"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_a_line_with_something_odd_in_it_is_refused(odd: dict[str, object], why: str) -> None:
    head, *jobs = StateText(crowd(5)).lines()
    told, _, asked = jobs[-1].partition("\t")
    jobs[-1] = f"{json.dumps(json.loads(told) | odd)}\t{asked}"

    with pytest.raises(InvalidSpec, match=why):
        core_snapshot.load_lines(head, jobs, fifo, PLACER)


@pytest.mark.parametrize("line", ["{},{}\t{}", "\t{}", "[]\t{}", "{}"])
def test_a_line_is_about_one_job(line: str) -> None:
    head, *jobs = StateText(crowd(5)).lines()

    with pytest.raises(InvalidSpec):
        core_snapshot.load_lines(head, [*jobs, line], fifo, PLACER)


def test_jobs_that_only_wait_come_back_as_all_others_do() -> None:
    core = crowd(5)
    core.handle(Submitted(99.0, JobId("late"), JobSpec()))  # it does not say how long it runs
    head, *jobs = StateText(core).lines()

    found = core_snapshot.load_lines(head, jobs, fifo, PLACER)

    whole = core_snapshot.load(core_snapshot.dump(core), fifo, PLACER)
    assert core_snapshot.dump(found) == core_snapshot.dump(whole)
    assert [job.id for job in found.waiting] == [job.id for job in core.waiting]
