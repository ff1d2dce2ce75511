"""Searching a log: piece by piece, so that neither its length nor that of a line costs memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Response

from roost.api.jobs import LogHit, LogHits
from roost.api.schema import encode
from roost.core.spec import JobId, RunId
from roost.engines import LogFile
from roost.errors import InvalidSpec
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Name, Reader, json
from roost.server.logs import Attempt, From, Worker, attempt_of, open_log

router = APIRouter(prefix="/api/v1", tags=["logs"], route_class=CheckedRoute)

#: What is read at a time, and for one answer; how much of a line is looked at once more with what
#: follows it, and how much of it is shown.
_BLOCK, _SPAN = 1 << 20, 64 << 20
_OVERLAP, _SHOWN, _BEFORE = 1024, 500, 100
#: What lines say in which something went wrong, in the words of the usual frameworks.
_TROUBLE = re.compile(
    rb"error|exception|traceback|fatal|panic|assert|segmentation|core dumped|out of memory|oom|"
    rb"killed|nccl warn|cuda failure|not converge|diverged|\bnan\b|cannot |failed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What is looked for, after which offset, and how many lines at most; a text or trouble."""

    text: str = ""
    case: bool = False
    errors: bool = False
    after: int = 0
    limit: int = 100


class _Piece(NamedTuple):
    """A line, or a part of a long one: where it begins in the log, and in which line."""

    offset: int
    line: int
    start: int
    content: bytes


@router.get(
    "/jobs/{job}/logs/search",
    response_model=LogHits,
    responses=answers(404, 409, 429),
    operation_id="search_logs",
)
async def search_logs(  # noqa: PLR0913 - one parameter per question
    here: Here,
    caller: Reader,
    job: Name,
    *,
    q: Annotated[str, Query(max_length=500)] = "",
    case: bool = False,
    errors: bool = False,
    worker: Worker = "worker-0",
    attempt: Attempt = 0,
    after: From = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Lines of a log that contain a text, or in which something went wrong (``errors``).

    ``next`` is the ``after`` with which to go on; it is null at the end.
    """
    if not q and not errors:
        raise InvalidSpec("say what to look for: q=TEXT, or errors=true")
    row = await here.find(caller, job)
    number = attempt or attempt_of(row)
    if not number:  # it has not begun
        return json(encode(LogHits((), None, 0)))
    query = LogQuery(q, case, errors, after, limit)

    def look() -> LogHits:
        with open_log(here, RunId(JobId(row.id), number), worker) as log:
            return search(log, query)

    return json(encode(await here.look(caller.user, look)))


def search(log: LogFile, query: LogQuery) -> LogHits:
    """The lines that are looked for; so many at most, in so much of the log at most."""
    size = log.size()
    start = min(query.after, size)
    end = min(size, start + _SPAN)
    finds = _finder(query)
    found: list[LogHit] = []
    for piece in _pieces(log, start, end):
        if found and found[-1].line == piece.line:
            continue  # another part of a line that was found
        at = finds(piece.content)
        if at is None:
            continue
        if len(found) == query.limit:
            return LogHits(tuple(found), piece.start, size)
        found.append(LogHit(piece.start, piece.line, _shown(piece, at)))
    return LogHits(tuple(found), end if end < size else None, size)


def _finder(query: LogQuery) -> Callable[[bytes], int | None]:
    """Where in a piece something is that is looked for; None: nowhere."""
    wanted = query.text.encode()
    flags = 0 if query.case else re.IGNORECASE
    # A pattern of letters beyond ASCII has to be one of text to know small and capital letters.
    in_text = (
        None if query.text.isascii() or query.case else re.compile(re.escape(query.text), flags)
    )
    in_bytes = re.compile(re.escape(wanted), flags)

    def finds(content: bytes) -> int | None:
        if query.errors and not (trouble := _TROUBLE.search(content)):
            return None
        if not wanted:
            return trouble.start() if trouble else None
        if in_text is not None:
            text = content.decode("utf-8", "replace")
            hit = in_text.search(text)
            return None if hit is None else len(text[: hit.start()].encode())
        found = in_bytes.search(content)
        return None if found is None else found.start()

    return finds


def _pieces(log: LogFile, start: int, end: int) -> Iterator[_Piece]:
    """The lines of a part of a log that begin in it; long ones in parts that overlap."""
    line, begin = _line_at(log, start)
    kept, offset = b"", start
    while offset < end:
        block = log.read(offset, min(_BLOCK, end - offset))
        if not block:
            break
        offset += len(block)
        whole, newline, rest = (kept + block).rpartition(b"\n")
        at = offset - len(kept) - len(block)
        if newline:
            for content in whole.split(b"\n"):
                yield _Piece(at, line, begin, content)
                at += len(content) + 1
                line, begin = line + 1, at
        kept = rest
        if len(kept) >= _BLOCK:
            yield _Piece(at, line, begin, kept)
            kept = kept[-_OVERLAP:]
    if kept:
        yield _Piece(offset - len(kept), line, begin, kept)


def _line_at(log: LogFile, start: int) -> tuple[int, int]:
    """The number of the line that an offset is in, and where in the log that line begins."""
    line, begin, offset = 1, 0, 0
    while offset < start:
        block = log.read(offset, min(_BLOCK, start - offset))
        if not block:
            break
        line += block.count(b"\n")
        last = block.rfind(b"\n")
        begin = offset + last + 1 if last >= 0 else begin
        offset += len(block)
    return line, begin


def _shown(piece: _Piece, at: int) -> str:
    """The beginning of a line, or what is around the place where something is."""
    first = 0 if at < _SHOWN - _BEFORE else at - _BEFORE
    text = piece.content[first : first + 4 * _SHOWN].decode("utf-8", "replace")
    return text[:_SHOWN].rstrip("\r")
