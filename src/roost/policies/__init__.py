"""Policies: who runs next. One file per published system, found through entry points.

A third party's package adds its own by declaring an entry point in the group ``roost.policies``;
its name is then a policy name. The object is a function on a plan, or a frozen dataclass whose
fields are the policy's parameters and whose instances are called with a plan.
"""

from __future__ import annotations

import dataclasses
import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from roost.core.controller import Policy
from roost.errors import InvalidSpec, unknown
from roost.settings import build

GROUP = "roost.policies"
#: Those of Roost's own that change the size of running jobs.
RESIZING = frozenset({"alnair", "bundles", "optimus", "pollux", "roost", "sia"})


def names() -> list[str]:
    """All policy names, Roost's own and those of installed packages."""
    return sorted(_found())


def summary(name: str) -> str:
    """One line on what a policy does."""
    return (inspect.getdoc(_load(name)) or "").partition("\n")[0]


def parameters(name: str) -> dict[str, Any]:
    """A policy's parameters and their defaults."""
    found = _load(name)
    if not dataclasses.is_dataclass(found):
        return {}
    return {field.name: field.default for field in dataclasses.fields(found)}


def policy(text: str) -> Policy:
    """The policy that a text such as ``tiresias`` or ``tiresias:limits=60/600,promote=4`` names."""
    name, _, settings = text.partition(":")
    found = _load(name)
    if inspect.isclass(found):
        return cast("Policy", build(found, f"policy {name!r}", settings))
    if settings:
        raise InvalidSpec(f"policy {name!r} has no parameters, got {settings!r}")
    return cast("Policy", found)


def _found() -> dict[str, EntryPoint]:
    """Policies by name; nobody takes a name of Roost's own."""
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.module.startswith("roost."))
    return {entry.name: entry for entry in entries}


def _load(name: str) -> Any:
    found = _found()
    if name not in found:
        raise unknown("policy", name, found)
    try:
        return found[name].load()
    except Exception as error:
        raise InvalidSpec(
            f"policy {name!r} of {found[name].value} cannot be loaded: {error}"
        ) from error
