"""Handles: what one does with a job that was submitted, blocking and awaitable."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from roost.client import api, downloads, notebook, outcomes
from roost.client.logs import logs
from roost.client.methods import (
    own_awaited,
    own_awaited_items,
    own_blocking,
    own_blocking_items,
)
from roost.client.views import JobView
from roost.errors import RoostError

if TYPE_CHECKING:
    from roost.client.clients import AsyncClient, Client


class _Handle:
    """A job of a client: its id, how it was when last looked at, and notes on its job file."""

    def __init__(self, client: Any, view: JobView, notes: tuple[str, ...] = ()) -> None:
        self.client = client
        self.id = view.id
        self.view = view
        self.notes = notes

    def noted(self, told: object) -> None:
        """Keep the newest view of the job."""
        if isinstance(told, JobView):
            self.view = told

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.view.state})"

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, type(self)) and other.client.url == self.client.url
        return same and other.id == self.id  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.client.url, self.id))


class JobHandle(_Handle):
    """A job that was submitted.

    ``view`` is how it was when last looked at; ``notes`` tell what of its job file was not
    converted.
    """

    client: Client

    status = own_blocking(api.status)
    wait = own_blocking(api.wait)
    logs = own_blocking_items(logs)
    result = own_blocking(outcomes.result)
    scale = own_blocking(api.scale)
    suspend = own_blocking(api.suspend)
    resume = own_blocking(api.resume)
    migrate = own_blocking(api.migrate)
    snapshot = own_blocking(api.snapshot)
    snapshots = own_blocking(api.snapshots)
    cancel = own_blocking(api.cancel)
    delete = own_blocking(api.delete)
    explain = own_blocking(api.explain)
    events = own_blocking(api.events)
    workers = own_blocking(api.workers)
    document = own_blocking(api.document)
    files = own_blocking(downloads.files)
    download = own_blocking(downloads.download)

    show = own_blocking(notebook.show)

    def rerun(
        self, changes: Mapping[str, Any] | None = None, secrets: Mapping[str, str] | None = None
    ) -> JobHandle:
        """A new job with the same job file and these changes; see ``Client.rerun``."""
        return self.client.rerun(self.id, changes, secrets)

    def _repr_html_(self) -> str:
        with suppress(RoostError):  # then as it was
            self.status()
        return notebook.card(self.view)


class AsyncJobHandle(_Handle):
    """The same with ``await`` and ``async for``."""

    client: AsyncClient

    status = own_awaited(api.status)
    wait = own_awaited(api.wait)
    logs = own_awaited_items(logs)
    result = own_awaited(outcomes.result)
    scale = own_awaited(api.scale)
    suspend = own_awaited(api.suspend)
    resume = own_awaited(api.resume)
    migrate = own_awaited(api.migrate)
    snapshot = own_awaited(api.snapshot)
    snapshots = own_awaited(api.snapshots)
    cancel = own_awaited(api.cancel)
    delete = own_awaited(api.delete)
    explain = own_awaited(api.explain)
    events = own_awaited(api.events)
    workers = own_awaited(api.workers)
    document = own_awaited(api.document)
    files = own_awaited(downloads.files)
    download = own_awaited(downloads.download)

    show = own_awaited(notebook.show)

    async def rerun(
        self, changes: Mapping[str, Any] | None = None, secrets: Mapping[str, str] | None = None
    ) -> AsyncJobHandle:
        """A new job with the same job file and these changes; see ``Client.rerun``."""
        return await self.client.rerun(self.id, changes, secrets)

    def _repr_html_(self) -> str:
        return notebook.card(self.view)
