"""Elastic Jobs on a real API server: real trainings in pods that are processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.jobbing import SPACE, define, job, jobbing, pods, reaches, status
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.kubelet import Kubelet
from tests.support.kubernetes.nodes import until

from roost.errors import NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, Object
from roost.kubernetes.jobs.blueprint import Site
from roost.kubernetes.jobs.generation import Generation
from roost.kubernetes.operator.loop import Operator

ENDLESS = ["python", "-m", "roost.train.example", "--size", "8", "--steps", "1000000000"]
_SLOW_S = 60.0


class Here:
    """Two nodes, an operator that may come and go, and what can be seen of a Job."""

    def __init__(self, plane: ControlPlane, api: Api, *kubelets: Kubelet) -> None:
        self.plane, self.api, self.kubelets = plane, api, kubelets
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.site = Site("roost-train", meeting=f"http://127.0.0.1:{self.port}", loopback=20000)

    @contextlib.asynccontextmanager
    async def operator(self, **options: Any) -> AsyncIterator[Operator]:
        async with jobbing(self.plane, self.site, meeting_port=self.port, **options) as found:
            yield found

    async def submit(self, name: str = "train", **spec: Any) -> None:
        body = job(name, command=ENDLESS, workers="1..3", **spec)
        await self.api.create(JOBS, body, SPACE)
        await reaches(self.api, name, "running", _SLOW_S)
        await self.sees(name, lambda view: view.get("resizable") is True)

    async def sees(self, name: str, seen: Callable[[Object], bool]) -> Object:
        """The view in the status of a Job, once it is as wanted."""

        async def there() -> Object:
            view: Object = (await status(self.api, name)).get("view") or {}
            return view if view and seen(view) else {}

        try:
            found: Object = await until(there, _SLOW_S)
        except TimeoutError:
            raise AssertionError(await self.story(name)) from None
        return found

    async def has(self, name: str, workers: int) -> None:
        """Until so many train together, and the core and the cluster agree on it."""

        async def there() -> bool:
            found = await status(self.api, name)
            view = found.get("view") or {}
            size = (found.get("workers") or {}).get("now")
            alive = [one for one in await pods(self.api, name) if running(one)]
            fits = (found.get("state"), size, view.get("world")) == ("running", workers, workers)
            return fits and len(alive) == workers

        try:
            await until(there, _SLOW_S)
        except TimeoutError:
            raise AssertionError(await self.story(name)) from None

    async def replaced(self, name: str, one: str, other: str) -> None:
        """Until somebody trains in another's place, in the same attempt."""

        async def there() -> bool:
            alive = {number(pod) for pod in await pods(self.api, name) if running(pod)}
            return other in alive and one not in alive

        await until(there, _SLOW_S)
        await self.has(name, 2)
        found = await status(self.api, name)
        assert (found["attempt"], found["failures"]) == (1, 0)
        assert all(
            pod["metadata"]["name"].startswith("train-1-") for pod in await pods(self.api, name)
        )

    def kill(self, pod: str) -> None:
        """Kill the first process of a pod, as the kernel does for want of memory."""
        for kubelet in self.kubelets:
            with contextlib.suppress(KeyError, NotFound, StopIteration):
                os.kill(kubelet.life(pod).pids[0], signal.SIGKILL)
                return
        raise AssertionError(f"no node has {pod}")

    async def trains_on(self, name: str) -> int:
        """Until it has gone some steps; the step."""
        now = (await self.sees(name, lambda view: (view.get("step") or 0) > 0))["step"]
        return int((await self.sees(name, lambda view: view["step"] > now + 50))["step"])

    async def scale(self, name: str, workers: int) -> None:
        """As ``kubectl scale`` does."""
        body = {"spec": {"replicas": workers}}
        await self.api.patch(JOBS, name, body, SPACE, sub="scale")

    async def log(self, pod: str) -> str:
        return (await self.api.log(SPACE, pod)).decode(errors="replace")

    async def logs(self, name: str) -> str:
        found = [one["metadata"]["name"] for one in await pods(self.api, name)]
        return "\n".join([f"--- {pod}\n{await self.log(pod)}" for pod in found])

    async def story(self, name: str) -> str:
        return f"{await status(self.api, name)}\n{await self.logs(name)}"


def number(pod: Object) -> str:
    return str(pod["metadata"]["labels"]["roost.dev/index"])


def running(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


Scene = Callable[[Here], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play(cluster: ControlPlane, api: Api, runner: asyncio.Runner, tmp_path: Path) -> Play:
    def run(scene: Scene) -> None:
        async def scenario() -> None:
            await define(api)
            async with (
                Kubelet(api, "node-a", tmp_path / "a", gpus=2) as one,
                Kubelet(api, "node-b", tmp_path / "b", gpus=2) as other,
            ):
                await scene(Here(cluster, api, one, other))

        runner.run(scenario())

    return run


def test_a_job_grows_and_shrinks_by_hand_while_it_trains(play: Play) -> None:
    async def scene(here: Here) -> None:
        async with here.operator():
            await here.submit(replicas=1)
            before = await here.trains_on("train")
            await here.scale("train", 3)
            await here.has("train", 3)
            grown = await here.trains_on("train")
            await here.scale("train", 2)
            await here.has("train", 2)
            await here.scale("train", 1)
            await here.has("train", 1)
            assert before < grown < await here.trains_on("train")
            found = await status(here.api, "train")
            assert (found["attempt"], found["failures"]) == (1, 0)
            # Nobody started again: one began at the beginning, the others where it was.
            names = [pod["metadata"]["name"] for pod in await pods(here.api, "train")]
            assert names == ["train-1-worker-0", "train-1-worker-1", "train-1-worker-2"]
            output = await here.logs("train")
            assert (output.count("begins at step"), output.count("begins at step 0\n")) == (3, 1)
            ended = [pod for pod in await pods(here.api, "train") if not running(pod)]
            assert {pod["status"]["phase"] for pod in ended} == {"Succeeded"}

    play(scene)


def test_a_job_grows_and_shrinks_by_policy(play: Play) -> None:
    async def scene(here: Here) -> None:
        async with here.operator(policy="alnair:calm_s=1"):
            await here.submit()
            await here.has("train", 3)
            await here.trains_on("train")
            body = job("other", command=["sleep", "inf"], workers=2)
            await here.api.create(JOBS, body, SPACE)
            await reaches(here.api, "other", "running", _SLOW_S)
            await here.has("train", 2)  # it went down to one, and got back what nobody needs
            await here.trains_on("train")
            await here.api.delete(JOBS, "other", SPACE)
            await here.has("train", 3)
            await here.trains_on("train")
            found = await status(here.api, "train")
            assert (found["attempt"], found["failures"]) == (1, 0)

    play(scene)


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "made"])
def test_an_operator_that_dies_in_the_midst_of_a_change_is_not_missed(
    play: Play, monkeypatch: pytest.MonkeyPatch, *, bound: bool
) -> None:
    seat = Generation._seat

    async def stuck(self: Generation, name: str) -> None:
        """Bind the first pod, and leave the others for the next operator."""
        if name.endswith("-worker-0"):
            await seat(self, name)
        else:
            await asyncio.sleep(60)

    async def scene(here: Here) -> None:
        if not bound:
            monkeypatch.setattr(Generation, "_seat", stuck)
        async with here.operator():
            await here.submit(replicas=1)
            before = await here.trains_on("train")
            await here.scale("train", 3)

            async def hired() -> bool:
                return len(await pods(here.api, "train")) == 3

            await until(hired, _SLOW_S)
        monkeypatch.undo()
        await asyncio.sleep(3.0)
        async with here.operator():
            await here.has("train", 3)
            assert await here.trains_on("train") > before
            await here.scale("train", 1)
            await here.has("train", 1)
            found = await status(here.api, "train")
            assert (found["attempt"], found["failures"]) == (1, 0)
            output = await here.logs("train")
            assert (output.count("begins at step"), output.count("begins at step 0\n")) == (3, 1)

    play(scene)


def test_a_pod_that_is_evicted_is_replaced_while_the_others_train(play: Play) -> None:
    async def scene(here: Here) -> None:
        async with here.operator():
            await here.submit(replicas=2)
            before = await here.trains_on("train")
            (pod,) = [one for one in await pods(here.api, "train") if number(one) == "1"]
            await here.api.evict(SPACE, pod["metadata"]["name"], pod["metadata"]["uid"])
            await here.replaced("train", "1", "2")
            assert await here.trains_on("train") > before
            output = await here.log("train-1-worker-0")
            assert output.count("begins at step") == 1
            assert "worker 0 of 1 goes on" in output

    play(scene)


def test_a_worker_that_is_killed_is_replaced_while_the_others_train(play: Play) -> None:
    async def scene(here: Here) -> None:
        async with here.operator():
            await here.submit(replicas=2)
            before = await here.trains_on("train")
            here.kill("train-1-worker-0")
            await here.replaced("train", "0", "2")
            assert await here.trains_on("train") > before
            output = await here.logs("train")
            assert output.count("begins at step 0\n") == 2

    play(scene)
