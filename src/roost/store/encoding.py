"""Encodes values as every database keeps them: JSON as ASCII, text without refused characters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from roost.errors import InvalidSpec
from roost.store.errors import StoreBroken
from roost.store.rows import storable

#: Stands for what has not happened yet; before all times, so that both databases sort it alike.
NEVER = -1.0
#: Letters of a checksum: enough for damage that nobody intended.
_SUM = 16


def to_json(what: str, value: Any) -> str:
    """Canonical JSON; raises InvalidSpec naming ``what`` where JSON has no word for it."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSpec(f"{what} cannot be written as JSON: {error}") from None


def from_json(what: str, text: str) -> Any:
    """The value of a JSON text that the store wrote; raises StoreBroken."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise StoreBroken(f"{what} is damaged in the store; restore a backup") from None


def row_sum(row: Sequence[object]) -> str:
    """The checksum of a row. Through repr: a value of another type does not fit."""
    text = repr(tuple(row)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:_SUM]


def clean(text: str) -> str:
    """A text without the letters that not every database can keep."""
    if storable(text):
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def from_time(time: float | None) -> float:
    """A time as it is kept."""
    return NEVER if time is None else time


def to_time(kept: float) -> float | None:
    """A time that was kept."""
    return None if kept == NEVER else kept


def escaped(text: str) -> str:
    """A text as a part of a pattern for ``LIKE ... ESCAPE '!'``, in small letters."""
    for letter in "!%_":
        text = text.replace(letter, f"!{letter}")
    # As the databases' own lower(): letters of ASCII alone.
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)
