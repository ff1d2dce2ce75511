"""The lab: what would have become of jobs under another policy, or on other machines."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from roost.api.jobs import JobView
from roost.api.lab import LabList, LabView
from roost.api.schema import decode, encode
from roost.errors import Conflict, InvalidSpec
from roost.jobs.recorded import ran, recorded_node, trace_job
from roost.server import requests
from roost.server.auth import Caller
from roost.server.backend import LabBackend
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import Here, Reader, Writer, json
from roost.server.permissions import sees_all
from roost.server.roles import ROLES, RoutePermission
from roost.sim.lab import LabQuestion
from roost.sim.scenario import Scenario, uniform_cluster
from roost.store.rows import MOST, JobQuery, JobRow
from roost.traces.generate import Synthetic
from roost.traces.workload import Workload

router = APIRouter(prefix="/api/v1", tags=["lab"], route_class=CheckedRoute)

LabId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]

_DAY_S = 86400.0
_MOST_JOBS = 20_000
_OVER = ("succeeded", "failed", "cancelled")


@router.get("/lab", response_model=LabList, responses=answers(), operation_id="list_labs")
async def list_labs(here: Here, caller: Reader) -> Response:
    """The what-ifs of the caller, or of all for those who see all jobs; without results."""
    every = [] if here.cluster.lab is None else await here.cluster.lab.all()
    seen = tuple(view for view in every if sees_all(caller) or view.user == caller.user)
    return json(encode(LabList(seen)))


@router.post(
    "/lab",
    status_code=201,
    response_model=LabView,
    responses=answers(409),
    operation_id="start_lab",
)
async def start_lab(here: Here, caller: Writer, body: requests.StartLab) -> Response:
    """Simulate jobs, generated or of the last days, under some policies; the first is compared."""
    lab = _lab(here)
    question = await here.read(lambda: _question(here, caller, body))
    view = await lab.ask(question, body.model_dump(mode="json"), caller.user)
    return json(encode(view), 201)


@router.get(
    "/lab/{lab}", response_model=LabView, responses=answers(404, 409), operation_id="get_lab"
)
async def get_lab(here: Here, _caller: Reader, lab: LabId) -> Response:
    """A what-if with its result; its id cannot be guessed, and may be given to others."""
    return json(encode(await _lab(here).get(lab)))


@router.delete(
    "/lab/{lab}", response_model=LabView, responses=answers(404, 409), operation_id="cancel_lab"
)
async def cancel_lab(here: Here, caller: Writer, lab: LabId) -> Response:
    """End a what-if; one that is over stays as it is."""
    anyones = RoutePermission.CLUSTER_WRITE in ROLES[caller.role]
    return json(encode(await _lab(here).cancel(lab, caller.user, anyones=anyones)))


def _lab(here: Context) -> LabBackend:
    if here.cluster.lab is None:
        raise Conflict("there is no lab here: use roost compare on your machine")
    return here.cluster.lab


def _question(here: Context, caller: Caller, body: requests.StartLab) -> LabQuestion:
    policies = tuple(dict.fromkeys(body.policies)) or (here.cluster.policy_name,)
    nodes = tuple(recorded_node(node) for node in here.cluster.nodes() if node["gpus"])
    if body.nodes is not None:
        nodes = tuple(uniform_cluster(body.nodes.count, body.nodes.gpus, kind=body.nodes.kind))
    if not nodes:
        raise InvalidSpec("there are no machines with GPUs here: say how many to simulate")
    gpus = sum(node.gpus for node in nodes)
    workload = (
        _history(here, caller, body.workload.days)
        if body.workload.kind == "history"
        else Synthetic(
            jobs=body.workload.jobs,
            load=body.workload.load,
            gpus=gpus,
            arrivals=body.workload.arrivals,
            elastic=body.workload.elastic,
        )
    )
    seeds = tuple(range(body.seed, body.seed + body.seeds))
    scenario = Scenario(workload, nodes, skip_impossible=True)
    placer = body.placer or here.cluster.placer_name
    return LabQuestion(scenario, policies, placer, seeds if scenario.random else seeds[:1])


def _history(here: Context, caller: Caller, days: float) -> Workload:
    """The jobs of the last days that the caller may see, as they really ran."""
    after = here.cluster.now() - days * _DAY_S
    users = () if sees_all(caller) else (caller.user,)
    rows: list[JobRow] = []
    while len(rows) < _MOST_JOBS:
        query = JobQuery(
            states=_OVER,
            users=users,
            ended_after=after,
            sort="-finished_at",
            offset=len(rows),
            limit=MOST,
        )
        page = here.cluster.store.jobs.find(query)
        rows += page.items
        if len(page.items) < MOST:
            break
    views: list[tuple[JobView, Any]] = [(decode(JobView, row.view), row.document) for row in rows]
    known = sorted(
        ((view, document) for view, document in views if ran(view)),
        key=lambda one: (one[0].submitted_at, one[0].id),
    )
    if not known:
        raise InvalidSpec("no job that you may see ran and ended in that time; try more days")
    first = known[0][0].submitted_at
    return Workload("history", [trace_job(view, document, first) for view, document in known])
