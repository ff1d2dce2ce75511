"""Gangs whose pods keep apart or spread among themselves are placed whenever there is a way.

What is possible is found by trying: one pod after the other on every node, as kube-scheduler would
place them, and back again.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from tests.support.effort import examples
from tests.unit.kubernetes.filters.test_neighbours import apart, labelled, places, spread, term
from tests.unit.kubernetes.operator.objects import SPACE, Cluster, gang, node

from roost.kubernetes.client.kinds import NODES, PODS, Object
from roost.kubernetes.filters.neighbours import NeighbourFilter
from roost.kubernetes.objects.values import labels_of

ZONE, HOST = "zone", "kubernetes.io/hostname"


class Case:
    """A small cluster with a few pods, and a gang that is to be divided."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self.nodes = [self._node(chance, number) for number in range(chance.randint(1, 6))]
        self.free = {one["metadata"]["name"]: _gpus(one) for one in self.nodes}
        self.there = []
        for number in range(chance.choice((0, 0, 1, 2, 3))):
            on = chance.choice([name for name, left in self.free.items() if left] or [""])
            if on:
                self.free[on] -= 1
                self.there.append(labelled(f"old{number}", chance.choice("xy"), node=on))
        self.spec = self._spec(chance)
        self.gang = gang("g", chance.randint(2, 6), labels={"app": "x"}, spec=self.spec)
        #: The first one may need more than the others, or nothing but a place.
        self.first = chance.choice((1, 1, 1, 0, 2))
        self.gang[0] = labelled("g-0", gpus=self.first, spec=self.spec)
        self.gang[0]["metadata"]["annotations"] = self.gang[1]["metadata"]["annotations"]

    @staticmethod
    def _node(chance: Random, number: int) -> Object:
        made = node(f"n{number}", gpus=chance.choice((0, 1, 1, 2, 3)))
        if chance.random() < 0.9:
            made["metadata"]["labels"][ZONE] = chance.choice("abc")
        return made

    @staticmethod
    def _spec(chance: Random) -> Object:
        least, skew = chance.choice((0, 0, 0, 2, 3)), chance.choice((1, 1, 2))
        more: dict[str, Any] = {"minDomains": least} if least else {}
        return chance.choice(
            (
                apart(term("x")),
                apart(term("y")),
                spread(skew, **more),
                spread(skew, **more),
                spread(skew, HOST, **more),
                {**spread(skew, **more), **apart(term("x", HOST))},
            )
        )

    def is_possible(self) -> bool:
        """Whether there is a way, by trying them all."""
        filter_ = NeighbourFilter()
        for one in self.nodes:
            filter_.object_changed(NODES, None, one)
        for one in self.there:
            filter_.object_changed(PODS, None, one)
        seen: set[tuple[object, ...]] = set()
        taken: Counter[str] = Counter()

        def rest(number: int) -> bool:
            if number == len(self.gang):
                return True
            state = tuple((name, taken[name], left) for name, left in self.free.items())
            if state in seen:
                return False
            seen.add(state)
            pod, gpus = self.gang[number], 1 if number else self.first
            refused = filter_.refusals(pod, self.nodes)
            fits = [name for name, left in self.free.items() if left >= gpus]
            for name in [name for name in fits if name not in refused]:
                self.free[name] -= gpus
                taken[name] += 1
                filter_.reserve(pod, name)
                found = rest(number + 1)
                filter_.release(pod)
                self.free[name] += gpus
                taken[name] -= 1
                if found:
                    return True
            return False

        return rest(0)

    def placed(self) -> str:
        """The nodes that Roost chooses."""
        cluster = Cluster(*self.nodes, *self.there, *self.gang, placer="pack")
        return places(cluster, rounds=4).get(f"{SPACE}.group.g", "")

    def __str__(self) -> str:
        zones = {one["metadata"]["name"]: labels_of(one).get(ZONE) for one in self.nodes}
        there = [(one["spec"]["nodeName"], labels_of(one)["app"]) for one in self.there]
        pods = f"{len(self.gang)} pods, the first needs {self.first}"
        return f"{zones} free {self.free} there {there}, {pods}: {self.spec}"


def _gpus(one: Object) -> int:
    return int(one["status"]["allocatable"]["nvidia.com/gpu"])


def test_a_gang_is_placed_whenever_there_is_a_way() -> None:
    possible = 0
    wrong = []
    for seed in range(examples(400)):
        case = Case(seed)
        expected = case.is_possible()
        possible += expected
        if bool(case.placed()) != expected:
            wrong.append(f"{seed}: {'possible' if expected else 'impossible'}: {case}")
    assert not wrong, f"{len(wrong)}: " + "\n".join(wrong[:10])
    assert possible > examples(400) // 4
