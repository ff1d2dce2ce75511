"""Forgetting jobs that were kept long enough, on demand, or saying which that would be."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from roost.api.retention import PrunedJobList
from roost.server import requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, json
from roost.server.permissions import needs
from roost.server.roles import RoutePermission

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=CheckedRoute)

Admin = Annotated[Caller, needs(RoutePermission.CLUSTER_WRITE)]


@router.post(
    "/prune",
    response_model=PrunedJobList,
    responses=answers(404, 409, 507),
    operation_id="prune",
)
async def prune(here: Here, caller: Admin, body: requests.PruneJobs) -> Response:
    """Forget jobs that were kept long enough; with ``dry_run`` only say which."""
    found = await here.cluster.prune(body.rules(), caller.user, dry_run=body.dry_run)
    return json(found)
