"""Saving a simulation between two instants, and going on with it later.

The file is a pickle behind a header. Loading admits only Roost's own classes, plain containers and
the modules of installed policies, so a file from elsewhere cannot run code of its choice.
"""

from __future__ import annotations

import io
import os
import pickle
from importlib.metadata import entry_points
from typing import Any

from roost import __version__
from roost.errors import InvalidSpec
from roost.files import load_bytes, save_bytes
from roost.policies import GROUP
from roost.sim.simulation import Simulation

_MAGIC = b"roost simulation\n"
_OWN = ("roost.core.", "roost.perf.", "roost.placement.", "roost.policies.", "roost.sim.")
_PLAIN = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("collections", "defaultdict"),
    ("random", "Random"),
}


def save(simulation: Simulation, path: str | os.PathLike[str]) -> None:
    """Write a simulation to a file, entirely or not at all."""
    body = pickle.dumps(simulation, protocol=pickle.HIGHEST_PROTOCOL)
    save_bytes(path, _MAGIC + f"{__version__}\n".encode() + body)


def load(path: str | os.PathLike[str]) -> Simulation:
    """Read a simulation that ``save`` wrote."""
    content = load_bytes(path)
    if not content.startswith(_MAGIC):
        raise InvalidSpec(f"{os.fspath(path)} is not a saved simulation")
    version, _, body = content[len(_MAGIC) :].partition(b"\n")
    if version.decode(errors="replace") != __version__:
        raise InvalidSpec(
            f"{os.fspath(path)} was saved by Roost {version.decode(errors='replace')}, "
            f"this is {__version__}"
        )
    try:
        found = _Unpickler(io.BytesIO(body)).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, ValueError) as error:
        raise InvalidSpec(f"{os.fspath(path)} is damaged: {error}") from None
    if not isinstance(found, Simulation):
        raise InvalidSpec(f"{os.fspath(path)} is not a saved simulation")
    return found


class _Unpickler(pickle.Unpickler):
    """Admits what a simulation is made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The class or function of that name, if it may be here."""
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _method
        if _admitted(module) or module == "roost.traces.workload":
            found = super().find_class(module, name)
            if getattr(found, "__module__", None) == module:  # not something it imported
                return found
        raise pickle.UnpicklingError(f"{module}.{name} does not belong in a saved simulation")


def _admitted(module: str) -> bool:
    return module.startswith(_OWN) or module in {
        entry.module for entry in entry_points(group=GROUP)
    }


def _method(owner: object, name: str) -> Any:
    """A bound method, such as the key by which a policy sorts."""
    if not _admitted(type(owner).__module__) or name.startswith("_"):
        raise pickle.UnpicklingError(f"{name!r} does not belong in a saved simulation")
    return getattr(owner, name)
