"""The tiny library that a training script may import; outside of Roost it does nothing.

    for step in range(start, total):
        loss = ...
        train.report(step, total, loss)
        if train.should_stop():
            train.save("model.pt", lambda file: torch.save(state, file))
            sys.exit(143)

It needs the standard library alone, and never makes a training fail: what cannot be told is not
told. Only ``save`` raises, because a checkpoint that is not there must not be relied on.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO
from uuid import uuid4

__all__ = [
    "checkpoint_dir",
    "latest_checkpoint",
    "rank",
    "report",
    "save",
    "should_stop",
    "world_size",
]


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
) -> None:
    """Tell how far the training is; worker 0 speaks for all.

    ``saved`` is the step that the last checkpoint holds. A total that was told once is kept.
    """
    path = os.environ.get("ROOST_PROGRESS")
    if not path or rank() != 0:
        return
    if total is not None and total > 0:
        _Memory.total = total
    said = {
        "step": step,
        "done": _part(step),
        "loss": None if loss is None else float(loss),
        "saved": _part(saved),
    }
    line = json.dumps({name: value for name, value in said.items() if value is not None})
    # Nobody may be reading, the pipe or the disk may be full: then this line is lost.
    with suppress(OSError, ValueError):
        _append(path, f"{line}\n".encode())


def checkpoint_dir() -> Path | None:
    """The folder that outlives this run of the job; None outside of Roost."""
    path = os.environ.get("ROOST_CHECKPOINT_DIR")
    return Path(path) if path else None


def latest_checkpoint(pattern: str = "*") -> Path | None:
    """The newest file in the folder whose name matches; None if there is none."""
    folder = checkpoint_dir()
    newest: tuple[int, str] | None = None
    with suppress(OSError):
        for path in folder.glob(pattern) if folder else ():
            with suppress(OSError):  # gone meanwhile
                if not path.name.startswith(".") and path.is_file():
                    found = (path.stat().st_mtime_ns, str(path))
                    newest = max(newest or found, found)
    return Path(newest[1]) if newest else None


def save(path: str | os.PathLike[str], writer: Callable[[BinaryIO], object]) -> Path:
    """Write a checkpoint entirely or not at all; a relative path is inside the folder for them.

    ``writer`` gets a file to write to. Whatever it raises is raised here, and the older
    checkpoint stays as it was.
    """
    target = (checkpoint_dir() or Path()) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with draft.open("wb") as file:
            writer(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        with suppress(OSError):
            draft.unlink()
    _sync_folder(target.parent)
    return target


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
    return _number("RANK", 0)


def world_size() -> int:
    """How many workers there are."""
    return max(1, _number("WORLD_SIZE", 1))


def _watch() -> None:
    earlier = signal.getsignal(signal.SIGTERM)
    if earlier is None:  # not made by Python: it cannot be put back, so it stays
        return

    def stop(number: int, frame: FrameType | None) -> None:
        _Memory.stopping = True
        if callable(earlier):
            earlier(number, frame)

    signal.signal(signal.SIGTERM, stop)


def _part(step: int | None) -> float | None:
    if step is None or not _Memory.total:
        return None
    return min(1.0, max(0.0, step / _Memory.total))


def _append(path: str, line: bytes) -> None:
    # It may be a pipe: a full one, or one that nobody reads, must not stop the training.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _number(name: str, otherwise: int) -> int:
    try:
        return int(os.environ.get(name, otherwise))
    except ValueError:
        return otherwise
