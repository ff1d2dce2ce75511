"""Gangs that the real controllers of other projects make, placed by Roost on a real API server.

Kubeflow's training operator and Trainer, JobSet, KubeRay and LeaderWorkerSet run, and the job and
stateful set controllers of Kubernetes; nodes are KWOK's. What is read of their pods and objects is
thereby checked against what they write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest
from tests.kubernetes import others
from tests.kubernetes.jobbing import define, jobbing
from tests.kubernetes.operating import pods
from tests.kubernetes.others import POOL, Sample
from tests.kubernetes.test_gateway import context, typed
from tests.support.kubernetes.control_plane import CONTROLLERS, ControlPlane
from tests.support.kubernetes.controller_programs import build_controllers
from tests.support.kubernetes.nodes import node, until
from tests.support.kubernetes.real_controllers import RealControllers

from roost.errors import Conflict, NotFound, RoostError
from roost.kubernetes.client import kinds
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, PODS, PRIORITY_CLASSES, Object
from roost.kubernetes.objects.pods import is_bound, is_leaving, is_over

_PROJECTS = ("kubeflow", "jobset", "trainer", "ray", "lws")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with all controllers, once for this module."""
    try:
        programs = build_controllers()
    except RoostError as error:
        pytest.skip(f"controllers of other projects are not built: {error}")
    folder = tmp_path_factory.mktemp("others")
    made = ControlPlane(
        folder / "plane",
        controller_manager=True,
        controllers=(
            *CONTROLLERS,
            "replicaset-controller",
            "statefulset-controller",
        ),
    )
    controllers = RealControllers(made, folder, programs)
    try:
        asyncio.run(made.start())
        asyncio.run(controllers.start(*_PROJECTS))
        yield made
    except NotFound as error:
        pytest.skip(str(error))
    finally:
        controllers.stop()
        asyncio.run(made.stop())


@pytest.fixture
def scene(plane: ControlPlane, runner: asyncio.Runner) -> Iterator[Scene]:
    """An operator that leads, and what a test does to the cluster; all is removed after it."""
    api = runner.run(Api.connect(kubeconfig=str(plane.kubeconfig)))
    runner.run(define(api))
    made = Scene(plane, api)
    yield made
    runner.run(made.clear())
    runner.run(api.close())


class Scene:
    """One cluster: objects are made on it, and their pods looked at."""

    def __init__(self, plane: ControlPlane, api: Api) -> None:
        self.plane, self.api = plane, api
        self._made: list[tuple[kinds.ResourceKind, str, str]] = []

    async def submit(self, *samples: Sample) -> None:
        """Create what users write."""
        for sample in samples:
            await self.make(sample.kind, sample.body)

    async def make(self, kind: kinds.ResourceKind, body: Object) -> Object:
        """Create an object that goes after the test."""
        space = "default" if kind.namespaced else ""
        # A webhook may need a moment after its certificate was made known.
        made = await self.api.create(kind, body, space)
        self._made.append((kind, body["metadata"]["name"], space))
        return made

    async def nodes(self, pool: str, *names: str, gpus: int = 4) -> None:
        """Nodes that only the pods of one pool go to."""
        for name in names:
            body = node(f"{pool}-{name}", gpus=gpus, labels={POOL: pool})
            await self.make(NODES, body)

    async def pods(self, pool: str) -> list[Object]:
        """The pods of a pool that are not about to go."""
        found = await pods(self.api)
        mine = [one for one in found if one["spec"].get("nodeSelector", {}).get(POOL) == pool]
        return [one for one in mine if not is_leaving(one)]

    async def counts(self, pools: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Of each pool, how many pods are bound and how many there are."""
        found = {}
        for pool in pools:
            there = await self.pods(pool)
            found[pool] = (sum(map(is_bound, there)), len(there))
        return found

    async def reaches(self, **wanted: tuple[int, int]) -> None:
        """Wait until of each pool so many pods are bound of so many."""

        async def there() -> bool:
            return await self.counts(wanted) == wanted

        try:
            await until(there, 90)
        except TimeoutError:
            assert await self.counts(wanted) == wanted, await self.said(wanted)

    async def said(self, pools: Iterable[str]) -> dict[str, str]:
        """What is told to pods that wait, by pool."""
        return {pool: next(filter(None, map(_waits, await self.pods(pool))), "") for pool in pools}

    async def patch(self, sample: Sample, spec: Object) -> None:
        """Change what a user wrote."""
        name = sample.body["metadata"]["name"]
        await self.api.patch(sample.kind, name, {"spec": spec}, "default")

    async def typed(self, *words: str) -> str:
        """What ``roost --context`` says to these words."""
        where = ("--context", context(self.plane))
        code, said = await asyncio.to_thread(typed, self.plane, *where, *words)
        assert code == 0, said
        return said

    async def clear(self) -> None:
        """Remove what the test made, and wait until no pod is left."""
        for kind, name, space in reversed(self._made):
            with contextlib.suppress(NotFound):
                await self.api.delete(kind, name, space)
        self._made.clear()

        async def gone() -> bool:
            for one in await pods(self.api):
                with contextlib.suppress(NotFound, Conflict):
                    meta = one["metadata"]
                    await self.api.delete(PODS, meta["name"], meta["namespace"], grace_s=0)
            return not await pods(self.api)

        await until(gone)


def _waits(pod: Object) -> str:
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return f"{one['reason']}: {one['message']}"
    return ""


@contextlib.asynccontextmanager
async def led(scene: Scene) -> AsyncIterator[None]:
    async with jobbing(scene.plane):
        yield


def test_gangs_of_every_controller_are_placed_whole_or_not_at_all(
    scene: Scene, runner: asyncio.Runner
) -> None:
    samples = {sample.name: sample for sample in others.SAMPLES}

    async def scenario() -> None:
        await scene.make(others.RUNTIMES, others.training_runtime())
        for pool in samples:
            await scene.nodes(pool, "a")  # room for two of four
        async with led(scene):
            await scene.submit(*samples.values())
            await scene.reaches(**dict.fromkeys(samples, (0, 4)))

            async def told() -> bool:
                return all((await scene.said(samples)).values())

            await until(told)
            said = await scene.said(samples)
            assert {pool: text.split(":")[0] for pool, text in said.items()} == dict.fromkeys(
                samples, "Unschedulable"
            ), said
            for pool in samples:
                await scene.nodes(pool, "b")
            await scene.reaches(**dict.fromkeys(samples, (4, 4)))
            listed = await scene.typed("list", "-A")
            for sample in samples.values():
                rows = [line for line in listed.splitlines() if line.startswith(sample.gang)]
                assert ["running" in row for row in rows] == [True], (sample.gang, listed)

    runner.run(scenario())


def test_what_is_suspended_gives_back_all_and_comes_back_whole(
    scene: Scene, runner: asyncio.Runner
) -> None:
    ways = [
        (others.kubeflow(kinds.PYTORCH_JOBS, {"Master": 1, "Worker": 3}), ("runPolicy", "suspend")),
        (others.job_set(), ("suspend",)),
        (others.train_job(), ("suspend",)),
        (others.ray_cluster(), ("suspend",)),
    ]
    names = [sample.name for sample, _ in ways]

    async def turn(*, off: bool) -> None:
        for sample, path in ways:
            change: Object | bool = off
            for key in reversed(path):
                change = {key: change}
            await scene.patch(sample, dict(change) if isinstance(change, dict) else {})

    async def scenario() -> None:
        await scene.make(others.RUNTIMES, others.training_runtime())
        for name in names:
            await scene.nodes(name, "a", "b")
        async with led(scene):
            await scene.submit(*(sample for sample, _ in ways))
            await scene.reaches(**dict.fromkeys(names, (4, 4)))
            await turn(off=True)
            await scene.reaches(**dict.fromkeys(names, (0, 0)))
            for name in names:  # what is gone holds nothing: others take its place
                await scene.api.patch(NODES, f"{name}-b", {"spec": {"unschedulable": True}})
            await turn(off=False)
            await scene.reaches(**dict.fromkeys(names, (0, 4)))
            for name in names:
                await scene.api.patch(NODES, f"{name}-b", {"spec": {"unschedulable": False}})
            await scene.reaches(**dict.fromkeys(names, (4, 4)))

    runner.run(scenario())


def test_parts_that_start_one_after_the_other_do_not_wait_for_each_other(
    scene: Scene, runner: asyncio.Runner
) -> None:
    order = others.job_set("in-order", startupPolicy={"startupPolicyOrder": "InOrder"})
    ready = others.leader_worker_set("ready", startupPolicy="LeaderReady")
    groups = others.leader_worker_set("groups", groups=2)
    ray = others.ray_cluster("ray-auto", enableInTreeAutoscaling=True)
    names = [one.name for one in (order, ready, groups, ray)]

    async def scenario() -> None:
        for name in names:
            await scene.nodes(name, "a")
        await scene.nodes("groups", "b")
        async with led(scene):
            await scene.submit(order, ready, groups, ray)
            # The first part runs, of two groups one; of Ray the head and the least of its workers.
            await scene.reaches(
                **{"in-order": (1, 4), "ready": (1, 4), "groups": (4, 8), "ray-auto": (2, 4)}
            )
            for name in names:
                await scene.nodes(name, "c", gpus=8)
            await scene.reaches(
                **{"in-order": (4, 4), "ready": (4, 4), "groups": (8, 8), "ray-auto": (4, 4)}
            )

    runner.run(scenario())


def test_what_is_elastic_grows_into_free_room_and_gives_it_back(
    scene: Scene, runner: asyncio.Runner
) -> None:
    policy = {"minReplicas": 2, "maxReplicas": 8, "rdzvBackend": "c10d"}
    torch = others.kubeflow(kinds.PYTORCH_JOBS, {"Worker": 4}, "elastic", elasticPolicy=policy)
    ray = others.ray_cluster("ray-grows")
    both = ("elastic", "ray-grows")

    async def resize(workers: int) -> None:
        replicas = {"Worker": {"replicas": workers}}
        await scene.patch(torch, {"pytorchReplicaSpecs": replicas})
        (group,) = ray.body["spec"]["workerGroupSpecs"]
        await scene.patch(ray, {"workerGroupSpecs": [{**group, "replicas": workers - 1}]})

    async def scenario() -> None:
        for name in both:
            await scene.nodes(name, "a", "b")
        async with led(scene):
            await scene.submit(torch, ray)
            await scene.reaches(**dict.fromkeys(both, (4, 4)))
            await resize(6)
            await scene.reaches(**dict.fromkeys(both, (4, 6)))
            for name in both:
                await scene.nodes(name, "c")
            await scene.reaches(**dict.fromkeys(both, (6, 6)))
            await resize(2)
            await scene.reaches(**dict.fromkeys(both, (2, 2)))
            await resize(6)
            await scene.reaches(**dict.fromkeys(both, (6, 6)))

    runner.run(scenario())


def test_a_gang_makes_room_as_a_whole_for_one_of_higher_priority(
    scene: Scene, runner: asyncio.Runner
) -> None:
    def ranked(name: str, rank: str) -> Sample:
        where = {POOL: "ranked"}
        spec = {"priorityClassName": rank, "nodeSelector": where}
        return others.kubeflow(kinds.PYTORCH_JOBS, {"Master": 1, "Worker": 3}, name, spec)

    async def bound(name: str) -> tuple[int, int]:
        of_it = [
            one for one in await scene.pods("ranked") if one["metadata"]["name"].startswith(name)
        ]
        return sum(is_bound(one) and not is_over(one) for one in of_it), len(of_it)

    async def scenario() -> None:
        for name, value in (("low", 10), ("high", 1000)):
            await scene.make(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        await scene.nodes("ranked", "a", "b")
        async with led(scene):
            await scene.submit(ranked("modest", "low"))
            await scene.reaches(ranked=(4, 4))
            await scene.submit(ranked("urgent", "high"))

            # Never restarted, the job that made room has failed: its controller says so, not Roost.
            async def moved() -> bool:
                return await bound("urgent") == (4, 4) and (await bound("modest"))[0] == 0

            await until(moved, 90)

    runner.run(scenario())
