"""DRF, Optimus and the floor in the world of slots."""

from __future__ import annotations

import numpy as np

from roost.learn.rules import Drf, Floor, OptimusRule
from roost.learn.slots import SlotView, SlotWorld
from roost.learn.sorts import MOST, Sort

#: Two workers are slower than one, four are the fastest.
_BUMPY = np.tile([1.0, 0.9, 0.9, 2.0] + [0.5] * (MOST - 4), (MOST, 1))
#: Every worker gains, servers lose.
_EVEN = np.arange(1, MOST + 1) / np.arange(1, MOST + 1)[:, None]


def view(sorts: list[int], left: list[float] | None = None) -> SlotView:
    count = len(sorts)
    work = np.array(left or [10.0] * count)
    zeros = np.zeros(count, dtype=np.int64)
    return SlotView(0, zeros, np.arange(count), np.array(sorts), work, work, np.zeros(count))


def test_drf_gives_equal_shares() -> None:
    world = SlotWorld([Sort("", _EVEN, 1.0)], 8)

    assert Drf(world)(view([0, 0])).tolist() == [[8, 8], [8, 8]]
    assert Drf(world, best_fit=True)(view([0] * 16)).tolist() == [[1, 1]] * 16


def test_optimus_stops_where_one_more_gains_nothing() -> None:
    world = SlotWorld([Sort("", _BUMPY, 1.0)], 96)

    assert OptimusRule(world)(view([0])).tolist() == [[1, 1]]
    assert Floor(world)(view([0])).tolist() == [[1, 4]]


def test_optimus_adds_to_the_longest_job() -> None:
    world = SlotWorld([Sort("", _EVEN, 1.0)], 4)
    short, long = OptimusRule(world, best_fit=True)(view([0, 0], [1.0, 50.0])).tolist()

    assert long[1] > short[1] >= 1
    assert long[1] + short[1] == 8


def test_the_least_used_node_alone_is_tried() -> None:
    """Two nodes have a GPU left each, but the one with less in use has none: the slot is over."""
    sorts = [Sort("", _EVEN, 1.0)]
    one_try, anywhere = (
        OptimusRule(SlotWorld(sorts, 3), best_fit=fit)(view([0, 0, 0])) for fit in (False, True)
    )

    assert one_try[:, 1].sum() <= anywhere[:, 1].sum() == 6
