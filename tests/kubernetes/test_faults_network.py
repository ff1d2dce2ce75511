"""Faults between the operator and the API server: partitions, storms, watches that lie.

The operator talks through a proxy; a witness with a sound connection sees what comes of it.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
from tests.kubernetes.faulting import ForgetfulProxy, leading, operator, settled
from tests.kubernetes.jobbing import define, job
from tests.kubernetes.operating import gang
from tests.kubernetes.oracles import Witness
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, until
from tests.support.kubernetes.proxy import Chances, FaultyProxy, Way

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object
from roost.kubernetes.objects.pods import is_bound, is_over

#: After faults end everything is as it should be within so many seconds.
CONVERGED_S = 60.0
RECONCILED_S = 60.0

WATCHES = {
    "expired": Chances(expire_watch=0.5),
    "stalled": Chances(stall_watch=0.5),
    "broken": Chances(cut_watch=0.7),
    "repeated": Chances(repeat_event=0.5),
}


def test_a_quarter_of_everything_is_lost_repeated_or_late(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """40 gangs and 20 Jobs come and end while no request can be trusted."""
    chances = Chances(
        lose_request=0.05,
        lose_answer=0.05,
        delay_request=0.05,
        delay_answer=0.05,
        repeat=0.05,
        cut_watch=0.25,
        expire_watch=0.1,
        repeat_event=0.25,
    )

    async def scenario() -> None:
        await define(api)
        await nodes(api, 26)  # gangs are not torn apart: some room is for none of them
        gangs = [one for n in range(40) for one in gang(f"gang-{n}", 2 + n % 3)]
        jobs = [job(f"job-{n}", workers=2) for n in range(20)]
        pods = len(gangs) + 40
        async with (
            Witness.of(api) as witness,
            FaultyProxy(cluster.url, cluster.authority, seed=29, chances=chances) as proxy,
            operator(proxied(cluster, proxy), stall_s=2.0, lease_s=9.0),
        ):
            await asyncio.gather(create(api, PODS, gangs), create(api, JOBS, jobs))
            await settled(
                witness, lambda: alive(witness) == pods and states(witness) == {"running"}
            )
            assert proxy.seen.total() - proxy.seen["pass"] > 100
            await asyncio.gather(*(end(api, pod) for pod in witness.pods))
            await settled(witness, lambda: states(witness) == {"succeeded"})
            assert len(witness.made) == len(witness.bound) == pods

    runner.run(scenario())


@pytest.mark.parametrize("fault", WATCHES)
def test_a_watch_that_fails_holds_nothing_up(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, fault: str
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 6)
        async with (
            Witness.of(api) as witness,
            FaultyProxy(cluster.url, cluster.authority, seed=25, chances=WATCHES[fault]) as proxy,
            operator(proxied(cluster, proxy), stall_s=1.5, lease_s=9.0),
        ):
            for n in range(6):
                await create(api, PODS, gang(f"gang-{n}", 4))
                await create(api, JOBS, [job(f"job-{n}")])
                await settled(witness, partial(runs, witness, 5 * (n + 1)), CONVERGED_S)
            await settled(witness, lambda: states(witness) == {"running"}, CONVERGED_S)

    runner.run(scenario())


def test_lists_of_yesterday_and_events_that_come_again(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """A cache in between answers with what it saw first; old events follow new ones, late."""

    async def scenario() -> None:
        await define(api)
        await nodes(api, 4)
        async with (
            Witness.of(api) as witness,
            ForgetfulProxy(cluster.url, cluster.authority, seed=25) as proxy,
            operator(proxied(cluster, proxy), stall_s=1.5, lease_s=9.0),
        ):
            proxy.replay = 3
            await create(api, PODS, [one for n in range(4) for one in gang(f"early-{n}", 4)])
            await settled(witness, lambda: alive(witness) == 16, CONVERGED_S)
            await asyncio.gather(*(end(api, pod) for pod in witness.pods))
            await settled(witness, lambda: alive(witness) == 0, CONVERGED_S)
            # Lists are older than what is known, and watches end so that they are asked for.
            path = PODS.path()
            proxy.stale[path] = 2
            proxy.lag_s[path] = 0.05
            proxy.chances = Chances(expire_watch=0.5)
            await create(api, PODS, [one for n in range(6) for one in gang(f"late-{n}", 4)])
            await settled(witness, lambda: alive(witness) == 24, CONVERGED_S)
            proxy.heal()
            assert proxy.seen["replayed"]

    runner.run(scenario())


def test_watches_that_always_fail_are_asked_for_ever_less(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        await define(api)
        await nodes(api, 2)
        async with (
            Witness.of(api) as witness,
            FaultyProxy(cluster.url, cluster.authority, seed=25) as proxy,
            operator(proxied(cluster, proxy), lease_s=9.0) as made,
        ):
            proxy.chances = Chances(expire_watch=1.0)
            await cluster.restart_apiserver()  # which ends all watches
            before, began = proxy.seen.total(), time.monotonic()
            await until(lambda: after(began + 6.0))
            each = (proxy.seen.total() - before) / 6.0 / len(made.mirrors)
            assert each < 2.0, f"{each:.1f} requests a second for each kind"
            await create(api, PODS, gang("gang", 4))  # lists are as good as watches, if slower
            await settled(witness, lambda: alive(witness) == 4, CONVERGED_S)

    runner.run(scenario())


def test_a_storm_of_refusals_is_met_with_patience(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Nine of ten requests are answered with 429 or 503: few are made, and all is well after."""

    async def scenario() -> None:
        await define(api)
        await nodes(api, 6)
        async with (
            Witness.of(api) as witness,
            FaultyProxy(cluster.url, cluster.authority, seed=25) as proxy,
            operator(proxied(cluster, proxy), lease_s=6.0) as made,
        ):
            proxy.chances = Chances(refuse=0.9)
            await create(api, PODS, [one for n in range(8) for one in gang(f"gang-{n}", 4)])
            await create(api, JOBS, [job(f"job-{n}") for n in range(8)])
            before, began = proxy.seen.total(), time.monotonic()
            await until(lambda: after(began + 5.0))
            rate = (proxy.seen.total() - before) / (time.monotonic() - began)
            assert rate < 100, f"{rate:.0f} requests a second into a storm"
            proxy.heal()
            await settled(witness, lambda: alive(witness) == 40, CONVERGED_S)
            await settled(witness, lambda: states(witness) == {"running"}, CONVERGED_S)
            assert await leading(made)

    runner.run(scenario())


@pytest.mark.parametrize(
    ("seconds", "lease_s", "way"),
    [
        (5.0, 15.0, "both"),
        (5.0, 3.0, "both"),
        (5.0, 3.0, "requests"),
        (5.0, 3.0, "answers"),
        (20.0, 15.0, "both"),
    ],
)
def test_a_partition_while_gangs_are_bound(
    cluster: ControlPlane,
    api: Api,
    runner: asyncio.Runner,
    seconds: float,
    lease_s: float,
    way: Way,
) -> None:
    async def scenario() -> None:
        await define(api)
        names = await nodes(api, 10)
        async with (
            Witness.of(api) as witness,
            FaultyProxy(cluster.url, cluster.authority, seed=28) as proxy,
            operator(proxied(cluster, proxy), lease_s=lease_s) as made,
        ):
            leadership = made.leadership
            await create(api, JOBS, [job(f"done-{n}") for n in range(3)])
            await settled(witness, lambda: states(witness) == {"running"})
            made_before = create(api, PODS, [o for n in range(10) for o in gang(f"a-{n}", 4)])
            binding = asyncio.create_task(made_before)
            await until(lambda: some(witness, 3 + 8))
            proxy.cut(seconds, way)
            ends = time.monotonic() + seconds
            await binding
            # The world goes on: gangs and Jobs come, others end, a node is lost.
            await create(api, JOBS, [job(f"new-{n}", workers=2) for n in range(3)])
            await create(api, PODS, [o for n in range(4) for o in gang(f"b-{n}", 4)])
            await asyncio.gather(*(end(api, p) for n in range(3) for p in of(witness, f"done-{n}")))
            await api.delete(NODES, names[-1])
            await until(lambda: after(ends), seconds + 5)
            lost = {p["metadata"]["uid"] for p in witness.pods if on(p) == names[-1]}
            took_s = await settled(witness, lambda: well(witness, lost))
            assert took_s <= RECONCILED_S
            assert (made.leadership is leadership) == (seconds < lease_s * 2 / 3)

    runner.run(scenario())


# -- parts of scenarios ----------------------------------------------------------------------------


def proxied(cluster: ControlPlane, proxy: FaultyProxy) -> Path:
    """How to reach the cluster through a proxy."""
    return cluster.kubeconfig_of("admin", server=proxy.url)


def alive(witness: Witness) -> int:
    """How many pods are bound and alive."""
    return sum(is_bound(pod) and not is_over(pod) for pod in witness.pods)


def runs(witness: Witness, pods: int) -> bool:
    """Whether so many pods are bound and alive."""
    return alive(witness) == pods


def states(witness: Witness) -> set[str]:
    """The states of all Jobs."""
    return {(one.get("status") or {}).get("state", "") for one in witness.jobs.values()}


def of(witness: Witness, name: str) -> list[Object]:
    """The pods of a Job."""
    return witness.job_pods(name)


def on(pod: Object) -> str:
    """The node of a pod."""
    return str(pod["spec"].get("nodeName", ""))


def well(witness: Witness, lost: set[str]) -> bool:
    """Whether whoever was to end has, and everybody else runs; but for those of a lost node."""
    for name, found in witness.jobs.items():
        wanted = "succeeded" if name.startswith("done") else "running"
        if (found.get("status") or {}).get("state") != wanted:
            return False
    return not any(
        p["metadata"]["uid"] in lost or not is_bound(p) for p in witness.pods if not is_over(p)
    )


async def some(witness: Witness, least: int) -> bool:
    """Whether so many pods were bound."""
    return len(witness.bound) >= least


async def after(at: float) -> bool:
    """Whether it is that late."""
    return time.monotonic() >= at


async def end(api: Api, pod: Object) -> None:
    """Let a pod succeed."""
    meta = pod["metadata"]
    patch = {"metadata": {"annotations": {"roost.dev/pretend": "succeeds"}}}
    await api.patch(PODS, meta["name"], patch, meta["namespace"])
