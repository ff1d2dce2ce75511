"""Notifications: who is told what becomes of jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from roost.api.notifications import NotificationView
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Writer, json
from roost.server.permissions import needs
from roost.server.requests import TestNotification
from roost.server.roles import RoutePermission

router = APIRouter(prefix="/api/v1", tags=["notifications"], route_class=CheckedRoute)

Admin = Annotated[Caller, needs(RoutePermission.CLUSTER_WRITE)]


@router.get(
    "/notifications",
    response_model=NotificationView,
    responses=answers(409),
    operation_id="get_notifications",
)
async def get_notifications(here: Here, _caller: Admin) -> Response:
    """The settings, without secrets, and what waits to be sent."""
    return json(here.cluster.notifications.shown())


@router.put(
    "/notifications",
    response_model=NotificationView,
    responses=answers(409, 507),
    operation_id="set_notifications",
)
async def set_notifications(
    here: Here, _caller: Admin, body: Annotated[dict[str, Any], Body()]
) -> Response:
    """Other settings: ``{secret, allow, mail, users, queues}``; a masked secret stays as it is."""
    return json(await here.cluster.notifications.change(body))


@router.post(
    "/notifications/test",
    status_code=204,
    response_class=Response,
    responses=answers(409),
    operation_id="test_notification",
)
async def test_notification(here: Here, caller: Writer, body: TestNotification) -> Response:
    """Send a notification to a URL or a mail address now; says what came in the way."""
    await here.cluster.notifications.test(body.to, caller.user)
    return Response(status_code=204)
