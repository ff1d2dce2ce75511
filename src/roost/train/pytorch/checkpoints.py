"""Checkpoints of a PyTorch training: one file per step, the last few kept.

They are written in the background from a copy in host memory. What cannot be read is passed over
with a line that says so, in favour of the one before it. A script with several trainings, one after
the other, has files of each.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from roost.train.lines import say
from roost.train.members import Misuse
from roost.train.pytorch.state import Aside, TrainingState, write
from roost.train.saver import Saver, checkpoint_dir, clear_drafts

_KEEP = 2
_NAME = re.compile(r"elastic-(?:(\d+)-)?(\d{12})\.pt")
_DRAFTS = ".elastic-*.tmp"


class Checkpoints:
    """The checkpoints of this job."""

    def __init__(
        self, training: TrainingState, every_s: float | None = None, loop: int = 1
    ) -> None:
        self._training, self._loop = training, loop
        name = _name(0, loop)
        self._saver = Saver(name) if every_s is None else Saver(name, bounds_s=(every_s, every_s))
        self._aside = Aside()
        #: The step of the newest good one.
        self.saved: int | None = None
        self._told = ""

    @property
    def possible(self) -> bool:
        """Whether there is a place for them."""
        return checkpoint_dir() is not None

    @property
    def due(self) -> bool:
        """Whether it is time for the next."""
        return self._saver.due() and self.possible

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._saver.busy

    def load(self) -> bool:
        """Go on from the newest that can be read; False if there is none."""
        for _, path in _found(self._loop):
            try:
                self._training.load(_read(path, self._training))
            except Exception as error:  # noqa: BLE001 - a damaged file raises anything
                say(f"{path.name} is passed over: {error}")
                continue
            self.saved = self._training.step
            return True
        return False

    def begin(self, then: Callable[[], object] | None = None) -> bool:
        """Copy the state aside and begin to write it; False while one is being written."""
        if not self.possible or self._saver.busy:
            return False
        self._complain()
        step = self._training.step
        content = self._aside.take(self._training.content())
        self._saver.path = _name(step, self._loop)

        def done() -> None:
            self.saved = step
            _forget_older(step, self._loop)
            if then is not None:
                then()

        return self._saver.submit(step, lambda file: write(content, file), done)

    def finish(self) -> bool:
        """Have the state of this step on disk; True if it is."""
        if not self.possible:
            return False
        self._saver.wait()
        if self.saved != self._training.step:
            self.begin()
            self._saver.wait()
        self._complain()
        return self.saved == self._training.step

    def wait(self) -> None:
        """Until nothing is being written."""
        self._saver.wait()
        self._complain()

    def _complain(self) -> None:
        if self._saver.trouble and self._saver.trouble != self._told:
            say(f"not saved: {self._saver.trouble}")
        self._told = self._saver.trouble


def _name(step: int, loop: int) -> str:
    return f"elastic-{step:012}.pt" if loop == 1 else f"elastic-{loop}-{step:012}.pt"


def _found(loop: int) -> list[tuple[int, Path]]:
    """Those of a training and their steps, the newest first."""
    folder = checkpoint_dir()
    if folder is None or not folder.is_dir():
        return []
    named = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    found = [(int(name[2]), path) for name, path in named if name and int(name[1] or 1) == loop]
    return sorted(found, reverse=True)


def _forget_older(saved: int, loop: int) -> None:
    """Keep the last few; those of later steps were passed over, and say nothing about these."""
    for path in [path for step, path in _found(loop) if step <= saved][_KEEP:]:
        with suppress(OSError):
            path.unlink()
    if folder := checkpoint_dir():
        clear_drafts(folder, _DRAFTS)


def _read(path: Path, training: TrainingState) -> dict[str, object]:
    device = next(training.model.parameters()).device
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        if "GLOBAL" not in str(error):
            raise
        # A scheduler or optimiser may keep objects of its own; the file is this job's own work.
        content = torch.load(path, map_location=device, weights_only=False)
    if not isinstance(content, dict):
        raise Misuse("it holds something else")
    return content
