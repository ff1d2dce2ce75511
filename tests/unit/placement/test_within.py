"""Gangs that ask to stay in one cell of the topology."""

from __future__ import annotations

import pytest

from roost.core import Ledger, Level, NodeSpec, Shape
from roost.placement import PLACERS, placer
from roost.testing.builders import node, part, role, worker
from roost.testing.checks import mask_problems
from roost.testing.gang_checks import gang_problems, reach

ALL = pytest.mark.parametrize("name", PLACERS)


def ledger_of(*nodes: NodeSpec) -> Ledger:
    ledger = Ledger()
    for spec in nodes:
        ledger.join(spec)
    return ledger


def gang(workers: int, within: Level, gpus: float = 1) -> Shape:
    return Shape(workers, worker(gpus), within=within)


@ALL
def test_one_gpu_for_all_shares(name: str) -> None:
    ledger = ledger_of(node("n0", 2))
    ledger.take(part("n0", (0,), share_milli=400), worker(0.4))

    parts = placer(name)(ledger, gang(4, Level.GPU, 0.2))

    assert parts is not None
    assert reach(ledger, parts) is Level.GPU
    assert placer(name)(ledger, gang(6, Level.GPU, 0.2)) is None


@ALL
def test_one_socket(name: str) -> None:
    ledger = ledger_of(node("n0", 4, sockets=2), node("n1", 8, sockets=2))
    ledger.take(part("n0", (0,)), worker(1))

    parts = placer(name)(ledger, gang(3, Level.SOCKET))

    assert parts is not None
    assert {chosen.node for chosen in parts} == {"n1"}
    assert reach(ledger, parts) is Level.SOCKET
    assert placer(name)(ledger, gang(5, Level.SOCKET)) is None


@ALL
def test_one_node(name: str) -> None:
    ledger = ledger_of(node("n0", 2), node("n1", 4))
    ledger.take(part("n1", (0,)), worker(1))

    parts = placer(name)(ledger, gang(3, Level.NODE))

    assert parts is not None
    assert {chosen.node for chosen in parts} == {"n1"}
    assert placer(name)(ledger, gang(4, Level.NODE)) is None


@ALL
def test_one_switch(name: str) -> None:
    ledger = ledger_of(
        node("n0", 2, switch="a"), node("n1", 2, switch="b"), node("n2", 2, switch="b")
    )

    parts = placer(name)(ledger, gang(4, Level.SWITCH))

    assert parts is not None
    assert {chosen.node for chosen in parts} == {"n1", "n2"}
    assert placer(name)(ledger, gang(5, Level.SWITCH)) is None
    assert placer(name)(ledger, gang(6, Level.CLUSTER)) is not None


@ALL
@pytest.mark.parametrize("within", [Level.SOCKET, Level.NODE])
def test_a_gang_without_gpus_stays_on_one_node(name: str, within: Level) -> None:
    ledger = ledger_of(node("n0", 0, cpu_milli=1000), node("n1", 0, cpu_milli=2000))
    small = worker(0, cpu_milli=1000)

    parts = placer(name)(ledger, Shape(2, small, within=within))

    assert parts is not None
    assert {chosen.node for chosen in parts} == {"n1"}
    assert placer(name)(ledger, Shape(3, small, within=within)) is None


@ALL
@pytest.mark.parametrize("servers", [0, 1, 0.5])
def test_a_gang_with_roles_may_ask_for_one_socket(name: str, servers: float) -> None:
    ledger = ledger_of(node("n0", 4, sockets=2), node("n1", 6, sockets=2))
    shape = Shape(1, worker(1), (role("ps", 2, servers),), Level.SOCKET)
    before = (list(ledger.at_least), ledger.full, ledger.sharing, ledger.free_milli)

    parts = placer(name)(ledger, shape)

    assert parts is not None
    assert gang_problems(ledger, shape, parts) == []
    assert (ledger.at_least, ledger.full, ledger.sharing, ledger.free_milli) == before
    assert [n.shown for n in ledger.order] == [4, 6]


@ALL
def test_a_gang_with_roles_may_ask_for_one_switch_while_devices_are_hidden(name: str) -> None:
    ledger = ledger_of(node("n0", 4), node("n1", 4, switch="b"))
    shape = Shape(1, worker(2), (role("ps", 1, 1),), Level.SWITCH)

    with ledger.hidden([(part("n0", (0, 1), 2), worker(1))]):
        parts = placer(name)(ledger, shape)
        assert parts is not None
        assert {chosen.node for chosen in parts} == {"n1"}, "n0 shows only two GPUs"
    assert list(mask_problems(ledger)) == []
    assert ledger.free_milli == 8000


def test_the_check_for_cells_is_not_blind() -> None:
    ledger = ledger_of(node("n0", 4, sockets=2), node("n1", 4, switch="b"))
    across = (part("n0", (1, 2), 2),)
    apart = (part("n0", (0,)), part("n1", (0,)))

    assert reach(ledger, across) is Level.NODE
    assert reach(ledger, apart) is Level.CLUSTER
    assert gang_problems(ledger, gang(2, Level.SOCKET), across) != []
    assert gang_problems(ledger, gang(2, Level.SWITCH), apart) != []
    assert gang_problems(ledger, gang(2, Level.CLUSTER), apart) == []
