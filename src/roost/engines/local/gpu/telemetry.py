"""What NVIDIA's management library (NVML) sees: devices, their memory, and the processes on them.

By ``ctypes``, for the process that guards GPUs runs with the standard library alone. Numbers of
processes are those that the driver sees; inside a container they may be others' numbers, and then
nothing is found rather than something wrong.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from roost.engines.local.gpu.driver import DriverRefused

_LIBRARY = "libnvidia-ml.so.1"
_NOT_AVAILABLE = (1 << 64) - 1
_MOST = 512
_SUCCESS, _TOO_SMALL = 0, 7


class DeviceMemory(NamedTuple):
    """Memory of a device, in MiB."""

    total: int
    used: int


class BusySample(NamedTuple):
    """How busy a process kept the multiprocessors: when (microseconds), and percent."""

    time_us: int
    percent: int


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Busy(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("time_us", ctypes.c_ulonglong),
        *((name, ctypes.c_uint) for name in ("sm", "memory", "encoder", "decoder")),
    )


class Nvml:
    """The devices of this machine; raises Refused where there is no NVML."""

    def __init__(self, library: str = _LIBRARY) -> None:
        try:
            self._nvml: Any = ctypes.CDLL(library)
        except OSError as error:
            raise DriverRefused(f"there is no NVML here: {error}") from None
        self._check(self._nvml.nvmlInit_v2(), "start")
        self._devices: dict[int, ctypes.c_void_p] = {}

    def count(self) -> int:
        """How many devices there are."""
        found = ctypes.c_uint()
        self._check(self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(found)), "count devices")
        return found.value

    def uuid(self, index: int) -> str:
        """What a device is called for good: ``GPU-...``."""
        text = ctypes.create_string_buffer(96)
        call = self._nvml.nvmlDeviceGetUUID
        self._check(call(self._device(index), text, ctypes.c_uint(96)), "name a device")
        return text.value.decode()

    def memory(self, index: int) -> DeviceMemory:
        """How much memory a device has, and how much of it is taken."""
        found = _Memory()
        call = self._nvml.nvmlDeviceGetMemoryInfo
        self._check(call(self._device(index), ctypes.byref(found)), "tell memory")
        return DeviceMemory(int(found.total) >> 20, int(found.used) >> 20)

    def clock_mhz(self, index: int) -> int:
        """How fast the multiprocessors of a device run now."""
        found = ctypes.c_uint()
        call = self._nvml.nvmlDeviceGetClockInfo
        self._check(call(self._device(index), 1, ctypes.byref(found)), "tell clocks")
        return found.value

    def processes(self, index: int) -> dict[int, int]:
        """The processes that compute on a device, and the MiB that each holds there.

        Clients of MPS are not among them in all versions; their server is.
        """
        names = (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        )
        found: dict[int, int] = {}
        for name in names:
            call: Callable[..., int] | None = getattr(self._nvml, name, None)
            if call is None:
                continue
            many, rows = ctypes.c_uint(_MOST), (_Process * _MOST)()
            if call(self._device(index), ctypes.byref(many), rows) == _SUCCESS:
                for row in rows[: many.value]:
                    known = row.memory != _NOT_AVAILABLE
                    found[row.pid] = int(row.memory) >> 20 if known else 0
        return found

    def busy(self, index: int, since_us: int) -> dict[int, BusySample]:
        """The newest sample of each process that used the device after that time."""
        many, rows = ctypes.c_uint(_MOST), (_Busy * _MOST)()
        call = self._nvml.nvmlDeviceGetProcessUtilization
        after = ctypes.c_ulonglong(since_us)
        if call(self._device(index), rows, ctypes.byref(many), after) != _SUCCESS:
            return {}  # none did
        found: dict[int, BusySample] = {}
        for row in rows[: many.value]:
            known = found.get(row.pid)
            if row.time_us > since_us and (known is None or known.time_us < row.time_us):
                found[row.pid] = BusySample(int(row.time_us), int(row.sm))
        return found

    def close(self) -> None:
        """Let go of the library."""
        self._nvml.nvmlShutdown()

    def _device(self, index: int) -> ctypes.c_void_p:
        if index not in self._devices:
            handle = ctypes.c_void_p()
            call = self._nvml.nvmlDeviceGetHandleByIndex_v2
            self._check(call(ctypes.c_uint(index), ctypes.byref(handle)), f"find GPU {index}")
            self._devices[index] = handle
        return self._devices[index]

    def _check(self, code: int, what: str) -> None:
        if code:
            self._nvml.nvmlErrorString.restype = ctypes.c_char_p
            words = self._nvml.nvmlErrorString(code) or b"?"
            raise DriverRefused(f"NVML does not {what}: {words.decode(errors='replace')}", code)
