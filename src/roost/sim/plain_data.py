"""Objects that refer to each other, as plain data and back.

    {"layouts": [["roost.core.state.Queue", "spec", "used_milli"], ...],    classes, their fields
     "things": [[0, [7], 250], ["dict", "a", [3]], ...],
     "top": [12]}

A thing is a list: the number of its layout, or a word for what else it is, and then its values. A
value is a scalar, or ``[n]`` for thing n. What cannot be changed once it is made (a tuple, a frozen
record) comes after what it is made of.

Reading calls nothing that the data names: it makes empty instances of admitted classes
(``saved_classes``), sets their fields, and puts functions only where they belong.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from copyreg import __newobj__ as empty  # type: ignore[attr-defined] # what makes plain instances
from dataclasses import fields
from enum import Enum, EnumType
from inspect import getattr_static
from itertools import chain
from random import Random
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
)
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from roost.errors import InvalidSpec
from roost.sim.saved_classes import (
    CALLED,
    find_class,
    find_function,
    find_member,
    find_method,
    full_name,
)

Value: TypeAlias = bool | int | float | str | list[int] | None
#: What a list that stands for a thing has after its layout or its word.
Parts: TypeAlias = list[Any]

#: Integers beyond this are hexadecimal text: Python bounds the digits of decimal ones.
_LARGE = 1 << 62
_SCALARS = (type(None), bool, int, float, str)
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)
_FACTORIES: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (list, dict, set, int, float)
}
#: Truth values, integers and reals: the kinds of numbers that an array may have.
_NUMBERS = "biuf"
#: The layout of the state of Python's generator of random numbers.
_RANDOM_VERSION = 3


def dumps(top: object) -> str:
    """An object and all that it refers to, as JSON. InvalidSpec where something is no data."""
    writer = _Writer()
    value = writer.value(top)
    writer.finish()
    layouts = [list(layout) for layout in writer.layouts]
    data = {"layouts": layouts, "things": writer.things, "top": value}
    return json.dumps(data, separators=(",", ":"))


def loads(text: str | bytes) -> object:
    """The object that ``dumps`` was given. Data that was made up may raise any exception."""
    data = json.loads(text)
    reader = _Reader([_Layout.read(*layout) for layout in data["layouts"]])
    for thing in data["things"]:
        reader.make(*thing)
    reader.fill()
    return reader.value(data["top"])


# -- writing ---------------------------------------------------------------------------------------


class _Writer:
    """Numbers things as it meets them.

    What can be changed is filled in later, so cycles are fine; what is frozen is written from the
    inside out.
    """

    def __init__(self) -> None:
        self.layouts: dict[tuple[str, ...], int] = {}
        self.things: list[Parts] = []
        self._numbers: dict[int, int] = {}
        self._later: deque[tuple[Parts, Iterable[object], str, tuple[str, ...]]] = deque()
        #: Keeps what was numbered alive, so that no other object gets its id.
        self._kept: list[object] = []

    def value(self, thing: object, *, called: bool = False) -> Value:
        """A scalar, or the number of a thing, which is written if it is new."""
        if isinstance(thing, int) and type(thing) is int and not -_LARGE < thing < _LARGE:
            return self._add(thing, ["int", hex(thing)])
        if type(thing) in _SCALARS:
            return thing  # type: ignore[return-value] # by its type
        number = self._numbers.get(id(thing))
        if isinstance(thing, _FUNCTIONS) and not called:
            raise InvalidSpec(f"{getattr(thing, '__qualname__', thing)} is code, not data")
        return [number] if number is not None else self._new(thing)

    def finish(self) -> None:
        """Write what things are made of that were only numbered so far."""
        while self._later:
            written, parts, name, names = self._later.popleft()
            if name:
                written += self._fields(parts, name, names)
            else:
                written += map(self.value, parts)

    def _fields(self, parts: Iterable[object], name: str, names: Iterable[str]) -> list[Value]:
        return [
            self.value(part, called=(name, field) in CALLED)
            for field, part in zip(names, parts, strict=True)
        ]

    def _add(self, thing: object, written: Parts) -> list[int]:
        self._numbers[id(thing)] = number = len(self.things)
        self._kept.append(thing)
        self.things.append(written)
        return [number]

    def _add_later(self, thing: object, written: Parts, parts: Iterable[object]) -> list[int]:
        self._later.append((written, parts, "", ()))
        return self._add(thing, written)

    def _new(self, thing: Any) -> list[int]:
        kind = type(thing)
        if kind in (tuple, frozenset):
            return self._add(thing, [kind.__name__, *map(self.value, thing)])
        if kind in (list, set):
            return self._add_later(thing, [kind.__name__], list(thing))
        if kind is dict:
            return self._add_later(thing, ["dict"], chain.from_iterable(thing.items()))
        if kind is deque:
            return self._add_later(thing, ["deque", thing.maxlen], list(thing))
        if kind is defaultdict and getattr(thing.default_factory, "__name__", "") in _FACTORIES:
            factory = thing.default_factory.__name__
            return self._add_later(thing, ["defaultdict", factory], chain(*thing.items()))
        if kind is bytes:
            return self._add(thing, ["bytes", b64encode(thing).decode()])
        if kind is Random:
            _, state, spare = thing.getstate()
            return self._add(thing, ["random", spare, *state])
        if isinstance(thing, np.ndarray | np.generic):
            return self._add(thing, _written_numbers(thing))
        if isinstance(thing, _FUNCTIONS):
            return self._add(thing, self._written_function(thing))
        return self._record(thing)

    def _written_function(self, thing: Any) -> Parts:
        owner = getattr(thing, "__self__", None)
        if owner is not None and type(owner).__name__ != "module":
            find_method(owner, thing.__name__)
            return ["method", self.value(owner), thing.__name__]
        name = full_name(thing)
        if find_function(name) is not thing:
            raise InvalidSpec(f"{name!r} does not belong there")
        return ["function", name]

    def _record(self, thing: Any) -> list[int]:
        """An instance of a class of the table."""
        kind = type(thing)
        name = full_name(kind)
        if find_class(name) is not kind:
            raise InvalidSpec(f"{name!r} does not belong there")
        if isinstance(thing, Enum):
            return self._add(thing, ["enum", name, thing.name])
        if isinstance(thing, tuple):
            layout = self._layout(name, kind._fields)
            return self._add(thing, [layout, *map(self.value, thing)])
        state = _state(thing)
        names = tuple(state)
        layout = self._layout(name, names)
        if _frozen(kind):
            return self._add(thing, [layout, *self._fields(state.values(), name, names)])
        written: Parts = [layout]
        self._later.append((written, state.values(), name, names))
        return self._add(thing, written)

    def _layout(self, name: str, names: Iterable[str]) -> int:
        return self.layouts.setdefault((name, *names), len(self.layouts))


def _state(thing: Any) -> Mapping[str, object]:
    """The fields of an object, by name."""
    kind = type(thing)
    if _frozen(kind):
        return {field.name: getattr(thing, field.name) for field in fields(kind)}
    make, _, *rest = thing.__reduce_ex__(2)
    if make is not empty or any(rest[1:]):
        raise InvalidSpec(f"{full_name(kind)!r} is more than its fields")
    state = rest[0] if rest else None
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return {**(plain or {}), **(slots or {})}


def _frozen(kind: Any) -> bool:
    parameters: Any = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _written_numbers(array: npt.NDArray[Any] | np.generic) -> Parts:
    if array.dtype.kind not in _NUMBERS:
        raise InvalidSpec(f"an array of {array.dtype} is more than numbers")
    # The order in memory is the order in which sums are made, and so counts for the last bit.
    order: Literal["C", "F"] = (
        "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    )
    content = b64encode(array.tobytes(order)).decode()
    if isinstance(array, np.generic):
        return ["number", array.dtype.str, content]
    return ["array", array.dtype.str, order, content, *array.shape]


# -- reading ---------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """A class of the table, and fields that may be set on its instances."""

    name: str
    kind: Any
    names: tuple[str, ...]

    @classmethod
    def read(cls, name: str, *names: str) -> _Layout:
        """A layout as it is written."""
        kind: Any = find_class(name)
        if isinstance(kind, EnumType):
            raise InvalidSpec(f"{name} has no instances but its members")
        declared = kind._fields if issubclass(kind, tuple) else _declared(kind)
        for field in names:
            found = getattr_static(kind, field, None)
            settable = isinstance(found, GetSetDescriptorType | MemberDescriptorType)
            if field.startswith("__") or not (found is None or settable or field in declared):
                raise InvalidSpec(f"{name}.{field} does not belong there")
        return cls(name, kind, names)


def _declared(kind: Any) -> Iterable[str]:
    found: Iterable[str] = getattr(kind, "__dataclass_fields__", ())
    return found


class _Reader:
    """Makes things in their order; those that can be changed are empty until ``fill``."""

    def __init__(self, layouts: list[_Layout]) -> None:
        self._layouts = layouts
        self._things: list[Any] = []
        self._called: set[int] = set()
        self._records: list[tuple[Any, _Layout, Parts]] = []
        self._containers: list[tuple[Any, Parts]] = []

    def value(self, value: Any, *, called: bool = False) -> Any:
        """What a value stands for."""
        if type(value) in _SCALARS:
            return value
        (number,) = value
        if type(number) is not int or not 0 <= number < len(self._things):
            raise InvalidSpec("it refers to what it has not got")
        if number in self._called and not called:
            raise InvalidSpec("a function does not belong there")
        return self._things[number]

    def make(self, what: int | str, *parts: Any) -> None:
        """Make the next thing."""
        if isinstance(what, int):
            made = self._record(self._layouts[what], list(parts))
        elif what in ("function", "method"):
            made = self._function(what, *parts)
            self._called.add(len(self._things))
        else:
            made = self._container(what, parts)
        self._things.append(made)

    def _function(self, what: str, *parts: Any) -> Callable[..., Any]:
        if what == "function":
            return find_function(*parts)
        owner, name = parts
        return find_method(self.value(owner), name)

    def _container(self, what: str, parts: tuple[Any, ...]) -> Any:
        match what, *parts:
            case "tuple", *items:
                return tuple(map(self.value, items))
            case "frozenset", *items:
                return frozenset(map(self.value, items))
            case "deque", most, *items:
                return self._later(deque(maxlen=most), items)
            case "defaultdict", factory, *items:
                return self._later(defaultdict(_FACTORIES[factory]), items)
            case (("list" | "dict" | "set"), *items):
                return self._later(_FACTORIES[what](), items)
            case _:
                return _read_atom(what, *parts)

    def _later(self, container: Any, items: Parts) -> Any:
        self._containers.append((container, items))
        return container

    def _record(self, layout: _Layout, parts: Parts) -> Any:
        kind, names = layout.kind, layout.names
        if issubclass(kind, tuple):
            if names != kind._fields or len(parts) != len(names):
                raise InvalidSpec(f"{layout.name} has other fields")
            return tuple.__new__(kind, map(self.value, parts))
        if _frozen(kind):
            return self._frozen_record(layout, parts)
        thing = empty(kind)
        self._records.append((thing, layout, parts))
        return thing

    def _frozen_record(self, layout: _Layout, parts: Parts) -> Any:
        thing = empty(layout.kind)
        values = self._fields(layout, parts)
        try:
            for name, value in values.items():
                object.__setattr__(thing, name, value)
        except AttributeError:
            # A compiled record cannot be filled in afterwards: it is made by its constructor.
            if not layout.name.startswith("roost."):
                raise
            return layout.kind(**values)
        return thing

    def _fields(self, layout: _Layout, parts: Parts) -> dict[str, Any]:
        return {
            name: self.value(part, called=(layout.name, name) in CALLED)
            for name, part in zip(layout.names, parts, strict=True)
        }

    def fill(self) -> None:
        """Give things their contents: records first, for a container may ask for their hash."""
        for thing, layout, parts in self._records:
            for name, value in self._fields(layout, parts).items():
                setattr(thing, name, value)
        for container, parts in self._containers:
            values = map(self.value, parts)
            if isinstance(container, dict):
                container.update(zip(values, values, strict=True))
            elif isinstance(container, set):
                container.update(values)
            else:
                container.extend(values)


def _read_atom(what: str, *parts: Any) -> Any:
    """A thing that refers to no other."""
    match what, *parts:
        case "int", text:
            return int(text, 16)
        case "bytes", text:
            return b64decode(text)
        case "enum", name, member:
            return find_member(name, member)
        case "random", spare, *state:
            chance = Random()  # noqa: S311 - not for secrets
            chance.setstate((_RANDOM_VERSION, tuple(state), spare))
            return chance
        case "array", kind, order, content, *shape:
            return _read_numbers(kind, content).reshape(shape, order=order).copy(order)
        case "number", kind, content:
            return _read_numbers(kind, content)[0]
    raise InvalidSpec(f"nothing is called {what!r}")


def _read_numbers(kind: str, content: str) -> npt.NDArray[Any]:
    dtype = np.dtype(kind)
    if dtype.kind not in _NUMBERS:
        raise InvalidSpec(f"an array of {kind!r} is more than numbers")
    return np.frombuffer(b64decode(content), dtype)
