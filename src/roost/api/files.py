"""Files of jobs, as they are listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from roost.api.schema import WireView

#: The folders of a job's files: the first part of every path.
FOLDERS = ("work", "checkpoints", "logs")


@dataclass(frozen=True, slots=True)
class FileView(WireView):
    """A file, a folder or a link of a job; ``path`` begins with work, checkpoints or logs."""

    path: str
    kind: Literal["file", "folder", "link"] = "file"
    size_bytes: int = 0
    modified_at: float = 0.0
    executable: bool = False
    target: str = field(default="", metadata={"description": "Where a link leads."})
    version: str = field(default="", metadata={"description": "The ETag of a file's content."})


@dataclass(frozen=True, slots=True)
class FilePage(WireView):
    """A part of a list of files; ``next`` is where to go on (``after``), empty at the end."""

    items: tuple[FileView, ...]
    attempt: int = 0
    next: str = ""
    places: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"description": "The absolute folder for work, checkpoints and logs."},
    )
