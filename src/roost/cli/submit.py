"""``roost submit``: hand in a job file or a command, after showing where and when it would run.

The id goes to standard output, everything else to standard error: ``id=$(roost submit job.yaml)``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from roost.cli import connection
from roost.cli.parameter_types import Duration, Number, Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.client import Client, JobHandle
    from roost.client.submissions import PreparedSubmission
    from roost.jobfile import JobFile

_COMMAND = "roost.command"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class _Submit(Verb):
    """Keeps what comes after ``--`` apart: it is a command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            return super().parse_args(ctx, args[:at])
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
@option("-n", "--name", section="Job", metavar="NAME", help="What to call it.")
@option("--image", section="Job", metavar="NAME", help="The container image, on Kubernetes.")
@connection.queue_option
@connection.priority_option
@option(
    "--env",
    section="Job",
    metavar="KEY[=VALUE]",
    multiple=True,
    help="A variable; without a value, yours.",
)
@option(
    "--secret",
    "secrets",
    section="Job",
    metavar="NAME",
    multiple=True,
    help="A variable of yours that is kept secret; its value never stands on a command line.",
)
@option(
    "--workdir",
    section="Job",
    type=click.Path(),
    metavar="DIR",
    help="Where to run; this folder by default.",
)
@option("--label", section="Job", metavar="KEY=VALUE", multiple=True, help="To find it by.")
@option(
    "--gpus",
    section="Resources",
    metavar="GPUS",
    help="For each worker: 2, 0.5, A100:1, 24GB:1; 1 by default, 0 for none.",
)
@option(
    "--share",
    section="Resources",
    type=Number(most=1.0),
    metavar="0.5",
    help="A part of one GPU for each worker; the same as --gpus 0.5.",
)
@option(
    "--way",
    section="Resources",
    type=click.Choice(["temporal", "spatial"]),
    help="How a share is held: temporal, by turns; spatial, side by side (CUDA MPS). "
    "temporal by default.",
)
@option(
    "--qos",
    section="Resources",
    type=click.Choice(["fixed", "equal", "best-effort"]),
    help="What a share means: fixed, that part and no more; equal, as much as each neighbour; "
    "best-effort, what is left. fixed by default.",
)
@option(
    "--gpu-memory",
    section="Resources",
    metavar="SIZE",
    help="The most GPU memory of a worker, such as 20Gi; its share of the GPU's by default.",
)
@option("--workers", section="Resources", metavar="N|LO..HI", help="How many, or from few to many.")
@option("--cpus", section="Resources", metavar="N", help="For each worker, such as 8 or 0.5.")
@option("--memory", section="Resources", metavar="SIZE", help="For each worker, such as 16Gi.")
@option("--max-duration", section="Limits", type=Duration(), help="Ended after that.")
@option("--run-time", section="Limits", type=Duration(), help="How long it will run, as you think.")
@option(
    "--retry",
    section="Limits",
    type=click.IntRange(0, 100),
    metavar="N",
    help="Tries after the first.",
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
        ready = _submission(client, file, ctx.meta.get(_COMMAND, ()), given)
        for text in ready.notes:
            connection.note(f"note: {_clean(text)}")
        if dry_run:
            _dry_run(client, ready, output)
            return
        if output in ("table", "wide"):
            _show(client.plan(ready), told=ready.notes)
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
    return finish(_changed(job, given), local=client.local, notes=notes)


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


def _changed(job: JobFile, given: dict[str, Any]) -> JobFile:
    """The job with what was typed on top."""
    from roost.jobfile import JobFile

    data = job.document()
    for name in (
        *("name", "image", "queue", "priority", "workdir"),
        *("max_duration", "run_time", "workers"),
    ):
        if given[name] is not None:
            data[name] = given[name]
    resources = dict(data.get("resources", {}))
    for name, option_ in (("gpu", "gpus"), ("cpu", "cpus"), ("memory", "memory")):
        if given[option_] is not None:
            resources[name] = given[option_]
    if given["share"] is not None:
        resources["gpu"] = _share(resources.get("gpu", 1), given["share"])
    typed = {"way": given["way"], "policy": given["qos"], "mem": given["gpu_memory"]}
    changed = {
        "resources": resources,
        "sharing": dict(data.get("sharing", {})) | {k: v for k, v in typed.items() if v},
        "retry": dict(data.get("retry", {})) | _some("max", given["retry"]),
        "env": dict(data.get("env", {})) | dict(_variable(text) for text in given["env"]),
        "labels": dict(data.get("labels", {})) | dict(_label(text) for text in given["label"]),
        "secrets": [*data.get("secrets", ()), *map(_secret, given["secrets"])],
    }
    data.update({name: value for name, value in changed.items() if value})
    return JobFile.from_document(data, "command line")


def _share(gpus: Any, share: float) -> Any:
    """A share of one GPU, of the kind that was asked for."""
    from dataclasses import replace

    from roost.jobfile.grammar import read_gpus, write_gpus

    try:
        whole = read_gpus(gpus)
        part = read_gpus(share)
    except ValueError as error:
        raise InvalidSpec(f"--share and --gpus: expected {error}") from None
    if not part.low:
        raise InvalidSpec(
            "--share is more than 0 and at most 1, such as 0.5; --gpus 0 asks for none"
        )
    if (whole.low, whole.high) != (1, 1):
        raise InvalidSpec(f"--share {share:g} is a part of one GPU; the job asks for {gpus} GPUs")
    return write_gpus(replace(whole, share_milli=part.share_milli))


def _some(name: str, value: Any) -> dict[str, Any]:
    return {} if value is None else {name: value}


def _variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidSpec(f"--label takes KEY=VALUE, not {text!r}")
    return key, value


def _secret(text: str) -> str:
    if not _VARIABLE.match(text):
        # Not repeated: it may be the secret itself.
        raise InvalidSpec("--secret takes the name of a variable, and nothing else")
    return text


def _dry_run(client: Client, ready: PreparedSubmission, output: str) -> None:
    plan = client.plan(ready)
    if not connection.printed({"job": dict(ready.document), "plan": plan}, output):
        _show(plan, told=())
    if plan.get("never"):
        raise InvalidSpec(f"such a job can never run here: {_clean(plan.get('reason', ''))}")


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
    for assumption in plan.get("assumptions", ())[:3]:
        connection.note(f"assumed: {clean(assumption)}")
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
            for line in followed(handle):
                tell(line)
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
