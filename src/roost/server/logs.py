"""Logs: the end of one, a part of one, and following one."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from roost.core.spec import JobId, RunId
from roost.engines import LogFile
from roost.errors import NotFound, unknown
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.file_responses import FilePart
from roost.server.jobs import Here, Name, Reader
from roost.server.log_followers import LogPosition
from roost.server.options import ServerOptions
from roost.server.streams import StreamResponse
from roost.store.rows import JobRow

router = APIRouter(prefix="/api/v1", tags=["logs"], route_class=CheckedRoute)

Worker = Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
Attempt = Annotated[int, Query(ge=0, le=10**6)]
From = Annotated[int, Query(ge=0, le=2**60)]

_LIMITS = ServerOptions()
_BLOCK = 64 * 1024
_ID = re.compile(r"([1-9][0-9]{0,5})-([0-9]{1,15})")
_TEXT: dict[str, Any] = {
    "description": "The text; X-Log-Offset is where it begins, X-Log-Size how long the log is.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
    "headers": {
        "X-Log-Size": {"schema": {"type": "integer"}, "required": True},
        "X-Log-Offset": {"schema": {"type": "integer"}, "required": True},
    },
}
_EVENTS: dict[str, Any] = {
    "description": "Server-sent events.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.get(
    "/jobs/{job}/logs",
    response_class=Response,
    responses={**answers(404, 409, 429), 200: _TEXT},
    operation_id="get_logs",
)
async def get_logs(  # noqa: PLR0913 - one parameter per question
    here: Here,
    caller: Reader,
    job: Name,
    *,
    worker: Worker = "worker-0",
    attempt: Attempt = 0,
    tail: Annotated[int | None, Query(ge=0, le=_LIMITS.log_lines)] = None,
    offset: Annotated[int | None, Query(ge=0, le=2**60)] = None,
    limit: Annotated[int, Query(ge=1, le=_LIMITS.log_bytes)] = _LIMITS.log_bytes,
    download: bool = False,
) -> Response:
    """Output of a worker: the last ``tail`` lines, or ``limit`` bytes after ``offset``.

    Attempt 0 is the newest. Without ``tail`` and ``offset``: from the beginning. ``limit`` is 8 MiB
    at most; with ``download`` all of it is sent, as a file.
    """
    row = await here.find(caller, job)
    number = attempt or attempt_of(row)
    if not number:  # it has not begun
        return Response(headers=_places(0, 0), media_type="text/plain")
    run = RunId(JobId(row.id), number)
    part = await here.read(lambda: _part(here, run, worker, tail, offset))
    if download:
        name = f"{row.id}-{number}-{worker}.log"
        headers = {**part.headers, "Content-Disposition": f'attachment; filename="{name}"'}
        part = part._replace(headers=headers)
    else:
        part = part._replace(length=min(part.length, limit))
    return await here.file_responses.answer(caller.user, part)


def _places(start: int, size: int) -> dict[str, str]:
    return {"X-Log-Size": str(size), "X-Log-Offset": str(start)}


def attempt_of(row: JobRow) -> int:
    """The newest attempt of a job; 0: it has not begun."""
    return int(row.view.get("attempt") or 0)


def open_log(here: Context, run: RunId, worker: str) -> LogFile:
    """The log of a worker; raises NotFound."""
    try:
        return here.cluster.engine.logs(run, worker)
    except NotFound:
        workers = here.cluster.engine.workers(run)
        if workers and worker not in workers:
            raise unknown("worker", worker, workers) from None
        raise NotFound(f"{run} has no log of {worker!r}") from None


def _part(here: Context, run: RunId, worker: str, tail: int | None, offset: int | None) -> FilePart:
    log = open_log(here, run, worker)
    try:
        size = log.size()
        start = min(offset or 0, size)
        if tail is not None:
            start = max(start, _start_of(log, size, tail))
    except BaseException:
        log.close()
        raise
    return FilePart(log, start, size - start, "text/plain", _places(start, size))


def _start_of(log: LogFile, size: int, lines: int) -> int:
    """Where the last lines begin; as far back as the bound of an answer."""
    if not lines:
        return size
    least = max(0, size - _LIMITS.log_bytes)
    end, left = size, lines
    while end > least:
        start = max(least, end - _BLOCK)
        block = log.read(start, end - start)
        last = len(block)
        if end == size and block.endswith(b"\n"):
            last -= 1  # the line that ends with the file
        while (found := block.rfind(b"\n", 0, last)) >= 0:
            left -= 1
            if not left:
                return start + found + 1
            last = found
        end = start
    return least


@router.get(
    "/jobs/{job}/logs/stream",
    response_class=Response,
    responses={**answers(404, 409, 429), 200: _EVENTS},
    operation_id="follow_logs",
)
async def follow_logs(  # noqa: PLR0913 - one parameter per question
    here: Here,
    caller: Reader,
    request: Request,
    job: Name,
    *,
    worker: Worker = "worker-0",
    attempt: Attempt = 0,
    offset: From = 0,
    last: Annotated[str, Header(alias="Last-Event-ID", max_length=40)] = "",
) -> Response:
    """Follow the output of a worker through all attempts, until the job is over.

    Text comes as messages: the data is a JSON string, the id is ``<attempt>-<offset>``, with
    the offset after it; ``event: attempt`` begins an attempt, ``event: end`` tells how the job
    ended. The header Last-Event-ID does what ``attempt`` and ``offset`` do.
    """
    row = await here.find(caller, job)
    await _check_worker(here, row, worker, attempt)
    place = LogPosition(row, worker, *(_after(last) or (attempt, offset)))

    line = here.streams.hold(caller, request.scope["roost.secret"])
    return StreamResponse(line, lambda held: here.followers.follow(held, place))


def _after(last: str) -> tuple[int, int] | None:
    """The attempt and the offset in an id; None if it is not one of ours."""
    found = _ID.fullmatch(last)
    return (int(found[1]), int(found[2])) if found else None


async def _check_worker(here: Context, row: JobRow, worker: str, attempt: int) -> None:
    number = attempt or attempt_of(row)
    if not number:
        return
    run = RunId(JobId(row.id), number)
    workers = await here.read(lambda: here.cluster.engine.workers(run))
    if workers and worker not in workers:
        raise unknown("worker", worker, workers)
