"""``roost prune``: forget jobs that were kept long enough."""

from __future__ import annotations

from functools import partial

import click

from roost.cli import connection
from roost.cli.parameter_types import ByteSize, Duration, Verb, option

#: For the options of ``roost up``, too.
retention_option = partial(option, section="Limits")
KEEP_HELP = "Forget jobs that ended so long ago, unless their job file says otherwise (keep)."
MAX_DISK_HELP = "Forget the oldest jobs that are over, where the home is larger than that."


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost prune --dry-run
  roost prune --dry-run --keep 30d
  roost prune --keep 30d --max-disk 200Gi""",
)
@retention_option("--keep", "keep_s", type=Duration(), metavar="DURATION", help=KEEP_HELP)
@retention_option(
    "--keep-jobs",
    type=click.IntRange(0),
    metavar="N",
    help="Forget the oldest jobs that are over, where there are more than N.",
)
@retention_option(
    "--max-disk", "max_disk_bytes", type=ByteSize(), metavar="SIZE", help=MAX_DISK_HELP
)
@option("--dry-run", section="Run", is_flag=True, help="Only say which, and how much that is.")
@connection.output_option
def prune(output: str, *, dry_run: bool, **bounds: float | None) -> None:
    """Forget jobs that are over and were kept long enough, with their files.

    Without bounds those of the server count (roost up --keep, --keep-jobs, --max-disk). What runs
    or waits is never touched, and snapshots stay.
    """
    found, size, more = [], 0, True
    with connection.connect() as client:
        while more:
            told = client.prune(dry_run=dry_run, **bounds)
            found += told["items"]
            size += told["size_bytes"]
            more = bool(told["more"]) and not dry_run
    if connection.printed(found, output):
        return
    from roost.client.formatting import clean
    from roost.jobs.amounts import counted, shown_bytes

    for job in found:
        click.echo(
            f"{clean(job['id'])}  {job['state']}  {shown_bytes(job['size_bytes'])}  {job['why']}"
        )
    rest = " (the oldest of them; there are more)" if dry_run and told["more"] else ""
    verb = "would be forgotten" if dry_run else "forgotten"
    click.echo(f"{counted(len(found), 'job')} {verb}{rest}, {shown_bytes(size)}")
