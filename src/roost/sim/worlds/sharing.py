"""A world in which runs that share a GPU tell how long their steps take, alone and beside others.

As a live job does, a run measures its steps soon after its pace has changed and then ever more
rarely. Each measurement is a little off; it is the same in every simulation of these jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from roost.core.allocation import WORKER
from roost.core.events import Event, Measured
from roost.core.spec import WHOLE, JobId, RunId
from roost.perf.speed import SpeedModel
from roost.sim.worlds.rates import TrueJob, TrueRun, World

#: Seconds between the first measurements at a pace, and how many there are before they get rarer.
_EVERY_S, _OFTEN = 20.0, 3
#: The spread of the log-normal error of a measurement.
_ERROR = 0.02


class SharingWorld(World):
    """The world of rates, with measurements of what runs do to each other on their GPUs."""

    def __init__(self, jobs: Mapping[JobId, TrueJob], speed: SpeedModel) -> None:
        super().__init__(jobs, speed)
        #: The next measurement of each run, and how many there were at its present pace.
        self._next: dict[RunId, tuple[Measured, int]] = {}
        self._chance: dict[RunId, Random] = {}

    def _expect(self, run: TrueRun, now: float) -> None:
        super()._expect(run, now)
        if any(part.share_milli < WHOLE for part in run.allocation.parts):
            self._measure_later(run, now, 0)

    def _halt(self, run: TrueRun, now: float) -> None:
        self._next.pop(run.id, None)
        super()._halt(run, now)

    def _happen(self, event: Event, events: list[Event]) -> None:
        if not isinstance(event, Measured):
            super()._happen(event, events)
            return
        seen, looks = self._next.get(event.run, (None, 0))
        if seen is event:  # else its pace has changed since
            events.append(event)
            self._measure_later(self.runs[event.run], event.time, looks + 1)

    def _measure_later(self, run: TrueRun, now: float, looks: int) -> None:
        """Measure the steps of a run after a while, unless its pace changes before."""
        main = [part for part in run.allocation.parts if part.role == WORKER]
        kinds = sorted({self.nodes[part.node].kind for part in main})
        beside = (other.job.trace for other in self.neighbours(run))
        seen = Measured(
            now + _EVERY_S * 2 ** max(0, looks - _OFTEN + 1),
            run.id,
            run.allocation.workers,
            self._error(run.id) / run.rate,
            kind=f"{'+'.join(kinds)}:{main[0].share_milli / WHOLE:g}",
            nodes=len({part.node for part in main}),
            beside=tuple(sorted((one.spec.user, one.spec.application or one.id) for one in beside)),
        )
        self._next[run.id] = seen, looks
        self.schedule(seen)

    def _error(self, run: RunId) -> float:
        chance = self._chance.get(run)
        if chance is None:
            chance = self._chance[run] = Random(f"measured/{run}")  # noqa: S311 - not for secrets
        return chance.lognormvariate(0.0, _ERROR)
