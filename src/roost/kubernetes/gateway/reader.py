"""Reads a cluster for one question, with a few GETs: no server, no store, no watches.

A list of jobs is one request, a job by its id is one. Nodes and queues need a core folded from the
objects: one request for each kind that says something about them. The answers are those of the
server's routes of the same paths, from the same rows and views (``rows``, ``roost.jobs.views``).
"""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from roost import __version__
from roost.errors import Conflict, InvalidSpec, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    EVENTS,
    JOBS,
    NODES,
    PODS,
    Object,
    ResourceKind,
)
from roost.kubernetes.gateway.rows import (
    OTHERS,
    PLACED_BY_ROOST,
    EventJobs,
    event_rows,
    job_document,
    job_id,
    job_row,
    place_of,
    readable_rows,
)
from roost.server.roles import ROLES
from roost.store.rows import OPEN_STATES, EventQuery, JobQuery, JobRow, labels_of

if TYPE_CHECKING:
    from roost.kubernetes.gateway.gang_rows import GangRows

#: What a path was asked with: every name with all its values.
Params: TypeAlias = Mapping[str, Sequence[str]]

#: The revision of everything that is read once.
_REV = 1
_NAMED = 5
#: As the routes have them: rows of a page where no limit is given.
_PAGE = 50
_ROLE = "admin"


class ClusterReader:
    """Answers questions that reading a few objects answers."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def answer(self, path: str, params: Params) -> Any:
        """The answer of a route; None: this is no question for a reader."""
        match path.strip("/").split("/"):
            case ["whoami"]:
                return _caller(getpass.getuser())
            case ["health"]:
                return {"ok": True, "why": "", "version": __version__, "policy": ""}
            case ["jobs"]:
                return await self._jobs(params)
            case ["jobs", name]:
                return _plain((await self._find(name)).view)
            case ["jobs", name, "file"]:
                return _plain(job_document(await self._find(name)))
            case ["events"]:
                return await self._events(params)
            case ["nodes"]:
                return await self._nodes()
            case ["queues"]:
                return await self._queues()
            case _:
                return None

    async def _jobs(self, params: Params) -> Any:
        query = JobQuery(
            states=tuple(params.get("state", ())),
            users=tuple(params.get("user", ())),
            queues=tuple(params.get("queue", ())),
            name=_one(params, "name"),
            labels=labels_of(params.get("label", ())),
            sort=_one(params, "sort") or "-submitted_at",
            offset=_number(params, "offset", 0),
            limit=_number(params, "limit", _PAGE),
            words=tuple(_one(params, "q").split()),
        )
        rows = selected(await self._rows(), query)
        page = rows[query.offset : query.offset + query.limit]
        return _page([_plain(row.view) for row in page], len(rows), query)

    async def _find(self, name: str) -> JobRow:
        """The job of that id, or the one that carries this name; raises NotFound or Conflict."""
        namespace, own = place_of(name)
        if own:
            try:
                return job_row(await self._api.get(JOBS, own, namespace), _REV)
            except NotFound:
                pass
        rows = await self._rows()
        named = [row for row in rows if row.id == name] or [row for row in rows if row.name == name]
        live = [row for row in named if row.state in OPEN_STATES]
        if len(live) > 1:
            ids = ", ".join(sorted(row.id for row in live)[:_NAMED])
            more = ", ..." if len(live) > _NAMED else ""
            raise Conflict(f"{len(live)} jobs are named {name!r}: {ids}{more}")
        if not named:
            raise NotFound(f"no job {name!r}")
        return live[0] if live else max(named, key=lambda row: (row.submitted_at, row.id))

    async def _events(self, params: Params) -> Any:
        job = _one(params, "job")
        query = EventQuery(
            after=_number(params, "after", 0),
            job=(await self._find(job)).id if job else "",
            kind=_one(params, "kind"),
            offset=_number(params, "offset", 0),
            limit=_number(params, "limit", _PAGE),
        )
        listed, gangs = await asyncio.gather(self._list(EVENTS, JOBS), self._gangs())
        uids = {job_id(one): one["metadata"]["uid"] for one in listed[JOBS]}
        subjects = EventJobs(uids) if gangs is None else EventJobs(uids, gangs.of_pod)
        found = [
            asdict(row)
            for row in event_rows(listed[EVENTS], _REV, subjects)
            if row.seq > (query.after or 0)
            and query.job in ("", row.job)
            and query.kind in ("", row.kind)
        ]
        return _page(found[query.offset : query.offset + query.limit], len(found), query)

    async def _nodes(self) -> Any:
        # What folds a core takes longer to load than a list of jobs to read.
        from roost.kubernetes.gateway import folding  # noqa: PLC0415

        return {"items": folding.nodes(await self._list(*folding.PLACED))}

    async def _queues(self) -> Any:
        from roost.kubernetes.gateway import folding  # noqa: PLC0415

        return {"items": folding.queues(await self._list(*folding.WAITING))}

    async def _rows(self) -> list[JobRow]:
        """Roost's own Jobs, and the gangs of others that it places."""
        listed, gangs = await asyncio.gather(self._list(JOBS), self._gangs())
        rows = readable_rows(listed[JOBS], _REV)
        return rows if gangs is None else rows + gangs.news(_REV)[0]

    async def _gangs(self) -> GangRows | None:
        """The gangs of others; None: there are none, or they are not shown to us."""
        # What knows pods takes longer to load than a list of jobs to read.
        try:
            pods = (await self._api.list(PODS, labels=OTHERS, fields=PLACED_BY_ROOST))[0]
        except RoostError:
            return None
        if not pods:
            return None
        from roost.kubernetes.gangs.discovery import OF_PARTS  # noqa: PLC0415
        from roost.kubernetes.gateway.gang_rows import GangRows  # noqa: PLC0415

        listed = await self._list(*OF_PARTS)
        owners = {
            kind: {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in found}
            for kind, found in listed.items()
        }
        gangs = GangRows(lambda kind: owners.get(kind, {}))
        for pod in pods:
            gangs.changed(None, pod)
        return gangs

    async def _list(self, *kinds: ResourceKind) -> dict[ResourceKind, list[Object]]:
        """All objects of these kinds, asked for at the same time."""
        found = await asyncio.gather(*(self._objects(kind) for kind in kinds))
        return dict(zip(kinds, found, strict=True))

    async def _objects(self, kind: ResourceKind) -> list[Object]:
        """All objects of a kind; none where it is not served, or not to us, unless it is Jobs."""
        try:
            return (await self._api.list(kind))[0]
        except RoostError:
            if kind in (JOBS, NODES, PODS):
                raise
            return []


def selected(rows: Iterable[JobRow], query: JobQuery) -> list[JobRow]:
    """The rows that a query lets through, in its order, as the store would have them."""
    field = query.sort.removeprefix("-")

    def order(row: JobRow) -> tuple[Any, ...]:
        value = getattr(row, field)
        return value is not None, value if value is not None else 0, row.id

    passing = [row for row in rows if _passes(row, query)]
    return sorted(passing, key=order, reverse=query.sort.startswith("-"))


def _passes(row: JobRow, query: JobQuery) -> bool:
    return (
        (not query.states or row.state in query.states)
        and (not query.users or row.user in query.users)
        and (not query.queues or row.queue in query.queues)
        and (not query.names or row.name in query.names)
        and query.name.lower() in row.name.lower()
        and query.labels.items() <= row.labels.items()
        and all(_contains(row, word.lower()) for word in query.words)
    )


def _contains(row: JobRow, word: str) -> bool:
    labels = (f"{label}={content}" for label, content in row.labels.items())
    return any(word in text.lower() for text in (row.id, row.name, row.user, row.queue, *labels))


def _caller(user: str) -> dict[str, Any]:
    """The user of a command line: an administrator of what the kubeconfig allows."""
    return {
        "user": user,
        "role": _ROLE,
        "unix": user,
        "token": "",
        "expires_at": None,
        "permissions": sorted(ROLES[_ROLE]),
    }


def _plain(view: Any) -> Any:
    """A view with its keys in the order in which a store keeps them."""
    return json.loads(json.dumps(view, sort_keys=True))


def _page(items: list[Any], total: int, query: JobQuery | EventQuery) -> dict[str, Any]:
    return {"items": items, "total": total, "offset": query.offset, "limit": query.limit}


def _one(params: Params, name: str) -> str:
    values = params.get(name, ())
    return values[-1] if values else ""


def _number(params: Params, name: str, usual: int) -> int:
    text = _one(params, name)
    try:
        return int(text) if text else usual
    except ValueError:
        raise InvalidSpec(f"{name} takes a number, not {text[:80]!r}") from None
