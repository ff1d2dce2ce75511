"""What a PyTorch training tells Roost as it goes: progress, step time, memory, noise."""

from __future__ import annotations

from typing import Any

import torch

from roost.train import memory
from roost.train.control import insist
from roost.train.groups import Group
from roost.train.state import Training

_EVERY_S = 0.5
#: How much of the older step times is kept.
_KEEP = 0.9


class Reporter:
    """Measures the steps, and tells now and then."""

    def __init__(self, training: Training, device: torch.device) -> None:
        self._training, self._device = training, device
        self.loss: torch.Tensor | None = None
        self.predicted_mib: int | None = None
        self.step_s: float | None = None
        self._last: float | None = None
        self._told = 0.0
        self._checked = False

    def first(self, batch: Any, workers: int) -> None:
        """Predict the memory of the first step; raises TooLarge if the share cannot hold it."""
        if self._checked:
            return
        self._checked = True
        model, optimizer = self._training.model, self._training.optimizer
        found = memory.predict(model, optimizer, batch, workers=workers)
        self.predicted_mib = found.mib
        found.check(memory.limit_mib())

    def stepped(self, now: float, group: Group, saved: int | None) -> None:
        """A step was taken."""
        if self._last is not None:
            took = now - self._last
            self.step_s = took if self.step_s is None else _mixed(self.step_s, took)
        self._last = now
        if now - self._told >= _EVERY_S:
            self._told = now
            self.tell(group, saved)

    def joined(self, group: Group, me: str, pause_s: float) -> None:
        """The members changed, and train together."""
        self._last = self.step_s = None
        if group.rank == 0:
            insist(joined=group.version, member=me, world=group.size, pause_s=round(pause_s, 6))

    def tell(self, group: Group, saved: int | None) -> None:
        """Tell how far it is; waits for the loss to be known."""
        if group.rank:
            return
        from roost import train  # noqa: PLC0415 - the package imports this module when asked

        step, sampler = self._training.step, self._training.sampler
        train.report(
            step,
            step + self._training.left,
            None if self.loss is None else float(self.loss),
            saved,
            step_s=self.step_s,
            batch=sampler.batch,
            memory_mib=memory.seen_mib(self._device),
            predicted_mib=self.predicted_mib,
            noise=self._training.statistics.noise,
            world=group.size,
        )


def _mixed(old: float, new: float) -> float:
    return _KEEP * old + (1.0 - _KEEP) * new
