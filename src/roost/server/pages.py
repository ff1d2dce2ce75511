"""The portal's page and files, and the link that logs a browser in.

Every page is the same file: the router in the browser knows which one is meant. None of it tells
anything about the cluster, so none of it needs a token.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from roost import __version__
from roost.errors import Conflict, NotFound
from roost.server.auth import Caller
from roost.server.body import CheckedRoute
from roost.server.errors import HttpError, answers
from roost.server.jobs import Here, json
from roost.server.page_paths import is_page
from roost.server.permissions import needs
from roost.server.roles import RoutePermission
from roost.server.sessions import begin
from roost.web.assets import AssetFile

router = APIRouter(tags=["pages"], route_class=CheckedRoute)

OpenToAll = Annotated[Caller | None, needs(RoutePermission.OPEN)]

#: A path of this server: two slashes would name another one.
_OWN_PATH = re.compile(r"/(?![/\\])[^\x00-\x20\x7f\\]*")
_HTML: dict[str, Any] = {
    "description": "A page.",
    "content": {"text/html": {"schema": {"type": "string"}}},
}
_PAGE_OR_ADDRESS: dict[str, Any] = {
    "description": "A page for a browser; for others where the API is.",
    "content": {**_HTML["content"], "application/json": {"schema": {"type": "object"}}},
}
_FILE: dict[str, Any] = {
    "description": "A file of the pages.",
    "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
}


@router.get(
    "/",
    response_class=Response,
    responses={**answers(), 200: _PAGE_OR_ADDRESS},
    operation_id="page",
)
async def page(request: Request, here: Here, caller: OpenToAll) -> Response:
    """The portal, for a browser; others are told where the API is."""
    if is_page(request.scope):
        return _sent(request, here.assets.page())
    if caller is None:
        raise HttpError(401, "unauthenticated", "no valid token")
    return json({"name": "Roost", "version": __version__, "api": "/api/v1"})


@router.get(
    "/login",
    response_class=Response,
    responses={**answers(), 200: _HTML, 303: {"description": "Logged in, or not."}},
    operation_id="login_page",
)
async def login_page(
    request: Request,
    here: Here,
    _caller: OpenToAll,
    once: Annotated[str, Query(max_length=200)] = "",
    onward: Annotated[str, Query(alias="next", max_length=2000)] = "/",
) -> Response:
    """The page to log in on; with the code of a link, a session begins and the portal opens."""
    if not once:
        return _sent(request, here.assets.page())
    owner = here.links.take(once)
    place = onward if _OWN_PATH.fullmatch(onward) else "/"
    headers = {"Location": "/login?problem=link"}
    if owner is not None:
        try:
            _, headers["Set-Cookie"] = await begin(request, here, owner)
            headers["Location"] = place
        except (Conflict, NotFound):  # the token was revoked, or its user is gone
            headers["Location"] = "/login?problem=token"
    return Response(status_code=303, headers=headers)


@router.get(
    "/assets/{path:path}",
    response_class=Response,
    responses={**answers(404), 200: _FILE, 304: {"description": "It is as it was."}},
    operation_id="asset",
)
async def asset(request: Request, here: Here, _caller: OpenToAll, path: str) -> Response:
    """A file of the pages; below the digest of all files, one that may be kept for ever."""
    found = here.assets.find(path)
    if found is None:
        raise NotFound("no such file of the pages; reload the page")
    file, kept = found
    return _sent(request, file, kept=kept)


def _sent(request: Request, file: AssetFile, *, kept: bool = False) -> Response:
    """A file as an answer: zipped where the browser takes that, nothing where it has it."""
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if kept else "no-cache",
        "ETag": file.etag,
        "Vary": "Accept-Encoding",
    }
    known = [tag.strip().removeprefix("W/") for tag in _each(request, "if-none-match")]
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    zipped = file.zipped() if "gzip" in codings(request) else None
    if zipped is not None:
        headers["Content-Encoding"] = "gzip"
    content = file.content if zipped is None else zipped
    return Response(content, headers=headers, media_type=file.media_type)


def _each(request: Request, header: str) -> list[str]:
    return request.headers.get(header, "").split(",")


def codings(request: Request) -> set[str]:
    """The content codings that a client takes; one with ``q=0`` is refused."""
    parts = [part.replace(" ", "").lower() for part in _each(request, "accept-encoding")]
    return {part.partition(";")[0] for part in parts if not part.endswith(";q=0")}
