"""The live state: one stream for the portal, the command line and other programs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Reader
from roost.server.pages import codings
from roost.server.streams import StreamResponse

router = APIRouter(prefix="/api/v1", tags=["stream"], route_class=CheckedRoute)

_EVENTS: dict[str, Any] = {
    "description": "Server-sent events: one snapshot, then deltas.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.get(
    "/stream",
    response_class=Response,
    responses={**answers(429), 200: _EVENTS},
    operation_id="stream",
)
async def stream(
    here: Here,
    caller: Reader,
    request: Request,
    last: Annotated[str, Header(alias="Last-Event-ID", max_length=60)] = "",
    after: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """Jobs that are not over, nodes and queues, and from then on every change.

    ``after`` does what the header Last-Event-ID does: go on from that event if it is still known.
    """
    # Programs may read line by line with what knows no gzip; a browser asks for it and means it.
    zips = caller.session and "gzip" in codings(request)
    line = here.streams.hold(caller, request.scope["roost.secret"])
    return StreamResponse(
        line,
        lambda held: here.hub.watch(held, here.visibility(caller), last or after, zips=zips),
        "gzip" if zips else "",
    )
