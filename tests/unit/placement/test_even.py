"""Even placement: the fewest nodes, the same number on each, and what is kept stays."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.core import Ledger, NodeSpec, Part, Resources, Role, Shape
from roost.core.spec import Level, NodeId
from roost.placement import placer
from roost.placement.even import Even, Portion, Refusals, divisible, even, fewest, portions
from roost.testing.builders import node
from roost.testing.conformance import PlacerConformance

WORKER = Resources(gpus=1, cpu_milli=4000)
SERVER = Resources(gpus=0, cpu_milli=4000)


class TestConformance(PlacerConformance):
    @pytest.fixture
    def placer(self) -> Even:
        return Even()


def cluster(nodes: int, gpus: int = 4, cpus: int = 32) -> Ledger:
    ledger = Ledger()
    for at in range(nodes):
        ledger.join(node(f"n{at}", gpus, cpu_milli=1000 * cpus))
    return ledger


def gang(servers: int, workers: int) -> Shape:
    return Shape(workers, WORKER, (Role("ps", servers, SERVER),) if servers else ())


def layout(parts: tuple[Part, ...] | None) -> dict[str, tuple[int, int]]:
    assert parts is not None
    workers: Counter[str] = Counter()
    servers: Counter[str] = Counter()
    for part in parts:
        (workers if part.role == "worker" else servers)[part.node] += part.workers
    return {name: (workers[name], servers[name]) for name in {part.node for part in parts}}


def test_a_gang_that_fits_a_node_is_on_one() -> None:
    assert layout(even(cluster(3), gang(4, 4))) == {"n0": (4, 4)}


def test_a_larger_one_is_spread_evenly_over_the_fewest() -> None:
    assert layout(even(cluster(5), gang(4, 8))) == {"n0": (4, 2), "n1": (4, 2)}
    assert sorted(layout(even(cluster(5), gang(3, 9))).values()) == [(3, 1)] * 3


def test_cpus_that_are_short_take_more_nodes() -> None:
    assert sorted(layout(even(cluster(4, cpus=16), gang(4, 4))).values()) == [(2, 2), (2, 2)]


def test_the_tightest_nodes_are_taken_first() -> None:
    ledger = cluster(3)
    ledger.take(Part(NodeId("n1"), (0, 1), workers=2), WORKER)

    assert layout(even(ledger, gang(1, 2))) == {"n1": (2, 1)}
    assert layout(even(ledger, gang(1, 3))) == {"n0": (3, 1)}


def test_what_is_held_already_is_kept() -> None:
    parts = even(cluster(3), gang(1, 3), {NodeId("n2"): 0b1010})

    assert parts is not None
    assert parts[0] == Part(NodeId("n2"), (0, 1, 3), workers=3)


def test_where_no_even_split_fits_there_is_none() -> None:
    ledger = cluster(2)
    ledger.take(Part(NodeId("n0"), (0, 1, 2), workers=3), WORKER)

    assert even(ledger, gang(0, 5)) is None
    assert layout(placer("even")(ledger, gang(0, 5))) == {"n1": (4, 0), "n0": (1, 0)}


@pytest.mark.parametrize(
    "shape",
    [
        Shape(2, Resources(share_milli=500)),
        Shape(2, WORKER, (Role("ps", 1, Resources()),)),
        Shape(2, WORKER, (), Level.SWITCH),
        Shape(2, WORKER, (Role("ps", 1, SERVER), Role("chief", 1, SERVER))),
    ],
    ids=["shares", "servers with GPUs", "within a cell", "two roles"],
)
def test_other_gangs_are_left_to_others(shape: Shape) -> None:
    assert not divisible(shape)
    assert even(cluster(3), shape) is None


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 20))
def test_portions_differ_by_one_at_most_and_are_the_whole(w: int, p: int, nodes: int) -> None:
    found = portions(w, p, nodes)

    assert (sum(one.workers for one in found), sum(one.servers for one in found)) == (w, p)
    for column in zip(*found, strict=True):
        assert max(column) - min(column) <= 1


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 16)), min_size=1, max_size=25),
    st.integers(1, 6),
)
def test_nothing_is_taken_that_is_not_there(gangs: list[tuple[int, int]], nodes: int) -> None:
    ledger, poor = cluster(nodes), Refusals()
    for servers, workers in gangs:
        if not workers:
            continue
        shape = gang(servers, workers)
        parts = even(ledger, shape, None, poor)
        assert parts == even(ledger, shape)  # what is remembered of poor nodes changes nothing
        for part in parts or ():
            ledger.take(part, WORKER if part.role == "worker" else SERVER)  # raises if it is not
    assert all(one.cpu_left >= 0 for one in ledger.order)


def test_the_fewest_empty_nodes_are_counted() -> None:
    small = NodeSpec(NodeId("n"), gpus=2, cpu_milli=16000)

    assert fewest(small, WORKER, SERVER, Portion(2, 2)) == 1
    assert fewest(small, WORKER, SERVER, Portion(2, 3)) == 2
    assert fewest(small, WORKER, SERVER, Portion(8, 4)) == 4
    assert fewest(NodeSpec(NodeId("n"), gpus=0), WORKER, SERVER, Portion(1, 1)) == 0
