"""Keeps what a job saved, and gives it to a new one: entirely, or not at all.

A draft beside the target is filled, written to disk and renamed. What belongs to another account is
copied by a process with the rights of that account (``copying``), so a job cannot have the server
read for it what it may not read itself.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from roost.engines.local import copying
from roost.engines.local.accounts import Account
from roost.engines.local.folder import Folder
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable, RoostError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_AGAIN_S = 60.0
_NEVER = "the job has not saved anything yet: it writes checkpoints to $ROOST_CHECKPOINT_DIR"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Copied(NamedTuple):
    """What was copied."""

    files: int
    size_bytes: int


def take(source: Path, into: Path, account: Account | None, python: str) -> Copied:
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
        found = _fill(draft, source, account, python)
        if not found.files:
            raise Conflict(_NEVER)
        draft.rename(into)
        _sync(into.parent)
    except OSError as error:
        raise _told(error, "the checkpoints cannot be kept") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return found


def restore(source: Path, folder: Folder, own: str, account: Account | None, python: str) -> None:
    """Fill a new job's checkpoint folder, or the one of its own that it names, if it is empty.

    Raises NotFound if there is nothing to restore from, InvalidSpec or Retryable if it cannot be.
    """
    try:
        with _Opened(source) as given:
            if own:
                job = folder.path.parent.name
                order = {"source_fd": given, "target": own, "job": job}
                _apart(order, (given,), account, python)
            else:
                _refill(given, folder.path.parent, account)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"the snapshot to start from is gone: {source.name}") from None
    except (copying.Refused, Conflict) as refused:
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


def _fill(draft: Path, source: Path, account: Account | None, python: str) -> Copied:
    with _Opened(draft) as target:
        try:
            if account is not None:
                os.fchown(target, account.uid, account.gid)
                order = {"source": str(source), "target_fd": target}
                return _apart(order, (target,), account, python)
            with _Opened(source) as given:
                copy = copying.Copy()
                copy.folder(given, target)
            return Copied(copy.files, copy.size)
        except (FileNotFoundError, NotADirectoryError):
            raise Conflict(_NEVER) from None
        except copying.Refused as refused:
            raise Conflict(f"the checkpoints cannot be kept: {refused}") from None
        finally:
            if account is not None:
                os.fchown(target, os.geteuid(), os.getegid())


def _refill(given: int, job: Path, account: Account | None) -> None:
    """Put a filled folder in the place of the empty one; one that has something is let be."""
    for old in job.glob(".restore-*"):
        shutil.rmtree(old, ignore_errors=True)
    place = job / "checkpoints"
    if any(place.iterdir()):
        return
    draft = job / f".restore-{uuid4().hex}"
    try:
        draft.mkdir(0o700)
        with _Opened(draft) as target:
            copy = copying.Copy((account.uid, account.gid) if account else None)
            copy.folder(given, target)
            if account:
                os.fchown(target, account.uid, account.gid)
        draft.rename(place)
        _sync(job)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _apart(
    order: dict[str, Any], fds: tuple[int, ...], account: Account | None, python: str
) -> Copied:
    """Copy in a process with the rights of an account; raises Conflict or OSError."""
    order["account"] = account._asdict() if account else None
    done = subprocess.run(  # noqa: S603 - our own
        [python, "-I", "-S", copying.__file__],
        input=json.dumps(order).encode(),
        capture_output=True,
        pass_fds=fds,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    told: dict[str, Any] = {}
    with suppress(ValueError):
        told = json.loads(done.stdout)
    if not told:
        raise OSError(errno.EIO, f"copying ended with status {done.returncode}")
    if told["refused"]:
        raise copying.Refused(told["refused"])
    if told["errno"]:
        raise OSError(told["errno"], os.strerror(told["errno"]), told["file"] or None)
    return Copied(told["files"], told["size"])


def _told(error: OSError, what: str) -> RoostError:
    name = f": {error.filename}" if error.filename else ""
    if error.errno in _FULL:
        return Retryable(f"{what}: {error.strerror}; nothing was left behind", after=_AGAIN_S)
    return Conflict(f"{what}: {error.strerror}{name}")


def _sync(folder: Path) -> None:
    with _Opened(folder) as fd:
        os.fsync(fd)
