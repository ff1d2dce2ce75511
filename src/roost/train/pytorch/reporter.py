"""What a PyTorch training tells Roost as it goes: progress, step times, memory, noise."""

from __future__ import annotations

import sys
from typing import Any

import torch
from roost.train.pytorch import memory
from roost.train.pytorch.control import insist
from roost.train.pytorch.groups import Group
from roost.train.pytorch.state import TrainingState
from roost.train.pytorch.sync_time import SyncTime

_EVERY_S = 0.5
#: What lies further back than about so many seconds counts less and less: longer than the turns of
#: a shared GPU, so that a share is told as what it is on average.
_MEMORY_S = 4.0
#: A step that is longer than this, and so many times longer than the others, stood still.
_STILL_S, _STILL_TIMES = 1.0, 10.0


class StepClock:
    """The time of a step, of late; while a job is suspended it takes none."""

    def __init__(self) -> None:
        self._spent_s, self._steps, self._stood = 0.0, 0.0, False

    @property
    def step_s(self) -> float | None:
        """Seconds of a step; None before there was one."""
        return self._spent_s / self._steps if self._steps else None

    def add(self, took_s: float) -> None:
        """A step was taken."""
        usual = self.step_s
        if usual is not None and took_s > max(_STILL_S, _STILL_TIMES * usual):
            self._stood = not self._stood
            if self._stood:
                return
            self._spent_s = self._steps = 0.0  # twice in a row: this is what steps take now
        self._stood = False
        self._spent_s += took_s
        self._steps += 1.0
        if self._spent_s > _MEMORY_S:
            self._spent_s, self._steps = self._spent_s / 2, self._steps / 2


class Reporter:
    """Measures the steps, and tells now and then."""

    def __init__(self, training: TrainingState, device: torch.device) -> None:
        self._training, self._device = training, device
        self.loss: torch.Tensor | None = None
        self.predicted_mib: int | None = None
        self.pace = StepClock()
        trained = [one for one in training.model.parameters() if one.requires_grad]
        self.waiting = SyncTime(trained, device)
        self._last: float | None = None
        self._told = 0.0
        self._checked = False

    def check(self, batch: Any, workers: int) -> memory.Prediction | None:
        """Check with the first batch that the share holds the training's state; None afterwards.

        Raises TooLarge if it does not.
        """
        if self._checked:
            return None
        self._checked = True
        model, optimizer = self._training.model, self._training.optimizer
        states = memory.states(model, optimizer, batch, workers=workers)
        states.check(memory.limit_mib())
        return states

    def predict(
        self, states: memory.Prediction, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Predict the peak of memory at the first call; raises TooLarge if the share is smaller."""
        found = memory.predict(self._training.model, states, args, named)
        self.predicted_mib = found.mib
        self._foretell()
        limit = memory.limit_mib()
        found.check(limit)
        if limit is not None and found.mib > limit:
            print(  # noqa: T201 - the reader of the log is to know before it fails
                f"roost.train: this training is expected to reach {found.mib} MiB of GPU memory "
                f"where its share holds {limit} MiB: it may run out ({found.words()})",
                file=sys.stderr,
                flush=True,
            )

    def _foretell(self) -> None:
        """Let it be known before the first step, which may be the last."""
        from roost import train  # noqa: PLC0415 - the package imports this module when asked

        train.report(predicted_mib=self.predicted_mib)

    def stepped(self, now: float, group: Group, saved: int | None) -> None:
        """A step was taken."""
        if self._last is not None:
            self.pace.add(now - self._last)
        elif group.rank == 0 and group.size > 1:  # so that its time is told with the first one
            self.waiting.look()
        self._last = now
        if now - self._told >= _EVERY_S:
            self._told = now
            self.tell(group, saved)
            if group.rank == 0 and group.size > 1:
                self.waiting.look()

    def joined(self, group: Group, me: str, pause_s: float) -> None:
        """The members changed, and train together."""
        self._last, self.pace = None, StepClock()
        self.waiting.forget()
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
            step_s=self.pace.step_s,
            batch=sampler.batch,
            local_batch=-(-sampler.batch // group.size),
            sync_s=self.waiting.seconds if group.size > 1 else 0.0,
            epochs=sampler.epochs_done,
            memory_mib=memory.seen_mib(self._device),
            predicted_mib=self.predicted_mib,
            noise=self._training.statistics.noise,
            world=group.size,
        )
