"""Queues: their promises, and their submitters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from roost.api.queues import QueueList, QueueView
from roost.core import QueueId
from roost.server import requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, json
from roost.server.permissions import needs
from roost.server.roles import RoutePermission
from roost.store.rows import QueueRow

router = APIRouter(prefix="/api/v1", tags=["queues"], route_class=CheckedRoute)

Reader = Annotated[Caller, needs(RoutePermission.CLUSTER_READ)]
Admin = Annotated[Caller, needs(RoutePermission.CLUSTER_WRITE)]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")]


@router.get("/queues", response_model=QueueList, responses=answers(), operation_id="list_queues")
async def list_queues(here: Here, caller: Reader) -> Response:
    """The queues that the caller may know of: what they hold, how many jobs wait."""
    visibility = here.visibility(caller)
    return json({"items": here.hub.queues(visibility, await here.cluster.queues())})


@router.put(
    "/queues/{queue}",
    response_model=QueueView,
    responses=answers(404, 409, 507),
    operation_id="set_queue",
)
async def set_queue(here: Here, caller: Admin, queue: Name, body: requests.SetQueue) -> Response:
    """Create a queue, or change its promises and its submitters.

    Cells that there are not, or not enough of, are refused with what is left.
    """
    row = QueueRow(
        queue,
        body.quota_milli,
        body.limit_milli,
        body.weight,
        body.priority,
        tuple(dict.fromkeys(body.submitters)),
        body.promises(),
        body.overflows,
    )
    await here.cluster.set_queue(row, caller.user)
    found = [one for one in await here.cluster.queues() if one["id"] == queue]
    return json(found[0])


@router.delete(
    "/queues/{queue}",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409, 507),
    operation_id="delete_queue",
)
async def delete_queue(here: Here, caller: Admin, queue: Name) -> Response:
    """Forget a queue that nothing waits or runs in."""
    await here.cluster.delete_queue(QueueId(queue), caller.user)
    return Response(status_code=204)
