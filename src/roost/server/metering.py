"""Usage, prices and budgets: who held how much, what that cost, and how much may be used."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response

from roost.api.charging import BudgetList, BudgetView, PriceLines
from roost.api.usage import SpellList, UsageView
from roost.server import requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Name, Reader, json
from roost.server.permissions import needs, sees_all
from roost.server.roles import RoutePermission
from roost.usage.totals import UsageRequest

router = APIRouter(prefix="/api/v1", tags=["usage"], route_class=CheckedRoute)

ClusterReader = Annotated[Caller, needs(RoutePermission.CLUSTER_READ)]
Admin = Annotated[Caller, needs(RoutePermission.CLUSTER_WRITE)]
Subject = Literal["user", "queue"]
Whose = Annotated[str, Path(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$")]

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


@router.get("/prices", response_model=PriceLines, responses=answers(), operation_id="list_prices")
async def list_prices(here: Here, _caller: ClusterReader) -> Response:
    """What GPU hours cost."""
    return json({"items": await here.cluster.metering.prices()})


@router.post(
    "/prices", response_model=PriceLines, responses=answers(409, 507), operation_id="add_prices"
)
async def add_prices(here: Here, caller: Admin, body: requests.AddPrices) -> Response:
    """Add prices, all in one currency. One begins today at the earliest: the past stays.

    A kind without any price may be given one from an earlier day on.
    """
    return json({"items": await here.cluster.metering.add_prices(body.prices(), caller.user)})


@router.get("/budgets", response_model=BudgetList, responses=answers(), operation_id="list_budgets")
async def list_budgets(here: Here, caller: ClusterReader) -> Response:
    """Budgets and how they stand: all of them; a user sees the own one, and those of queues."""
    found = await here.cluster.metering.budgets()
    mine = [one for one in found if one["subject"] == "queue" or one["name"] == caller.user]
    shown = found if sees_all(caller) else [{**one, "held": []} for one in mine]
    return json({"items": shown})


@router.put(
    "/budgets/{subject}/{name}",
    response_model=BudgetView,
    responses=answers(404, 409, 507),
    operation_id="set_budget",
)
async def set_budget(
    here: Here, caller: Admin, subject: Subject, name: Whose, body: requests.SetBudget
) -> Response:
    """Give a user or a queue a budget; one that is lower than what is used kills nothing."""
    budget = body.budget(subject, name)
    return json(await here.cluster.metering.set_budget(budget, caller.user))


@router.delete(
    "/budgets/{subject}/{name}",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409, 507),
    operation_id="delete_budget",
)
async def delete_budget(here: Here, caller: Admin, subject: Subject, name: Whose) -> Response:
    """Take a budget away; what waited for it goes on."""
    await here.cluster.metering.delete_budget(subject, name, caller.user)
    return Response(status_code=204)
