"""The options that say what a job is like, for ``submit`` and ``rerun``, and what they change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.cli import connection
from roost.cli.parameter_types import Duration, Number, Verb, option
from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.jobfile import JobFile

F = TypeVar("F", bound=Callable[..., Any])

_COMMAND = "roost.command"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_OPTIONS = (
    option("-n", "--name", section="Job", metavar="NAME", help="What to call it."),
    option("--image", section="Job", metavar="NAME", help="The container image to run in."),
    connection.queue_option,
    connection.priority_option,
    option(
        "--cell",
        section="Job",
        metavar="NAME",
        help="The cell in which it has to be; its queue is promised it by name.",
    ),
    option(
        "--guest/--no-guest",
        section="Job",
        default=None,
        help="Run only on what is left, and make room for all jobs that are no guests.",
    ),
    option(
        "--env",
        section="Job",
        metavar="KEY[=VALUE]",
        multiple=True,
        help="A variable; without a value, yours.",
    ),
    option(
        "--secret",
        "secrets",
        section="Job",
        metavar="NAME",
        multiple=True,
        help="A variable of yours that is kept secret; its value never stands on a command line.",
    ),
    option(
        "--workdir",
        section="Job",
        type=click.Path(),
        metavar="DIR",
        help="Where to run; this folder by default. A relative one is sent to a server elsewhere.",
    ),
    option("--label", section="Job", metavar="KEY=VALUE", multiple=True, help="To find it by."),
    option(
        "--gpus",
        section="Resources",
        metavar="GPUS",
        help="For each worker: 2, 0.5, A100:1, 24GB:1; 1 by default, 0 for none.",
    ),
    option(
        "--share",
        section="Resources",
        type=Number(most=1.0),
        metavar="0.5",
        help="A part of one GPU for each worker; the same as --gpus 0.5.",
    ),
    option(
        "--way",
        section="Resources",
        type=click.Choice(["temporal", "spatial"]),
        help="How a share is held: temporal, by turns; spatial, side by side (CUDA MPS). "
        "temporal by default.",
    ),
    option(
        "--qos",
        section="Resources",
        type=click.Choice(["fixed", "equal", "best-effort"]),
        help="What a share means: fixed, that part and no more; equal, as much as each neighbour; "
        "best-effort, what is left. fixed by default.",
    ),
    option(
        "--gpu-memory",
        section="Resources",
        metavar="SIZE",
        help="The most GPU memory of a worker, such as 20Gi; its share of the GPU's by default.",
    ),
    option(
        "--workers", section="Resources", metavar="N|LO..HI", help="How many, or from few to many."
    ),
    option("--cpus", section="Resources", metavar="N", help="For each worker, such as 8 or 0.5."),
    option("--memory", section="Resources", metavar="SIZE", help="For each worker, such as 16Gi."),
    option("--max-duration", section="Limits", type=Duration(), help="Ended after that."),
    option(
        "--run-time", section="Limits", type=Duration(), help="How long it will run, as you think."
    ),
    option(
        "--retry",
        section="Limits",
        type=click.IntRange(0, 100),
        metavar="N",
        help="Tries after the first.",
    ),
)


class CommandVerb(Verb):
    """Keeps what comes after ``--`` apart: it is a command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what comes before."""
        if "--" not in args:
            return super().parse_args(ctx, args)
        at = args.index("--")
        ctx.meta[_COMMAND] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


def typed_command(ctx: click.Context) -> tuple[str, ...]:
    """The command after ``--``; empty without one."""
    command: tuple[str, ...] = ctx.meta.get(_COMMAND, ())
    return command


def job_options(command: F) -> F:
    """All of them."""
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return command


def changed(job: JobFile, given: dict[str, Any]) -> JobFile:
    """The job with what was typed on top."""
    from roost.jobfile import JobFile

    data = job.document()
    for name in (
        *("name", "image", "queue", "cell", "guest", "priority", "workdir"),
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
