"""``roost nodes``: the machines."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Duration, Noun, Verb, option
from roost.errors import InvalidSpec

_LOOK_EVERY_S = 0.5
_TIMES = ["%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost nodes
  roost nodes -o json
  roost nodes drain n1 --reason "new memory" --wait
  roost nodes undrain n1
  roost nodes disable n1 3 --reason "memory errors"
  roost nodes restore n1 3""",
)
def nodes() -> None:
    """List the nodes, take them out of service, or put them back."""


@nodes.command("list", cls=Verb)
@connection.output_option
def list_nodes(output: str) -> None:
    """List the nodes (also without the word list)."""
    from roost.cli.top import node_lines

    with connection.connect() as client:
        found = client.nodes()
    if connection.printed(found, output):
        return
    for line in node_lines(found):
        click.echo(line)
    if output == "wide":
        for node in found:
            for device in node.get("devices", ()):
                click.echo(_device(str(node.get("id", "")), device))


_node = click.argument("node", shell_complete=connection.complete_nodes)
_gpu = click.argument("gpu", type=click.IntRange(0))
_reason = option("--reason", default="", metavar="TEXT", help="What people read about it.")


@nodes.command(
    "cordon",
    cls=Verb,
    epilog="""\b
Example:
  roost nodes cordon n1 --reason "to be looked at\"""",
)
@_node
@_reason
def cordon(node: str, reason: str) -> None:
    """Let nothing new begin on NODE; what runs there goes on."""
    with connection.connect() as client:
        client.cordon_node(node, reason)
    click.echo(f"{node}  cordoned: nothing new begins there")


@nodes.command(
    "drain",
    cls=Verb,
    epilog="""\b
Jobs move to other nodes if there is room. Others end at their checkpoint and wait.
\b
Example:
  roost nodes drain n1 --reason "new memory" --wait""",
)
@_node
@_reason
@option("--wait", is_flag=True, help="Return when nothing runs there any more.")
def drain(node: str, reason: str, *, wait: bool) -> None:
    """Let nothing new begin on NODE, and what runs there leave it."""
    with connection.connect() as client:
        left = _runs_on(client.cordon_node(node, reason, drain=True), node)
        while wait and left:
            time.sleep(_LOOK_EVERY_S)
            left = _runs_on(client.nodes(), node)
    click.echo(f"{node}  {f'draining: {_jobs(left)} still there' if left else 'drained'}")


@nodes.command("uncordon", cls=Verb)
@_node
def uncordon(node: str) -> None:
    """Use NODE again, which was cordoned or drained."""
    with connection.connect() as client:
        client.uncordon_node(node)
    click.echo(f"{node}  in use again")


@nodes.command("undrain", cls=Verb)
@_node
@click.pass_context
def undrain(ctx: click.Context, node: str) -> None:
    """Use NODE again (as uncordon)."""
    ctx.invoke(uncordon, node=node)


@nodes.command(
    "maintenance",
    cls=Verb,
    epilog="""\b
Nothing begins there that is expected to last into it; jobs of unknown length begin an hour before
it at the latest. The node is drained at its beginning and used again at its end.
\b
Examples:
  roost nodes maintenance n1 --from 2026-12-01T08:00 --for 2h --reason "new disks"
  roost nodes maintenance n1 --cancel""",
)
@_node
@option("--from", "start", type=click.DateTime(_TIMES), help="When it begins.  [default: now]")
@option("--for", "lasts", type=Duration(), metavar="DURATION", help="How long it lasts.")
@_reason
@option("--cancel", is_flag=True, help="Cancel what is planned, or end it early.")
def maintenance(
    node: str, start: datetime | None, lasts: float | None, reason: str, *, cancel: bool
) -> None:
    """Plan that NODE is empty for some time, or cancel that."""
    from roost.client.formatting import clock

    if cancel == (lasts is not None):
        raise InvalidSpec("say how long with --for, or --cancel")
    with connection.connect() as client:
        if lasts is not None:
            begins = time.time() if start is None else start.timestamp()
            client.plan_maintenance(node, begins, begins + lasts, reason)
            click.echo(f"{node}  maintenance from {clock(begins)} to {clock(begins + lasts)}")
            return
        windows = [one for one in client.nodes() if one.get("id") == node]
        for window in windows[0].get("maintenance", ()) if windows else ():
            client.cancel_maintenance(node, float(window["starts_at"]))
            click.echo(f"{node}  maintenance from {clock(window['starts_at'])} cancelled")


@nodes.command(
    "disable",
    cls=Verb,
    epilog="""\b
Jobs on it go on without it if they are elastic; others end at their checkpoint and wait.
\b
Example:
  roost nodes disable n1 3 --reason "uncorrectable memory errors\"""",
)
@_node
@_gpu
@_reason
def disable(node: str, gpu: int, reason: str) -> None:
    """Use GPU of NODE no longer, until it is restored."""
    with connection.connect() as client:
        client.disable_gpu(node, gpu, reason)
    click.echo(f"{node}:{gpu}  disabled: use it again with: roost nodes restore {node} {gpu}")


@nodes.command(
    "restore",
    cls=Verb,
    epilog="""\b
Example:
  roost nodes restore vm 3""",
)
@_node
@_gpu
def restore(node: str, gpu: int) -> None:
    """Use GPU of NODE again, which was disabled, or set aside after failures."""
    with connection.connect() as client:
        client.restore_gpu(node, gpu)
    click.echo(f"{node}:{gpu}  in use again")


def _runs_on(nodes: list[dict[str, Any]], node: str) -> int:
    """How many runs are on a node; none, if it is not there any more."""
    found = [one for one in nodes if one.get("id") == node]
    if found and found[0].get("state") not in ("draining", "drained", "lost"):
        raise click.ClickException(f"node {node} is not being drained any more: it is in use again")
    return int(found[0].get("runs", 0)) if found else 0


def _jobs(number: int) -> str:
    from roost.client.formatting import count

    return f"{count(number, 'job')} {'is' if number == 1 else 'are'}"


def _device(node: str, device: dict[str, object]) -> str:
    from roost.client.formatting import amount, clean

    jobs = device.get("jobs")
    held = [
        f"{clean(job.get('job') or 'another job')} {amount(float(job.get('share', 1)))}"
        for job in (jobs if isinstance(jobs, list) else [])
    ]
    state = "" if device.get("healthy", True) else "  failed"
    return f"  {clean(node)}:{device.get('index')}{state}  {', '.join(held) or 'free'}"
