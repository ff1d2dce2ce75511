"""A progress bar on standard error: jobs over, and how far virtual time has come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from roost.cli.output import duration

#: With more runs than that, those which are over make room for the others.
_SCREEN = 16


def on_terminal() -> bool:
    """Whether standard error is a terminal; it may be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def watching(
    labels: Sequence[str], *, show: bool | None = None
) -> Iterator[Callable[[int, float, int, int], None] | None]:
    """A bar per run that has begun; only on a terminal, unless ``show`` says otherwise."""
    if show is False or (show is None and not on_terminal()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs, simulated {task.fields[virtual]}"),
        console=Console(stderr=True, force_terminal=show),
        transient=True,
    )
    with bar:
        tasks = [bar.add_task(label, total=None, visible=False, virtual="") for label in labels]

        def watch(index: int, now: float, done: int, total: int) -> None:
            bar.update(
                tasks[index],
                completed=done,
                total=total,
                visible=total > 0 and (done < total or len(labels) <= _SCREEN),
                virtual=duration(now),
            )

        yield watch
