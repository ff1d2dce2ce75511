"""One grammar for parameters on a command line: ``key=value,key=value``.

The keys and their types are the fields of a dataclass: policies, queues, generated workloads and
speed models are all set this way. Tuples are written ``1/2/3``, tuples inside tuples
``1:0.5/2:0.5``, durations in seconds or ``90s``, ``15m``, ``2h``, ``1d``, ``1w`` where the field's
name ends in ``_s``, and nothing at all ``none``.
"""

from __future__ import annotations

import dataclasses
import types
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from roost.errors import InvalidSpec, unknown

T = TypeVar("T")

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_NAMES = {int: "a whole number", float: "a number", bool: "yes or no", str: "a text"}
#: The separators of a tuple, and of a tuple inside it.
_SEPARATORS = "/:"


def build(kind: type[T], what: str, text: str, /, **given: object) -> T:
    """An instance of a dataclass from ``key=value,...``; ``what`` names it in errors.

    Fields that are ``given`` cannot be set. A class that is no dataclass has no parameters.
    """
    hints = get_type_hints(kind)
    free = [name for name in _parameters(kind) if name not in given]
    values: dict[str, Any] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if key not in free:
            raise unknown(f"parameter of {what}:", key, free or ["(none)"])
        if key in values:
            raise InvalidSpec(f"parameter {key!r} of {what} is given twice")
        if not equals or not value:
            raise InvalidSpec(f"parameter {key!r} of {what} needs a value: {key}=...")
        try:
            values[key] = _convert(key, hints[key], value)
        except ValueError:
            raise InvalidSpec(
                f"parameter {key!r} of {what} must be {_describe(key, hints[key])}, got {value!r}"
            ) from None
    try:
        return kind(**given, **values)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"{what}: {error}") from None


def seconds(text: str) -> float:
    """A duration: ``90``, ``90s``, ``15m``, ``2h``, ``1d`` or ``1w``; raises ValueError."""
    unit = _UNITS.get(text[-1:].lower())
    value = float(text) if unit is None else float(text[:-1]) * unit
    if not value >= 0:
        raise ValueError(text)
    return value


def _parameters(kind: type) -> list[str]:
    if not dataclasses.is_dataclass(kind):
        return []
    return [field.name for field in dataclasses.fields(kind) if field.init]


def _convert(key: str, kind: Any, value: str, depth: int = 0) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        if value.lower() == "none" and len(options) < len(get_args(kind)):
            return None
        return _convert(key, options[0], value, depth)
    if origin is tuple:
        parts = value.split(_SEPARATORS[depth])
        kinds = get_args(kind)
        if kinds[-1] is Ellipsis:
            kinds = (kinds[0],) * len(parts)
        return tuple(
            _convert(key, one, part, depth + 1) for one, part in zip(kinds, parts, strict=True)
        )
    if kind is bool:
        if value.lower() not in _BOOLS:
            raise ValueError(value)
        return _BOOLS[value.lower()]
    if kind is float:
        number = seconds(value) if key.endswith("_s") else float(value)
        if number != number:  # noqa: PLR0124 - NaN is not itself
            raise ValueError(value)
        return number
    plain = getattr(kind, "__supertype__", kind)  # what a NewType stands for
    if not (isinstance(plain, type) and issubclass(plain, int | str | Enum)):
        raise ValueError(value)  # noqa: TRY004 - nothing that can be typed
    return plain(value)


def _describe(key: str, kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _describe(key, parts[0])
    if origin is tuple and get_origin(parts[0]) is tuple:
        each = " and ".join(_describe(key, part) for part in get_args(parts[0]))
        return f"a list such as 1:2/3:4 of {each}"
    if origin is tuple:
        return f"a list such as 1/2/3 of {_describe(key, parts[0])}"
    if kind is float and key.endswith("_s"):
        return "a duration such as 90s, 15m, 2h or 1d"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(item.value) for item in kind)}"
    return _NAMES.get(kind, str(kind))
