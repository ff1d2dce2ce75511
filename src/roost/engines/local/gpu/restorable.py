"""Whether the driver could bring a tenant back, seen before it is taken off its GPU.

Memory that processes share by CUDA IPC is not restored by drivers before 610 (issue 56 of
NVIDIA/cuda-checkpoint), although they bring it off the device without complaint. A process that
uses IPC maps a file of the driver's; that is a sign, and no proof: so it counts only where several
processes of a tenant use the GPU. A process that holds memory of a device, but that the driver does
not know by its number, would stay behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

#: The first driver that restores memory shared by CUDA IPC.
_IPC_SINCE = 610
_IPC_FILE = b"/cuda.shm."


def driver_version(module: Path = Path("/sys/module/nvidia/version")) -> int:
    """The branch of NVIDIA's driver, 580 for instance; 0 where nothing tells."""
    try:
        return int(module.read_text().split(".")[0])
    except (OSError, ValueError):
        return 0


def refusal(
    pids: Collection[int],
    unknown: Iterable[int] = (),
    version: int | None = None,
    proc: Path = Path("/proc"),
) -> str:
    """Why processes cannot be brought back once they are off their GPU; "" if nothing shows.

    ``pids`` are those that the driver knows, ``unknown`` those of the tenant that it does not know
    and that hold memory of a GPU.
    """
    if strange := sorted(set(unknown) - set(pids)):
        return f"its process {strange[0]} holds GPU memory, and the driver does not know it"
    found = driver_version() if version is None else version
    if len(pids) > 1 and found < _IPC_SINCE and any(_shares(pid, proc) for pid in pids):
        return (
            "its processes share GPU memory (CUDA IPC), which this driver does not bring back; "
            f"{_IPC_SINCE} and later do"
        )
    return ""


def _shares(pid: int, proc: Path) -> bool:
    try:
        return _IPC_FILE in (proc / str(pid) / "maps").read_bytes()
    except OSError:
        return False
