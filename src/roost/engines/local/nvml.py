"""Ask the NVIDIA driver what devices there are; run in a process of its own, for a driver may hang.

Prints JSON: a list of devices with their name, UUID, memory in MiB and NUMA node (-1: not known).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Print the devices."""
    import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415 - only here

    pynvml.nvmlInit()
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        name = pynvml.nvmlDeviceGetName(device)
        uuid = pynvml.nvmlDeviceGetUUID(device)
        bus = pynvml.nvmlDeviceGetPciInfo(device).busId
        found.append(
            {
                # Older versions of pynvml give bytes.
                "name": name if isinstance(name, str) else name.decode(),
                "uuid": uuid if isinstance(uuid, str) else uuid.decode(),
                "memory_mib": int(pynvml.nvmlDeviceGetMemoryInfo(device).total) >> 20,
                "numa": _numa(bus if isinstance(bus, str) else bus.decode()),
            }
        )
    sys.stdout.write(json.dumps(found))


def _numa(bus: str) -> int:
    # NVML writes the domain with eight digits, the kernel with four.
    try:
        return int(Path(f"/sys/bus/pci/devices/{bus.lower()[-12:]}/numa_node").read_text())
    except (OSError, ValueError):
        return -1


if __name__ == "__main__":
    main()
