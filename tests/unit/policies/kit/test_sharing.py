"""Who may share, who is together, and where there is room for one more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roost.core import Core, Plan, Qos, Started, Submitted
from roost.core.spec import JobSpec
from roost.policies.kit.sharing import Gpu, crowds, gpu_of, packable, rooms, seat, sit
from roost.testing.builders import core_with, job, node, role, run, spec
from roost.testing.policies import Scripted

N0 = node("n0", 2, gpu_memory_mib=1000)


def half(mib: int = 100, qos: Qos = Qos.BEST_EFFORT) -> JobSpec:
    return spec(0.5, 100, qos=qos, gpu_memory_mib=mib)


def sitting(name: str, gpu: int) -> Callable[[Plan], object]:
    """A step of a plan: a job goes to a device of n0."""
    return lambda plan: sit(plan, plan.jobs[job(name)], Gpu(N0.id, gpu))


def seated(*places: int, script: Scripted) -> Core:
    """Jobs a, b, ... on these devices of n0, up one after the other."""
    core = core_with(script, N0)
    for at, gpu in enumerate(places):
        name = "abcdef"[at]
        core.handle(Submitted(float(at), job(name), half()))
        script.at(core, float(at), sitting(name, gpu))
        core.handle(Started(float(at), run(name)))
    return core


@pytest.mark.parametrize(
    ("wanted", "may"),
    [
        (half(), True),
        (half(qos=Qos.EQUAL), True),
        (half(qos=Qos.FIXED), False),
        (spec(1, 9), False),
        (spec(0.5, 9, qos=Qos.EQUAL, workers=(1, 2)), False),
        (spec(0.5, 9, qos=Qos.EQUAL, roles=(role("ps", 1, 0),)), False),
    ],
)
def test_a_job_may_share_that_asks_for_a_part_which_grows(
    wanted: JobSpec,
    may: bool,  # noqa: FBT001
) -> None:
    core = core_with(Scripted(), N0)
    core.handle(Submitted(0.0, job("a"), wanted))

    assert packable(core.jobs[job("a")]) is may


def test_a_crowd_has_the_newest_last() -> None:
    script = Scripted()
    core = seated(1, 1, 0, script=script)
    found: list[dict[Gpu, list[str]]] = []

    def look(plan: Plan) -> None:
        found.append({gpu: [one.job.id for one in runs] for gpu, runs in crowds(plan).items()})

    script.at(core, 9.0, look)

    assert found == [{Gpu(N0.id, 1): ["a", "b"], Gpu(N0.id, 0): ["c"]}]
    assert gpu_of(core.runs[run("c")]) == Gpu(N0.id, 0)


def test_there_is_room_where_share_and_memory_are_left() -> None:
    script = Scripted()
    core = seated(1, script=script)
    core.handle(Submitted(5.0, job("small"), half(900)), Submitted(5.0, job("big"), half(901)))
    found: dict[str, list[tuple[int, bool]]] = {}

    def look(plan: Plan) -> None:
        for name in ("small", "big"):
            found[name] = [(gpu.number, empty) for gpu, empty in rooms(plan, plan.jobs[job(name)])]

    script.at(core, 9.0, look)

    assert found == {"small": [(1, False), (0, True)], "big": [(0, True)]}


def test_a_seat_is_one_share_of_one_device() -> None:
    core = core_with(Scripted(), N0)
    core.handle(Submitted(0.0, job("a"), half()))

    (part,) = seat(core.jobs[job("a")], Gpu(N0.id, 1)).parts

    assert (part.node, part.gpus, part.share_milli) == (N0.id, (1,), 500)
