"""Folders that are sent to a server, and what it lacks of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class BlobView(WireView):
    """The content of a file, by its SHA-256; ``have_bytes`` of it have come already."""

    sha256: str
    size_bytes: int
    have_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FolderView(WireView):
    """A folder as the server knows it; ``id`` is what a job file names (``workdir.sent``)."""

    id: str
    files: int
    size_bytes: int
    missing: tuple[BlobView, ...] = field(
        default=(), metadata={"description": "What is to be sent before a job can use it."}
    )


@dataclass(frozen=True, slots=True)
class BlobsView(WireView):
    """What became of contents that were sent."""

    whole: int
    parts: int
