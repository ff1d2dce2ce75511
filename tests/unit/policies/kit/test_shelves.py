"""Shelves: how many whole GPUs the shares that wait come to."""

from __future__ import annotations

import pytest

from roost.core import Ledger, NodeId, Part, Resources
from roost.core.spec import Way
from roost.policies.kit.shelves import ShelfRoom, is_share
from roost.testing.builders import node, spec, worker


def ledger_with(*shares: tuple[str, int, float], cpu_milli: int = 0) -> Ledger:
    """Two nodes with four GPUs each, and shares on some of them."""
    ledger = Ledger()
    for name in ("n0", "n1"):
        ledger.join(node(name, 4, cpu_milli=cpu_milli))
    for name, gpu, share in shares:
        need = worker(share)
        ledger.take(Part(NodeId(name), (gpu,), need.share_milli, 1), need)
    return ledger


def opened(ledger: Ledger, *needs: Resources) -> int:
    shelves, found = ShelfRoom(ledger), 0
    for need in needs:
        if not shelves.take(need):
            shelves.open(need)
            found += 1
    return found


def test_a_crowd_of_shares_comes_to_as_many_gpus_as_it_fills() -> None:
    assert opened(ledger_with(), *[worker(0.3)] * 7) == 3
    assert opened(ledger_with(), worker(0.7), worker(0.6), worker(0.4), worker(0.3)) == 2


def test_what_fits_beside_others_opens_nothing() -> None:
    ledger = ledger_with(("n0", 0, 0.5), ("n1", 2, 0.2))
    assert ShelfRoom(ledger).free_milli == 1300
    assert opened(ledger, worker(0.5), worker(0.8)) == 0
    assert opened(ledger, worker(0.5), worker(0.8), worker(0.1)) == 1


def test_the_tightest_shelf_is_taken() -> None:
    ledger = ledger_with(("n0", 0, 0.2), ("n1", 0, 0.7))
    assert opened(ledger, worker(0.3), worker(0.8)) == 0


@pytest.mark.parametrize(
    "need",
    [
        Resources(share_milli=300, way=Way.SPATIAL),
        Resources(share_milli=300, kinds=("other",)),
        Resources(share_milli=300, cpu_milli=2000),
    ],
)
def test_a_shelf_of_another_sort_is_of_no_use(need: Resources) -> None:
    ledger = ledger_with(("n0", 0, 0.5), cpu_milli=1000)
    assert opened(ledger, worker(0.3)) == 0
    assert opened(ledger, need) == 1


def test_different_sorts_open_gpus_of_their_own() -> None:
    spatial = Resources(share_milli=300, way=Way.SPATIAL)
    assert opened(ledger_with(), worker(0.3), spatial, worker(0.3), spatial) == 2


def test_a_gpu_that_does_not_work_is_no_shelf() -> None:
    ledger = ledger_with(("n0", 0, 0.5))
    ledger.set_health(NodeId("n0"), 0, healthy=False)
    assert opened(ledger, worker(0.3)) == 1


def test_what_is_a_share() -> None:
    assert is_share(spec(0.5))
    assert not any(map(is_share, (spec(1), spec(0), spec(0.5, workers=2))))
