"""Elastic Jobs in a small cluster: pods come and go while a pretended training goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.unit.kubernetes.operator.small_cluster import SmallCluster

from roost.core import JobId, RunId
from roost.kubernetes.client.api import Disrupted
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, SECRETS
from roost.kubernetes.jobs import controller
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.controller import JobController, JobOptions
from roost.kubernetes.operator.leadership import Leadership
from roost.kubernetes.operator.workload import OperatorContext, SourceFactory

OPTIONS = JobOptions(Site("roost-train", meeting="http://operator:8611"), meeting_port=8611)


class Training:
    """Where pods call, and the pods: they do what a view says as soon as it is published."""

    def __init__(self, on_line: Callable[..., None], on_poll: Callable[..., None]) -> None:
        self._say, self._poll = on_line, on_poll
        self.open_to: set[RunId] = set()
        self.released: list[RunId] = []
        self.views: dict[RunId, Mapping[str, Any]] = {}

    async def start(self, **_: Any) -> None: ...

    async def stop(self) -> None: ...

    def open(self, run: RunId, digest: str) -> None:
        assert digest
        self.open_to.add(run)

    def close(self, run: RunId) -> None:
        self.open_to.discard(run)
        self.views.pop(run, None)

    def release(self, run: RunId) -> None:
        self.released.append(run)

    def publish(self, run: RunId, view: Mapping[str, Any]) -> None:
        if run in self.open_to:
            self.views[run] = dict(view)

    def places(self, run: RunId, hosts: Mapping[str, str]) -> dict[str, str]:
        return {member: f"10.0.0.{member}:4000" for member in hosts if run in self.open_to}

    async def go_on(self, cluster: SmallCluster) -> None:
        """Do what views say, until cancelled."""
        seen: dict[RunId, int] = {}
        greeted: set[str] = set()
        while True:
            await asyncio.sleep(0.004)
            for run, view in list(self.views.items()):
                pods = _members(cluster, run)
                for member in pods.keys() - {one for one in pods if pods[one] in greeted}:
                    greeted.add(pods[member])
                    self._say(run, member, {"elastic": True, "member": member})
                    if member not in view["members"]:
                        self._say(run, member, {"ready": member})
                met = set(view["members"]) <= pods.keys()
                if met and seen.get(run, 0) < view["version"]:
                    seen[run] = view["version"]
                    joined = {"joined": view["version"], "member": view["members"][0]}
                    self._say(run, view["members"][0], joined)
                    if view["version"] > 1:
                        told = greeted & {pods[one] for one in pods.keys() - set(view["members"])}
                        for name in told:
                            cluster.end(name, 0)


def _members(cluster: SmallCluster, run: RunId) -> dict[str, str]:
    """The pods of a run that are up, by member."""
    return {
        pod["metadata"]["labels"]["roost.dev/index"]: name
        for (_, name), pod in cluster.objects(PODS).items()
        if pod["status"]["phase"] == "Running"
        and pod["metadata"]["labels"]["roost.dev/attempt"] == str(run.attempt)
    }


class Elastic(SmallCluster):
    """A cluster whose operator can be called."""

    training: Training

    @contextlib.asynccontextmanager
    async def led(self) -> AsyncIterator[Leadership]:
        """An operator that leads, and pods that train."""
        tasks: list[asyncio.Future[None]] = []

        def make(context: OperatorContext) -> JobController:
            jobs = JobController(context, OPTIONS)
            assert isinstance(jobs.meeting, Training)
            self.training = jobs.meeting
            tasks.append(asyncio.ensure_future(self.training.go_on(self)))
            return jobs

        self.opening = SourceFactory(JobController.kinds, make)
        try:
            async with super().led() as leadership:
                yield leadership
        finally:
            for task in tasks:
                task.cancel()

    async def has(self, workers: int) -> None:
        """Until so many train together."""
        await self.reaches("train", "running", replicas=workers)
        await self.until(lambda: len(self.alive()) == workers)
        # Before that it would start anew to change its size.
        await self.until(lambda: self.status("train")["view"].get("resizable") is True)


Scene = Callable[[Elastic], Awaitable[None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    monkeypatch.setattr(controller, "RendezvousServer", Training)

    def run(scene: Scene) -> None:
        async def scenario() -> None:
            cluster = Elastic()
            for name in "ab":
                cluster.node(name, gpus=2)
            await scene(cluster)

        asyncio.run(asyncio.wait_for(scenario(), 60))

    return run


def test_who_leaves_keeps_a_pod_for_its_log(play: Any) -> None:
    async def scene(cluster: Elastic) -> None:
        async with cluster.led():
            await cluster.submit("train", workers="1..3", replicas=1)
            await cluster.has(1)
            await cluster.change("train", spec={"replicas": 3})
            await cluster.has(3)
            await cluster.change("train", spec={"replicas": 1})
            await cluster.has(1)
            await asyncio.sleep(1.3)  # what is of no run is swept once a second
            assert cluster.pods() == [f"train-1-worker-{n}" for n in range(3)]
            ended = set(cluster.pods()) - set(cluster.alive())
            phases = {cluster.objects(PODS)["default", name]["status"]["phase"] for name in ended}
            assert phases == {"Succeeded"}
            found = cluster.status("train")
            assert (found["attempt"], found["failures"]) == (1, 0)
            await cluster.change("train", spec={"replicas": 2})
            await cluster.has(2)
            assert "train-1-worker-3" in cluster.alive()  # no number is given twice

    play(scene)


def test_the_next_leader_goes_on_with_a_change(play: Any) -> None:
    async def scene(cluster: Elastic) -> None:
        async with cluster.led():
            await cluster.submit("train", workers="1..3", replicas=1)
            await cluster.has(1)
            cluster.runs = False  # nobody who is hired begins
            await cluster.change("train", spec={"replicas": 3})
            await cluster.until(lambda: len(cluster.pods()) == 3)
            await cluster.until(lambda: cluster.status("train").get("members"))
        cluster.runs = True
        for name in cluster.alive():
            pod = cluster.objects(PODS)["default", name]
            pod["status"] = {"phase": "Running" if pod["spec"].get("nodeName") else "Pending"}
        async with cluster.led():
            await cluster.has(3)
            assert cluster.pods() == [f"train-1-worker-{n}" for n in range(3)]
            assert cluster.status("train")["attempt"] == 1

    play(scene)


def test_a_worker_that_dies_is_replaced(play: Any) -> None:
    async def scene(cluster: Elastic) -> None:
        async with cluster.led():
            await cluster.submit("train", workers="1..3", replicas=2)
            await cluster.has(2)
            await asyncio.sleep(0.1)
            cluster.end("train-1-worker-1", 1)
            await cluster.until(lambda: "train-1-worker-2" in cluster.alive())
            await cluster.has(2)
            assert "train-1-worker-1" in cluster.pods()
            found = cluster.status("train")
            assert (found["attempt"], found["failures"]) == (1, 0)

    play(scene)


def test_nobody_of_a_run_that_is_over_is_let_in(play: Any) -> None:
    async def scene(cluster: Elastic) -> None:
        async with cluster.led():
            await cluster.submit("train", workers="2..3", replicas=2, retry={"delay": 0})
            await cluster.has(2)
            training, first = cluster.training, RunId(JobId("default.train"), 1)
            assert training.open_to == {first}
            assert len(cluster.objects(SECRETS)) == 1
            (place,) = {pod["spec"]["nodeName"] for pod in cluster.objects(PODS).values()}
            cluster.put(NODES, ("", place), None)  # the core gives up the run at once
            await cluster.reaches("train", "running", attempt=2)
            await cluster.until(lambda: training.open_to == {RunId(JobId("default.train"), 2)})
            assert first in training.released
            await cluster.change("train", metadata={"annotations": {"roost.dev/cancel": "ada"}})
            await cluster.reaches("train", "cancelled")
            assert training.open_to == set()

    play(scene)


def test_a_run_that_a_budget_keeps_is_not_sent_away(play: Any) -> None:
    async def scene(cluster: Elastic) -> None:
        refused = 0

        async def evict(*_: Any) -> None:
            nonlocal refused
            refused += 1
            raise Disrupted("the budget does not let it go", 0.0)

        cluster.evict = evict  # type: ignore[attr-defined]
        async with cluster.led() as leadership:
            await cluster.submit("train", workers="1..2", replicas=2)
            await cluster.has(2)
            await cluster.submit("high", workers=4, priority=5)
            await cluster.until(lambda: refused)
            await cluster.until(lambda: leadership.core.jobs[JobId("default.train")].protected)
            await asyncio.sleep(2.2)
            assert cluster.training.released == []
            assert cluster.training.open_to == {RunId(JobId("default.train"), 1)}
            await cluster.has(2)
            await cluster.remove(JOBS, "high")
            await cluster.change("train", spec={"replicas": 1})  # it can still change
            await cluster.has(1)

    play(scene)
