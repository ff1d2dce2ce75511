"""What a stop costs: the work since the last checkpoint, and the restart. All by hand."""

from __future__ import annotations

import math

import pytest
from tests.oracles.played import Played, Script, cluster, finish, job, play, rebooted, simulation

from roost.core import Costs, JobId, ResumeRequested, SuspendRequested
from roost.policies.fifo import fifo
from roost.policies.srtf import Srtf

(NODE,) = cluster(2)


def disturbed(costs: Costs, *times: float, gpus: int = 1) -> Played:
    """100 s of work on a node that reboots at these times."""
    sim = simulation(fifo, [job("a", 0, 100, gpus=gpus, costs=costs)], [NODE])
    for at in times:
        for event in rebooted(at, NODE):
            sim.world.schedule(event)
    return finish(sim)


@pytest.mark.parametrize(
    ("costs", "ends", "lost"),
    [
        pytest.param(Costs(), 100, 0, id="saves all the time"),
        pytest.param(Costs(checkpoint_every_s=math.inf), 130, 30, id="never saves"),
        pytest.param(Costs(checkpoint_every_s=20), 110, 10, id="saved 20 s"),
        pytest.param(Costs(checkpoint_every_s=7), 102, 2, id="saved 28 s, the fourth time"),
        pytest.param(Costs(checkpoint_every_s=30), 100, 0, id="saved at that very moment"),
        pytest.param(Costs(checkpoint_every_s=31), 130, 30, id="would have saved a second later"),
        # 4 s of work in 5: 24 s done at 30, 20 s saved at 25; 80 s of work take 100 s more.
        pytest.param(Costs(20, checkpoint_s=5), 130, 5, id="checkpoints cost a fifth of the time"),
        pytest.param(Costs(checkpoint_s=5), 100, 0, id="saving all the time costs nothing"),
        pytest.param(Costs(math.inf, checkpoint_s=5), 130, 30, id="never saving costs nothing"),
    ],
)
def test_a_stop_at_30_loses_the_work_since_the_last_checkpoint(
    costs: Costs, ends: float, lost: float
) -> None:
    played = disturbed(costs, 30)

    assert played.times == {"a": (0, ends)}
    assert played.rows["a"].lost_gpu_s == pytest.approx(lost, abs=1e-9)
    assert played.rows["a"].service_gpu_s == ends
    assert played.rows["a"].runs == 2


def test_checkpoints_cost_time_also_when_nothing_goes_wrong() -> None:
    assert disturbed(Costs(20, checkpoint_s=5)).times == {"a": (0, 125)}


def test_every_run_begins_a_period_of_its_own() -> None:
    # Lost at 30 (20 saved) and 45 (15 s into the next period of 20): 80 s are left at 45.
    assert disturbed(Costs(checkpoint_every_s=20), 30, 45).times == {"a": (0, 125)}


def test_work_saved_by_an_earlier_run_stays_saved() -> None:
    # 40 saved at 50; 20 more at 70; lost at 75: 40 s left.
    assert disturbed(Costs(checkpoint_every_s=20), 50, 75).times == {"a": (0, 115)}


def test_a_restart_is_paid_for_once_per_restart_and_not_at_the_first_start() -> None:
    costs = Costs(restart_s=10)

    assert disturbed(costs).times == {"a": (0, 100)}
    assert disturbed(costs, 30).times == {"a": (0, 110)}
    assert disturbed(costs, 30, 60).times == {"a": (0, 120)}
    assert disturbed(costs, 30, 60).began == {"a": [0, 40, 70]}


def test_a_restart_that_is_disturbed_begins_again() -> None:
    # Launched again at 30 and at 35, up at 45, 70 s left.
    played = disturbed(Costs(restart_s=10), 30, 35)

    assert played.times == {"a": (0, 115)}
    assert played.rows["a"].lost_gpu_s == 15


def test_losses_count_gpus() -> None:
    # 10 s of work and 5 s of restart, on 2 GPUs.
    played = disturbed(Costs(checkpoint_every_s=20, restart_s=5), 30, gpus=2)

    assert played.rows["a"].lost_gpu_s == 30
    assert played.rows["a"].service_gpu_s == 230


def test_a_preemption_costs_what_any_stop_costs() -> None:
    # a is stopped at 50 for b (5 s): 40 saved, 10 lost. b 50-55; a up at 58, 60 s left.
    played = play(
        Srtf(),
        job("a", 0, 100, costs=Costs(checkpoint_every_s=20, restart_s=3)),
        job("b", 50, 5),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 118), "b": (50, 55)}
    assert played.rows["a"].lost_gpu_s == 13
    assert played.rows["a"].preemptions == 1


def test_a_resize_does_not_put_off_checkpoints() -> None:
    # Saved 100 at 100; grown at 190; saved 210 at 200; shrunk at 250 (310 done), lost at 260 (320
    # done): 790 s are left.
    sim = simulation(
        Script({(190.0, "e"): 2, (250.0, "e"): 1}),
        [job("e", 0, 1000, workers=(1, 2), costs=Costs(checkpoint_every_s=100))],
        [NODE],
    )
    for event in rebooted(260, NODE):
        sim.world.schedule(event)

    assert finish(sim).times == {"e": (0, 1050)}


def suspended(costs: Costs) -> Played:
    """100 s of work, suspended by its user from 40 to 60."""
    sim = simulation(fifo, [job("a", 0, 100, costs=costs)], [NODE])
    sim.world.schedule(SuspendRequested(40.0, JobId("a")))
    sim.world.schedule(ResumeRequested(60.0, JobId("a")))
    return finish(sim)


def test_a_suspended_run_keeps_its_work_though_it_never_saved() -> None:
    assert suspended(Costs(checkpoint_every_s=math.inf)).times == {"a": (0, 120)}


def test_suspending_and_resuming_take_their_time() -> None:
    # Leaves 40-45, up again at 67 with 60 s left.
    played = suspended(Costs(suspend_s=5, restart_s=7))

    assert played.times == {"a": (0, 127)}
    assert played.rows["a"].service_gpu_s == 112
    assert played.rows["a"].lost_gpu_s == 12
    assert played.rows["a"].runs == 1


def test_while_a_job_is_suspended_others_use_its_gpu() -> None:
    sim = simulation(fifo, [job("a", 0, 100), job("b", 10, 15)], cluster(1))
    sim.world.schedule(SuspendRequested(40.0, JobId("a")))
    sim.world.schedule(ResumeRequested(50.0, JobId("a")))

    assert finish(sim).times == {"a": (0, 115), "b": (40, 55)}


def test_a_policy_may_suspend_too() -> None:
    # a leaves 30-34, b 34-44, a (which would lose all in a stop) goes on at 50 with 70 s left.
    played = play(
        Script(aside=frozenset({(30.0, "a")}), back={"a": 50.0}),
        job("a", 0, 100, costs=Costs(checkpoint_every_s=math.inf, suspend_s=4)),
        job("b", 30, 10),
        nodes=cluster(1),
    )

    assert played.times == {"a": (0, 120), "b": (34, 44)}
