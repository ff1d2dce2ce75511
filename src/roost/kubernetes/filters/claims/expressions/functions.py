"""The functions of expressions: those of the language, and those that Kubernetes adds.

Each takes values that were worked out, and raises EvaluationError where the language has no
overload for their types. What is not listed here does not exist: the expression is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from roost.errors import InvalidSpec
from roost.kubernetes.filters.claims.expressions.parsing import Unsigned
from roost.kubernetes.filters.claims.expressions.patterns import pattern
from roost.kubernetes.filters.claims.expressions.values import (
    EvaluationError,
    Optional,
    Quantity,
    Value,
    Version,
    quantity_of,
    version_of,
)

_T = TypeVar("_T")
_LEAST, _MOST, _MOST_UNSIGNED = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, which true is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_equal(one: Value, other: Value) -> bool:
    """Equality of the language: numbers by their value, all else of one type only."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return len(one) == len(other) and all(
            key in other and is_equal(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, Optional) and isinstance(other, Optional):
        return one.has == other.has and is_equal(one.value, other.value)
    return (type(one) is type(other) and one == other) or _is_same_number(one, other)


def _is_same_number(one: Value, other: Value) -> bool:
    return isinstance(one, int | float) and isinstance(other, int | float) and one == other


def size(of: Value) -> int:
    """How many letters, entries or elements there are."""
    if isinstance(of, str | list | Mapping):
        return len(of)
    raise no_overload("size", of)


def no_overload(name: str, *given: Value) -> EvaluationError:
    """That a function or an operator does not take such values."""
    sorts = ", ".join(_sort(one) for one in given)
    return EvaluationError(f"no such overload: {name}({sorts})")


def _sort(value: Value) -> str:
    for kind, name in _SORTS:
        if isinstance(value, kind):
            return name
    return "map" if isinstance(value, Mapping) else "null"


_SORTS: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Unsigned, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (Quantity, "quantity"),
    (Version, "semver"),
    (Optional, "optional"),
    (list, "list"),
)


def _is(kind: type[_T], name: str, value: Value) -> _T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise no_overload(name, value)
    return value


def checked(value: int, *, unsigned: bool = False) -> int:
    """A whole number of 64 bits."""
    if unsigned and 0 <= value <= _MOST_UNSIGNED:
        return Unsigned(value)
    if unsigned or not _LEAST <= value <= _MOST:
        raise EvaluationError("integer overflow")
    return value


# -- conversions -----------------------------------------------------------------------------------


def _string(of: Value) -> str:
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, str | int):
        return str(of)
    if isinstance(of, float):
        return f"{of:g}"
    raise no_overload("string", of)


def _int(of: Value) -> int:
    if isinstance(of, int) and not isinstance(of, bool):
        return checked(int(of))
    return checked(_read(of, "int"))


def _uint(of: Value) -> int:
    if isinstance(of, int) and not isinstance(of, bool):
        return checked(int(of), unsigned=True)
    return checked(_read(of, "uint"), unsigned=True)


def _read(of: Value, name: str) -> int:
    try:
        if isinstance(of, float):
            return int(of)
        if isinstance(of, str) and len(of) <= 20 and of.isascii() and of == of.strip():  # noqa: PLR2004 - digits of 64 bits
            return int(of.replace("_", "x"))
    except (ValueError, OverflowError):
        raise EvaluationError(f"{name}() of what is no such number") from None
    raise no_overload(name, of)


def _double(of: Value) -> float:
    if isinstance(of, int | float) and not isinstance(of, bool):
        return float(of)
    try:
        return float(_is(str, "double", of).replace("_", "x"))
    except ValueError:
        raise EvaluationError("double() of what is no number") from None


def _bool(of: Value) -> bool:
    if isinstance(of, bool):
        return of
    known = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
    text = _is(str, "bool", of)
    found = known.get(
        text.lower() if text in ("True", "TRUE", "T", "F", "False", "FALSE") else text
    )
    if found is None:
        raise EvaluationError("bool() of what is neither true nor false")
    return found


# -- texts -----------------------------------------------------------------------------------------


def _matches(of: Value, given: Value) -> bool:
    try:
        found = pattern(_is(str, "matches", given))
    except InvalidSpec as error:
        raise EvaluationError(str(error)) from None
    return found.is_in(_is(str, "matches", of))


def _texts(name: str, work: Callable[..., Value], *kinds: type) -> Callable[..., Value]:
    """A function of texts (and numbers), whose arguments are of these types; the rest may lack."""

    def checked_call(*given: Value) -> Value:
        if len(given) > len(kinds) or not all(
            isinstance(one, kind) and not isinstance(one, bool)
            for one, kind in zip(given, kinds, strict=False)
        ):
            raise no_overload(name, *given)
        try:
            return work(*given)
        except (TypeError, IndexError):
            raise no_overload(name, *given) from None

    return checked_call


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise EvaluationError("index out of range")
    return text[at : at + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise EvaluationError("index out of range")
    return text.find(part, start)


def _last_index_of(text: str, part: str, last: int | None = None) -> int:
    if last is not None and not 0 <= last <= len(text):
        raise EvaluationError("index out of range")
    return text.rfind(part, 0, len(text) if last is None else last + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise EvaluationError("index out of range")
    return text[start:end]


def _split(text: str, by: str, most: int = -1) -> list[Value]:
    if most == 0:
        return []
    if most == 1:
        return [text]
    if not by:
        return [*text] if most < 0 else [*text[: most - 1], text[most - 1 :]]
    return [*text.split(by, most - 1 if most > 0 else -1)]


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, most)


def _join(of: Value, by: Value = "") -> str:
    parts = [_is(str, "join", one) for one in _is(list, "join", of)]
    return _is(str, "join", by).join(parts)


# -- quantities and versions -----------------------------------------------------------------------


def _quantity(of: Value) -> Quantity:
    found = quantity_of(_is(str, "quantity", of))
    if found is None:
        raise EvaluationError("quantity() of what is none")
    return found


def _version(of: Value, *given: Value) -> Version:
    found = version_of(_is(str, "semver", of), loosely=_loosely("semver", given))
    if found is None:
        raise EvaluationError("semver() of what is none")
    return found


def _is_version(of: Value, *given: Value) -> bool:
    text = _is(str, "isSemver", of)
    return version_of(text, loosely=_loosely("isSemver", given)) is not None


def _loosely(name: str, given: tuple[Value, ...]) -> bool:
    return bool(given) and _is(bool, name, given[0])


def _compared(name: str, result: Callable[[int], Value]) -> Callable[[Value, Value], Value]:
    def compare(one: Value, other: Value) -> Value:
        if isinstance(one, Quantity) and isinstance(other, Quantity):
            return result((one.amount > other.amount) - (one.amount < other.amount))
        if isinstance(one, Version) and isinstance(other, Version):
            return result((one > other) - (one < other))
        raise no_overload(name, one, other)

    return compare


def _amount(name: str, of: Value) -> Fraction:
    return _is(Quantity, name, of).amount


def _with(name: str, sign: int) -> Callable[[Value, Value], Value]:
    def work(one: Value, other: Value) -> Value:
        more = Fraction(other) if is_whole(other) else _amount(name, other)  # type: ignore[arg-type]
        return Quantity(_amount(name, one) + sign * more)

    return work


def _is_integer(of: Value) -> bool:
    found = _amount("isInteger", of)
    return found.denominator == 1 and _LEAST <= found <= _MOST


def _as_integer(of: Value) -> int:
    if not _is_integer(of):
        raise EvaluationError("cannot convert value to integer")
    return int(_amount("asInteger", of))


def _sign(of: Value) -> int:
    found = _amount("sign", of)
    return (found > 0) - (found < 0)


def _as_float(of: Value) -> float:
    try:
        return float(_amount("asApproximateFloat", of))
    except OverflowError:
        return math.inf


# -- lists -----------------------------------------------------------------------------------------


def _sum(of: Value) -> Value:
    found: Any = 0
    for one in _is(list, "sum", of):
        if not isinstance(one, int | float) or isinstance(one, bool):
            raise no_overload("sum", one)
        found = found + one
    return found if isinstance(found, float) else checked(found)


def _extreme(name: str, choose: Callable[[list[Any]], Value]) -> Callable[[Value], Value]:
    def work(of: Value) -> Value:
        there = _is(list, name, of)
        try:
            return choose(there)
        except (TypeError, ValueError):
            raise no_overload(name, of) from None

    return work


def _first_of(of: Value, *given: Value) -> int:
    if isinstance(of, str):
        return int(_texts("indexOf", _index_of, str, str, int)(of, *given))  # type: ignore[arg-type]
    there = _is(list, "indexOf", of)
    return next((at for at, one in enumerate(there) if is_equal(one, given[0])), -1)


def _last_of(of: Value, *given: Value) -> int:
    if isinstance(of, str):
        return int(_texts("lastIndexOf", _last_index_of, str, str, int)(of, *given))  # type: ignore[arg-type]
    there = _is(list, "lastIndexOf", of)
    return max((at for at, one in enumerate(there) if is_equal(one, given[0])), default=-1)


def _contains_all(more: Value, less: Value) -> bool:
    there = _is(list, "sets.contains", more)
    return all(any(is_equal(a, b) for b in there) for a in _is(list, "sets.contains", less))


def _intersects(one: Value, other: Value) -> bool:
    there = _is(list, "sets.intersects", one)
    return any(is_equal(a, b) for a in there for b in _is(list, "sets.intersects", other))


# -- what may be missing ---------------------------------------------------------------------------


def _value(of: Value) -> Value:
    found = _is(Optional, "value", of)
    if not found.has:
        raise EvaluationError("optional.none() dereference")
    return found.value


def _or(of: Value, other: Value) -> Value:
    return of if _is(Optional, "or", of).has else _is(Optional, "or", other)


def _or_value(of: Value, other: Value) -> Value:
    found = _is(Optional, "orValue", of)
    return found.value if found.has else other


#: All functions by name, those that are called on something with a dot; and how many values they
#: take, what they are called on included.
FUNCTIONS: dict[str, tuple[Callable[..., Value], int, int]] = {
    "size": (size, 1, 1),
    ".size": (size, 1, 1),
    "string": (_string, 1, 1),
    "int": (_int, 1, 1),
    "uint": (_uint, 1, 1),
    "double": (_double, 1, 1),
    "bool": (_bool, 1, 1),
    "dyn": (lambda of: of, 1, 1),
    "matches": (_matches, 2, 2),
    ".matches": (_matches, 2, 2),
    ".contains": (_texts("contains", lambda a, b: b in a, str, str), 2, 2),
    ".startsWith": (_texts("startsWith", str.startswith, str, str), 2, 2),
    ".endsWith": (_texts("endsWith", str.endswith, str, str), 2, 2),
    ".charAt": (_texts("charAt", _char_at, str, int), 2, 2),
    ".indexOf": (_first_of, 2, 3),
    ".lastIndexOf": (_last_of, 2, 3),
    ".lowerAscii": (
        _texts("lowerAscii", lambda a: "".join(c.lower() if c.isascii() else c for c in a), str),
        *(1, 1),
    ),
    ".upperAscii": (
        _texts("upperAscii", lambda a: "".join(c.upper() if c.isascii() else c for c in a), str),
        *(1, 1),
    ),
    ".replace": (_texts("replace", _replace, str, str, str, int), 3, 4),
    ".split": (_texts("split", _split, str, str, int), 2, 3),
    ".substring": (_texts("substring", _substring, str, int, int), 2, 3),
    ".trim": (_texts("trim", str.strip, str), 1, 1),
    ".join": (_join, 1, 2),
    "quantity": (_quantity, 1, 1),
    "isQuantity": (lambda of: quantity_of(_is(str, "isQuantity", of)) is not None, 1, 1),
    "semver": (_version, 1, 2),
    "isSemver": (_is_version, 1, 2),
    ".major": (lambda of: _is(Version, "major", of).numbers[0], 1, 1),
    ".minor": (lambda of: _is(Version, "minor", of).numbers[1], 1, 1),
    ".patch": (lambda of: _is(Version, "patch", of).numbers[2], 1, 1),
    ".compareTo": (_compared("compareTo", lambda sign: sign), 2, 2),
    ".isGreaterThan": (_compared("isGreaterThan", lambda sign: sign > 0), 2, 2),
    ".isLessThan": (_compared("isLessThan", lambda sign: sign < 0), 2, 2),
    ".add": (_with("add", 1), 2, 2),
    ".sub": (_with("sub", -1), 2, 2),
    ".sign": (_sign, 1, 1),
    ".isInteger": (_is_integer, 1, 1),
    ".asInteger": (_as_integer, 1, 1),
    ".asApproximateFloat": (_as_float, 1, 1),
    ".sum": (_sum, 1, 1),
    ".min": (_extreme("min", min), 1, 1),
    ".max": (_extreme("max", max), 1, 1),
    ".isSorted": (_extreme("isSorted", lambda there: sorted(there) == there), 1, 1),
    "sets.contains": (_contains_all, 2, 2),
    "sets.intersects": (_intersects, 2, 2),
    "sets.equivalent": (lambda a, b: _contains_all(a, b) and _contains_all(b, a), 2, 2),
    "optional.of": (Optional, 1, 1),
    "optional.none": (lambda: Optional(None, has=False), 0, 0),
    ".hasValue": (lambda of: _is(Optional, "hasValue", of).has, 1, 1),
    ".value": (_value, 1, 1),
    ".or": (_or, 2, 2),
    ".orValue": (_or_value, 2, 2),
}
