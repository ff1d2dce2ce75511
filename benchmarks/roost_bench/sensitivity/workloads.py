"""Workloads drawn anew for every seed, and parameter-server jobs under other conditions than usual.

``conditions`` says what is different and ``sia`` makes it so in Sia's benchmark; here the same is
done to the jobs of ``optimus``. Nothing of it asks which policy runs: all are misled alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from roost.core.events import Measured
from roost.core.observed import Setting
from roost.core.spec import Costs, JobId, JobSpec
from roost.errors import Fatal
from roost.perf.speed import SpeedModel
from roost.sim.simulation import Setup
from roost.sim.worlds.rates import TrueJob, TrueRun
from roost.traces.generate import Arrivals, Synthetic, generate
from roost.traces.sia import SiaJob
from roost.traces.workload import TraceJob, Workload
from roost_bench.optimus.benchmark import OptimusBench
from roost_bench.optimus.world import ParameterServerWorld, TrueTraining
from roost_bench.sia.conditions import Conditions

_DAY_S = 86400.0
#: So many times as many bursts as in Philly's trace.
_SHORTER = 6
_SOON = 1e-6
#: A policy that leaves jobs at the size their users ask for: they are taken from its workload.
_AS_ASKED = "fifo"


def moments(arrivals: Arrivals, count: int, seed: int) -> list[float]:
    """When so many jobs come, in units of their mean distance; the first comes at 0.

    Daily arrivals run through one day, from midnight to midnight, however long that takes. Bursts
    are shorter than those of ``generate``, so that a small workload has several: of more jobs that
    come in such bursts some are picked by chance, and spread over as long as they should take.
    """
    many = count * _SHORTER if arrivals is Arrivals.BURSTY else count
    drawn = Synthetic(jobs=many, rate=many / _DAY_S, arrivals=arrivals, seed=seed)
    times = [job.submitted_at * count / _DAY_S for job in generate(drawn).jobs]
    if many == count:
        return times
    picked = sorted(Random(f"{seed}/bursts").sample(times, count))  # noqa: S311 - no secret
    wider = (count - 1) / max(picked[-1] - picked[0], _SOON)
    return [wider * (at - picked[0]) for at in picked]


def resample(rows: Sequence[SiaJob], times: Sequence[float], seed: int) -> list[SiaJob]:
    """Jobs like those of a workload, one for each time, in an order out of the hat.

    Every so-and-so-many-th of the sorted rows is taken, from a random one on: the mix of
    applications is that of the workload as nearly as it can be, so that seeds differ by chance
    alone and not by how many of the few long jobs they have.
    """
    chance = Random(f"{seed}/sample")  # noqa: S311 - no secret
    ordered = sorted(rows, key=lambda row: (row.application, row.workers, row.batch, row.id))
    begin, step = chance.random(), len(ordered) / len(times)
    picked = [ordered[int((number + begin) * step)] for number in range(len(times))]
    chance.shuffle(picked)
    return [
        row._replace(id=JobId(f"{row.application}-{number}"), submitted_at=at)
        for number, (row, at) in enumerate(zip(picked, times, strict=True))
    ]


def recorded(rows: Sequence[SiaJob], count: int, seed: int) -> list[float]:
    """Times between which jobs really came, from a random one on; after the last the first."""
    times = [row.submitted_at for row in rows]
    number = len(times)
    around_s = (times[-1] - times[0]) * number / max(number - 1, 1)
    first = Random(f"{seed}/window").randrange(number)  # noqa: S311 - no secret
    return [
        times[at % number] + at // number * around_s - times[first]
        for at in range(first, first + count)
    ]


# -- parameter servers -------------------------------------------------------------------------


def stressed(bench: OptimusBench, policy_text: str, conditions: Conditions) -> Setup:
    """One run of parameter-server jobs under a policy and conditions.

    With ``bench.told`` users also declare the epochs of jobs that the policy sizes.
    """
    seed = conditions.seed
    even = replace(bench, arrivals=Arrivals.UNIFORM.value)
    setup = even.setup(policy_text, seed)
    if not isinstance(setup.world, partial):
        raise Fatal("parameter-server jobs have no world with a truth of its own")
    truth: Mapping[JobId, TrueTraining] = setup.world.keywords["truth"]
    jobs = setup.workload.jobs
    gap_s = jobs[-1].submitted_at / max(len(jobs) - 1, 1) / conditions.load
    arrivals = conditions.arrivals or Arrivals(bench.arrivals)
    times = [gap_s * moment for moment in moments(arrivals, len(jobs), seed)]
    asked = {job.id: job.spec for job in even.setup(_AS_ASKED, seed).workload.jobs}
    changed = [
        _changed(replace(job, submitted_at=at), asked[job.id], truth[job.id], conditions, bench)
        for job, at in zip(jobs, times, strict=True)
    ]
    return replace(
        setup,
        workload=Workload(setup.workload.name, changed),
        failures=conditions.failures,
        world=partial(MisreadWorld, **setup.world.keywords, conditions=conditions),
    )


def _changed(
    job: TraceJob, asked: JobSpec, truth: TrueTraining, conditions: Conditions, bench: OptimusBench
) -> TraceJob:
    spec = job.spec
    if conditions.restart_s is not None:
        costs = Costs(restart_s=conditions.restart_s, resize_s=conditions.restart_s)
        spec = replace(spec, costs=costs)
    if conditions.stays(job.id):
        spec = replace(spec, workers=asked.workers, roles=asked.roles)
    if bench.told and spec.training is not None:
        ends_at = float(truth.course.converges_at())
        epochs = conditions.declared_epochs(job.id, ends_at)
        spec = replace(spec, training=replace(spec.training, epochs=epochs))
    if spec.run_time_s is not None:
        run_time_s = conditions.declared_epochs(job.id, spec.run_time_s)
        spec = replace(spec, run_time_s=run_time_s)
    return replace(job, spec=spec)


class MisreadWorld(ParameterServerWorld):
    """Parameter-server jobs with wrong measurements of step times, as conditions have it."""

    def __init__(
        self,
        jobs: Mapping[JobId, TrueJob],
        speed: SpeedModel,
        *,
        truth: Mapping[JobId, TrueTraining],
        bandwidth: float,
        conditions: Conditions,
    ) -> None:
        super().__init__(jobs, speed, truth=truth, bandwidth=bandwidth)
        self.conditions = conditions

    def _measured(self, run: TrueRun, now: float) -> Measured:
        seen = super()._measured(run, now)
        setting = Setting(seen.kind, seen.nodes, seen.workers, seen.local_batch, seen.servers)
        return replace(seen, step_s=seen.step_s * self.conditions.seen(run.id.job, setting))
