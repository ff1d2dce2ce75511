"""Snapshots of jobs, and jobs made from them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from roost.api.jobs import JobView
from roost.api.schema import encode, project
from roost.api.snapshots import NAME, SnapshotPage, SnapshotProgress, SnapshotView, reference
from roost.errors import NotFound
from roost.jobs.requests import CloneRequest
from roost.server import requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import (
    Here,
    Key,
    Limit,
    Name,
    Offset,
    Reader,
    Writer,
    acting_for,
    json,
    shown,
)
from roost.server.permissions import sees_all, visible
from roost.store.rows import RestorePointRow

router = APIRouter(prefix="/api/v1", tags=["snapshots"], route_class=CheckedRoute)

Point = Annotated[str, Path(pattern=f"^{NAME}$")]


@router.post(
    "/jobs/{job}/snapshots",
    status_code=201,
    response_model=SnapshotView,
    responses={
        **answers(404, 409, 507),
        202: {
            "model": SnapshotProgress,
            "description": "Under way: ask again with the same key.",
        },
    },
    operation_id="take_snapshot",
)
async def take_snapshot(
    here: Here, caller: Writer, job: Name, body: requests.TakeSnapshot, key: Key = ""
) -> Response:
    """Take a snapshot: what the job has saved, freshly if it can save on demand.

    Where copying lasts, the answer is 202; the same Idempotency-Key again gives the outcome.
    """
    row = await here.find(caller, job)
    point = await here.cluster.snapshots.take(row, body.name, caller.user, key)
    if point is None:
        return json(encode(SnapshotProgress(row.id, body.name)), 202)
    return json(_view(point), 201)


@router.get(
    "/snapshots",
    response_model=SnapshotPage,
    responses=answers(404, 409),
    operation_id="list_snapshots",
)
async def list_snapshots(
    here: Here,
    caller: Reader,
    *,
    job: Annotated[str, Query(pattern=r"^[a-z0-9.-]{0,202}$")] = "",
    offset: Offset = 0,
    limit: Limit = 50,
) -> Response:
    """Snapshots of one job or of all that the caller sees, the newest first."""
    found = await _job(here, caller, job) if job else ""
    user = "" if sees_all(caller) else caller.user
    store = here.cluster.store
    page = await here.read(
        lambda: store.restore_points.find(found, user, offset=offset, limit=limit)
    )
    items = [_view(point) for point in page.items]
    return json({"items": items, "total": page.total, "offset": offset, "limit": limit})


@router.get(
    "/jobs/{job}/snapshots/{name}",
    response_model=SnapshotView,
    responses=answers(404, 409),
    operation_id="get_snapshot",
)
async def get_snapshot(here: Here, caller: Reader, job: Name, name: Point) -> Response:
    """One snapshot."""
    return json(_view(await _point(here, caller, job, name)))


@router.delete(
    "/jobs/{job}/snapshots/{name}",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409, 507),
    operation_id="delete_snapshot",
)
async def delete_snapshot(here: Here, caller: Writer, job: Name, name: Point) -> Response:
    """Forget a snapshot with its files."""
    point = await _point(here, caller, job, name)
    await here.cluster.snapshots.delete(point, caller.user)
    return Response(status_code=204)


@router.post(
    "/jobs/{job}/clone",
    status_code=201,
    response_model=JobView,
    responses={
        **answers(404, 409, 507),
        200: {"model": JobView, "description": "The same key again: the same job."},
    },
    operation_id="clone_job",
)
async def clone_job(
    here: Here, caller: Writer, job: Name, body: requests.CloneJob, key: Key = ""
) -> Response:
    """Submit a new job that begins from a snapshot, the newest by default.

    It belongs to the user of the snapshot. The job need not be there any more. ``changes`` are
    fields of the job file; ``env`` and ``labels`` come on top of what the file has, others replace
    it.
    """
    point = await _point(here, caller, job, body.snapshot or "")
    user, unix = await acting_for(here, caller, point.user)
    clone = CloneRequest(point, user, unix, body.changes, body.secrets, key, caller.user)
    row, new = await here.cluster.clone(clone)
    return shown(here, caller, row, 201 if new else 200)


async def _job(here: Context, caller: Caller, name: str) -> str:
    """The id of a job; of one that was deleted, snapshots may be left."""
    try:
        return (await here.find(caller, name)).id
    except NotFound:
        left = await here.read(lambda: here.cluster.store.restore_points.get(name))
        if left is None or not visible(caller, left.user):
            raise
        return name


async def _point(here: Context, caller: Caller, job: str, name: str) -> RestorePointRow:
    found = await _job(here, caller, job)
    point = await here.read(lambda: here.cluster.store.restore_points.get(found, name))
    if point is None or not visible(caller, point.user):
        raise NotFound(
            f"job {found} has no snapshot {name!r}"
            if name
            else f"job {found} has no snapshot; take one with: roost snapshot {found}"
        )
    return point


def _view(point: RestorePointRow) -> dict[str, Any]:
    """A snapshot as the API shows it: without the job file, which is the job's."""
    return encode(project(SnapshotView, point, id=reference(point.job, point.name)))
