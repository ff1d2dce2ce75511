"""Kubernetes' quantities as integers, exactly: ``100m``, ``1.5Gi``, ``1e3``, ``2k``.

A quantity is a decimal number with one suffix: a power of 1024 (Ki to Ei), a power of 1000 (n, u,
m, k to E) or a decimal exponent (e3, E-2). What is asked for is rounded up and what is offered
down, so the books never promise more than there is. Kubernetes caps at 2^63 - 1; more is refused
here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from roost.errors import InvalidSpec
from roost.kubernetes.objects.values import quoted

MIB = 1 << 20

_LONGEST = 64
_MOST = (1 << 63) - 1
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<ones>[0-9]*)(?:\.(?P<parts>[0-9]*))?"
    r"(?:(?P<unit>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?[0-9]{1,3}))?",
    re.ASCII,
)
_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def milli(value: object, what: str, *, down: bool = False) -> int:
    """A quantity in thousandths."""
    above, below = _exact(value, what)
    return above * 1000 // below if down else -(-above * 1000 // below)


def whole(value: object, what: str, *, down: bool = False) -> int:
    """A quantity in ones: bytes, devices."""
    above, below = _exact(value, what)
    return above // below if down else -(-above // below)


def mib(value: object, what: str, *, down: bool = False) -> int:
    """A quantity of bytes in MiB."""
    above, below = _exact(value, what)
    return above // (below * MIB) if down else -(-above // (below * MIB))


def _exact(value: object, what: str) -> tuple[int, int]:
    if isinstance(value, str):
        found = _read(value) if len(value) <= _LONGEST else None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = _read(repr(value)) if abs(value) <= _MOST else None  # NaN compares false
    else:
        found = None
    if found is None:
        raise InvalidSpec(
            f"{what} must be a quantity such as 2, 500m or 1.5Gi, not negative, got {quoted(value)}"
        )
    return found


@lru_cache(maxsize=8192)
def _read(text: str) -> tuple[int, int] | None:
    """A quantity as a ratio of integers; None if it is none, negative or too large."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    parts = match["parts"] or ""
    digits = match["ones"] + parts
    unit, power = match["unit"] or "", int(match["power"] or 0)
    if not digits or abs(power) > _LONGEST:
        return None
    number = int(digits) * _BINARY.get(unit, 1)
    power += _DECIMAL.get(unit, 0) - len(parts)
    above, below = (number * 10**power, 1) if power >= 0 else (number, 10**-power)
    if above > _MOST * below or (match["sign"] == "-" and above):
        return None
    return above, below
