"""Plots as SVG: one file that needs nothing else, drawn from plain numbers.

A chart of bars in groups: a bar per series in each group, with a whisker for how far its value
varies and a tick for a value to compare it with. Bars that would dwarf the others are cut off at
the top, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

#: Colours that people with any kind of colour vision tell apart (Okabe and Ito, 2008).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
_BAR, _GAP, _LEFT, _TOP, _HIGH, _BELOW = 36, 30, 64, 56, 260, 58
#: How many times as high as the one in the middle a bar may be before it is cut off.
_TALL = 3.0
_LETTER = 7.2
_TICKS = 5
_ROUND = (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10)


class Bar(NamedTuple):
    """A value, how far it varies up and down, and one to compare it with."""

    value: float
    spread: float = 0.0
    mark: float | None = None


def bars(title: str, axis: str, groups: Mapping[str, Mapping[str, Bar]], *, mark: str = "") -> str:
    """A chart of groups of bars, by group and by series; ``mark`` says what the ticks stand for."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    top = _top([bar for group in groups.values() for bar in group.values()])
    width = _LEFT + sum(_GAP + _BAR * len(group) for group in groups.values()) + _GAP
    legend = _legend(series, mark)
    width = max(width, int(_LEFT + len(title) * _LETTER * 1.2), int(legend[1]) + _LEFT)
    high = _TOP + _HIGH + _BELOW
    size = f'viewBox="0 0 {width} {high}" width="{width}" height="{high}"'
    style = 'font-family="sans-serif" font-size="12" role="img"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{high}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_axis(axis, top, width),
        *_bars(groups, series, top),
        *legend[0],
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axis(name: str, top: float, width: int) -> Iterator[str]:
    middle = _TOP + _HIGH / 2
    yield (
        f'<text x="16" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 16 {middle})">{escape(name)}</text>'
    )
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        y = _y(value, top)
        yield f'<line x1="{_LEFT}" x2="{width - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'


def _bars(
    groups: Mapping[str, Mapping[str, Bar]], series: Sequence[str], top: float
) -> Iterator[str]:
    x = _LEFT + _GAP
    for name, group in groups.items():
        middle = x + _BAR * len(group) / 2
        y = _TOP + _HIGH + 18
        yield f'<text x="{middle:.1f}" y="{y}" text-anchor="middle">{escape(name)}</text>'
        for own, bar in group.items():
            yield from _bar(f"{name}, {own}", bar, (x, top, _colour(series.index(own))))
            x += _BAR
        x += _GAP


def _bar(name: str, bar: Bar, place: tuple[int, float, str]) -> Iterator[str]:
    x, top, colour = place
    y = _y(bar.value, top)
    yield (
        f'<rect x="{x + 2}" y="{y:.1f}" width="{_BAR - 4}" height="{_TOP + _HIGH - y:.1f}" '
        f'fill="{colour}"><title>{escape(name)}: {bar.value:.3g}</title></rect>'
    )
    centre = x + _BAR / 2
    if bar.value > top:
        yield f'<path d="M{x} {y + 16:.1f}l{_BAR} -8" stroke="#fff" stroke-width="4"/>'
    elif bar.spread:
        low, high = _y(max(bar.value - bar.spread, 0.0), top), _y(bar.value + bar.spread, top)
        yield f'<path d="M{centre} {high:.1f}V{low:.1f}" stroke="#222" stroke-width="1.5"/>'
    if bar.mark is not None and bar.mark <= top:
        at = _y(bar.mark, top)
        yield f'<path d="M{x} {at:.1f}H{x + _BAR}" stroke="#222" stroke-dasharray="3 2"/>'
    yield (
        f'<text x="{centre}" y="{_y(_reach(bar), top) - 4:.1f}" text-anchor="middle" '
        f'font-size="10">{bar.value:.3g}</text>'
    )


def _legend(series: Sequence[str], mark: str) -> tuple[list[str], float]:
    """What the colours mean, in a line below all else, and how wide that is."""
    parts: list[str] = []
    x, y = float(_LEFT), _TOP + _HIGH + 42
    for number, name in enumerate(series):
        parts.append(
            f'<rect x="{x:.0f}" y="{y - 10}" width="12" height="12" fill="{_colour(number)}"/>'
            f'<text x="{x + 16:.0f}" y="{y}">{escape(name)}</text>'
        )
        x += 36 + len(name) * _LETTER
    if mark:
        parts.append(
            f'<path d="M{x:.0f} {y - 4}h20" stroke="#222" stroke-dasharray="3 2"/>'
            f'<text x="{x + 24:.0f}" y="{y}">{escape(mark)}</text>'
        )
        x += 44 + len(mark) * _LETTER
    return parts, x


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _reach(bar: Bar) -> float:
    return max(bar.value + bar.spread, bar.mark or 0.0)


def _y(value: float, top: float) -> float:
    return _TOP + _HIGH * (1 - min(value / top, 1.0))


def _top(drawn: Sequence[Bar]) -> float:
    """Where the axis ends: above all bars but those that are far higher than most."""
    if not drawn:
        return 1.0
    reaches = sorted(map(_reach, drawn))
    return _round_up(min(reaches[-1], _TALL * reaches[len(reaches) // 2]) or reaches[-1])


def _round_up(value: float) -> float:
    """The next round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _ROUND if step * power >= value)
