"""Timing decisions: the cluster is as crowded as it should be, whatever a policy asks for."""

from __future__ import annotations

import pytest

from roost.core.controller import Core
from roost.core.plan import Plan
from roost.core.spec import JobId
from roost.core.state import JobState
from roost.placement import placer
from roost.policies import policy
from roost.policies.kit.assignment import assign
from roost.policies.kit.moves import Wish, carry_on
from roost_bench.decisions import JobMix, RigidJobs, TrainingJobs, _Stage, time_decisions


def stage(decides: object, crowd: JobMix) -> _Stage:
    return _Stage(Core(decides, placer("first-fit")), crowd)  # type: ignore[arg-type]


def test_half_of_the_rigid_jobs_fill_the_cluster() -> None:
    found = stage(policy("fifo"), RigidJobs(4, 16))
    found.fill()
    assert len(found.core.runs) == 8
    assert sum(run.gpu_milli for run in found.core.runs.values()) == 32_000
    assert all(run.settled for run in found.core.runs.values())
    assert sum(job.waiting for job in found.core.jobs.values()) == 8


def test_in_each_round_one_job_ends_and_one_comes() -> None:
    found = stage(policy("fifo"), RigidJobs(4, 16))
    found.fill()
    for number in range(3):
        assert found.play(number, 10.0, cold=False) > 0
    over = [job for job in found.core.jobs.values() if job.state is JobState.SUCCEEDED]
    assert [job.id for job in over] == ["job-0", "job-1", "job-2"]
    assert {"new-0", "new-1", "new-2"} <= found.core.jobs.keys()
    assert found.now % 10.0 == 0.0


def test_trainees_run_on_three_kinds_and_tell_how_fast_they_are() -> None:
    crowd = TrainingJobs(3, 30)
    assert [node.kind for node in crowd.cluster()] == ["T4", "V100", "A100"]
    assert len({node.id for node in crowd.cluster()}) == 3
    found = stage(policy("fifo"), crowd)
    found.fill()
    found.play(0, 60.0, cold=False)
    found.play(1, 60.0, cold=False)
    seen = [job for job in found.core.jobs.values() if job.observed is not None]
    assert len(seen) >= 24
    assert {setting.kind for job in seen if job.observed for setting in job.observed.timings} == {
        *("T4", "V100", "A100")
    }
    faster: dict[str, float] = {
        run.allocation.nodes[0]: run.rate for run in found.core.runs.values() if run.settled
    }
    assert faster["node-0000"] < faster["node-0001"] < faster["node-0002"]
    waiting = next(job for job in found.core.jobs.values() if job.waiting)
    assert waiting.observed is None
    assert waiting.profile is not None


def grow_and_move(plan: Plan) -> None:
    """Every job in turn gets all GPUs of one kind or the other, the rest nothing."""
    carry_on(plan)
    turn = int(plan.now // 60)
    wishes: dict[JobId, Wish | None] = {
        job.id: None
        for job in plan.jobs.values()
        if job.waiting or (job.run is not None and job.run.settled)
    }
    if wishes:
        wishes[list(wishes)[turn % len(wishes)]] = Wish(("T4", "A100")[turn % 2], 8)
    assign(plan, wishes)


def test_runs_that_grow_move_and_step_aside_are_answered() -> None:
    found = stage(grow_and_move, TrainingJobs(3, 4))
    found.fill()
    for number in range(6):
        found.play(number, 60.0, cold=False)
    seen = [job for job in found.core.jobs.values() if job.observed is not None]
    assert len(seen) >= 2
    held = {node for run in found.core.runs.values() for node in run.allocation.nodes}
    assert held <= {"node-0000", "node-0002"}


@pytest.mark.parametrize("name", ["fifo", "srtf", "las", "alnair", "timeslice"])
@pytest.mark.parametrize("crowd", [RigidJobs(4, 12), TrainingJobs(3, 12)])
def test_all_sorts_of_policies_can_be_timed(name: str, crowd: JobMix) -> None:
    found = time_decisions(name, crowd, placer="first-fit", rounds=3, every_s=60.0)
    assert (found.policy, found.nodes, found.jobs) == (name, crowd.nodes, 12)
    assert 0 < found.median_ms <= found.worst_ms
    assert found.cold_ms > 0
