"""What was measured of applications, for those whose they are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Reader, json
from roost.server.models import ResponseBody
from roost.server.permissions import sees_all

router = APIRouter(prefix="/api/v1", tags=["profiles"], route_class=CheckedRoute)


class SizeView(ResponseBody):
    """Step times of an application with so many workers; ``speed`` is relative to the fewest."""

    workers: int
    share: float
    step_s: float
    count: int
    speed: float | None


class PredictionView(ResponseBody):
    """What a step is expected to take in a setting, and what it was seen to take there."""

    nodes: int
    workers: int
    local_batch: int = Field(description="Samples that a worker takes at once.")
    step_s: float
    error: float = Field(description="Of step_s, relative; one standard deviation.")
    samples_per_s: float
    measured_s: float | None
    count: int = Field(description="How often it was measured there.")


class SpeedModelView(ResponseBody):
    """What is expected of an application on a kind of device, with such a batch of all workers."""

    kind: str
    batch: int
    sizes: list[PredictionView]


class ChangeCostView(ResponseBody):
    """What a change of a job took on average, and how often that was measured."""

    mean_s: float
    count: int


class ProfileView(ResponseBody):
    """What was measured of a user's application."""

    user: str
    application: str
    memory_mib: int
    noise: float | None
    busy: float | None = Field(description="The part of the time in which devices work; mean.")
    sizes: list[SizeView]
    models: list[SpeedModelView] = Field(
        description="Empty where many profiles are asked for at once."
    )
    costs: dict[str, ChangeCostView]


class ProfileList(ResponseBody):
    """What was measured of applications."""

    items: list[ProfileView]


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
    """What was measured of the caller's applications; of everybody's, to who sees all jobs."""
    user = None if sees_all(caller) else caller.user
    return json({"items": here.cluster.profiles(user, application)})
