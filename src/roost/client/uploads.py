"""Sends a folder: the server says what it lacks, and gets that and no more.

Small files go together, large ones in parts. A part that has come stays: whoever is cut off asks
again what is missing, and goes on from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from roost.api.folders import BlobView, FolderView
from roost.api.schema import decode
from roost.client.conversations import RestRequest, Steps, ask
from roost.client.folder_scan import FolderScan
from roost.errors import Conflict, InvalidSpec

#: What one request carries at most, and what of one file; the line in front has to fit, too.
_REQUEST_BYTES = 4 << 20
_PART_BYTES = _REQUEST_BYTES - 256


class SendPlan(NamedTuple):
    """How much of a folder would go to the server."""

    files: int
    size_bytes: int
    new_files: int
    new_bytes: int


def send_plan(found: FolderScan) -> Steps[SendPlan]:
    """Ask how much would be sent; nothing changes."""
    view = yield from _offer(found, keep=False)
    lacking = {blob.sha256 for blob in view.missing}
    new = sum(file.sha256 in lacking for file in found.manifest.files.values())
    left = sum(blob.size_bytes - blob.have_bytes for blob in view.missing)
    manifest = found.manifest
    return SendPlan(len(manifest.files), manifest.size_bytes, new, left)


def send(found: FolderScan) -> Steps[None]:
    """Send what the server lacks of a folder; raises InvalidSpec if that changes meanwhile."""
    view = yield from _offer(found, keep=True)
    for body in _bodies(found, view):
        yield from ask(
            RestRequest("POST", "/folders/blobs", content=body, headers=_RAW, again=True)
        )


_RAW = {"Content-Type": "application/octet-stream"}


def _offer(found: FolderScan, *, keep: bool) -> Steps[FolderView]:
    """Tell the server what there is; it tells what it lacks."""
    params = (("keep", "true" if keep else "false"),)
    request = RestRequest("POST", "/folders", params, content=found.text, headers=_RAW, again=True)
    view = decode(FolderView, (yield from ask(request)).json())
    if view.id != found.id:
        raise Conflict("the server understands another folder: its version of Roost is another")
    return view


def _bodies(found: FolderScan, view: FolderView) -> Iterator[bytes]:
    """Requests full of parts: a line that says what it is, then its bytes."""
    full, sources = bytearray(), found.sources
    for blob in view.missing:
        if blob.sha256 not in sources:
            raise Conflict("the server asks for a file that the folder does not have")
        for offset, part in _parts(sources[blob.sha256], blob):
            head = f"{blob.sha256} {offset} {len(part)} {blob.size_bytes}\n".encode()
            if full and len(full) + len(head) + len(part) > _REQUEST_BYTES:
                yield bytes(full)
                full.clear()
            full += head + part
    if full:
        yield bytes(full)


def _parts(place: Path, blob: BlobView) -> Iterator[tuple[int, bytes]]:
    """The content from where the server has it, each part with its place."""
    digest, offset = hashlib.sha256(), 0
    try:
        with place.open("rb") as file:
            while part := file.read(_PART_BYTES):
                digest.update(part)
                end = offset + len(part)
                if end > blob.have_bytes:
                    start = max(offset, blob.have_bytes)
                    yield start, part[start - offset :]
                offset = end
    except OSError as error:
        raise InvalidSpec(f"cannot read {place}: {error.strerror}") from None
    if digest.hexdigest() != blob.sha256:
        raise InvalidSpec(f"{place} has changed while it was sent: submit again")
    if not offset:
        yield 0, b""
