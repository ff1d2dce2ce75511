"""The tiny library that a training script may import; outside of Roost it does nothing.

    for step in range(start, total):
        loss = ...
        train.report(step, total, loss)
        if train.should_stop():
            train.save("model.pt", lambda file: torch.save(state, file))
            sys.exit(143)

It needs the standard library alone, and never makes a training fail: what cannot be told is not
told. Only ``save`` raises, because a checkpoint that is not there must not be relied on.

    lines      lines for Roost
    members    the workers that train together, which Roost may change
    saver      checkpoints, whole and off the critical path
    pytorch    ``train.elastic``: all of it for PyTorch
    example    a small training in NumPy; ``example_torch``: one in PyTorch
"""

from __future__ import annotations

import importlib
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

from roost.train.lines import tell
from roost.train.members import CurrentRank, Left, Members, Misuse, View, number_of
from roost.train.saver import Saver, checkpoint_dir, latest_checkpoint, save

__all__ = [
    "Left",
    "Members",
    "Misuse",
    "Saver",
    "View",
    "checkpoint_dir",
    "latest_checkpoint",
    "rank",
    "report",
    "save",
    "should_stop",
    "tell",
    "world_size",
]

#: What needs more than the standard library is imported when it is first asked for.
_LATER = {
    "elastic": "roost.train.pytorch.loop",
    "predict": "roost.train.pytorch.replay.steps",
    "TooLarge": "roost.train.pytorch.memory",
}
#: What a report may say besides how far it is.
_MORE = (
    *("step_s", "sync_s", "batch", "local_batch", "epochs"),
    *("memory_mib", "predicted_mib", "noise", "world"),
)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'roost.train' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


class _Memory:
    """What is remembered between calls."""

    total: float = 0.0
    stopping: bool = False
    watching: bool = False


def report(
    step: int | None = None,
    total: int | None = None,
    loss: float | None = None,
    saved: int | None = None,
    **more: float | None,
) -> None:
    """Tell how far the training is; worker 0 speaks for all.

    ``saved`` is the step that the last checkpoint holds. A total that was told once is kept. More
    may be said: ``step_s`` (seconds of a step), ``sync_s`` (those of them in which the worker waits
    until the gradients of all have come together), ``batch`` (samples of a step, of all workers),
    ``local_batch`` (samples that a worker takes at once), ``epochs`` (passes over the data so far),
    ``memory_mib`` and ``predicted_mib`` (peak of GPU memory, and what was expected), ``noise``
    (gradient noise scale, in samples), ``world`` (workers that train together).
    """
    if rank() != 0:
        return
    with suppress(Exception):  # whatever was handed over: a training does not fail for it
        if total is not None and total > 0:
            _Memory.total = total
        said: dict[str, Any] = {"step": step, "done": _part(step), "loss": loss}
        said |= {"saved": _part(saved)} | {name: more.get(name) for name in _MORE}
        tell(**{name: _plain(value) for name, value in said.items() if value is not None})


def should_stop() -> bool:
    """Whether SIGTERM came: save now, and leave.

    The first call, if it is made in the main thread, begins to watch for the signal; a handler
    that was there before is called too.
    """
    if not _Memory.watching and threading.current_thread() is threading.main_thread():
        _Memory.watching = True
        _watch()
    return _Memory.stopping


def rank() -> int:
    """The number of this worker, from 0."""
    return CurrentRank.now[0] if CurrentRank.now else number_of("RANK", 0)


def world_size() -> int:
    """How many workers there are."""
    return CurrentRank.now[1] if CurrentRank.now else max(1, number_of("WORLD_SIZE", 1))


def _watch() -> None:
    earlier = signal.getsignal(signal.SIGTERM)
    if earlier is None:  # not made by Python: it cannot be put back, so it stays
        return

    def stop(number: int, frame: FrameType | None) -> None:
        # A flag and no more: a handler runs between any two instructions of the training, and a
        # checkpoint from in there could hold half a step.
        _Memory.stopping = True
        if callable(earlier):
            earlier(number, frame)

    signal.signal(signal.SIGTERM, stop)


def _part(step: int | None) -> float | None:
    if step is None or not _Memory.total:
        return None
    return min(1.0, max(0.0, step / _Memory.total))


def _plain(value: Any) -> float:
    """A number of Python, of whatever stands for one."""
    return value if type(value) is int else float(value)
