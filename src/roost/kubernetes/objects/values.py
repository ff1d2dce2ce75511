"""Reading the plain objects of an API server without trusting their shape.

A server checks what it knows the type of, and nothing of what it does not. A caller of these
functions gets the type asked for or ``InvalidSpec`` with the name of the field; a field that
is missing or null is empty.
"""

from __future__ import annotations

from typing import Any

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object

#: As much of a foreign text as a sentence may quote.
_QUOTED = 60
_DIGITS = 19
_NOTHING: Object = {}


def section(of: Object, name: str) -> Object:
    """The object in a field."""
    found = of.get(name)
    if found is None:
        return _NOTHING
    if not isinstance(found, dict):
        raise InvalidSpec(f"{name} must be an object, got {quoted(found)}")
    return found


def listed(of: Object, name: str) -> list[Any]:
    """The list in a field."""
    found = of.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InvalidSpec(f"{name} must be a list, got {quoted(found)}")
    return found


def sections(of: Object, name: str) -> list[Object]:
    """The list of objects in a field."""
    found = listed(of, name)
    for item in found:
        if not isinstance(item, dict):
            raise InvalidSpec(f"{name} must be a list of objects, got {quoted(item)} in it")
    return found


def text(of: Object, name: str, default: str = "") -> str:
    """The text in a field."""
    found = of.get(name)
    if found is None:
        return default
    if not isinstance(found, str):
        raise InvalidSpec(f"{name} must be a text, got {quoted(found)}")
    return found


def integer(of: Object, name: str, default: int = 0) -> int:
    """The whole number in a field."""
    found = of.get(name)
    if found is None:
        return default
    if not isinstance(found, int) or isinstance(found, bool):
        raise InvalidSpec(f"{name} must be a whole number, got {quoted(found)}")
    return found


def digits(value: object, what: str, most: int) -> int:
    """A whole number written out in a label or an annotation, at most ``most``."""
    # The length first: int() of a text without end takes as long as it likes.
    if isinstance(value, str) and len(value) <= _DIGITS and value.isascii() and value.isdigit():
        found = int(value)
        if found <= most:
            return found
    raise InvalidSpec(f"{what} must be a whole number from 0 to {most}, got {quoted(value)}")


def labels_of(of: Object) -> Object:
    """The labels of an object."""
    return section(section(of, "metadata"), "labels")


def annotations_of(of: Object) -> Object:
    """The annotations of an object."""
    return section(section(of, "metadata"), "annotations")


def quoted(value: object) -> str:
    """A foreign value as a sentence may show it: short, and on one line."""
    if isinstance(value, str):
        return repr(value if len(value) <= _QUOTED else value[:_QUOTED] + "…")
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:_QUOTED]
