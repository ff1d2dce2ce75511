"""The ledger refuses to give out what it does not have."""

from __future__ import annotations

import pytest

from roost.core import Ledger, NodeSpec, Resources
from roost.errors import Conflict, Fatal, NotFound
from roost.testing.builders import node, part, worker
from roost.testing.checks import mask_problems


def ledger_of(*nodes: NodeSpec) -> Ledger:
    ledger = Ledger()
    for spec in nodes:
        ledger.join(spec)
    return ledger


def test_a_device_is_given_out_once() -> None:
    ledger = ledger_of(node("n0", 2))
    ledger.take(part("n0", (0,)), worker(1))

    with pytest.raises(Fatal, match="not free"):
        ledger.take(part("n0", (0, 1), 2), worker(1))


def test_a_device_is_given_back_once() -> None:
    ledger = ledger_of(node("n0", 2))
    ledger.take(part("n0", (0,)), worker(1))
    ledger.release(part("n0", (0,)), worker(1))

    with pytest.raises(Fatal, match="twice"):
        ledger.release(part("n0", (0,)), worker(1))


def test_a_whole_device_and_a_share_of_it_exclude_each_other() -> None:
    ledger = ledger_of(node("n0", 2))
    ledger.take(part("n0", (0,), share_milli=300), worker(0.3))
    ledger.take(part("n0", (1,)), worker(1))

    with pytest.raises(Fatal):
        ledger.take(part("n0", (0,)), worker(1))
    with pytest.raises(Fatal):
        ledger.take(part("n0", (1,), share_milli=300), worker(0.3))


def test_shares_stop_at_one_device() -> None:
    ledger = ledger_of(node("n0", 1))
    for _ in range(3):
        ledger.take(part("n0", (0,), share_milli=300), worker(0.3))

    assert ledger.free_milli == 100
    with pytest.raises(Fatal, match="more than is left"):
        ledger.take(part("n0", (0,), share_milli=300), worker(0.3))


def test_memory_limits_stop_at_one_device() -> None:
    ledger = ledger_of(node("n0", 1, gpu_memory_mib=1000))
    ledger.take(part("n0", (0,), share_milli=100), worker(0.1, gpu_memory_mib=800))

    with pytest.raises(Fatal, match="more than is left"):
        ledger.take(part("n0", (0,), share_milli=100), worker(0.1, gpu_memory_mib=300))


def test_without_a_limit_a_share_is_charged_its_part_of_the_memory() -> None:
    ledger = ledger_of(node("n0", 1, gpu_memory_mib=1000))
    ledger.take(part("n0", (0,), share_milli=250), worker(0.25))

    assert ledger.nodes[node("n0").id].shared[0].left_mib == 750


@pytest.mark.parametrize(
    ("need", "match"),
    [(worker(0, cpu_milli=600), "CPUs"), (worker(0, memory_mib=60), "memory")],
)
def test_cpus_and_memory_stop_at_the_node(need: object, match: str) -> None:
    ledger = ledger_of(node("n0", 0, cpu_milli=1000, memory_mib=100))
    assert isinstance(need, type(worker()))
    ledger.take(part("n0"), need)

    with pytest.raises(Fatal, match=match):
        ledger.take(part("n0"), need)


def test_what_a_node_does_not_count_is_not_charged() -> None:
    ledger = ledger_of(node("n0", 1))

    ledger.take(part("n0"), worker(0, cpu_milli=10**9, memory_mib=10**9))

    assert ledger.room(ledger.order[0], worker(1, cpu_milli=10**9)) == 1


def test_a_lost_node_has_nothing_to_give() -> None:
    ledger = ledger_of(node("n0", 2))
    ledger.lose(node("n0").id)

    assert (ledger.free_milli, ledger.capacity_milli, ledger.up) == (0, 0, 0)
    with pytest.raises(Fatal):
        ledger.take(part("n0", (0,)), worker(1))
    with pytest.raises(Fatal):
        ledger.take(part("n0"), worker(0))


def test_a_node_comes_back_as_it_was() -> None:
    ledger = ledger_of(node("n0", 2))
    ledger.take(part("n0", (0,)), worker(1))
    ledger.set_health(node("n0").id, 1, healthy=False)
    ledger.lose(node("n0").id)
    ledger.join(node("n0", 2))

    assert ledger.free_milli == 0
    assert ledger.capacity_milli == 1000
    ledger.release(part("n0", (0,)), worker(1))
    assert ledger.free_milli == 1000


def test_a_node_that_is_here_cannot_join() -> None:
    ledger = ledger_of(node("n0", 2))

    with pytest.raises(Conflict, match="already"):
        ledger.join(node("n0", 2))


def test_a_node_comes_back_with_other_hardware_once_nobody_holds_the_old() -> None:
    ledger = ledger_of(node("n0", 2))
    one = part("n0", (1,))
    ledger.take(one, worker(1))
    ledger.lose(node("n0").id)

    with pytest.raises(Conflict, match="other hardware"):
        ledger.join(node("n0", 4, kind="H200"))
    ledger.release(one, worker(1))
    ledger.join(node("n0", 4, kind="H200"))

    assert ledger.free_milli == ledger.capacity_milli == 4000
    assert [n.id for n in ledger.select(ledger.eligible(Resources(kinds=("H200",))))] == ["n0"]
    assert not ledger.eligible(Resources(kinds=("gpu",)))


def test_unknown_nodes_and_devices_are_named() -> None:
    ledger = ledger_of(node("n0", 2))

    with pytest.raises(NotFound, match="n9"):
        ledger.lose(node("n9").id)
    with pytest.raises(NotFound, match=r"0\.\.1"):
        ledger.set_health(node("n0").id, 2, healthy=False)


def test_masks_find_nodes_by_idle_devices_and_kind() -> None:
    ledger = ledger_of(node("n0", 2), node("n1", 4, kind="b"), node("n2", 4))
    ledger.take(part("n2", (0,)), worker(1))

    def found(gpus: float, *kinds: str) -> list[str]:
        return [n.id for n in ledger.select(ledger.candidates(worker(gpus, kinds=kinds)))]

    assert found(1) == ["n0", "n1", "n2"]
    assert found(3) == ["n1", "n2"]
    assert found(4) == ["n1"]
    assert found(5) == []
    assert found(1, "b") == ["n1"]
    assert found(1, "b", "gpu") == ["n0", "n1", "n2"]
    assert found(0) == ["n0", "n1", "n2"]


def test_room_counts_whole_workers() -> None:
    ledger = ledger_of(node("n0", 7, cpu_milli=4000, gpu_memory_mib=1000))
    n0 = ledger.order[0]

    assert ledger.room(n0, worker(2)) == 3
    assert ledger.room(n0, worker(1, cpu_milli=1500)) == 2
    assert ledger.room(n0, worker(1, gpu_memory_mib=1001)) == 0
    assert ledger.room(n0, worker(0.3)) == 21
    assert ledger.room(n0, worker(0.1, gpu_memory_mib=400)) == 14


def test_devices_are_picked_on_the_fullest_socket_that_will_do() -> None:
    ledger = ledger_of(node("n0", 8, sockets=2))
    ledger.take(part("n0", (4, 5), 2), worker(1))
    n0 = ledger.order[0]

    assert ledger.pick(n0, worker(1), 2)[0].gpus == (6, 7)
    assert ledger.pick(n0, worker(1), 3)[0].gpus == (0, 1, 2)
    assert ledger.pick(n0, worker(1), 5)[0].gpus == (0, 1, 2, 3, 6)


def test_shares_are_picked_on_devices_that_are_shared_already_fullest_first() -> None:
    ledger = ledger_of(node("n0", 3))
    ledger.take(part("n0", (1,), share_milli=200), worker(0.2))
    ledger.take(part("n0", (2,), share_milli=500), worker(0.5))

    assert [p.gpus for p in ledger.pick(ledger.order[0], worker(0.5), 3)] == [(2,), (1,), (0,)]


def test_a_trial_leaves_no_trace() -> None:
    ledger = ledger_of(node("n0", 1))
    ledger.take(part("n0", (0,)), worker(1))
    before = ledger.releases

    with ledger.trial():
        ledger.release(part("n0", (0,)), worker(1))
        ledger.take(part("n0", (0,)), worker(1))

    assert ledger.releases == before


def test_what_is_hidden_cannot_be_found_meanwhile() -> None:
    ledger = ledger_of(node("n0", 2, cpu_milli=1000))
    need = worker(1, cpu_milli=600)

    with ledger.hidden([(part("n0", (0,)), need)]):
        assert ledger.room(ledger.order[0], worker(1)) == 1
        assert ledger.room(ledger.order[0], need) == 0
        assert ledger.free_milli == 1000
    assert ledger.room(ledger.order[0], need) == 1
    assert ledger.free_milli == 2000


@pytest.mark.parametrize("share_milli", [1000, 400])
def test_what_is_hidden_stays_hidden_when_something_is_given_back(share_milli: int) -> None:
    ledger = ledger_of(node("n0", 3))
    need = worker(share_milli / 1000)

    with ledger.hidden([(part("n0", (0,)), worker(1))]):
        ledger.take(part("n0", (1,), share_milli=share_milli), need)
        ledger.release(part("n0", (1,), share_milli=share_milli), need)
        assert ledger.room(ledger.order[0], worker(1)) == 2
    assert ledger.room(ledger.order[0], worker(1)) == 3
    assert list(mask_problems(ledger)) == []


def test_only_a_cell_is_shown_and_then_everything_again() -> None:
    ledger = ledger_of(node("n0", 4, sockets=2), node("n1", 4))
    ledger.take(part("n0", (3,)), worker(1))

    with ledger.only(ledger.order[0].bit, gpus=0b1100):
        assert ledger.room(ledger.order[0], worker(1)) == 1
        assert ledger.candidates(worker(1)) == 0b01
        ledger.take(part("n0", (2,)), worker(1))
        assert ledger.room(ledger.order[0], worker(1)) == 0
        ledger.release(part("n0", (2,)), worker(1))
    assert [n.shown for n in ledger.order] == [3, 4]
    assert ledger.candidates(worker(1)) == 0b11
    assert list(mask_problems(ledger)) == []


def test_changes_are_remembered_for_a_while() -> None:
    ledger = ledger_of(node("n0", 1), node("n1", 1))
    stamp = ledger.stamp
    ledger.take(part("n1", (0,)), worker(1))

    changed = ledger.changed_since(stamp)
    assert changed is not None
    assert {n.id for n in changed} == {"n1"}
    for _ in range(70_000):
        ledger.touch(ledger.order[0])
    assert ledger.changed_since(stamp) is None, "that is forgotten"
    assert ledger.changed_since(ledger.stamp) == []


def test_a_node_takes_so_many_workers_whatever_they_need() -> None:
    ledger = ledger_of(node("n0", 4, workers=3), node("n1", 2))
    n0, n1 = ledger.order
    assert ledger.room(n0, Resources(gpus=0)) == 3
    assert ledger.room(n0, worker(1)) == 3
    assert ledger.room(n1, worker(1)) == 2
    assert not ledger.could(worker(1), 4), "four GPUs, and three workers at most"
    assert ledger.crowded == n0.bit

    ledger.take(part("n0", (), 2), Resources(gpus=0))
    assert ledger.room(n0, worker(0.5)) == 1
    why = ledger.claim([(part("n0", (0,)), worker(1)), (part("n0", (1,)), worker(1))])
    assert why == "node n0 takes 0 more workers"
    assert n0.workers_left == 1
    with pytest.raises(Fatal, match="more workers than node n0 takes"):
        ledger.take(part("n0", (0, 1), 2), worker(1))


def test_a_node_with_more_workers_than_gpus_is_not_crowded_until_few_are_left() -> None:
    ledger = ledger_of(node("n0", 2, workers=4))
    assert not ledger.crowded
    ledger.take(part("n0", (), 3), Resources(gpus=0))
    assert ledger.crowded
    ledger.release(part("n0", (), 3), Resources(gpus=0))
    assert not ledger.crowded
    ledger.take(part("n0", (), 3), Resources(gpus=0))
    ledger.lose(ledger.order[0].id)
    assert not ledger.crowded
