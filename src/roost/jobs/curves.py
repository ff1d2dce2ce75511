"""What a job said of itself over time: figures with their moments, thinned to what can be seen.

A log of curves is lines of JSON, oldest first: ``[time, {name: value}]`` for figures, and
``[time, null, {...}]`` where the job began to hold something else (``AllocationNote``). What is
damaged, such as a line that was cut off by a crash, is left out. Keeping the lines is for others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from roost.api.jobs import CurvesView, CurveView

#: Figure → its unit; these are the fields of a job's view that are kept.
UNITS: Mapping[str, str] = {
    "progress": "",
    "step": "",
    "loss": "",
    "step_s": "s",
    "batch": "samples",
    "samples_per_s": "1/s",
    "noise": "samples",
    "memory_mib": "MiB",
    "busy": "",
    "workers": "",
    "gpus": "GPUs",
}
_RUNS = frozenset({"running", "resizing"})
_FAREST = 1e300


class CurvePoint(NamedTuple):
    """A figure at one moment; without a value the curve has a gap."""

    time: float
    value: float | None


@dataclass(frozen=True, slots=True)
class AllocationNote:
    """What a job was, and what it held, from a moment on."""

    time: float
    state: str
    attempt: int = 0
    workers: int = 0
    gpus: float = 0.0
    share: float = 1.0
    placement: tuple[Mapping[str, Any], ...] = ()

    def held(self) -> tuple[object, ...]:
        """All but its time."""
        return (
            *(self.state, self.attempt, self.workers, self.gpus, self.share),
            json.dumps(list(self.placement)),
        )


@dataclass(slots=True)
class CurveLog:
    """Everything that was kept of a job."""

    points: dict[str, list[CurvePoint]] = field(default_factory=dict)
    notes: list[AllocationNote] = field(default_factory=list)

    def add(self, line: str | bytes) -> None:
        """Take in a line; one that makes no sense is left out."""
        try:
            time, figures, *rest = json.loads(line)
            at = float(time)
            if rest:
                told = dict(rest[0])
                told["placement"] = tuple(told.get("placement", ()))
                self.notes.append(AllocationNote(at, **told))
            for name, value in (figures or {}).items():
                self.points.setdefault(str(name), []).append(CurvePoint(at, float(value)))
        except (ValueError, TypeError):
            return

    def lines(self) -> list[str]:
        """The same as lines, in order of time."""
        moments: dict[float, dict[str, float]] = {}
        for name, points in self.points.items():
            for point in points:
                if point.value is not None:
                    moments.setdefault(point.time, {})[name] = point.value
        found = [(time, figures_line(time, figures)) for time, figures in moments.items()]
        found += [(note.time, note_line(note)) for note in self.notes]
        return [line for _, line in sorted(found, key=lambda one: one[0])]

    def thin(self, most: int, notes: int) -> None:
        """Keep about ``most`` points of each figure, and the newest ``notes``."""
        self.points = {name: thinned(points, most) for name, points in self.points.items()}
        self.notes = self.notes[-notes:]


def figures_line(time: float, figures: Mapping[str, float]) -> str:
    """Figures as a line."""
    return json.dumps([round(time, 3), dict(figures)], separators=(",", ":"))


def note_line(note: AllocationNote) -> str:
    """A note as a line."""
    told = asdict(note)
    del told["time"]
    return json.dumps([round(note.time, 3), None, told], separators=(",", ":"))


def figures_of(view: Mapping[str, Any]) -> dict[str, float]:
    """The figures that a job reports, by its view; what it does not report is not there."""
    told = {name: view.get(name) for name in UNITS}
    told["workers"], told["gpus"] = view["workers"]["now"] or None, view.get("gpus_held") or None
    return {
        name: value
        for name, value in told.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def thinned(points: Sequence[CurvePoint], most: int) -> list[CurvePoint]:
    """The smallest and the largest value of each of ``most / 2`` equal stretches of time.

    Peaks stay where they are, however few points are asked for. Gaps stay, too.
    """
    if len(points) <= most:
        return list(points)
    begin, end = points[0].time, points[-1].time
    stretch = (end - begin) / max(1, most // 2) or 1.0
    found: list[CurvePoint] = []
    held: list[CurvePoint] = []
    number = 0
    for point in points:
        at = int((point.time - begin) / stretch)
        if held and (at != number or point.value is None):
            found += _extremes(held)
            held = []
        number = at
        if point.value is None:
            found.append(point)
        else:
            held.append(point)
    return found + _extremes(held)


def _extremes(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    if not points:
        return []

    def value(point: CurvePoint) -> float:
        return _FAREST if point.value is None else point.value

    return sorted({min(points, key=value), max(points, key=value)})


@dataclass(frozen=True, slots=True)
class CurveWindow:
    """Which part of the curves is asked for: times, about how many points, and which of them."""

    begin: float | None = None
    end: float | None = None
    points: int = 400
    names: tuple[str, ...] = ()


def curves_view(job: str, log: CurveLog, window: CurveWindow, now: float) -> CurvesView:
    """The curves of a job, each with gaps where it did not run."""
    every = [point.time for points in log.points.values() for point in points]
    begin = min(every, default=now) if window.begin is None else window.begin
    end = max(every, default=now) if window.end is None else window.end
    breaks = [note.time for note in log.notes if note.state not in _RUNS]
    series = [
        CurveView(
            name,
            UNITS.get(name, ""),
            tuple((round(point.time, 3), point.value) for point in thinned(shown, window.points)),
        )
        for name, points in sorted(log.points.items(), key=_place)
        if (not window.names or name in window.names)
        and (shown := _with_gaps([p for p in points if begin <= p.time <= end], breaks))
    ]
    step_s = max(0.0, end - begin) / max(1, window.points // 2)
    return CurvesView(job, begin, end, step_s, tuple(series))


def _place(named: tuple[str, object]) -> tuple[int, str]:
    """Figures in the order in which they are listed; those of a job's own behind them."""
    names = list(UNITS)
    return (names.index(named[0]) if named[0] in names else len(names), named[0])


def _with_gaps(points: Sequence[CurvePoint], breaks: Iterable[float]) -> list[CurvePoint]:
    """The same with a point without a value where the job did not run in between."""
    found: list[CurvePoint] = []
    left = sorted(breaks)
    for point in points:
        passed = False
        while left and left[0] <= point.time:
            moment, passed = left.pop(0), True
        if passed and found:
            found.append(CurvePoint(max(moment, found[-1].time), None))
        found.append(point)
    return found
