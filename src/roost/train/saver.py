"""Checkpoints: where they are, and how they are written whole, off the critical path.

How often follows from what one costs and how often a worker fails. Young (1974) and Daly (2006)
give the period that loses the least time as sqrt(2 * cost * time between failures). The cost is the
measured time of the writing, which is more than the training feels of it; the time between failures
is ROOST_MTBF_S, or six hours.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

Writer = Callable[[BinaryIO], object]

_BETWEEN_FAILURES_S = 6 * 3600.0
_BOUNDS_S = (5.0, 1800.0)
#: How much the latest cost counts against what was known before.
_FRESH = 0.5
#: A draft that was not touched for so long was left behind by a worker that was killed.
_STALE_S = 60.0


def checkpoint_dir() -> Path | None:
    """The folder that outlives this run of the job; None outside of Roost."""
    path = os.environ.get("ROOST_CHECKPOINT_DIR")
    return Path(path) if path else None


def latest_checkpoint(pattern: str = "*") -> Path | None:
    """The newest file in the folder with a matching name; None if there is none."""
    folder = checkpoint_dir()
    newest: tuple[int, str] | None = None
    with suppress(OSError):
        for path in folder.glob(pattern) if folder else ():
            with suppress(OSError):  # gone meanwhile
                if not path.name.startswith(".") and path.is_file():
                    found = (path.stat().st_mtime_ns, str(path))
                    newest = max(newest or found, found)
    return Path(newest[1]) if newest else None


def save(
    path: str | os.PathLike[str],
    writer: Writer,
    putting: AbstractContextManager[object] | None = None,
) -> Path:
    """Write a checkpoint entirely or not at all; a relative path is inside the folder for them.

    ``writer`` gets a file to write to. Whatever it raises is raised here, and the older
    checkpoint stays as it was. ``putting`` is held while the new one takes its place.
    """
    target = (checkpoint_dir() or Path()) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with draft.open("wb") as file:
            writer(file)
            file.flush()
            os.fsync(file.fileno())
        with putting or nullcontext():
            draft.replace(target)
    finally:
        with suppress(OSError):
            draft.unlink()
    _sync_folder(target.parent)
    return target


class Saver:
    """Writes the checkpoints of a training in a thread of its own, one at a time.

    What goes wrong does not end the training: ``trouble`` says what it is, and the last good
    checkpoint stays.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        bounds_s: tuple[float, float] = _BOUNDS_S,
        mtbf_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        #: The step of the last good checkpoint that this process wrote.
        self.saved: int | None = None
        #: Why the last one was not written; "" if it was.
        self.trouble = ""
        #: Seconds that one takes; None before the first.
        self.cost_s: float | None = None
        self._bounds_s = bounds_s
        self._mtbf_s = _between_failures_s() if mtbf_s is None else mtbf_s
        self._clock = clock
        self._last = clock()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._abandoned = 0

    @property
    def period_s(self) -> float:
        """How long to wait from one checkpoint to the next."""
        best = math.sqrt(2.0 * (self.cost_s or 0.0) * self._mtbf_s)
        least, most = self._bounds_s
        return min(most, max(least, best))

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._thread is not None and self._thread.is_alive()

    def due(self, now: float | None = None) -> bool:
        """Whether it is time for the next one, and the last is written."""
        now = self._clock() if now is None else now
        return now - self._last >= self.period_s and not self.busy

    def submit(self, step: int, writer: Writer, then: Callable[[], object] | None = None) -> bool:
        """Begin to write the state of a step; False while an older one is being written.

        ``writer`` is called in another thread: what it writes must not change meanwhile. ``then``
        is called there, too, once the checkpoint is on disk.
        """
        if self.busy:
            return False
        self._last = self._clock()
        order = (step, writer, then, self._abandoned)
        self._thread = threading.Thread(target=self._write, args=order, daemon=True)
        self._thread.start()
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until nothing is being written; True if the last one submitted is good and on disk."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.busy and not self.trouble

    def abandon(self) -> None:
        """Let what is being written come to nothing: another worker writes from now on."""
        with self._lock:
            self._abandoned += 1

    def _write(
        self, step: int, writer: Writer, then: Callable[[], object] | None, abandoned: int
    ) -> None:
        began = self._clock()
        try:
            path = save(self.path, writer, self._unless_abandoned(abandoned))
        except Exception as error:  # noqa: BLE001 - the training goes on
            self.trouble = f"{type(error).__name__}: {error}"
            return
        spent = self._clock() - began
        known = spent if self.cost_s is None else self.cost_s
        self.cost_s = known + _FRESH * (spent - known)
        if self.saved is None:
            clear_drafts(path.parent, f".{path.name}.*.tmp")
        self.saved, self.trouble = step, ""
        with suppress(Exception):
            if then is not None:
                then()

    @contextmanager
    def _unless_abandoned(self, abandoned: int) -> Iterator[None]:
        with self._lock:
            if abandoned != self._abandoned:
                raise InterruptedError("another worker writes from now on")
            yield


def clear_drafts(folder: Path, pattern: str) -> None:
    """Remove the drafts that killed workers left behind."""
    with suppress(OSError):
        for draft in folder.glob(pattern):
            with suppress(OSError):
                if time.time() - draft.stat().st_mtime > _STALE_S:
                    draft.unlink()


def _between_failures_s() -> float:
    with suppress(ValueError):
        seconds = float(os.environ.get("ROOST_MTBF_S", ""))
        if seconds > 0 and math.isfinite(seconds):
            return seconds
    return _BETWEEN_FAILURES_S


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
