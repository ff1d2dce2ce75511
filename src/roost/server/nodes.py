"""Machines: what there is, what is used, and what works again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool

from roost.api.nodes import NodeList, StateView, UsageList
from roost.api.portal import NodeDetail
from roost.core.events import (
    GpuFailed,
    MaintenanceCancelled,
    MaintenancePlanned,
    NodeCordoned,
    NodeUncordoned,
)
from roost.core.spec import NodeId
from roost.errors import NotFound
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, json
from roost.server.permissions import needs
from roost.server.requests import CordonNode, DisableGpu, PlanMaintenance
from roost.server.roles import RoutePermission
from roost.store.rows import EventQuery

router = APIRouter(prefix="/api/v1", tags=["nodes"], route_class=CheckedRoute)

Reader = Annotated[Caller, needs(RoutePermission.CLUSTER_READ)]
Admin = Annotated[Caller, needs(RoutePermission.CLUSTER_WRITE)]
NodeName = Annotated[str, Path(max_length=200)]
#: The newest events of a node that are shown with it.
_EVENTS = 50
DeviceIndex = Annotated[int, Path(ge=0, le=4096)]


@router.get("/nodes", response_model=NodeList, responses=answers(), operation_id="list_nodes")
async def list_nodes(here: Here, caller: Reader) -> Response:
    """All machines with their devices: what is free, taken, failed."""
    visibility = here.visibility(caller)
    return json({"items": [visibility.node(node) for node in here.cluster.nodes()]})


@router.get(
    "/nodes/{node}",
    response_model=NodeDetail,
    responses=answers(404),
    operation_id="get_node",
)
async def get_node(here: Here, caller: Reader, node: NodeName) -> Response:
    """One machine, the jobs on it that the caller may see, and what happened to it."""
    visibility = here.visibility(caller)
    known = here.cluster.core.ledger.nodes.get(NodeId(node))
    view = next((one for one in here.cluster.nodes() if one["id"] == node), None)
    if known is None or view is None:
        raise NotFound(f"no node {node[:80]!r}")
    names = list(dict.fromkeys(run.job.id for run in known.runs))
    rows = await here.read(lambda: here.cluster.store.jobs.some(names))
    query = EventQuery(node=node, sort="-seq", limit=_EVENTS)
    page = await here.read(lambda: here.cluster.store.events.find(query))
    jobs = [here.view(caller, row) for row in rows if visibility.sees(row.user)]
    events = [visibility.event(row) for row in page.items]
    return json({"node": visibility.node(view), "jobs": jobs, "events": events})


@router.post(
    "/nodes/{node}/gpus/{gpu}/restore",
    response_model=NodeList,
    responses=answers(404, 409, 507),
    operation_id="restore_gpu",
)
async def restore_gpu(
    here: Here,
    caller: Admin,
    node: NodeName,
    gpu: DeviceIndex,
) -> Response:
    """Use a device again that had been set aside after failures."""
    await here.cluster.restore_gpu(NodeId(node), gpu, caller.user)
    return json({"items": here.cluster.nodes()})


@router.post(
    "/nodes/{node}/gpus/{gpu}/disable",
    response_model=NodeList,
    responses=answers(404, 409, 507),
    operation_id="disable_gpu",
)
async def disable_gpu(
    here: Here, caller: Admin, node: NodeName, gpu: DeviceIndex, body: DisableGpu
) -> Response:
    """Use a device no longer: what runs on it goes on elsewhere, or on the others that it has."""
    reason = body.reason.strip()
    await here.cluster.care_for(
        lambda now: GpuFailed(now, NodeId(node), gpu, reason, caller.user), caller.user
    )
    return json({"items": here.cluster.nodes()})


@router.put(
    "/nodes/{node}/cordon",
    response_model=NodeList,
    responses=answers(404, 409, 507),
    operation_id="cordon_node",
)
async def cordon_node(here: Here, caller: Admin, node: NodeName, body: CordonNode) -> Response:
    """Let nothing new begin on a machine; with ``drain``, what runs there leaves it, too."""
    reason = body.reason.strip()
    await here.cluster.care_for(
        lambda now: NodeCordoned(now, NodeId(node), reason, caller.user, body.drain), caller.user
    )
    return json({"items": here.cluster.nodes()})


@router.delete(
    "/nodes/{node}/cordon",
    response_model=NodeList,
    responses=answers(404, 409, 507),
    operation_id="uncordon_node",
)
async def uncordon_node(here: Here, caller: Admin, node: NodeName) -> Response:
    """Let a machine be used again that was cordoned or drained."""
    await here.cluster.care_for(lambda now: NodeUncordoned(now, NodeId(node)), caller.user)
    return json({"items": here.cluster.nodes()})


@router.post(
    "/nodes/{node}/maintenance",
    response_model=NodeList,
    responses=answers(404, 409, 507),
    operation_id="plan_maintenance",
)
async def plan_maintenance(
    here: Here, caller: Admin, node: NodeName, body: PlanMaintenance
) -> Response:
    """Let a machine be empty for some time: drained at its beginning, used again at its end."""
    span, reason = (body.starts_at, body.ends_at), body.reason.strip()
    await here.cluster.care_for(
        lambda now: MaintenancePlanned(now, NodeId(node), *span, reason, caller.user), caller.user
    )
    return json({"items": here.cluster.nodes()})


@router.delete(
    "/nodes/{node}/maintenance/{starts_at}",
    response_model=NodeList,
    responses=answers(404, 409, 507),
    operation_id="cancel_maintenance",
)
async def cancel_maintenance(
    here: Here, caller: Admin, node: NodeName, starts_at: Annotated[float, Path(ge=0, le=1e11)]
) -> Response:
    """Cancel the maintenance that starts at that time, or end it early."""
    await here.cluster.care_for(
        lambda now: MaintenanceCancelled(now, NodeId(node), starts_at), caller.user
    )
    return json({"items": here.cluster.nodes()})


@router.get("/top", response_model=UsageList, responses=answers(), operation_id="top")
async def top(here: Here, caller: Reader) -> Response:
    """What runs use right now."""
    visibility = here.visibility(caller)
    usage = await here.read(here.cluster.usage)
    jobs = [
        {"job": run.job, "attempt": run.attempt, **used._asdict()}
        for run, used in usage.items()
        if visibility.sees(here.owner(run.job) or "")
    ]
    return json({"jobs": jobs, "nodes": [visibility.node(node) for node in here.cluster.nodes()]})


@router.get(
    "/state",
    response_model=StateView,
    responses=answers(),
    operation_id="get_state",
)
async def get_state(
    here: Here, _caller: Annotated[Caller, needs(RoutePermission.STATE_READ)]
) -> Response:
    """The whole state of the core, to be simulated further elsewhere."""
    # In pieces, each made on another thread: there may be very many jobs.
    pieces = iterate_in_threadpool(here.cluster.state())
    return StreamingResponse(pieces, media_type="application/json")
