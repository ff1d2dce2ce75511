"""What is told of GPUs, by a made-up NVML: whole ones, divided ones, and old ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from roost.engines.local.nvml import devices


class NVMLError(Exception):
    pass


class FakeNvml:
    """As much of ``pynvml`` as is used; devices are their own handles."""

    NVMLError = NVMLError

    def __init__(self, *gpus: Any) -> None:
        self.gpus = gpus

    def nvmlInit(self) -> None:  # noqa: N802 - its name there, as below
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetName(self, device: Any) -> str | bytes:  # noqa: N802
        name: str | bytes = device.name
        return name

    def nvmlDeviceGetUUID(self, device: Any) -> str:  # noqa: N802
        return str(device.uuid)

    def nvmlDeviceGetMemoryInfo(self, device: Any) -> Any:  # noqa: N802
        return SimpleNamespace(total=device.mib << 20)

    def nvmlDeviceGetPciInfo(self, _: Any) -> Any:  # noqa: N802
        return SimpleNamespace(busId=b"0000FFFF:FF:1F.0")

    def nvmlDeviceGetComputeRunningProcesses(self, device: Any) -> list[Any]:  # noqa: N802
        if device.mib == 1:
            raise NVMLError
        return [SimpleNamespace(pid=pid) for pid in device.pids]

    def nvmlDeviceGetMigMode(self, device: Any) -> list[int]:  # noqa: N802
        if device.parts is None:
            raise NVMLError
        return [int(bool(device.parts)), 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, _: Any) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any:  # noqa: N802
        if index not in device.parts:
            raise NVMLError
        return device.parts[index]


def device(name: str | bytes, uuid: str, mib: int, *pids: int, parts: Any = None) -> Any:
    return SimpleNamespace(name=name, uuid=uuid, mib=mib, pids=pids, parts=parts)


def test_whole_gpus() -> None:
    old, new = device(b"Tesla V100", "GPU-1", 1), device("NVIDIA H200", "GPU-2", 140, 7, parts={})
    assert devices(FakeNvml(old, new)) == [
        {"name": "Tesla V100", "uuid": "GPU-1", "memory_mib": 1, "numa": -1, "pids": []},
        {"name": "NVIDIA H200", "uuid": "GPU-2", "memory_mib": 140, "numa": -1, "pids": [7]},
    ]


def test_a_divided_gpu_has_partitions_that_may_have_gaps() -> None:
    parts = {
        0: device("NVIDIA H200 MIG 3g.71gb", "MIG-a", 71, 9),
        4: device("NVIDIA H200 MIG 1g.18gb", "MIG-b", 18),
    }
    (found,) = devices(FakeNvml(device("NVIDIA H200", "GPU-1", 140, parts=parts)))
    assert found["partitions"] == [
        {"name": "NVIDIA H200 MIG 3g.71gb", "uuid": "MIG-a", "memory_mib": 71, "pids": [9]},
        {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-b", "memory_mib": 18, "pids": []},
    ]
