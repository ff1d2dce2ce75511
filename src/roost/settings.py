"""One grammar for parameters on a command line: ``key=value,key=value``.

The keys and their types are the fields of a dataclass: policies, queues, generated workloads and
speed models are all set this way. Tuples are written ``1/2/3``, durations in seconds or ``90s``,
``15m``, ``2h``, ``1d`` where the field's name ends in ``_s``.
"""

from __future__ import annotations

import dataclasses
import types
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from roost.errors import InvalidSpec, unknown

T = TypeVar("T")

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def build(kind: type[T], what: str, text: str, **given: object) -> T:
    """An instance of a dataclass from ``key=value,...``; ``what`` names it in errors."""
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    values: dict[str, Any] = dict(given)
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if key not in fields or key in given:
            raise unknown(f"parameter of {what}:", key, set(fields) - set(given) or {"(none)"})
        if not equals or not value:
            raise InvalidSpec(f"parameter {key!r} of {what} needs a value: {key}=...")
        try:
            values[key] = _convert(key, hints[key], value)
        except ValueError:
            raise InvalidSpec(
                f"parameter {key!r} of {what} must be {_describe(key, hints[key])}, got {value!r}"
            ) from None
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidSpec(f"{what}: {error}") from None


def seconds(text: str) -> float:
    """A duration: ``90``, ``90s``, ``15m``, ``2h``, ``1d`` or ``1w``."""
    unit = _UNITS.get(text[-1:].lower())
    value = float(text) if unit is None else float(text[:-1]) * unit
    if not value >= 0:
        raise ValueError(text)
    return value


def _convert(key: str, kind: Any, value: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        if value.lower() == "none" and len(options) < len(get_args(kind)):
            return None
        return _convert(key, options[0], value)
    if origin is tuple:
        return tuple(_convert(key, get_args(kind)[0], part) for part in value.split("/"))
    if kind is bool:
        if value.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ValueError(value)
        return value.lower() in ("true", "yes", "1")
    if kind is float:
        number = seconds(value) if key.endswith("_s") else float(value)
        if number != number:  # noqa: PLR0124 - NaN is not itself
            raise ValueError(value)
        return number
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return getattr(kind, "__supertype__", kind)(value)


def _describe(key: str, kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return _describe(key, get_args(kind)[0])
    if get_origin(kind) is tuple:
        return f"a list such as 1/2/3 of {_describe(key, get_args(kind)[0])}"
    if kind is float and key.endswith("_s"):
        return "a duration such as 90s, 15m, 2h or 1d"
    names = {int: "a whole number", float: "a number", bool: "yes or no", str: "a text"}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(item.value) for item in kind)}"
    return names.get(kind, str(kind))
