"""Blocks and zones: the smallest that holds a gang, and neighbours one after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from roost.core import Ledger, Level, NodeSpec, Resources, Shape
from roost.core.allocation import Allocation
from roost.core.spec import NodeId
from roost.core.topology import span
from roost.placement import PLACERS

TOPOLOGY = PLACERS["topology"]


def cluster(*places: str, gpus: int = 8) -> Ledger:
    """Nodes called after their places: zone, block, switch, number."""
    ledger = Ledger()
    for place in places:
        zone, block, switch, _ = place.split("-")
        ledger.join(NodeSpec(NodeId(place), gpus, switch=switch, block=block, zone=zone))
    return ledger


def nodes(ledger: Ledger, workers: int, within: Level | None = None) -> list[str]:
    """The nodes of a gang of workers with 8 GPUs, in the order of its workers."""
    parts = TOPOLOGY(ledger, Shape(workers, Resources(gpus=8), within=within))
    return [str(part.node) for part in parts or () for _ in range(part.workers)]


def test_a_gang_goes_to_the_smallest_domain_that_holds_it() -> None:
    ledger = cluster("a-x-1-0", "b-x-1-0", "a-y-1-0", "b-x-2-0", "a-y-2-0", "a-y-2-1")

    assert nodes(ledger, 2) == ["a-y-2-0", "a-y-2-1"], "one switch"
    assert set(nodes(ledger, 3)) == {"a-y-1-0", "a-y-2-0", "a-y-2-1"}, "one block"
    assert {name[0] for name in nodes(ledger, 4)} == {"a"}, "one zone"
    assert len(set(nodes(ledger, 6))) == 6, "all there is"
    assert nodes(ledger, 7) == []


def test_ranks_that_follow_each_other_are_neighbours() -> None:
    ledger = cluster(*(f"{z}-{b}-{s}-{n}" for n in "01" for s in "12" for b in "xy" for z in "ab"))
    found = nodes(ledger, 16)

    for cut in (1, 3, 5):
        groups = [name[:cut] for name in found]
        changes = sum(a != b for a, b in pairwise(groups))
        assert changes == len(set(groups)) - 1, f"each of {set(groups)} is left once"


def test_one_switch_after_the_other_also_where_there_are_no_blocks() -> None:
    ledger = Ledger()
    for number, switch in enumerate("ababab"):
        ledger.join(NodeSpec(NodeId(f"n{number}"), 8, switch=switch))

    found = [ledger.nodes[NodeId(name)].spec.switch for name in nodes(ledger, 5)]
    assert found in (list("aaabb"), list("bbbaa"))


@pytest.mark.parametrize("placer", PLACERS.values(), ids=PLACERS)
def test_what_is_required_is_kept_by_every_placer(placer: object) -> None:
    ledger = cluster("a-x-1-0", "a-y-1-0", "a-y-2-0", "b-x-1-0", "b-x-2-0", "b-x-3-0")

    def span_of(workers: int, within: Level) -> Level | None:
        parts = placer(ledger, Shape(workers, Resources(gpus=8), within=within))  # type: ignore[operator]
        specs = {node.id: node.spec for node in ledger.order}
        return None if parts is None else span(Allocation(parts), specs)

    assert span_of(2, Level.SWITCH) is None, "switches of one name are of several blocks"
    assert span_of(3, Level.BLOCK) is Level.BLOCK
    assert span_of(4, Level.BLOCK) is None
    assert span_of(3, Level.ZONE) is not Level.CLUSTER
    assert span_of(4, Level.ZONE) is None


def test_a_node_that_does_not_say_its_block_is_in_none() -> None:
    ledger = Ledger()
    for name in ("n0", "n1"):
        ledger.join(NodeSpec(NodeId(name), 8))

    assert nodes(ledger, 2, Level.BLOCK) == nodes(ledger, 2, Level.ZONE) == []
    assert nodes(ledger, 2, Level.SWITCH) == ["n0", "n1"]


def test_a_node_may_move_to_another_block() -> None:
    ledger = cluster("a-x-1-0", "a-x-1-1")
    spec = ledger.order[1].spec
    ledger.change(NodeSpec(spec.id, 8, switch="1", block="y", zone="a"), ())

    assert nodes(ledger, 2, Level.BLOCK) == []
    assert len(nodes(ledger, 2, Level.ZONE)) == 2
