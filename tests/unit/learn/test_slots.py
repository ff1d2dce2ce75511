"""The world of slots: what jobs take there, and when they are done."""

from __future__ import annotations

import numpy as np
import pytest

from roost.errors import InvalidSpec
from roost.learn.slots import SlotView, SlotWorld, Trace
from roost.learn.sorts import MOST, Sort, draw_sorts
from roost.perf.arrays import Integers


def steady(speed: float = 1.0, name: str = "") -> Sort:
    """A sort that is as fast at any size."""
    return Sort(name, np.full((MOST, MOST), speed), 2.0)


def all_of_them(view: SlotView) -> Integers:
    return np.ones((len(view.jobs), 2), dtype=np.int64)


def test_a_job_is_done_within_a_slot() -> None:
    world = SlotWorld([steady(0.8)], 2)
    trace = Trace(np.array([0, 3]), np.array([0, 0]), np.array([2.0, 0.4]))
    (found,) = world.play([trace], all_of_them)

    assert found.times == pytest.approx([2.5, 0.5])
    assert found.makespan == pytest.approx(3.5)
    assert found.mean == pytest.approx(1.5)


def test_who_waits_gets_nothing_done() -> None:
    world = SlotWorld([steady()], 2)
    trace = Trace(np.array([0, 0]), np.array([0, 0]), np.array([2.0, 2.0]))

    def first_only(view: SlotView) -> Integers:
        return np.array([[1, 1]] + [[0, 0]] * (len(view.jobs) - 1))

    (found,) = world.play([trace], first_only)
    assert found.times == pytest.approx([2.0, 4.0])


def test_who_never_runs_is_charged() -> None:
    world = SlotWorld([steady()], 2)
    (found,) = world.play(
        [Trace(np.array([0]), np.array([0]), np.array([2.0]))],
        lambda view: np.zeros((len(view.jobs), 2), dtype=np.int64),
    )

    assert found.mean > 5000


def test_traces_side_by_side_are_as_one_by_one() -> None:
    world = SlotWorld(draw_sorts(0), 8)
    traces = [world.draw((seed,), 10) for seed in range(3)]
    together = world.play(traces, all_of_them)

    for trace, found in zip(traces, together, strict=True):
        assert world.play([trace], all_of_them)[0].times == pytest.approx(found.times)


def test_there_is_room_while_there_is_enough_in_all() -> None:
    world = SlotWorld([steady()], 2)
    sorts = np.array([0, 0])

    assert world.fits(sorts, np.array([[2, 2], [2, 2]]))
    assert not world.fits(sorts, np.array([[1, 3], [1, 2]]))
    assert not world.fits(sorts, np.array([[3, 2], [2, 2]]))


def test_a_world_without_nodes_or_sorts_is_refused() -> None:
    for sorts, nodes in (([steady()], 0), ([], 1), ([Sort("", np.ones((2, 2)), 1.0)], 1)):
        with pytest.raises(InvalidSpec):
            SlotWorld(sorts, nodes)
