"""A job in the cell of a notebook: a card that stays true while the cell runs.

IPython is used where it is there, never needed: in a terminal the same is a table that is redrawn,
and where changes cannot be shown, a line for each. Everything a job says of itself is escaped.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from roost.client import api, formatting
from roost.client.conversations import Pause, Steps, collected
from roost.client.logs import logs
from roost.client.views import JobView
from roost.errors import RoostError

_LOOK_S = 0.5
_TAIL = 8
_MAX_LINE = 200

#: Readable on white and on black: a notebook does not tell which it is.
_COLOURS = {
    "queued": "#957000",
    "starting": "#1976c5",
    "running": "#1976c5",
    "resizing": "#1976c5",
    "suspended": "#7c68d8",
    "succeeded": "#218838",
    "failed": "#d3372f",
    "cancelled": "#757575",
}
_MARKS = {
    "queued": "…",
    "starting": "▸",
    "running": "▶",
    "resizing": "⇄",
    "suspended": "❚❚",
    "succeeded": "✓",
    "failed": "✗",
    "cancelled": "◼",
}
_CARD = (
    "font:13px/1.5 system-ui,sans-serif;border:1px solid #8886;border-left:4px solid {colour};"
    "border-radius:4px;padding:8px 12px;max-width:46em"
)
_LOG = (
    "font:12px/1.4 ui-monospace,monospace;margin:8px 0 0;padding:6px 8px;background:#8881;"
    "border-radius:3px;white-space:pre-wrap;overflow-wrap:anywhere;max-height:12em;overflow:auto"
)

#: Draws a job with the last lines of its log.
Draw = Callable[[JobView, list[str]], None]


def card(view: JobView, lines: list[str] | None = None, now: float | None = None) -> str:
    """A job as HTML that stands alone: inline styles, no script, everything escaped."""
    colour = _COLOURS.get(view.state, "#757575")
    rows = "".join(
        f'<span style="opacity:.7">{name}</span><span>{html.escape(text)}</span>'
        for name, text in facts(view, time.time() if now is None else now)
        if text
    )
    bar = "" if view.progress is None else _bar(view.progress, colour)
    log = "\n".join(html.escape(formatting.clean(line)) for line in lines or ())
    shown = f'<pre style="{_LOG}">{log}</pre>' if log else ""
    return (
        f'<div style="{_CARD.format(colour=colour)}">'
        f"<div><b>{html.escape(formatting.clean(view.id))}</b> "
        f'<span style="color:{colour};font-weight:600">{_MARKS.get(view.state, "")} '
        f"{html.escape(formatting.clean(view.state))}</span></div>{bar}"
        '<div style="display:grid;grid-template-columns:max-content 1fr;gap:0 1em">'
        f"{rows}</div>{shown}</div>"
    )


def show(job: str) -> Steps[None]:
    """A live view, in the cell of a notebook or in a terminal, until the job is over.

    Interrupting it only stops the looking.
    """
    lines: list[str] = []
    with _drawing() as draw:
        while True:
            view = yield from api.status(job)
            if view.started_at is not None:
                lines = yield from _tail(job, lines)
            draw(view, lines)
            if view.over:
                return
            yield Pause(_LOOK_S)


def facts(view: JobView, now: float) -> Iterator[tuple[str, str]]:
    """What is worth knowing of a job, by name."""
    yield "why", formatting.why(view)
    if view.verdict is not None and view.state == "failed":
        yield "advice", formatting.clean(view.verdict.advice)
    held = f"{formatting.amount(view.gpus_held)} of {formatting.amount(view.gpus)}"
    yield "GPUs", held if not view.over else formatting.amount(view.gpus)
    if view.elastic and not view.over:
        yield "workers", formatting.workers(view)
    yield "sharing", formatting.sharing(view)
    yield "memory", formatting.memory(view)
    yield "where", formatting.places(view)
    yield "queue", formatting.clean(view.queue)
    yield "submitted", formatting.ago(view.submitted_at, now)
    yield "ran", "" if view.started_at is None else formatting.span(formatting.ran(view, now))
    yield "loss", "" if view.loss is None else f"{view.loss:.4g}"
    yield "training", formatting.training(view)
    yield "changed", "" if view.change is None else formatting.clean(view.change.text)
    yield "attempt", str(view.attempt) if view.attempt > 1 else ""


def _bar(progress: float, colour: str) -> str:
    part = 100 * min(max(progress, 0.0), 1.0)
    return (
        '<div style="background:#8883;border-radius:2px;height:6px;margin:6px 0" '
        f'role="progressbar" aria-valuenow="{part:.0f}" title="{part:.0f} %">'
        f'<div style="background:{colour};width:{part:.1f}%;height:6px;border-radius:2px"></div>'
        "</div>"
    )


def _tail(job: str, known: list[str]) -> Steps[list[str]]:
    """The last lines of the log; a view without one is a view still."""
    try:
        lines = yield from collected(logs(job, tail=_TAIL))
    except RoostError:
        return known
    return [line[:_MAX_LINE] for line in lines]


@contextmanager
def _drawing() -> Iterator[Draw]:
    cell = _in_notebook()
    if cell is not None:
        yield cell
    elif sys.stdout.isatty():
        with _in_terminal() as draw:
            yield draw
    else:
        yield _in_lines()


def _in_notebook() -> Draw | None:
    """Draws into the output of the cell, if this is a notebook."""
    try:
        from IPython import get_ipython  # type: ignore[import-not-found] # noqa: PLC0415
        from IPython.display import HTML, display  # type: ignore[import-not-found] # noqa: PLC0415
    except ImportError:
        return None
    shell: Any = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    shown: list[Any] = []

    def draw(view: JobView, lines: list[str]) -> None:
        page = HTML(card(view, lines))
        if shown:
            shown[0].update(page)
        else:
            shown.append(display(page, display_id=True))

    return draw


@contextmanager
def _in_terminal() -> Iterator[Draw]:
    from rich.console import Group  # noqa: PLC0415 - for a terminal only
    from rich.live import Live  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def drawn(view: JobView, lines: list[str]) -> Group:
        table = Table.grid(padding=(0, 2))
        for name, text in facts(view, time.time()):
            if text:
                table.add_row(Text(name, style="dim"), Text(text))
        head = Text(f"{formatting.clean(view.id)}  {formatting.clean(view.state)}", style="bold")
        return Group(head, table, *(Text(formatting.clean(line)) for line in lines))

    with Live(refresh_per_second=4) as live:
        yield lambda view, lines: live.update(drawn(view, lines))


def _in_lines() -> Draw:
    told: list[str] = []

    def draw(view: JobView, _lines: list[str]) -> None:
        reason = formatting.why(view)
        line = f"{formatting.clean(view.id)}  {formatting.clean(view.state)}" + (
            f"  {reason}" if reason else ""
        )
        if told[-1:] != [line]:
            told.append(line)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    return draw
