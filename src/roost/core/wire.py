"""JSON for the vocabulary: events, decisions, actions and specs, to the journal and back.

The format follows the classes. A record is an object of its fields, without those at their default;
an event, a decision or an action also says which one it is (``"type": "Started"``). Tuples are
lists, sets are sorted lists, enums their words, infinities ``"inf"`` and ``"-inf"``; numbers come
back to the last bit.

Reading is strict: an unknown type or field, a missing field or a value of the wrong kind raises
InvalidSpec, which names it. How classes are read and written is worked out once for each of them.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    NamedTuple,
    NewType,
    NoReturn,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from roost.core.actions import Action
from roost.core.decisions import Decision
from roost.core.events import Event
from roost.errors import Fatal, InvalidSpec, unknown

_Change: TypeAlias = Callable[[Any], Any]

#: Letters of a name that an error repeats.
_LONG = 60


def encode(value: object) -> Any:
    """A value of the core, ready for JSON."""
    if type(value) in (tuple, list):
        return [encode(item) for item in cast("Iterable[object]", value)]
    kind: Any = type(value)
    return _codec(kind).write(value)


def decode(kind: Any, data: Any) -> Any:
    """The value of that kind (a class, a union of them, a tuple type) that JSON data tells."""
    return _codec(kind).read(data)


def reader(kind: type, **others: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What reads records of a kind of which some fields come in another form than usual."""
    own = (
        field._replace(codec=_Codec(field.codec.write, others.get(field.name, field.codec.read)))
        for field in _fields(kind)
    )
    return _record_reader(kind, None, tuple(own))


def encode_event(event: Event) -> dict[str, Any]:
    """An event as an object."""
    return cast("dict[str, Any]", encode(event))


def decode_event(data: Any) -> Event:
    """The event that an object tells."""
    return cast("Event", _EVENT.read(data))


def encode_decision(decision: Decision) -> dict[str, Any]:
    """A decision as an object."""
    return cast("dict[str, Any]", encode(decision))


def decode_decision(data: Any) -> Decision:
    """The decision that an object tells."""
    return cast("Decision", _DECISION.read(data))


def canonical(data: Any) -> str:
    """The one JSON text of JSON-ready data: keys sorted, no blanks, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


# -- how it is done --------------------------------------------------------------------------------


class _Codec(NamedTuple):
    """How values of one kind are written and read."""

    write: _Change
    read: _Change


class _Misfit(InvalidSpec):
    """What is wrong with some data, and where in it."""

    def __init__(self, what: str, path: tuple[str, ...] = ()) -> None:
        where = "".join(f".{step}" if step[0] != "[" else step for step in path).lstrip(".")
        super().__init__(f"{where}: {what}" if where else what)
        self.what, self.path = what, path


def _inside(step: str, error: InvalidSpec) -> _Misfit:
    """The same error, seen from one level further out."""
    if isinstance(error, _Misfit):
        return _Misfit(error.what, (step, *error.path))
    return _Misfit(str(error), (step,))


def _refuse(expected: str, found: object) -> NoReturn:
    raise _Misfit(f"expected {expected}, found {reprlib.repr(found)}")


@cache
def _codec(kind: Any) -> _Codec:
    """How values of a kind are written and read."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, NewType):
        return _codec(kind.__supertype__)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _choice(get_args(kind))
    if origin is tuple:
        return _sequence(*get_args(kind))
    if origin is frozenset:
        return _set(*get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _words(kind)
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return _record(kind)
    raise Fatal(f"{kind!r} has no form in JSON")


# -- plain values ----------------------------------------------------------------------------------

_is_finite = math.isfinite
_INFINITIES = {"inf": math.inf, "-inf": -math.inf}


def _write_float(value: float) -> float | str:
    if math.isfinite(value):
        return float(value)
    if math.isnan(value):
        _refuse("a number", value)
    return "inf" if value > 0 else "-inf"


def _read_float(data: Any) -> float:
    if type(data) is float and _is_finite(data):
        return data
    if type(data) is str and data in _INFINITIES:
        return _INFINITIES[data]
    if type(data) is int:
        try:
            return float(data)
        except OverflowError:
            pass
    _refuse('a number, "inf" or "-inf"', data)


def _exactly(kind: type, expected: str) -> _Codec:
    def read(data: Any) -> Any:
        if type(data) is not kind:  # a bool is no int here
            _refuse(expected, data)
        return data

    return _Codec(lambda value: value, read)


_PLAIN: dict[Any, _Codec] = {
    float: _Codec(_write_float, _read_float),
    int: _exactly(int, "a whole number"),
    bool: _exactly(bool, "true or false"),
    str: _exactly(str, "a text"),
    NoneType: _exactly(NoneType, "null"),
}


def _words(kind: type[Enum]) -> _Codec:
    """Enums by the word that users see, or by their name where they are numbers."""
    by_value = issubclass(kind, StrEnum)
    word = {member: member.value if by_value else member.name.lower() for member in kind}
    members = {text: member for member, text in word.items()}
    expected = f"one of {', '.join(members)}"

    def read(data: Any) -> Any:
        if type(data) is not str or data not in members:
            _refuse(expected, data)
        return members[data]

    return _Codec(word.__getitem__, read)


def _sequence(item: Any, *rest: Any) -> _Codec:
    if rest != (...,):
        return _together(item, *rest)
    write_item, read_item = _codec(item)

    def write(values: Iterable[Any]) -> list[Any]:
        return [write_item(value) for value in values]

    def read(data: Any) -> tuple[Any, ...]:
        if type(data) is not list:
            _refuse("a list", data)
        try:
            return tuple(map(read_item, data))
        except InvalidSpec:
            for index, value in enumerate(data):  # again, to find out which
                try:
                    read_item(value)
                except InvalidSpec as error:
                    raise _inside(f"[{index}]", error) from None
            raise

    return _Codec(write, read)


def _together(*items: Any) -> _Codec:
    """A tuple with members of several kinds."""
    codecs = [_codec(item) for item in items]

    def write(values: Iterable[Any]) -> list[Any]:
        return [codec.write(value) for codec, value in zip(codecs, values, strict=True)]

    def read(data: Any) -> tuple[Any, ...]:
        if type(data) is not list or len(data) != len(codecs):
            _refuse(f"a list of {len(codecs)}", data)
        try:
            return tuple(codec.read(value) for codec, value in zip(codecs, data, strict=True))
        except InvalidSpec as error:
            raise _inside("[…]", error) from None

    return _Codec(write, read)


def _set(item: Any) -> _Codec:
    write, read = _sequence(item, ...)
    return _Codec(lambda values: write(sorted(values)), lambda data: frozenset(read(data)))


def _choice(kinds: tuple[Any, ...]) -> _Codec:
    """One of several records by its type, or one kind or null."""
    some = [kind for kind in kinds if kind is not NoneType]
    one_of = _codec(some[0]) if len(some) == 1 else _Codec(encode, _by_type(some))
    if len(some) == len(kinds):
        return one_of
    write, read = one_of
    return _Codec(
        lambda value: None if value is None else write(value),
        lambda data: None if data is None else read(data),
    )


def _by_type(kinds: Iterable[type]) -> _Change:
    readers = {kind.__name__: _codec(kind).read for kind in kinds}

    def read(data: Any) -> Any:
        if type(data) is not dict:
            _refuse("an object with a type", data)
        name = data.get("type")
        if type(name) is not str:
            _refuse("an object with a type", data)
        if name not in readers:
            raise _Misfit(str(unknown("type", name[:_LONG], readers)))
        return readers[name](data)

    return read


# -- records ---------------------------------------------------------------------------------------

_TYPED = frozenset((*get_args(Event), *get_args(Decision), *get_args(Action)))
_REQUIRED = object()


class _Field(NamedTuple):
    name: str
    codec: _Codec
    default: Any


def _fields(kind: type) -> Iterator[_Field]:
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        for field in fields(kind):
            default = _REQUIRED if field.default is MISSING else field.default
            yield _Field(field.name, _codec(hints[field.name]), default)
        return
    defaults = getattr(kind, "_field_defaults", {})
    for name in getattr(kind, "_fields", ()):
        yield _Field(name, _codec(hints[name]), defaults.get(name, _REQUIRED))


def _record(kind: type) -> _Codec:
    name = kind.__name__ if kind in _TYPED else None
    own = tuple(_fields(kind))
    return _Codec(_record_writer(name, own), _record_reader(kind, name, own))


def _record_writer(type_name: str | None, own: tuple[_Field, ...]) -> _Change:
    steps = tuple((field.name, field.codec.write, field.default) for field in own)

    def write(value: Any) -> dict[str, Any]:
        data: dict[str, Any] = {} if type_name is None else {"type": type_name}
        for name, write_field, default in steps:
            held = getattr(value, name)
            if held != default or (held == 0.0 and math.copysign(1.0, held) < 0):
                data[name] = write_field(held)
        return data

    return write


def _record_reader(kind: type, type_name: str | None, own: tuple[_Field, ...]) -> _Change:
    title = kind.__name__
    # It goes through what is told, not through all fields: most are at their defaults.
    readers = {field.name: (place, field.codec.read) for place, field in enumerate(own)}
    usual = [field.default for field in own]
    find = readers.get
    required = [(place, field.name) for place, field in enumerate(own) if usual[place] is _REQUIRED]

    def read(data: Any) -> Any:
        if type(data) is not dict:
            _refuse(f"an object that tells a {title}", data)
        if type_name is not None and data.get("type") != type_name:
            _refuse(f"an object of type {type_name!r}", data)
        values = usual.copy()
        name = ""
        try:
            for name, told in data.items():
                if (step := find(name)) is not None:
                    place, read_field = step
                    values[place] = read_field(told)
                elif name != "type" or type_name is None:
                    raise _Misfit(_odd_field(name, readers))
        except InvalidSpec as error:
            placed = _inside(name, error) if name in readers else error
            raise placed if type_name is None else _inside(type_name, placed) from None
        for place, name in required:
            if values[place] is _REQUIRED:
                missing = _Misfit(f"{name!r} is missing")
                raise missing if type_name is None else _inside(type_name, missing)
        return kind(*values)

    return read


def _odd_field(name: str, known: Iterable[str]) -> str:
    return str(unknown("field", name[:_LONG], known))


_EVENT = _codec(Event)
_DECISION = _codec(Decision)
