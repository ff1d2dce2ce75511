"""Values of expressions that JSON has not: quantities, semantic versions, what may be missing.

Quantities are exact here: ratios of integers, of either sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, total_ordering
from typing import TypeAlias

from roost.errors import RoostError


class EvaluationError(RoostError):
    """An expression has no value for this device."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount with a unit."""

    amount: Fraction


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A semantic version, without what says how it was built: that compares as nothing."""

    numbers: tuple[int, int, int]
    early: tuple[int | str, ...] = ()

    @property
    def _key(self) -> tuple[object, ...]:
        # What has no early part comes after all that has one; numbers come before words.
        parts = tuple((isinstance(one, str), one) for one in self.early)
        return self.numbers, not self.early, parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    value: Value
    has: bool = True


class Domains(dict["Key", "Value"]):
    """A map by domain: one that is not there is empty when it is asked for."""


Value: TypeAlias = (
    bool
    | int
    | float
    | str
    | Quantity
    | Version
    | Optional
    | list["Value"]
    | Mapping["Key", "Value"]
    | None
)
#: What a map can have as its key.
Key: TypeAlias = bool | int | str

_LONGEST = 256
_AMOUNT = re.compile(
    r"(?P<sign>[+-]?)(?P<ones>[0-9]*)(?:\.(?P<parts>[0-9]*))?"
    r"(?:(?P<unit>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?[0-9]{1,3}))?",
    re.ASCII,
)
_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_NUMBER = r"(0|[1-9][0-9]*)"
_WORDS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-(?P<early>{_WORDS}))?(?:\+{_WORDS})?", re.ASCII
)


@cache
def _power(exponent: int) -> Fraction:
    return Fraction(10) ** exponent


def quantity_of(text: str) -> Quantity | None:
    """A quantity as Kubernetes writes it; None if it is none."""
    match = _AMOUNT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    parts = match["parts"] or ""
    digits = match["ones"] + parts
    unit, power = match["unit"] or "", int(match["power"] or 0)
    if not digits:
        return None
    found = Fraction(int(digits)) * _power(power + _DECIMAL.get(unit, 0) - len(parts))
    found *= _BINARY.get(unit, 1)
    return Quantity(-found if match["sign"] == "-" else found)


def version_of(text: str, *, loosely: bool = False) -> Version | None:
    """A semantic version; ``loosely``: a v before it, zeros that lead and parts may be missing."""
    if len(text) > _LONGEST:
        return None
    match = _VERSION.fullmatch(_completed(text) if loosely else text)
    if match is None:
        return None
    early: list[int | str] = []
    for part in match["early"].split(".") if match["early"] else ():
        if not part.isdecimal():
            early.append(part)
        elif len(part) > 1 and part[0] == "0":
            return None
        else:
            early.append(int(part))
    major, minor, patch = (int(match[n]) for n in (1, 2, 3))
    return Version((major, minor, patch), tuple(early))


def _completed(text: str) -> str:
    """A version as it should have been written."""
    text = text.strip().removeprefix("v")
    end = next((at for at, letter in enumerate(text) if letter in "-+"), len(text))
    parts = text[:end].split(".")
    if len(parts) <= len(("major", "minor", "patch")):
        parts = [part.lstrip("0") or "0" if part.isdecimal() else part for part in parts]
        parts += ["0"] * (3 - len(parts)) if end == len(text) else []
    return ".".join(parts) + text[end:]
