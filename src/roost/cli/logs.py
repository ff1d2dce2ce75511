"""``roost logs``: what a job wrote, and what it writes."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec, RoostError

if TYPE_CHECKING:
    from roost.client import JobHandle

#: So many lines are printed at a time.
_TOGETHER = 1000


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost logs resnet-x7k2p
  roost logs -f resnet-x7k2p --tail 20
  roost logs resnet-x7k2p --all
  roost logs resnet-x7k2p --worker ps-0 --attempt 1""",
)
@click.argument("job", shell_complete=connection.complete_jobs)
@option("-f", "--follow", section="Which", is_flag=True, help="Go on until the job is over.")
@option(
    "--tail", section="Which", type=click.IntRange(0, 10_000), metavar="N", help="The last lines."
)
@option("--worker", section="Which", metavar="NAME", default="", help="Such as worker-1 or ps-0.")
@option("--all", "everyone", section="Which", is_flag=True, help="All workers, each line named.")
@option(
    "--attempt",
    section="Which",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    help="This attempt; by default the newest.",
)
def logs(
    job: str,
    everyone: bool,  # noqa: FBT001 - click passes flags
    follow: bool,  # noqa: FBT001
    **asked: Any,
) -> None:
    """Print what the job JOB wrote.

    On a terminal, colours are kept and other control characters made visible; elsewhere
    everything is as it was written, but for bytes that are no UTF-8.
    """
    if everyone and asked["worker"]:
        raise InvalidSpec("--worker and --all exclude each other")
    with connection.connect() as client:
        handle = client.job(job)
        _tell_that_it_waits(handle)
        if follow:
            heard = _merged(handle, asked) if everyone else followed(handle, **asked)
            for lines in heard:
                tell(lines)
            return
        every = _everyone(handle, asked) if everyone else handle.logs(**asked)
        while some := list(islice(every, _TOGETHER)):
            tell(some)


def _tell_that_it_waits(handle: JobHandle) -> None:
    """A job that never ran has no log; its reader should not wonder why."""
    view = handle.view
    if view.started_at is None and not view.attempt and not view.over:
        from roost.client.formatting import clean

        job = clean(view.id)
        connection.note(f"roost: {job} is {clean(view.state)}; why: roost explain {job}")


def followed(
    handle: JobHandle, worker: str = "", attempt: int = 0, tail: int | None = None
) -> Iterator[list[str]]:
    """Lines until the job is over, as they come; a further attempt is told beside them."""
    from roost.client.logs import LogCursor, pieces

    place, known = LogCursor(handle.id, worker, attempt), 0
    for number, lines in handle.client.iterate(pieces(place, tail)):
        if known and number != known:
            connection.note(f"roost: attempt {number} of {handle.id}")
        known = number
        yield lines


def tell(lines: Iterable[str]) -> None:
    """Print lines of a log, at once for people that look on."""
    shown = map(connection.log_text, lines) if sys.stdout.isatty() else lines
    sys.stdout.write("".join(f"{line}\n" for line in shown))
    sys.stdout.flush()


def _everyone(handle: JobHandle, asked: dict[str, Any]) -> Iterator[str]:
    """The lines of all workers, one worker after the other."""
    for head, lines in _readers(handle, asked).items():
        yield from (head + line for line in lines)


def _readers(handle: JobHandle, asked: dict[str, Any]) -> dict[str, Iterator[str]]:
    """The lines of each worker, by what is put before them."""
    # Asked once: workers that an elastic job gets later are not followed.
    names = handle.workers(asked["attempt"]) or ["worker-0"]
    width = max(map(len, names))
    return {f"{name:<{width}} | ": handle.logs(**{**asked, "worker": name}) for name in names}


def _merged(handle: JobHandle, asked: dict[str, Any]) -> Iterator[list[str]]:
    """Lines of all workers as they come, each after its head."""
    readers = _readers(handle, {**asked, "follow": True})
    # Unbounded on purpose: a slow terminal must not stop the streams, or the server drops them.
    lines: queue.SimpleQueue[str | RoostError | None] = queue.SimpleQueue()

    def read(head: str) -> None:
        try:
            for line in readers[head]:
                lines.put(head + line)
        except RoostError as error:
            lines.put(error)
        lines.put(None)

    # A thread for each stream, because reading one blocks. Daemons: after an error or Ctrl-C the
    # others are left waiting on their sockets.
    for head in readers:
        threading.Thread(target=read, args=(head,), daemon=True).start()
    # Each thread puts one None when it is done, after an error too.
    left = len(readers)
    while left:
        match lines.get():
            case None:
                left -= 1
            case RoostError() as error:
                raise error
            case str() as line:
                yield [line]
