"""Shares of devices that hold: by turns (temporal) or side by side (spatial).

The engine talks to ``GpuSharing`` alone. By turns, a process of its own, the *sharing
daemon*, locks and unlocks the processes of the tenants. It outlives the server, and unlocks all of
them when it ends.

    sharing           what the engine calls: checks, environments, attach, park, unpark
    daemon_client     that there is a daemon while a tenant needs one
    sharing_daemon    the process that holds slices and memory limits, and parks
    state_files       the files between the two
    tenant            one tenant: found, parked, brought back
    time_slices       the turns of one device, carried out (on a thread: ``slice_thread``)
    slices            which tenant is next, and for how long: decided without a clock
    driver            lock, checkpoint, restore and unlock by NVIDIA's driver
    signals           the same with the processes of CPU slots
    worker_processes  which processes are a worker's
    mps               CUDA MPS, for shares side by side
    framework_memory  limits of memory through the framework
    memory_limit      whether they are kept
    activity_meters   which tenants are idle
    memory_rhythm     the rhythm of a job, seen in its memory
    telemetry         NVML

All but ``sharing`` need the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.engines.local.gpu.sharing import GpuSharing, ParkResult

__all__ = ["GpuSharing", "ParkResult"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("roost.engines.local.gpu.sharing"), name)
