"""JSON against the schema of the wire: every key that is sent is declared, and of its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from roost.api.schema import MaskedView, WireView, decode

V = TypeVar("V", bound=WireView)


def strictly(kind: type[V], told: Any) -> V:
    """The view in some JSON; fails where that is not exactly what the schema says."""
    problems = list(_view(kind, told, kind.__name__))
    assert not problems, problems
    return decode(kind, told)


def _view(kind: type[WireView], told: Any, where: str) -> list[str]:
    if not isinstance(told, dict):
        return [f"{where} is no object: {told!r}"]
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    found = [f"{where}.{name} is in no schema" for name in told.keys() - names]
    if not issubclass(kind, MaskedView):
        found += [f"{where}.{name} is not sent" for name in names - told.keys()]
    for name in names & told.keys():
        found += _value(hints[name], told[name], f"{where}.{name}")
    return found


def _value(hint: Any, told: Any, where: str) -> list[str]:
    origin, given = get_origin(hint), get_args(hint)
    if hint is Any:
        return []
    if origin in (Union, UnionType):
        tried = [_value(one, told, where) for one in given]
        return min(tried, key=len)
    if origin is Literal:
        return [] if told in given else [f"{where} is {told!r}"]
    if origin is tuple:
        if not isinstance(told, list):
            return [f"{where} is no list: {told!r}"]
        return [
            text for n, one in enumerate(told) for text in _value(given[0], one, f"{where}.{n}")
        ]
    if origin is Mapping:
        if not isinstance(told, dict):
            return [f"{where} is no object: {told!r}"]
        return [
            text for key, one in told.items() for text in _value(given[1], one, f"{where}.{key}")
        ]
    if issubclass(hint, WireView):
        return _view(hint, told, where)
    wanted = (int, float) if hint is float else hint
    fits = isinstance(told, wanted) and (hint is bool or not isinstance(told, bool))
    return [] if fits else [f"{where} is {told!r}, not {hint.__name__}"]
