"""The page of ``roost weigh``: one HTML file that needs nothing else, its plots drawn as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from roost.usage.ownership import SOURCES, Ownership
from roost.usage.prices import MICRO
from roost.usage.weigh import ComparisonSetting, WeighedRun, sensitivity

_WIDTH, _BAR, _LEFT = 640, 22, 170
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left}"
    "svg{display:block;margin:.5em 0 1.5em}text{font-size:12px}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}text{fill:#ddd}}"
)


def page(name: str, found: Sequence[WeighedRun], given: ComparisonSetting, kind: str) -> str:
    """All plots and tables of a comparison."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(name)} weighed</title><style>{_STYLE}</style>",
        f"<h1>{escape(name)} weighed</h1>",
        "<h2>GPU use</h2>",
        _bars({one.target: one.busy for one in found}, "of the time"),
        "<h2>Cost</h2>",
        _bars({one.target: one.tco if one.target == "here" else one.tcs for one in found}, "USD"),
        "<h2>Time: wait and run</h2>",
        _times(found),
        "<h2>Carbon of the GPUs</h2>",
        _bars({one.target: one.carbon_kg for one in found}, "kg"),
        "<h2>Cost of an own GPU hour by use, and the offers</h2>",
        _curve(given, kind),
        "<h2>If an input were 30 % lower or higher</h2>",
        _tornado(given),
        "<h2>Inputs of the owner</h2>",
        _inputs(given.own),
        "</html>",
    ]
    return "\n".join(parts)


def _bars(values: Mapping[str, float | None], unit: str) -> str:
    most = max((value for value in values.values() if value), default=0.0) or 1.0
    lines = list[str]()
    for row, (name, value) in enumerate(values.items()):
        told = "not known" if value is None else f"{value:.3g} {unit}"
        width = 0.0 if value is None else (value / most) * (_WIDTH - _LEFT - 110)
        lines += _bar(row, name, [(0.0, width, "#4878cf")], told)
    return _svg(lines, len(values))


def _times(found: Sequence[WeighedRun]) -> str:
    most = max(((one.wait_s or 0.0) + one.run_s for one in found), default=0.0) or 1.0
    scale, lines = (_WIDTH - _LEFT - 110) / most, list[str]()
    for row, one in enumerate(found):
        wait = one.wait_s or 0.0
        pieces = [(0.0, wait * scale, "#d65f5f"), (wait * scale, one.run_s * scale, "#4878cf")]
        waits = "wait not known" if one.wait_s is None else f"{wait / 3600:.3g} h wait"
        lines += _bar(row, one.target, pieces, f"{one.run_s / 3600:.3g} h, {waits}")
    return _svg(lines, len(found))


def _tornado(given: ComparisonSetting) -> str:
    found = sorted(sensitivity(given).items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    most = max((max(pair) for _, pair in found), default=0.0) or 1.0
    scale, lines = (_WIDTH - _LEFT - 110) / most, list[str]()
    for row, (name, (low, high)) in enumerate(found):
        first, last = sorted((low, high))
        piece = [(first * scale, max(1.0, (last - first) * scale), "#6acc65")]
        lines += _bar(row, name, piece, f"{low:.2f} … {high:.2f}")
    return _svg(lines, len(found))


def _bar(
    row: int, name: str, pieces: Sequence[tuple[float, float, str]], told: str
) -> Iterator[str]:
    y = row * _BAR
    yield f'<text x="0" y="{y + 15}">{escape(name)}</text>'
    for left, width, colour in pieces:
        yield (
            f'<rect x="{_LEFT + left:.1f}" y="{y + 3}" width="{width:.1f}" height="{_BAR - 6}" '
            f'fill="{colour}"/>'
        )
    end = _LEFT + max((left + width for left, width, _ in pieces), default=0.0)
    yield f'<text x="{end + 6:.1f}" y="{y + 15}">{escape(told)}</text>'


def _curve(given: ComparisonSetting, kind: str) -> str:
    """Cost against use, with the offers as lines: where they meet, owning begins to pay."""
    height, most = 200, (given.own.per_hour(0.1) or 0.0)
    if not most:
        return "<p>An own GPU hour costs nothing.</p>"

    def x(use: float) -> float:
        return _LEFT + use * (_WIDTH - _LEFT - 110)

    def y(cost: float) -> float:
        return height - min(cost, most) / most * (height - 10)

    points = [(use / 100, given.own.per_hour(use / 100) or 0.0) for use in range(10, 101, 2)]
    path = " ".join(f"{x(use):.1f},{y(cost):.1f}" for use, cost in points)
    lines = [f'<polyline fill="none" stroke="#4878cf" stroke-width="2" points="{path}"/>']
    lines += [
        f'<text x="{x(use):.0f}" y="{height + 15}">{100 * use:.0f} %</text>'
        for use in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    lines.append(f'<text x="0" y="15">{most:.2f}</text><text x="0" y="{height}">0.00</text>')
    for spot in (False, True):
        offer = given.offers.middle(kind, spot=spot)
        if offer is not None:
            price = offer.micro / MICRO
            even = given.own.break_even(price)
            told = "" if even is None else f", pays from {100 * even:.0f} %"
            lines.append(
                f'<line x1="{x(0):.0f}" x2="{x(1):.0f}" y1="{y(price):.1f}" y2="{y(price):.1f}" '
                f'stroke="#d65f5f"/><text x="{x(0) + 5:.0f}" y="{y(price) - 4:.1f}">'
                f"{escape(kind)} {price:.2f}{told}</text>"
            )
    if given.use:
        lines.append(
            f'<line x1="{x(given.use):.1f}" x2="{x(given.use):.1f}" y1="0" y2="{height}" '
            f'stroke="#888" stroke-dasharray="4"/>'
        )
    return f'<svg width="{_WIDTH}" height="{height + 20}">{"".join(lines)}</svg>'


def _inputs(own: Ownership) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}<td>{getattr(own, name):g}<td>{escape(source)}"
        for name, source in SOURCES.items()
    )
    costs = "".join(
        f"<tr><td>{name}<td>{cost:,.0f} a node and year<td>" for name, cost in own.items().items()
    )
    return f"<table>{rows}</table><table>{costs}</table>"


def _svg(lines: Sequence[str], rows: int) -> str:
    return f'<svg width="{_WIDTH}" height="{rows * _BAR}">{"".join(lines)}</svg>'
