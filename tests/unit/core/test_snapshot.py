"""Snapshots: a core as JSON, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from roost.core import (
    Allocation,
    Core,
    Deleted,
    Exited,
    Job,
    JobId,
    Launch,
    MigrateRequested,
    NodeJoined,
    Outcome,
    Plan,
    QueueChanged,
    Range,
    Resize,
    Resized,
    Run,
    ScaleRequested,
    Started,
    Stop,
    Submitted,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.core.snapshot import VERSION, _JobRecord, _RunRecord, digest, dump, load
from roost.core.wire import canonical
from roost.errors import Conflict, InvalidSpec
from roost.placement import placer
from roost.policies import policy
from roost.testing.builders import (
    core_with,
    held,
    job,
    node,
    part,
    queue,
    run,
    shared,
    spec,
    started,
)
from roost.testing.checks import validate
from roost.testing.journal import differ, snapshot
from roost.testing.policies import Scripted

FIFO = policy("fifo")
FIRST_FIT = placer("first-fit")


def again(core: Core) -> Core:
    """The core from its snapshot, by way of text."""
    found = load(json.loads(canonical(dump(core))), core.policy, FIRST_FIT)
    validate(found, limits=False)
    assert not differ(snapshot(core), snapshot(found))
    assert digest(core) == digest(found)
    return found


def test_an_empty_core_comes_back() -> None:
    core = again(Core(FIFO, FIRST_FIT))

    assert core.handle(NodeJoined(0.0, node("n0")), Submitted(0.0, job("a"), spec(1))) == [
        Launch(run("a"), spec(1), held("n0", (0,)))
    ]


def test_who_runs_and_who_waits_comes_back() -> None:
    core = core_with(FIFO, node("n0", 4))
    core.handle(QueueChanged(0.0, queue("red", limit_milli=2000)))
    core.handle(*(Submitted(1.0, job(name), spec(2, 50.0, queue="red")) for name in "abc"))
    core.handle(Started(2.0, run("a")))

    found = again(core)

    assert found.jobs[job("a")].queue.used_milli == 2000
    assert [waiting.id for waiting in found.waiting] == ["b", "c"]
    assert found.wake_at == found.now == 2.0
    assert found.handle(Exited(9.0, run("a"), Outcome.SUCCEEDED)) == [
        Launch(run("b"), spec(2, 50.0, queue="red"), held("n0", (0, 1)))
    ]


def test_a_reserved_run_still_waits_for_the_one_that_leaves() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 2))
    core.handle(*(Submitted(1.0, job(name), spec(2)) for name in "ab"))
    started(core, script.at(core, 1.0, lambda plan: plan.place(plan.jobs[job("a")])), 2.0)
    script.at(
        core,
        3.0,
        lambda plan: plan.evict(plan.runs[run("a")], "for b"),
        lambda plan: plan.place(plan.jobs[job("b")]),
    )

    found = again(core)

    assert found.runs[run("b")].after == {run("a")}
    assert found.runs[run("a")].leaving == (part("n0", (0, 1)),)
    assert found.ledger.nodes[node("n0").id].leaving == 0b11
    assert found.handle(Exited(5.0, run("a"), Outcome.STOPPED)) == [
        Launch(run("b"), spec(2), held("n0", (0, 1)))
    ]


def test_a_run_that_gives_up_a_worker_but_not_its_device_comes_back() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 2))
    core.handle(Submitted(1.0, job("a"), spec(0.5, workers=(1, 2))))
    two = Allocation((part("n0", (0,), 1, 500), part("n0", (1,), 1, 500)))
    started(core, script.at(core, 1.0, _placed("a", two)), 2.0)
    script.at(core, 3.0, lambda plan: plan.resize(plan.runs[run("a")], 1))
    assert [len(left.gpus) for left in core.runs[run("a")].leaving] == [0, 1]

    found = again(core)

    assert found.runs[run("a")].leaving == core.runs[run("a")].leaving


def test_shares_parked_runs_and_broken_devices_come_back() -> None:
    core = core_with(FIFO, node("n0", 2, gpu_memory_mib=1000), node("n1", 1, switch="s1"))
    core.handle(*(Submitted(1.0, job(name), spec(0.5, 50.0)) for name in "abc"))
    core.handle(*(Started(2.0, run(name)) for name in "abc"))
    (action,) = core.handle(SuspendRequested(3.0, job("b")))
    core.handle(Suspended(4.0, action.run, 2.0))
    core.ledger.set_health(node("n0").id, 1, healthy=False)
    core.ledger.lose(node("n1").id)

    found = again(core)

    assert found.runs[run("b")].parked
    assert found.jobs[job("b")].held
    assert not found.ledger.nodes[node("n1").id].up
    assert found.ledger.free_milli == core.ledger.free_milli


def test_a_job_waits_for_the_end_of_its_back_off() -> None:
    core = core_with(FIFO, node("n0", 1))
    wanted = spec(1, max_retries=3)
    core.handle(Submitted(1.0, job("a"), wanted))
    core.handle(Started(2.0, run("a")))
    core.handle(Exited(3.0, run("a"), Outcome.FAILED, delay_s=10.0))

    found = again(core)

    assert not found.waiting.count
    assert found.handle(Woke(12.0)) == []
    assert found.wake_at == 13.0
    assert found.handle(Woke(13.0)) == [Launch(run("a", 2), wanted, held("n0", (0,)))]


def test_a_job_that_is_to_be_scaled_still_is() -> None:
    core = core_with(Scripted(), node("n0", 4))
    core.handle(Submitted(1.0, job("a"), spec(1, workers=(1, 4))))
    core.policy.at(core, 1.0, lambda plan: plan.place(plan.jobs[job("a")]))  # type: ignore[attr-defined]
    core.handle(ScaleRequested(2.0, job("a"), Range(3, 3)))  # it is starting: not yet

    found = again(core)
    found.handle(Started(3.0, run("a")))
    (action,) = found.handle(Woke(3.0))

    assert action.run == run("a")
    assert found.runs[run("a")].target is not None


def test_a_deleted_job_is_forgotten_but_not_its_number() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(1.0, job("a"), spec(1)))
    core.handle(Started(1.0, run("a")))
    core.handle(Exited(2.0, run("a"), Outcome.SUCCEEDED))
    core.handle(Deleted(3.0, job("a")))

    found = again(core)
    found.handle(Submitted(4.0, job("b"), spec(1)))

    assert found.finished == 1
    assert found.jobs[job("b")].seq == 1


def test_what_a_refused_batch_left_behind_comes_back() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(Submitted(1.0, job("a"), spec(1)))
    core.handle(Started(1.0, run("a")))
    core.handle(SuspendRequested(1.0, job("a")), Woke(1.0))
    with pytest.raises(Conflict):
        core.handle(
            Submitted(2.0, job("b"), spec(1)),
            MigrateRequested(2.0, job("b"), node("n0").id),
        )

    found = again(core)

    assert found.handle() == core.handle()
    assert digest(found) == digest(core)


def test_earlier_jobs_still_tell_about_later_ones() -> None:
    core = core_with(FIFO, node("n0", 1))
    wanted = spec(1, user="ada", application="vision")
    core.handle(Submitted(1.0, job("a"), wanted))
    core.handle(Started(1.0, run("a")))
    core.handle(Exited(31.0, run("a"), Outcome.SUCCEEDED, 30.0))

    found = again(core)
    found.handle(Submitted(40.0, job("b"), wanted))

    assert found.jobs[job("b")].run_time_s == 30.0
    assert found.history.service == core.history.service != []


def test_how_long_a_job_waited_for_what_comes_back_and_is_no_part_of_the_digest() -> None:
    core = core_with(FIFO, node("n0", 1))
    core.handle(*(Submitted(1.0, job(name), spec(1)) for name in "ab"))
    core.handle(Woke(11.0))

    found = again(core)

    waits = core.waiting.waits(core.jobs[job("b")], 11.0)
    assert sum(waits) == 10.0
    assert found.waiting.waits(found.jobs[job("b")], 11.0) == waits
    changed = dump(core)
    changed["jobs"][1]["waits"] = [10.0, 0.0, 0.0, 0.0]
    assert digest(load(changed, FIFO, FIRST_FIT)) == digest(core)


def test_every_fact_about_jobs_and_runs_is_kept() -> None:
    links = {"queue", "run", "line", "joined", "history"}
    derived = {"job", "workers", "gpu_milli", "recalled"}  # the last only while a plan is made

    assert set(_JobRecord._fields) == {field.name for field in fields(Job)} - links
    assert set(_RunRecord._fields) == {field.name for field in fields(Run)} - derived


def test_a_job_scaled_while_it_grows_beyond_that_comes_back_as_a_misfit() -> None:
    script = Scripted()
    core = core_with(script, node("n0", 4))
    script.steps.append(lambda plan: plan.place(plan.jobs[job("a")]))
    core.handle(Submitted(0.0, job("a"), spec(1, workers=(1, 3))))
    core.handle(Started(0.0, run("a")))
    script.at(core, 1.0, lambda plan: plan.resize(core.runs[run("a")], 3))
    core.handle(ScaleRequested(2.0, job("a"), Range(1, 1)))
    again = load(dump(core), Scripted(), FIRST_FIT)

    assert list(again.out_of_range) == [job("a")]
    (shrinks,) = again.handle(Resized(3.0, run("a")))
    assert isinstance(shrinks, Resize)
    validate(again)


def test_the_text_is_canonical() -> None:
    core = core_with(FIFO, node("n0", 2))
    core.handle(*(Submitted(1.0, job(name), spec(1)) for name in "ab"))
    text = canonical(dump(core))

    assert text == canonical(json.loads(text))
    assert list(json.loads(text)) == sorted(json.loads(text))


@pytest.mark.parametrize("data", [None, [], {}, {"version": 3, "x": 1}, {"version": True}, "x"])
def test_another_version_is_refused_before_anything_else(data: Any) -> None:
    with pytest.raises(InvalidSpec, match=f"this Roost reads versions 1 to {VERSION}"):
        load(data, FIFO, FIRST_FIT)


def busy() -> dict[str, Any]:
    """A core in motion: two leave for one that waits, and one holds a share."""
    script = Scripted()
    core = core_with(script, node("n0", 4), node("n1", 1))
    names = {"a": spec(1), "b": spec(1), "c": spec(2), "d": spec(0.5)}
    core.handle(*(Submitted(1.0, job(name), wanted) for name, wanted in names.items()))
    places = {"a": held("n0", (0,)), "b": held("n0", (1,)), "d": shared("n1", 0, 500)}
    begun = script.at(
        core,
        1.0,
        *(_placed(name, allocation) for name, allocation in places.items()),
    )
    started(core, begun, 2.0)
    script.at(
        core,
        3.0,
        lambda plan: plan.evict(plan.runs[run("a")], "for c"),
        lambda plan: plan.evict(plan.runs[run("b")], "for c"),
        _placed("c", held("n0", (0, 1))),
    )
    return dump(core)


def _placed(name: str, allocation: Allocation) -> Callable[[Plan], object]:
    return lambda plan: plan.place_at(plan.jobs[JobId(name)], allocation)


def test_the_busy_core_itself_is_fine() -> None:
    found = load(busy(), Scripted(), FIRST_FIT)

    validate(found)
    assert found.handle(
        Exited(4.0, run("a"), Outcome.STOPPED), Exited(4.0, run("b"), Outcome.STOPPED)
    ) == [Launch(run("c"), spec(2), held("n0", (0, 1)))]
    assert Stop(run("a"), "for c") not in found.handle()


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def _twice(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data[name].append(data[name][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("jobs", 0, "colour", to="red"), r"jobs\[0\]: unknown field 'colour'"),
        (_set("jobs", 0, "state", to="lazy"), r"jobs\[0\].state: expected one of queued"),
        (_set("runs", 0, "rate", to=None), r"runs\[0\].rate: expected a number"),
        (_set("more", to=1), "unknown field 'more'"),
        (_twice("jobs"), "job a is there twice"),
        (_twice("runs"), "there twice|another run"),
        (_twice("nodes"), "node n0 is there twice"),
        (_twice("queues"), "queue default is there twice"),
        (_set("queues", to=[]), "there is no queue default"),
        (_set("jobs", 0, "id", to="z"), "there is no job a"),
        (_set("jobs", 0, "state", to="failed"), "job a is failed and has another run"),
        (_set("jobs", 0, "waits", to=[1.0]), "job a has 1 waits"),
        (_set("nodes", 1, "spec", "id", to="n7"), "there is no node n1"),
        (_set("nodes", 1, "spec", "gpus", to=0), "is not on node n1 with 0 GPUs"),
        (_set("nodes", 0, "runs", to=[]), "node n0 lists other runs"),
        (_set("nodes", 0, "broken", to=[9]), "has no GPU 9"),
        (_set("runs", 2, "allocation", "parts", 0, "share_milli", to=0), "is no share of a GPU"),
        (_set("runs", 2, "allocation", "parts", 0, "role", to="ps"), "has no role 'ps'"),
        (_set("runs", 3, "allocation", "parts", 0, "gpus", to=[-1, 1]), "is not on node n0"),
        (_set("runs", 0, "phase", to="running"), "is not free"),
        (_set("leaving", to=[]), "nobody is to be told"),
        (_set("leaving", 0, "waiters", to=[]), "which does not know of it"),
        (_set("leaving", 0, "run", "attempt", to=9), "there is no run a#9"),
        (_set("jobs", 3, "waiting", to=True), "job d is running and stands in line"),
        (_set("out_of_range", to=["z"]), "there is no job z"),
    ],
)
def test_what_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    data = busy()
    change(data)

    with pytest.raises(InvalidSpec, match=message):
        load(json.loads(json.dumps(data)), FIFO, FIRST_FIT)


def test_ten_thousand_jobs_are_back_in_a_second() -> None:
    core = core_with(FIFO, *(node(f"n{index}", 8) for index in range(100)))
    wanted = spec(1, 100.0, user="ada", application="vision", cpu_milli=1000)
    core.handle(*(Submitted(1.0, job(f"j{index}"), wanted) for index in range(10_000)))
    core.handle(*(Started(1.0, run_id) for run_id in core.runs))
    text = canonical(dump(core))

    before = time.process_time()
    found = load(json.loads(text), FIFO, FIRST_FIT)
    passed = time.process_time() - before

    assert (len(found.runs), found.waiting.count) == (800, 9200)
    assert passed < 1.0, f"it took {passed:.2f} s"  # 0.25 s when this was written
