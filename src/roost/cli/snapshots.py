"""``roost snapshot``, ``roost snapshots`` and ``roost clone``: restore points of jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.output import print_table
from roost.cli.parameter_types import Noun, Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.client import SnapshotView

_NONE = "no snapshots; take one with: roost snapshot JOB"


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost snapshot resnet-x7k2p
  roost snapshot resnet-x7k2p --name before-decay""",
)
@click.argument("job", shell_complete=connection.complete_jobs)
@option(
    "-n",
    "--name",
    section="Change",
    metavar="NAME",
    default="",
    help="What to call it, of a-z, 0-9 and -; the time by default.",
)
@connection.output_option
def snapshot(job: str, name: str, output: str) -> None:
    """Keep what the job JOB has saved under a name, to start others from it.

    A job that uses roost.train saves itself first; of others the last checkpoint is taken. The
    snapshot stays until it is deleted, also when the job is.
    """
    with connection.connect() as client:
        point = client.job(job).snapshot(name)
    if connection.printed(dict(point.raw), output):
        return
    from roost.client.formatting import clean, moment

    click.echo(clean(point.id))
    connection.note(f"{_size(point)} in {moment(point.took_s)}, {_freshness(point)}")
    connection.note(f"Next: roost clone {clean(point.id)}")


class _Snapshots(Noun):
    """A word that is no verb is a job: ``roost snapshots JOB`` lists those of that job."""

    def _with_verb(self, args: list[str]) -> list[str]:
        known = args[:1] in (["-h"], ["--help"]) or (args and args[0] in self.commands)
        return args if known else ["list", *args]


@click.group(
    cls=_Snapshots,
    epilog="""\b
Examples:
  roost snapshots
  roost snapshots resnet-x7k2p
  roost snapshots delete resnet-x7k2p@before-decay""",
)
def snapshots() -> None:
    """List the snapshots of your jobs, or delete some."""


@snapshots.command(
    "list",
    cls=Verb,
    epilog="""\b
Example:
  roost snapshots resnet-x7k2p""",
)
@click.argument("job", required=False, default="", shell_complete=connection.complete_jobs)
@connection.output_option
def list_snapshots(job: str, output: str) -> None:
    """List the snapshots of the job JOB, or all (also without the word list)."""
    with connection.connect() as client:
        found = client.snapshots(job)
    if connection.printed([dict(point.raw) for point in found], output):
        return
    now = connection.now()
    print_table(connection.fitted([_row(point, now) for point in found], wide=output == "wide"))
    from roost.client.formatting import count, file_size

    size = file_size(sum(point.size_bytes for point in found))
    click.echo(f"{count(len(found), 'snapshot')}, {size}" if found else _NONE)


@snapshots.command(
    "delete",
    cls=Verb,
    epilog="""\b
Example:
  roost snapshots delete resnet-x7k2p@before-decay -y""",
)
@click.argument(
    "names",
    metavar="JOB@NAME...",
    nargs=-1,
    required=True,
    shell_complete=connection.complete_snapshots,
)
@connection.yes_option
@click.pass_context
def delete_snapshots(ctx: click.Context, names: tuple[str, ...], yes: bool) -> None:  # noqa: FBT001
    """Forget snapshots with their files."""
    if not connection.agreed(f"Delete {', '.join(names)}?", yes=yes, usual=False):
        ctx.exit(1)
    with connection.connect() as client:

        def act(name: str) -> str:
            client.delete_snapshot(name)
            return f"{name}  deleted"

        ctx.exit(connection.each_of(names, act))


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost clone resnet-x7k2p
  roost clone resnet-x7k2p@before-decay --name resnet-slow --env RATE=0.01
  roost clone resnet-x7k2p@before-decay --workers 1..4 --secret HF_TOKEN""",
)
@click.argument("source", metavar="JOB[@NAME]", shell_complete=connection.complete_snapshots)
@option("-n", "--name", section="Job", metavar="NAME", help="What to call it; as the job.")
@connection.queue_option
@connection.priority_option
@option("--env", section="Job", metavar="KEY[=VALUE]", multiple=True, help="A variable on top.")
@option(
    "--secret",
    "secrets",
    section="Job",
    metavar="NAME",
    multiple=True,
    help="A secret of the job, with its value from your environment; needed where the job is over "
    "or somebody else's.",
)
@option("--workers", section="Resources", metavar="N|LO..HI", help="How many, or from few to many.")
@connection.output_option
def clone(source: str, output: str, **given: Any) -> None:
    """Start a new job from a snapshot: the newest of the job JOB, or the one called NAME.

    It has the job file of JOB, with what is typed on top, and a checkpoint folder of its own with
    the files of the snapshot in it.
    """
    typed = ("name", "queue", "priority", "workers")
    changes = {key: given[key] for key in typed if given[key] is not None}
    if given["env"]:
        changes["env"] = dict(_variable(text) for text in given["env"])
    secrets = {name: _secret(name) for name in given["secrets"]}
    with connection.connect() as client:
        handle = client.clone(source, changes, secrets)
    if connection.printed(dict(handle.view.raw), output):
        return
    from roost.client.formatting import clean

    name = clean(handle.id)
    click.echo(name)
    connection.note(f"starts from {clean(handle.view.clone_of)}")
    connection.note(f"Next: roost logs -f {name} · roost explain {name} · roost cancel {name}")


def _row(point: SnapshotView, now: float) -> dict[str, str]:
    from roost.client.formatting import ago, clean, file_size

    return {
        "snapshot": clean(point.id),
        "user": clean(point.user),
        "step": "-" if point.step is None else f"{point.step:,}",
        "done": "-" if point.progress is None else f"{100 * point.progress:.0f}%",
        "files": f"{point.files:,}",
        "size": file_size(point.size_bytes),
        "taken": ago(point.created_at, now),
    }


def _size(point: SnapshotView) -> str:
    from roost.client.formatting import count, file_size

    return f"{count(point.files, 'file')}, {file_size(point.size_bytes)}"


def _freshness(point: SnapshotView) -> str:
    return "saved for it" if point.fresh else "the last checkpoint"


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise InvalidSpec(f"--env {name}: it has no value, and it is not set here")
    return name, value if equals else os.environ[name]


def _secret(name: str) -> str:
    if name not in os.environ:
        # Not repeated: it may be the secret itself.
        raise InvalidSpec("--secret takes the name of a variable that is set here")
    return os.environ[name]
