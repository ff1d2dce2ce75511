"""Folders that jobs run in, sent from another machine: what is lacking, and sending that."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from roost.api.folders import BlobsView, FolderView
from roost.errors import Conflict
from roost.server.backend import FolderBackend
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import Here, Writer, json

router = APIRouter(prefix="/api/v1", tags=["folders"], route_class=CheckedRoute)


@router.post(
    "/folders",
    response_model=FolderView,
    responses=answers(409, 429, 507),
    operation_id="offer_folder",
)
async def offer_folder(
    here: Here, caller: Writer, request: Request, *, keep: bool = True
) -> Response:
    """Say what a folder has, as a manifest; the answer says what is lacking of it.

    Nothing changes without ``keep``; with it, what comes is kept for a day, or as long as a job
    refers to it.
    """
    folders, text = _folders(here), await request.body()
    return json(await here.look(caller.user, lambda: folders.offer(caller.user, text, keep=keep)))


@router.post(
    "/folders/blobs",
    response_model=BlobsView,
    responses=answers(409, 429, 507),
    operation_id="add_blobs",
)
async def add_blobs(here: Here, caller: Writer, request: Request) -> Response:
    """Send contents of files: for each part a line ``sha256 offset length size``, and its bytes."""
    folders, body = _folders(here), await request.body()
    return json(await here.look(caller.user, lambda: folders.add(caller.user, body)))


def _folders(here: Context) -> FolderBackend:
    if here.cluster.folders is None:
        raise Conflict("folders are not sent here: use an image, a volume or workdir: {git: ...}")
    return here.cluster.folders
