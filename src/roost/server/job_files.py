"""Files of jobs: listing them, and reading one, in parts if that is wished.

A look into a job's folders may hang as long as the job likes (its own file system, a stopped
process), so it has threads of its own, few of them for each user.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from roost.api.files import FilePage
from roost.core.spec import JobId, RunId
from roost.engines import FileQuery, JobFiles
from roost.errors import Conflict, Forbidden, NotFound
from roost.jobfile import JobFile
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import HttpError, answers
from roost.server.file_responses import FilePart
from roost.server.jobs import Here, Name, Reader, json
from roost.store.rows import JobRow

router = APIRouter(prefix="/api/v1", tags=["files"], route_class=CheckedRoute)

FilePath = Annotated[str, Query(max_length=4200)]
Attempt = Annotated[int, Query(ge=0, le=10**6)]

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))")
_PARTIAL, _BEYOND = 206, 416
_CONTENT: dict[str, Any] = {
    "description": "The content; ETag names this very content, for If-Range.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    "headers": {"ETag": {"schema": {"type": "string"}, "required": True}},
}


@router.get(
    "/jobs/{job}/files",
    response_model=FilePage,
    responses=answers(404, 409, 429),
    operation_id="list_files",
)
async def list_files(  # noqa: PLR0913 - one parameter per question
    here: Here,
    caller: Reader,
    job: Name,
    *,
    path: FilePath = "",
    after: FilePath = "",
    attempt: Attempt = 0,
    deep: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """Files, folders and links of an attempt (0: the newest), at ``path`` or all (``deep``) below.

    A path begins with ``work``, ``checkpoints`` or ``logs``; without one, all three are
    listed. Where there are more than ``limit``, ``next`` is what to give as ``after``.
    """
    row = await here.find(caller, job)
    number = attempt or int(row.view.get("attempt") or 0)
    if not number:  # it has not begun
        return json({"items": [], "attempt": 0, "next": "", "places": {}})

    def look() -> tuple[list[dict[str, Any]], dict[str, str]]:
        files = _files(here, row, number)
        query = FileQuery(path.rstrip("/"), after, limit + 1, deep=deep)
        if not path:
            return _all(caller, row, files, query), dict(files.places)
        _check(caller, row, path)
        return files.page(query), dict(files.places)

    items, places = await here.look(caller.user, look)
    more = items[limit - 1]["path"] if len(items) > limit else ""
    return json({"items": items[:limit], "attempt": number, "next": more, "places": places})


@router.get(
    "/jobs/{job}/files/content",
    response_class=Response,
    responses={
        **answers(404, 409, 416, 429),
        200: _CONTENT,
        _PARTIAL: {**_CONTENT, "description": "The part that was asked for."},
    },
    operation_id="get_file",
)
async def get_file(  # noqa: PLR0913 - one parameter per question
    here: Here,
    caller: Reader,
    job: Name,
    *,
    path: FilePath = "",
    attempt: Attempt = 0,
    wanted: Annotated[str, Header(alias="Range", max_length=200)] = "",
    same: Annotated[str, Header(alias="If-Range", max_length=200)] = "",
) -> Response:
    """The content of a file as it is now, or the part that the header Range asks for."""
    row = await here.find(caller, job)
    number = attempt or int(row.view.get("attempt") or 0)
    if not number:
        raise NotFound(f"job {row.id} has not begun: it has no files")

    def look() -> tuple[FilePart, bool]:
        _check(caller, row, path)
        return _part(_files(here, row, number), path, wanted, same)

    part, partial = await here.look(caller.user, look)
    response = await here.file_responses.answer(caller.user, part)
    if partial:
        response.status_code = _PARTIAL
    return response


def _files(here: Context, row: JobRow, attempt: int) -> JobFiles:
    return here.cluster.engine.files(RunId(JobId(row.id), attempt), _own(row))


def _own(row: JobRow) -> dict[str, str]:
    """The folders that a job names itself: they are its user's, not the run's."""
    program = JobFile.from_document(dict(row.document)).program()
    named = {"work": program.workdir, "checkpoints": program.checkpoint_dir}
    return {name: path for name, path in named.items() if path}


def _check(caller: Caller, row: JobRow, path: str) -> None:
    """Of folders that a user named, there may be anything in: they are shown to that user alone."""
    if caller.user == row.user or caller.role == "admin":
        return
    name = path.partition("/")[0]
    if name in _own(row):
        raise Forbidden(f"{name} of job {row.id} is a folder of {row.user}'s own", "ask its user")


def _all(caller: Caller, row: JobRow, files: JobFiles, query: FileQuery) -> list[dict[str, Any]]:
    """What is in all folders that a caller may look into."""
    found: list[dict[str, Any]] = []
    names = [name for name in sorted(files.places) if name >= query.after.partition("/")[0]]
    for name in names:
        # A folder that is not there (any more), or closed, is no reason to say nothing of others.
        with suppress(Forbidden, NotFound, Conflict):
            _check(caller, row, name)
            left = query.most - len(found)
            found += files.page(query._replace(path=name, most=left)) if left else []
    return found


def _part(files: JobFiles, path: str, wanted: str, same: str) -> tuple[FilePart, bool]:
    file = files.open(path)
    try:
        size, tag = file.size(), f'"{file.version()}"'
        headers = {
            "ETag": tag,
            "Accept-Ranges": "bytes",
            "Content-Disposition": "attachment",
        }
        found = _RANGE.fullmatch(wanted.replace(" ", ""))
        if found is None or (same and same != tag):
            return FilePart(file, 0, size, "application/octet-stream", headers), False
        start, end = _bounds(found, size)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return FilePart(file, start, end - start, "application/octet-stream", headers), True
    except BaseException:
        file.close()
        raise


def _bounds(found: re.Match[str], size: int) -> tuple[int, int]:
    first, last, suffix = found.groups()
    start, end = max(0, size - int(suffix or 0)), size
    if suffix is None:
        start, end = int(first), size if last is None else min(int(last) + 1, size)
    if end <= start:
        raise HttpError(_BEYOND, "invalid", f"the file has {size} bytes")
    return start, end
