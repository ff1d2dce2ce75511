"""What pods prefer: Roost takes a node that is preferred whenever kube-scheduler does.

As in ``test_verdicts`` each cluster is there twice. Its nodes are as large and as full as each
other, so that nothing but what the pod prefers tells them apart; whether a node is one of those is
worked out here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from tests.kubernetes.operating import operating
from tests.kubernetes.test_verdicts import KUBE, ROOST, both_know, cleared, name_of, verdicts
from tests.support.effort import examples
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, node, pod, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import NODES, PODS, Object

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
CASES = int(os.environ.get("ROOST_PREFERENCES") or examples(100))
FIRST = time.time_ns() % 1_000_000_000 if os.environ.get("ROOST_FRESH") else 0


class Choice:
    """Equal nodes with one pod each, and a pod that prefers some of them."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self.name = f"choice-{seed}"
        count = chance.randint(2, 4)
        self.zones = [chance.choice("abc") for _ in range(count)]
        self.apps = [chance.choice("xyz") for _ in range(count)]
        self.deters = [chance.random() < 0.5 for _ in range(count)]
        self.kind = chance.choice(("labels", "taints", "near", "far", "spread"))
        self.key = chance.choice(("zone", "at"))
        if self.kind != "taints":
            self.deters = [False] * count

    def nodes(self, copy_of: str) -> list[Object]:
        taint = {"key": "noisy", "effect": "PreferNoSchedule"}
        return [
            node(
                f"{self.name}-{copy_of}-{at}",
                gpus=8,
                labels={"cluster": f"{self.name}-{copy_of}", "zone": zone, "at": str(at)},
                taints=[taint] if self.deters[at] else [],
            )
            for at, zone in enumerate(self.zones)
        ]

    def residents(self, copy_of: str) -> list[Object]:
        return [
            pod(
                f"{self.name}-{copy_of}-on-{at}",
                scheduler="somebody",
                labels={"app": app, "in": f"{self.name}-{copy_of}"},
                nodeName=f"{self.name}-{copy_of}-{at}",
            )
            for at, app in enumerate(self.apps)
        ]

    def wanted(self, copy_of: str, scheduler: str) -> Object:
        cluster = f"{self.name}-{copy_of}"
        return pod(
            f"{cluster}-wanted",
            scheduler=scheduler,
            labels={"app": "x", "in": cluster},
            nodeSelector={"cluster": cluster},
            **self._wish(cluster),
        )

    def _wish(self, cluster: str) -> Object:
        selector = {"matchLabels": {"app": "x", "in": cluster}}
        term = {"labelSelector": selector, "topologyKey": self.key}
        weighted = [{"weight": 10, "podAffinityTerm": term}]
        zone = {"key": "zone", "operator": "In", "values": ["a"]}
        match self.kind:
            case "labels":
                liked = [{"weight": 10, "preference": {"matchExpressions": [zone]}}]
                return {"affinity": {"nodeAffinity": {PREFERRED: liked}}}
            case "near":
                return {"affinity": {"podAffinity": {PREFERRED: weighted}}}
            case "far":
                return {"affinity": {"podAntiAffinity": {PREFERRED: weighted}}}
            case "spread":
                soft = {**term, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
                return {"topologySpreadConstraints": [soft]}
        return {}

    def best(self) -> set[str]:
        """The numbers of the nodes that are preferred; all, if none is better than others."""
        numbers = range(len(self.zones))
        domain = self.zones if self.key == "zone" else [str(at) for at in numbers]
        there = Counter(domain[at] for at in numbers if self.apps[at] == "x")
        match self.kind:
            case "labels":
                points = [int(zone == "a") for zone in self.zones]
            case "taints":
                points = [int(not deters) for deters in self.deters]
            case "near":
                points = [there[domain[at]] for at in numbers]
            case _:
                points = [-there[domain[at]] for at in numbers]
        return {str(at) for at in numbers if points[at] == max(points)}


@pytest.fixture
def scheduled(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with a kube-scheduler."""
    if cluster.binaries.scheduler is None:
        pytest.skip("there is no kube-scheduler here")
    cluster.start_scheduler()
    yield cluster
    cluster.stop_scheduler()


def test_roost_takes_a_preferred_node_where_kube_scheduler_does(
    scheduled: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    cases = [Choice(seed) for seed in range(FIRST, FIRST + CASES)]

    async def all_of_it() -> dict[str, str]:
        async with operating(scheduled):
            await create(api, NODES, [one for case in cases for c in "kr" for one in case.nodes(c)])
            there = [one for case in cases for c in "kr" for one in case.residents(c)]
            await create(api, PODS, there)
            await both_know(api)
            wanted = [
                one for case in cases for one in (case.wanted("k", KUBE), case.wanted("r", ROOST))
            ]
            await create(api, PODS, wanted)
            judged = await until(lambda: verdicts(api, [name_of(one) for one in wanted]))
            await cleared(api)
            return judged

    judged = runner.run(all_of_it())
    wrong, told = [], 0
    for case in cases:
        by_kube, by_roost = (judged[f"{case.name}-{c}-wanted"][-1:] for c in "kr")
        best = case.best()
        told += len(best) < len(case.zones)
        if by_kube in best and by_roost not in best:
            wrong.append(f"{case.name}: {case.kind} {case.key}: {by_roost} and not of {best}")
        if not by_roost:
            wrong.append(f"{case.name}: a preference kept it from every node")
    assert not wrong, "\n".join(wrong)
    assert told > CASES // 2  # else there was nothing to prefer
