"""Usage: who held how much, for how long, and what that cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from roost.api.usage import SpellList, UsageView
from roost.jobs.usage_views import UsageRequest
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Name, Reader, json
from roost.server.permissions import sees_all

router = APIRouter(prefix="/api/v1", tags=["usage"], route_class=CheckedRoute)

_MOST_S = 1e11
Moment = Annotated[float, Query(ge=0, le=_MOST_S, allow_inf_nan=False)]


@router.get("/usage", response_model=UsageView, responses=answers(), operation_id="get_usage")
async def get_usage(  # noqa: PLR0913 - one parameter per filter
    here: Here,
    caller: Reader,
    *,
    by: Annotated[str, Query(max_length=200)] = "user",
    since: Moment = 0.0,
    until: Moment = _MOST_S,
    user: Annotated[str, Query(max_length=200)] = "",
    job: Annotated[str, Query(max_length=202)] = "",
) -> Response:
    """Usage by up to three of user, queue, application, label, label:KEY, node, job and day.

    A user is told of the own jobs only; other roles see all, and what was idle.
    """
    whole = sees_all(caller)
    if job:
        job = (await here.find(caller, job)).id
    query = UsageRequest(by, since, until, user if whole else caller.user, job, whole)
    return json(await here.cluster.metering.report(query))


@router.get(
    "/jobs/{job}/usage",
    response_model=SpellList,
    responses=answers(404, 409),
    operation_id="get_job_usage",
)
async def get_job_usage(here: Here, caller: Reader, job: Name) -> Response:
    """From when to when a job waited, and held what on which node."""
    row = await here.find(caller, job)
    return json({"items": await here.cluster.metering.spells(UsageRequest(job=row.id))})
