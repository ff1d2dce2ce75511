"""Pods as tenants: taken in, changed, suspended and let go, as annotations say."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from roost.core.allocation import Seat
from roost.core.spec import NodeId, Qos, Resources, RunId
from roost.engines.local.gpu import GpuSharing, ParkResult
from roost.kubernetes.agent import tenants as held
from roost.kubernetes.agent.allocation import ContainerWish, wishes_of
from roost.kubernetes.agent.tenants import PodTenants
from roost.kubernetes.objects.nodes import SHARED_GPUS

CONTAINER = "ab" * 32
NODE = NodeId("n1")
Object = dict[str, Any]


class FakeSharing:
    """Notes what it is asked for; ``answer``: what becomes of parking."""

    def __init__(self) -> None:
        self.attached: list[tuple[tuple[int, ...], Resources, tuple[int, int]]] = []
        self.detached: list[RunId] = []
        self.parked: set[RunId] = set()
        self.answer = ParkResult(how="stopped")

    async def attach(
        self,
        _: RunId,
        seats: list[Seat],
        needs: dict[str, Resources],
        workers: dict[str, tuple[int, int]],
    ) -> None:
        self.attached.append((seats[0].gpus, needs["worker"], workers["worker-0"]))

    async def detach(self, run: RunId) -> None:
        self.detached.append(run)

    def is_parked(self, run: RunId) -> bool:
        return run in self.parked

    def problem(self, _: RunId) -> str:
        return ""

    async def park(self, run: RunId) -> ParkResult:
        if self.answer.how != "none":
            self.parked.add(run)
        return self.answer

    async def unpark(self, run: RunId, _: list[Seat]) -> ParkResult:
        self.parked.discard(run)
        return self.answer


def pod(**notes: str) -> Object:
    annotations = {"roost.dev/gpus": "2", "roost.dev/gpu-share": "0.5"}
    annotations |= {f"roost.dev/{key.replace('_', '-')}": value for key, value in notes.items()}
    status = {"name": "main", "containerID": f"containerd://{CONTAINER}", "state": {"running": {}}}
    return {
        "metadata": {
            "name": "left",
            "namespace": "team",
            "uid": "u1",
            "annotations": annotations,
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {SHARED_GPUS: "1"}}}],
        },
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


class Tenants:
    """Tenants of a node with one pod, whose container has a process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sharing, self.told = FakeSharing(), list[Object]()
        self.processes = {CONTAINER: (1 << 30, 7)}
        monkeypatch.setattr(held, "first_processes", lambda _: self.processes)
        self.of = PodTenants(cast("GpuSharing", self.sharing), self._annotate)

    async def _annotate(self, _: Object, notes: dict[str, str | None]) -> None:
        self.told += [json.loads(one) for one in notes.values() if one]

    async def look(self, *pods: Object) -> None:
        given: list[tuple[ContainerWish, tuple[int, ...]]] = [
            (wish, (2,)) for one in pods for wish in wishes_of(one, [SHARED_GPUS], NODE)
        ]
        await self.of.look(pods, given)
        await asyncio.gather(*(one.underway for one in self.of._tenants.values() if one.underway))


@pytest.fixture
def tenants(monkeypatch: pytest.MonkeyPatch) -> Tenants:
    return Tenants(monkeypatch)


def test_a_pod_is_taken_in_once_and_let_go_when_it_is_over(tenants: Tenants) -> None:
    async def story() -> None:
        await tenants.look(pod())
        await tenants.look(pod())
        assert tenants.sharing.attached == [
            ((2,), Resources(share_milli=500), tenants.processes[CONTAINER])
        ]
        tenants.processes = {CONTAINER: (1 << 30, 8)}  # its container was started anew
        await tenants.look(pod())
        assert tenants.sharing.attached[1][2] == (1 << 30, 8)
        await tenants.look()
        assert [run.job for run in tenants.sharing.detached] == ["u1"]
        assert tenants.of.standings() == []

    asyncio.run(story())


def test_how_it_is_held_follows_its_annotations(tenants: Tenants) -> None:
    async def story() -> None:
        await tenants.look(pod())
        await tenants.look(pod(gpu_qos="best-effort"))
        assert [need.qos for _, need, _ in tenants.sharing.attached] == [
            Qos.FIXED,
            Qos.BEST_EFFORT,
        ]

    asyncio.run(story())


def test_it_is_suspended_and_resumed_once_for_each_wish(tenants: Tenants) -> None:
    async def story() -> None:
        for one in (pod(), pod(suspend="true"), pod(suspend="true"), pod(), pod()):
            await tenants.look(one)
        assert [one["suspended"] for one in tenants.told] == [True, False]

    asyncio.run(story())


def test_a_refusal_is_told_with_its_reason_and_not_repeated(tenants: Tenants) -> None:
    tenants.sharing.answer = ParkResult(why="the operating system refused")

    async def story() -> None:
        for one in (pod(suspend="true"), pod(suspend="true")):
            await tenants.look(one)
        (told,) = tenants.told
        assert (told["suspended"], told["why"]) == (False, "the operating system refused")

    asyncio.run(story())


def test_the_next_agent_knows_who_is_suspended(tenants: Tenants) -> None:
    async def story() -> None:
        await tenants.look(pod(suspend="true"))
        fresh = PodTenants(cast("GpuSharing", tenants.sharing), tenants._annotate)
        tenants.of = fresh
        await tenants.look(pod(suspend="true"))
        assert len(tenants.told) == 1
        assert fresh.standings()[0].suspended

    asyncio.run(story())


def test_a_pod_that_runs_and_is_not_seen_is_named(tenants: Tenants) -> None:
    async def story() -> None:
        tenants.processes = {}
        await tenants.look(pod())
        assert list(tenants.of.unseen.values()) == ["team/left (container main)"]
        assert tenants.sharing.attached == []

    asyncio.run(story())
