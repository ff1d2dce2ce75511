"""``roost rerun``: jobs again, as new ones, with changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.job_options import CommandVerb, changed, job_options, typed_command
from roost.cli.selection import chosen, jobs_argument, selection_options
from roost.client.views import OVER
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.client import Client, JobHandle

#: Options of a job that say which jobs are meant where no JOB is given.
_EITHER = ("name", "label")


@click.command(
    cls=CommandVerb,
    epilog="""\b
Examples:
  roost rerun resnet-x7k2p
  roost rerun resnet-x7k2p --name slower --env RATE=0.01 --workers 1..4
  roost rerun resnet-x7k2p -- python train.py --rate 0.01
  roost rerun --label sweep=rate --state failed --run-time 2h""",
)
@jobs_argument
@job_options
@selection_options
@connection.output_option
@click.pass_context
def rerun(
    ctx: click.Context,
    /,
    jobs: tuple[str, ...],
    output: str,
    **given: Any,
) -> None:
    """Run jobs again: new jobs with the job files of JOBs, whatever became of them.

    What is typed comes on top of the job file. Without JOB, --name (a pattern), --label, --state
    and --user say which jobs are meant; of all that match, those that are over.
    """
    which = {key: given[key] for key in ("states", "user", "dry_run", "yes")}
    if not jobs:
        which |= {key: given[key] for key in _EITHER}
        given |= {"name": None, "label": ()}
    again = chosen(ctx, "rerun", jobs, which, sorted(OVER))
    secrets = {name: _secret(name) for name in given["secrets"]}
    with connection.connect() as client:

        def act(job: str) -> str:
            handle = client.job(job)
            made = handle.rerun(_changes(client, handle, typed_command(ctx), given), secrets)
            return _report(handle, made, output)

        ctx.exit(connection.each_of(again, act))


def _changes(
    client: Client, handle: JobHandle, command: tuple[str, ...], given: dict[str, Any]
) -> dict[str, Any]:
    """The fields of the job file that are to be others; ``None`` takes one away."""
    from roost.jobfile import JobFile

    before = handle.document()
    file = JobFile.from_document(before, handle.id)
    if command:
        rest = {key: value for key, value in before.items() if key != "run"}
        file = JobFile.from_document(
            {**rest, "command": [_program(client, command[0]), *command[1:]]}
        )
    after = changed(file, given).filled(os.environ, Path.cwd()).document()
    changes = {key: value for key, value in after.items() if before.get(key) != value}
    return changes | {key: None for key in before if key not in after}


def _program(client: Client, name: str) -> str:
    """A program as it is found here, where the server is here, too."""
    plain = not client.where().same or os.sep in name or name in ("python", "python3")
    return name if plain else shutil.which(name) or name


def _secret(name: str) -> str:
    if name not in os.environ:
        # Not repeated: it may be the secret itself.
        raise InvalidSpec("--secret takes the name of a variable that is set here")
    return os.environ[name]


def _report(handle: JobHandle, made: JobHandle, output: str) -> str:
    """What goes to standard output: the id of the new job, or all that is told of it."""
    from roost.client.formatting import clean

    if output in ("json", "yaml"):
        connection.printed(dict(made.view.raw), output)
        return ""
    connection.note(f"{clean(handle.id)} runs again as {clean(made.id)}")
    return clean(made.id)
