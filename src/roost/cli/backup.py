"""``roost backup`` and ``roost restore``: the home of a server in one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from roost.cli.parameter_types import Verb, option
from roost.cli.up import home_option
from roost.client import endpoints


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost backup /backup/roost-monday.tar
  roost backup --with-checkpoints /backup/roost-all.tar""",
)
@click.argument("file", type=click.Path(path_type=Path))
@home_option
@option(
    "--store", section="Run", default="", metavar="URL", help="As given to roost up, if it was."
)
@option(
    "--with-checkpoints",
    section="Run",
    is_flag=True,
    help="Also what jobs saved and wrote: checkpoints, work folders, files of snapshots.",
)
def backup(file: Path, home: Path, store: str, *, with_checkpoints: bool) -> None:
    """Write a backup of the server's home to FILE, also while the server runs.

    It has the database, accounts and tokens, secrets and functions of jobs, logs and results. Keep
    it as safe as the home: FILE is readable by you only.
    """
    from roost.jobs.amounts import shown_bytes
    from roost.server.backups import back_up
    from roost.server.home import Home

    place = Home(home).path
    url = store or f"sqlite://{place / 'roost.db'}"
    local = url.startswith("sqlite://")
    database = Path(url.removeprefix("sqlite://")) if local else None
    found = back_up(place, file, database, checkpoints=with_checkpoints)
    click.echo(f"{file}: {found.files} files, {shown_bytes(found.size_bytes)}")
    if not local:
        click.echo(
            "The database is not in it. Copy it now with PostgreSQL's own tools, and keep both "
            "together: pg_dump --format=custom --file=roost.dump DATABASE"
        )


@click.command(
    cls=Verb,
    epilog="""\b
Example:
  roost restore /backup/roost-monday.tar --to /srv/roost""",
)
@click.argument("file", type=click.Path(path_type=Path))
@option(
    "--to",
    "home",
    section="Run",
    type=click.Path(path_type=Path),
    required=True,
    metavar="HOME",
    help="The folder to make; it must not be there, or be empty.",
)
def restore(file: Path, home: Path) -> None:
    """Make a home from the backup FILE, after all its checksums were compared."""
    from roost.jobs.amounts import shown_bytes
    from roost.server.backups import restore as restored

    place = home.expanduser().absolute()
    found = restored(file, place)
    click.echo(f"{place}: {found.files} files, {shown_bytes(found.size_bytes)}")
    if not found.database:
        click.echo(
            "Its database is in PostgreSQL: restore that, too (pg_restore), and give --store URL."
        )
    given = "" if endpoints.home() == place else f" --home {place}"
    click.echo(f"If the original is gone:          roost up{given} --moved")
    click.echo(f"If the original is still in use:  roost up{given} --as-copy")
