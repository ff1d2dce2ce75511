"""Harmony: jobs share GPUs with those that they disturb least, by a model that is learnt.

After Harmony (Bao, Peng and Wu, INFOCOM 2019), which places jobs by a learned model of their
interference. Here the model is one of pairs (``roost.perf.interference``), fed by what all jobs
measured. Who comes gets an empty GPU; if there is none, the GPU of the partner with whom both are
expected to do most, if that is clearly more than one alone. What came of it is measured, and undone
if it was a mistake; runs move to GPUs that nobody waits for, and together where that makes room
(``kit.pairing``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.perf.interference import Interference, PairSpeed, interference
from roost.policies.fifo import arrival
from roost.policies.kit.introspection import TrialTerms, introspection
from roost.policies.kit.pairing import Pairing

#: What is expected of a partner who may be worth a trial, but probably is not.
_HOPE = 1e-6


@dataclass(frozen=True, slots=True)
class Liking:
    """What a model of pairs makes of jobs on one GPU."""

    model: Interference
    least: float

    def gain(self, job: Job, others: Sequence[Job]) -> float:
        """What is expected; a little where only one standard error more would be enough."""
        if len(others) > 1:
            return self.together([*others, job]) - self.together(others) - self.least
        found = self.model.together(job.application_key, others[0].application_key)
        gain = found.speed - 1.0 - self.least
        return max(gain, _HOPE) if gain + found.error > 0 else gain

    def together(self, jobs: Sequence[Job]) -> float:
        """The sum of the speeds of jobs on one GPU."""
        keys = [job.application_key for job in jobs]
        return sum(
            self.model.beside(key, [*keys[:at], *keys[at + 1 :]]).speed
            for at, key in enumerate(keys)
        )

    def expected(self, job: Job, others: Sequence[Job]) -> PairSpeed:
        """The speed of a job beside others."""
        return self.model.beside(job.application_key, [one.application_key for one in others])


@dataclass(frozen=True, slots=True)
class Harmony:
    """Jobs that may share a GPU do so with partners with whom they go well, as is learnt."""

    trial_s: float = 60.0
    gain: float = 0.05
    most_loss: float = 0.2

    def __post_init__(self) -> None:
        """Refuse trials of nothing, and gains that are none."""
        if not 1 <= self.trial_s < math.inf:
            raise InvalidSpec(f"trial_s must be at least a second, got {self.trial_s}")
        for name in ("gain", "most_loss"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidSpec(f"{name} must be from 0 to 1, got {getattr(self, name)}")

    def __call__(self, plan: Plan) -> None:
        """Judge what was tried, start jobs by arrival, and move those that can do better."""
        self.decide(plan, learnt_pairs(plan))

    def decide(self, plan: Plan, model: Interference) -> None:
        """The same with what is believed of pairs."""
        terms = TrialTerms(self.trial_s, self.most_loss)
        pairing = Pairing.of(plan, introspection(plan), Liking(model, self.gain), terms)
        pairing.introspect()
        pairing.start(arrival)
        if plan.waiting.count:
            pairing.gather()
        else:
            pairing.spread()


def learnt_pairs(plan: Plan) -> Interference:
    """What is believed of pairs by now; made anew when a twentieth more was measured."""
    history = next((job.history for job in plan.jobs.values()), None)
    profiles = {} if history is None else history.profiles
    version = sum(profile.observed.version for profile in profiles.values())
    known: tuple[int, Interference] | None = plan.memo.get("interference")
    if known is None or version < known[0] or version > known[0] * 1.05:
        known = version, interference(profiles)
        plan.memo["interference"] = known
    return known[1]
