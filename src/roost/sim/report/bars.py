"""The bars of the timeline: segments joined across neighbouring GPUs, in rows, cut to size.

A bar is one run's hold on neighbouring devices of a node. Shares of one device are put beside each
other in its row. Times are whole ticks since the origin; ``contents`` chooses both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from roost.sim.results import Results, Segment

WHOLE = 1000


class TickScale(NamedTuple):
    """Turns simulated seconds into whole ticks since the origin."""

    origin: float
    tick: float

    def at(self, time: float) -> int:
        """Count the ticks from the origin to a moment."""
        return self.ticks(time - self.origin)

    def ticks(self, seconds: float) -> int:
        """Count the ticks in a length of time."""
        return round(seconds / self.tick)


class _Bar(NamedTuple):
    row: int
    start: int
    end: int
    job: int
    span: int
    share: int
    offset: int


def node_rows(runs: Iterable[Results]) -> dict[str, int]:
    """GPUs per node that appears in any timeline, in natural order (node-2 before node-10)."""
    gpus: dict[str, int] = {}
    for run in runs:
        even = run.gpus // run.nodes if run.nodes and run.gpus % run.nodes == 0 else 1
        for segment in run.segments:
            gpus[segment.node] = max(gpus.get(segment.node, even), segment.gpu + 1)
    return dict(sorted(gpus.items(), key=lambda item: _natural(item[0])))


def bars(
    segments: Sequence[Segment], nodes: dict[str, int], clock: TickScale, most: int
) -> dict[str, Any]:
    """Columns of the largest ``most`` bars.

    Bars are ordered by row and start; ``start`` holds the gap to the one before in its row.
    """
    first = dict(zip(nodes, _running_sum(nodes.values()), strict=True))
    every = [*_gangs(segments, first, clock), *_shares(segments, first, clock)]
    kept = sorted(sorted(every, key=_area, reverse=True)[:most])
    per_row = [0] * sum(nodes.values())
    gaps = []
    before = (-1, 0)
    for bar in kept:
        per_row[bar.row] += 1
        gaps.append(bar.start - (before[1] if before[0] == bar.row else 0))
        before = (bar.row, bar.start)
    return {
        "total": len(every),
        "shown": sum(map(_area, kept)) / max(1, sum(map(_area, every))),
        "rows": per_row,
        "start": gaps,
        "length": [bar.end - bar.start for bar in kept],
        "job": [bar.job for bar in kept],
        "span": [bar.span for bar in kept],
        "shares": [
            [index, bar.offset, bar.share] for index, bar in enumerate(kept) if bar.share < WHOLE
        ],
    }


def _gangs(segments: Sequence[Segment], first: dict[str, int], clock: TickScale) -> list[_Bar]:
    """Join whole devices side by side that one run held for the same time."""
    whole = sorted(
        (one.node, one.job, one.start, one.end, one.gpu)
        for one in segments
        if one.share_milli >= WHOLE
    )
    joined: list[_Bar] = []
    for key, gang in groupby(whole, key=itemgetter(0, 1, 2, 3)):
        node, job, start, end = key
        gpus = [one[4] for one in gang]
        for low, span in _stretches(gpus):
            row = first[node] + low
            joined.append(_Bar(row, clock.at(start), clock.at(end), job, span, WHOLE, 0))
    return joined


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Find runs of consecutive numbers in order: the first of each, and how many."""
    cuts = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    edges = [0, *cuts, len(numbers)]
    return [(numbers[low], high - low) for low, high in pairwise(edges)]


def _shares(segments: Sequence[Segment], first: dict[str, int], clock: TickScale) -> list[_Bar]:
    """Put shares of one device beside each other: each gets the lowest gap it fits in."""
    parts = [segment for segment in segments if segment.share_milli < WHOLE]
    parts.sort(key=attrgetter("node", "gpu", "start"))
    stacked: list[_Bar] = []
    active: list[_Bar] = []
    for one in parts:
        row, start = first[one.node] + one.gpu, clock.at(one.start)
        active = sorted(
            (bar for bar in active if bar.row == row and bar.end > start), key=attrgetter("offset")
        )
        offset = 0
        for bar in active:
            if bar.offset - offset >= one.share_milli:
                break
            offset = max(offset, bar.offset + bar.share)
        offset = max(0, min(offset, WHOLE - one.share_milli))
        bar = _Bar(row, start, clock.at(one.end), one.job, 1, one.share_milli, offset)
        stacked.append(bar)
        active.append(bar)
    return stacked


def _area(bar: _Bar) -> int:
    return (bar.end - bar.start) * bar.span * bar.share


def _running_sum(values: Iterable[int]) -> list[int]:
    total, sums = 0, []
    for value in values:
        sums.append(total)
        total += value
    return sums


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]
