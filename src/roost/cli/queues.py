"""``roost queues``: the queues and their promises."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Noun, Number, Verb, option
from roost.errors import Conflict, InvalidSpec, RoostError, unknown

if TYPE_CHECKING:
    from roost.client import Client

_WHOLE = 1000
_MOST = 10**9
#: What stays as it is, unless it is told.
_KEPT = ("weight", "priority", "submitters", "cells", "overflows")


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost queues
  roost queues set vision --quota 8 --weight 2 --submitters ada,bob
  roost queues set vision --cells 2xnode:A100
  roost queues import hivedscheduler.yaml
  roost queues delete vision""",
)
def queues() -> None:
    """List the queues, or change them."""


@queues.command("list", cls=Verb)
@connection.output_option
def list_queues(output: str) -> None:
    """List the queues (also without the word list)."""
    from roost.cli.top import queue_lines

    with connection.connect() as client:
        found = client.queues()
    if not connection.printed(found, output):
        for line in queue_lines(found):
            click.echo(line)


@queues.command(
    "set",
    cls=Verb,
    epilog="""\b
Examples:
  roost queues set vision --quota 4 --limit 8 --submitters ada,bob
  roost queues set vision --limit none --weight 2
  roost queues set vision --cells 2xnode:A100,1xswitch
  roost queues set vision --cells none""",
)
@click.argument("name", shell_complete=connection.complete_queues)
@option("--quota", section="Change", metavar="GPUS|none", help="What it is promised.")
@option("--limit", section="Change", metavar="GPUS|none", help="What it may have at most.")
@option(
    "--cells",
    section="Change",
    metavar="CELLS|none",
    help="Places it is promised: COUNTxLEVEL[:KIND][*GPUS],... or pin:NODE.",
)
@option(
    "--overflow/--no-overflow",
    "overflows",
    section="Change",
    default=None,
    help="Whether its jobs may also run beyond its cells.",
)
@option("--weight", section="Change", type=Number(), metavar="N", help="Its part of the rest.")
@option("--priority", section="Change", type=int, metavar="N", help="Higher goes first.")
@option(
    "--submitters", section="Change", metavar="NAME,...", help="Who may submit; * is everybody."
)
@connection.output_option
def set_queue(name: str, output: str, **given: Any) -> None:
    """Make the queue NAME, or change what is told; the rest stays as it is."""
    from roost.cli.top import queue_lines

    with connection.connect() as client:
        known = {queue["id"]: queue for queue in client.queues()}.get(name, {})
        settings = _settings(known)
        for key in ("quota", "limit"):
            if given[key] is not None:
                settings[f"{key}_milli"] = _typed(f"--{key}", given[key])
        if given["submitters"] is not None:
            settings["submitters"] = [n for n in given["submitters"].split(",") if n]
        if given["cells"] is not None:
            settings["cells"] = _cells(given["cells"])
        settings |= {
            k: given[k] for k in ("weight", "priority", "overflows") if given[k] is not None
        }
        queue = client.set_queue(name, settings)
        _warn(client, settings, given)
    if not connection.printed(queue, output):
        for line in [*queue_lines([queue])][:-1]:
            click.echo(line)


@queues.command(
    "import",
    cls=Verb,
    epilog="""\b
Examples:
  roost queues import hivedscheduler.yaml --dry-run
  roost queues import hivedscheduler.yaml""",
)
@click.argument("file", type=click.Path(path_type=Path))
@option("--dry-run", section="Change", is_flag=True, help="Show what it says, and change nothing.")
@connection.output_option
@click.pass_context
def import_queues(ctx: click.Context, file: Path, output: str, *, dry_run: bool) -> None:
    """Make the virtual clusters of HiveD's configuration FILE queues with cells.

    A queue that is there keeps all but its cells.
    """
    from roost.cli.top import queue_lines
    from roost.hived import read_hived

    found = read_hived(file, declared=False)
    for note in found.notes:
        connection.note(f"note: {note}")
    cells = {str(queue.id): [*map(str, queue.cells)] for queue in found.queues}
    refused: dict[str, RoostError] = {}
    if dry_run:
        queues = [{"id": name, "cells": told} for name, told in cells.items()]
    else:
        with connection.connect() as client:
            refused = _promise(client, cells)
            queues = [queue for queue in client.queues() if queue["id"] in cells]
    if not connection.printed(queues, output):
        for line in [*queue_lines(queues)][:-1]:
            click.echo(line)
    for error in refused.values():
        connection.note(f"roost: {error}")
    if refused:
        ctx.exit(2)


def _promise(client: Client, cells: dict[str, list[str]]) -> dict[str, RoostError]:
    """Set the cells of queues; those that others have to make room for come later again."""
    known = {queue["id"]: queue for queue in client.queues()}
    left = dict.fromkeys(cells)
    while True:
        refused: dict[str, RoostError] = {}
        for name in left:
            try:
                client.set_queue(name, {**_settings(known.get(name, {})), "cells": cells[name]})
            except (Conflict, InvalidSpec) as error:
                refused[name] = error
        if not refused or len(refused) == len(left):
            return refused
        left = dict.fromkeys(refused)


def _settings(known: dict[str, Any]) -> dict[str, Any]:
    """What a queue has, as it is set."""
    return {
        "quota_milli": _milli(known.get("quota")),
        "limit_milli": _milli(known.get("limit")),
        **{key: known[key] for key in _KEPT if key in known},
    }


@queues.command("delete", cls=Verb)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@connection.yes_option
@click.pass_context
def delete_queue(ctx: click.Context, names: tuple[str, ...], yes: bool) -> None:  # noqa: FBT001
    """Remove queues that no job uses."""
    if not connection.agreed(f"Delete {', '.join(names)}?", yes=yes, usual=False):
        ctx.exit(1)
    with connection.connect() as client:

        def act(name: str) -> str:
            client.delete_queue(name)
            return f"{name}  deleted"

        ctx.exit(connection.each_of(names, act))


def _typed(name: str, text: str) -> int | None:
    """Milli-GPUs from what was typed."""
    if text == "none":
        return None
    try:
        gpus = float(text)
    except (ValueError, OverflowError):
        raise unknown(f"value of {name}:", text, ["8", "0.5", "none"]) from None
    if not 0 <= gpus <= _MOST:
        raise InvalidSpec(f"{name} {text}: a number of GPUs from 0 up, such as 8 or 0.5, or none")
    return _milli(gpus)


def _cells(text: str) -> list[str]:
    """The promises that were typed, one by one; raises InvalidSpec for what is none."""
    from roost.core.cells import parse_promises

    return [] if text.strip() == "none" else [*map(str, parse_promises(text))]


def _warn(client: Client, settings: dict[str, Any], given: dict[str, Any]) -> None:
    """Tell of what is taken, and yet may not be meant."""
    from roost.client.formatting import amount, clean

    if given["submitters"] is not None:
        known = {str(user.get("name")) for user in client.users()} | {"*"}
        for name in settings["submitters"]:
            if name not in known:
                connection.note(f"note: there is no user {clean(name)!r} yet")
    total = sum(float(node.get("gpus", 0)) for node in client.nodes())
    for key, verb in (("quota", "promised"), ("limit", "allowed")):
        gpus = (settings.get(f"{key}_milli") or 0) / _WHOLE
        if given[key] is not None and gpus > total:
            connection.note(
                f"note: {amount(gpus)} GPUs are {verb}; the nodes have {amount(total)} together"
            )


def _milli(gpus: float | None) -> int | None:
    return None if gpus is None else round(gpus * _WHOLE)
