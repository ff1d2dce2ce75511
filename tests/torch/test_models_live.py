"""What trainings tell while they run makes the models that policies plan with."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.local_world import clear

from roost.core import JobId, Range, Training
from roost.core.observed import Observed
from roost.core.spec import CPU_SLOT
from roost.engines.local import LocalEngine
from roost.jobfile import JobFile
from roost.jobs import observations
from roost.jobs.requests import JobSubmission
from roost.live.cluster import Cluster
from roost.perf.kinds import Estimates, models
from roost.perf.uncertainty import believe
from roost.store import open_store

#: Longer than anybody waits: a test says when it has seen enough.
NUMPY = ["roost.train.example", "--size", "16", "--steps", "100000000"]
TORCH = ["roost.train.example_torch", "--size", "32", "--steps", "100000000", "--batch", "64"]
PATIENCE_S = 120.0


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="models-"))
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setattr(observations, "SETTLE_S", 0.5)
    monkeypatch.setattr(observations, "EVERY_S", 1.0)
    yield place
    clear(place)
    shutil.rmtree(place)


def cluster(home: Path) -> Cluster:
    store = open_store(f"sqlite:///{home}/roost.db")
    # Under it sizes change by hand alone.
    return Cluster(store, LocalEngine(home, 4), home, policy="backfill")


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not seen():  # noqa: ASYNC110 - not all of it is news to somebody
            await asyncio.sleep(0.05)


async def submit(it: Cluster, program: list[str], batch: int) -> JobId:
    document = {
        "name": program[0].rpartition(".")[2].replace("_", "-"),
        "command": [sys.executable, "-P", "-m", *program],
        "workers": "1..2",
        "training": {"batch": batch},
        "checkpoint": {"grace": 10},
    }
    row, _ = await it.submit(JobSubmission(JobFile.from_document(document), "ada"))
    return JobId(row.id)


def observed(it: Cluster, job: JobId) -> Observed:
    profile = it.core.jobs[job].profile
    return Observed() if profile is None else profile.observed


def sizes(it: Cluster, job: JobId) -> set[int]:
    return {setting.workers for setting in observed(it, job).timings}


def resizable(it: Cluster, job: JobId) -> bool:
    row = it.store.jobs.get(job)
    return row is not None and bool(it.view(row)["resizable"])


async def grown(it: Cluster, job: JobId) -> None:
    """Until it was measured alone and with a second worker."""
    await until(lambda: sizes(it, job) == {1} and resizable(it, job))
    await it.scale(job, Range(2, 2), "ada")
    await until(lambda: sizes(it, job) == {1, 2} and waited(it, job))


def waited(it: Cluster, job: JobId) -> bool:
    """Whether it told what two workers wait for; on a busy machine that may exceed a step."""
    timings = observed(it, job).timings.items()
    return any(timing.sync.count for setting, timing in timings if setting.workers > 1)


def check(it: Cluster, job: JobId, batch: int) -> None:
    seen = observed(it, job)
    assert {(at.kind, at.nodes, at.workers, at.local_batch) for at in seen.timings} == {
        (CPU_SLOT, 1, 1, batch),
        (CPU_SLOT, 1, 2, batch // 2),
    }
    assert it.core.jobs[job].observed == seen
    assert seen.epochs > 0
    assert seen.losses
    alone, both = (timing for _, timing in sorted(seen.timings.items()))
    assert (alone.sync.count, alone.sync.mean) == (alone.step.count, 0.0)
    assert both.sync.mean > 0
    assert both.sync.count <= both.step.count

    estimates = Estimates()
    model = models(seen, Training(batch), [CPU_SLOT], estimates)[CPU_SLOT]
    belief = believe(estimates.fits(seen)[CPU_SLOT])
    for setting, timing in seen.timings.items():
        told = float(model.step_s(1, setting.workers, setting.local_batch))
        assert told == pytest.approx(timing.step.mean, rel=0.35)
    assert float(belief.model.step_s(1, 4, batch // 4)) > 0


def test_two_trainings_teach_the_core_their_speed(home: Path) -> None:
    async def story() -> None:
        it = cluster(home)
        await it.start()
        try:
            numpy, torch = await submit(it, NUMPY, 8192), await submit(it, TORCH, 64)
            await asyncio.gather(grown(it, numpy), grown(it, torch))
            check(it, numpy, 8192)
            check(it, torch, 64)
            (shown,) = it.profiles("ada", "example")
            (model,) = shown["models"]
            assert (model["kind"], model["batch"]) == (CPU_SLOT, 8192)
            rows = [(size["workers"], size["count"] > 0) for size in model["sizes"]]
            assert rows == [(1, True), (2, True), (4, False)]
            before = it.core.history.profiles
            for job in (numpy, torch):
                await it.cancel(job, "ada")
            await until(lambda: all(job.state.over for job in it.core.jobs.values()))
        finally:
            await it.close()
        # Whoever reads the journal anew has learnt the same.
        again = cluster(home)
        await again.start()
        try:
            assert again.core.history.profiles == before
        finally:
            await again.close()

    asyncio.run(story())
