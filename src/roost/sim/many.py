"""Many runs of one scenario, several at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any, TypeAlias

from roost.sim.results import Results
from roost.sim.scenario import Scenario
from roost.sim.simulation import Simulation

#: A policy with its parameters, and a seed.
Case: TypeAlias = tuple[str, int]
#: Told how far each run is: its number, virtual time, jobs over, jobs in all.
Watcher: TypeAlias = Callable[[int, float, int, int], None]

_POLL_S = 0.2
_FIGURES = 3

_scenario: Scenario
_placer: str
_progress: Any


def run_many(
    scenario: Scenario,
    cases: Sequence[Case],
    placer: str,
    *,
    processes: int | None = None,
    watcher: Watcher | None = None,
) -> list[Results]:
    """Run every case; results come in the order of the cases."""
    processes = min(processes or os.cpu_count() or 1, len(cases))
    if processes == 1:
        return [
            _run(scenario, placer, case, _teller(watcher, number))
            for number, case in enumerate(cases)
        ]
    context = multiprocessing.get_context("spawn")
    progress = context.Array("d", _FIGURES * len(cases), lock=False)
    with ProcessPoolExecutor(processes, context, _begin, (scenario, placer, progress)) as pool:
        futures = [pool.submit(_work, number, case) for number, case in enumerate(cases)]
        for _ in _until_done(futures):
            if watcher is not None:
                for number in range(len(cases)):
                    now, done, total = progress[number * _FIGURES : (number + 1) * _FIGURES]
                    watcher(number, now, int(done), int(total))
        return [future.result() for future in futures]


def _until_done(futures: Sequence[Future[Results]]) -> Iterator[None]:
    """Comes back now and then until all are done, or one has failed; the others are called off."""
    left = set(futures)
    while left:
        done, left = wait(left, _POLL_S, FIRST_COMPLETED)
        if any(future.exception() for future in done):
            for future in left:
                future.cancel()
            return
        yield


def _begin(scenario: Scenario, placer: str, progress: Any) -> None:
    global _scenario, _placer, _progress
    _scenario, _placer, _progress = scenario, placer, progress


def _work(number: int, case: Case) -> Results:
    def tell(now: float, done: int, total: int) -> None:
        _progress[number * _FIGURES : (number + 1) * _FIGURES] = [now, done, total]

    return _run(_scenario, _placer, case, tell)


def _run(
    scenario: Scenario, placer: str, case: Case, tell: Callable[[float, int, int], None] | None
) -> Results:
    policy, seed = case
    return Simulation(scenario.setup(policy, placer, seed)).run(progress=tell)


def _teller(watcher: Watcher | None, number: int) -> Callable[[float, int, int], None] | None:
    if watcher is None:
        return None
    return lambda now, done, total: watcher(number, now, done, total)
