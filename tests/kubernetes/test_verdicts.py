"""Whether a pod gets a node: Roost's verdict against that of the real kube-scheduler.

Each cluster is there twice, on one control plane: kube-scheduler places the pod in one copy, Roost
in the other. Where one finds a node, so must the other. If they chose different nodes,
kube-scheduler is asked for the one that Roost chose, too.

    ROOST_EFFORT=4 ... tests/kubernetes/test_verdicts.py        # 100 cases
    ROOST_VERDICTS=2000 ... tests/kubernetes/test_verdicts.py   # as many as that
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.kubernetes.operating import operating, pods
from tests.kubernetes.random_clusters import SmallCluster
from tests.kubernetes.random_volumes import drivers, names_bound
from tests.kubernetes.volumes import CONTROLLERS, are_bound, forget_storage, provisioning, store
from tests.support.effort import examples
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, node, pod, until
from tests.support.kubernetes.storage import claim, mounting, volume

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, PODS, Object
from roost.kubernetes.objects.pods import is_bound

KUBE, ROOST = "default-scheduler", "roost"
CASES = int(os.environ.get("ROOST_VERDICTS") or examples(100))
#: Clusters that are there at a time.
AT_ONCE = 100
FIRST = time.time_ns() % 1_000_000_000 if os.environ.get("ROOST_FRESH") else 0


@pytest.fixture
def scheduled(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with a kube-scheduler, and with the controllers of volumes."""
    if cluster.binaries.scheduler is None or cluster.binaries.controller_manager is None:
        pytest.skip("there is no kube-scheduler here, or no kube-controller-manager")
    cluster.start_scheduler()
    cluster.start_manager(CONTROLLERS)
    yield cluster
    cluster.stop_manager()
    cluster.stop_scheduler()


def test_roost_finds_a_node_where_kube_scheduler_does(
    scheduled: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def all_of_it() -> tuple[int, list[str]]:
        found, wrong = 0, list[str]()
        async with operating(scheduled), provisioning(api):
            for first in range(FIRST, FIRST + CASES, AT_ONCE):
                seeds = range(first, min(first + AT_ONCE, FIRST + CASES))
                placed, differences = await compared(api, [SmallCluster(seed) for seed in seeds])
                found += placed
                wrong += differences
                await cleared(api)
        return found, wrong

    found, wrong = runner.run(all_of_it())

    assert not wrong, "\n".join(wrong)
    assert CASES // 10 < found < CASES * 9 // 10  # else the cases say little


async def compared(api: Api, cases: list[SmallCluster]) -> tuple[int, list[str]]:
    """How many pods kube-scheduler places, and what Roost does otherwise."""
    await stored(api, [*drivers(), *(o for case in cases for c in "kr" for o in case.storage(c))])
    await create(api, NODES, [one for case in cases for c in "kr" for one in case.nodes(c)])
    await create(api, PODS, [one for case in cases for c in "kr" for one in case.residents(c)])
    await both_know(api, storage=True)
    wanted = [(case.wanted("k", KUBE), case.wanted("r", ROOST)) for case in cases]
    await create(api, PODS, [one for pair in wanted for one in pair])
    judged = await until(lambda: verdicts(api, [name_of(one) for pair in wanted for one in pair]))
    placed, wrong = 0, list[str]()
    doubtful: dict[str, SmallCluster] = {}
    for case, pair in zip(cases, wanted, strict=True):
        by_kube, by_roost = (judged[name_of(one)] for one in pair)
        placed += bool(by_kube)
        if bool(by_kube) != bool(by_roost):
            wrong.append(f"{case.name}: {by_kube!r} for kube, {by_roost!r} for Roost: {told(case)}")
        elif by_kube[-1:] != by_roost[-1:]:
            doubtful[name_of(case.wanted("k", KUBE, by_roost[-1]))] = case
    pinned = [
        case.wanted("k", KUBE, judged[name_of(case.wanted("r", ROOST))][-1])
        for case in doubtful.values()
    ]
    await stored(api, [one for case in doubtful.values() for one in case.storage_again()])
    await create(api, PODS, pinned)
    again = await until(lambda: verdicts(api, list(doubtful))) if doubtful else {}
    refused = [name for name in again if not again[name]]
    return placed, wrong + [f"{name}: Roost's alone: {told(doubtful[name])}" for name in refused]


async def stored(api: Api, objects: list[Object]) -> None:
    """Create storage, and wait until what is meant for each other is bound."""
    await store(api, objects)
    await until(lambda: are_bound(api, names_bound(objects)))


async def both_know(api: Api, *, storage: bool = False) -> None:
    """Wait until both schedulers have seen all that was made: they place what was made last.

    With ``storage`` also claims and volumes, which takes controllers that bind them.
    """
    given: dict[str, Any] = {"nodeSelector": {"cluster": "last"}}
    if storage:
        asks = claim("last")
        asks["spec"]["volumeName"] = "v-last"
        await stored(api, [asks, volume("v-last", claimed_by=asks)])
        given |= mounting("last")
    await create(api, NODES, [node("last", gpus=0, labels={"cluster": "last"})])
    each = (KUBE, ROOST)
    await create(api, PODS, [pod(f"last-{by}", gpus=0, scheduler=by, **given) for by in each])
    judged = await until(lambda: verdicts(api, [f"last-{by}" for by in each]))
    assert set(judged.values()) == {"last"}


async def verdicts(api: Api, names: Iterable[str]) -> dict[str, str]:
    """The node of each pod, or nothing; empty while some have no verdict."""
    there = {name_of(one): one for one in await pods(api)}
    found = {}
    for name in names:
        one = there[name]
        if not is_bound(one) and not _refused(one):
            return {}
        found[name] = str(one["spec"].get("nodeName") or "")
    return found


def _refused(found: Object) -> bool:
    conditions = found["status"].get("conditions") or ()
    return any(
        one["type"] == "PodScheduled" and one["status"] == "False" and one.get("message")
        for one in conditions
    )


async def cleared(api: Api) -> None:
    """Remove everything, and wait until it is gone."""
    for one in await pods(api):
        await api.delete(PODS, name_of(one), "default", grace_s=0)
    for one in (await api.list(NODES))[0]:
        await api.delete(NODES, name_of(one))
    await forget_storage(api)
    await until(lambda: _empty(api))


async def _empty(api: Api) -> bool:
    return not await pods(api) and not (await api.list(NODES))[0]


def name_of(found: Object) -> str:
    return str(found["metadata"]["name"])


def told(case: SmallCluster) -> str:
    """A case, to be looked at."""
    nodes = [
        (one["metadata"]["labels"], one["spec"], one["status"]["allocatable"])
        for one in case.nodes("r")
    ]
    there = [(one["spec"]["nodeName"], one["spec"]["containers"]) for one in case.residents("r")]
    return json.dumps([nodes, there, case.wanted("r", ROOST)["spec"], case.storage("r")])
