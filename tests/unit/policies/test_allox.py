"""AlloX: matchings against brute force, and who starts where."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.oracles.played import job, play
from tests.unit.policies.test_gavel import TWO_KINDS, Table, rated, start

from roost.core import Submitted, Suspend
from roost.errors import InvalidSpec
from roost.perf.arrays import Reals
from roost.policies.allox import AlloX, Slot, match
from roost.testing.builders import core_with, node, queue, spec
from roost.testing.builders import job as name


def total(times: Reals, slots: list[Slot], found: list[tuple[int, int]]) -> float:
    """The sum of completion times when each line is served from its last place to its first."""
    summed = 0.0
    for at, slot in enumerate(slots):
        now = slot.ready_s
        line = sorted((-place, row) for row, (own, place) in enumerate(found) if own == at)
        for _, row in line:
            now += times[row, slot.kind]
            summed += now
    return summed


@pytest.mark.parametrize("seed", range(8))
def test_a_matching_has_the_least_sum_of_completion_times(seed: int) -> None:
    chance = np.random.default_rng(seed)
    times = chance.uniform(1, 50, (5, 2))
    slots = [Slot(0, 0.0), Slot(1, 0.0), Slot(1, float(chance.uniform(0, 20)))]
    found = match(times, np.ones(5), slots)
    best = math.inf
    for lines in itertools.product(range(3), repeat=5):
        for order in itertools.permutations(range(5)):
            places = {row: at for at, row in enumerate(order)}
            best = min(best, total(times, slots, [(lines[r], places[r]) for r in range(5)]))
    assert total(times, slots, found) == pytest.approx(best)


def test_short_jobs_go_first() -> None:
    jobs = (job("long", 0, 1000), job("short", 0, 10), job("middle", 0, 100))
    played = play(AlloX(alpha=1.0), *jobs, nodes=[node("n0", 1)])
    assert [played.times[one][0] for one in ("short", "middle", "long")] == [0, 10, 110]


def test_a_job_waits_for_the_fast_gpu_where_that_is_sooner() -> None:
    # 100 s after 10 is sooner than 1000 s now.
    played = play(
        AlloX(),
        rated(job("a", 0, 10), new=1, old=0.01),
        rated(job("b", 1, 100), new=1, old=0.1),
        nodes=TWO_KINDS,
        speed=Table(),
    )
    assert played.times["b"] == (10, 110)


def test_each_job_goes_where_it_gains_most() -> None:
    played = play(
        AlloX(),
        rated(job("a", 0, 1000), new=2, old=1.9),
        rated(job("b", 0, 1000), new=4, old=0.5),
        nodes=TWO_KINDS,
        speed=Table(),
    )
    assert played.times["b"][1] == 250
    assert played.times["a"][1] == pytest.approx(1000 / 1.9)


def test_nobody_is_stopped() -> None:
    jobs = (job("long", 0, 1000), *(job(f"s{at}", 5.0 * at, 10) for at in range(1, 9)))
    played = play(AlloX(), *jobs, nodes=[node("n0", 1)])
    assert played.times["long"] == (0, 1000)
    assert not [one for one in played.diary.actions if isinstance(one, Suspend)]


def test_a_gang_whose_turn_it_is_is_not_passed_by_for_ever() -> None:
    # Single jobs keep coming; with the oldest alone in view the gang is the next to be served.
    singles = [job(f"s{at}", 50.0 * at, 100) for at in range(40)]
    played = play(
        AlloX(alpha=0.01), job("gang", 110, 100, workers=2), *singles, nodes=[node("n0", 2)]
    )
    assert start(played, "gang") < 1000


def test_queues_that_hold_least_come_first() -> None:
    played = play(
        AlloX(alpha=0.2),
        *(job(f"r{at}", 0, 300, queue="red") for at in range(4)),
        *(job(f"b{at}", 1, 300, queue="blue") for at in range(2)),
        nodes=[node("n0", 2)],
        queues=(queue("red"), queue("blue")),
    )
    assert {played.times["b0"][0], played.times["b1"][0]} <= {300, 600}


def test_parts_of_gpus_are_no_place_in_line() -> None:
    core = core_with(AlloX(), node("n0", 1))
    core.handle(Submitted(0.0, name("half"), spec(0.5)), Submitted(0.0, name("whole"), spec(1)))
    assert core.job(name("half")).run is not None
    assert core.job(name("whole")).waiting
    assert match(np.ones((2, 1)), np.ones(2), []) == [(-1, 0), (-1, 0)]


def test_a_fraction_of_nobody_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="above 0"):
        AlloX(alpha=0.0)
