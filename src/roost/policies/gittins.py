"""Gittins index on GPU-seconds held, with the service of finished jobs as the distribution.

Gittins, "Bandit processes and dynamic allocation indices" (1979); used on GPU clusters by Tiresias
(NSDI 2019). The index of a job that has had service a is the best rate at which more service can
be expected to finish it:

    G(a) = max over d of  P(S <= a + d | S > a) / E[min(S - a, d) | S > a]

S is learnt from the jobs that have finished here; until there are enough of them, less attained
service simply goes first. Levels are powers of two, so an index is a short table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roost.core.plan import Plan
from roost.policies.kit.levels import Levels

#: Limits of the levels in GPU-seconds: a minute of one GPU, doubling to two GPU-years.
_LIMITS = [60.0 * 2**k for k in range(21)]
#: With fewer finished jobs than this, nothing is known.
_ENOUGH = 64


@dataclass(frozen=True, slots=True)
class Gittins:
    """Gittins index on attained service, learnt from finished jobs.

    ``upside_down`` puts the smallest index first, as the simulator published with Tiresias does:
    only for comparing figures with it.
    """

    min_run_s: float = 0.0
    upside_down: bool = False

    def __call__(self, plan: Plan) -> None:
        """Learn when the number of finished jobs has doubled, then fill by index."""
        levels: Levels = plan.memo.setdefault(
            "gittins", Levels(list(_LIMITS), [float(n) for n in range(len(_LIMITS) + 1)])
        )
        learnt = plan.memo.get("gittins learnt from", 0)
        if len(plan.history) >= max(_ENOUGH, 2 * learnt):
            plan.memo["gittins learnt from"] = len(plan.history)
            self._learn(plan, levels)
        levels.fill(plan, self.min_run_s)

    def _learn(self, plan: Plan, levels: Levels) -> None:
        sign = 1.0 if self.upside_down else -1.0
        ranks = [sign * index for index in gittins_index(plan.history, levels.limits)]
        plan.waiting.rekey_all(lambda: setattr(levels, "ranks", ranks))
        plan.reconsider()


def gittins_index(service: Sequence[float], limits: Sequence[float]) -> list[float]:
    """The index at the start of each level: nothing yet, then at each limit."""
    samples = np.sort(np.asarray(service, dtype=float))
    indices = []
    for attained in [0.0, *limits]:
        left = samples[np.searchsorted(samples, attained, side="right") :] - attained
        if not left.size:
            indices.append(0.0)
            continue
        # The best d ends where some job does: try them all at once.
        finished = np.arange(1, left.size + 1)
        served = np.cumsum(left) + (left.size - finished) * left
        last = np.append(np.diff(left) > 0, True)  # of jobs that end together
        indices.append(float(np.max(finished[last] / served[last])))
    return indices
