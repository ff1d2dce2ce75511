"""The ``roost`` command. Each verb lives in a module of its own, imported when it is used.

Other distributions add verbs by entry points of the group ``roost.commands``: so do the benchmarks.

Exit statuses: 0 done, 1 two logs differ, 2 an error, told in one line on standard error; 130 after
Ctrl-C, 143 when terminated. However a run ends, drafts of files are removed and processes ended.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from roost import __version__
from roost.errors import NotFound, RoostError, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_SIGNALLED = 128  # added to a signal's number: the exit status of what it ended

#: The group of entry points by which other distributions add verbs.
GROUP = "roost.commands"
#: In place of a module: an entry point has the verb.
_ADDED = ""
_NO_BENCHMARKS = (
    "the benchmarks are not installed: they are a part of Roost's sources, "
    "where `make install` or `pip install -e benchmarks` installs them"
)

#: Section → verb → the module that has it, and its line in the overview.
_SECTIONS = {
    "Server": {
        "up": ("up", "Run jobs on this machine: start the server."),
        "down": ("up", "Stop the server; jobs go on."),
        "open": ("open", "Open the server's pages in a browser, logged in."),
        "login": ("login", "Log in to a server on another machine, once."),
        "logout": ("login", "Forget a server, with its token."),
        "servers": ("login", "List the servers you are logged in to, or choose the usual one."),
        "reload": ("up", "Have the server read its config file again."),
        "backup": ("backup", "Write everything that a server needs into one file."),
        "restore": ("backup", "Make a home from a backup."),
        "prune": ("prune", "Forget jobs that were kept long enough, or say which."),
        "partition": ("partition", "Divide the GPUs of this machine (MIG)."),
    },
    "Jobs": {
        "submit": ("submit", "Hand in a job: a job file, or a command."),
        "list": ("jobs", "List jobs (also ls, ps)."),
        "get": ("jobs", "Show one job."),
        "logs": ("logs", "Show what a job prints."),
        "files": ("files", "List what a job wrote: work, checkpoints, logs."),
        "cp": ("files", "Fetch files of a job."),
        "events": ("events", "Show what happened, to one job or to all."),
        "explain": (
            "explain",
            "Say why a job waits, who is ahead, when it starts, what would help.",
        ),
        "scale": ("control", "Give a job another number of workers."),
        "suspend": ("control", "Take jobs off their devices until they are resumed."),
        "resume": ("control", "Let suspended jobs go on."),
        "migrate": ("control", "Move a running job elsewhere."),
        "snapshot": ("snapshots", "Keep what a job has saved under a name."),
        "snapshots": ("snapshots", "List snapshots, or delete one."),
        "rerun": ("rerun", "Run jobs again, with changes: new jobs of the same job files."),
        "clone": ("snapshots", "Start a new job from a snapshot."),
        "cancel": ("control", "End jobs."),
        "delete": ("control", "Forget jobs that are over, with their logs."),
        "templates": ("templates", "List job files with blanks, fill one in, or keep one."),
        "convert": ("convert", "Turn a job of another system into a job file."),
    },
    "Cluster": {
        "top": ("top", "Show what nodes, jobs and queues use now."),
        "usage": ("usage", "Show who held how many GPUs, for how long, and what that cost."),
        "prices": ("charging", "List what GPU hours cost, or add prices."),
        "budgets": ("charging", "List budgets and how they stand, or change them."),
        "weigh": ("weigh", "Compare what a job takes here and elsewhere, and what it costs."),
        "offers": ("weigh", "List what others sell a GPU hour for."),
        "profiles": ("profiles", "Show what was measured of your applications."),
        "queues": ("queues", "List queues, or change one."),
        "alerts": ("alerts", "Show what fires: idle GPUs, stuck jobs, lost nodes; set the rules."),
        "nodes": ("nodes", "List nodes, drain them, or put them back into service."),
        "notify": ("notify", "Say who is told of jobs by web hooks and mail, or try a target."),
        "users": ("accounts", "List users, or change one."),
        "tokens": ("accounts", "List access tokens, make one, or revoke one."),
        "whoami": ("accounts", "Say who you are to the server."),
    },
    "Kubernetes": {
        "operator": ("operator", "Schedule a Kubernetes cluster."),
        "agent": ("agent", "Give out the GPUs of a Kubernetes node, and hold shares of them."),
        "kubernetes": ("kubernetes", "Install Roost on a cluster, check it, or take it away."),
    },
    "Simulator": {
        "simulate": ("simulate", "Replay a workload, or the present cluster, under one policy."),
        "compare": ("compare", "Replay a workload under several policies and seeds, side by side."),
        "history": ("history", "Write the jobs that a server has run as a trace."),
        "policies": ("listing", "List the scheduling policies, or show one."),
        "placers": ("listing", "List the placers: where a job goes once it may run."),
        "generate": ("workloads", "Write a synthetic workload as csv."),
        "inspect": ("workloads", "Say what is in a trace file, or convert it to Roost's csv."),
        "diff": ("diff", "Compare the event logs of two runs."),
        "learn": ("learn", "Train the networks of learnt policies."),
    },
    "Other": {
        "demo": ("demo", "See it work: real training jobs, or nine policies."),
        "bench": (_ADDED, "Measure Roost itself."),
        "completion": ("completion", "Print the script that completes commands in your shell."),
    },
}
_VERBS = {name: told for verbs in _SECTIONS.values() for name, told in verbs.items()}
#: The verbs that talk to a server, which ``--on`` names.
_REMOTE = frozenset(
    {*_SECTIONS["Jobs"], *_SECTIONS["Cluster"], *("open", "simulate", "compare", "history")}
    - {"convert"}
)
#: Other names of verbs, and the functions of verbs that cannot be named like them.
_ALIASES = {"ls": "list", "ps": "list"}
_FUNCTIONS = {"list": "list_jobs", "open": "open_pages"}
#: Verbs by what they are called in kubectl, Slurm, SkyPilot, docker and elsewhere.
_MEANT = {
    **dict.fromkeys(("stop", "kill", "scancel", "abort", "terminate"), "cancel"),
    **dict.fromkeys(("rm", "remove"), "delete"),
    **dict.fromkeys(("status", "squeue", "sacct", "jobs", "job"), "list"),
    **dict.fromkeys(("describe", "show", "scontrol", "info"), "get"),
    **dict.fromkeys(
        ("launch", "run", "sbatch", "srun", "salloc", "apply", "create", "exp", "array"), "submit"
    ),
    **dict.fromkeys(("retry", "restart", "requeue", "resubmit", "again"), "rerun"),
    **dict.fromkeys(("pause", "hold"), "suspend"),
    **dict.fromkeys(("unpause", "release", "continue"), "resume"),
    **dict.fromkeys(("tail", "log", "output"), "logs"),
    **dict.fromkeys(("sinfo", "node"), "nodes"),
    **dict.fromkeys(("start", "serve", "server"), "up"),
    **dict.fromkeys(("shutdown", "quit"), "down"),
    **dict.fromkeys(("stats", "nvidia-smi", "gpus"), "top"),
    **dict.fromkeys(("sreport", "cost-report", "accounting", "billing"), "usage"),
    **dict.fromkeys(("sacctmgr", "user"), "users"),
    **dict.fromkeys(("why", "sprio"), "explain"),
    "resize": "scale",
    **dict.fromkeys(("portal", "dashboard", "ui", "web", "browser"), "open"),
}
#: What people look for and Roost does not have under that name, with what comes nearest.
_ABSENT = {
    **{
        word: f"it is: roost nodes {word} NODE"
        for word in ("drain", "undrain", "cordon", "uncordon", "maintenance")
    },
    "watch": "lists that stay: roost top -w, roost list -w; the end of a job: roost submit --wait",
    **dict.fromkeys(
        ("ssh", "exec", "attach", "shell"),
        "there is no shell in a job; what it prints is in: roost logs -f JOB",
    ),
    "port-forward": "ports are not forwarded; a job opens ports of the machine by itself, and "
    "ssh -L reaches them",
}


class _Verbs(click.Group):
    """Finds verbs without importing them all: ``roost --help`` must stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All verbs, in the order in which people meet them."""
        return [*_VERBS, *(name for name in _entry_points() if name not in _VERBS)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """The verb of that name."""
        name = _ALIASES.get(name, name)
        module, _ = _VERBS.get(name, (_ADDED, ""))
        if module == _ADDED:
            return _added(name)
        found = importlib.import_module(f"roost.cli.{module}")
        command: click.Command = getattr(found, _FUNCTIONS.get(name, name))
        if name not in _REMOTE:
            return command
        from roost.cli.connection import with_server

        return with_server(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that was typed; an unknown one names the nearest."""
        typed = args[0] if args else ""
        if (
            _ALIASES.get(typed, typed) not in _VERBS
            and not typed.startswith("-")
            and not ctx.resilient_parsing
            and typed not in _entry_points()
        ):
            raise _unknown_verb(typed, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The overview, from the table above. The verbs of entry points are not in it.

        To find them, the metadata of every installed package is read, and help must be quick.
        """
        for title, verbs in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in verbs.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb. What click would answer in its own way is answered here."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output has gone: what is still in the buffer must not be written.
            _drop_output()
            ctx.exit(0)
        except KeyboardInterrupt:
            from roost.cli.progress import on_terminal

            click.echo("\ninterrupted" if on_terminal() else "interrupted", err=True)
            ctx.exit(130)


def _unknown_verb(typed: str, verbs: Sequence[str]) -> NotFound:
    """Name the verb that is meant: by what it is called elsewhere, or else by its letters."""
    if typed in _ABSENT:
        return NotFound(f"unknown command {typed!r}; {_ABSENT[typed]}")
    meant = _MEANT.get(typed, "")
    if meant in _VERBS:
        return NotFound(
            f"unknown command {typed!r}; did you mean {meant!r}? It says: {_VERBS[meant][1]}"
        )
    return unknown("command", typed, verbs)


def _entry_points() -> dict[str, EntryPoint]:
    """The verbs that other distributions add."""
    from importlib.metadata import entry_points

    return {found.name: found for found in entry_points(group=GROUP)}


def _added(name: str) -> click.Command | None:
    """A verb of another distribution; the benchmarks say how to get them where they are missing."""
    found = _entry_points().get(name)
    if found is not None:
        command: click.Command = found.load()
        return command
    return _no_benchmarks if name == "bench" else None


@click.command("bench", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def _no_benchmarks(args: tuple[str, ...]) -> None:
    """Measure Roost itself."""
    del args
    raise NotFound(_NO_BENCHMARKS)


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    """Tell the version, and whether the scheduling core was compiled when this Roost was built."""
    if not wanted or ctx.resilient_parsing:
        return
    found = importlib.util.find_spec("roost.core.controller")
    plain = found is None or found.origin is None or found.origin.endswith(".py")
    kind = "plain Python" if plain else "compiled"
    click.echo(f"roost, version {__version__}, {kind} core")
    ctx.exit()


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Try: roost demo, then roost up and roost submit -- echo hello",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option(
    "--context",
    envvar="ROOST_CONTEXT",
    default="",
    metavar="K8S",
    help="Talk to the Kubernetes cluster of this context of your kubeconfig.",
)
@click.option(
    "--on",
    default="",
    metavar="NAME",
    help="Talk to the server of this login; also after the verb, and ROOST_ON.",
)
@click.pass_context
def cli(ctx: click.Context, context: str, on: str) -> None:
    """Roost, a deep-learning cluster manager."""
    ctx.obj = context
    if on:
        from roost.cli.connection import talk_to

        talk_to(ctx, on)


def main(args: list[str] | None = None) -> Any:
    """Run the command line; errors are one line on standard error and exit status 2."""
    _leave_when_told()
    try:
        return cli.main(args, prog_name="roost", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _fail(error.format_message(), hint=_usage(error))
    except RoostError as error:
        faults = getattr(error, "errors", ())
        if len(faults) > 1:  # of a job file
            return _fail_of_file(str(getattr(error, "file", "")), faults)
        return _fail(str(error))
    except KeyboardInterrupt:  # while options were still being read
        click.echo("interrupted", err=True)
        return _SIGNALLED + signal.SIGINT
    except MemoryError:
        return _fail("out of memory")
    except OSError as error:
        # Files are written elsewhere, with errors of their own.
        output = "standard output" if error.errno == errno.ENOSPC else None
        if output and not error.filename:
            _drop_output()  # or the interpreter tries once more on its way out
        where = error.filename or output
        return _fail(f"{where}: {error.strerror}" if where else str(error))


def _leave_when_told() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminated)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _swallowed


def _drop_output() -> None:
    """Let what is still on its way to standard output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(_SIGNALLED + number)


def _swallowed(unraisable: sys.UnraisableHookArgs) -> None:
    """Ask again when the interpreter drops an exit: it came inside a callback of its own."""
    match unraisable.exc_value:
        case KeyboardInterrupt():
            number: int = signal.SIGINT
        case SystemExit(code=int(status)) if status > _SIGNALLED:
            number = status - _SIGNALLED
        case _:
            sys.__unraisablehook__(unraisable)
            return
    dropped = (number, threading.get_ident())
    threading.Thread(target=_ask_again, args=dropped, daemon=True).start()


def _ask_again(number: int, thread: int) -> None:
    """Send the signal once more when that thread has left the hook, where it would be dropped."""
    while _in_hook(sys._current_frames().get(thread)):  # noqa: SLF001 - the only way to see it
        time.sleep(0.001)
    os.kill(os.getpid(), number)


def _in_hook(frame: FrameType | None) -> bool:
    while frame and frame.f_code is not _swallowed.__code__:
        frame = frame.f_back
    return frame is not None


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"try {context.command_path} --help" if context is not None else ""


def _fail_of_file(file: str, faults: Sequence[Any]) -> int:
    """All that is wrong with a job file, a line each."""
    from roost.client.formatting import clean

    click.echo(f"roost: error: {clean(file)}: {len(faults)} mistakes", err=True)
    for fault in faults:
        where = f"line {fault.line}: " if fault.line else ""
        click.echo(f"  {where}{clean(fault.message)}", err=True)
    return 2


def _fail(message: str, hint: str = "") -> int:
    line = " ".join(part.strip() for part in message.splitlines())
    click.echo(f"roost: error: {line}{f' ({hint})' if hint else ''}", err=True)
    return 2
