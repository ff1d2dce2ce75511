"""The workers that train together, and how they become others while the training goes on.

Each worker goes to the meeting of the newest version that it sees. One that waits for a version
that is no longer the newest leaves for the next one, so that all living workers end up together,
however fast the versions follow one another. What they do when they have met, such as which
state they take, is left to the training.
"""

from __future__ import annotations

from collections.abc import Callable

from roost.train.example.exchange import (
    Exchange,
    ExchangePlace,
    PeerLost,
    SingleWorker,
    Vector,
    join,
)
from roost.train.members import Left, Members, View, tell

#: How long workers that lost another one wait to be told how to go on without it.
_WAIT_FOR_NEXT_S = 120.0
#: How often a new worker says again that it is there: a line may have been lost.
_SAY_AGAIN_S = 1.0
#: How many times a worker that shall stop still looks whether the others come, to stop together.
_LAST_LOOKS = 10


class Stopped(Exception):
    """This worker was asked to stop while it had no other to agree with."""


class _Outdated(Exception):
    """There is a newer version to meet for."""


class ExampleGroup:
    """The workers that train together now, as one of them sees it; sums are over all."""

    def __init__(self, members: Members, stopping: Callable[[], bool]) -> None:
        self.me = members.me
        self.view: View = members.look()
        self.rank, self.size = 0, 1
        self._members = members
        self._stopping = stopping
        self._exchange: Exchange = SingleWorker()
        self._meeting = False
        self._looks_left = _LAST_LOOKS
        self._was_in = False

    @property
    def changeable(self) -> bool:
        """Whether it may change at all."""
        return self._members.changeable

    @property
    def wanted(self) -> View:
        """How it shall be; to be agreed upon before any worker leaves for it."""
        return self._members.look()

    def total(self, vector: Vector) -> Vector:
        """The sum over all; raises PeerLost if a worker is lost."""
        return self._exchange.total(vector)

    def meet(self) -> None:
        """Leave those of now, and meet those of the newest version.

        Raises Left if this worker is not among them; one that never was waits until it is.
        """
        self.close()
        self._meeting, self._looks_left = True, _LAST_LOOKS
        while not self._met(self._members.look()):
            pass
        self._meeting = False

    def await_next(self, lost: PeerLost) -> None:
        """Wait to be told which workers go on; raises ``lost`` if that does not come."""
        if not self.changeable and not self._stopping():
            raise lost
        self.close()
        if self._members.wait_beyond(self.view.version, _WAIT_FOR_NEXT_S, self._stopping) is None:
            if self._stopping():
                raise Stopped
            raise lost

    def close(self) -> None:
        """Let go of the others: workers that still wait for this one learn that it left."""
        self._exchange.close()
        self._exchange = SingleWorker()

    def _met(self, view: View) -> bool:
        rank = view.rank(self.me)
        if rank is None:
            self._wait_to_be_in()
            return False
        self._was_in = True
        self.view = view
        try:
            self._exchange = join(self._where(view, rank))
        except _Outdated:
            return False
        self.rank, self.size = rank, view.size
        self._members.settle(view)
        return True

    def _where(self, view: View, rank: int) -> ExchangePlace:
        meeting = ExchangePlace(view.address, rank, view.size, view.version, watch=self._watch)
        if self.changeable:  # then another worker watches over the meeting
            meeting.patience_s = None
        return meeting

    def _wait_to_be_in(self) -> None:
        if self._was_in:
            raise Left
        while (view := self._members.look()).rank(self.me) is None:
            tell(ready=self.me)
            self._members.wait_beyond(view.version, _SAY_AGAIN_S, self._stopping)
            if self._stopping():
                raise Stopped

    def _watch(self) -> None:
        """Called while waiting for others, at a meeting or in the midst of a sum."""
        wanted = self._members.look()
        newer = wanted.version > self.view.version
        if not self._meeting:
            if newer and wanted.lost.intersection(self.view.members):
                raise PeerLost(f"workers {sorted(wanted.lost)} are lost")
            return
        if newer:
            raise _Outdated
        if self._stopping():
            self._looks_left -= 1
            if self._looks_left < 0:
                raise Stopped
