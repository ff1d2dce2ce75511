"""Many runs of one scenario, several at a time, each in a process of its own.

The processes end when this one does, however it ends, and leave Ctrl-C to it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeAlias, TypeVar

from roost.errors import Retryable
from roost.sim.results import Results
from roost.sim.scenario import Scenario
from roost.sim.simulation import Simulation

P = ParamSpec("P")
T = TypeVar("T")

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
    """Run every case; results come in the order of the cases.

    Raises Retryable if a process is killed, for want of memory perhaps.
    """
    processes = min(processes or _cores(), len(cases))
    if processes <= 1:
        return [
            _run(scenario, placer, case, _teller(watcher, number))
            for number, case in enumerate(cases)
        ]
    # Spawned: a fork would copy locks that other threads (numpy's) hold at that moment.
    context = multiprocessing.get_context("spawn")
    # No lock: each process writes its own figures, and one that is killed could not free it.
    progress = context.Array("d", _FIGURES * len(cases), lock=False)
    figures = [slice(at, at + _FIGURES) for at in range(0, len(progress), _FIGURES)]
    try:
        with workers(processes, _begin, scenario, placer, progress) as submit:
            futures = [submit(_work, number, case) for number, case in enumerate(cases)]
            for _ in _until_done(futures):
                if watcher is not None:
                    for number, own in enumerate(figures):
                        now, done, total = progress[own]
                        watcher(number, now, int(done), int(total))
            return [future.result() for future in futures]
    except BrokenProcessPool:
        under_way = [
            f"{policy!r} with seed {seed}"
            for (policy, seed), own in zip(cases, figures, strict=True)
            if _under_way(*progress[own])
        ]
        raise Retryable(
            f"a worker process was killed, for want of memory perhaps; "
            f"under way: {', '.join(under_way) or 'nothing yet'}",
            after=0.0,
        ) from None


@contextmanager
def workers(
    count: int, begin: Callable[..., None] | None = None, *args: object
) -> Iterator[Callable[..., Future[Any]]]:
    """Processes that begin with ``begin(*args)``; gives the function that submits work to them.

    Leaving because of an error kills them.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, _join, (begin, args)) as pool:

        def submit(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
            with _undisturbed():  # processes are spawned in here
                return pool.submit(function, *args, **kwargs)

        try:
            yield submit
        except BaseException:
            # Killed, or leaving the pool would wait for runs that take minutes.
            for process in set(multiprocessing.active_children()) - before:
                process.kill()
            raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put signals off, and keep Ctrl-C from processes that are spawned meanwhile.

    Those inherit what is blocked. That alone does not put signals off here: another thread (numpy
    has some) may get them, and Python then interrupts the main thread all the same.
    """
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):
                handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def _join(begin: Callable[..., None] | None, args: Sequence[object]) -> None:
    """The first thing that a process does."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if begin is not None:
        begin(*args)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        # Not sys.exit, which would end this thread alone.
        os._exit(1)


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _until_done(futures: Sequence[Future[Results]]) -> Iterator[None]:
    """Comes back now and then until all are done; raises what the first to fail raised."""
    left = set(futures)
    while left:
        done, left = wait(left, _POLL_S, FIRST_COMPLETED)
        for future in done:
            future.result()
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
    simulation = Simulation(scenario.setup(policy, placer, seed))
    if tell is not None:
        tell(0.0, 0, len(simulation.jobs))
    return simulation.run(progress=tell)


def _under_way(_now: float, done: float, total: float) -> bool:
    return done < total


def _teller(watcher: Watcher | None, number: int) -> Callable[[float, int, int], None] | None:
    if watcher is None:
        return None
    return lambda now, done, total: watcher(number, now, done, total)
