"""Requests that arrive when nobody waits for them any more, and leaders with an old picture."""

from __future__ import annotations

import asyncio
import contextlib

from tests.kubernetes.faulting import ForgetfulProxy, leading, operator, settled
from tests.kubernetes.jobbing import SPACE, define, job, pretend, reaches, status
from tests.kubernetes.operating import bound, gang, over_committed, pods
from tests.kubernetes.oracles import Witness
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, PODS, PRIORITY_CLASSES
from roost.kubernetes.objects.pods import is_bound
from roost.kubernetes.operator.loop import Operator

STATUS = f"PATCH {JOBS.path(SPACE, 'train', 'status')}"
WAIT_S = 60.0


def test_a_status_that_comes_late_changes_no_verdict(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        async with (
            Witness.of(api) as witness,
            ForgetfulProxy(cluster.url, cluster.authority) as proxy,
        ):
            word = proxy.held[STATUS] = asyncio.Event()
            async with operator(cluster.kubeconfig_of("admin", server=proxy.url)):
                await api.create(JOBS, job("train"), SPACE)
                await until(lambda: bound(api, 1), WAIT_S)
                await until(lambda: saw(proxy, "held"), WAIT_S)
            async with operator(cluster.kubeconfig):
                await reaches(api, "train", "running", WAIT_S)
                await pretend(api, witness.job_pods("train")[0], "succeeds")
                await reaches(api, "train", "succeeded", WAIT_S)
                word.set()
                await until(lambda: saw(proxy, "late"), WAIT_S)
            async with operator(cluster.kubeconfig):
                await settled(witness, lambda: True)
                assert (await status(api, "train"))["state"] == "succeeded"
            assert len(witness.made) == 1

    runner.run(scenario())


def test_a_new_leader_with_an_old_picture_looks_again(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Its watch of Jobs stands still while a Job ends and the last leader goes."""

    async def scenario() -> None:
        await define(api)
        await nodes(api, 1)
        async with (
            Witness.of(api) as witness,
            ForgetfulProxy(cluster.url, cluster.authority) as proxy,
            contextlib.AsyncExitStack() as first,
        ):
            await first.enter_async_context(operator(cluster.kubeconfig))
            await api.create(JOBS, job("train"), SPACE)
            await reaches(api, "train", "running", WAIT_S)
            through = cluster.kubeconfig_of("admin", server=proxy.url)
            async with operator(through, lead=False) as second:
                await until(lambda: has(second, 1), WAIT_S)
                word = proxy.held[f"WATCH {JOBS.path()}"] = asyncio.Event()
                await pretend(api, witness.job_pods("train")[0], "succeeds")
                await reaches(api, "train", "succeeded", WAIT_S)
                await api.delete(PODS, "train-1-worker-0", SPACE)
                await until(lambda: has(second, 0), WAIT_S)
                await first.aclose()
                await until(lambda: leading(second), WAIT_S)
                await create(api, PODS, [pod("proof")])
                await until(lambda: bound(api, 1), WAIT_S)
                word.set()
            assert set(witness.made.values()) <= {"train-1-worker-0", "proof"}

    runner.run(scenario())


def test_bindings_that_come_late_are_undone_where_the_place_is_taken(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await nodes(api, 1, gpus=2)
        await api.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        async with ForgetfulProxy(cluster.url, cluster.authority) as proxy:
            word = asyncio.Event()
            for n in range(2):
                proxy.held[f"POST {PODS.path(SPACE, f'late-{n}', 'binding')}"] = word
            async with operator(cluster.kubeconfig_of("admin", server=proxy.url)):
                await create(api, PODS, gang("late", 2))
                await until(lambda: saw(proxy, "held", 2), WAIT_S)
            await create(api, PODS, [pod("urgent", gpus=2, priorityClassName="high")])
            async with operator(cluster.kubeconfig):
                await until(lambda: bound(api, 1), WAIT_S)
                word.set()
                await until(lambda: saw(proxy, "late", 2), WAIT_S)
                await until(lambda: adds_up(api), WAIT_S)
                assert [p["metadata"]["name"] for p in await pods(api) if is_bound(p)] == ["urgent"]

    runner.run(scenario())


async def saw(proxy: ForgetfulProxy, what: str, count: int = 1) -> bool:
    """Whether a proxy saw something so often."""
    return proxy.seen[what] >= count


async def has(operator: Operator, count: int) -> bool:
    """Whether an operator knows everything, and so many pods."""
    return operator.synced and len(operator.mirrors[PODS].objects) == count


async def adds_up(api: Api) -> bool:
    """Whether no node gives more than it has."""
    return not await over_committed(api)
