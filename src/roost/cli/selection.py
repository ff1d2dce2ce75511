"""Jobs by what they have in common: for ``cancel``, ``delete`` and ``rerun`` of many at once.

Nothing happens before it was said which jobs are meant, and somebody agreed: on a terminal by an
answer, elsewhere by ``--yes``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.cli import connection
from roost.cli.jobs import StateList
from roost.cli.parameter_types import option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.client import Client, JobView

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN = 10
_OPTIONS = (
    option(
        "-s",
        "--state",
        "states",
        section="Which",
        type=StateList(),
        metavar="STATE,...",
        multiple=True,
        shell_complete=connection.complete_states,
        help="In one of these states.",
    ),
    option(
        "--user", section="Which", metavar="NAME", help="Of a user: all, a name; by default me."
    ),
    option("--dry-run", section="Run", is_flag=True, help="Say which jobs, and stop."),
    connection.yes_option,
)
name_option = option(
    "--name", section="Which", metavar="GLOB", help="Of this name or id, such as 'resnet-*'."
)
label_option = option(
    "--label",
    section="Which",
    metavar="KEY=VALUE",
    multiple=True,
    help="With this label; several must all be there.",
)
#: Optional here: without any, options say which.
jobs_argument = click.argument(
    "jobs", nargs=-1, metavar="[JOB]...", shell_complete=connection.complete_jobs
)


def selection_options(command: F) -> F:
    """The options that say which jobs are meant, besides names and labels."""
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return command


def is_selected(given: dict[str, Any]) -> bool:
    """Whether an option says which jobs are meant."""
    return any(given.get(name) for name in ("states", "user", "name", "label", "everything"))


def selected(client: Client, given: dict[str, Any], usual: Iterable[str]) -> list[JobView]:
    """The jobs that are meant, the oldest first; ``usual`` are their states if none is given."""
    pattern = given.get("name") or "*"
    states = [state for text in given["states"] for state in text.split(",")]
    user = given.get("user") or "me"
    filters: dict[str, Any] = {
        "state": states or list(usual),
        "label": list(given.get("label") or ()),
        "user": [] if user == "all" else user if user != "me" else str(client.whoami()["user"]),
        # The server looks for parts of names; what comes before the first wildcard is one.
        "name": re.split(r"[*?\[]", pattern)[0][:80] if _is_pattern(pattern) else "",
        "sort": "submitted_at",
    }
    found = client.jobs(**filters)
    return [view for view in found if any(fnmatchcase(x, pattern) for x in (view.name, view.id))]


def chosen(
    ctx: click.Context,
    verb: str,
    jobs: tuple[str, ...],
    given: dict[str, Any],
    usual: Iterable[str],
) -> tuple[str, ...]:
    """The ids of the jobs that are meant, after somebody agreed; ends where nobody does."""
    if jobs:
        if is_selected(given):
            raise InvalidSpec("JOB and options that say which jobs exclude each other")
        if not given.get("dry_run"):
            return jobs
    elif not is_selected(given):
        raise InvalidSpec(
            "say which jobs: by id or name, or with --state, --label, --name or --user"
        )
    with connection.connect() as client:
        views = [client.job(job).view for job in jobs] or selected(client, given, usual)
    if not views:
        connection.note(f"nothing to {verb}")
        ctx.exit(0)
    for line in _told(views):
        connection.note(line)
    if given.get("dry_run"):
        ctx.exit(0)
    from roost.client.formatting import count

    many = count(len(views), "job")
    if not given["yes"] and not connection.on_terminal():
        raise InvalidSpec(f"{many}: nobody can be asked here; to {verb} them, say --yes")
    if not connection.agreed(f"{verb.capitalize()} {many}?", yes=given["yes"], usual=False):
        ctx.exit(1)
    return tuple(view.id for view in views)


def _told(views: Sequence[JobView]) -> list[str]:
    """The first of them, and how many there are in which state."""
    from roost.client.formatting import clean

    shown = [f"  {clean(view.id)}  {clean(view.user)}  {clean(view.state)}" for view in views]
    more = [f"  and {len(views) - _SHOWN} more"] if len(views) > _SHOWN else []
    states = Counter(clean(view.state) for view in views)
    return [*shown[:_SHOWN], *more, ", ".join(f"{n} {state}" for state, n in states.items())]


def _is_pattern(text: str) -> bool:
    return any(mark in text for mark in "*?[")
