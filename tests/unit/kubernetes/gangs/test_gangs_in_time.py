"""Gangs on a server whose news come late, some kinds later than others, and whose answers get lost.

The same pods are made again as soon as the last one of them is gone, as their controllers do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping

import pytest
from tests.support.kubernetes.nodes import node
from tests.unit.kubernetes.operator.objects import gang
from tests.unit.kubernetes.operator.small_cluster import Key, SmallCluster, merged

from roost import placement, policies
from roost.errors import NotFound
from roost.jobs.clock import WallClock
from roost.kubernetes.client.kinds import NODES, PODS, Object, ResourceKind
from roost.kubernetes.filters import NODE_FILTERS
from roost.kubernetes.objects.pods import is_bound
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.leadership import Leadership
from roost.kubernetes.operator.loop import pod_sources


class Late(SmallCluster):
    """Its mirrors know of each change some time later: of each kind in order."""

    def __init__(self, seed: int, faults: float, lag_s: float) -> None:
        super().__init__(seed, faults)
        self.lag_s = lag_s
        self.known: dict[ResourceKind, dict[Key, Object]] = defaultdict(dict)
        self._news: dict[ResourceKind, deque[tuple[Key, Object | None]]] = defaultdict(deque)
        self._going: set[asyncio.Task[None]] = set()

    def put(self, kind: ResourceKind, key: Key, new: Object | None) -> None:
        there = self.stored.setdefault(kind, {})
        there.pop(key, None)
        if new is not None:
            new["metadata"]["resourceVersion"] = str(next(self._numbers))
            there[key] = new
        self._news[kind].append((key, new))
        asyncio.get_running_loop().call_later(self._lag(), self._tell, kind)

    def _lag(self) -> float:
        return self.random.random() * self.lag_s

    def _tell(self, kind: ResourceKind) -> None:
        key, new = self._news[kind].popleft()
        old = self.known[kind].pop(key, None)
        if new is not None:
            self.known[kind][key] = new
        if self.leadership is not None:
            self.leadership.observe(kind, old, new)

    async def evict(self, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        """It is asked to leave, and does so a little later."""
        del grace_s
        await self._asked()
        found = self.objects(PODS).get((namespace, name))
        if found is None or found["metadata"]["uid"] != uid:
            raise NotFound("no such pod")
        if "deletionTimestamp" not in found["metadata"]:
            at = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
            self.put(PODS, (namespace, name), merged(found, at))
            task = asyncio.create_task(self._leave(namespace, name, uid))
            self._going.add(task)
            task.add_done_callback(self._going.discard)
        await self._answered()

    async def _leave(self, namespace: str, name: str, uid: str) -> None:
        await asyncio.sleep(self._lag())
        with self.quiet():
            await SmallCluster.delete(self, PODS, name, namespace, uid=uid)

    @contextlib.asynccontextmanager
    async def led(self) -> AsyncIterator[Leadership]:
        """An operator that leads."""
        leadership = Leadership(
            policies.policy("priority"),
            placement.placer("consolidate"),
            lambda kind: self.known[kind],
            WallClock().now,
            pod_sources(),
            api=self,  # type: ignore[arg-type]
            binder=Binder(self, lambda: None),  # type: ignore[arg-type]
            lost_s=60,
            filters=NODE_FILTERS,
        )
        self.leadership = leadership
        task = asyncio.create_task(leadership.run())
        try:
            yield leadership
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self.leadership = None

    async def make(self, *pods: Object) -> None:
        """Pods come, each for the first time."""
        with self.quiet():
            for one in pods:
                body = {**one, "metadata": {**one["metadata"], "uid": ""}}
                await self.create(PODS, body, one["metadata"]["namespace"])

    def bound(self) -> int:
        return sum(map(is_bound, self.objects(PODS).values()))


def nodes(*names: str, gpus: int) -> Mapping[str, Object]:
    return {name: node(name, gpus=gpus) for name in names}


@pytest.mark.parametrize("seed", range(12))
def test_a_gang_that_lost_a_node_comes_back_whole(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.kubernetes.gangs.binding.AGAIN_S", 0.1)

    async def scenario() -> None:
        cluster = Late(seed, faults=0.2 * (seed % 2), lag_s=0.05)
        for name, one in nodes("a", "b", "c", gpus=4).items():
            cluster.put(NODES, ("", name), one)
        made = gang("wide", 8)
        async with cluster.led():
            await cluster.make(*made)
            await cluster.until(lambda: cluster.bound() == 8)
            for _ in range(3):
                victim = next(iter(cluster.objects(PODS).values()))["spec"]["nodeName"]
                lost = cluster.objects(NODES)["", victim]
                cluster.put(NODES, ("", victim), None)
                await cluster.until(lambda: not cluster.objects(PODS))
                await cluster.make(*made)
                await cluster.until(lambda: cluster.bound() == 8)
                where = {one["spec"]["nodeName"] for one in cluster.objects(PODS).values()}
                assert victim not in where
                cluster.put(NODES, ("", victim), lost)

    asyncio.run(scenario())


def zoned(*zones: str) -> Mapping[str, Object]:
    return {f"node-{zone}": node(f"node-{zone}", labels={"zone": zone}) for zone in zones}


_X = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
_APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_X]}}}
_SPREAD = {
    "topologySpreadConstraints": [{**_X, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
}


@pytest.mark.parametrize("spec", [_APART, _SPREAD])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_of_a_gang_that_keeps_apart_gets_the_seat_of_the_one_before(
    spec: Object, *, restarted: bool
) -> None:
    async def scenario() -> None:
        cluster = Late(1, faults=0.0, lag_s=0.02)
        for name, one in zoned("a", "b", "c", "d").items():
            cluster.put(NODES, ("", name), one)
        made = gang("wide", 3, labels={"app": "x"}, spec=spec)
        first = made[0]["metadata"]["name"]

        async def again() -> None:
            before = cluster.objects(PODS)["lab", first]["spec"]["nodeName"]
            with cluster.quiet():
                await cluster.delete(PODS, first, "lab")
            await cluster.make(made[0])
            await cluster.until(lambda: cluster.bound() == 3)
            assert cluster.objects(PODS)["lab", first]["spec"]["nodeName"] == before

        async with cluster.led():
            await cluster.make(*made)
            await cluster.until(lambda: cluster.bound() == 3)
            if not restarted:
                await again()
        if restarted:
            async with cluster.led():
                await again()

    asyncio.run(scenario())


@pytest.mark.parametrize("late", [False, True])
def test_where_there_is_room_for_those_that_start_together_they_start(*, late: bool) -> None:
    async def scenario() -> None:
        cluster = Late(1, faults=0.0, lag_s=0.02)
        cluster.put(NODES, ("", "a"), node("a", gpus=4))
        made = gang("some", 4, gpus=2)
        for number, one in enumerate(made):
            one["metadata"]["annotations"]["roost.dev/group-size"] = "2"
            one["metadata"]["labels"] = {"roost.dev/role": "worker" if number else "head"}
        there = made[:2] if late else made
        await cluster.make(*reversed(there))
        await cluster.until(lambda: len(cluster.known[PODS]) == len(there))
        async with cluster.led():
            await cluster.until(lambda: cluster.bound() == 2)
            if late:
                await cluster.make(*made[2:])
            # The one that leads the others is among them, though it came last.
            assert is_bound(cluster.objects(PODS)["lab", "some-0"])
            cluster.put(NODES, ("", "b"), node("b", gpus=2))
            await cluster.until(lambda: cluster.bound() == 3)
            cluster.put(NODES, ("", "c"), node("c", gpus=2))
            await cluster.until(lambda: cluster.bound() == 4)

    asyncio.run(scenario())
