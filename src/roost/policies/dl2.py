"""DL2: sizes by what a small network has learnt, decided anew in every slot.

Peng et al., "DL2: a deep learning-driven scheduler for deep learning clusters" (IEEE TPDS 2021),
let a network that sees all jobs add a worker, a server or both to one of them, again and again.
Here one small network is shared by all jobs, whatever their number and order. It sees either of:

- ``inputs=own``: what DL2 sees, and no model of speed: the sort of job, its age, the part of it
  that is left, its share, workers and servers. Each job walks from its least to the size it wishes;
  where there is no room for all, the steps with the best scores come first. A sort is known by the
  name of its application; a network is as good as the sorts it was trained on.
- ``inputs=estimates``: Roost's estimates of speed and of the work left. The network says how much
  more or less each job counts than under the rule of ``lookahead``, and leaps do the rest. It knows
  no sorts, so that it decides about new ones as about others.

``roost learn dl2`` trains networks; two small ones ship with Roost. Nothing is drawn by chance
here. With estimates changes pay as in ``lookahead``. Without, a run changes after it has run for
``_PATIENCE`` times its restart, so that restarts take a small part of its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from roost.core.plan import Plan
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.policies.kit.costs import restart_s
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.gains import (
    Apportioned,
    Demand,
    Size,
    add,
    apportion_in,
    dominant,
)
from roost.policies.kit.parameter_servers.leaps import LogSpeed, LogSpeeds, in_turn, weighed
from roost.policies.kit.parameter_servers.learned import (
    NAMES,
    Inputs,
    Outlooks,
    Walked,
    Walkers,
    places,
    walk,
    weights,
)
from roost.policies.kit.parameter_servers.losses import without_losses
from roost.policies.kit.parameter_servers.outlook import Outlook
from roost.policies.kit.parameter_servers.sized_slots import Cadence, Sized, SizedSlots
from roost.policies.lookahead import choose

#: The networks that ship with Roost, by their inputs.
SHIPPED: Final = Path(__file__).parent / "weights"
_DEFAULT = "default"
#: A run without a model of speed changes after so many times its restart.
_PATIENCE = 20.0
#: The rule that a network with estimates corrects.
_POWER = 0.6


@dataclass(slots=True)
class _Notes:
    """What is remembered between decisions."""

    network: Network
    sized: SizedSlots
    speeds: LogSpeeds = field(default_factory=LogSpeeds)


@dataclass(frozen=True, slots=True)
class Dl2:
    """Sizes by a small network that was trained on mean completion time; decided in every slot."""

    resizes: ClassVar[bool] = True

    inputs: str = "estimates"
    weights: str = _DEFAULT
    slot_s: float = 600.0
    per_hour: int = 3
    probe_s: float = 180.0
    placed: bool = True
    speed_error: float = 0.0
    epochs_error: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown inputs, weights made for others, and slots without length."""
        if self.inputs not in list(Inputs):
            raise InvalidSpec(f"inputs must be {' or '.join(Inputs)}, got {self.inputs!r}")
        if not self.slot_s >= 1 or self.per_hour < 0 or not self.probe_s >= 0:
            raise InvalidSpec(f"slots last a second at least: {self}")
        if not 0 <= self.speed_error <= 1 or not 0 <= self.epochs_error <= 1:
            raise InvalidSpec(f"errors are parts of 1, got {self}")
        self._network()

    def __call__(self, plan: Plan) -> None:
        """Decide at the beginning of a slot; in between, do what could not be done yet."""
        notes = plan.memo.get("dl2")
        if not isinstance(notes, _Notes):
            outlook = Outlook(
                speed_error=self.speed_error, epochs_error=self.epochs_error, seed=self.seed
            )
            outlook.fits.placed = self.placed
            notes = plan.memo["dl2"] = _Notes(self._network(), SizedSlots(outlook))
        network, speeds = notes.network, notes.speeds
        if self.inputs == Inputs.OWN:
            cadence = Cadence(self.slot_s, self.per_hour, 0.0)
            notes.sized.decide(plan, cadence, lambda sized: self._walk(sized, network))
        else:
            cadence = Cadence(self.slot_s, self.per_hour, self.probe_s)
            notes.sized.decide(plan, cadence, lambda sized: self._leap(sized, network, speeds))

    def _network(self) -> Network:
        shipped = SHIPPED / f"dl2-{self.inputs}.json"
        path = shipped if self.weights == _DEFAULT else Path(self.weights)
        return Network.read(path, self.inputs, NAMES[Inputs(self.inputs)])

    # -- with estimates --------------------------------------------------------------------------

    def _leap(self, sized: Sized, network: Network, speeds: LogSpeeds) -> list[Size | None]:
        known = [speeds.of(demand.gains) for demand in sized.demands]
        counts = weights(network, self._outlooks(sized, known), _POWER)
        return choose(sized, weighed(sized, known, counts))

    def _outlooks(self, sized: Sized, known: Sequence[LogSpeed]) -> Outlooks:
        demands = sized.demands
        left = [demand.work * one.best for demand, one in zip(demands, known, strict=True)]
        gain = [
            demand.gains.times[0][0] / one.best for demand, one in zip(demands, known, strict=True)
        ]
        part = [
            dominant(demand.takes(_sum(demand.least, one.more)), sized.capacity)
            for demand, one in zip(demands, known, strict=True)
        ]
        age = [sized.plan.now - job.submitted_at for job in sized.jobs]
        return Outlooks(
            np.array(left) / self.slot_s,
            np.array(age) / self.slot_s,
            np.array(gain),
            np.array(part),
        )

    # -- without a model of speed ----------------------------------------------------------------

    def _walk(self, sized: Sized, network: Network) -> list[Size | None]:
        demands = sized.demands
        least = np.array([demand.least for demand in demands], dtype=np.int64).reshape(-1, 2)
        most = np.array([demand.most for demand in demands], dtype=np.int64).reshape(-1, 2)
        steps = int((most - least).sum(axis=1).max(initial=0))
        walks = walk(network, self._walkers(sized, network), least, most, steps)
        bid = [
            replace(
                demand,
                gains=Walked((), walks=walks, job=at, least=demand.least),
                work=1.0,
            )
            for at, demand in enumerate(demands)
        ]
        first = walks.scores[0].tolist() if len(walks.scores) else [0.0] * len(demands)
        order = in_turn(sized, first)

        def deal(offers: Sequence[Demand]) -> Apportioned:
            return apportion_in(order, offers, sized.capacity, grow=sized.grow)

        return without_losses(sized.runs, bid, deal, lambda at, size, _: _may_pay(sized, at, size))

    def _walkers(self, sized: Sized, network: Network) -> Walkers:
        now, capacity, demands = sized.plan.now, sized.capacity, sized.demands
        jobs = sized.jobs
        least = [dominant(add(demand.worker, demand.server), capacity) for demand in demands]
        return Walkers(
            places([job.spec.application for job in jobs], network),
            np.array([now - job.submitted_at for job in jobs]) / self.slot_s,
            np.array(
                [
                    demand.work / (demand.work + _done(job, now))
                    for job, demand in zip(jobs, demands, strict=True)
                ]
            ),
            np.array([dominant(demand.worker, capacity) for demand in demands]),
            np.array([dominant(demand.server, capacity) for demand in demands]),
            len(jobs) * np.array(least),
        )


def _sum(one: Size, other: Size) -> Size:
    return Size(one.servers + other.servers, one.workers + other.workers)


def _done(job: Job, now: float) -> float:
    """Work that a job has behind it."""
    return max(0.0, job.run.done(now) if job.run is not None else job.saved_s)


def _may_pay(sized: Sized, at: int, size: Size) -> bool:
    """Whether a run has run for long enough since its last restart, or others need its room."""
    run = sized.runs[at]
    if not sized.grow:
        return sized.given_up(at, size) > 0
    if run.started_at is None:
        return False
    since = max(run.started_at, run.changed_at)
    return sized.plan.now - since >= _PATIENCE * restart_s(run.job)
