"""The HTML report: one harmless file, written all at once, of a sensible size."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from roost.sim.results import JobRow, Results, Segment, Series

ROUND = 60.0
PER_NODE = 8


@dataclass(slots=True, eq=False)
class FakeJob:
    """A job of the toy scheduler below."""

    index: int
    queue: str
    gpus: float
    submitted_at: float
    work_s: float
    done_s: float = 0.0
    held: list[tuple[int, int, int]] = field(default_factory=list)
    since: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    runs: int = 0
    lost_gpu_s: float = 0.0
    waits: dict[str, float] = field(default_factory=lambda: dict.fromkeys("qfct", 0.0))


Order = Callable[[FakeJob], float]
POLICIES: dict[str, tuple[Order, bool, bool]] = {  # order, blocks behind the head, preempts
    "fifo": (lambda job: job.submitted_at, True, False),
    "backfill": (lambda job: job.submitted_at, False, False),
    "sjf": (lambda job: job.work_s, False, False),
    "srtf": (lambda job: job.work_s - job.done_s, False, True),
    "las": (lambda job: job.done_s * job.gpus, False, True),
    "smallest": (lambda job: job.gpus * job.work_s, False, False),
}


def fake_jobs(count: int, seed: int, *, load: float = 1.0, gpus: int = 64) -> list[FakeJob]:
    """Jobs with the long tails of real traces, in bursts."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    jobs, at = [], 0.0
    for index in range(count):
        size = chance.choice([0.5, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16])
        work = min(2e5, chance.lognormvariate(8.2, 1.3))
        at += chance.expovariate(gpus * load / (3.9 * 8_500)) * chance.choice([0.2, 0.6, 2.2])
        queue = chance.choices(["vision", "nlp", "speech", "robotics", "interns"], [5, 4, 2, 2, 1])
        jobs.append(FakeJob(index, queue[0], size, at, work))
    return jobs


class FakeCluster:
    """A toy scheduler in rounds: realistic enough to look at, and devices never overlap."""

    def __init__(self, policy: str, nodes: int) -> None:
        self.order, self.blocks, self.preempts = POLICIES[policy]
        self.free = [[1000] * PER_NODE for _ in range(nodes)]
        self.segments: list[Segment] = []
        self.series = Series()

    def run(self, jobs: list[FakeJob]) -> None:
        now, arriving, active = 0.0, list(jobs), list[FakeJob]()
        while arriving or active:
            while arriving and arriving[0].submitted_at <= now:
                active.append(arriving.pop(0))
            for job in [job for job in active if job.held and job.done_s >= job.work_s]:
                job.finished_at = now - (job.done_s - job.work_s)
                self.release(job, job.finished_at)
                active.remove(job)
            self.schedule(sorted(active, key=self.order), now)
            self.record(active, now)
            for job in active:
                if job.held:
                    job.done_s += max(0.0, min(ROUND, now + ROUND - job.since - 90.0))
            now += ROUND

    def schedule(self, order: list[FakeJob], now: float) -> None:
        if self.preempts and now % 1800 == 0:
            room = sum(map(len, self.free)) * 0.95
            for job in order:
                room -= job.gpus
                if room < 0 and job.held and now - job.since > 3600:
                    job.lost_gpu_s += job.gpus * (90.0 + min(300.0, job.done_s))
                    job.done_s = max(0.0, job.done_s - 300.0)
                    self.release(job, now)
        head = True
        for job in (job for job in order if not job.held):
            cause = "t" if self.blocks and not head else self.place(job, now)
            if cause:
                head = False
                job.waits[cause] += ROUND

    def place(self, job: FakeJob, now: float) -> str | None:
        """Give a job its devices, or say what it waits for."""
        share = round(min(job.gpus, 1) * 1000)
        fits = [
            [(node, gpu) for gpu, free in enumerate(gpus) if free >= share]
            for node, gpus in enumerate(self.free)
        ]
        need = max(1, round(job.gpus))
        each = min(need, PER_NODE)
        usable = sorted((own for own in fits if len(own) >= each), key=len)[: need // each]
        if len(usable) < need // each:
            return "f" if sum(map(len, fits)) >= need else "c"
        if job.queue == "interns" and sum(map(len, fits)) < PER_NODE * 2:
            return "q"
        job.held = [(node, gpu, share) for own in usable for node, gpu in own[:each]]
        for node, gpu, part in job.held:
            self.free[node][gpu] -= part
        job.since, job.runs = now, job.runs + 1
        job.started_at = now if job.started_at is None else job.started_at
        return None

    def release(self, job: FakeJob, now: float) -> None:
        for node, gpu, share in job.held:
            self.free[node][gpu] += share
            self.segments.append(Segment(job.index, f"node-{node}", gpu, share, job.since, now))
        job.held = []

    def record(self, active: Iterable[FakeJob], now: float) -> None:
        jobs = list(active)
        held = [job for job in jobs if job.held]
        self.series.time.append(now)
        self.series.capacity.append(sum(map(len, self.free)) - (8 if 9e4 < now < 1.2e5 else 0))
        self.series.allocated.append(sum(job.gpus for job in held))
        self.series.useful.append(sum(job.gpus for job in held if now - job.since >= 90.0))
        self.series.queued.append(len(jobs) - len(held))
        self.series.running.append(len(held))
        self.series.demand.append(sum(job.gpus for job in jobs))


def fake_run(policy: str, seed: int = 0, *, count: int = 400, nodes: int = 8) -> Results:
    """One run of the toy scheduler."""
    jobs = fake_jobs(count, seed, gpus=nodes * PER_NODE)
    cluster = FakeCluster(policy, nodes)
    cluster.run(jobs)
    return Results(
        policy=policy,
        placer="pack",
        workload="philly-like",
        seed=seed,
        nodes=nodes,
        gpus=nodes * PER_NODE,
        jobs=[row(job) for job in jobs],
        series=cluster.series,
        segments=cluster.segments,
        events=count * 3,
        decisions=count * 2,
        wall_s=0.21,
        cpu_s=0.2,
    )


def row(job: FakeJob) -> JobRow:
    return JobRow(
        id=f"job-{job.index:04}",
        queue=job.queue,
        gpus=job.gpus,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        outcome=("succeeded", "succeeded", "succeeded", "failed", "cancelled")[job.index % 5],
        work_s=job.work_s,
        service_gpu_s=job.gpus * job.work_s + job.lost_gpu_s,
        lost_gpu_s=job.lost_gpu_s,
        runs=job.runs,
        preemptions=job.runs - 1,
        resizes=0,
        wait_quota_s=job.waits["q"],
        wait_fragmentation_s=job.waits["f"],
        wait_capacity_s=job.waits["c"],
        wait_turn_s=job.waits["t"],
    )
