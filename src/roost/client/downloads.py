"""Files of jobs: listing them, and fetching them so that a cut goes on where it was.

What is fetched is written beside its place, under a name that says of which content it is a part,
and gets its name when it is whole. So the next try goes on with it (Range and If-Range), also of
another process, and what is there already is not fetched again. Names come from a job, which may be
hostile: no path leaves the folder that was asked for, and links are made last, only if they stay
inside.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from roost.api.files import FOLDERS, FilePage, FileView
from roost.api.schema import decode
from roost.client.conversations import (
    PATIENCE_S,
    ConnectionLost,
    Emit,
    Items,
    Open,
    Pause,
    Read,
    RestReply,
    RestRequest,
    Steps,
    ask,
    consumed,
    failed,
    get,
    part,
    waits,
)
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable, RoostError

_WHOLE, _BEYOND = 200, 416
_SAME_S = 0.001


class Download(NamedTuple):
    """What became of a wish for files: where they are now, and which links were left out."""

    path: Path
    files: int = 0
    size_bytes: int = 0
    unchanged: int = 0
    left_out: tuple[str, ...] = ()


def files(
    job: str,
    path: str = "",
    deep: bool = False,  # noqa: FBT001, FBT002 - files(deep=True) is how it reads
    attempt: int = 0,
) -> Steps[list[FileView]]:
    """The files of a job: in its working folder, its checkpoints and its logs, or at a path.

    A path begins with ``work``, ``checkpoints`` or ``logs``, else it is one in the working folder.
    ``deep``: with all that is in folders below.
    """
    found: list[FileView] = []
    page = yield from file_page(job, path, deep=deep, attempt=attempt)
    while True:
        found += page.items
        if not page.next:
            return found
        page = yield from file_page(job, path, page.next, deep=deep, attempt=attempt)


def file_page(
    job: str, path: str = "", after: str = "", *, deep: bool = False, attempt: int = 0
) -> Steps[FilePage]:
    """The first files, with the folders that they are in."""
    asked = [("path", full_path(path)), ("after", after), ("attempt", attempt)]
    params = [*asked, ("deep", "true" if deep else "")]
    told = (yield from ask(get(f"/jobs/{part(job)}/files", params))).json()
    return decode(FilePage, told)


def full_path(path: str) -> str:
    """A path as the server knows it: one that names no folder is in the working folder."""
    path = posixpath.normpath(path).lstrip("/") if path else ""
    if path in ("", "."):
        return ""
    return path if path.split("/")[0] in FOLDERS else f"work/{path}"


def content(job: str, path: str, attempt: int = 0) -> Items[bytes]:
    """The content of one file, piece by piece; raises Conflict if it changes meanwhile."""
    yield from _pieces(_Wanted(job, full_path(path), attempt), 0)


def download(
    job: str, path: str = "", to: str | os.PathLike[str] = ".", attempt: int = 0
) -> Steps[Download]:
    """Fetch a file, or a folder with all that is in it; see ``files`` for paths.

    ``to`` is its new name; it keeps its own in ``.``, ``..``, what ends with ``/`` and, if it is a
    file, in a folder that exists. Started again, it goes on where it was cut; files that are there
    already stay as they are.
    """
    wanted = full_path(path)
    found = yield from files(job, wanted, deep=True, attempt=attempt)
    target, given = Path(to), os.fspath(to)
    single = [view.path for view in found] == [wanted]
    # Not into any folder that exists: the second try would go elsewhere than the first.
    if posixpath.basename(given) in ("", ".", "..") or (single and target.is_dir()):
        target /= posixpath.basename(wanted) or job
    if single and found[0].kind == "file":
        size, old = yield from _fetch(_Wanted(job, wanted, attempt), found[0], target)
        return Download(target, 1, size, int(old))
    if single:
        raise InvalidSpec(f"{wanted} is a link to {found[0].target}; fetch that")
    if not found and wanted:
        yield from files(job, wanted, attempt=attempt)  # raises NotFound where there is nothing
    return (yield from _folder(_Wanted(job, wanted, attempt), found, target))


class _Wanted(NamedTuple):
    job: str
    path: str
    attempt: int

    def request(self, offset: int, version: str) -> RestRequest:
        asked = [("path", self.path), ("attempt", self.attempt)]
        plain = get(f"/jobs/{part(self.job)}/files/content", asked)
        if not offset:
            return plain
        headers = {"Range": f"bytes={offset}-", "If-Range": f'"{version}"'}
        return RestRequest(plain.method, plain.path, plain.params, headers=headers, again=True)


def _folder(wanted: _Wanted, found: list[FileView], target: Path) -> Steps[Download]:
    count = size = unchanged = 0
    left_out: list[str] = []
    above = f"{wanted.path}/" if wanted.path else ""
    target.mkdir(parents=True, exist_ok=True)
    for view in found:
        place = target / _inside(view.path, above)
        if view.kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
        elif view.kind == "file":
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                got, old = yield from _fetch(wanted._replace(path=view.path), view, place)
            except NotFound:  # gone meanwhile
                left_out.append(view.path)
                continue
            count, size, unchanged = count + 1, size + got, unchanged + old
    links = (view for view in found if view.kind == "link")
    left_out += [
        view.path for view in links if not _linked(view, target, _inside(view.path, above))
    ]
    return Download(target, count, size, unchanged, tuple(left_out))


def _inside(path: str, above: str) -> str:
    """A path below the one that was asked for; raises Conflict where it would lead elsewhere."""
    rest = path.removeprefix(above)
    parts = rest.split("/")
    if not path.startswith(above) or any(one in ("", ".", "..") or "\0" in one for one in parts):
        raise Conflict(f"the server names a file {path!r}, which is not below {above!r}")
    return rest


def _linked(view: FileView, target: Path, rest: str) -> bool:
    """Make a link, if it stays inside: up first and then down, and not further up than the top."""
    steps = view.target.split("/")
    ups = next((at for at, step in enumerate(steps) if step != ".."), len(steps))
    if view.target.startswith("/") or ".." in steps[ups:] or ups > rest.count("/"):
        return False
    place = target / rest
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    with suppress(FileExistsError):  # something else is there
        place.symlink_to(view.target)
        return True
    return False


def _fetch(wanted: _Wanted, view: FileView, place: Path) -> Steps[tuple[int, bool]]:
    """Fetch one file; its size, and whether it was there already."""
    if _is_same(view, place):
        return view.size_bytes, True
    mark = hashlib.sha256(view.version.encode()).hexdigest()[:16]
    draft = place.with_name(f".{place.name[:200]}.{mark}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    mode = 0o777 if view.executable else 0o666
    with os.fdopen(os.open(draft, flags, mode), "r+b") as file:
        yield from _written(wanted, view, file)
        size = file.tell()
    os.utime(draft, (view.modified_at, view.modified_at))
    draft.replace(place)  # a link of that name is replaced, not followed
    for old in place.parent.glob(f".{_escaped(place.name[:200])}.*.part"):
        old.unlink(missing_ok=True)
    return size, False


def _is_same(view: FileView, place: Path) -> bool:
    try:
        status = place.lstat()
    except FileNotFoundError:
        return False
    if place.is_dir() and not place.is_symlink():
        raise InvalidSpec(f"{place} is a folder here and a file of the job; remove it")
    same_time = abs(status.st_mtime - view.modified_at) < _SAME_S
    return not place.is_symlink() and status.st_size == view.size_bytes and same_time


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _written(wanted: _Wanted, view: FileView, file: IO[bytes]) -> Steps[None]:
    """Let a file have all that the server has; begin anew if that has become another."""

    def begin_anew() -> None:
        file.truncate(0)
        file.seek(0)

    at = file.seek(0, os.SEEK_END)
    if at > view.size_bytes:
        at = 0
        begin_anew()
    if not at or at < view.size_bytes:
        yield from consumed(_pieces(wanted, at, view.version, begin_anew), file.write)


def _pieces(
    wanted: _Wanted, at: int, version: str = "", begin_anew: Callable[[], object] | None = None
) -> Items[bytes]:
    """What a file has from there on; where it has become another, all of it, if that can be."""
    heard, pauses = time.monotonic(), waits()
    while True:
        error: RoostError | None = None
        try:
            reply = yield Open(wanted.request(at, version))
            assert isinstance(reply, RestReply)  # noqa: S101 - what drivers answer
            if at and reply.status in (_WHOLE, _BEYOND):
                if begin_anew is None:
                    raise Conflict(f"{wanted.path} has changed while it was read")
                begin_anew()
                at = 0
            error = failed(reply) if reply.status != _BEYOND else Retryable("begun anew", 0.0)
            version = reply.headers.get("etag", "").strip('"')
            end = at + int(reply.headers.get("content-length", 0))
            while error is None and isinstance(chunk := (yield Read()), bytes):
                heard, pauses, at = time.monotonic(), waits(), at + len(chunk)
                yield Emit((chunk,))
            if error is None and at >= end:
                return
        except ConnectionLost as lost:
            error = lost.told()
        if error is not None and not isinstance(error, Retryable):
            raise error
        if time.monotonic() - heard > PATIENCE_S:
            raise error or Retryable(f"{wanted.path} is cut off again and again", 1.0)
        yield Pause(next(pauses))
