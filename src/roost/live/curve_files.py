"""The curves of jobs on the disk: one file for each job, bounded, and thinned as it grows.

Curves are for people: they are written seconds late, and a server that is killed loses those
seconds. Where the disk is full, or a file cannot be written, there is a gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from roost import files
from roost.core import JobId
from roost.errors import RoostError
from roost.jobs.change_feed import ClusterChange
from roost.jobs.curves import (
    AllocationNote,
    CurveLog,
    figures_line,
    figures_of,
    note_line,
)
from roost.store.rows import OPEN_STATES, JobRow

_log = logging.getLogger(__name__)

#: How often a job's figures are kept at most, and at least where they stay as they are; how often
#: they are written, in seconds.
_EVERY_S, _STILL_S, _WRITE_S = 2.0, 60.0, 5.0
#: A file that is larger is thinned to so many points of each figure, and so many notes.
_LARGE_BYTES = 256 << 10
_POINTS, _NOTES = 400, 500
#: Figures of which one changes while a job gets on.
_MOVES = ("step", "progress", "loss")


class _Last:
    """What was kept of a job last."""

    __slots__ = ("at", "figures", "held", "late", "moved_at")

    def __init__(self) -> None:
        self.at = 0.0
        self.figures: dict[str, float] = {}
        self.held: tuple[object, ...] = ()
        #: What came too soon after that: it may be the last word.
        self.late: str = ""
        self.moved_at: float | None = None


class CurveFiles:
    """Writes down what jobs report, and reads it again."""

    def __init__(self, home: Path, clock: Callable[[], float]) -> None:
        self._folder, self._clock = home / "curves", clock
        self._last: dict[str, _Last] = {}
        self._lines: dict[str, list[str]] = {}
        self._thread = ThreadPoolExecutor(1, "curves")
        self._writing: asyncio.TimerHandle | None = None
        self._failing = False

    def changed(self, change: ClusterChange) -> None:
        """Take in what was reported; it is written with the next others."""
        for row in change.jobs:
            self._note(row)
        for job in change.deleted:
            self._lines.pop(job, None)
            self._thread.submit(self._drop, job)
        if change.jobs and self._writing is None:
            loop = asyncio.get_running_loop()
            self._writing = loop.call_later(_WRITE_S, self._write_soon)

    async def close(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
        self._write_soon()
        await asyncio.to_thread(self._thread.shutdown)

    async def read(self, job: JobId) -> CurveLog:
        """All that there is of a job, also what is not written yet."""
        self._write_soon()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, job)

    def moved_at(self, job: str) -> float | None:
        """When a job last reported that it got on; None: it reports no such thing."""
        last = self._last.get(job)
        return None if last is None else last.moved_at

    def sweep(self, is_known: Callable[[JobId], bool]) -> None:
        """Remove the curves of jobs that are not there any more."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if not is_known(JobId(path.name)):
                    self._drop(path.name)

    def _note(self, row: JobRow) -> None:
        view, now = row.view, self._clock()
        note = _note_of(view, now)
        if row.id not in self._last and not note.workers:
            return  # it has not held anything yet: there may be very many of these
        last = self._last.setdefault(row.id, _Last())
        if (held := note.held()) != last.held:
            last.held = held
            self._keep_late(row.id, last)
            self._lines.setdefault(row.id, []).append(note_line(note))
        figures = figures_of(view) if note.workers else {}
        if any(figures.get(name) != last.figures.get(name) for name in _MOVES):
            last.moved_at = now
        if figures and (figures != last.figures or now - last.at >= _STILL_S):
            last.late = figures_line(now, figures)
            if now - last.at >= _EVERY_S:
                last.at, last.figures = now, figures
                self._keep_late(row.id, last)
        if row.state not in OPEN_STATES:
            del self._last[row.id]

    def _keep_late(self, job: str, last: _Last) -> None:
        if last.late:
            self._lines.setdefault(job, []).append(last.late)
            last.late = ""

    def _write_soon(self) -> None:
        self._writing = None
        for job, last in self._last.items():
            self._keep_late(job, last)
        lines, self._lines = self._lines, {}
        if lines:
            self._thread.submit(self._write, lines)

    # -- in the thread -------------------------------------------------------------------------

    def _write(self, lines: Mapping[str, list[str]]) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for job, some in lines.items():
                path = self._folder / job
                with path.open("a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in some)
                    large = file.tell() > _LARGE_BYTES
                if large:
                    self._thin(path)
            self._failing = False
        except (OSError, RoostError) as error:
            if not self._failing:
                _log.warning("the curves of jobs cannot be kept: %s", error)
            self._failing = True

    def _thin(self, path: Path) -> None:
        log = _parsed(path)
        log.thin(_POINTS, _NOTES)
        files.save_bytes(path, "".join(f"{line}\n" for line in log.lines()).encode(), 0o600)

    def _read(self, job: str) -> CurveLog:
        try:
            return _parsed(self._folder / job)
        except OSError:
            return CurveLog()

    def _drop(self, job: str) -> None:
        with suppress(OSError):
            (self._folder / job).unlink()


def _parsed(path: Path) -> CurveLog:
    log = CurveLog()
    with path.open("rb") as file:
        for line in file:
            log.add(line)
    return log


def _note_of(view: Mapping[str, Any], now: float) -> AllocationNote:
    return AllocationNote(
        now,
        view["state"],
        view["attempt"],
        view["workers"]["now"],
        view["gpus_held"],
        view["share"],
        tuple(view["placement"]),
    )
