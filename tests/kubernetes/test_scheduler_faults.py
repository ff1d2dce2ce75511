"""What can go wrong while Roost binds pods: rivals, deaths, pauses, restarts, lost nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.kubernetes.operating import bound, by_gang, gang, operating, over_committed, pods
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, timestamp, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    DISRUPTION_BUDGETS,
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Object,
)
from roost.kubernetes.objects.pods import PLAN, is_bound, is_over

_LEASE = "roost-operator"
ROOST = Path(sys.executable).with_name("roost")


def test_the_next_leader_completes_the_gang_of_one_that_was_killed(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 4, gpus=2)
        made = gang("half", 8)
        async with process(cluster, ROOST_FAILPOINT="pods.after-bind:3") as first:
            await create(api, PODS, made)
            await asyncio.wait_for(first.wait(), 60)
            assert first.returncode == -signal.SIGKILL
        begun = [p for p in await pods(api) if is_bound(p)]
        plans = {p["metadata"]["annotations"][PLAN] for p in begun}
        assert len(plans) == 1
        assert 3 <= len(begun) < 8
        async with operating(cluster, lease_s=2.0):
            found = await until(lambda: bound(api, 8), 30)
        assert {p["metadata"]["annotations"][PLAN] for p in found} == plans
        assert await over_committed(api) == []

    runner.run(scenario())


def test_a_gang_that_cannot_be_completed_is_rolled_back(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 8, gpus=1)
        async with process(cluster, ROOST_FAILPOINT="pods.after-bind:3") as first:
            await create(api, PODS, gang("half", 8))
            await asyncio.wait_for(first.wait(), 60)
        await asyncio.sleep(1)  # what it asked for last may be done after its death
        taken = {p["spec"]["nodeName"] for p in await pods(api) if is_bound(p)}
        free = sorted({f"node-{n:04}" for n in range(8)} - taken)
        await create(api, PODS, [pod("rival", scheduler="other", nodeName=free[0])])
        async with operating(cluster, lease_s=2.0):
            await until(lambda: nothing_bound(api, "half"), 30)
        assert await over_committed(api) == []

    runner.run(scenario())


def test_a_leader_that_slept_past_its_lease_binds_nothing_more(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 4)
        async with process(cluster, "--lease", "3s") as first:
            await create(api, PODS, [pod("before")])
            await until(lambda: bound(api, 1), 30)
            os.kill(first.pid, signal.SIGSTOP)
            await create(api, PODS, [pod(f"late-{n}") for n in range(20)])
            await asyncio.sleep(3.5)
            usurper = asyncio.create_task(usurp(api))
            await asyncio.sleep(0.5)
            os.kill(first.pid, signal.SIGCONT)
            await asyncio.sleep(3)
            assert sum(map(is_bound, await pods(api))) == 1
            usurper.cancel()
            await until(lambda: bound(api, 21), 30)

    runner.run(scenario())


def test_the_api_server_dies_in_the_middle_of_500_bindings(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 70)
        made = [pod(f"one-{n}") for n in range(300)]
        made += [one for n in range(25) for one in gang(f"gang-{n}", 8)]
        async with operating(cluster) as operator:
            creating = asyncio.create_task(create(api, PODS, made))
            await creating
            await until(lambda: some_bound(operator.binder.counts["bound"], 50))
            cluster.kill_apiserver()
            await cluster.restart_apiserver()
            found = await until(lambda: bound(api, 500), 60)
            assert all(have == want for have, want in by_gang(found).values())
            assert await over_committed(api) == []
            await until(lambda: all_run(operator, 325))

    runner.run(scenario())


def test_pods_of_a_lost_node_go_and_the_rest_of_the_gang_with_them(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 3, gpus=4)
        made = gang("wide", 8)
        async with operating(cluster):
            await create(api, PODS, made)
            found = await until(lambda: bound(api, 8))
            victim = found[0]["spec"]["nodeName"]
            await api.delete(NODES, victim)
            await until(lambda: gone(api))
            for one in made:  # KWOK deletes by name, and may do so twice: these have other names
                one["metadata"]["name"] += "-again"
            await create(api, PODS, made)  # as its controller would
            again = await until(lambda: bound(api, 8))
            assert victim not in {p["spec"]["nodeName"] for p in again}

    runner.run(scenario())


def test_a_higher_priority_makes_room_but_not_of_what_a_budget_protects(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 1)
        await api.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await api.create(DISRUPTION_BUDGETS, budget("guard", {"app": "guarded"}))
        await api.patch(
            *(DISRUPTION_BUDGETS, "guard", {"status": NO_DISRUPTION}, "default"), sub="status"
        )
        async with operating(cluster):
            await create(api, PODS, gang("guarded", 4, labels={"app": "guarded"}))
            await create(api, PODS, gang("victim", 4, labels={"app": "victim"}))
            await until(lambda: bound(api, 8))
            await asyncio.sleep(2)  # budgets are looked at once a second
            await create(api, PODS, gang("urgent", 4, priorityClassName="high"))
            await until(lambda: whole(api, "urgent"), 30)
            found = by_gang(await pods(api))
            assert found["guarded"] == (4, 4)
            assert "victim" not in found
            # With only the guarded one left to go, nobody goes.
            await create(api, PODS, gang("more", 4, priorityClassName="high"))
            await asyncio.sleep(2)
            found = by_gang(await pods(api))
            assert (found["guarded"], found["more"]) == ((4, 4), (0, 4))

    runner.run(scenario())


def test_a_budget_that_comes_too_late_to_be_known_is_respected_all_the_same(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 1)
        await api.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        async with operating(cluster) as operator:
            await create(api, PODS, gang("guarded", 8, labels={"app": "guarded"}))
            await until(lambda: bound(api, 8))
            operator.mirrors[DISRUPTION_BUDGETS].objects = {}  # as a mirror that lags
            await api.create(DISRUPTION_BUDGETS, budget("guard", {"app": "guarded"}))
            await create(api, PODS, gang("urgent", 4, priorityClassName="high"))
            await asyncio.sleep(3)
            assert by_gang(await pods(api)) == {"guarded": (8, 8), "urgent": (0, 4)}
            await api.delete(DISRUPTION_BUDGETS, "guard", "default")
            await until(lambda: whole(api, "urgent"), 30)

    runner.run(scenario())


def test_a_restart_binds_nothing_that_is_over(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        names = await nodes(api, 20)
        finished = [
            pod(f"done-{n}", nodeName=names[n % 20], pretend="succeeds") for n in range(600)
        ]
        for n in range(50):
            finished += gang(f"over-{n}", 8, nodeName=names[n % 20], pretend="fails")
        await create(api, PODS, finished)
        await create(api, PODS, [pod(f"on-{n}", nodeName=names[n % 20]) for n in range(100)])
        half = [pod(f"half-{n}") for n in range(25)]
        half += [pod(f"going-{n}", gpus=0, nodeName=names[0], pretend="stays") for n in range(25)]
        for one in half:
            one["metadata"]["finalizers"] = ["example.org/wait"]
        await create(api, PODS, half)
        await asyncio.gather(
            *(api.delete(PODS, one["metadata"]["name"], "default", grace_s=0) for one in half)
        )
        await until(lambda: all_over(api, 1000), 120)
        async with operating(cluster) as operator:
            await asyncio.sleep(2)
            assert not operator.binder.counts
            assert operator.leadership is not None
            assert operator.leadership.core.ledger.free_milli == 60_000
            await create(api, PODS, [pod(f"new-{n}") for n in range(60)])
            await until(lambda: some_bound(operator.binder.counts["bound"], 60))
            assert await over_committed(api) == []

    runner.run(scenario())


def test_two_schedulers_at_once(tmp_path: Path, runner: asyncio.Runner) -> None:
    """Kubernetes' own scheduler on the same nodes: what does not fit is not let in by its node."""

    async def scenario() -> None:
        async with ControlPlane(tmp_path, kwok=False, scheduler=True) as plane:
            api = await Api.connect(kubeconfig=str(plane.kubeconfig))
            try:
                await nodes(api, 20)
                admitting = asyncio.create_task(admit(api))
                async with operating(plane) as operator:
                    ours = [pod(f"ours-{n}") for n in range(100)]
                    theirs = [pod(f"theirs-{n}", scheduler="default-scheduler") for n in range(100)]
                    mixed = [one for pair in zip(ours, theirs, strict=True) for one in pair]
                    await create(api, PODS, mixed)
                    await until(lambda: settled(api, 160), 60)
                    before = operator.binder.counts["bound"]
                    await asyncio.sleep(3)
                    assert operator.binder.counts["bound"] == before
                    assert await over_committed(api) == []
                    assert operator.leadership is not None
                    assert operator.leadership.reconciler.nodes.closed == 0
                admitting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await admitting
            finally:
                await api.close()

    runner.run(scenario())


# -- parts of scenarios ----------------------------------------------------------------------------

NO_DISRUPTION: Object = {
    "disruptionsAllowed": 0,
    "currentHealthy": 4,
    "desiredHealthy": 4,
    "expectedPods": 4,
    "observedGeneration": 1,
}


@contextlib.asynccontextmanager
async def process(
    plane: ControlPlane, *arguments: str, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """``roost operator`` as a process; it is killed at the end."""
    started = await asyncio.create_subprocess_exec(
        *(str(ROOST), "operator", "--kubeconfig", str(plane.kubeconfig)),
        *("--metrics-port", "0", "--meeting-port", "0", "--connections", "4"),
        *(arguments or ("--lease", "2s")),
        env={**os.environ, **environment},
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def usurp(api: Api) -> None:
    """Hold the lease of the operators, without being one."""
    number = 0
    while True:
        found = await api.get(LEASES, _LEASE, "default")
        number += 1
        spec = {"holderIdentity": "usurper", "leaseTransitions": number}
        spec |= {"renewTime": timestamp(micro=True), "leaseDurationSeconds": 3}
        await api.replace(LEASES, found | {"spec": found["spec"] | spec})
        await asyncio.sleep(0.5)


async def admit(api: Api) -> None:
    """Play the kubelets: let in what fits, in the order in which it comes, and refuse the rest."""
    inside: dict[str, int] = Counter()
    known: set[str] = set()
    while True:
        found = [one for one in await pods(api) if is_bound(one)]
        for one in sorted(found, key=lambda one: int(one["metadata"]["resourceVersion"])):
            name, where = one["metadata"]["name"], one["spec"]["nodeName"]
            if name in known:
                continue
            known.add(name)
            inside[where] += 1
            fits = inside[where] <= 8
            status = {"phase": "Running"} if fits else {"phase": "Failed", "reason": "OutOfgpu"}
            await api.patch(PODS, name, {"status": status}, "default", sub="status")
        await asyncio.sleep(0.05)


def budget(name: str, labels: dict[str, str]) -> Object:
    """A budget that allows nothing to go."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
    }


async def nothing_bound(api: Api, name: str) -> bool:
    """Whether no pod of a gang is bound and alive."""
    found = [p for p in await pods(api) if p["metadata"]["name"].startswith(name)]
    return not any(is_bound(p) for p in found)


async def some_bound(have: int, least: int) -> bool:
    """Whether enough were bound."""
    return have >= least


async def all_run(operator: Any, jobs: int) -> bool:
    """Whether the core knows so many runs that started."""
    runs = operator.leadership.core.runs.values() if operator.leadership is not None else ()
    return sum(run.started_at is not None for run in runs) == jobs


async def gone(api: Api) -> bool:
    """Whether there is no pod."""
    return not await pods(api)


async def whole(api: Api, name: str) -> bool:
    """Whether all pods of a gang are bound."""
    have, want = by_gang(await pods(api)).get(name, (0, 1))
    return have == want


async def all_over(api: Api, count: int) -> bool:
    """Whether so many pods are over."""
    return sum(map(is_over, await pods(api))) >= count


async def settled(api: Api, room: int) -> bool:
    """Whether as many pods run as can: of those that their nodes did not refuse."""
    phases = Counter(p["status"]["phase"] for p in await pods(api))
    return phases["Running"] == min(room, phases.total() - phases["Failed"])
