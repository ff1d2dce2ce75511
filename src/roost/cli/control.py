"""Verbs that change jobs: scale, suspend, resume, migrate, cancel, delete."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Verb, option
from roost.cli.selection import (
    chosen,
    jobs_argument,
    label_option,
    name_option,
    selection_options,
)
from roost.client.views import OVER, STATES

if TYPE_CHECKING:
    from roost.client import JobView

_OPEN = tuple(state for state in STATES if state not in OVER)
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
  roost cancel --label sweep=rate --state queued
  roost cancel --name 'resnet-*' --user ada -y
  roost cancel --all -y""",
)
@jobs_argument
@option("--all", "everything", section="Which", is_flag=True, help="All your jobs not yet over.")
@name_option
@label_option
@selection_options
@click.pass_context
def cancel(ctx: click.Context, /, jobs: tuple[str, ...], **given: Any) -> None:
    """End jobs. One that is over stays as it is.

    Without JOB, options say which jobs are meant: yours that are not over, if nothing else is said.
    """
    ctx.exit(_do("cancel", chosen(ctx, "cancel", jobs, given, _OPEN)))


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost delete resnet-x7k2p -y
  roost delete --state failed,cancelled
  roost delete --label sweep=rate --dry-run""",
)
@jobs_argument
@name_option
@label_option
@selection_options
@click.pass_context
def delete(ctx: click.Context, /, jobs: tuple[str, ...], **given: Any) -> None:
    """Forget jobs that are over, with their logs.

    Without JOB, options say which jobs are meant: yours that are over, if nothing else is said.
    """
    found = chosen(ctx, "delete", jobs, given, sorted(OVER))
    what = jobs[0] if len(jobs) == 1 else f"{len(jobs)} jobs"
    if jobs and not connection.agreed(
        f"Delete {what} with all logs?", yes=given["yes"], usual=False
    ):
        ctx.exit(1)
    ctx.exit(_do("delete", found))


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
