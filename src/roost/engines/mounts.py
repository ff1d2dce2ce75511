"""Folders of this machine that jobs may use by a name: what an administrator declared, and no more.

A job file names mounts (``mounts: [birds]``); its program finds each by a variable,
``ROOST_MOUNT_BIRDS``. In a container the folder has the same path as outside, and one that is
declared read-only cannot be written. A plain process has the rights of its account.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from roost.errors import InvalidSpec, unknown
from roost.jobfile.fields import MOUNT

_READONLY = ":ro"
_FIELDS = ("name", "path", "readonly", "queues", "users")


@dataclass(frozen=True, slots=True)
class HostMount:
    """A folder with a name; without ``queues`` and ``users`` it is for all of them."""

    name: str
    path: str
    readonly: bool = False
    queues: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def is_for(self, user: str) -> bool:
        """Whether a user may use it."""
        return not self.users or user in self.users


def mount_variable(name: str) -> str:
    """The variable that tells a program where a mount is."""
    return f"ROOST_MOUNT_{name.upper().replace('-', '_')}"


def read_mount(text: str) -> HostMount:
    """The mount in ``NAME=PATH``, ``NAME=PATH:ro`` or a mapping as JSON; raises InvalidSpec."""
    if text.startswith("{"):
        return _of_mapping(json.loads(text))
    name, _, path = text.partition("=")
    readonly = path.endswith(_READONLY)
    return _checked(HostMount(name.strip(), path.removesuffix(_READONLY).strip(), readonly))


def mount_refusal(
    declared: Iterable[HostMount], wanted: Iterable[str], user: str, queue: str
) -> str:
    """Why a job of a user in a queue cannot have the mounts that it names; "" if it can."""
    known = {one.name: one for one in declared if one.is_for(user)}
    for name in wanted:
        found = known.get(name)
        if found is None:
            return f"mounts: {unknown('mount', name, known)}" if known else _none(name)
        if found.queues and queue not in found.queues:
            return f"mounts: {name!r} is for jobs in {_listed(found.queues)}, not in {queue!r}"
    return ""


def _none(name: str) -> str:
    return f"mounts: there is no {name!r} for you on this server; an administrator declares mounts"


def _listed(queues: Iterable[str]) -> str:
    return " or ".join(repr(queue) for queue in queues)


def _of_mapping(given: dict[str, Any]) -> HostMount:
    if odd := set(given) - set(_FIELDS):
        raise InvalidSpec(str(unknown("field", min(odd), _FIELDS)))
    lists = {
        field: tuple(map(str, value if isinstance(value, list) else [value]))
        for field in ("queues", "users")
        if (value := given.get(field))
    }
    readonly = str(given.get("readonly", False)).lower()
    if readonly not in ("true", "false"):
        raise InvalidSpec(f"readonly: expected true or false, found {readonly!r}")
    name, path = str(given.get("name", "")), str(given.get("path", ""))
    return _checked(HostMount(name, path, readonly == "true", **lists))


def _checked(mount: HostMount) -> HostMount:
    if not MOUNT.match(mount.name):
        raise InvalidSpec(
            f"{mount.name!r} cannot be the name of a mount: lower-case letters, digits and -"
        )
    path = PurePosixPath(mount.path)
    if (
        not path.is_absolute()
        or ".." in path.parts
        or set(",:") & set(mount.path)
        or mount.path == "/"
    ):
        raise InvalidSpec(f"{mount.name}: expected an absolute folder, found {mount.path!r}")
    return replace(mount, path=str(path))  # without a slash at its end
