"""Alerts: what fires now, what fired, and the rules."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from roost.api.alerts import AlertList
from roost.api.schema import encode
from roost.errors import Conflict
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, json
from roost.server.permissions import needs
from roost.server.roles import RoutePermission
from roost.server.visibility import Visibility

router = APIRouter(prefix="/api/v1", tags=["alerts"], route_class=CheckedRoute)

Reader = Annotated[Caller, needs(RoutePermission.JOBS_READ)]
Admin = Annotated[Caller, needs(RoutePermission.CLUSTER_WRITE)]


@router.get("/alerts", response_model=AlertList, responses=answers(), operation_id="list_alerts")
async def list_alerts(here: Here, caller: Reader) -> Response:
    """What fires now and what fired, as far as the caller may know of it, and the rules."""
    alerts = here.cluster.alerts
    found = AlertList() if alerts is None else alerts.shown()
    return json(_seen(found, here.visibility(caller)))


@router.put(
    "/alerts/rules",
    response_model=AlertList,
    responses=answers(409, 507),
    operation_id="set_alert_rules",
)
async def set_alert_rules(
    here: Here, caller: Admin, body: Annotated[dict[str, Any], Body()]
) -> Response:
    """Other rules: ``{rules: [...]}``, instead of all that there were."""
    if here.cluster.alerts is None:
        raise Conflict("there are no alerts here: make rules in what watches this cluster")
    return json(encode(await here.cluster.alerts.change(body, caller.user)))


def _seen(found: AlertList, visibility: Visibility) -> dict[str, Any]:
    """Alerts without those about others; where others are told is no business of a user."""
    told = encode(found)
    for name in ("items", "ended"):
        shown = map(visibility.alert, getattr(found, name))
        told[name] = [alert for alert in shown if alert is not None]
    if not visibility.all:
        told["rules"] = [{k: v for k, v in rule.items() if k != "to"} for rule in found.rules]
        told["problem"] = ""
    return told
