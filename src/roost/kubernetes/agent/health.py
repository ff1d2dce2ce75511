"""GPUs that fail, as NVML tells: Xid events, uncorrectable memory errors, a GPU off the bus.

A GPU that failed stays so until the agent begins anew: what a reset or a new GPU heals is for an
administrator. Xids that a program causes by itself say nothing of the GPU.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

_log = logging.getLogger(__name__)

#: Xids that programs cause: NVIDIA's list (docs.nvidia.com/deploy/xid-errors), "user application".
BY_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
#: What the most frequent of the others mean, in NVIDIA's words made short.
_WORDS = {
    48: "double-bit ECC error",
    63: "row remapping or page retirement",
    64: "row remapping failed",
    74: "NVLink error",
    79: "it fell off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "the GSP does not answer",
    120: "GSP error",
}
_WAIT_MS = 1000
_GPU_IS_LOST = 15  # NVML_ERROR_GPU_IS_LOST
_TIMEOUT = 10  # NVML_ERROR_TIMEOUT


class GpuHealth:
    """Watches GPUs on a thread; ``failed(index, why)`` is called there, once for each GPU.

    ``nvml`` is the module ``pynvml``, or one like it. Where it cannot be started, ``why`` says so.
    """

    def __init__(self, nvml: Any, uuids: Sequence[str], failed: Callable[[int, str], None]) -> None:
        self._nvml, self._failed = nvml, failed
        self._index = {uuid: index for index, uuid in enumerate(uuids)}
        self._handles: dict[int, Any] = {}
        self._told: set[int] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-health", daemon=True)
        self.why = ""

    def start(self) -> None:
        """Watch from now on."""
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            self.why = f"the health of GPUs is not known: {error}"
            return
        for uuid, index in self._index.items():
            self._register(uuid, index)
        self._thread.start()

    def close(self) -> None:
        """Watch no longer."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    def _register(self, uuid: str, index: int) -> None:
        nvml = self._nvml
        kinds = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        try:
            handle = self._handles[index] = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceRegisterEvents(
                handle, kinds & nvml.nvmlDeviceGetSupportedEventTypes(handle), self._events
            )
        except nvml.NVMLError as error:
            # An old GPU tells no events; it is looked at all the same.
            _log.warning("GPU %d tells no events: %s", index, error)

    def _run(self) -> None:
        nvml = self._nvml
        while not self._ends.is_set():
            try:
                self._heed(nvml.nvmlEventSetWait_v2(self._events, _WAIT_MS))
            except nvml.NVMLError as error:
                self._look()
                if getattr(error, "value", None) != _TIMEOUT:  # it came back at once
                    self._ends.wait(_WAIT_MS / 1000)
        with suppress(nvml.NVMLError):
            nvml.nvmlEventSetFree(self._events)

    def _heed(self, event: Any) -> None:
        """One event of a GPU."""
        nvml = self._nvml
        try:
            uuid = nvml.nvmlDeviceGetUUID(event.device)
        except nvml.NVMLError:  # which GPU it was cannot be told any more: each is looked at
            self._look()
            return
        index = self._index.get(uuid if isinstance(uuid, str) else uuid.decode())
        if index is None:
            return
        if event.eventType == nvml.nvmlEventTypeDoubleBitEccError:
            self._tell(index, "uncorrectable ECC error")
            return
        number = int(event.eventData)
        if event.eventType == nvml.nvmlEventTypeXidCriticalError and number not in BY_PROGRAMS:
            words = _WORDS.get(number, "see NVIDIA's list of Xid errors")
            self._tell(index, f"Xid {number}: {words}")

    def _look(self) -> None:
        """Whether every GPU still answers."""
        nvml = self._nvml
        for index, handle in self._handles.items():
            try:
                nvml.nvmlDeviceGetMemoryInfo(handle)
            except nvml.NVMLError as error:
                if getattr(error, "value", None) == _GPU_IS_LOST:
                    self._tell(index, "it fell off the bus")

    def _tell(self, index: int, why: str) -> None:
        if index not in self._told:
            self._told.add(index)
            _log.error("GPU %d is unhealthy: %s", index, why)
            self._failed(index, why)
