"""``roost nodes``: the machines."""

from __future__ import annotations

import click

from roost.cli import connection
from roost.cli.parameter_types import Noun, Verb


@click.group(
    cls=Noun,
    epilog="""\b
Examples:
  roost nodes
  roost nodes -o json
  roost nodes restore n1 3""",
)
def nodes() -> None:
    """List the nodes, or give a GPU that was set aside another chance."""


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


@nodes.command(
    "restore",
    cls=Verb,
    epilog="""\b
Example:
  roost nodes restore vm 3""",
)
@click.argument("node", shell_complete=connection.complete_nodes)
@click.argument("gpu", type=click.IntRange(0))
def restore(node: str, gpu: int) -> None:
    """Use GPU of NODE again, which was set aside after failures."""
    with connection.connect() as client:
        client.restore_gpu(node, gpu)
    click.echo(f"{node}:{gpu}  in use again")


def _device(node: str, device: dict[str, object]) -> str:
    from roost.client.formatting import amount, clean

    jobs = device.get("jobs")
    held = [
        f"{clean(job.get('job') or 'another job')} {amount(float(job.get('share', 1)))}"
        for job in (jobs if isinstance(jobs, list) else [])
    ]
    state = "" if device.get("healthy", True) else "  failed"
    return f"  {clean(node)}:{device.get('index')}{state}  {', '.join(held) or 'free'}"
