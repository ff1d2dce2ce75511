"""Runs in fresh processes: one each, as they come, and an end to all of them if one fails."""

from __future__ import annotations

import os

import pytest

from roost.errors import InvalidSpec, Retryable
from roost_bench.subprocesses import in_fresh_processes


def where(number: int) -> tuple[int, int, str | None]:
    return number, os.getpid(), os.environ.get("OMP_NUM_THREADS")


def fail(number: int) -> int:
    if number == 1:
        raise InvalidSpec("number one is wrong")
    return number


def vanish() -> None:
    os._exit(9)


def test_every_call_has_a_process_of_its_own() -> None:
    results = dict(in_fresh_processes(where, [(0,), (1,), (2,)], at_once=2))
    assert {number: told[0] for number, told in results.items()} == {0: 0, 1: 1, 2: 2}
    assert len({pid for _, pid, _ in results.values()} | {os.getpid()}) == 4
    assert all(threads for _, _, threads in results.values())


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(InvalidSpec, match="number one"):
        list(in_fresh_processes(fail, [(0,), (1,), (2,)], at_once=2))


def test_a_process_that_is_killed_is_named() -> None:
    with pytest.raises(Retryable, match="was killed"):
        list(in_fresh_processes(vanish, [()]))
