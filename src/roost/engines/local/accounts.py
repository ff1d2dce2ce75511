"""Unix accounts: as root each job runs under one; otherwise all share the server's."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple

from roost.errors import InvalidSpec

_SEARCH = 0o1
_LIST = "/etc/passwd"


class Account(NamedTuple):
    """An account that is not the server's own."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def look_up(name: str) -> pwd.struct_passwd:
    """An account of this machine; raises KeyError if there is none, OSError if nobody can tell.

    The C library says that there is none also where it could not open the list of them.
    """
    try:
        return pwd.getpwnam(name)
    except KeyError:
        os.close(os.open(_LIST, os.O_RDONLY | os.O_CLOEXEC))
        raise


def resolve(name: str) -> Account | None:
    """The account to change to; None if there is nothing to change; raises InvalidSpec."""
    if not name:
        return None
    try:
        entry = look_up(name)
    except (KeyError, ValueError):
        raise InvalidSpec(f"this machine has no account {name!r}") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise InvalidSpec(f"cannot run as {name!r}: the server does not run as root")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def check_reach(account: Account, folder: Path) -> None:
    """Refuse a place that an account cannot enter; raises InvalidSpec naming the obstacle."""
    for parent in (folder, *folder.parents):
        status = parent.stat()
        shift = 0
        if status.st_uid == account.uid:
            shift = 6
        elif status.st_gid in account.groups:
            shift = 3
        if not status.st_mode >> shift & _SEARCH:
            raise InvalidSpec(
                f"{account.name!r} cannot enter {parent}; allow it (chmod o+x) or set ROOST_HOME"
            )
