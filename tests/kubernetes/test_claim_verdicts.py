"""Whether a pod gets the devices that it claims: Roost against the real kube-scheduler.

Each case is there twice, on one control plane, with names of its own. Where kube-scheduler finds a
node for the pod of one copy, Roost must find one for that of the other; and no device is given out
twice, by either.

    ROOST_EFFORT=4 ... tests/kubernetes/test_claim_verdicts.py       # 100 cases
    ROOST_VERDICTS=2000 ... tests/kubernetes/test_claim_verdicts.py  # as many as that
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.kubernetes.operating import operating
from tests.kubernetes.random_claims import ClaimCase
from tests.kubernetes.test_verdicts import KUBE, ROOST, both_know, name_of, verdicts
from tests.support.effort import examples
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
)

CASES = int(os.environ.get("ROOST_VERDICTS") or examples(100))
FIRST = time.time_ns() % 1_000_000_000 if os.environ.get("ROOST_FRESH") else 0
#: Cases that are there at a time.
AT_ONCE = 50


@pytest.fixture
def scheduled(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with a kube-scheduler."""
    if cluster.binaries.scheduler is None:
        pytest.skip("there is no kube-scheduler here")
    cluster.start_scheduler()
    yield cluster
    cluster.stop_scheduler()


def test_roost_finds_devices_where_kube_scheduler_does(
    scheduled: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    async def all_of_it() -> tuple[int, list[str]]:
        found, wrong = 0, list[str]()
        async with operating(scheduled):
            for first in range(FIRST, FIRST + CASES, AT_ONCE):
                seeds = range(first, min(first + AT_ONCE, FIRST + CASES))
                placed, differences = await compared(api, [ClaimCase(seed) for seed in seeds])
                found += placed
                wrong += differences
            wrong += twice_given((await api.list(RESOURCE_CLAIMS))[0])
        return found, wrong

    found, wrong = runner.run(all_of_it())

    assert not wrong, "\n".join(wrong)
    assert CASES // 10 < found < CASES * 9 // 10  # else the cases say little


async def compared(api: Api, cases: list[ClaimCase]) -> tuple[int, list[str]]:
    """How many pods kube-scheduler places, and what Roost does otherwise."""
    copies = [(case, c) for case in cases for c in "kr"]
    for kind, of in (
        (NODES, ClaimCase.nodes),
        (DEVICE_CLASSES, ClaimCase.classes),
        (RESOURCE_SLICES, ClaimCase.slices),
    ):
        await create(api, kind, [one for case, c in copies for one in of(case, c)])
    claims = [pair for case, c in copies for pair in case.claims(c)]
    await create(api, RESOURCE_CLAIMS, [one for one, _ in claims])
    await asyncio.gather(*(_give(api, one, status) for one, status in claims if status))
    await both_know(api)
    pairs = [(case.wanted("k", KUBE), case.wanted("r", ROOST)) for case in cases]
    await create(api, PODS, [one for pair in pairs for one in pair])
    judged = await until(lambda: verdicts(api, [name_of(one) for pair in pairs for one in pair]))
    placed, wrong = 0, list[str]()
    for case, pair in zip(cases, pairs, strict=True):
        by_kube, by_roost = (judged[name_of(one)] for one in pair)
        placed += bool(by_kube)
        if bool(by_kube) != bool(by_roost):
            told = json.dumps(case.told())
            wrong.append(f"{case.name}: {by_kube!r} for kube, {by_roost!r} for Roost: {told}")
    for name in [one for one in judged if not judged[one]]:  # they would be tried again and again
        await api.delete(PODS, name, "default", grace_s=0)
    await _without_probes(api)
    return placed, wrong


async def _give(api: Api, claim: Object, status: Object) -> None:
    meta = claim["metadata"]
    body = {"status": status}
    await api.patch(RESOURCE_CLAIMS, meta["name"], body, meta["namespace"], sub="status")


async def _without_probes(api: Api) -> None:
    """Remove what ``both_know`` made, so that it can ask again."""
    for by in (KUBE, ROOST):
        await api.delete(PODS, f"last-{by}", "default", grace_s=0)
    await api.delete(NODES, "last")

    async def gone() -> bool:
        there = {name_of(one) for one in (await api.list(NODES))[0]}
        pods = {name_of(one) for one in (await api.list(PODS))[0]}
        return "last" not in there and not pods & {f"last-{KUBE}", f"last-{ROOST}"}

    await until(gone)


def twice_given(claims: list[Object]) -> list[str]:
    """Devices that more than one claim has."""
    given = Counter(
        (one["driver"], one["pool"], one["device"])
        for claim in claims
        for one in ((claim.get("status") or {}).get("allocation") or {})
        .get("devices", {})
        .get("results", ())
    )
    return [
        f"{'/'.join(device)} is given {count} times" for device, count in given.items() if count > 1
    ]
