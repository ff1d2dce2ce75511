"""GPUs that fail, as a made-up NVML tells: which are told, once each, and what programs cause."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

from roost.kubernetes.agent.health import BY_PROGRAMS, GpuHealth

XID, ECC = 8, 2


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "not now") -> None:
        super().__init__(text)
        self.value = value


class FakeNvml:
    """As much of ``pynvml`` as is used: GPUs are their own handles."""

    NVMLError = NVMLError
    nvmlEventTypeXidCriticalError = XID  # noqa: N815 - its name there, as below
    nvmlEventTypeDoubleBitEccError = ECC  # noqa: N815

    def __init__(self, missing: str = "") -> None:
        self.missing = missing
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.lost: set[str] = set()
        self.kinds: dict[str, int] = {}

    def nvmlInit(self) -> None:  # noqa: N802
        if self.missing:
            raise NVMLError(12, self.missing)

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return self

    def nvmlEventSetFree(self, _: object) -> None:  # noqa: N802
        self.kinds.clear()

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetSupportedEventTypes(self, _: str) -> int:  # noqa: N802
        return XID | ECC | 64

    def nvmlDeviceRegisterEvents(self, handle: str, kinds: int, _: object) -> None:  # noqa: N802
        if handle == "GPU-old":
            raise NVMLError(3, "Not Supported")
        self.kinds[handle] = kinds

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> object:  # noqa: N802
        if handle in self.lost:
            raise NVMLError(15, "GPU is lost")
        return object()

    def nvmlEventSetWait_v2(self, _: object, wait_ms: int) -> Any:  # noqa: N802
        try:
            return self.events.get(timeout=wait_ms / 100_000)
        except queue.Empty:
            raise NVMLError(10, "Timeout") from None

    def tell(self, gpu: str, kind: int, data: int = 0) -> None:
        self.events.put(SimpleNamespace(device=gpu, eventType=kind, eventData=data))


def watch(nvml: FakeNvml, *expected: tuple[int, str]) -> list[tuple[int, str]]:
    """Start, wait until so much was told, and close."""
    told: list[tuple[int, str]] = []
    enough = threading.Event()

    def failed(gpu: int, why: str) -> None:
        told.append((gpu, why))
        if len(told) >= len(expected):
            enough.set()

    health = GpuHealth(nvml, ["GPU-a", "GPU-old", "GPU-c"], failed)
    health.start()
    assert enough.wait(60)
    health.close()
    assert nvml.kinds == {}  # let go of
    return told


def test_an_xid_an_ecc_error_and_a_lost_gpu_are_told_once() -> None:
    nvml = FakeNvml()
    for number in BY_PROGRAMS:
        nvml.tell("GPU-a", XID, number)
    nvml.tell("GPU-a", XID, 95)
    nvml.tell("GPU-a", XID, 79)
    nvml.tell("GPU-other", XID, 79)
    nvml.tell("GPU-c", ECC)
    nvml.lost.add("GPU-old")  # tells no events, and is looked at
    wanted = [
        (0, "Xid 95: uncontained ECC error"),
        (2, "uncorrectable ECC error"),
        (1, "it fell off the bus"),
    ]
    assert watch(nvml, *wanted) == wanted


def test_without_nvml_it_says_so() -> None:
    health = GpuHealth(FakeNvml("Driver Not Loaded"), [], lambda _gpu, _why: None)
    health.start()
    assert health.why == "the health of GPUs is not known: Driver Not Loaded"
    health.close()
