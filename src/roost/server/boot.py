"""Starting a server on this machine: home, store, engine, cluster, token, wire."""

from __future__ import annotations

import asyncio
import gc
import getpass
import ipaddress
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from roost import __version__
from roost.core.demand import Counts
from roost.core.spec import CPU_SLOT, QueueSpec
from roost.defaults import PLACER, POLICY
from roost.engines.local import LocalEngine
from roost.engines.local.run_folders import HomeFence
from roost.engines.mounts import HostMount
from roost.errors import Conflict, InvalidSpec
from roost.jobs.clock import WallClock
from roost.jobs.fresh_start import prepare
from roost.live.cluster import Cluster
from roost.live.disk_reserve import DiskReserve
from roost.live.retention import RetentionRule
from roost.live.user_bounds import UserBounds
from roost.server.app import create_app
from roost.server.context import Context
from roost.server.home import Home
from roost.server.http import listen, raise_file_limit, serve
from roost.server.identity import Origin, claim, settle
from roost.server.login_links import LinkOwner
from roost.server.options import LOOPBACK, ServerOptions
from roost.server.reloading import ServerReload, notify_alive, notify_ready
from roost.server.tls import Tls
from roost.store import Store, User, open_store

PORT = 8610


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server that is to start."""

    home: Path
    host: str = "127.0.0.1"
    port: int = PORT
    store: str = ""
    policy: str = POLICY
    placer: str = PLACER
    typical: Counts = ()
    slots: int | None = None
    tls: Tls | None = None
    allow: tuple[str, ...] = ()
    token_file: Path | None = None
    adopt_home: bool = False
    origin: Origin = ""
    retention: RetentionRule = field(default_factory=RetentionRule)
    bounds: UserBounds = field(default_factory=UserBounds)
    mount: tuple[HostMount, ...] = ()
    queue: tuple[QueueSpec, ...] = ()
    options: ServerOptions = field(default_factory=ServerOptions)
    #: Reads the settings once more; None: they came from no file.
    reread: Callable[[], ServerSettings] | None = field(default=None, compare=False)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    @property
    def everywhere(self) -> bool:
        """Whether it listens on all addresses."""
        return self.host in {"0.0.0.0", "::", ""}  # noqa: S104 - to recognise them

    def hosts(self) -> tuple[str, ...]:
        """The names by which clients may call it."""
        own = {self.host}
        if self.everywhere:  # an address of the machine counts where a connection comes in on it
            name = socket.gethostname()
            own = {name, name.partition(".")[0], socket.getfqdn()}
        return tuple(dict.fromkeys([*LOOPBACK, *sorted(own), *self.allow]))

    def url(self, port: int) -> str:
        """Its address for people."""
        host = socket.gethostname() if self.everywhere else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{port}"

    def local_url(self, port: int) -> str:
        """Its address for programs on this machine, which know its certificate whatever it says."""
        if not self.everywhere:
            return self.url(port)
        host = "[::1]" if ":" in self.host else "127.0.0.1"
        return f"{'https' if self.tls else 'http'}://{host}:{port}"


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """A server that is up, as `roost up` prints it."""

    url: str
    local_url: str
    #: A link that logs a browser in as the administrator, once.
    login_url: str
    home: str
    token_file: str
    new_token: bool
    store: str
    policy: str
    devices: str
    limits: str
    isolation: str
    warnings: tuple[str, ...]
    jobs: dict[str, int]


async def run(start: ServerSettings, told: Callable[[ServerSummary], None]) -> dict[str, int]:
    """Serve until a signal comes; returns the jobs that go on, by state."""
    raise_file_limit(start.options)  # before runs are adopted, each of which needs some
    home = Home(start.home, start.token_file)
    home.prepare()
    home.refuse_second()
    _check_reach(start, home)
    reserve = DiskReserve(home.path)
    reserve.open()
    certificate = start.tls.leaf() if start.tls else ""
    # The port before the database: where it is taken, nothing has been changed yet.
    with listen(start.host, start.port) as sock:
        identity = claim(home.path, start.origin)
        own = f"sqlite://{home.path / 'roost.db'}"
        url = start.store or own
        # On a thread: a database on another machine may take seconds to answer.
        store = await asyncio.to_thread(open_store, url)
        clock = WallClock()
        engine = LocalEngine(
            home.path,
            start.slots,
            clock.now,
            # As root, nothing may run for a user without an account on this machine.
            accounts=os.geteuid() == 0,
            fence=HomeFence(identity.id, copied=bool(identity.copy_of)),
            mounts=start.mount,
        )
        engine.look()  # while the journal is read
        cluster = Cluster(
            store,
            engine,
            home.path,
            policy=start.policy,
            placer=start.placer,
            typical=start.typical,
            clock=clock,
            by_account=os.geteuid() == 0,
            identity=identity.row,
            # A copy takes over what was copied with it; a database elsewhere is the original's.
            adopt=start.adopt_home or bool(identity.copy_of and url == own),
            copied=bool(identity.copy_of),
            retention=start.retention,
            bounds=start.bounds,
            reserve=reserve,
        )
        # A client must not find the server by the note of one that has gone.
        prepare(cluster.guard, before=home.forget)
        try:
            await _started(cluster)
            for queue in start.queue:
                await cluster.promise(queue)
            settle(home.path, identity)
            # After start(), which claims the store: a second server must not add tokens.
            new = await asyncio.to_thread(_ensure_token, home, store)
            if new and (admin := store.accounts.user(getpass.getuser())) is not None:
                await cluster.user_changed(admin, "roost up")
            probe = home.leave_probe()
            app = create_app(
                cluster,
                replace(start.options, hosts=start.hosts(), probe=probe, mounts=start.mount),
            )
            port = sock.getsockname()[1]
            link = partial(_login_link, app, await asyncio.to_thread(_token_owner, home, store))

            # Called when the socket accepts: clients find the server by this note.
            def ready() -> None:
                again = start.reread is not None
                home.note(start.local_url(port), __version__, certificate, reloads=again)
                summary = _up(start, home, cluster, port, new_token=new)
                told(replace(summary, login_url=summary.url + link()))
                notify_ready()
                gc.freeze()  # the list of jobs for viewers is there by now, too: see _started

            if start.reread is not None:
                reload = ServerReload(start, cluster, home.path)
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
            beside = [
                asyncio.create_task(notify_alive(), name="alive"),
                asyncio.create_task(reserve.keep(), name="reserve"),
            ]
            try:
                await serve(app, sock, tls=start.tls, ready=ready)
            finally:
                for task in beside:
                    task.cancel()
                # Before the cluster closes: no client shall be sent to a server that is ending.
                home.forget()
            return jobs_of(cluster)
        finally:
            await cluster.close()


async def _started(cluster: Cluster) -> None:
    """Start a cluster; what it brings back stays, and is no garbage to look through again.

    With very many jobs a look at all of them takes longer than anybody should have to wait.
    """
    gc.disable()
    try:
        await cluster.start()
    finally:
        gc.freeze()
        gc.enable()


def _check_reach(start: ServerSettings, home: Home) -> None:
    """Refuse an address that others can reach, unless there is a token already."""
    found = home.token()
    if start.local or found or start.token_file is not None:
        return
    raise InvalidSpec(
        f"{start.host} can be reached by others: start once without --host to make the token in "
        f"{home.token_file}, or say where to keep it with --token-file"
    )


def _ensure_token(home: Home, store: Store) -> bool:
    """See that the token in the home opens the store; whether it had to be made."""
    known = home.token()
    if known and store.accounts.find_token(known) is not None:
        return False
    name = getpass.getuser()
    user = store.accounts.user(name)
    if user is None:
        store.accounts.add_user(User(name, "admin", unix=name), actor="roost up")
    # The account of the server can change the database anyway: it is never locked out.
    elif user.role != "admin" or not user.active:
        store.accounts.set_user(replace(user, role="admin", active=True), actor="roost up")
    # The store first: a crash in between leaves a token without a file, and the next start makes
    # another. The other way round the file would hold a token that opens nothing.
    _, secret = store.accounts.add_token(name, "roost up", actor="roost up")
    home.keep_token(secret)
    return True


def _token_owner(home: Home, store: Store) -> LinkOwner:
    """The user of the token in the home, and the token."""
    found = store.accounts.find_token(home.token() or "")
    if found is None:
        raise Conflict(f"the token in {home.token_file} was revoked while the server started")
    token, user = found
    return LinkOwner(user.name, token.id)


def _login_link(app: FastAPI, owner: LinkOwner) -> str:
    """The path of a link that logs a browser in as the administrator."""
    context: Context = app.state.roost
    return context.links.make(owner)


def jobs_of(cluster: Cluster) -> dict[str, int]:
    """How many jobs that are not over there are, by state."""
    found = Counter([job.state for job in cluster.core.jobs.values()])
    return {state.value: count for state, count in found.items() if not state.over}


def _up(
    start: ServerSettings, home: Home, cluster: Cluster, port: int, *, new_token: bool
) -> ServerSummary:
    engine = cluster.engine
    limits = engine.limits if isinstance(engine, LocalEngine) else ""
    return ServerSummary(
        url=start.url(port),
        local_url=start.local_url(port),
        login_url="",
        home=str(home.path),
        token_file=str(home.token_file),
        new_token=new_token,
        store=cluster.store.where,
        policy=f"{start.policy}, {start.placer}",
        devices=_devices(cluster.nodes(), asked=start.slots is not None),
        limits=limits,
        isolation=_isolation(),
        warnings=(*_warnings(start), *filter(None, [cluster.health.why])),
        jobs=jobs_of(cluster),
    )


def _devices(nodes: list[dict[str, Any]], *, asked: bool) -> str:
    """What was found here, called what it is."""
    told = []
    for node in nodes:
        count, kind, name = node["gpus"], node["kind"], node["id"]
        plural = "s" if count != 1 else ""
        if kind == CPU_SLOT and asked:
            told.append(f"{count} CPU slot{plural} instead of GPUs, as asked, on {name}")
        elif kind == CPU_SLOT:
            verb = "stand" if count != 1 else "stands"
            told.append(f"no GPU found: {count} CPU slot{plural} {verb} in on {name}")
        else:
            memory = f" with {node['gpu_memory_mib'] / 1024:.0f} GiB" * bool(node["gpu_memory_mib"])
            told.append(f"{count} GPU{plural} {kind}{memory} on {name}")
    return "; ".join(told) or "none yet"


def _isolation() -> str:
    if os.geteuid() == 0:
        return "jobs run under the Unix accounts of their users"
    return (
        f"all jobs run under the account {getpass.getuser()!r}: "
        "they are not isolated from each other, nor from this server"
    )


def _warnings(start: ServerSettings) -> tuple[str, ...]:
    found: list[str] = []
    if not start.local and start.tls is None:
        found.append(
            f"{start.host} can be reached by others and there is no TLS: "
            "tokens cross the network in the clear; use --tls-cert and --tls-key"
        )
    return tuple(found)


def as_dict(up: ServerSummary) -> dict[str, Any]:
    """The same, ready for JSON."""
    return asdict(up)
