"""Placers that keep what is left usable: their measures, and that they find the best node."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.effort import examples

from roost.core import Ledger, Level, NodeId, NodeSpec, Part, Resources, Shape
from roost.core.demand import Demand, Typical, counted
from roost.core.spec import Way
from roost.errors import InvalidSpec
from roost.placement import placer
from roost.placement.fragments import Fragmentation, GradientRule, ValueRule, fragmented_milli
from roost.testing.builders import node, spec, worker


def ledger_of(*nodes: NodeSpec, typical: tuple[Resources, ...] = ()) -> Ledger:
    ledger = Ledger()
    for one in nodes:
        ledger.join(one)
    for need in typical:
        ledger.demand.note(need, 100)
    return ledger


def put(name: str, ledger: Ledger, need: Resources, workers: int = 1) -> tuple[Part, ...] | None:
    """Have a gang placed, and take what it is given."""
    parts = placer(name)(ledger, Shape(workers, need))
    for part in parts or ():
        ledger.take(part, need)
    return parts


@pytest.mark.parametrize("name", ["fgd", "usable", "compact"])
def test_shares_that_fill_a_gpu_go_together(name: str) -> None:
    ledger = ledger_of(node("n0", 2), node("n1", 2), typical=(worker(0.7), worker(0.3), worker(1)))
    for gpus in (0.7, 0.7, 0.3, 0.3):
        assert put(name, ledger, worker(gpus)) is not None

    assert sorted(device.left_milli for one in ledger.order for device in one.shared.values()) == [
        0,
        0,
    ]


@pytest.mark.parametrize("name", ["fgd", "usable", "compact"])
def test_nodes_with_more_gpus_are_kept_for_those_who_need_them(name: str) -> None:
    ledger = ledger_of(node("n0", 8), node("n1", 2), typical=(worker(8), worker(1)))
    parts = put(name, ledger, worker(1))
    assert parts is not None
    assert parts[0].node == "n1"


def test_kinds_in_demand_are_kept_for_those_who_ask_for_them() -> None:
    asked = worker(1, kinds=("T4",))
    ledger = ledger_of(
        node("n0", 4, kind="T4"), node("n1", 4, kind="G2"), typical=(asked, worker(1))
    )
    parts = put("usable", ledger, worker(1))
    assert parts is not None
    assert parts[0].node == "n1"


@pytest.mark.parametrize("name", ["fgd", "usable"])
def test_a_gang_of_shares_is_all_or_nothing(name: str) -> None:
    ledger = ledger_of(node("n0", 2), typical=(worker(0.6),))
    assert put(name, ledger, worker(0.6), 3) is None
    assert ledger.free_milli == 2000
    parts = put(name, ledger, worker(0.6), 2)
    assert parts is not None
    assert sorted(part.gpus for part in parts) == [(0,), (1,)]


@pytest.mark.parametrize("name", ["fgd", "usable"])
def test_a_device_that_is_shared_in_another_way_is_not_taken(name: str) -> None:
    ledger = ledger_of(node("n0", 1), node("n1", 1), typical=(worker(0.5),))
    spatial = Resources(share_milli=500, way=Way.SPATIAL)
    assert put(name, ledger, spatial) is not None
    parts = put(name, ledger, worker(0.5))
    assert parts is not None
    assert parts[0].node == "n1"


@pytest.mark.parametrize("name", ["fgd", "usable"])
def test_memory_of_gpus_is_respected(name: str) -> None:
    ledger = ledger_of(node("n0", 1, gpu_memory_mib=1000), typical=(worker(0.25),))
    assert put(name, ledger, Resources(share_milli=250, gpu_memory_mib=900)) is not None
    assert put(name, ledger, Resources(share_milli=250)) is None
    assert put(name, ledger, Resources(share_milli=250, gpu_memory_mib=100)) is not None


def fragmented(cpu_milli: int, free: list[int], kind: str, typical: Typical) -> float:
    """FGD's definition, word by word."""
    total = 0.0
    for need, part in typical.needs:
        met = (
            need.gpus > 0
            and (not need.kinds or kind in need.kinds)
            and cpu_milli >= need.cpu_milli
            and sum(milli >= need.share_milli for milli in free) >= need.gpus
        )
        slivers = sum(milli for milli in free if milli < need.share_milli)
        total += part * (slivers if met else sum(free))
    return total


class RandomBooks:
    """A small cluster whose nodes are taken and given back by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.ledger = Ledger()
        for number in range(self.chance.randint(9, 14)):
            kind = self.chance.choice(("T4", "G2"))
            cpus = self.chance.choice((0, 16_000, 64_000))
            gpus = self.chance.choice((1, 2, 4))
            self.ledger.join(
                NodeSpec(NodeId(f"n{number}"), gpus, kind, cpu_milli=cpus, memory_mib=4096)
            )
        for _ in range(30):
            self.ledger.demand.note(self.need())
        self.held: list[tuple[Part, Resources]] = []

    def need(self) -> Resources:
        chance = self.chance
        gpus = chance.choice((0, 1, 1, 1, 2))
        share = chance.choice((200, 300, 500, 700, 1000)) if gpus == 1 else 1000
        return Resources(
            gpus,
            share,
            cpu_milli=chance.choice((0, 1000, 8000)),
            memory_mib=chance.choice((0, 512)),
            kinds=chance.choice(((), (), ("T4",))),
        )

    def step(self, name: str) -> tuple[Part, ...] | None:
        """One of them comes, or leaves, or is only tried."""
        chance, ledger = self.chance, self.ledger
        if self.held and chance.random() < 0.4:
            ledger.release(*self.held.pop(chance.randrange(len(self.held))))
        if self.held and chance.random() < 0.3:  # undone, as policies do
            moment, again = ledger.moment(), chance.choice(self.held)
            with ledger.trial():
                ledger.release(*again)
                placer(name)(ledger, Shape(1, self.need()))
                ledger.take(*again)
            ledger.back_to(moment)
        need = self.need()
        parts = placer(name)(ledger, Shape(1, need))
        for part in parts or ():
            ledger.take(part, need)
            self.held.append((part, need))
        return parts


@pytest.mark.parametrize("seed", range(examples(10)))
def test_fragmented_is_what_fgd_says(seed: int) -> None:
    books = RandomBooks(seed)
    for _ in range(20):
        books.step("fgd")
    ledger, typical = books.ledger, books.ledger.demand.typical()
    expected = 0.0
    for each in ledger.order:
        free = [1000 if each.free >> gpu & 1 else 0 for gpu in range(each.spec.gpus)]
        for gpu, device in each.shared.items():
            free[gpu] = device.left_milli
        cpus = each.cpu_left if each.spec.cpu_milli else 1 << 40
        expected += fragmented(cpus, free, each.spec.kind, typical)

    assert fragmented_milli(ledger, typical) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(examples(10)))
@pytest.mark.parametrize("name", ["fgd", "usable"])
def test_what_is_remembered_of_nodes_does_not_change_the_choice(name: str, seed: int) -> None:
    books = RandomBooks(seed)
    for _ in range(60):
        books.step(name)
        need = books.need()
        with_memory = placer(name)(books.ledger, Shape(1, need))
        books.ledger.notes.clear()
        assert placer(name)(books.ledger, Shape(1, need)) == with_memory
        room = any(
            books.ledger.room(each, need)
            for each in books.ledger.select(books.ledger.candidates(need))
        )
        assert (with_memory is not None) == room


def test_hidden_nodes_are_not_chosen() -> None:
    ledger = ledger_of(*(node(f"n{n}", 2) for n in range(12)), typical=(worker(1),))
    for hidden in (0b1, 0b111, 0b101010101010):
        with ledger.only(0b111111111111 & ~hidden):
            parts = placer("fgd")(ledger, Shape(1, worker(1)))
        assert parts is not None
        assert not ledger.nodes[parts[0].node].bit & hidden
    assert placer("fgd")(ledger, Shape(1, worker(1), within=Level.NODE)) is not None


def test_rules_are_not_afraid_of_no_workload() -> None:
    nothing = Demand().typical()
    for rule in (GradientRule, ValueRule):
        assert rule(nothing) is not None
    assert Fragmentation(nothing) is not None
    ledger = ledger_of(node("n0", 1))
    assert put("usable", ledger, worker(0.5)) is not None


@pytest.mark.parametrize("name", ["usable", "compact"])
def test_a_share_opens_no_gpu_where_it_fits_beside_another(name: str) -> None:
    ledger = ledger_of(node("n0", 4), node("n1", 4), typical=(worker(0.5),))
    ledger.take(Part(NodeId("n1"), (3,), 500, 1), worker(0.5))
    parts = put(name, ledger, worker(0.5))
    assert parts is not None
    assert [(part.node, part.gpus) for part in parts] == [("n1", (3,))]


def test_compact_keeps_a_gang_together_that_a_node_could_hold() -> None:
    for beside in (worker(1), worker(0.5)):
        ledger = ledger_of(node("n0", 4), node("n1", 4), typical=(worker(1), beside))
        for name in ("n0", "n1"):
            ledger.take(Part(NodeId(name), (0,), 1000, 1), worker(1))
        assert put("compact", ledger, worker(1), 4) is None
        assert put("usable", ledger, worker(1), 4) is not None


def test_compact_puts_a_gang_that_no_node_holds_on_whole_nodes() -> None:
    ledger = ledger_of(*(node(f"n{n}", 4) for n in range(4)), typical=(worker(0.5), worker(1)))
    ledger.take(Part(NodeId("n0"), (0,), 500, 1), worker(0.5))
    parts = put("compact", ledger, worker(1), 8)
    assert parts is not None
    assert [(part.node, part.workers) for part in parts] == [("n1", 4), ("n2", 4)]


@pytest.mark.parametrize("seed", range(examples(6)))
def test_compact_does_as_consolidate_where_all_are_whole_gpus(seed: int) -> None:
    chance = Random(seed)
    asked = [(worker(chance.choice((1, 1, 2, 4))), chance.choice((1, 1, 2, 3))) for _ in range(40)]
    found = []
    for name in ("compact", "consolidate"):
        ledger = ledger_of(*(node(f"n{n}", 4 + n % 2 * 4) for n in range(6)))
        for need, workers in asked:
            ledger.demand.note(need, workers)
        found.append([put(name, ledger, need, workers) for need, workers in asked])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["fgd", "usable", "compact"])
def test_what_is_known_beforehand_counts_from_the_first_job_on(name: str) -> None:
    known = counted([spec(8), spec(1)] * 10)
    shape = Shape(1, worker(1))
    fresh = ledger_of(node("n0", 8), node("n1", 2))
    (part,) = placer(name, known)(fresh, shape) or ()
    assert part.node == "n1"
    told = ledger_of(node("n0", 8), node("n1", 2), typical=(worker(8), worker(1)))
    assert placer(name)(told, shape) == (part,), "as if these jobs had come"


@pytest.mark.parametrize("name", ["fgd", "usable", "compact"])
def test_one_placer_knows_nothing_of_what_another_was_told(name: str) -> None:
    ledger, shape = ledger_of(node("n0", 8), node("n1", 2)), Shape(1, worker(1))
    first = placer(name)(ledger, shape)
    placer(name, counted([spec(8), spec(1)] * 10))(ledger, shape)
    assert placer(name)(ledger, shape) == first


def test_only_some_placers_go_by_what_usually_comes() -> None:
    known = counted([spec(1)])
    with pytest.raises(InvalidSpec, match="'pack' does not go by what usually comes"):
        placer("pack", known)
    assert placer("pack", ()) is placer("pack")
