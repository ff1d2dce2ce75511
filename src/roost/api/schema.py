"""Views to JSON and back: what a dataclass declares is what goes over the wire.

``encode`` writes every field. ``decode`` reads leniently: a field that an older server does not
send has its default, one that a newer server adds is in ``raw`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints


class WireView:
    """Base of all views; ``raw`` is what the server sent, word for word."""

    __slots__ = ("_raw",)

    #: For the OpenAPI description: all fields are sent, and a newer server may send more.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "allow",
        "json_schema_serialization_defaults_required": True,
    }

    @property
    def raw(self) -> Mapping[str, Any]:
        """What the server sent; empty for a view that was made here."""
        return getattr(self, "_raw", {})


class MaskedView(WireView):
    """A view that names a job: of jobs of others, names and users are left out.

    See ``roost.server.visibility``.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "allow"}


V = TypeVar("V", bound=WireView)
_Convert = Callable[[Any], Any]


def encode(view: WireView) -> dict[str, Any]:
    """A view, ready for JSON: all of its fields."""
    found = {}
    for name, write in _writers(type(view)):
        value = getattr(view, name)
        found[name] = value if write is None or value is None else write(value)
    return found


def decode(kind: type[V], told: Mapping[str, Any]) -> V:
    """A view from JSON; keys that it does not know are in ``raw`` alone."""
    values = {}
    for name, read, optional in _readers(kind):
        if name in told:
            value = told[name]
            if value is not None:
                values[name] = value if read is None else read(value)
            elif optional:
                values[name] = None
    view = kind(**values)
    object.__setattr__(view, "_raw", told)
    return view


def project(kind: type[V], source: object, **given: Any) -> V:
    """A view of something that has attributes of the same names, with some values of its own."""
    names = (field.name for field in fields(kind) if field.name not in given)  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **given)


def keys(kind: type[WireView], mark: str) -> tuple[str, ...]:
    """The fields of a view that carry a mark in their metadata."""
    return tuple(field.name for field in fields(kind) if field.metadata.get(mark))  # type: ignore[arg-type]


#: What was found out about each class: per field, how its value becomes JSON (None: it is JSON
#: already); how it is read, and whether it may be ``None``.
_WRITERS: dict[type, tuple[tuple[str, _Convert | None], ...]] = {}
_READERS: dict[type, tuple[tuple[str, _Convert | None, bool], ...]] = {}


def _writers(kind: type[WireView]) -> tuple[tuple[str, _Convert | None], ...]:
    if kind not in _WRITERS:
        _WRITERS[kind] = tuple((name, _writer(hint)) for name, hint in _hints(kind))
    return _WRITERS[kind]


def _readers(kind: type[WireView]) -> tuple[tuple[str, _Convert | None, bool], ...]:
    if kind not in _READERS:
        _READERS[kind] = tuple(
            (name, _reader(hint), type(None) in get_args(hint)) for name, hint in _hints(kind)
        )
    return _READERS[kind]


def _hints(kind: type) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in fields(kind)]


def _writer(hint: Any) -> _Convert | None:
    hint = _present(hint)
    if _is_view(hint):
        return encode
    if get_origin(hint) is tuple:
        each = _writer(get_args(hint)[0])
        return list if each is None else partial(_list_of, each)
    if get_origin(hint) is Mapping:
        each = _writer(get_args(hint)[1])
        return dict if each is None else partial(_dict_of, each)
    return None


def _reader(hint: Any) -> _Convert | None:
    hint = _present(hint)
    if _is_view(hint):
        return lambda told: decode(hint, told)
    if get_origin(hint) is tuple:
        each = _reader(get_args(hint)[0])
        return tuple if each is None else partial(_tuple_of, each)
    if get_origin(hint) is Mapping:
        each = _reader(get_args(hint)[1])
        return None if each is None else partial(_dict_of, each)
    return None


def _list_of(each: _Convert, items: Iterable[Any]) -> list[Any]:
    return [each(item) for item in items]


def _tuple_of(each: _Convert, items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(_list_of(each, items))


def _dict_of(each: _Convert, items: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each(item) for key, item in items.items()}


def _present(hint: Any) -> Any:
    """The type of a value that is there: without ``| None``."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else object
    return hint


def _is_view(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, WireView)


# -- the same as a schema --------------------------------------------------------------------------

_PLAIN_TYPES: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    float: {"type": "number"},
    int: {"type": "integer", "format": "int64"},
    str: {"type": "string"},
}


def structural(kind: type[WireView]) -> dict[str, Any]:
    """A view as a structural OpenAPI schema, such as custom resources need: no references.

    Keys that a newer sender adds are kept.
    """
    described = {field.name: field.metadata.get("description") for field in fields(kind)}  # type: ignore[arg-type]
    properties = {}
    for name, hint in _hints(kind):
        properties[name] = _schema_of(hint)
        if described[name]:
            properties[name]["description"] = described[name]
    return {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": properties,
    }


def _schema_of(hint: Any) -> dict[str, Any]:
    optional = {"nullable": True} if type(None) in get_args(hint) else {}
    hint = _present(hint)
    if _is_view(hint):
        return {**structural(hint), **optional}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _schema_of(get_args(hint)[0]), **optional}
    if get_origin(hint) is Mapping:
        each = _schema_of(get_args(hint)[1])
        return {"type": "object", "additionalProperties": each, **optional}
    if get_origin(hint) is Literal:
        return {"type": "string", **optional}
    return {**_PLAIN_TYPES.get(hint, {"x-kubernetes-preserve-unknown-fields": True}), **optional}
