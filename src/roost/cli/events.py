"""``roost events``: what happened, one line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from roost.cli import connection
from roost.cli.parameter_types import Verb, option

if TYPE_CHECKING:
    from roost.client import Client, EventView


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost events
  roost events resnet-x7k2p
  roost events -f""",
)
@click.argument("job", required=False, shell_complete=connection.complete_jobs)
@option("-f", "--follow", section="Which", is_flag=True, help="Go on showing what happens.")
@option("--kind", section="Which", metavar="KIND", default="", help="Only of this kind.")
@option(
    "--limit",
    section="Output",
    type=click.IntRange(0),
    metavar="N",
    default=50,
    show_default=True,
    help="The last so many.",
)
@connection.output_option
def events(
    job: str | None,
    follow: bool,  # noqa: FBT001 - click passes flags
    kind: str,
    limit: int,
    output: str,
) -> None:
    """Say what happened to the job JOB, or to all: time [actor] [object] old -> new. Reason."""
    with connection.connect() as client:
        name = client.job(job).id if job else ""
        found = client.history(name, kind, limit)
        if not follow:
            if not connection.printed([dict(event.raw) for event in found], output):
                for event in found:
                    click.echo(told(event))
            return
        for event in _going_on(client, found, name, kind):
            click.echo(json.dumps(event.raw) if output == "json" else told(event))


def told(event: EventView) -> str:
    """One event on one line."""
    from roost.client.formatting import clean, clock

    what = event.job or event.node or event.kind
    change = f"{event.old} -> {event.new}" if event.old and event.new else event.new or event.kind
    reason = f". {clean(event.text)}" if event.text else ""
    return (
        f"{clock(event.time)} [{clean(event.actor) or '-'}] [{clean(what)}] {clean(change)}{reason}"
    )


def _going_on(client: Client, found: list[EventView], job: str, kind: str) -> Iterator[EventView]:
    """Past lines, then new ones as they come, each once."""
    from roost.client import streams
    from roost.client.views import event_view

    seen = (0, 0)
    for event in found:
        seen = (event.seq, event.n)
        yield event
    for what, data in client.iterate(streams.changes()):
        news: list[EventView] = []
        if what == "snapshot" and seen == (0, 0):
            seen = (int(data.get("seq", 0)), sys.maxsize)
        elif what == "snapshot":
            news = client.history(job, kind, after=seen[0])
        else:
            news = [event_view(event) for event in data.get("events", ())]
        for event in news:
            if (event.seq, event.n) <= seen:
                continue
            seen = (event.seq, event.n)
            if job in ("", event.job) and kind in ("", event.kind):
                yield event
