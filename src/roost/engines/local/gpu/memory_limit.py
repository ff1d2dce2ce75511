"""Whether a tenant keeps to its limit of GPU memory, as NVML sees it.

The last line behind the framework's own limit (``memory``): it also sees what goes past the
framework, and the sum over all processes of a tenant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: What a tenant may be over its limit: sizes are rounded up on the device.
TOLERANCE_MIB = 64


def held_mib(held: Mapping[int, int], pids: Sequence[int]) -> int:
    """MiB that processes hold, of what each process on the device does."""
    return sum(held.get(pid, 0) for pid in pids)


def over(held: Mapping[int, int], pids: Sequence[int], limit_mib: int) -> str:
    """Why a tenant has to be stopped; "" if it keeps to its limit, or has none."""
    if not limit_mib:
        return ""
    used = held_mib(held, pids)
    if used <= limit_mib + TOLERANCE_MIB:
        return ""
    return f"held {used} MiB of GPU memory, over its limit of {limit_mib} MiB"
