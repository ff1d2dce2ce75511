"""The thread that turns the rota of one device, and does other things only between two turns."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable

from roost.engines.local.gpu.time_slices import ActivityMeter, SliceRunner

_IDLE_S = 0.25
_ANSWER_S = 30.0
_PAUSE_S = 1.0


class SliceThread(threading.Thread):
    """The turns of one device, on a thread that also does what it is asked between them."""

    def __init__(self, device: int, meter: ActivityMeter) -> None:
        super().__init__(name=f"desk-{device}", daemon=True)
        self.rota = SliceRunner(meter)
        self._inbox: queue.Queue[Callable[[], None]] = queue.Queue()
        self._wake = threading.Event()
        self._open = True

    def run(self) -> None:
        """Turn after turn."""
        while self._open:
            try:
                self._once()
            except Exception:  # noqa: BLE001 - nobody may stay locked for a mistake of ours
                traceback.print_exc()
                self.rota.unlock()
                self._wait(_PAUSE_S)
        self.rota.close()

    def do(self, call: Callable[[], object]) -> None:
        """Have something done between two turns, and wait for it."""
        done = threading.Event()

        def task() -> None:
            try:
                call()
            finally:
                done.set()

        self._inbox.put(task)
        self._wake.set()
        done.wait(_ANSWER_S)

    def close(self) -> None:
        """No more turns; everybody on the rota is unlocked."""
        self._open = False
        self._wake.set()
        self.join(_ANSWER_S)

    def _once(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()
        if self.rota.tenants:
            self.rota.step(self._wait)
        else:
            self._wait(_IDLE_S)

    def _wait(self, for_s: float) -> None:
        self._wake.wait(for_s)
        self._wake.clear()
