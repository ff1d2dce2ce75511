"""``roost files`` and ``roost cp``: what a job wrote, listed and fetched."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from roost.cli import connection
from roost.cli.output import print_table
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec, RoostError

if TYPE_CHECKING:
    from roost.api.files import FileView
    from roost.client import Client, JobView

_attempt_option = option(
    "--attempt",
    section="Which",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    help="This attempt; by default the newest.",
)


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost files resnet-x7k2p
  roost files resnet-x7k2p checkpoints
  roost files resnet-x7k2p -r out""",
)
@click.argument("job", shell_complete=connection.complete_jobs)
@click.argument("path", required=False, default="")
@option("-r", "--recursive", section="Which", is_flag=True, help="With all folders below.")
@_attempt_option
@connection.output_option
def files(
    job: str,
    path: str,
    recursive: bool,  # noqa: FBT001 - click passes flags
    attempt: int,
    output: str,
) -> None:
    """List the files of the job JOB: its working folder, its checkpoints and its logs.

    PATH begins with work, checkpoints or logs; any other is in the working folder.
    """
    with connection.connect() as client:
        handle = client.job(job)
        found = handle.files(path, deep=recursive, attempt=attempt)
    if connection.printed([dict(view.raw) for view in found], output):
        return
    from roost.client.formatting import clean, count, file_size

    now = connection.now()
    print_table([_row(view, now) for view in found])
    plain = [view for view in found if view.kind == "file"]
    total = file_size(sum(view.size_bytes for view in plain))
    click.echo(f"{count(len(plain), 'file')}, {total}" if found else "no files")
    if found:
        connection.note(f"Next: roost cp {clean(handle.id)}:{clean(found[0].path)} .")


def places(client: Client, view: JobView) -> str:
    """Where the files of a job are, on the machine of the server, as far as that is known."""
    from roost.client.downloads import file_page
    from roost.client.formatting import clean

    if view.attempt:
        with suppress(RoostError):  # an older server, or one whose jobs are pods
            page = client.run(file_page(view.id, "logs"))
            return " · ".join(f"{name} {clean(path)}" for name, path in page.places.items())
    return ""


def _row(view: FileView, now: float) -> dict[str, str]:
    from roost.client.formatting import ago, clean, file_size

    end = {"folder": "/", "link": f" -> {clean(view.target)}"}.get(view.kind, "")
    return {
        "path": clean(view.path) + end,
        "size": file_size(view.size_bytes) if view.kind == "file" else "-",
        "changed": ago(view.modified_at, now),
    }


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost cp resnet-x7k2p:model.pt .
  roost cp resnet-x7k2p:checkpoints best
  roost cp resnet-x7k2p:logs/worker-0.log -""",
)
@click.argument("source", metavar="JOB:PATH", shell_complete=connection.complete_jobs)
@click.argument("dest", metavar="DEST", type=click.Path())
@_attempt_option
def cp(source: str, dest: str, attempt: int) -> None:
    """Fetch a file of a job, or a folder with all that is in it, to DEST; - prints a file.

    PATH begins with work, checkpoints or logs; any other is in the working folder. Without one,
    all is fetched. DEST is the new name; what goes to . or to DEST/ keeps its own. Started again,
    it goes on where it was cut, and what is there already stays.
    """
    job, colon, path = source.partition(":")
    if not colon:
        raise InvalidSpec(f"say what to fetch, such as {job}:model.pt, or {job}: for all of it")
    with connection.connect() as client:
        if dest == "-":
            from roost.client.downloads import content

            for piece in client.iterate(content(job, path, attempt)):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        done = client.job(job).download(path, dest, attempt)
    from roost.client.formatting import clean, count, file_size

    kept = f", {done.unchanged} of them were there already" if done.unchanged else ""
    click.echo(f"{done.path}: {count(done.files, 'file')}, {file_size(done.size_bytes)}{kept}")
    for name in done.left_out[:5]:
        connection.note(f"left out: {clean(name)}: it leads out of the folder, or is gone")
    if len(done.left_out) > 5:  # noqa: PLR2004 - as above
        connection.note(f"left out: {len(done.left_out) - 5} more")
