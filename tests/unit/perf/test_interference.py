"""The model of pairs: on made-up truth, on what cannot be, and on the table of Gavel."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
from pathlib import Path

import pytest

from roost.core.events import Measured
from roost.core.history import Profile
from roost.core.spec import JobId, RunId
from roost.perf.interference import Interference, MeasuredPair, fitted, interference
from roost.traces.pairs import read_pairs

DATA = Path(os.environ.get("ROOST_DATA", "/nowhere")) / "gavel" / "throughputs.json"
Truth = dict[tuple[str, str], float]


def rank_one(many: int, seed: int) -> Truth:
    """Speeds that go exactly by a_i b_j."""
    chance = random.Random(seed)
    a = [chance.lognormvariate(-0.5, 0.5) for _ in range(many)]
    b = [chance.lognormvariate(-0.5, 0.5) for _ in range(many)]
    return {
        (str(i), str(j)): math.exp(-a[i] * b[j]) for i in range(many) for j in range(many) if i != j
    }


def seen(truth: Truth, count: int, seed: int, error: float = 0.02) -> list[MeasuredPair]:
    """Both speeds of so many pairs, a little off."""
    chance = random.Random(seed)
    pairs = chance.sample(sorted((i, j) for i, j in truth if i <= j), count)
    both = [key for i, j in pairs for key in dict.fromkeys([(i, j), (j, i)])]
    return [
        MeasuredPair(("", i), ("", j), truth[i, j] * chance.lognormvariate(0.0, error), 3)
        for i, j in both
    ]


def unseen_errors(model: Interference, truth: Truth) -> list[float]:
    return [
        abs(model.predicted(("", i), ("", j)).speed - speed)
        for (i, j), speed in truth.items()
        if (("", i), ("", j)) not in model.own
    ]


def test_pairs_that_were_never_seen_follow_from_those_that_were() -> None:
    truth = rank_one(12, seed=1)

    few, many = (fitted(seen(truth, count, seed=2)) for count in (6, 40))

    assert statistics.median(unseen_errors(many, truth)) < 0.04
    assert statistics.median(unseen_errors(few, truth)) > 0.04, "it is no table that fits anyhow"


def test_an_error_says_how_far_off_a_prediction_may_be() -> None:
    model = fitted(seen(rank_one(12, seed=1), 40, seed=2))
    known, new = model.predicted(("", "0"), ("", "1")), model.predicted(("", "x"), ("", "y"))

    assert new.error > known.error > 0
    assert model.pair(("", "x"), ("", "y")) == new


def test_a_pair_that_was_seen_counts_by_itself() -> None:
    truth = rank_one(8, seed=3)
    odd = MeasuredPair(("", "0"), ("", "1"), 0.99 if truth["0", "1"] < 0.6 else 0.1, 16)
    model = fitted([*seen(truth, 20, seed=4), odd])

    assert model.pair(odd.of, odd.beside).speed == pytest.approx(odd.speed, abs=0.03)
    assert model.pair(odd.of, odd.beside).error < 0.02


def test_inventions_spoil_no_more_than_the_figures_of_the_one_that_invents() -> None:
    truth = rank_one(10, seed=5)
    honest = seen(truth, 30, seed=6)
    invented = [
        MeasuredPair(("mallory", "x"), ("", str(i)), speed, 10**6)
        for i in range(10)
        for speed in (1e-300, 1e300)
    ]
    nothing = [
        MeasuredPair(("", "0"), ("", "1"), speed, 5) for speed in (math.nan, math.inf, 0.0, -1.0)
    ]
    before, after = fitted(honest), fitted([*honest, *invented, *nothing])

    assert statistics.median(unseen_errors(after, truth)) < 0.05
    assert all(abs(after.pair(*key).speed - before.pair(*key).speed) < 0.1 for key in before.own)
    assert 0 < after.pair(("mallory", "x"), ("", "3")).speed <= 1


def test_several_neighbours_multiply() -> None:
    model = fitted(seen(rank_one(6, seed=7), 10, seed=8))
    one, other = model.pair(("", "0"), ("", "1")), model.pair(("", "0"), ("", "2"))

    both = model.beside(("", "0"), [("", "1"), ("", "2")])

    assert both.speed == pytest.approx(one.speed * other.speed)
    assert both.error > one.error * other.speed
    assert model.beside(("", "0"), []) == (1.0, 0.0)


def test_an_application_that_uses_more_is_expected_to_be_heavier() -> None:
    chance = random.Random(9)
    busy = {("", str(i)): chance.random() for i in range(30)}
    told = [
        MeasuredPair(i, j, math.exp(-0.2 - 0.6 * busy[i] * busy[j]), 3)
        for i in busy
        for j in busy
        if i < j and chance.random() < 0.4
    ]
    features = {name: (part - 0.5, 0.0) for name, part in busy.items()}
    features |= {("", "light"): (-0.5, 0.0), ("", "heavy"): (0.5, 0.0)}

    model = fitted(told, features)

    light, heavy = (model.together(("", "0"), ("", name)).speed for name in ("light", "heavy"))
    assert light > heavy + 0.1


def test_it_is_fed_by_what_runs_measured_alone_and_beside_others() -> None:
    run = RunId(JobId("a"), 1)
    profile = Profile(memory_mib=8192)
    profile.busy.add(0.9)
    for step_s, beside in ((0.1, ()), (0.2, (("", "b"),)), (0.4, (("", "b"), ("", "c")))):
        told = Measured(1.0, run, 1, step_s, kind="gpu:0.5", beside=beside)
        profile.observed.add(told)
    profile.observed.add(Measured(1.0, run, 1, 0.3, kind="other", beside=(("", "b"),)))

    model = interference({("", "a"): profile})

    assert model.own.keys() == {(("", "a"), ("", "b"))}, "alone and beside one, in one setting"
    assert model.own[("", "a"), ("", "b")].speed == 0.5
    assert model.features == {("", "a"): (0.4, 0.0)}


@pytest.mark.skipif(not DATA.is_file(), reason="needs ROOST_DATA with gavel/throughputs.json")
def test_after_a_hundred_pairs_of_gavels_table_the_others_are_known_to_a_tenth() -> None:
    table = read_pairs(DATA)
    truth = {(one, other): speed for one, other, speed in table.of("v100") if speed}
    errors = [
        statistics.median(unseen_errors(fitted(seen(truth, 100, seed)), truth)) for seed in range(8)
    ]

    assert statistics.fmean(errors) <= 0.10, json.dumps(errors)
