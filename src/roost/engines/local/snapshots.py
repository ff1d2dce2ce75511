"""Keeps what a job saved, and gives it to a new one: entirely, or not at all.

A draft beside the target is filled, written to disk and renamed. What belongs to another account is
copied by a process with the rights of that account (``folder_copy``), so a job cannot have the
server read for it what it may not read itself.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from roost.engines.local import folder_copy
from roost.engines.local.accounts import Account
from roost.engines.local.run_folders import RunFolder
from roost.engines.local.shim import process_tree
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable, RoostError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_AGAIN_S = 60.0
_NEVER = (
    "the job has not saved anything yet: there is nothing to start others from until it has "
    "written to $ROOST_CHECKPOINT_DIR, or has called train.save"
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: How often a copy with the rights of an account is looked at, and how long it may stand still.
_LOOK_S, _STILL_S = 0.5, 600.0


class CopySize(NamedTuple):
    """What was copied."""

    files: int
    size_bytes: int


class CopyContext(NamedTuple):
    """How to copy: with the rights of which account, by which Python, until when (``closing``)."""

    account: Account | None
    python: str
    closing: threading.Event = threading.Event()


def take(source: Path, into: Path, by: CopyContext) -> CopySize:
    """Copy a job's checkpoints into a folder that does not exist yet.

    Raises Conflict if there are none or they cannot be kept, Retryable if there is no space.
    """
    if os.path.lexists(into):
        raise Conflict(f"{into} is there already")
    into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in into.parent.glob(f".{into.name}.*.draft"):
        shutil.rmtree(old, ignore_errors=True)
    draft = into.parent / f".{into.name}.{uuid4().hex}.draft"
    try:
        draft.mkdir(0o700)
        found = _fill(draft, source, by)
        if not found.files:
            raise Conflict(_NEVER)
        # What was copied is on disk already (folder_copy): after the rename the name follows.
        draft.rename(into)
        _sync(into.parent)
    except OSError as error:
        raise _told(error, "the checkpoints cannot be kept") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return found


def restore(source: Path, folder: RunFolder, own: str, by: CopyContext) -> None:
    """Fill a new job's checkpoint folder, or the one of its own that it names, if it is empty.

    Raises NotFound if there is nothing to restore from, InvalidSpec or Retryable if it cannot be.
    """
    try:
        # Opened with the server's rights and passed on: the account cannot reach snapshots itself.
        with _Opened(source) as given:
            if own:
                job = folder.path.parent.name
                order = {"source_fd": given, "target": own, "job": job}
                _apart(order, (given,), by)
            else:
                _refill(given, folder.path.parent, by)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"the snapshot to start from is gone: {source.name}") from None
    except (folder_copy.CopyRefused, Conflict) as refused:
        raise InvalidSpec(f"the snapshot cannot be restored: {refused}") from None
    except OSError as error:
        raise _told(error, "the snapshot cannot be restored") from None


class _Opened:
    """A folder, open."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, _FOLDER)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _fill(draft: Path, source: Path, by: CopyContext) -> CopySize:
    account = by.account
    with _Opened(draft) as target:
        try:
            if account is not None:
                # The draft is the account's while its process fills it, and ours from then on:
                # the job must not be able to change what is kept.
                os.fchown(target, account.uid, account.gid)
                order = {"source": str(source), "target_fd": target}
                return _apart(order, (target,), by)
            with _Opened(source) as given:
                copy = folder_copy.FolderCopy(over=by.closing.is_set)
                copy.folder(given, target)
            return CopySize(copy.files, copy.size)
        except (FileNotFoundError, NotADirectoryError):
            raise Conflict(_NEVER) from None
        except folder_copy.CopyRefused as refused:
            raise Conflict(f"the checkpoints cannot be kept: {refused}") from None
        finally:
            if account is not None:
                os.fchown(target, os.geteuid(), os.getegid())


def _refill(given: int, job: Path, by: CopyContext) -> None:
    """Put a filled folder in the place of the empty one; one that has something is let be."""
    account = by.account
    for old in job.glob(".restore-*"):
        shutil.rmtree(old, ignore_errors=True)
    place = job / "checkpoints"
    if any(place.iterdir()):
        return
    draft = job / f".restore-{uuid4().hex}"
    try:
        draft.mkdir(0o700)
        with _Opened(draft) as target:
            owner = (account.uid, account.gid) if account else None
            copy = folder_copy.FolderCopy(owner, by.closing.is_set)
            copy.folder(given, target)
            if account:
                os.fchown(target, account.uid, account.gid)
        draft.rename(place)
        _sync(job)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _apart(order: dict[str, Any], fds: tuple[int, ...], by: CopyContext) -> CopySize:
    """Copy in a process with the rights of an account; raises Conflict or OSError."""
    order["account"] = by.account._asdict() if by.account else None
    order["above"] = os.getpid()  # it gives up when this server is gone
    with subprocess.Popen(  # noqa: S603 - our own
        [by.python, "-I", "-S", folder_copy.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=fds,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
    ) as child:
        out = _heard(child, json.dumps(order).encode(), by.closing)
    told: dict[str, Any] = {}
    with suppress(ValueError):
        told = json.loads(out)
    if not told:
        why = "was ended" if child.returncode < 0 else f"ended with status {child.returncode}"
        raise OSError(errno.EIO, f"copying {why}")
    if told["refused"]:
        raise folder_copy.CopyRefused(told["refused"])
    if told["errno"]:
        raise OSError(told["errno"], os.strerror(told["errno"]), told["file"] or None)
    return CopySize(told["files"], told["size"])


def _heard(child: subprocess.Popen[bytes], order: bytes, closing: threading.Event) -> bytes:
    """What a copying process says; killed where it does not go on.

    The account that it has may stop it, and what it reads may never come.
    """
    given: bytes | None = order
    before, since = b"", time.monotonic()
    while True:
        try:
            return child.communicate(given, _LOOK_S)[0]
        except subprocess.TimeoutExpired:
            # Popen remembers what is left to send, and refuses to be given it twice.
            given = None
        except BrokenPipeError:  # it ended before it was told
            return b""
        process, now = process_tree.look(child.pid), _counts(child.pid)
        if now != before:
            before, since = now, time.monotonic()
        stopped = process is not None and process.state in "Tt"
        if stopped or closing.is_set() or time.monotonic() - since > _STILL_S:
            # Not the end of the loop: the next communicate() reaps it.
            child.kill()


def _counts(pid: int) -> bytes:
    """What the kernel counts of what a process reads and writes."""
    try:
        return Path(f"/proc/{pid}/io").read_bytes()
    except OSError:
        return b""


def _told(error: OSError, what: str) -> RoostError:
    name = f": {error.filename}" if error.filename else ""
    if error.errno in _FULL:
        return Retryable(f"{what}: {error.strerror}; nothing was left behind", after=_AGAIN_S)
    return Conflict(f"{what}: {error.strerror}{name}")


def _sync(folder: Path) -> None:
    with _Opened(folder) as fd:
        os.fsync(fd)
