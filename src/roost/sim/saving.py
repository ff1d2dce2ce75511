"""Saving a simulation between two instants, and going on with it later.

The file is a pickle behind a header with Roost's version and a digest, so that a damaged file is
known for one. A file from elsewhere cannot run code of its choice: loading admits what a simulation
is made of, by name, and nothing that reads, writes or starts anything. The exception are installed
policies: of their modules, everything is admitted, for policies may sort by functions of theirs.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from dataclasses import fields, is_dataclass
from enum import Enum, EnumType
from importlib.metadata import entry_points
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from roost import __version__
from roost.errors import InvalidSpec
from roost.files import load_bytes, save_bytes
from roost.policies import GROUP
from roost.sim.simulation import Simulation
from roost.sim.worlds.rates import World

_MAGIC = b"roost simulation\n"
#: Packages with classes and functions that may be here: they compute, and touch nothing outside.
_PURE = ("roost.core.", "roost.perf.", "roost.placement.", "roost.policies.")
#: Modules with classes that may be here.
_MODULES = {
    *("roost.sim.failures", "roost.sim.simulation", "roost.sim.worlds.rates"),
    "roost.traces.workload",
}
_PLAIN = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("random", "Random"),
    # Arrays that policies remember. Their module has another name before NumPy 2.
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
}


def save(simulation: Simulation, path: str | os.PathLike[str]) -> None:
    """Write a simulation to a file, entirely or not at all.

    Raises InvalidSpec where that is not possible, also for a policy that ``load`` would refuse.
    """
    policy, name = simulation.setup.policy, simulation.setup.policy_name
    if simulation.setup.world is not World:
        raise InvalidSpec("a run in another world than that of rates cannot be saved")
    kind = policy if isinstance(policy, FunctionType) else type(policy)
    if not _policies(kind.__module__):
        raise InvalidSpec(
            f"a run of policy {name!r} cannot be saved: it is from {kind.__module__!r}, "
            f"which no entry point of {GROUP!r} names"
        )
    try:
        body = _pickled(simulation)
    except (pickle.PickleError, AttributeError, TypeError) as error:
        raise InvalidSpec(f"a run of policy {name!r} cannot be saved: {error}") from error
    save_bytes(path, _MAGIC + f"{__version__}\n{_digest(body)}\n".encode() + body)


def load(path: str | os.PathLike[str]) -> Simulation:
    """Read a simulation that ``save`` wrote."""
    content = load_bytes(path)
    if not content.startswith(_MAGIC):
        raise InvalidSpec(f"{path} is not a saved simulation")
    version, digest, body = (*content[len(_MAGIC) :].split(b"\n", 2), b"", b"")[:3]
    if version != __version__.encode():
        other = version.decode(errors="replace")
        raise InvalidSpec(f"{path} was saved by Roost {other!r}, this is {__version__!r}")
    if digest != _digest(body).encode():
        raise InvalidSpec(f"{path} is damaged: its digest is not that of its content")
    try:
        found = _Unpickler(io.BytesIO(body)).load()
    except Exception as error:  # noqa: BLE001 - a hostile pickle can raise any
        why = " ".join(str(error).splitlines())
        raise InvalidSpec(f"{path} is not a saved simulation: {why}") from None
    if not isinstance(found, Simulation):
        raise InvalidSpec(f"{path} is not a saved simulation")
    return found


def _pickled(simulation: Simulation) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(simulation)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Writes frozen records by their fields: a compiled one refuses to be filled in afterwards."""

    def reducer_override(self, thing: Any) -> Any:
        """How to make the thing again."""
        kind = type(thing)
        if is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return kind, tuple(getattr(thing, field.name) for field in fields(kind))
        return NotImplemented


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class _Unpickler(pickle.Unpickler):
    """Admits what a simulation is made of, and nothing else; classes stay as they are."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._before: dict[type, dict[str, Any]] = {}

    def load(self) -> Any:
        """The object; a state that was set on a class, not on an instance, is undone."""
        try:
            return super().load()
        finally:
            for kind, before in self._before.items():
                for name, value in dict(vars(kind)).items():
                    if name not in before:
                        delattr(kind, name)
                    elif value is not before[name]:
                        setattr(kind, name, before[name])

    def find_class(self, module: str, name: str) -> Any:
        """The class or function of that name, if it may be here."""
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _method
        functions = module.startswith(_PURE) or _policies(module)
        if "." not in name and (functions or module in _MODULES):
            found = super().find_class(module, name)
            # Functions of compiled modules are built in.
            kinds = (type, FunctionType, BuiltinFunctionType) if functions else type
            if isinstance(found, kinds) and found.__module__ == module:  # not what it imported
                if isinstance(found, type):
                    self._before.setdefault(found, dict(vars(found)))
                return found
        raise pickle.UnpicklingError(f"{f'{module}.{name}'!r} does not belong there")


def _method(owner: object, name: str) -> MethodType | BuiltinFunctionType | Enum:
    """A policy's method, such as the key by which it sorts, or a member of an enum.

    Members are pickled this way by some versions of Python.
    """
    if isinstance(owner, EnumType) and name in owner.__members__:
        member: Enum = owner.__members__[name]
        return member
    if _policies(type(owner).__module__) and not name.startswith("_"):
        found = getattr(owner, name)
        # Methods of compiled classes are built in.
        if isinstance(found, MethodType | BuiltinFunctionType) and found.__self__ is owner:
            return found
    raise pickle.UnpicklingError(f"{type(owner).__name__}.{name} does not belong there")


def _policies(module: str) -> bool:
    """Whether policies live there: Roost's own, or installed ones in their module or below it."""
    if module.startswith("roost."):
        return module.startswith("roost.policies.")
    homes = {entry.module for entry in entry_points(group=GROUP)}
    return any(module == home or module.startswith(f"{home}.") for home in homes)
