"""Jobs: submitting, looking at one, and everything one can do to it."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from roost.api.events import EventPage
from roost.api.jobs import (
    ExplanationView,
    JobView,
    ParsedJobFile,
    PlanView,
    WorkerList,
)
from roost.core.spec import JobId, NodeId, Range, RunId
from roost.engines.local.accounts import look_up
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.jobfile import JobFile, parse
from roost.jobs.requests import JobSubmission, RerunRequest
from roost.server import requests
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context, context
from roost.server.errors import HttpError, answers, as_json
from roost.server.file_responses import FilePart
from roost.server.middleware import declared_length
from roost.server.permissions import needs, sees_all
from roost.server.roles import RoutePermission
from roost.store.rows import EventQuery, JobRow

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=CheckedRoute)

Here = Annotated[Context, Depends(context)]
Reader = Annotated[Caller, needs(RoutePermission.JOBS_READ)]
Writer = Annotated[Caller, needs(RoutePermission.JOBS_WRITE)]
#: An id, or a name that exactly one job carries; on Kubernetes an id begins with its namespace.
Name = Annotated[str, Path(pattern=r"^[a-z0-9](?:[a-z0-9.-]{0,200}[a-z0-9])?$")]
Offset = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int, Query(ge=1, le=200)]
Key = Annotated[str, Header(alias="Idempotency-Key", max_length=200)]


#: Job files up to this size are parsed without a thread.
_SMALL_BYTES = 8192
#: How long it is remembered that there is a Unix account, in seconds; a launch looks again.
_ACCOUNT_S = 5.0


def json(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(as_json(value), status, media_type="application/json")


def shown(here: Context, caller: Caller, row: JobRow, status: int = 200) -> Response:
    """A job as an answer."""
    return json(here.view(caller, row), status)


@router.post(
    "/jobs",
    status_code=201,
    response_model=JobView,
    responses={
        **answers(404, 409, 507),
        200: {"model": JobView, "description": "The same key again: the same job."},
    },
    operation_id="submit_job",
)
async def submit_job(
    here: Here, caller: Writer, sent: Request, body: requests.SubmitJob, key: Key = ""
) -> Response:
    """Submit a job. The same Idempotency-Key again gives the same job with status 200."""
    row, new = await here.cluster.submit(await _submission(here, caller, sent, body, key))
    if new:  # its row was just written: it is as it says
        return json(here.visibility(caller).view(row.view), 201)
    return shown(here, caller, row)


@router.post(
    "/jobs/plan",
    response_model=PlanView,
    responses=answers(404, 409, 429),
    operation_id="plan_job",
)
async def plan_job(here: Here, caller: Writer, sent: Request, body: requests.SubmitJob) -> Response:
    """Say where, when and for how long a job would run, and why; nothing is changed."""
    request = await _submission(here, caller, sent, body, "")
    told = await here.limiter.ask(caller.user, lambda: here.cluster.plan(request))
    return json(here.visibility(caller).explanation(told))


@router.post(
    "/jobs/{job}/rerun",
    status_code=201,
    response_model=JobView,
    responses={
        **answers(404, 409, 507),
        200: {"model": JobView, "description": "The same key again: the same job."},
    },
    operation_id="rerun_job",
)
async def rerun_job(
    here: Here, caller: Writer, job: Name, body: requests.RerunJob, key: Key = ""
) -> Response:
    """Submit a new job with the job file of an earlier one, whatever became of that.

    It belongs to the user of the earlier one. ``changes`` are fields of the job file; ``env`` and
    ``labels`` come on top of what the file has, others replace it.
    """
    row = await here.find(caller, job)
    user, unix = await acting_for(here, caller, row.user)
    rerun = RerunRequest(row, user, caller.user, unix, body.changes, body.secrets, key)
    made, new = await here.cluster.rerun(rerun)
    return shown(here, caller, made, 201 if new else 200)


async def _submission(
    here: Context, caller: Caller, sent: Request, body: requests.SubmitJob, key: str
) -> JobSubmission:
    unix = account(caller.user, caller.unix)
    # A small job file is understood sooner than a thread has its turn.
    if 0 < declared_length(sent.scope) <= _SMALL_BYTES:
        job = JobFile.from_document(body.job)
    else:
        job = await here.read(lambda: JobFile.from_document(body.job))
    return JobSubmission(job, caller.user, unix, body.secrets, body.payload, key)


async def acting_for(here: Context, caller: Caller, owner: str) -> tuple[str, str]:
    """The user that a new job made from one of ``owner``'s belongs to, and the Unix account.

    It is the owner, also when an administrator asks: what a user wrote runs as that user.
    """
    if owner == caller.user or not here.cluster.own_users:
        return caller.user, account(caller.user, caller.unix)
    known = await here.read(lambda: here.cluster.store.accounts.user(owner))
    if known is None or not known.active:
        raise Conflict(
            f"the job would run as its user {owner!r}, who "
            + ("is switched off" if known else "is not there any more")
        )
    return known.name, account(known.name, known.unix)


def account(user: str, unix: str) -> str:
    """The Unix account that a user's jobs run under; empty where all share the server's."""
    if os.geteuid() != 0:
        return ""
    try:
        return _account(unix, int(time.monotonic() / _ACCOUNT_S))
    except KeyError:
        raise HttpError(
            403,
            "forbidden",
            f"user {user!r} has no Unix account on this machine, and jobs run under one",
            f"an administrator sets it: roost users set {user} --unix ACCOUNT",
        ) from None


@lru_cache(maxsize=256)
def _account(unix: str, _moment: int) -> str:
    """The account of that name, remembered for a moment; raises KeyError, which is not."""
    return look_up(unix).pw_name


@router.post(
    "/jobfiles/parse",
    response_model=ParsedJobFile,
    responses=answers(),
    operation_id="parse_jobfile",
    tags=["jobs"],
)
async def parse_jobfile(here: Here, _caller: Reader, body: requests.JobFileText) -> Response:
    """Understand a job file, or one of another system; faults come with line and field."""
    parsed = await here.read(lambda: parse(body.text, body.name))
    return json({"job": parsed.job.document(), "notes": list(parsed.notes)})


@router.get(
    "/jobs/{job}",
    response_model=JobView,
    responses=answers(404, 409),
    operation_id="get_job",
)
async def get_job(here: Here, caller: Reader, job: Name) -> Response:
    """One job, by its id or its name."""
    return shown(here, caller, await here.find(caller, job))


@router.delete(
    "/jobs/{job}",
    response_model=JobView,
    responses=answers(404, 409, 507),
    operation_id="delete_job",
)
async def delete_job(here: Here, caller: Writer, job: Name) -> Response:
    """Forget a job that is over, with its logs."""
    return shown(here, caller, await forget(here, caller, await here.find(caller, job)))


async def forget(here: Context, caller: Caller, row: JobRow) -> JobRow:
    """Forget a job that is over; viewers are told of it."""
    here.hub.leaves(row)
    try:
        return await here.cluster.delete(JobId(row.id), caller.user)
    finally:
        here.hub.stays(row)


@router.post(
    "/jobs/{job}/cancel",
    response_model=JobView,
    responses=answers(404, 409, 507),
    operation_id="cancel_job",
)
async def cancel_job(here: Here, caller: Writer, job: Name) -> Response:
    """End a job for good."""
    row = await here.find(caller, job)
    return shown(here, caller, await here.cluster.cancel(JobId(row.id), caller.user))


@router.post(
    "/jobs/{job}/suspend",
    response_model=JobView,
    responses=answers(404, 409, 507),
    operation_id="suspend_job",
)
async def suspend_job(here: Here, caller: Writer, job: Name) -> Response:
    """Let a job step aside until it is resumed."""
    row = await here.find(caller, job)
    return shown(here, caller, await here.cluster.suspend(JobId(row.id), caller.user))


@router.post(
    "/jobs/{job}/resume",
    response_model=JobView,
    responses=answers(404, 409, 507),
    operation_id="resume_job",
)
async def resume_job(here: Here, caller: Writer, job: Name) -> Response:
    """Let a suspended job go on as soon as there is room."""
    row = await here.find(caller, job)
    return shown(here, caller, await here.cluster.resume(JobId(row.id), caller.user))


@router.post(
    "/jobs/{job}/scale",
    response_model=JobView,
    responses=answers(404, 409, 507),
    operation_id="scale_job",
)
async def scale_job(here: Here, caller: Writer, job: Name, body: requests.ScaleJob) -> Response:
    """Change how few and how many workers a job has."""
    if body.max < body.min:
        raise InvalidSpec(f"workers must satisfy min <= max, got {body.min}..{body.max}")
    row = await here.find(caller, job)
    workers = Range(body.min, body.max)
    return shown(here, caller, await here.cluster.scale(JobId(row.id), workers, caller.user))


@router.post(
    "/jobs/{job}/migrate",
    response_model=JobView,
    responses=answers(404, 409, 507),
    operation_id="migrate_job",
)
async def migrate_job(here: Here, caller: Writer, job: Name, body: requests.MigrateJob) -> Response:
    """Move a job to a node, or to any other place."""
    row = await here.find(caller, job)
    node = None if body.node is None else NodeId(body.node)
    return shown(here, caller, await here.cluster.migrate(JobId(row.id), node, caller.user))


@router.get(
    "/jobs/{job}/explain",
    response_model=ExplanationView,
    responses=answers(404, 409, 429),
    operation_id="explain_job",
)
async def explain_job(here: Here, caller: Reader, job: Name) -> Response:
    """Why a job is where it is, what is ahead of it, and when it may start."""
    row = await here.find(caller, job)
    told = await here.limiter.ask(caller.user, lambda: here.cluster.explain(JobId(row.id)))
    return json(here.visibility(caller).explanation(told))


@router.get(
    "/jobs/{job}/file",
    response_model=dict[str, Any],
    responses=answers(404, 409),
    operation_id="get_jobfile",
)
async def get_jobfile(here: Here, caller: Reader, job: Name) -> Response:
    """The job file as it was submitted, without secrets."""
    return json((await here.find(caller, job)).document)


@router.get(
    "/jobs/{job}/events",
    response_model=EventPage,
    responses=answers(404, 409),
    operation_id="list_job_events",
)
async def list_job_events(
    here: Here, caller: Reader, job: Name, offset: Offset = 0, limit: Limit = 200
) -> Response:
    """What happened to a job, oldest first."""
    row = await here.find(caller, job)
    return await events(here, caller, EventQuery(job=row.id, offset=offset, limit=limit))


@router.get(
    "/events",
    response_model=EventPage,
    responses=answers(404, 409),
    operation_id="list_events",
)
async def list_events(  # noqa: PLR0913 - one parameter per filter
    here: Here,
    caller: Reader,
    *,
    after: Annotated[int, Query(ge=0, le=2**60)] = 0,
    job: Annotated[str, Query(pattern=r"^[a-z0-9.-]{0,202}$")] = "",
    kind: Annotated[str, Query(max_length=80)] = "",
    offset: Offset = 0,
    limit: Limit = 50,
) -> Response:
    """What happened after an entry of the journal, oldest first."""
    found = (await here.find(caller, job)).id if job else ""
    query = EventQuery(
        after=after,
        job=found,
        user="" if sees_all(caller) else caller.user,
        kind=kind,
        offset=offset,
        limit=limit,
    )
    return await events(here, caller, query)


async def events(here: Context, caller: Caller, query: EventQuery) -> Response:
    """A page of events as an answer."""
    page = await here.read(lambda: here.cluster.store.events.find(query))
    visibility = here.visibility(caller)
    items = [visibility.event(row) for row in page.items]
    return json({"items": items, "total": page.total, "offset": query.offset, "limit": query.limit})


@router.get(
    "/jobs/{job}/workers",
    response_model=WorkerList,
    responses=answers(404, 409),
    operation_id="list_workers",
)
async def list_workers(
    here: Here,
    caller: Reader,
    job: Name,
    attempt: Annotated[int, Query(ge=0, le=10**6)] = 0,
) -> Response:
    """The workers of an attempt (0: the newest) that have an output."""
    row = await here.find(caller, job)
    number = attempt or int(row.view.get("attempt") or 0)
    run = RunId(JobId(row.id), number)
    names = await here.read(lambda: here.cluster.engine.workers(run)) if number else ()
    return json({"attempt": number, "items": list(names)})


@router.get(
    "/jobs/{job}/result",
    response_class=Response,
    responses={
        **answers(404, 409, 429),
        200: {
            "description": "What the function returned, pickled; open it in the client only.",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        },
    },
    operation_id="get_result",
)
async def get_result(here: Here, caller: Reader, job: Name) -> Response:
    """What a submitted function returned, as it is; the server never opens it."""
    row = await here.find(caller, job)
    run = RunId(JobId(row.id), int(row.view.get("attempt") or 0))
    part = await here.read(lambda: _result(here, run))
    return await here.file_responses.answer(caller.user, part)


def _result(here: Context, run: RunId) -> FilePart:
    file = here.cluster.engine.result(run)
    if file is None:
        raise NotFound(f"job {run.job} has no result")
    return FilePart(file, 0, file.size(), "application/octet-stream")
