"""Why a job is where it is: one cause token, and a sentence that a person can act on."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from roost.core.spec import JobId


class Cause(IntEnum):
    """What a waiting job lacks. The order is that of ``waits`` in a job's record."""

    QUOTA = 0  # its queue is at its limit
    FRAGMENTATION = 1  # enough is free, but in the wrong places
    CAPACITY = 2  # not enough is free
    TURN = 3  # it would fit, but others go first

    @property
    def token(self) -> str:
        """The word users see."""
        return _TOKENS[self]


_TOKENS = {
    Cause.QUOTA: "over-quota",
    Cause.FRAGMENTATION: "fragmentation",
    Cause.CAPACITY: "no-capacity",
    Cause.TURN: "not-its-turn",
}


#: What is said of a line when the policy has nothing to add.
LACK = {
    Cause.QUOTA: "its queue is at its limit; it asks for {gpus} GPUs more",
    Cause.FRAGMENTATION: "{gpus} GPUs are free, but not where such a gang fits with all it needs",
    Cause.CAPACITY: "fewer than {gpus} GPUs are free",
    Cause.TURN: "{gpus} GPUs would be free for it, but others go first",
}


class Reason(NamedTuple):
    """Why a job waits; ``starts_at`` is until when at the latest, where that was promised."""

    cause: Cause
    text: str
    starts_at: float | None = None


class Explanation(NamedTuple):
    """A reason with the jobs that go first, nearest to the front first."""

    reason: Reason
    ahead: tuple[JobId, ...]
