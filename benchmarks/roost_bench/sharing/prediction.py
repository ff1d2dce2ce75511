"""How well the speeds of pairs are predicted that were never seen, after some that were."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roost.perf.interference import MeasuredPair, fitted
from roost_bench.sharing.benchmark import KIND, read_table

#: Pairs that were seen; each tells two speeds.
SEEN = (50, 100, 200)
#: The error of a measured speed, and how often each was measured.
_ERROR, _OFTEN = 0.02, 3


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """Errors over all pairs that were not seen: their median, and how many are as expected."""

    pairs_seen: int
    seed: int
    median_error: float
    within_one_error: float


def predictions(data: str, seeds: Sequence[int]) -> list[PredictionRow]:
    """Draw pairs of Gavel's table, and predict the others."""
    truth = {(one, other): speed for one, other, speed in read_table(data).of(KIND) if speed}
    return [_predict(truth, count, seed) for count in SEEN for seed in seeds]


def _predict(truth: dict[tuple[str, str], float], count: int, seed: int) -> PredictionRow:
    chance = random.Random(f"pairs/{seed}")  # noqa: S311 - not for secrets
    drawn = chance.sample(sorted({tuple(sorted(pair)) for pair in truth}), count)
    both = [way for one, other in drawn for way in dict.fromkeys([(one, other), (other, one)])]
    model = fitted(
        [
            MeasuredPair(
                *(("", one), ("", other)),
                truth[one, other] * chance.lognormvariate(0.0, _ERROR),
                _OFTEN,
            )
            for one, other in both
        ]
    )
    off = []
    for (one, other), speed in truth.items():
        if (("", one), ("", other)) not in model.own:
            guess = model.predicted(("", one), ("", other))
            off.append((abs(guess.speed - speed), guess.error))
    return PredictionRow(
        count,
        seed,
        statistics.median(error for error, _ in off),
        statistics.fmean(error <= expected for error, expected in off),
    )
