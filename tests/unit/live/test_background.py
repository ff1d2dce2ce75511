"""Work that nobody waits for leaves most of the time to others, and ends with the server."""

from __future__ import annotations

import time

import pytest

from roost.errors import Retryable
from roost.live.background import resting


def test_work_is_a_fifth_of_the_time() -> None:
    rest = resting(lambda: False)
    rest()
    began, worked_s = time.monotonic(), time.thread_time()
    for _ in range(5):
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        rest()
    spent_s = time.thread_time() - worked_s
    assert spent_s >= 0.05
    assert time.monotonic() - began >= 0.05 * 5


def test_it_stops_with_the_server() -> None:
    ends = False
    rest = resting(lambda: ends)
    rest()
    ends = True
    with pytest.raises(Retryable, match="the server is stopping"):
        rest()
