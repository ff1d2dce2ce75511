"""Shows the demo while it runs: a table that changes on a terminal, else lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, Self

import click

if TYPE_CHECKING:
    from rich.console import Group

    from roost.client import JobView

_BAR = 14
_COLOURS = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "cyan",
    "resizing": "cyan",
    "succeeded": "green",
    "failed": "red",
}


class Board(Protocol):
    """Shows jobs as they are, and tells what is worth a line."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def show(self, views: Mapping[str, JobView]) -> None:
        """Jobs as they are now."""

    def note(self, text: str) -> None:
        """Something that happened."""


def board() -> Board:
    """A table on a terminal, lines elsewhere."""
    return ScreenBoard() if sys.stdout.isatty() else LineBoard()


class LineBoard:
    """A line for each change of a state."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seen: dict[str, tuple[str, int]] = {}
        self._changes = _Changes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, views: Mapping[str, JobView]) -> None:
        """Tell what is new."""
        for line in self._changes.new(views):
            self.note(line)
        for name, view in views.items():
            now = (view.state, view.attempt)
            if self._seen.get(name) != now and view.state != "resizing":
                self._seen[name] = now
                self.note(f"{name}: {_state(view)}")

    def note(self, text: str) -> None:
        """A line with its time."""
        click.echo(f"{stamp(self._began)}  {text}")
        sys.stdout.flush()


class ScreenBoard:
    """A table that is drawn again and again; what happened stays above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._began = time.monotonic()
        self._live = Live(console=Console(highlight=False), refresh_per_second=8, transient=True)
        self._changes = _Changes()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, views: Mapping[str, JobView]) -> None:
        """Draw the table."""
        for line in self._changes.new(views):
            self.note(line)
        self._live.update(_picture(views, stamp(self._began).strip()))

    def note(self, text: str) -> None:
        """A line above the table."""
        self._live.console.print(f"{stamp(self._began)}  {text}", markup=False)


class _Changes:
    """Tells each change of a job's size once."""

    def __init__(self) -> None:
        self._told: set[tuple[str, float]] = set()

    def new(self, views: Mapping[str, JobView]) -> Iterator[str]:
        """What was not told yet."""
        for name, view in views.items():
            change = view.change
            if change is None or change.before == change.after or not change.before:
                continue
            if (name, change.at) not in self._told:
                self._told.add((name, change.at))
                yield f"{name}: {change.text}"


def stamp(began: float) -> str:
    """How long ago that was."""
    return f"{time.monotonic() - began:5.1f} s"


def _picture(views: Mapping[str, JobView], passed: str) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from roost.client import formatting

    table = Table(box=None, padding=(0, 2, 0, 0), expand=True)
    for head in ("JOB", "WORKERS", "STATE", "DONE", "LOSS", "TRY"):
        right = head in ("WORKERS", "LOSS", "TRY")
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    table.add_column("WHY", ratio=1, no_wrap=True)
    for name, view in views.items():
        done = 1.0 if view.state == "succeeded" else view.progress or 0.0
        table.add_row(
            name,
            formatting.workers(view),
            Text(view.state, _COLOURS.get(view.state, "")),
            ProgressBar(total=1.0, completed=done, width=_BAR),
            "" if view.loss is None else f"{view.loss:.3f}",
            str(view.attempt or ""),
            Text(formatting.why(view), "dim"),
        )
    return Group(table, Text(f"after {passed}", "dim"))


def _state(view: JobView) -> str:
    from roost.client import formatting

    if view.state == "queued":
        return f"queued: {formatting.why(view)}"
    again = f", attempt {view.attempt}" if view.attempt > 1 else ""
    return f"{view.state}{again}"
