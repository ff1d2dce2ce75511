"""Shares of devices that hold: by turns (temporal) or side by side (spatial).

The engine talks to ``Sharing`` alone. By turns, a process of its own, the *warden*, locks and
unlocks the processes of the tenants; it outlives the server, and unlocks everybody when it ends.

    sharing    what the engine calls: checks, environments, attach, park, unpark
    guarding   that there is a warden while somebody needs one
    warden     the process that holds slices and memory limits, and parks
    book       the files between the two
    ward       one tenant: found, parked, brought back
    rota       the turns of one device, carried out (on a thread: ``desk``)
    slices     who is next, and for how long: decided without a clock
    driver     lock, checkpoint, restore and unlock by NVIDIA's driver
    signals    the same with the processes of CPU slots
    kin        which processes are a worker's
    mps        CUDA MPS, for shares side by side
    memory     limits of memory through the framework; ``guard``: whether they are kept
    meters     who is idle; ``cycles``: the rhythm of a job
    telemetry  NVML
    measure    what all this really gives, measured

All but ``sharing`` need the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.engines.local.gpu.sharing import Parked, Sharing

__all__ = ["Parked", "Sharing"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("roost.engines.local.gpu.sharing"), name)
