"""Each placer's rule: which nodes, and how many workers on each."""

from __future__ import annotations

import inspect

import pytest

from roost.core import Ledger, Level, NodeSpec, Part, Shape
from roost.errors import NotFound
from roost.placement import PLACERS, SUMMARIES, placer, placers
from roost.testing.builders import node, part, role, worker
from roost.testing.gang_checks import reach


def ledger_of(*nodes: NodeSpec) -> Ledger:
    ledger = Ledger()
    for spec in nodes:
        ledger.join(spec)
    return ledger


def hold(ledger: Ledger, name: str, *gpus: int) -> None:
    ledger.take(part(name, gpus, len(gpus)), worker(1))


def gang(workers: int = 1, gpus: float = 1, **more: object) -> Shape:
    kinds = more.get("kinds", ())
    cpu_milli = more.get("cpu_milli", 0)
    assert isinstance(kinds, tuple)
    assert isinstance(cpu_milli, int)
    return Shape(workers, worker(gpus, kinds=kinds, cpu_milli=cpu_milli))


def where(name: str, ledger: Ledger, shape: Shape) -> dict[str, int] | None:
    """How many workers a placer puts on which node."""
    parts = placer(name)(ledger, shape)
    if parts is None:
        return None
    found: dict[str, int] = {}
    for chosen in parts:
        found[chosen.node] = found.get(chosen.node, 0) + chosen.workers
    return found


def test_first_fit_takes_the_first_node_that_holds_the_gang() -> None:
    ledger = ledger_of(node("n0", 4), node("n1", 4), node("n2", 4))
    hold(ledger, "n0", 0, 1)
    hold(ledger, "n1", 0)

    assert where("first-fit", ledger, gang(3)) == {"n1": 3}
    assert where("first-fit", ledger, gang(1)) == {"n0": 1}


def test_first_fit_rather_waits_than_spreads_a_gang_that_one_node_could_hold() -> None:
    ledger = ledger_of(node("n0", 4), node("n1", 4))
    hold(ledger, "n0", 0)
    hold(ledger, "n1", 0)

    assert where("first-fit", ledger, gang(4)) is None
    assert where("pack", ledger, gang(4)) == {"n0": 3, "n1": 1}


def test_first_fit_puts_a_wide_gang_on_whole_free_nodes_only() -> None:
    ledger = ledger_of(*(node(f"n{n}", 4) for n in range(4)))
    hold(ledger, "n1", 3)

    assert where("first-fit", ledger, gang(10)) == {"n0": 4, "n2": 4, "n3": 2}
    assert where("first-fit", ledger, gang(13)) is None


def test_consolidate_takes_the_tightest_node() -> None:
    ledger = ledger_of(node("n0", 4), node("n1", 4), node("n2", 4))
    hold(ledger, "n1", 0)
    hold(ledger, "n2", 0, 1, 2)

    assert where("consolidate", ledger, gang(1)) == {"n2": 1}
    assert where("consolidate", ledger, gang(2)) == {"n1": 2}
    assert where("consolidate", ledger, gang(4)) == {"n0": 4}
    assert where("consolidate", ledger, gang(5)) is None


def test_pack_takes_the_tightest_node_else_as_few_as_possible() -> None:
    ledger = ledger_of(node("n0", 4), node("n1", 4), node("n2", 4))
    hold(ledger, "n0", 0, 1)
    hold(ledger, "n1", 0)

    assert where("pack", ledger, gang(2)) == {"n0": 2}
    assert where("pack", ledger, gang(5)) == {"n2": 4, "n1": 1}
    assert where("pack", ledger, gang(9)) == {"n2": 4, "n1": 3, "n0": 2}
    assert where("pack", ledger, gang(10)) is None


def test_spread_takes_the_emptiest_nodes_one_worker_at_a_time() -> None:
    ledger = ledger_of(node("n0", 4), node("n1", 4), node("n2", 4))
    hold(ledger, "n0", 0, 1, 2)

    assert where("spread", ledger, gang(2)) == {"n1": 1, "n2": 1}
    assert where("spread", ledger, gang(4)) == {"n1": 2, "n2": 1, "n0": 1}
    assert where("spread", ledger, gang(9)) == {"n1": 4, "n2": 4, "n0": 1}
    assert where("spread", ledger, gang(10)) is None


def test_topology_prefers_one_node_then_one_switch_then_anything() -> None:
    ledger = ledger_of(
        node("n0", 4, switch="a"),
        node("n1", 4, switch="b"),
        node("n2", 4, switch="b"),
        node("n3", 8, switch="c"),
    )

    assert where("topology", ledger, gang(4)) == {"n0": 4}
    assert where("topology", ledger, gang(6)) == {"n3": 6}
    hold(ledger, "n3", 0, 1, 2, 3)
    assert where("topology", ledger, gang(6)) == {"n1": 4, "n2": 2}
    assert where("topology", ledger, gang(9)) is not None, "over all switches"


def test_topology_prefers_a_node_where_one_socket_is_enough() -> None:
    ledger = ledger_of(node("n0", 8, sockets=2), node("n1", 8, sockets=2))
    hold(ledger, "n0", 0, 1, 4, 5)

    parts = placer("topology")(ledger, gang(4))

    assert parts is not None
    assert {chosen.node for chosen in parts} == {"n1"}
    assert reach(ledger, parts) is Level.SOCKET


def test_anywhere_takes_any_device_in_node_order() -> None:
    ledger = ledger_of(node("n0", 2), node("n1", 2), node("n2", 8))
    hold(ledger, "n0", 0)

    assert where("anywhere", ledger, gang(4)) == {"n0": 1, "n1": 2, "n2": 1}


@pytest.mark.parametrize("name", PLACERS)
def test_only_the_kinds_that_will_do_are_used(name: str) -> None:
    ledger = ledger_of(
        node("n0", 2, kind="k80"), node("n1", 2, kind="v100"), node("n2", 2, kind="a100")
    )

    assert where(name, ledger, gang(2, kinds=("v100",))) == {"n1": 2}
    assert where(name, ledger, gang(4, kinds=("v100", "a100"))) == {"n1": 2, "n2": 2}
    assert where(name, ledger, gang(3, kinds=("v100",))) is None
    assert where(name, ledger, gang(1, kinds=("h100",))) is None


@pytest.mark.parametrize("name", PLACERS)
def test_shares_go_where_shares_are(name: str) -> None:
    ledger = ledger_of(node("n0", 1), node("n1", 1))
    ledger.take(part("n0", (0,), share_milli=400), worker(0.4))

    assert where(name, ledger, gang(1, 0.6)) == ({"n1": 1} if name == "spread" else {"n0": 1})
    assert where(name, ledger, gang(1, 0.7)) == {"n1": 1}


@pytest.mark.parametrize("name", ["pack", "anywhere", "topology", "spread"])
def test_a_gang_of_shares_may_use_several_devices(name: str) -> None:
    ledger = ledger_of(node("n0", 2), node("n1", 1))

    parts = placer(name)(ledger, gang(5, 0.5))

    assert parts is not None
    assert sum(chosen.workers for chosen in parts) == 5
    assert placer(name)(ledger, gang(7, 0.5)) is None


@pytest.mark.parametrize("name", PLACERS)
def test_cpus_bound_what_a_node_holds(name: str) -> None:
    """Two nodes have the GPUs of eight workers each, but the CPUs of four."""
    ledger = ledger_of(node("n0", 8, cpu_milli=4000), node("n1", 8, cpu_milli=4000))

    assert where(name, ledger, gang(8, cpu_milli=1000)) == {"n0": 4, "n1": 4}
    assert where(name, ledger, gang(9, cpu_milli=1000)) is None


@pytest.mark.parametrize("name", PLACERS)
def test_a_gang_of_a_small_kind_is_not_held_to_the_largest_node(name: str) -> None:
    ledger = ledger_of(node("n0", 8), node("n1", 2, kind="small"), node("n2", 2, kind="small"))

    assert where(name, ledger, gang(4, kinds=("small",))) == {"n1": 2, "n2": 2}


@pytest.mark.parametrize("name", PLACERS)
def test_a_gang_without_gpus_fits_on_nodes_without_gpus(name: str) -> None:
    ledger = ledger_of(node("n0", 0, cpu_milli=1000), node("n1", 0, cpu_milli=1000))

    assert where(name, ledger, gang(2, 0, cpu_milli=1000)) == {"n0": 1, "n1": 1}
    assert where(name, ledger, gang(3, 0, cpu_milli=1000)) is None


@pytest.mark.parametrize("name", PLACERS)
def test_a_gang_without_gpus_does_not_need_idle_gpus(name: str) -> None:
    ledger = ledger_of(node("n0", 1, cpu_milli=1000), node("n1", 1, cpu_milli=1000))
    hold(ledger, "n0", 0)
    hold(ledger, "n1", 0)

    assert where(name, ledger, gang(2, 0, cpu_milli=1000)) == {"n0": 1, "n1": 1}


@pytest.mark.parametrize("name", PLACERS)
def test_a_gang_of_one_switch_is_not_held_to_the_largest_node_of_another(name: str) -> None:
    ledger = ledger_of(node("n0", 8, switch="a"), node("n1", 2), node("n2", 2))
    hold(ledger, "n0", *range(8))

    assert where(name, ledger, Shape(4, worker(1), within=Level.SWITCH)) == {"n1": 2, "n2": 2}


@pytest.mark.parametrize("name", PLACERS)
def test_a_lost_large_node_does_not_keep_a_gang_waiting(name: str) -> None:
    ledger = ledger_of(node("n0", 8), node("n1", 2), node("n2", 2))
    ledger.lose(node("n0").id)

    assert where(name, ledger, gang(4)) == {"n1": 2, "n2": 2}


@pytest.mark.parametrize("name", PLACERS)
def test_roles_are_placed_with_the_workers_or_not_at_all(name: str) -> None:
    ledger = ledger_of(node("n0", 2, cpu_milli=1000), node("n1", 1, cpu_milli=1000))
    fits = Shape(1, worker(2), (role("ps", 2, cpu_milli=1000),))
    too_much = Shape(1, worker(2), (role("ps", 2, cpu_milli=1000), role("chief", 1, 2)))

    parts = placer(name)(ledger, fits)

    assert parts is not None
    assert sorted((p.role, p.node, p.workers) for p in parts) == [
        ("ps", "n0", 1),
        ("ps", "n1", 1),
        ("worker", "n0", 1),
    ]
    assert placer(name)(ledger, too_much) is None


def test_an_unknown_placer_is_named_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="did you mean 'spread'"):
        placer("sprad")


def test_parts_say_what_they_hold() -> None:
    ledger = ledger_of(node("n0", 4))

    assert placer("pack")(ledger, gang(2, 2)) == (Part(node("n0").id, (0, 1, 2, 3), 1000, 2),)


def test_the_summary_of_a_placer_is_its_docstring() -> None:
    assert set(SUMMARIES) == set(PLACERS)
    if placers.__file__.endswith(".py"):  # compiled, it has no docstrings
        for name, each in PLACERS.items():
            assert (inspect.getdoc(each) or "").partition("\n")[0] == SUMMARIES[name]
