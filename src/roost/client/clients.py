"""The two clients: the same methods, blocking and awaitable, made from the same conversations."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Self, TypeVar

import httpx

from roost.client import api, streams, uploads
from roost.client.conversations import Steps
from roost.client.endpoints import Endpoint, Trust, find
from roost.client.handles import AsyncJobHandle, JobHandle
from roost.client.machine import ServerMachine, server_machine
from roost.client.methods import awaited, awaited_items, blocking, blocking_items
from roost.client.submissions import PreparedSubmission, What, prepare
from roost.client.transports import AsyncTransport, SyncTransport

T = TypeVar("T")

_TIMEOUT_S = 30.0
_PATIENCE_S = 10.0


class Client:
    """A server, as one user sees it.

    Without arguments it is the one of the login ``ROOST_ON``, else the one that ``ROOST_URL`` and
    ``ROOST_TOKEN`` name, else the one started with ``roost up`` from ``home``, else that of the
    default login. ``on`` names a login (``roost login``), ``ca`` a file of certificates to trust
    instead of those of the machine. ``timeout`` bounds each request, ``patience`` how long a server
    that does not answer is asked again; both in seconds.
    """

    def __init__(  # noqa: PLR0913 - each is left out most of the time
        self,
        url: str | None = None,
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
        *,
        on: str | None = None,
        ca: Trust | None = None,
        timeout: float = _TIMEOUT_S,
        patience: float = _PATIENCE_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        place = find(url, token, home, on=on, ca=ca)
        self.url, self._guess = place.url, place.local
        #: Where the server is, once that was asked.
        self.machine: ServerMachine | None = None
        self._transport = SyncTransport(place, timeout, patience, transport)

    def run(self, steps: Steps[T]) -> T:
        """What a conversation returns."""
        return self._transport.run(steps)

    def iterate(self, steps: Steps[None]) -> Iterator[Any]:
        """What a conversation emits."""
        return self._transport.iterate(steps)

    def close(self) -> None:
        """End all connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def submit(self, what: What, key: str = "", *, send: bool = True) -> JobHandle:
        """Hand in a job: the path of a job file, its fields, a command as a list, or ``f.bind()``.

        However often it has to be sent, it becomes one job; so does what is submitted again with
        the same ``key``. To a server on another machine the present folder is sent along, unless
        the job names another one, or ``send`` says no.
        """
        ready = self._prepared(what, send=send)
        if ready.folder is not None:
            self.run(uploads.send(ready.folder))
        view = self.run(api.submit(ready.document, ready.secrets, ready.payload, key))
        return JobHandle(self, view, ready.notes)

    def plan(self, what: What, *, send: bool = True) -> api.Json:
        """Where and when it would run if it were submitted now; nothing changes."""
        ready = self._prepared(what, send=send)
        return self.run(api.plan(ready.document, ready.secrets, ready.payload))

    def where(self) -> ServerMachine:
        """Whether the server is on this machine, and takes folders; asked once."""
        if self.machine is None:
            self.machine = self.run(server_machine(self._guess))
        return self.machine

    def _prepared(self, what: What, *, send: bool) -> PreparedSubmission:
        if isinstance(what, PreparedSubmission):
            return what
        return prepare(what, self.where(), send=send)

    def job(self, job: str) -> JobHandle:
        """A handle of a job, by its id or its name."""
        return JobHandle(self, self.run(api.status(job)))

    def clone(
        self,
        job: str,
        changes: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        key: str = "",
    ) -> JobHandle:
        """Hand in a new job that begins from a snapshot: ``JOB@NAME``, or the newest of ``JOB``.

        ``changes`` are fields of the job file. Secrets that are not given are those of the job,
        while it is not over and yours.
        """
        return JobHandle(self, self.run(api.clone(job, changes, secrets, key)))

    def rerun(
        self,
        job: str,
        changes: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        key: str = "",
    ) -> JobHandle:
        """Hand in a new job with the job file of an earlier one, whatever became of that.

        ``changes`` are fields of the job file: ``env`` and ``labels`` are added to, others
        replaced, ``None`` takes one away. Secrets that are not given are those of the job, while
        it is not over and yours.
        """
        return JobHandle(self, self.run(api.rerun(job, changes, secrets, key)))

    jobs = blocking_items(api.jobs)
    snapshots = blocking(api.snapshots)
    delete_snapshot = blocking(api.delete_snapshot)
    profiles = blocking(api.profiles)
    page = blocking(api.page)
    watch = blocking_items(streams.watch)
    whoami = blocking(api.whoami)
    history = blocking(api.history)
    health = blocking(api.health)
    nodes = blocking(api.nodes)
    cordon_node = blocking(api.cordon_node)
    uncordon_node = blocking(api.uncordon_node)
    plan_maintenance = blocking(api.plan_maintenance)
    cancel_maintenance = blocking(api.cancel_maintenance)
    disable_gpu = blocking(api.disable_gpu)
    restore_gpu = blocking(api.restore_gpu)
    prune = blocking(api.prune)
    queues = blocking(api.queues)
    start_lab = blocking(api.start_lab)
    lab = blocking(api.lab)
    labs = blocking(api.labs)
    cancel_lab = blocking(api.cancel_lab)
    templates = blocking(api.templates)
    fill_template = blocking(api.fill_template)
    set_template = blocking(api.set_template)
    delete_template = blocking(api.delete_template)
    alerts = blocking(api.alerts)
    set_alert_rules = blocking(api.set_alert_rules)
    summary = blocking(api.summary)
    counts = blocking(api.counts)
    bulk = blocking(api.bulk)
    timeline = blocking(api.timeline)
    metrics = blocking(api.metrics)
    search_logs = blocking(api.search_logs)
    read_spec = blocking(api.read_spec)
    write_spec = blocking(api.write_spec)
    spec_schema = blocking(api.spec_schema)
    node = blocking(api.node)
    audit = blocking(api.audit)
    server = blocking(api.server)
    set_queue = blocking(api.set_queue)
    delete_queue = blocking(api.delete_queue)
    notifications = blocking(api.notifications)
    set_notifications = blocking(api.set_notifications)
    test_notification = blocking(api.test_notification)
    top = blocking(api.top)
    state = blocking(api.state)
    users = blocking(api.users)
    add_user = blocking(api.add_user)
    set_user = blocking(api.set_user)
    delete_user = blocking(api.delete_user)
    tokens = blocking(api.tokens)
    add_token = blocking(api.add_token)
    revoke_token = blocking(api.revoke_token)
    login_link = blocking(api.login_link)


class AsyncClient:
    """The same with ``await``, ``async for`` and ``async with``."""

    def __init__(  # noqa: PLR0913 - each is left out most of the time
        self,
        url: str | None = None,
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
        *,
        on: str | None = None,
        ca: Trust | None = None,
        timeout: float = _TIMEOUT_S,
        patience: float = _PATIENCE_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        place = find(url, token, home, on=on, ca=ca)
        self.url, self._guess = place.url, place.local
        #: Where the server is, once that was asked.
        self.machine: ServerMachine | None = None
        self._transport = AsyncTransport(place, timeout, patience, transport)

    async def run(self, steps: Steps[T]) -> T:
        """What a conversation returns."""
        return await self._transport.run(steps)

    def iterate(self, steps: Steps[None]) -> AsyncIterator[Any]:
        """What a conversation emits."""
        return self._transport.iterate(steps)

    async def close(self) -> None:
        """End all connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def submit(self, what: What, key: str = "", *, send: bool = True) -> AsyncJobHandle:
        """Hand in a job; see ``Client.submit``."""
        ready = await self._prepared(what, send=send)
        if ready.folder is not None:
            await self.run(uploads.send(ready.folder))
        view = await self.run(api.submit(ready.document, ready.secrets, ready.payload, key))
        return AsyncJobHandle(self, view, ready.notes)

    async def plan(self, what: What, *, send: bool = True) -> api.Json:
        """Where and when it would run; see ``Client.plan``."""
        ready = await self._prepared(what, send=send)
        return await self.run(api.plan(ready.document, ready.secrets, ready.payload))

    async def where(self) -> ServerMachine:
        """Whether the server is on this machine, and takes folders; asked once."""
        if self.machine is None:
            self.machine = await self.run(server_machine(self._guess))
        return self.machine

    async def _prepared(self, what: What, *, send: bool) -> PreparedSubmission:
        if isinstance(what, PreparedSubmission):
            return what
        where = await self.where()
        # On a thread: a folder that is to be sent is read.
        return await asyncio.to_thread(prepare, what, where, send=send)

    async def job(self, job: str) -> AsyncJobHandle:
        """A handle of a job, by its id or its name."""
        return AsyncJobHandle(self, await self.run(api.status(job)))

    async def clone(
        self,
        job: str,
        changes: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        key: str = "",
    ) -> AsyncJobHandle:
        """Hand in a new job that begins from a snapshot; see ``Client.clone``."""
        return AsyncJobHandle(self, await self.run(api.clone(job, changes, secrets, key)))

    async def rerun(
        self,
        job: str,
        changes: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        key: str = "",
    ) -> AsyncJobHandle:
        """Hand in a new job with the job file of an earlier one; see ``Client.rerun``."""
        return AsyncJobHandle(self, await self.run(api.rerun(job, changes, secrets, key)))

    jobs = awaited_items(api.jobs)
    snapshots = awaited(api.snapshots)
    delete_snapshot = awaited(api.delete_snapshot)
    profiles = awaited(api.profiles)
    page = awaited(api.page)
    watch = awaited_items(streams.watch)
    whoami = awaited(api.whoami)
    history = awaited(api.history)
    health = awaited(api.health)
    nodes = awaited(api.nodes)
    cordon_node = awaited(api.cordon_node)
    uncordon_node = awaited(api.uncordon_node)
    plan_maintenance = awaited(api.plan_maintenance)
    cancel_maintenance = awaited(api.cancel_maintenance)
    disable_gpu = awaited(api.disable_gpu)
    restore_gpu = awaited(api.restore_gpu)
    prune = awaited(api.prune)
    queues = awaited(api.queues)
    start_lab = awaited(api.start_lab)
    lab = awaited(api.lab)
    labs = awaited(api.labs)
    cancel_lab = awaited(api.cancel_lab)
    templates = awaited(api.templates)
    fill_template = awaited(api.fill_template)
    set_template = awaited(api.set_template)
    delete_template = awaited(api.delete_template)
    alerts = awaited(api.alerts)
    set_alert_rules = awaited(api.set_alert_rules)
    summary = awaited(api.summary)
    counts = awaited(api.counts)
    bulk = awaited(api.bulk)
    timeline = awaited(api.timeline)
    metrics = awaited(api.metrics)
    search_logs = awaited(api.search_logs)
    read_spec = awaited(api.read_spec)
    write_spec = awaited(api.write_spec)
    spec_schema = awaited(api.spec_schema)
    node = awaited(api.node)
    audit = awaited(api.audit)
    server = awaited(api.server)
    set_queue = awaited(api.set_queue)
    delete_queue = awaited(api.delete_queue)
    notifications = awaited(api.notifications)
    set_notifications = awaited(api.set_notifications)
    test_notification = awaited(api.test_notification)
    top = awaited(api.top)
    state = awaited(api.state)
    users = awaited(api.users)
    add_user = awaited(api.add_user)
    set_user = awaited(api.set_user)
    delete_user = awaited(api.delete_user)
    tokens = awaited(api.tokens)
    add_token = awaited(api.add_token)
    revoke_token = awaited(api.revoke_token)
    login_link = awaited(api.login_link)


def submit(what: What, key: str = "") -> JobHandle:
    """Hand in a job to the usual server; see ``Client.submit``."""
    return usual().submit(what, key)


#: Clients that were not asked for by name; one per process and server.
_usual: dict[tuple[int, Endpoint], Client] = {}


def usual() -> Client:
    """The client of the server that the environment names, the same one each time."""
    place = find()
    known = (os.getpid(), place)
    if known not in _usual:
        _usual[known] = Client()
        atexit.register(_usual[known].close)
    return _usual[known]
