"""Runs functions in fresh processes, so that no run profits from the memory of another.

The numerical libraries get one thread in each of them: on small problems more threads only wait
for each other, and the time that a run takes would depend on what else the machine does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from roost.errors import Retryable
from roost.sim.parallel import workers

T = TypeVar("T")

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def in_fresh_processes(
    function: Callable[..., T], cases: Sequence[tuple[Any, ...]], *, at_once: int = 1
) -> Iterator[tuple[int, T]]:
    """Call ``function(*case)`` for every case; results come as they are ready, with their numbers.

    Raises what a call raised, or Retryable if its process was killed; the others are ended then.
    """
    under_way: dict[Future[T], tuple[int, ExitStack]] = {}
    left = list(enumerate(cases))
    with ExitStack() as all_of_them, _one_thread_each():
        while left or under_way:
            while left and len(under_way) < at_once:
                number, case = left.pop(0)
                own = all_of_them.enter_context(ExitStack())
                future = own.enter_context(workers(1))(function, *case)
                under_way[future] = number, own
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                number, own = under_way.pop(future)
                result = _result(future, cases[number])
                own.close()
                yield number, result


def _result(future: Future[T], case: tuple[Any, ...]) -> T:
    try:
        return future.result()
    except BrokenProcessPool:
        named = ", ".join(map(str, case))
        raise Retryable(
            f"the process of {named} was killed, for want of memory perhaps", after=0.0
        ) from None


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that start meanwhile use one thread, unless the environment says more."""
    added = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
