"""Nodes that are preferred: taken where a placer has no reason of its own, and only there."""

from __future__ import annotations

import random

import pytest

from roost.core import Ledger, NodeSpec, Resources, Shape
from roost.core.allocation import Part
from roost.core.spec import NodeId, Role
from roost.placement import PLACERS

ONE = Resources(gpus=1, pool="p")


def cluster(*names: str, preferred: str = "", gpus: int = 4) -> Ledger:
    """Nodes in a pool; their first letter is their switch. Groups are parted by a bar."""
    ledger = Ledger()
    for name in names:
        ledger.join(NodeSpec(NodeId(name), gpus, switch=name[0]))
    groups = [frozenset(map(NodeId, group.split())) for group in preferred.split("|")]
    ledger.set_pool("p", frozenset(map(NodeId, names)), tuple(filter(None, groups)))
    return ledger


def nodes(
    ledger: Ledger, placer: str, workers: int = 1, gpus: int = 1, roles: tuple[Role, ...] = ()
) -> str:
    """Where a gang goes."""
    parts = PLACERS[placer](ledger, Shape(workers, Resources(gpus=gpus, pool="p"), roles))
    return " ".join(sorted(part.node for part in parts or () for _ in range(part.workers)))


@pytest.mark.parametrize("placer", PLACERS)
def test_one_worker_goes_to_the_best_node_with_room(placer: str) -> None:
    ledger = cluster("a1", "a2", "b1", preferred="b1|a2")

    assert nodes(ledger, placer) == "b1"
    ledger.take(Part(NodeId("b1"), (0, 1, 2, 3)), Resources(gpus=4))
    assert nodes(ledger, placer) == "a2"
    ledger.take(Part(NodeId("a2"), (0, 1, 2, 3)), Resources(gpus=4))
    assert nodes(ledger, placer) == "a1"


def test_of_preferred_nodes_the_tightest() -> None:
    ledger = cluster("a1", "a2", "b1", preferred="a1 a2")
    ledger.take(Part(NodeId("a2"), (0,)), Resources(gpus=1))
    ledger.take(Part(NodeId("b1"), (0, 1)), Resources(gpus=2))
    assert nodes(ledger, "pack") == "a2"


@pytest.mark.parametrize("placer", ["consolidate", "pack", "first-fit", "topology"])
def test_a_gang_is_not_torn_for_what_it_prefers(placer: str) -> None:
    ledger = cluster("a1", "a2", "b1", preferred="a1 a2")
    for name in ("a1", "a2"):
        ledger.take(Part(NodeId(name), (0, 1)), Resources(gpus=2))
    assert nodes(ledger, placer, 4) == "b1 b1 b1 b1"


def test_a_gang_stays_below_one_switch_whatever_it_prefers() -> None:
    ledger = cluster("a1", "a2", "b1", "b2", "c1", preferred="a1 b1 c1")
    assert nodes(ledger, "topology", 2, 4) in ("a1 a2", "b1 b2")
    ledger = cluster("a1", "a2", "b1", "b2", preferred="b1 b2")
    assert nodes(ledger, "topology", 2, 4) == "b1 b2"


@pytest.mark.parametrize("placer", ["consolidate", "pack", "topology", "anywhere"])
def test_a_gang_takes_as_many_preferred_nodes_as_there_are(placer: str) -> None:
    ledger = cluster("a1", "a2", "a3", "a4", "a5", preferred="a5|a3")
    assert nodes(ledger, placer, 2, 4) == "a3 a5"
    assert nodes(ledger, placer, 3, 4) in ("a1 a3 a5", "a2 a3 a5", "a3 a4 a5")


def test_what_is_emptiest_is_not_given_up() -> None:
    ledger = cluster("a1", "a2", "a3", preferred="a3")
    ledger.take(Part(NodeId("a3"), (0,)), Resources(gpus=1))
    assert nodes(ledger, "spread", 2) == "a1 a2", "as few neighbours as can be"
    assert nodes(ledger, "first-fit", 2, 4) == "a1 a2", "nodes that are whole"


def test_each_role_has_its_own_preferences() -> None:
    ledger = cluster("a1", "a2", "b1", preferred="b1")
    ledger.set_pool("q", frozenset({NodeId("a1"), NodeId("a2")}), (frozenset({NodeId("a2")}),))
    server = Role("ps", 1, Resources(gpus=0, pool="q"))
    found = PLACERS["pack"](ledger, Shape(1, ONE, (server,)))
    assert found is not None
    assert {part.role: part.node for part in found} == {"worker": "b1", "ps": "a2"}


@pytest.mark.parametrize("placer", PLACERS)
def test_preferences_never_keep_a_gang_from_its_place(placer: str) -> None:
    chance = random.Random(5)
    for _ in range(300):
        names = [f"{chance.choice('ab')}{n}" for n in range(chance.randint(1, 6))]
        ledger = cluster(*names)
        for name in names:
            for gpu in range(4):
                if chance.random() < 0.3:
                    ledger.take(Part(NodeId(name), (gpu,)), Resources(gpus=1))
        workers, gpus = chance.randint(1, 6), chance.randint(1, 4)
        before = nodes(ledger, placer, workers, gpus)
        chance.shuffle(names)
        cut = chance.randint(0, len(names))
        groups = frozenset(map(NodeId, names[:cut])), frozenset(map(NodeId, names[cut:]))
        ledger.set_pool("p", frozenset(map(NodeId, names)), groups)
        after = nodes(ledger, placer, workers, gpus)
        assert bool(before) == bool(after)
        assert len(before) == len(after)
        if placer not in ("spread", "anywhere", "even"):
            assert len(set(after.split())) <= len(set(before.split()))
