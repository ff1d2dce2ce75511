"""Whether the server works; figures for Prometheus; the description of the API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from roost import __version__
from roost.api.accounts import HealthView
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import ErrorBody, answers
from roost.server.jobs import Here, json
from roost.server.permissions import needs
from roost.server.roles import RoutePermission

router = APIRouter(tags=["health"], route_class=CheckedRoute)

OpenToAll = Annotated[Caller | None, needs(RoutePermission.OPEN)]

_NOT_NOW: dict[int | str, dict[str, Any]] = {
    421: {"model": ErrorBody, "description": "The Origin header names another server."},
    503: {
        "model": HealthView,
        "description": "It does not take new work; ``why`` says why.",
    },
}


@router.get("/healthz", response_model=HealthView, responses=_NOT_NOW, operation_id="healthz")
async def healthz(request: Request, here: Here, _caller: OpenToAll) -> Response:
    """The process is alive and answers; under a name that is not ours it tells no more."""
    return json({"ok": True, "why": "", **_about(request, here)})


@router.get("/readyz", response_model=HealthView, responses=_NOT_NOW, operation_id="readyz")
async def readyz(request: Request, here: Here, caller: OpenToAll) -> Response:
    """New work is taken. Why it is not is told to those with a token, by /api/v1/health."""
    del caller
    ok = here.cluster.health.ok
    why = "" if ok else "intake is stopped"
    return json({"ok": ok, "why": why, **_about(request, here)}, 200 if ok else 503)


def _about(request: Request, here: Here) -> dict[str, str]:
    """What callers without a token are told; nothing under a name that is not ours."""
    if request.scope.get("roost.stranger"):
        return {"version": "", "policy": "", "clock": ""}
    health = here.cluster.health
    fails = "the policy fails; jobs start in order of arrival" if health.policy else ""
    return {"version": __version__, "policy": fails, "clock": health.clock}


@router.get(
    "/api/v1/health",
    response_model=HealthView,
    responses=answers(),
    operation_id="get_health",
)
async def get_health(
    here: Here, _caller: Annotated[Caller, needs(RoutePermission.CLUSTER_READ)]
) -> Response:
    """Whether new work is taken, and if not, why; whether the policy works, and if not, why."""
    health = here.cluster.health
    told = {"ok": health.ok, "why": health.why, "version": __version__}
    return json({**told, "policy": health.policy, "clock": health.clock})


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        **answers(),
        200: {
            "description": "Figures in the text format of Prometheus.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    },
    operation_id="metrics",
)
async def metrics(
    here: Here, caller: Annotated[Caller, needs(RoutePermission.METRICS_READ)]
) -> Response:
    """Figures for Prometheus; of jobs, those that the caller may see."""
    text, kind = here.metrics.text(here.visibility(caller), here.hub)
    return Response(text, headers={"Content-Type": kind})


@router.get(
    "/openapi.json",
    response_model=dict[str, Any],
    responses=answers(),
    operation_id="openapi",
)
async def openapi(
    request: Request, _caller: Annotated[Caller, needs(RoutePermission.SELF)]
) -> Response:
    """This description."""
    return json(request.app.openapi())
