"""Ask the NVIDIA driver what devices there are; run in a process of its own, for a driver may hang.

Prints JSON: a list of GPUs with their name, UUID, memory in MiB, NUMA node (-1: not known), and the
processes on them. A GPU that is divided (MIG) has ``partitions`` as well: a list of what is made of
it, each with a name, UUID and memory of its own. It may be empty.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


def main() -> None:
    """Print the devices."""
    import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415 - only here

    sys.stdout.write(json.dumps(devices(pynvml)))


def devices(nvml: Any) -> list[dict[str, Any]]:
    """What there is, as ``nvml`` tells: the module ``pynvml``, or one like it."""
    nvml.nvmlInit()
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        bus = _text(nvml.nvmlDeviceGetPciInfo(device).busId)
        one = {**_device(nvml, device), "numa": _numa(bus), "pids": _processes(nvml, device)}
        if _is_divided(nvml, device):
            one["partitions"] = _partitions(nvml, device)
        found.append(one)
    return found


def _device(nvml: Any, device: Any) -> dict[str, Any]:
    return {
        "name": _text(nvml.nvmlDeviceGetName(device)),
        "uuid": _text(nvml.nvmlDeviceGetUUID(device)),
        "memory_mib": int(nvml.nvmlDeviceGetMemoryInfo(device).total) >> 20,
    }


def _is_divided(nvml: Any, device: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(device)[0])
    except nvml.NVMLError:  # a GPU that cannot be
        return False


def _partitions(nvml: Any, device: Any) -> list[dict[str, Any]]:
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        with suppress(nvml.NVMLError):  # there is none of that number
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
            found.append({**_device(nvml, part), "pids": _processes(nvml, part)})
    return found


def _processes(nvml: Any, device: Any) -> list[int]:
    try:
        return [int(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(device)]
    except nvml.NVMLError:
        return []


def _text(given: str | bytes) -> str:
    # Older versions of pynvml give bytes.
    return given if isinstance(given, str) else given.decode()


def _numa(bus: str) -> int:
    # NVML writes the domain with eight digits, the kernel with four.
    try:
        return int(Path(f"/sys/bus/pci/devices/{bus.lower()[-12:]}/numa_node").read_text())
    except (OSError, ValueError):
        return -1


if __name__ == "__main__":
    main()
