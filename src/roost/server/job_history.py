"""What was: the life of a job as stretches of time, and what it reported as curves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from roost.api.jobs import CurvesView, TimelineView
from roost.api.schema import encode
from roost.core.spec import JobId
from roost.errors import InvalidSpec
from roost.jobs.curves import CurveLog, CurveWindow, curves_view
from roost.jobs.timeline import timeline
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import Here, Name, Reader, json
from roost.store.rows import MOST, EventQuery, EventRow

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=CheckedRoute)

_MOST_EVENTS = 5000
_LATEST = 1e11
Moment = Annotated[float | None, Query(ge=0, le=_LATEST)]


@router.get(
    "/jobs/{job}/timeline",
    response_model=TimelineView,
    responses=answers(404, 409),
    operation_id="get_timeline",
)
async def get_timeline(here: Here, caller: Reader, job: Name) -> Response:
    """The life of a job: its attempts, what it was and held and when, and what happened."""
    row = await here.find(caller, job)
    events = await here.read(lambda: _events(here, row.id))
    log = await _curves(here, row.id)
    visibility = here.visibility(caller)
    told = [visibility.event(event) for event in events]
    found = timeline(row.id, told, log.notes, here.cluster.now())
    return json(encode(found))


@router.get(
    "/jobs/{job}/metrics",
    response_model=CurvesView,
    responses=answers(404, 409),
    operation_id="get_job_metrics",
)
async def get_job_metrics(  # noqa: PLR0913 - one parameter per question
    here: Here,
    caller: Reader,
    job: Name,
    *,
    begin: Moment = None,
    end: Moment = None,
    points: Annotated[int, Query(ge=2, le=4000)] = 400,
    name: Annotated[list[str], Query(max_length=50)] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """What a job reported over time, as about ``points`` points of each figure.

    Of each stretch of time the smallest and the largest value are kept. ``name``: these figures
    alone. A figure that was never reported is not there.
    """
    if begin is not None and end is not None and end < begin:
        raise InvalidSpec("end must not be before begin")
    row = await here.find(caller, job)
    log = await _curves(here, row.id)
    window = CurveWindow(begin, end, points, tuple(name))
    now = here.cluster.now()
    return json(encode(await here.read(lambda: curves_view(row.id, log, window, now))))


async def _curves(here: Context, job: str) -> CurveLog:
    curves = here.cluster.curves
    return CurveLog() if curves is None else await curves.read(JobId(job))


def _events(here: Context, job: str) -> list[EventRow]:
    """The events of a job, the oldest first."""
    found: list[EventRow] = []
    while len(found) < _MOST_EVENTS:
        query = EventQuery(job=job, offset=len(found), limit=MOST)
        page = here.cluster.store.events.find(query)
        found += page.items
        if len(page.items) < MOST:
            break
    return found
