"""Verbs that change jobs: scale, suspend, resume, migrate, cancel, delete."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.client import JobView

_RANGE = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?\Z")

_job = click.argument("job", shell_complete=connection.complete_jobs)
_jobs = click.argument(
    "jobs", nargs=-1, metavar="JOB...", required=True, shell_complete=connection.complete_jobs
)


class WorkerCount(click.ParamType[tuple[int, int]]):
    """A number of workers, or a range of them."""

    name = "workers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """The two ends of 4 or 1..4."""
        if isinstance(value, tuple):
            return value
        found = _RANGE.match(str(value))
        low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= low <= high:
            self.fail(f"{value!r} is not a number of workers such as 4 or 1..4", param, ctx)
        return low, high


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost scale resnet-x7k2p 4
  roost scale resnet-x7k2p 1..8""",
)
@_job
@click.argument("workers", type=WorkerCount(), metavar="N|LO..HI")
@connection.output_option
def scale(job: str, workers: tuple[int, int], output: str) -> None:
    """Let the job JOB have N workers, or from LO to HI."""
    with connection.connect() as client:
        view = client.job(job).scale(*workers)
    if not connection.printed(view.raw, output):
        from roost.client.formatting import clean
        from roost.client.formatting import workers as told

        click.echo(f"{clean(view.id)}  {clean(view.state)}  workers {told(view)}")


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost suspend resnet-x7k2p
  roost suspend resnet-x7k2p bert-m3c9w""",
)
@_jobs
@click.pass_context
def suspend(ctx: click.Context, jobs: tuple[str, ...]) -> None:
    """Take jobs off their GPUs until they are resumed."""
    ctx.exit(_do("suspend", jobs))


@click.command(
    cls=Verb,
    epilog="""\b
Example:
  roost resume resnet-x7k2p""",
)
@_jobs
@click.pass_context
def resume(ctx: click.Context, jobs: tuple[str, ...]) -> None:
    """Let suspended jobs go on as soon as there is room."""
    ctx.exit(_do("resume", jobs))


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost migrate resnet-x7k2p
  roost migrate resnet-x7k2p --to n2""",
)
@_job
@option(
    "--to",
    "node",
    section="Change",
    metavar="NODE",
    shell_complete=connection.complete_nodes,
    help="This node; wherever is best without it.",
)
@connection.output_option
def migrate(job: str, node: str | None, output: str) -> None:
    """Move the job JOB to other GPUs."""
    with connection.connect() as client:
        view = client.job(job).migrate(node)
    if not connection.printed(view.raw, output):
        from roost.client.formatting import clean

        click.echo(f"{clean(view.id)}  {clean(view.state)}  {clean(view.reason)}".rstrip())


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost cancel resnet-x7k2p bert-m3c9w
  roost cancel --all -y""",
)
@click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=connection.complete_jobs)
@option("--all", "everything", section="Which", is_flag=True, help="All your jobs not yet over.")
@connection.yes_option
@click.pass_context
def cancel(
    ctx: click.Context,
    jobs: tuple[str, ...],
    everything: bool,  # noqa: FBT001 - click passes flags
    yes: bool,  # noqa: FBT001
) -> None:
    """End jobs. One that is over stays as it is."""
    if everything == bool(jobs):
        raise InvalidSpec(
            "say which jobs, or --all" if not jobs else "JOB and --all exclude each other"
        )
    if everything:
        from roost.client.formatting import count

        jobs = _all_open()
        if not jobs:
            connection.note("nothing to cancel")
            return
        if not connection.agreed(f"Cancel {count(len(jobs), 'job')}?", yes=yes, usual=False):
            ctx.exit(1)
    ctx.exit(_do("cancel", jobs))


@click.command(
    cls=Verb,
    epilog="""\b
Example:
  roost delete resnet-x7k2p -y""",
)
@_jobs
@connection.yes_option
@click.pass_context
def delete(ctx: click.Context, jobs: tuple[str, ...], yes: bool) -> None:  # noqa: FBT001
    """Forget jobs that are over, with their logs."""
    what = jobs[0] if len(jobs) == 1 else f"{len(jobs)} jobs"
    if not connection.agreed(f"Delete {what} with all logs?", yes=yes, usual=False):
        ctx.exit(1)
    ctx.exit(_do("delete", jobs))


def _do(verb: str, jobs: tuple[str, ...]) -> int:
    from roost.client.formatting import clean

    with connection.connect() as client:

        def act(job: str) -> str:
            view = getattr(client.job(job), verb)()
            state = "deleted" if verb == "delete" else clean(view.state)
            return f"{clean(view.id)}  {state}{_coming(verb, view)}"

        return connection.each_of(jobs, act)


def _coming(verb: str, view: JobView) -> str:
    """Say which request is still under way."""
    if view.over:
        return ""
    if view.cancelling:
        return ", being cancelled"
    if view.held and view.state != "suspended":
        return ", being suspended"
    if view.held or view.state != "suspended" or verb != "resume":
        return ""
    from roost.client.formatting import clean

    why = clean(view.reason)
    return f", goes on as soon as there is room{f': {why}' if why else ''}"


def _all_open() -> tuple[str, ...]:
    from roost.client.views import OVER, STATES

    with connection.connect() as client:
        states = [state for state in STATES if state not in OVER]
        user = str(client.whoami()["user"])
        return tuple(view.id for view in client.jobs(state=states, user=user))
