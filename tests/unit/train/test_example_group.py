"""How workers meet, and what those do who wait: threads here, processes in the other tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from roost.train.example.exchange import PeerLost
from roost.train.example.group import ExampleGroup, Stopped
from roost.train.members import Left, Members, View


class Said(Members):
    """Members that a test changes."""

    def __init__(self, me: str, view: View) -> None:
        super().__init__(None, me, view)

    changeable = True

    def settle(self, view: View) -> None:
        self.version = view.version


def view(version: int, *members: str, lost: frozenset[str] = frozenset()) -> View:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return View(version, probe.getsockname(), members, lost)


class World:
    """Some workers, and what they are told."""

    def __init__(self, start: View, *names: str) -> None:
        self.said = {name: Said(name, start) for name in names or start.members}
        self.stopping = threading.Event()
        self.gangs = {
            name: ExampleGroup(said, self.stopping.is_set) for name, said in self.said.items()
        }
        self._pool = ThreadPoolExecutor(8)

    def tell(self, news: View, *names: str) -> None:
        for name in names or self.said:
            self.said[name]._view = news

    def begin(self, what: Callable[[ExampleGroup], object], *names: str) -> list[Future[object]]:
        return [self._pool.submit(what, self.gangs[name]) for name in names or self.gangs]

    def all(self, what: Callable[[ExampleGroup], object], *names: str) -> list[object]:
        return [future.result(20) for future in self.begin(what, *names)]


def total(gang: ExampleGroup) -> object:
    return gang.total(np.array([float(gang.rank + 1)])).tolist()


def test_they_meet_sum_and_meet_anew_as_others() -> None:
    world = World(view(1, "a", "b"), "a", "b", "c")
    world.all(ExampleGroup.meet, "a", "b")
    waiting = world.begin(ExampleGroup.meet, "c")
    assert world.all(total, "a", "b") == [[3.0], [3.0]]
    world.tell(view(2, "c", "a"))
    world.all(ExampleGroup.meet, "a")
    assert waiting[0].result(20) is None
    assert [(world.gangs[name].rank, world.gangs[name].size) for name in "ca"] == [(0, 2), (1, 2)]
    with pytest.raises(Left):
        world.gangs["b"].meet()
    assert world.all(total, "a", "c") == [[3.0], [3.0]]
    world.all(ExampleGroup.close)


def test_who_waits_at_an_old_meeting_goes_to_the_newest() -> None:
    world = World(view(1, "a", "b", "c"))
    early = world.begin(ExampleGroup.meet, "a", "b")  # c never comes
    world.tell(view(2, "b", "a", lost=frozenset("c")))
    assert [future.result(20) for future in early] == [None, None]
    assert world.all(total, "a", "b") == [[3.0], [3.0]]
    world.all(ExampleGroup.close)


@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_silent_worker_is_waited_for_until_it_is_said_to_be_lost(lost: str) -> None:
    world = World(view(1, "a", "b"))
    world.all(ExampleGroup.meet)
    (other,) = {"a", "b"} - {lost}
    summing = world.begin(total, other)
    with pytest.raises(TimeoutError):
        summing[0].result(0.3)
    world.tell(view(2, other, lost=frozenset(lost)), other)
    with pytest.raises(PeerLost, match="are lost"):
        summing[0].result(20)
    world.gangs[other].await_next(PeerLost("x"))
    world.gangs[other].meet()
    assert world.gangs[other].size == 1
    world.all(ExampleGroup.close)


def test_who_shall_stop_does_not_wait_for_ever() -> None:
    world = World(view(1, "a", "b"), "a", "c")
    meeting = world.begin(ExampleGroup.meet, "a", "c")
    world.stopping.set()
    for future in meeting:
        with pytest.raises(Stopped):
            future.result(20)
    with pytest.raises(Stopped):
        world.gangs["a"].await_next(PeerLost("x"))
