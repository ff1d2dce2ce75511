"""What was measured of applications, for their users."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from roost.api.profiles import ProfileList
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Reader, json
from roost.server.permissions import sees_all

router = APIRouter(prefix="/api/v1", tags=["profiles"], route_class=CheckedRoute)


@router.get(
    "/profiles",
    response_model=ProfileList,
    responses=answers(),
    operation_id="list_profiles",
)
async def list_profiles(
    here: Here,
    caller: Reader,
    application: Annotated[str, Query(max_length=256)] = "",
) -> Response:
    """What was measured of the caller's applications; of all, for callers that see all jobs."""
    user = None if sees_all(caller) else caller.user
    return json({"items": here.cluster.profiles(user, application)})
