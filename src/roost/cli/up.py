"""``roost up`` and ``roost down``: the server on this machine."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from roost.cli.config_file import apply_config
from roost.cli.options import complete_placers, complete_policies
from roost.cli.parameter_types import NO_BOUND, ByteSize, DiskBound, Duration, Verb, option
from roost.cli.prune import KEEP_HELP, MAX_DISK_HELP, retention_option
from roost.cli.queue_settings import read_queues
from roost.cli.server_log import server_log
from roost.cli.typical import read_typical
from roost.client import endpoints
from roost.defaults import PLACER, POLICY, USER_DISK, USER_JOBS
from roost.errors import Conflict, InvalidSpec, NotFound, RoostError

if TYPE_CHECKING:
    from roost.engines.mounts import HostMount
    from roost.server.boot import ServerSettings
    from roost.server.home import RunningServer

#: How long a server may take to stop, in seconds.
_DOWN_S = 15.0
_TYPED = "roost.up.typed"
#: How long a server may take to say what became of a reload, in seconds.
_RELOAD_S = 10.0
_OPEN = ("queued", "starting", "running", "suspended", "resizing")

_network = partial(option, section="Run")
_place = partial(option, section="Run")

home_option = _place(
    "--home",
    type=click.Path(path_type=Path),
    envvar="ROOST_HOME",
    default=endpoints.usual_home,
    show_default="~/.local/share/roost, of root /var/lib/roost",
    show_envvar=True,
    help="Folder of the server: database, token, logs and runs.",
)


class _Up(Verb):
    """Remembers what was typed, to read it again together with the config file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the options, and a copy of them as they were typed."""
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)


@click.command(
    cls=_Up,
    epilog="""\b
Examples:
  roost up
  roost up --config roost.yaml
  roost up -d --policy tiresias
  roost up -d --slots 8 --port 0 --home /tmp/try
  roost up --host 10.0.0.5 --tls-cert node.pem --tls-key node.key""",
)
@_place(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=apply_config,
    metavar="FILE",
    help="Options by their own words, in YAML or TOML; those typed here count more.",
)
@_network("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen there.")
@_network(
    "--port",
    type=click.IntRange(0, 65535),
    default=8610,
    show_default=True,
    metavar="N",
    help="Listen on that port; 0 for any that is free.",
)
@_network("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate.")
@_network("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its key.")
@_network(
    "--allow-host",
    "allow",
    multiple=True,
    metavar="NAME",
    help="A further name by which clients may call this server.",
)
@_network(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the administrator's token is kept.  [default: HOME/token]",
)
@home_option
@_place(
    "--store",
    default="",
    envvar="ROOST_STORE",
    show_envvar=True,
    metavar="URL",
    help="The database; one with a password is better named by the variable.  "
    "[default: SQLite in HOME]",
)
@option(
    "--policy",
    section="Policy",
    default=POLICY,
    show_default=True,
    metavar="NAME",
    shell_complete=complete_policies,
    help="Which job runs next; see roost policies.",
)
@option(
    "--placer",
    section="Policy",
    default=PLACER,
    show_default=True,
    metavar="NAME",
    shell_complete=complete_placers,
    help="Where jobs go; see roost placers.",
)
@option(
    "--typical",
    section="Policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A trace of what usually comes, for the placers fgd, usable and compact; read at the "
    "start.  [default: they learn it as jobs come]",
)
@option(
    "--slots",
    section="Cluster",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Offer N CPU slots instead of GPUs.",
)
@option(
    "--user-jobs",
    section="Cluster",
    type=click.IntRange(1),
    default=USER_JOBS,
    show_default=True,
    metavar="N",
    help="The most jobs of one user that are not over.",
)
@option(
    "--user-disk",
    section="Cluster",
    type=DiskBound(),
    default=USER_DISK,
    show_default=True,
    metavar="SIZE",
    help="The most space of one user, as 200Gi, 50% of the disk, or none: beyond it, nothing new.",
)
@option(
    "--user-disk-max",
    section="Cluster",
    type=DiskBound(),
    metavar="SIZE",
    help="Stop the jobs of a user that still write beyond that; without it, none is stopped.",
)
@option(
    "--mount",
    section="Cluster",
    multiple=True,
    metavar="NAME=PATH[:ro]",
    help="A folder of this machine that jobs may use by that name.",
)
@option(
    "--queue",
    section="Cluster",
    multiple=True,
    metavar="NAME:KEY=VALUE,...",
    help="A queue's quota_milli, limit_milli, weight, priority or cells, whatever it had before, "
    "e.g. vision:weight=2,cells=2xgpu.",
)
@_place(
    "--adopt-home",
    is_flag=True,
    help="Take over a database of another home; what runs there is declared lost.",
)
@retention_option("--keep", "keep_s", type=Duration(), metavar="DURATION", help=KEEP_HELP)
@retention_option(
    "--keep-jobs",
    type=click.IntRange(0),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Forget the oldest jobs that are over, where there are more than N.",
)
@retention_option("--max-disk", type=ByteSize(), metavar="SIZE", help=MAX_DISK_HELP)
@_place(
    "--as-copy",
    "origin",
    flag_value="copy",
    help="This home is a copy: give it an identity of its own; the original's jobs stay there.",
)
@_place(
    "--moved",
    "origin",
    flag_value="moved",
    help="The original of this home is gone: take over its identity and its jobs.",
)
@option("-d", "--detach", section="Run", is_flag=True, help="Go to the background once it is up.")
@option(
    "--log-level",
    section="Run",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to write to HOME/server.log.",
)
@option(
    "--print-unit",
    section="Run",
    is_flag=True,
    help="Print a systemd unit for a server with these options, and start nothing.",
)
def up(
    *, detach: bool, log_level: str, config: Path | None, print_unit: bool, **given: Any
) -> None:
    """Start the server on this machine.

    Jobs run as processes here, and go on when the server stops: the next start finds them again.
    """
    _warn_of_password(given["store"])
    if print_unit:
        from roost.cli.systemd_unit import unit

        settings = _settings(given)
        click.echo(unit(click.get_current_context(), settings.home), nl=False)
        return
    start = _start(given)
    if config is not None:
        from dataclasses import replace

        typed = [*click.get_current_context().meta[_TYPED], "--config", str(config.absolute())]
        start = replace(start, reread=partial(_reread, typed))
    if detach:
        _detached(start, log_level)
        return
    with server_log(start.home, log_level, also_here=True):
        jobs = _serve(start, lambda told: _show(told, foreground=True))
    click.echo(f"stopped; {_go_on(jobs)}")


def _warn_of_password(store: str) -> None:
    """Say that a password on the command line is seen by all."""
    source = click.get_current_context().get_parameter_source("store")
    if source is ParameterSource.COMMANDLINE and re.match(r"\w+://[^/@]*:[^/@]+@", store):
        click.echo(
            "roost: warning: all users of this machine can read the password in --store: "
            "put the address into ROOST_STORE, or the password into PGPASSWORD or ~/.pgpass",
            err=True,
        )


def _reread(typed: list[str]) -> ServerSettings:
    """The settings as the config file has them now; raises RoostError."""
    try:
        with up.make_context("up", list(typed)) as ctx:
            values = dict(ctx.params)
    except click.ClickException as error:
        raise InvalidSpec(error.format_message()) from None
    level = values.pop("log_level")
    for name in ("detach", "config", "print_unit"):
        values.pop(name)
    found = _settings(values)
    logging.getLogger().setLevel(level.upper())
    return found


def _start(given: Mapping[str, Any]) -> ServerSettings:
    """The settings of the server; its home is there, and no server runs from it."""
    gc.disable()  # while the server is loaded: nothing of that is garbage
    try:
        from roost.server.home import Home

        start = _settings(given)
    finally:
        gc.enable()
    home = Home(start.home, start.token_file)
    home.prepare()
    home.refuse_second()
    return start


def _settings(given: Mapping[str, Any]) -> ServerSettings:
    """The settings of the server, checked as far as possible before anything is touched."""
    from roost import placement, policies
    from roost.live.retention import RetentionRule
    from roost.live.user_bounds import UserBounds
    from roost.server.boot import ServerSettings
    from roost.server.tls import Tls

    values = {**given, "origin": given["origin"] or ""}
    cert, key = values.pop("tls_cert"), values.pop("tls_key")
    if (cert is None) != (key is None):
        raise InvalidSpec("--tls-cert and --tls-key go together")
    tls = None if cert is None else Tls(cert.absolute(), key.absolute())
    if tls is not None:
        tls.context()  # what is wrong with the files is said here, not in a log
    policies.policy(values["policy"])
    # The server may run in another folder.
    values["policy"] = policies.absolute(values["policy"])
    values["typical"] = () if values["typical"] is None else read_typical(values["typical"])
    placement.placer(values["placer"], values["typical"])
    retention = RetentionRule(values.pop("keep_s"), values.pop("keep_jobs"), values.pop("max_disk"))
    values["retention"] = retention
    disk = [_bytes(values.pop(name), values["home"]) for name in ("user_disk", "user_disk_max")]
    values["bounds"] = UserBounds(values.pop("user_jobs"), *disk)
    values["mount"] = _mounts(values["mount"])
    values["queue"] = tuple(read_queues(values["queue"]))
    return ServerSettings(tls=tls, **values)


def _bytes(bound: float | None, home: Path) -> int | None:
    """A bound on disk space in bytes, if there is one; a fraction is one of the home's disk."""
    if bound is None or bound >= NO_BOUND:
        return None
    if isinstance(bound, int):
        return bound
    place = home.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return int(bound * shutil.disk_usage(place).total)


def _mounts(given: Iterable[str]) -> tuple[HostMount, ...]:
    from roost.engines.mounts import read_mount

    found: dict[str, HostMount] = {}
    for text in given:
        try:
            mount = read_mount(text)
        except InvalidSpec as error:
            raise InvalidSpec(f"mount: {error}") from None
        if mount.name in found:
            raise InvalidSpec(f"mount: {mount.name} is declared twice")
        if not Path(mount.path).is_dir():
            raise InvalidSpec(f"mount: {mount.name} is {mount.path}, which is no folder here")
        found[mount.name] = mount
    return tuple(found.values())


def _serve(start: ServerSettings, told: Callable[[dict[str, Any]], None]) -> dict[str, int]:
    import asyncio

    from roost.server.boot import as_dict, run

    return asyncio.run(run(start, lambda found: told(as_dict(found))))


def _show(told: Mapping[str, Any], *, foreground: bool) -> None:
    """Print what people want to know about a server that is up."""
    from roost import __version__

    made = "made now, readable by you only" if told["new_token"] else "readable by you only"
    rows = {
        "portal": _portal(told),
        "devices": told["devices"],
        "limits": told["limits"],
        "isolation": told["isolation"],
        "policy": told["policy"],
        "database": told["store"],
        "token": f"{told['token_file']} ({made})",
        "log": str(Path(told["home"]) / "server.log"),
    }
    if told["jobs"]:
        rows["jobs"] = _counted(told["jobs"])
    click.echo(f"Roost {__version__} is up: {told['url']}")
    for name, text in rows.items():
        if text:
            click.echo(f"  {name:<10} {text}")
    for warning in told["warnings"]:
        click.echo(f"roost: warning: {warning}", err=True)
    if endpoints.home() != Path(told["home"]):
        click.echo(f"For other commands to find it: export ROOST_HOME={told['home']}")
    click.echo("Next: roost submit -- python train.py · roost list · roost nodes")
    end = "Ctrl-C stops the server" if foreground else "roost down stops the server"
    click.echo(f"{end}; jobs go on.")
    sys.stdout.flush()


def _portal(told: Mapping[str, Any]) -> str:
    """Where the pages are: a link that logs in, unless it would end up in a log."""
    if os.environ.get("JOURNAL_STREAM"):
        return f"{told['url']} (roost open makes a link that logs you in)"
    return f"{told['login_url']} (works once, for 15 minutes; then: roost open)"


def _counted(jobs: Mapping[str, int]) -> str:
    return ", ".join(f"{jobs[state]} {state}" for state in _OPEN if jobs.get(state))


def _go_on(jobs: Mapping[str, int] | None) -> str:
    """Say what becomes of the jobs until the next server."""
    if jobs is None:
        return "jobs go on"
    if not sum(jobs.values()):
        return "there are no jobs"
    waiting = sum(jobs.get(state, 0) for state in ("queued", "suspended"))
    running = sum(jobs.values()) - waiting
    parts = [f"{running} job{'s' * (running != 1)} go{'es' * (running == 1)} on running"]
    parts += [f"{waiting} wait{'s' * (waiting == 1)} for the next roost up"] if waiting else []
    return ", ".join(parts if running else [f"no job runs, {parts[-1]}"])


def _detached(start: ServerSettings, level: str) -> None:
    """Serve in a process of its own; come back when that one answers, or say why it does not."""
    # The pipe brings one line: that the server is up, or why it is not. If the child dies, its end
    # is closed and the read below returns nothing; so there is no time limit to guess.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _become_server(start, level, writing)
    # Ours too, or the read below would never see the end of the pipe.
    os.close(writing)
    # The first child ends at once: the server is its child, and init's from then on.
    os.waitpid(child, 0)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.readline()
    told = json.loads(text) if text else {"error": "it ended while starting"}
    if "error" in told:
        from roost.server.home import Home

        raise Conflict(f"{told['error']} (more in {Home(start.home).log_file})")
    _answers(told["local_url"])
    _show(told, foreground=False)


def _become_server(start: ServerSettings, level: str, pipe: int) -> None:
    """Leave the terminal, serve, and end; never returns."""
    status = 2
    try:
        # A session of its own, then a second fork: without a terminal, and never able to get one.
        os.setsid()
        if os.fork():
            os._exit(0)
        from roost.server.home import Home

        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(Home(start.home).log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, file in ((0, null), (1, log), (2, log)):
            os.dup2(file, number)
        with server_log(start.home, level, also_here=False):
            status = _served(start, pipe)
    finally:
        # Not sys.exit: handlers and buffers belong to the process that was forked.
        os._exit(status)


def _served(start: ServerSettings, pipe: int) -> int:
    """Serve; the exit status, with the reason in the log and at the other end of the pipe."""
    log = logging.getLogger("roost.server")
    try:
        _serve(start, partial(_tell, pipe))
    except RoostError as error:
        log.error("%s", error)  # noqa: TRY400 - one line is enough
        _tell(pipe, {"error": str(error)})
    except BaseException:
        log.exception("the server ends")
    else:
        return 0
    return 2


def _tell(pipe: int, told: Mapping[str, Any]) -> None:
    """Send a line to the process that waits at the other end, once."""
    try:
        os.write(pipe, json.dumps(told).encode() + b"\n")
        os.close(pipe)
    except OSError:
        return


def _answers(url: str) -> None:
    """See that the server answers; raises Conflict."""
    import httpx

    try:
        # Only whether it answers: the certificate may name the machine otherwise.
        httpx.get(f"{url}/healthz", verify=False, timeout=10, trust_env=False).raise_for_status()  # noqa: S501
    except httpx.HTTPError as error:
        raise Conflict(f"the server at {url} does not answer: {error}") from None


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost down
  roost down --stop-jobs""",
)
@home_option
@option("--stop-jobs", section="Run", is_flag=True, help="Cancel all jobs first.")
def down(home: Path, *, stop_jobs: bool) -> None:
    """Stop the server on this machine; jobs go on unless --stop-jobs is given."""
    from roost.server.home import Home

    place = Home(home)
    running = place.running()
    if running is None:
        raise NotFound(f"no server runs from {place.path}")
    # Asked before the signal: afterwards there is no server to say what goes on.
    token = Home(home, Path(running.token_file) if running.token_file else None).token()
    jobs = _jobs(running, token, stop=stop_jobs)
    if not running.send(signal.SIGTERM, _DOWN_S):
        raise Conflict(f"the server with pid {running.pid} did not stop within {_DOWN_S:g} s")
    click.echo(f"stopped the server with pid {running.pid}; {_go_on(jobs)}")


@click.command(
    cls=Verb,
    epilog="""\b
Example:
  roost reload""",
)
@home_option
def reload(home: Path) -> None:
    """Have the server read its config file again; jobs are not touched.

    It says which settings changed, and which need a restart.
    """
    import time

    from roost.server.home import Home
    from roost.server.reloading import NOTE

    place = Home(home)
    running = place.running()
    if running is None:
        raise NotFound(f"no server runs from {place.path}")
    note, told, asked_at = place.path / NOTE, dict[str, Any](), time.time()
    if not running.reloads:
        raise Conflict("the server was started without --config: there is no file to read again")
    running.send(signal.SIGHUP, 0.0)
    while told.get("at", 0.0) < asked_at:
        if time.time() > asked_at + _RELOAD_S:
            raise Conflict(f"the server does not answer; see {place.log_file}")
        time.sleep(0.05)
        with suppress(OSError, ValueError):
            told = json.loads(note.read_text(encoding="utf-8"))
    if told["error"]:
        raise InvalidSpec(f"nothing was changed: {told['error']}")
    click.echo(f"changed: {', '.join(told['changed']) or 'nothing'}")
    if told["restart"]:
        words = ", ".join(told["restart"])
        click.echo(f"needs a restart (roost down, roost up; jobs go on): {words}")


def _jobs(running: RunningServer, token: str | None, *, stop: bool) -> dict[str, int] | None:
    """The jobs that are not over, by state, if the server tells; cancelled if that is wanted."""
    import httpx

    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(
        base_url=f"{running.url}/api/v1",
        headers=headers,
        verify=False,  # noqa: S501 - of this machine, known by its process
        timeout=30,
        trust_env=False,
    ) as client:
        try:
            if stop:
                _cancel_all(client)
            totals = {state: _total(client, state) for state in _OPEN}
            return {state: total for state, total in totals.items() if total}
        except (httpx.HTTPError, KeyError, ValueError) as error:
            if stop:
                raise Conflict(f"cannot cancel the jobs: {error}; nothing was stopped") from None
            return None


def _total(client: Any, state: str) -> int:
    return int(client.get("/jobs", params={"state": state, "limit": 1}).json()["total"])


def _cancel_all(client: Any) -> None:
    """Cancel every job, and wait until all are over."""
    import time

    states = {"state": list(_OPEN), "limit": 200}
    end = time.monotonic() + 120
    while found := client.get("/jobs", params=states).json()["items"]:
        for job in found:
            if not job["cancelling"]:
                client.post(f"/jobs/{job['id']}/cancel").raise_for_status()
        if time.monotonic() > end:
            raise Conflict(f"{len(found)} jobs do not end; roost list shows them")
        time.sleep(0.1)
