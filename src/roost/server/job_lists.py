"""Lists of jobs: pages that the store filters and sorts, how many there are, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from roost.api.jobs import BulkAnswer, BulkOutcome, JobCountsView, JobPage, StateName
from roost.api.schema import encode, project
from roost.core.spec import JobId
from roost.errors import RoostError
from roost.jobs.requests import RerunRequest
from roost.server import requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import (
    Here,
    Key,
    Limit,
    Offset,
    Reader,
    Writer,
    acting_for,
    forget,
    json,
)
from roost.server.permissions import sees_all, visible
from roost.store.rows import JOB_SORTS, JobQuery, JobRow, labels_of

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=CheckedRoute)

Filter = Annotated[list[str], Query(max_length=50)]

_SORTS: list[Any] = [sign + field for sign in ("", "-") for field in JOB_SORTS]
_LONGEST = 500


def _filters(  # noqa: PLR0913 - one parameter per filter
    caller: Reader,
    *,
    state: Annotated[list[StateName], Query(max_length=8)] = [],  # noqa: B006 - FastAPI copies it
    user: Filter = [],  # noqa: B006
    queue: Filter = [],  # noqa: B006
    name: Annotated[str, Query(max_length=80)] = "",
    label: Filter = [],  # noqa: B006
    q: Annotated[str, Query(max_length=200)] = "",
) -> JobQuery | None:
    """Which jobs are asked for; None: of none that the caller may see."""
    if not sees_all(caller):
        if user and caller.user not in user:
            return None
        user = [caller.user]
    return JobQuery(
        states=tuple(state),
        users=tuple(user),
        queues=tuple(queue),
        name=name,
        labels=labels_of(label),
        words=tuple(q.split()),
    )


Wanted = Annotated[JobQuery | None, Depends(_filters)]


@router.get("/jobs", response_model=JobPage, responses=answers(), operation_id="list_jobs")
async def list_jobs(  # noqa: PLR0913 - one parameter per question
    here: Here,
    caller: Reader,
    wanted: Wanted,
    *,
    sort: Annotated[
        str, Query(max_length=40, json_schema_extra={"enum": _SORTS})
    ] = "-submitted_at",
    offset: Offset = 0,
    limit: Limit = 50,
) -> Response:
    """List jobs: filtered, sorted and paged by the server. ``label`` is ``key=value``.

    ``q`` are words: each is contained in the id, name, user, queue or a label of a job.
    """
    found: Mapping[str, Any] = {"items": [], "total": 0}
    if wanted is not None:
        query = wanted.at(sort, offset, limit)
        page = await here.read(lambda: here.cluster.store.jobs.find(query))
        found = {"items": [here.view(caller, row) for row in page.items], "total": page.total}
    return json({**found, "offset": offset, "limit": limit})


@router.get(
    "/jobs/counts", response_model=JobCountsView, responses=answers(), operation_id="count_jobs"
)
async def count_jobs(here: Here, _caller: Reader, wanted: Wanted) -> Response:
    """How many jobs the same filters let through: in all, by state, by queue and by user."""
    if wanted is None:
        return json(encode(JobCountsView()))
    totals = await here.read(lambda: here.cluster.store.jobs.totals(wanted))
    return json(encode(project(JobCountsView, totals)))


@router.post(
    "/jobs/bulk",
    response_model=BulkAnswer,
    responses=answers(409, 507),
    operation_id="change_jobs",
)
async def change_jobs(
    here: Here, caller: Writer, body: requests.ChangeJobs, key: Key = ""
) -> Response:
    """Do the same to many jobs, named by their ids; what cannot be done is said of each."""
    names = list(dict.fromkeys(body.jobs))
    rows = {row.id: row for row in await here.read(lambda: here.cluster.store.jobs.some(names))}
    change = _Change(here, caller, body, key)
    told = await asyncio.gather(*(change.told(name, rows.get(name)) for name in names))
    return json(encode(BulkAnswer(tuple(told))))


class _Change:
    """What is done to each of many jobs."""

    def __init__(self, here: Context, caller: Caller, body: requests.ChangeJobs, key: str) -> None:
        self._here, self._caller, self._body, self._key = here, caller, body, key

    async def told(self, name: str, row: JobRow | None) -> BulkOutcome:
        """How it went with one job."""
        if row is None or not visible(self._caller, row.user):
            return BulkOutcome(name, message=f"no job {name[:80]!r}")
        try:
            changed = await self._done(row)
        except RoostError as error:
            text = " ".join(str(error).split())[:_LONGEST]
            return BulkOutcome(name, state=row.state, message=text)
        made = changed.id if changed.id != row.id else ""
        state = row.state if made else changed.state
        return BulkOutcome(name, ok=True, state=state, made=made)

    async def _done(self, row: JobRow) -> JobRow:
        cluster, job, actor = self._here.cluster, JobId(row.id), self._caller.user
        match self._body.action:
            case "cancel":
                return await cluster.cancel(job, actor)
            case "suspend":
                return await cluster.suspend(job, actor)
            case "resume":
                return await cluster.resume(job, actor)
            case "delete":
                return await forget(self._here, self._caller, row)
            case "rerun":
                return await self._rerun(row)

    async def _rerun(self, row: JobRow) -> JobRow:
        user, unix = await acting_for(self._here, self._caller, row.user)
        changes = {"labels": self._body.labels} if self._body.labels else {}
        key = f"{self._key}/{row.id}" if self._key else ""
        made, _ = await self._here.cluster.rerun(
            RerunRequest(row, user, self._caller.user, unix, changes, {}, key)
        )
        return made
