"""A progress bar on standard error: jobs over, and how far virtual time has come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from roost.cli.output import duration


@contextmanager
def watching(labels: Sequence[str]) -> Iterator[Callable[[int, float, int, int], None] | None]:
    """A bar per run; nothing where nobody looks (standard error is not a terminal)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs, simulated {task.fields[virtual]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        tasks = [bar.add_task(label, total=None, virtual="0 s") for label in labels]

        def watch(index: int, now: float, done: int, total: int) -> None:
            bar.update(tasks[index], completed=done, total=total or None, virtual=duration(now))

        yield watch
