"""Policies: who runs next. One file per published system, found through entry points.

A third party's package adds its own by declaring an entry point in the group ``roost.policies``;
its name is then a policy name. The object is a function on a plan, or a frozen dataclass whose
fields are the policy's parameters and whose instances are called with a plan.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast, get_args, get_origin, get_type_hints

from roost.core.controller import Policy
from roost.errors import InvalidSpec, unknown

GROUP = "roost.policies"


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
    return {f.name: f.default for f in dataclasses.fields(found)}


def policy(text: str) -> Policy:
    """The policy that a text such as ``tiresias`` or ``tiresias:limits=60/600,promote=4`` names."""
    name, _, settings = text.partition(":")
    found = _load(name)
    if isinstance(found, types.FunctionType):
        if settings:
            raise InvalidSpec(f"policy {name!r} has no parameters, got {settings!r}")
        return cast(Policy, found)
    return cast(Policy, found(**_parse(name, found, settings)))


def _found() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load(name: str) -> Callable[..., Any]:
    found = _found()
    if name not in found:
        raise unknown("policy", name, found)
    return cast(Callable[..., Any], found[name].load())


def _parse(name: str, found: Callable[..., Any], settings: str) -> dict[str, Any]:
    """Parameters from ``key=value,key=value``, by the types of a dataclass' fields."""
    hints = get_type_hints(found)
    known = set(parameters(name))
    parsed: dict[str, Any] = {}
    for item in filter(None, settings.split(",")):
        key, equals, value = item.partition("=")
        if key not in known:
            raise unknown(f"parameter of policy {name!r}:", key, known or {"(none)"})
        if not equals:
            raise InvalidSpec(f"parameter {key!r} of policy {name!r} needs a value: {key}=...")
        try:
            parsed[key] = _convert(hints[key], value)
        except ValueError:
            kind = getattr(hints[key], "__name__", str(hints[key]))
            raise InvalidSpec(
                f"parameter {key!r} of policy {name!r} must be a {kind}, got {value!r}"
            ) from None
    return parsed


def _convert(kind: Any, value: str) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_convert(get_args(kind)[0], part) for part in value.split("/"))
    if kind is bool:
        if value.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ValueError(value)
        return value.lower() in ("true", "yes", "1")
    if kind is float and not float(value) >= 0:
        raise ValueError(value)
    return kind(value)
