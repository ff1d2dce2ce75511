"""Operators that are killed, stopped and started again, as real processes, in the midst of it all.

Each scenario ends with the sum of it: who ran how often, what was made, what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from functools import partial

import pytest
from tests.kubernetes.faulting import (
    holder,
    leads,
    operator,
    pause,
    replica,
    resume,
    settled,
    vacate,
)
from tests.kubernetes.jobbing import SPACE, define, job, patched, pretend
from tests.kubernetes.operating import gang
from tests.kubernetes.oracles import Witness
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, nodes, pod, until

from roost.failpoints import ON_KUBERNETES
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object
from roost.kubernetes.objects.pods import is_bound, is_over
from roost.kubernetes.operator.leadership import Leadership

CANCEL = {"annotations": {"roost.dev/cancel": "ada"}}


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again_while_jobs_come_fail_and_go(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, seed: int
) -> None:
    """Each life of the operator ends at another point, and each Job still has one story."""
    chance = random.Random(seed)
    points = list(ON_KUBERNETES)
    chance.shuffle(points)

    async def scenario() -> None:
        await define(api)
        await nodes(api, 4)
        async with Witness.of(api) as witness:
            world = asyncio.create_task(play(api, witness))
            try:
                for name in points[:4]:
                    point = f"{name}:{chance.randint(1, 3)}"
                    async with replica(cluster.kubeconfig, ROOST_FAILPOINT=point) as one:
                        with contextlib.suppress(TimeoutError):  # then it dies somewhere else
                            await asyncio.wait_for(one.wait(), 3)
                    await vacate(api)
                async with replica(cluster.kubeconfig):
                    await settled(witness, lambda: fates(witness) == FATES)
            finally:
                world.cancel()
            # Nobody is charged for the deaths of operators.
            charged = {name: found["status"]["failures"] for name, found in witness.jobs.items()}
            assert charged == {name: 2 * name.startswith("fails") for name in charged}

    runner.run(scenario())


FATES = Counter({"succeeded": 2, "failed": 2, "cancelled": 2})


def fates(witness: Witness) -> Counter[str]:
    """How many Jobs are in which state."""
    return Counter((one.get("status") or {}).get("state", "") for one in witness.jobs.values())


async def play(api: Api, witness: Witness) -> None:
    """Jobs of three sorts, and whoever makes of them what they are called."""
    retry = {"max": 1, "delay": "0.1s"}
    names = [f"{what}-{n}" for what in ("succeeds", "fails", "cancel") for n in range(2)]
    for name in names:
        await api.create(JOBS, job(name, workers=2, retry=retry), SPACE)
    done: set[str] = set()
    while True:
        for name in names:
            mine = witness.job_pods(name)
            if name.startswith("cancel"):
                if mine and name not in done and all(map(is_bound, mine)):
                    await patched(api, name, metadata=CANCEL)
                    done.add(name)
                continue
            for one in mine:
                runs = one["status"].get("phase") == "Running"
                if runs and one["metadata"]["uid"] not in done and up(witness, name):
                    done.add(one["metadata"]["uid"])
                    await pretend(api, one, name.partition("-")[0])
        await asyncio.sleep(0.05)


def up(witness: Witness, name: str) -> bool:
    """Whether a Job says that it runs: what ends before that is another story."""
    return (witness.jobs[name].get("status") or {}).get("state") == "running"


def test_a_leader_that_stands_still_while_it_binds(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Two replicas; whoever leads is stopped past its lease, and goes on while the other leads."""

    async def scenario() -> None:
        await define(api)
        await nodes(api, 12)
        async with (
            Witness.of(api) as witness,
            replica(cluster.kubeconfig, "one") as one,
            replica(cluster.kubeconfig, "two") as two,
        ):
            await until(lambda: holder(api), 60)
            wanted = 0
            for turn in range(2):
                first = await holder(api)
                stopped, other = (one, "two") if first == "one" else (two, "one")
                coming = [o for n in range(8) for o in gang(f"gang-{turn}-{n}", 4)]
                making = asyncio.gather(
                    create(api, PODS, coming),
                    create(api, JOBS, [job(f"job-{turn}-{n}", workers=2) for n in range(4)]),
                )
                wanted += 32 + 8
                await until(partial(bound_more_than, witness, wanted - 40), 60)
                pause(stopped)
                await making
                await leads(api, other)
                resume(stopped)
                await settled(witness, partial(all_run, witness, wanted, 4 * (turn + 1)))
            assert len(witness.made) == len(witness.bound) == wanted

    runner.run(scenario())


async def bound_more_than(witness: Witness, count: int) -> bool:
    """Whether somebody was bound beyond so many."""
    return len(witness.bound) > count


def all_run(witness: Witness, pods: int, jobs: int) -> bool:
    """Whether so many pods and Jobs run, and all are of them."""
    return alive(witness) == pods and fates(witness) == {"running": jobs}


def alive(witness: Witness) -> int:
    """How many pods are bound and alive."""
    return sum(is_bound(one) and not is_over(one) for one in witness.pods)


def test_restarts_make_nothing_new(cluster: ControlPlane, api: Api, runner: asyncio.Runner) -> None:
    """Finished, running and half-deleted objects, and operators that begin again and again."""

    async def scenario() -> None:
        await define(api)
        names = await nodes(api, 6)
        async with operator(cluster.kubeconfig), Witness.of(api) as witness:
            await create(api, JOBS, [job(f"done-{n}") for n in range(20)])
            await settled(witness, lambda: fates(witness) == {"running": 20})
            await asyncio.gather(*(pretend(api, p, "succeeds") for p in witness.pods))
            await settled(witness, lambda: fates(witness) == {"succeeded": 20})
            await create(api, JOBS, [job(f"runs-{n}") for n in range(10)])
            await create(api, PODS, [o for n in range(4) for o in gang(f"gang-{n}", 4)])
            ended = [o for n in range(4) for o in gang(f"over-{n}", 4, pretend="succeeds")]
            await create(api, PODS, ended)
            await settled(witness, lambda: alive(witness) == 26 and fates(witness)["running"] == 10)
            await settled(witness, lambda: sum(map(is_over, witness.pods)) >= 36)
        await half_delete(api, names)
        sums = set()
        async with Witness.of(api) as witness:
            for _ in range(5):
                async with operator(cluster.kubeconfig) as made:
                    assert made.leadership is not None
                    await until(partial(quiet, made.leadership), 60)
                    core = made.leadership.core
                    states = Counter(str(one.state) for one in core.jobs.values())
                    sums.add((core.ledger.free_milli, *sorted(states.items())))
            async with replica(cluster.kubeconfig) as process:
                await leads(api, "one")
                await create(api, PODS, [pod("last")])
                await until(lambda: bound_more_than(witness, 0), 60)
                process.kill()
            assert set(witness.made.values()) == set(witness.bound.values()) == {"last"}
            assert len(sums) == 1, sums

    runner.run(scenario())


async def half_delete(api: Api, names: list[str]) -> None:
    """Pods that were deleted and do not go, and Jobs that were, by a finalizer of somebody's."""
    going = [pod(f"going-{n}", gpus=0, nodeName=names[0], pretend="stays") for n in range(5)]
    going += [pod(f"never-{n}", nodeSelector={"no": "where"}) for n in range(5)]
    for one in going:
        one["metadata"]["finalizers"] = ["example.org/wait"]
    await create(api, PODS, going)
    await asyncio.gather(
        *(api.delete(PODS, o["metadata"]["name"], SPACE, grace_s=0) for o in going)
    )
    wait: Object = {"metadata": {"finalizers": ["example.org/wait"]}}
    for name in ("done-0", "done-1"):
        await patched(api, name, **wait)
        await api.delete(JOBS, name, SPACE)


async def quiet(leadership: Leadership) -> bool:
    """Whether a leadership has nothing left to do."""
    tasks = leadership.writer.tasks
    return not leadership.reconciler._touched and not [
        task for task in tasks if "binding" in task.get_name()
    ]


def test_a_node_that_vanishes_with_pods_on_their_way_out(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Nobody is left to end them: Roost does, and what it makes in their place comes once."""

    async def scenario() -> None:
        await define(api)
        await nodes(api, 2, gpus=4)
        async with Witness.of(api) as witness, operator(cluster.kubeconfig):
            await create(api, JOBS, [job("train", workers=2)])
            await create(api, PODS, gang("gang", 2, pretend="stays"))
            await settled(witness, lambda: all_run(witness, 4, 1))
            await asyncio.gather(*(pretend(api, one, "stays") for one in witness.pods))
            where = {one["spec"]["nodeName"] for one in witness.pods}
            await asyncio.gather(
                *(api.delete(PODS, o["metadata"]["name"], SPACE) for o in witness.pods)
            )
            for name in where:
                await api.delete(NODES, name)
            # The gang's pods are gone for good; the Job begins again elsewhere.
            await nodes(api, 1, gpus=4, prefix="new")
            await until(lambda: only(witness, "train-2-worker-0", "train-2-worker-1"), 60)

    runner.run(scenario())


async def only(witness: Witness, *names: str) -> bool:
    """Whether these pods and no others are there, and bound."""
    there = {one["metadata"]["name"] for one in witness.pods if is_bound(one)}
    return there == set(names) and len(witness.pods) == len(names)
