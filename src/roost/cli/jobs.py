"""``roost list`` and ``roost get``: jobs, many or one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from roost.cli import connection
from roost.cli.files import places
from roost.cli.job_files import print_spec, told_of
from roost.cli.output import print_table, table_lines
from roost.cli.parameter_types import Verb, option
from roost.client.views import STATES

if TYPE_CHECKING:
    from roost.client import Client, JobView, Page

#: The list is drawn again at least this often: times on the screen grow.
_REDRAW_S = 1.0
#: Columns that a narrow screen can do without, the first to go first.
_SPARE = ("queue", "workers", "submitted", "done")
_NONE = "no jobs; hand one in with: roost submit -- python train.py"


class StateList(click.ParamType[str]):
    """One state, or several with commas between them."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The states as they were typed, if there are such."""
        for state in str(value).split(","):
            if state not in STATES:
                self.fail(f"{state!r} is not one of {', '.join(STATES)}", param, ctx)
        return str(value)


@click.command(
    "list",
    cls=Verb,
    epilog="""\b
Examples:
  roost list
  roost list -A -s queued,running --sort -gpus
  roost list --name resnet --label team=vision -o wide
  roost list -s failed -o name
  roost list -w""",
)
@option("-A", "--all-users", section="Which", is_flag=True, help="Jobs of all users.")
@option("--user", section="Which", metavar="NAME", default="me", help="Of a user: me, all, a name.")
@option(
    "-s",
    "--state",
    "states",
    section="Which",
    type=StateList(),
    metavar="STATE,...",
    multiple=True,
    shell_complete=connection.complete_states,
    help="In one of these states.",
)
@option(
    "-q",
    "--queue",
    section="Which",
    metavar="NAME",
    multiple=True,
    shell_complete=connection.complete_queues,
    help="In this queue.",
)
@option("--name", section="Which", metavar="TEXT", default="", help="With this in the name.")
@option("--label", section="Which", metavar="KEY=VALUE", multiple=True, help="With this label.")
@option(
    "--sort",
    section="Output",
    metavar="[-]FIELD",
    default="-submitted_at",
    show_default=True,
    shell_complete=connection.complete_sorts,
    help="By submitted_at, started_at, finished_at, name, user, queue, state, priority or gpus; "
    "with - the largest first.",
)
@option(
    "--limit",
    section="Output",
    type=click.IntRange(1, 200),
    metavar="N",
    default=50,
    show_default=True,
    help="So many at once.",
)
@option(
    "--offset",
    section="Output",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    help="After the first so many.",
)
@option(
    "-L",
    "--label-column",
    "columns",
    section="Output",
    metavar="KEY,...",
    multiple=True,
    help="A column for the label KEY, to tell jobs apart.",
)
@option("-w", "--watch", section="Output", is_flag=True, help="Go on showing what changes.")
@connection.list_output_option
@click.pass_context
def list_jobs(
    ctx: click.Context,
    /,
    all_users: bool,  # noqa: FBT001 - click passes flags
    user: str,
    watch: bool,  # noqa: FBT001
    output: str,
    **asked: Any,
) -> None:
    """List jobs, the newest first."""
    with connection.connect() as client:
        user = "all" if all_users else user
        filters = _filters(client, user, asked)
        labels = tuple(key for text in asked["columns"] for key in text.split(",") if key)
        columns = _Columns(output == "wide", "user" not in filters, labels)
        if watch:
            _watch(client, filters, output, columns)
            return
        if output == "name":
            if ctx.get_parameter_source("limit") is ParameterSource.DEFAULT:
                del filters["limit"]  # a pipe wants them all
            _print_names(client, filters)
            return
        page = client.page(**filters)
        filtered = _filtered(filters) or user not in ("me", "all")
        others = 0 if page.total or filtered else client.page(limit=1).total
    if not connection.printed(page.raw, output):
        if others:
            click.echo(f"no jobs of yours; with the {others:,} of others: roost list -A")
            return
        _print(page, columns, filtered=filtered)


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost get resnet-x7k2p
  roost get resnet -o yaml
  roost get resnet --spec""",
)
@click.argument("job", shell_complete=connection.complete_jobs)
@option("--spec", section="Output", is_flag=True, help="Print the job file that makes it again.")
@connection.output_option
def get(job: str, spec: bool, output: str) -> None:  # noqa: FBT001 - click passes flags
    """Show the job JOB: an id, or the name of one job."""
    with connection.connect() as client:
        handle = client.job(job)
        if spec:
            print_spec(handle, output)
            return
        view = handle.view
        if connection.printed(view.raw, output):
            return
        asked = {**told_of(handle), "files": places(client, view)}
        for line in described(view, connection.now(), wide=output == "wide", asked=asked):
            click.echo(line)


class _Columns(NamedTuple):
    """The columns besides the usual ones: all, users, labels."""

    wide: bool = False
    users: bool = False
    labels: tuple[str, ...] = ()


def rows(views: Sequence[JobView], now: float, columns: _Columns) -> list[dict[str, str]]:
    """Jobs as a table: GPUs and workers are had/asked."""
    from roost.client import formatting

    return [
        {
            "job": formatting.clean(view.id),
            **({"user": formatting.clean(view.user)} if columns.wide or columns.users else {}),
            **({"prio": str(view.priority)} if columns.wide else {}),
            "state": formatting.clean(view.state),
            "queue": formatting.clean(view.queue),
            "gpus": f"{formatting.amount(view.gpus_held)}/{formatting.amount(view.gpus)}"
            + ("+" if view.gpus_held > view.gpus else ""),
            "workers": formatting.workers(view),
            "done": "-" if view.progress is None else f"{100 * view.progress:.0f}%",
            "submitted": formatting.clock(view.submitted_at)
            if columns.wide
            else formatting.ago(view.submitted_at, now),
            **({"started": formatting.clock(view.started_at)} if columns.wide else {}),
            **({"finished": formatting.clock(view.finished_at)} if columns.wide else {}),
            "ran": formatting.span(formatting.ran(view, now)),
            **({"share": formatting.amount(view.share)} if columns.wide else {}),
            **({"tries": str(view.attempt), "moved": _moved(view)} if columns.wide else {}),
            **{key: formatting.clean(view.labels.get(key, "-")) for key in columns.labels},
            "where and why": "  ".join(
                filter(None, (formatting.places(view), formatting.why(view)))
            ),
        }
        for view in views
    ]


def footer(page: Page[JobView], *, filtered: bool = True) -> str:
    """One line below the table: how many in which state, and what is not shown."""
    from roost.client import formatting

    if not page.items:
        if page.total:
            return f"no more jobs: there are {page.total:,}"
        return "no jobs match" if filtered else _NONE
    held, asked = (
        # What a finished job once asked for is no demand any more.
        formatting.amount(sum(getattr(view, name) for view in page if not view.over))
        for name in ("gpus_held", "gpus")
    )
    many = formatting.count(len(page), "job")
    more = "+" if any(view.gpus_held > view.gpus for view in page) else ""
    line = f"{many}: {formatting.footer(page)}; GPUs held/asked: {held}/{asked}{more}"
    end = page.offset + len(page)
    if end < page.total:
        line += f"; {page.total - end:,} more: --offset {end}"
    return line


def described(
    view: JobView, now: float, *, wide: bool, asked: Mapping[str, str] | None = None
) -> Iterator[str]:
    """One job, told at length; ``asked`` is what its job file says, and its files."""
    from roost.client import formatting

    yield f"{formatting.clean(view.id)}  {connection.paint('state', formatting.clean(view.state))}"
    facts = {**_facts(view, now), **(asked or {}), **(_more(view) if wide else {})}
    for name, text in facts.items():
        if text:
            yield connection.fact(name, text)
    if view.over:
        yield f"Next: roost logs {view.id} · roost events {view.id} · roost rerun {view.id}"
    elif view.held and view.state == "suspended":
        yield f"Next: roost resume {view.id} · roost logs {view.id} · roost cancel {view.id}"
    else:
        yield f"Next: roost logs -f {view.id} · roost explain {view.id} · roost cancel {view.id}"


def _facts(view: JobView, now: float) -> dict[str, str]:
    from roost.client import formatting
    from roost.client.formatting import ago, clean, clock

    def when(moment: float | None) -> str:
        return "" if moment is None else f"{clock(moment)} ({ago(moment, now)})"

    failure = formatting.verdict(view, evidence=True)
    loss = "" if view.loss is None else f", loss {view.loss:.4g}"
    return {
        "why": failure
        if view.state == "failed" and failure
        else " · ".join(filter(None, (clean(view.cause), clean(view.reason)))),
        "last time": "" if view.state == "failed" else failure,
        "user": clean(view.user),
        "queue": f"{clean(view.queue)}, "
        + ("a guest" if view.priority < 0 else f"priority {view.priority}"),
        **({"promise": clean(view.promise)} if view.promise else {}),
        "GPUs": _gpus(view) + (f" ({', '.join(map(clean, view.kinds))})" if view.kinds else ""),
        "sharing": formatting.sharing(view),
        "memory": formatting.memory(view),
        "note": clean(view.note),
        "bound": clean(view.restraint),
        "workers": formatting.workers(view) + (" (elastic)" if view.elastic else ""),
        "where": formatting.places(view),
        "progress": "" if view.progress is None else f"{100 * view.progress:.0f} %{loss}",
        "training": formatting.training(view),
        "busy": "" if view.busy is None else f"{100 * view.busy:.0f} % of the time of its devices",
        "changed": ""
        if view.change is None
        else f"{clean(view.change.text)} ({ago(view.change.at, now)})",
        "cloned": f"from {clean(view.clone_of)}" if view.clone_of else "",
        "rerun": f"of {clean(view.rerun_of)}" if view.rerun_of else "",
        "submitted": when(view.submitted_at),
        "started": when(view.started_at),
        "finished": when(view.finished_at),
        "ran": "" if view.started_at is None else formatting.span(formatting.ran(view, now)),
        "expected": "" if view.run_time_s is None else formatting.span(view.run_time_s),
        "exit code": "" if view.exit_code is None else str(view.exit_code),
        "attempt": _attempts(view),
        "labels": " ".join(f"{clean(key)}={clean(text)}" for key, text in view.labels.items()),
    }


def _gpus(view: JobView) -> str:
    """What it holds, of what it asked for: an elastic job asks for the least it can do with."""
    from roost.client.formatting import amount

    held, asked = amount(view.gpus_held), amount(view.gpus)
    if view.elastic:
        return f"{held} held, at least {asked} asked"
    return f"{held} held of {asked} asked"


def _more(view: JobView) -> dict[str, str]:
    from roost.client.formatting import clean

    return {
        "program": clean(view.application),
        "revision": str(view.rev),
        "flags": " ".join(name for name in ("held", "cancelling") if getattr(view, name)),
    }


def _attempts(view: JobView) -> str:
    counts = (
        (view.failures, "failed"),
        (view.preemptions, "preempted"),
        (view.resizes, "resized"),
    )
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    return str(view.attempt) + (f" ({told})" if told else "") if view.attempt else ""


def _moved(view: JobView) -> str:
    return f"{view.preemptions}/{view.resizes}/{view.failures}"


def _filters(client: Client, user: str, asked: dict[str, Any]) -> Any:
    """Turn the typed options into the filters of the API."""
    filters = {
        "state": [state for states in asked["states"] for state in states.split(",")],
        "queue": list(asked["queue"]),
        "name": asked["name"],
        "label": list(asked["label"]),
        "sort": asked["sort"],
        "limit": asked["limit"],
        "offset": asked["offset"],
    }
    if user == "me":
        me = client.whoami()
        # A viewer has no jobs: "me" would always be an empty list.
        return filters if me.get("role") == "viewer" else {**filters, "user": str(me["user"])}
    return filters if user == "all" else {**filters, "user": user}


def _filtered(filters: Any) -> bool:
    return any(filters[name] for name in ("state", "queue", "name", "label"))


def _print(page: Page[JobView], columns: _Columns, *, filtered: bool) -> None:
    table = rows(page.items, connection.now(), columns)
    shown = connection.fitted(table, wide=columns.wide, spare=_SPARE)
    print_table(shown, connection.paint)
    click.echo(footer(page, filtered=filtered))


def _print_names(client: Client, filters: Any) -> None:
    from roost.client.formatting import clean

    for view in client.jobs(**filters):
        click.echo(clean(view.id))


def _watch(client: Client, filters: Any, output: str, columns: _Columns) -> None:
    import sys

    # A screen that is drawn over and over is of no use in a pipe or a file.
    if output in ("json", "yaml", "name") or not sys.stdout.isatty():
        _tell_changes(client, filters, output)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    changed = _listening(client)
    # No refresh by itself: rich would draw from a thread of its own, in between ours.
    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            # The whole page again: a change may move a job into the filter, or out of it, or up.
            page = client.page(**filters)
            table = rows(page.items, connection.now(), columns)
            shown = connection.fitted(table, wide=False, spare=_SPARE)
            below = footer(page, filtered=_filtered(filters))
            lines = [*table_lines(shown, connection.paint), below, "Ctrl-C ends"]
            live.update(Text.from_ansi("\n".join(lines)), refresh=True)
            changed()


def _listening(client: Client) -> Callable[[], None]:
    """Waits for the next change, or a moment: durations on the screen grow in any case."""
    news = threading.Event()  # no queue: many changes at once need one redraw

    def listen() -> None:
        from roost.errors import RoostError

        try:
            for _ in client.watch():
                news.set()
        except RoostError:  # the next look at the list says so
            news.set()

    # A daemon: it waits on a socket for as long as the server likes, and must not keep us alive.
    threading.Thread(target=listen, daemon=True).start()

    def wait() -> None:
        # Cleared before the list is read again: a change after that sets it once more.
        news.wait(_REDRAW_S)
        news.clear()

    return wait


def _tell_changes(client: Client, filters: Any, output: str) -> None:
    """Print a line for each change, for pipes."""
    import json

    from roost.client.formatting import clean, clock, why

    # The stream has changes of all jobs that the caller may see: the filters are applied here.
    for view in client.watch():
        if not _matches(view, filters):
            continue
        if output == "name":
            click.echo(clean(view.id))
        elif output == "json":
            click.echo(json.dumps(view.raw))
        elif output == "yaml":
            click.echo("---")
            connection.printed(dict(view.raw), "yaml")
        else:
            told = f"{clock(connection.now())}  {clean(view.id)}  {clean(view.state)}  {why(view)}"
            click.echo(told.rstrip())


def _matches(view: JobView, filters: Any) -> bool:
    labels = [text.partition("=") for text in filters["label"]]
    return (
        (not filters["state"] or view.state in filters["state"])
        and (not filters["queue"] or view.queue in filters["queue"])
        and view.user == filters.get("user", view.user)
        and filters["name"] in view.name
        and all(view.labels.get(key) == value for key, _, value in labels)
    )
