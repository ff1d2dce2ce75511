"""``roost diff``: two runs compared event by event."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    epilog="""\b
Example:
  roost simulate jobs.csv --nodes 8 -p srtf --events a.jsonl
  roost simulate jobs.csv --nodes 8 -p srsf --events b.jsonl
  roost diff a.jsonl b.jsonl"""
)
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path))
def diff(left: Path, right: Path) -> None:
    """Say where the event logs LEFT and RIGHT part; exit status 1 if they do."""
    from roost.cli.output import print_table
    from roost.sim.log import compare_logs

    found = compare_logs(left, right)
    if found.same:
        click.echo(f"the same: {sum(found.left_counts.values()):,} lines")
        return
    click.echo(f"first difference at line {found.line}:")
    for line in found.before:
        click.echo(f"    {line}")
    click.echo(f"  - {'(end)' if found.left is None else found.left}")
    click.echo(f"  + {'(end)' if found.right is None else found.right}")
    click.echo()
    kinds = sorted({*found.left_counts, *found.right_counts})
    print_table(
        [
            {
                "kind": kind,
                "left": str(found.left_counts[kind]),
                "right": str(found.right_counts[kind]),
            }
            for kind in kinds
        ]
    )
    click.get_current_context().exit(1)
