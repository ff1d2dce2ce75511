"""The small round by which the workers agree on what to do at a step boundary.

Every worker sees Roost's wishes at a moment of its own; all must follow them at the same step. A
round takes the largest of each wish over the workers. It runs beside the training: begun at one
boundary, it is read at a later one, the same for all. With short steps a round is made every few
steps only, so that it costs a small part of them; worker 0 chooses how many.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import torch
from roost.train.lines import tell
from roost.train.pytorch.groups import Group

#: How much of the time may go into rounds, unless answers would then take longer than so much.
_PART = 0.0005
_SLOWEST_S = 0.5
_TRIES, _RETRY_S = 50, 0.02
#: How much of the older measurements is kept.
_KEEP = 0.8


@dataclass(frozen=True, slots=True)
class Wishes:
    """What one worker, or all of them, see as wanted."""

    #: The version to train with: the present one, or one that this worker is ready for.
    version: int
    stop: bool
    save: int
    offload: int
    #: The group of that version; None if the worker is not in it.
    offer: Group | None


class Control:
    """Agrees with the other workers, and answers Roost."""

    def __init__(self) -> None:
        self.saved_for = 0
        self.offloaded = 0
        self._round: tuple[Any, torch.Tensor, Wishes] | None = None
        self._due = 0
        self._every = 1
        self._cost_s = 0.0
        self._step_s = 0.0
        self._last: tuple[int, float] | None = None

    def reset(self) -> None:
        """There are other workers to agree with."""
        self._round, self._due, self._every, self._last = None, 0, 1, None

    def due(self, step: int) -> bool:
        """Whether there is a round at this step."""
        return step >= self._due

    def agree(self, group: Group, step: int, wishes: Wishes, began: float) -> Wishes | None:
        """What all follow now, at a step that is due; None if nothing was agreed on.

        ``began`` is when this worker began to look what is wished for, which costs time as well.
        """
        agreed = self._read()
        self._begin(group, wishes)
        self._due = step + self._every
        self._measure(step, began)
        return agreed

    def settle(self) -> None:
        """Wait for the round that is under way; nothing comes of it."""
        if self._round is not None:
            self._round[0].wait()
            self._round = None

    def tell_elastic(self, member: str, *, ready: bool) -> None:
        """Say that the members may be changed, and, for one that joins, that it waits for it."""
        insist(elastic=True, member=member)
        if ready:
            insist(ready=member)

    def tell_over(self, member: str) -> None:
        """Say that the training is over, and that no worker can join it any more."""
        insist(over=True, member=member)

    def tell_saved(self, counter: int) -> None:
        """Say that the checkpoint that was asked for is on disk."""
        insist(saved_for=counter)

    def tell_offloaded(self, member: str, counter: int) -> None:
        """Say that a member left its GPU, or entered it again."""
        insist(offloaded=counter, member=member)

    def _begin(self, group: Group, wishes: Wishes) -> None:
        every = self._choice() if group.rank == 0 else 0
        values = torch.tensor(
            [
                wishes.version,
                -wishes.version,
                int(wishes.stop),
                wishes.save,
                wishes.offload,
                every,
            ]
        )
        self._round = (group.start_round(values), values, wishes)

    def _read(self) -> Wishes | None:
        if self._round is None:
            return None
        work, values, mine = self._round
        self._round = None
        work.wait()
        version, lowest, stop, save, offload, every = values.tolist()
        self._every = max(1, every)
        # Members change when all are ready for the same version, and not before.
        agreed = version if version == -lowest else 0
        offer = mine.offer if agreed == mine.version else None
        return Wishes(agreed, bool(stop), save, offload, offer)

    def _choice(self) -> int:
        if not self._step_s:
            return 1
        cheap, quick = self._cost_s / (_PART * self._step_s), _SLOWEST_S / self._step_s
        return max(1, round(min(cheap, quick)))

    def _measure(self, step: int, began: float) -> None:
        now = time.perf_counter()
        if self._last is not None and step > self._last[0]:
            step_s = (began - self._last[1]) / (step - self._last[0])
            self._step_s = _mixed(self._step_s, step_s)
            self._cost_s = _mixed(self._cost_s, now - began)
        self._last = (step, now)


def insist(**fields: object) -> None:
    """Tell Roost something that it waits for: try again for a while when the pipe is full."""
    for _ in range(_TRIES):
        if tell(**fields) or not os.environ.get("ROOST_PROGRESS"):
            return
        time.sleep(_RETRY_S)


def _mixed(old: float, new: float) -> float:
    return new if not old else _KEEP * old + (1.0 - _KEEP) * new
