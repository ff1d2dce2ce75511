"""``roost submit``: hand in a job file or a command, after showing where and when it would run.

The id goes to standard output, everything else to standard error: ``id=$(roost submit job.yaml)``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.job_options import CommandVerb, changed, job_options, typed_command
from roost.cli.parameter_types import option
from roost.errors import InvalidSpec, Retryable

if TYPE_CHECKING:
    from roost.client import Client, JobHandle
    from roost.client.folder_scan import FolderScan
    from roost.client.submissions import PreparedSubmission
    from roost.jobfile import JobFile


class _Submit(CommandVerb):
    """Says where a command goes when one is typed elsewhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra" in error.message or isinstance(error, click.NoSuchOption):
                hint = "a command comes after --: roost submit -- python train.py"
                raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None
            raise


@click.command(
    cls=_Submit,
    epilog="""\b
Examples:
  roost submit train.yaml
  roost submit train.sbatch -q vision --dry-run
  roost submit --workers 1..4 -- python train.py --rate 0.1
  roost submit --share 0.5 --gpu-memory 20Gi -- python train.py
  roost submit --share 0.25 --way spatial --qos best-effort -- python evaluate.py
  roost submit --gpus A100:2 --env DATA --secret HF_TOKEN --run-time 2h --wait -- ./train.sh""",
)
@click.argument(
    "file",
    required=False,
    type=click.Path(),
    metavar="[FILE | -- COMMAND...]",
)
@job_options
@option(
    "--send/--no-send",
    section="Job",
    default=True,
    help="Send this folder to a server on another machine, or let the job begin in an empty one.",
)
@option("--dry-run", section="Run", is_flag=True, help="Show the plan and stop.")
@connection.yes_option
@option(
    "-w/-d",
    "--wait/--detach",
    section="Run",
    default=False,
    help="Wait until it is over and end with its exit status (128 + N after signal N, "
    "1 if it was cancelled), or return at once, as it is by default.",
)
@option("-f", "--follow", section="Run", is_flag=True, help="Print its log; implies --wait.")
@connection.output_option
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    file: str | None,
    dry_run: bool,  # noqa: FBT001 - click passes flags
    output: str,
    **given: Any,
) -> None:
    """Submit a job: the job file FILE of any format that roost convert reads, or a COMMAND.

    Options come on top of what the file says. The plan (where, when, how long, why) is shown
    first; on a terminal you are asked.
    """
    with connection.connect() as client:
        ready = _submission(client, file, typed_command(ctx), given)
        for text in ready.notes:
            connection.note(f"note: {_clean(text)}")
        if ready.folder is not None:
            _tell_what_is_sent(client, ready.folder)
        if dry_run:
            _dry_run(client, ready, output)
            return
        if output in ("table", "wide"):
            _show_plan(client, ready)
            name = str(ready.document.get("name", "job"))
            if not connection.agreed(f"Submit {name}?", yes=given["yes"]):
                ctx.exit(1)
        handle = client.submit(ready)
        _report(handle, output)
        if given["wait"] or given["follow"]:
            ctx.exit(_wait(handle, follow=given["follow"]))


def _submission(
    client: Client, file: str | None, command: tuple[str, ...], given: dict[str, Any]
) -> PreparedSubmission:
    from roost.client.submissions import finish, of_command

    if bool(file) == bool(command):
        raise InvalidSpec(
            "a job file and a command exclude each other"
            if file
            else "nothing to submit: give a job file, or a command after --"
        )
    job, notes = (of_command(command), ()) if command else _of_file(str(file))
    return finish(changed(job, given), client.where(), send=given["send"], notes=notes)


def _tell_what_is_sent(client: Client, folder: FolderScan) -> None:
    from roost.client.formatting import clean, count, file_size
    from roost.client.uploads import send_plan

    plan = client.run(send_plan(folder))
    whole = f"{count(plan.files, 'file')}, {file_size(plan.size_bytes)}"
    new = "nothing new" if not plan.new_files else f"{plan.new_files:,} new"
    told = f"{new}, {file_size(plan.new_bytes)} to go" if plan.new_files else new
    connection.note(f"sends: {clean(folder.folder)} ({whole}; {told})")


def _of_file(file: str) -> tuple[JobFile, tuple[str, ...]]:
    from roost.files import load
    from roost.jobfile.parse import parse
    from roost.jobfile.yaml import MAX_TEXT

    if file == "-":
        return parse(sys.stdin.read(MAX_TEXT + 1), "standard input")
    read = load(file, 4 * MAX_TEXT)  # of bytes there may be more than of letters
    if file.endswith(".py") and "#SBATCH" not in read.text:
        raise InvalidSpec(
            f"{file} is a program, not a job file; submit it with: roost submit -- python {file}"
        )
    return parse(read.text, file)


def _dry_run(client: Client, ready: PreparedSubmission, output: str) -> None:
    plan = client.plan(ready)
    if not connection.printed({"job": dict(ready.document), "plan": plan}, output):
        _show(plan, told=())
        for assumption in plan.get("assumptions", ())[:3]:
            connection.note(f"assumed: {_clean(assumption)}")
    if plan.get("never"):
        raise InvalidSpec(f"such a job can never run here: {_clean(plan.get('reason', ''))}")


def _show_plan(client: Client, ready: PreparedSubmission) -> None:
    """Show where and when it would start. Where that cannot be told, it goes on all the same."""
    from roost.client.errors import NoServer

    try:
        plan = client.plan(ready)
    except NoServer:
        raise
    except Retryable as error:
        connection.note(f"when it starts is not known now: {_clean(str(error).partition(';')[0])}")
    else:
        _show(plan, told=ready.notes)


def _show(plan: dict[str, Any], told: Collection[str]) -> None:
    """Print the plan on standard error: where, when, how long and why; ``told`` is not repeated."""
    from roost.cli.output import table_lines
    from roost.client.formatting import about, ahead, amount, clean

    if plan.get("never"):
        return  # the server's refusal says it all
    now = connection.now()
    starts, ends = plan.get("starts_at"), plan.get("ends_at")
    parts = plan.get("placement") or []
    gpus = sum(len(part.get("gpus", ())) * float(part.get("share", 1)) for part in parts)
    nodes = dict.fromkeys(clean(part.get("node", "")) for part in parts)
    row = {
        "target": ", ".join(nodes) or "-",
        "workers": str(sum(int(part.get("workers", 0)) for part in parts)) if parts else "-",
        "gpus": amount(gpus) if parts else "-",
        "start": ahead(starts, now),
        "finish": "unknown" if ends is None else f"in ~{about(ends - now)}",
        "why": clean(plan.get("reason", "")),
    }
    for line in table_lines([row]):
        connection.note(line)
    for text in plan.get("notes", ()):
        if text not in told:
            connection.note(f"note: {clean(text)}")


def _report(handle: JobHandle, output: str) -> None:
    if connection.printed(dict(handle.view.raw), output):
        return
    name = _clean(handle.id)
    click.echo(name)
    connection.note(f"Next: roost logs -f {name} · roost explain {name} · roost cancel {name}")


def _wait(handle: JobHandle, *, follow: bool) -> int:
    """Until the job is over; its exit status."""
    from roost.cli.logs import followed, tell
    from roost.client.formatting import verdict

    try:
        if follow:
            for lines in followed(handle):
                tell(lines)
        view = handle.wait()
    except KeyboardInterrupt:
        connection.note(
            f"\n{_clean(handle.id)} goes on; end it with: roost cancel {_clean(handle.id)}"
        )
        raise
    if view.state != "succeeded":
        why = verdict(view) or _clean(view.reason)
        connection.note(f"{_clean(view.id)} {_clean(view.state)}" + (f": {why}" if why else ""))
    return connection.exit_status(view)


def _clean(text: object) -> str:
    from roost.client.formatting import clean

    return clean(text)
