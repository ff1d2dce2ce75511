"""Saving a simulation between two instants, and going on with it later.

The file is plain data behind a header with Roost's version and a digest, so that a damaged file is
known for one. A file from elsewhere cannot run code of its choice: ``plain_data`` calls nothing.
"""

from __future__ import annotations

import hashlib
import os
from types import FunctionType

from roost import __version__
from roost.errors import InvalidSpec
from roost.files import load_bytes, save_bytes
from roost.policies import GROUP
from roost.sim.plain_data import dumps, loads
from roost.sim.saved_classes import home_of, import_policy
from roost.sim.simulation import Simulation
from roost.sim.worlds.rates import World
from roost.sim.worlds.sharing import SharingWorld

_MAGIC = b"roost simulation, plain\n"
#: Files of earlier versions, which were pickles: reading one could run what is in it.
_PICKLED = b"roost simulation\n"


def save(simulation: Simulation, path: str | os.PathLike[str]) -> None:
    """Write a simulation to a file, entirely or not at all.

    Raises InvalidSpec where that is not possible, also for a policy that ``load`` would refuse.
    """
    policy, name = simulation.setup.policy, simulation.setup.policy_name
    if simulation.setup.world not in (World, SharingWorld):
        raise InvalidSpec("a run in another world than that of rates cannot be saved")
    kind = policy if isinstance(policy, FunctionType) else type(policy)
    home = home_of(kind.__module__)
    if home is None:
        raise InvalidSpec(
            f"a run of policy {name!r} cannot be saved: it is from {kind.__module__!r}, "
            f"which no entry point of {GROUP!r} names"
        )
    simulation.core.ledger.notes.clear()  # what placers remember follows from the rest
    try:
        body = f"{home}\n{dumps(simulation)}".encode()
    except (InvalidSpec, AttributeError, TypeError) as error:
        raise InvalidSpec(f"a run of policy {name!r} cannot be saved: {error}") from error
    save_bytes(path, _MAGIC + f"{__version__}\n{_digest(body)}\n".encode() + body)


def load(path: str | os.PathLike[str]) -> Simulation:
    """Read a simulation that ``save`` wrote."""
    content = load_bytes(path)
    if content.startswith(_PICKLED):
        raise InvalidSpec(
            f"{path} was saved by an older Roost, in a form that could run code and is no longer "
            f"read; simulate again from the trace"
        )
    if not content.startswith(_MAGIC):
        raise InvalidSpec(f"{path} is not a saved simulation")
    version, digest, body = (*content[len(_MAGIC) :].split(b"\n", 2), b"", b"")[:3]
    if version != __version__.encode():
        other = version.decode(errors="replace")
        raise InvalidSpec(f"{path} was saved by Roost {other!r}, this is {__version__!r}")
    if digest != _digest(body).encode():
        raise InvalidSpec(f"{path} is damaged: its digest is not that of its content")
    try:
        home, _, data = body.partition(b"\n")
        import_policy(home.decode())
        found = loads(data)
    except Exception as error:  # noqa: BLE001 - data that was made up can raise any
        why = " ".join(str(error).splitlines())
        raise InvalidSpec(f"{path} is not a saved simulation: {why}") from None
    if not isinstance(found, Simulation):
        raise InvalidSpec(f"{path} is not a saved simulation")
    return found


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
