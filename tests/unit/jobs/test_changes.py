"""What changes of a job came to, what was observed of it, and what follows from that."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording_engine import RecordingEngine

from roost.core import (
    Allocation,
    JobId,
    Launch,
    Migrate,
    NodeSpec,
    Range,
    Resize,
    Resized,
    Resume,
    RunId,
    Shrank,
    Started,
    Suspend,
    Suspended,
)
from roost.core.observed import Setting
from roost.engines import Ended, ProgressReport, WorkerExit
from roost.errors import InvalidSpec
from roost.jobfile import JobFile
from roost.jobs.changes import seconds
from roost.jobs.observations import EVERY_S, SETTLE_S
from roost.jobs.requests import JobSubmission
from roost.live.cluster import Cluster
from roost.store import open_store
from roost.store.rows import EventQuery, QueueRow
from roost.testing.builders import node


class Hands:
    """A clock that is turned by hand, and otherwise stands still."""

    trouble = ""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def not_before(self, time: float) -> None:
        self.time = max(self.time, time)


class World:
    """A cluster with one elastic job."""

    def __init__(self, it: Cluster, engine: RecordingEngine, hands: Hands) -> None:
        self.it, self.engine, self.hands = it, engine, hands

    async def submit(self, **fields: Any) -> RunId:
        file = JobFile.from_document({"name": "job", "run": "true", **fields})
        await self.it.submit(JobSubmission(file, "ada"))
        return (await self.engine.told(Launch)).run

    async def reported(self, *reports: Any) -> None:
        """Until these are in the journal."""
        for report in reports:
            self.engine.report(report)
            await self.it.set_queue(QueueRow("later"), "root")

    def view(self, run: RunId) -> dict[str, Any]:
        row = self.it.store.jobs.get(run.job)
        assert row is not None
        return dict(row.view)

    def texts(self, run: RunId, kind: str = "state") -> list[str]:
        page = self.it.store.events.find(EventQuery(job=run.job, kind=kind))
        return [line.text for line in page.items]


@asynccontextmanager
async def world(home: Path, *nodes: NodeSpec) -> AsyncIterator[World]:
    engine, hands = RecordingEngine(*(nodes or (node("n0", 4),))), Hands()
    store = open_store(f"sqlite:///{home}/roost.db")
    it = Cluster(store, engine, home, policy="backfill", clock=hands)  # type: ignore[arg-type]
    await it.start()
    try:
        yield World(it, engine, hands)
    finally:
        await it.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_resize_tells_its_sizes_its_time_and_its_pause(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit(workers="1..3")
            await here.reported(Started(0.0, job, took_s=2.04))
            assert here.texts(job)[-1] == "started in 2.0 s: 1 worker is up on 1 GPU"
            await here.it.scale(job.job, Range(3, 3), "ada")
            assert here.view(job)["reason"] == "from 1 to 3 workers"
            assert sum(part["workers"] for part in here.view(job)["target"]) == 3
            await here.engine.told(Resize)
            here.hands.time += 5
            await here.reported(Resized(0.0, job, took_s=0.42, pause_s=0.06))

            text = "1 → 3 workers in 0.4 s, training paused 60 ms"
            assert here.texts(job)[-1] == text
            change = here.view(job)["change"]
            assert change == {
                "kind": "resize",
                "text": text,
                "at": 1005.0,
                "took_s": 0.42,
                "pause_s": 0.06,
                "before": 1,
                "after": 3,
            }
            assert here.view(job)["target"] is None
            await here.reported(Resized(0.0, job, took_s=9.0))
            assert here.view(job)["change"] == change, "old news"

    run(scenario)


def test_a_migration_says_where_to_and_a_new_server_knows_what_was_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path, node("n0", 2)) as here:
            job = await here.submit()
            await here.reported(Started(0.0, job))
            assert here.texts(job)[-1] == "1 worker is up on 1 GPU"
            await here.it.migrate(job.job, None, "ada")
            assert here.view(job)["reason"] == "migrating to n0 GPU 1"
            assert here.texts(job)[-1] == "migrating to n0 GPU 1"
            await here.engine.told(Migrate)
        async with world(tmp_path, node("n0", 2)) as here:
            await here.reported(Resized(0.0, job, took_s=1.0))
            assert here.texts(job)[-1] == "moved to n0 GPU 1 in 1.0 s"
            assert here.view(job)["change"]["kind"] == "migrate"
            assert here.view(job)["change"]["pause_s"] is None

    run(scenario)


def test_suspending_and_resuming_tell_how_long_they_took(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit()
            await here.reported(Started(0.0, job))
            await here.it.suspend(job.job, "ada")
            await here.engine.told(Suspend)
            await here.reported(Suspended(0.0, job, 0.0, took_s=1.23))
            assert here.texts(job)[-1] == "suspended in 1.2 s"
            await here.it.resume(job.job, "ada")
            await here.engine.told(Resume)
            await here.reported(Started(0.0, job, took_s=12.3))
            assert here.texts(job)[-1] == "resumed in 12 s: 1 worker is up on 1 GPU"
            assert here.view(job)["change"]["kind"] == "resume"

    run(scenario)


def test_a_worker_that_dies_while_its_job_is_suspended_is_told_of(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit()
            await here.reported(Started(0.0, job))
            await here.it.suspend(job.job, "ada")
            await here.engine.told(Suspend)
            await here.reported(Suspended(0.0, job, math.inf, took_s=0.1))
            killed = WorkerExit("worker", 0, None, 9)
            await here.reported(Ended(0.0, job, (killed,), "exit", "worker-0 was killed"))
            assert here.view(job)["state"] == "suspended"
            assert here.texts(job, "change")[-1].startswith("SIGKILL")

    run(scenario)


def test_what_came_in_the_way_of_a_change_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit(workers="1..2")
            await here.reported(Started(0.0, job))
            await here.it.suspend(job.job, "ada")
            await here.engine.told(Suspend)
            await here.reported(Suspended(0.0, job, 0.0, took_s=3.0, why="driver 535 is too old"))
            text = "suspended in 3.0 s, to go on from its last checkpoint (driver 535 is too old)"
            assert (here.texts(job)[-1], here.view(job)["change"]["text"]) == (text, text)
            await here.it.resume(job.job, "ada")
            await here.engine.told(Resume)
            await here.reported(Started(0.0, job, took_s=4.0, why="no room"))
            again = "started again from its last checkpoint (no room)"
            assert here.view(job)["change"]["text"] == f"resumed in 4.0 s, {again}"
            await here.it.scale(job.job, Range(2, 2), "ada")
            await here.engine.told(Resize)
            await here.reported(Resized(0.0, job, took_s=5.0, why="no room"))
            assert here.texts(job)[-1] == f"1 → 2 workers in 5.0 s, {again}"

    run(scenario)


def test_a_spatial_share_is_suspended_where_it_is_and_says_so(tmp_path: Path) -> None:
    gpus = NodeSpec(node("n0").id, gpus=1, kind="H200", gpu_memory_mib=1000)

    async def scenario() -> None:
        async with world(tmp_path, gpus) as here:
            job = await here.submit(gpus=0.5, run_time="1h", sharing={"way": "spatial"})
            await here.reported(Started(0.0, job))
            here.hands.time += 60
            await here.it.suspend(job.job, "ada")
            await here.engine.told(Suspend)
            await here.reported(Suspended(0.0, job, 0.0, took_s=0.2))
            view = here.view(job)
            assert (view["state"], view["gpus_held"], view["cause"]) == ("suspended", 0.5, "held")
            assert "stay taken" in view["reason"]
            assert here.texts(job)[-1] == "suspended in 0.2 s; its GPU memory stays taken"
            assert here.it.core.jobs[job.job].saved_s == 60
            await here.it.resume(job.job, "ada")
            await here.engine.told(Resume)
            await here.reported(Started(0.0, job, took_s=0.1))
            assert here.texts(job)[-1] == "resumed in 0.1 s: 1 worker is up on 0.5 GPUs"

    run(scenario)


def test_what_processes_keep_in_memory_counts_as_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            for kept, done_s in ((math.inf, 60.0), (0.0, 0.0)):
                job = await here.submit(run_time="1h")
                await here.reported(Started(0.0, job))
                here.hands.time += 60
                await here.it.suspend(job.job, "ada")
                await here.engine.told(Suspend)
                await here.reported(Suspended(0.0, job, kept))
                assert here.it.core.jobs[job.job].saved_s == done_s

    run(scenario)


def test_a_job_that_lost_a_worker_says_so_and_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit(workers="1..3")
            await here.it.scale(job.job, Range(3, 3), "ada")
            await here.reported(Started(0.0, job))
            resize = await here.engine.told(Resize)
            await here.reported(Resized(0.0, job))
            first, (_, *more) = resize.allocation.parts[0], resize.allocation.parts
            kept = [part._replace(workers=1, gpus=part.gpus[:1]) for part in more]
            left = Allocation((first, *kept))
            await here.reported(Shrank(0.0, job, left, "worker-1 was killed by SIGKILL"))

            text = "lost a worker (worker-1 was killed by SIGKILL): goes on with 2 workers"
            assert here.texts(job, "change") == [text]
            view = here.view(job)
            assert (view["state"], view["workers"]["now"]) == ("resizing", 2), "it may grow again"
            assert view["change"]["text"] == text
            await here.reported(Shrank(0.0, RunId(job.job, 9), left))
            await here.reported(Shrank(0.0, job, left, "worker-1 was killed by SIGKILL"))
            assert here.texts(job, "change") == [text], "old news"

    run(scenario)


def test_what_is_observed_is_shown_and_measured_now_and_then(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit(application="resnet")
            await here.reported(Started(0.0, job))
            here.hands.time += SETTLE_S
            told = ProgressReport(
                *(0.0, job, 0.1, None, 10, 0.5, 0.25, 64, 3000, 2800, 120.0, 1), elastic=True
            )
            await here.reported(told)
            view = here.view(job)
            assert (view["step_s"], view["batch"], view["samples_per_s"]) == (0.25, 64, 256.0)
            assert (view["memory_mib"], view["predicted_mib"], view["noise"]) == (3000, 2800, 120.0)
            assert (view["world"], view["resizable"], view["note"]) == (1, True, "")

            await here.reported(replace(told, step_s=0.75))
            assert here.it.profiles()[0]["sizes"][0]["count"] == 1, "too soon"
            here.hands.time += EVERY_S
            note = "worker-0 cannot be locked"
            await here.reported(replace(told, step_s=0.75, note=note), replace(told, world=2))
            assert here.view(job)["note"] == note
            seen = ProgressReport(0.0, job, busy=0.75, memory_mib=99_000)
            await here.reported(seen, replace(seen, busy=1.5))
            assert (here.view(job)["busy"], here.view(job)["memory_mib"]) == (0.75, 99_000)
            (profile,) = here.it.profiles()
            (model,) = profile.pop("models")
            assert (model["kind"], model["batch"]) == ("gpu", 64)
            alone, *more = model["sizes"]
            assert alone["step_s"] == pytest.approx(0.5, rel=0.01)
            assert (alone["nodes"], alone["workers"], alone["local_batch"]) == (1, 1, 64)
            assert (alone["measured_s"], alone["count"]) == (0.5, 2)
            assert all(size["error"] > alone["error"] > 0 for size in more), "nobody was there"
            assert [(size["measured_s"], size["count"]) for size in more] == [(None, 0)] * len(more)
            assert [profile] == [
                {
                    "user": "ada",
                    "application": "resnet",
                    "memory_mib": 3000,
                    "noise": 120.0,
                    "busy": 0.75,
                    "sizes": [
                        {"workers": 1, "share": 1.0, "step_s": 0.5, "count": 2, "speed": 1.0}
                    ],
                    "costs": {},
                }
            ]
            assert here.it.profiles("bob") == here.it.profiles(None, "bert") == []
        async with world(tmp_path) as here:
            assert here.it.profiles("ada", "resnet")[0]["memory_mib"] == 3000
            assert here.it.view(here.it.store.jobs.get(job.job))["memory_mib"] == 99_000  # type: ignore[arg-type]

    run(scenario)


def test_where_and_how_a_step_was_done_is_measured_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            learns = {"batch": 64, "epochs": 9}
            job = await here.submit(application="resnet", workers="1..4", training=learns)
            await here.reported(Started(0.0, job))
            here.hands.time += SETTLE_S
            told = ProgressReport(
                0.0, job, step=30, step_s=0.25, sync_s=0.0, local_batch=60, epochs=1.5
            )
            told = replace(told, done=0.1, batch=64, loss=0.5, noise=99.0, world=1)
            await here.reported(told)
            await here.it.scale(job.job, Range(3, 3), "ada")
            await here.engine.told(Resize)
            await here.reported(Resized(0.0, job))
            here.hands.time += SETTLE_S
            three = replace(told, world=3, step_s=0.1, sync_s=0.2, local_batch=None)
            await here.reported(replace(three, step_s=None, epochs=2.0, loss=math.nan))
            await here.reported(replace(three, epochs=2.5, loss=math.inf), three)

            ran = here.it.core.runs[job]
            nodes = len(ran.allocation.nodes)
            seen = here.it.core.history.profiles["ada", "resnet"].observed
            assert here.it.core.jobs[job.job].observed == seen
            assert {at: (one.step.mean, one.step.count) for at, one in seen.timings.items()} == {
                Setting("gpu", 1, 1, 60): (0.25, 1),
                Setting("gpu", nodes, 3, 22): (0.1, 1),
            }
            assert [one.sync.count for one in seen.timings.values()] == [1, 0], "more than a step"
            assert (seen.epochs, seen.losses, seen.noise) == (2.5, {1: 0.5}, 99.0)
            here.hands.time += EVERY_S
            await here.reported(
                ProgressReport(0.0, job, step=60, done=0.2, epochs=3.25, loss=0.25, world=3)
            )
            assert (seen.epochs, seen.losses[3], len(seen.timings)) == (3.25, 0.25, 2)
            # Its work is counted in steps: those that it tells.
            assert ran.done(ran.measured_at) == 60.0

    run(scenario)


def test_models_of_a_pipeline_are_foretold_by_whole_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = [node(f"n{index}", 4) for index in range(2)]
        async with world(tmp_path, *nodes) as here:
            learns = {"batch": 64, "pipeline": 4, "micro": 2}
            job = await here.submit(application="llm", gpus=4, training=learns)
            await here.reported(Started(0.0, job))
            here.hands.time += SETTLE_S
            await here.reported(ProgressReport(0.0, job, step_s=3.5, batch=64, world=1))
            (model,) = here.it.profiles()[0]["models"]
            alone, two = model["sizes"]
            assert (alone["local_batch"], alone["step_s"]) == (64, pytest.approx(3.5, rel=0.01))
            assert (two["nodes"], two["workers"], two["local_batch"]) == (2, 2, 32)
            # 16 micro-batches and 3 stages behind the first, of 32 and 3; and the network.
            assert two["step_s"] > 3.5 * 19 / 35
            assert two["error"] > alone["error"] > 0

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "kind", "servers"),
    [
        ({"gpus": 0.5}, "gpu:0.5", 0),
        ({"gpus": 0}, "", 0),
        ({"roles": {"ps": {"workers": 2}, "chief": {}}}, "gpu", 2),
    ],
)
def test_shares_and_servers_are_told_apart(
    tmp_path: Path, fields: dict[str, Any], kind: str, servers: int
) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit(**fields)
            await here.reported(Started(0.0, job))
            here.hands.time += SETTLE_S
            await here.reported(ProgressReport(0.0, job, step_s=0.25, batch=64))
            (setting,) = here.it.core.history.profiles["ada", "job"].observed.timings
            assert setting == Setting(kind, 1, 1, 64, servers)
            models = here.it.profiles()[0]["models"]
            assert [model["kind"] for model in models] == ([] if servers else [kind])

    run(scenario)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 0.0])
def test_figures_that_cannot_be_are_left_out(tmp_path: Path, wrong: float) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            job = await here.submit()
            await here.reported(Started(0.0, job))
            number = -1 if wrong == -1.0 else 0
            odd = ProgressReport(
                0.0, job, step_s=wrong, noise=wrong, batch=number, memory_mib=number
            )
            here.hands.time += SETTLE_S
            odd = replace(odd, sync_s=wrong, epochs=-1.0, local_batch=number, loss=wrong)
            await here.reported(replace(odd, world=number, predicted_mib=1 << 60))
            view = here.it.view(here.it.store.jobs.get(job.job))  # type: ignore[arg-type]
            names = ("step_s", "noise", "batch", "memory_mib", "world", "predicted_mib")
            assert [view[name] for name in names] == [None] * len(names)
            assert here.it.profiles() == []

    run(scenario)


def test_a_share_that_cannot_hold_what_was_seen_is_refused_with_numbers(tmp_path: Path) -> None:
    gpus = NodeSpec(node("n0").id, gpus=2, kind="H200", gpu_memory_mib=100 * 1024)

    async def scenario() -> None:
        async with world(tmp_path, gpus) as here:
            job = await here.submit(application="bert")
            await here.reported(Started(0.0, job))
            here.hands.time += SETTLE_S
            await here.reported(ProgressReport(0.0, job, step_s=0.1, memory_mib=31 * 1024))
            with pytest.raises(InvalidSpec) as refused:
                await here.submit(application="bert", gpus=0.25)
            assert str(refused.value) == (
                "job 'job' is refused: bert was seen to use 31.0 GiB of GPU memory for a worker, "
                "and a share of 0.25 gives it 25.0 GiB: the smallest share that fits is 0.31; if "
                "this one needs less, give it another 'application'"
            )
            with pytest.raises(InvalidSpec, match=r"its limit gives it 30\.0 GiB"):
                await here.submit(application="bert", gpus=0.5, sharing={"mem": "30Gi"})
            request = {"name": "job", "run": "true", "application": "bert", "gpus": 0.25}
            plan = await here.it.plan(JobSubmission(JobFile.from_document(request), "ada"))
            assert plan["never"]
            assert "smallest share that fits is 0.31" in plan["reason"]
            request["gpus"] = 1
            plan = await here.it.plan(JobSubmission(JobFile.from_document(request), "ada"))
            (note,) = plan["notes"]
            assert note == (
                "as measured of bert: a step takes 0.1 s with 1 worker and a worker uses up to "
                "31.0 GiB of GPU memory"
            )
            request["gpus"] = 0.25
            for fine in ({"gpus": 0.31}, {"gpus": 0.25, "application": "bert-small"}):
                await here.submit(**{"application": "bert", **fine})
            await here.it.submit(JobSubmission(JobFile.from_document(request), "bob"))

    run(scenario)


def test_what_the_engine_cannot_do_is_refused_with_its_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as here:
            here.engine.refusal = "no MPS on this machine: spatial shares cannot be held"
            with pytest.raises(InvalidSpec, match="job 'job' is refused: no MPS on this machine"):
                await here.submit(gpus=0.5, sharing={"way": "spatial"})
            assert not here.it.core.jobs

    run(scenario)


def test_a_share_is_shown_with_its_way_and_its_memory(tmp_path: Path) -> None:
    gpus = NodeSpec(node("n0").id, gpus=1, kind="H200", gpu_memory_mib=1000)

    async def scenario() -> None:
        async with world(tmp_path, gpus) as here:
            job = await here.submit(gpus=0.25, sharing={"way": "spatial", "policy": "equal"})
            view = here.view(job)
            assert (view["share"], view["way"], view["qos"]) == (0.25, "spatial", "equal")
            assert view["memory_limit_mib"] == 250
            assert here.it.core.jobs[JobId(job.job)].spec.resources.way == "spatial"

    run(scenario)


@pytest.mark.parametrize(
    ("value", "told"), [(0.004, "4 ms"), (0.05, "50 ms"), (0.42, "0.4 s"), (61.4, "61 s")]
)
def test_short_times_are_told_as_people_do(value: float, told: str) -> None:
    assert seconds(value) == told


def test_a_job_that_is_resumed_without_a_free_gpu_waits_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path, node("n0", 1)) as here:
            first = await here.submit()
            await here.reported(Started(0.0, first))
            await here.it.suspend(first.job, "ada")
            await here.engine.told(Suspend)
            await here.reported(Suspended(0.0, first, 0.0))
            second = await here.submit()
            await here.reported(Started(0.0, second))
            await here.it.resume(first.job, "ada")
            view = here.view(first)
            assert (view["state"], view["cause"]) == ("suspended", "no-capacity")
            assert view["reason"]
            here.engine.ended(second)
            assert (await here.engine.told(Resume)).run == first

    run(scenario)
