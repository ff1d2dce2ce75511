"""The thread that carries out the turns of one device, and does other things between two turns."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable

from roost.engines.local.gpu.time_slices import ActivityMeter, SliceRunner

#: The longest sleep without tenants, wait for a task, and pause after a mistake.
_IDLE_S = 0.25
_ANSWER_S = 30.0
_PAUSE_S = 1.0


class SliceThread(threading.Thread):
    """Runs the turns of one device. Other threads reach its runner by ``do`` alone."""

    def __init__(self, device: int, meter: ActivityMeter) -> None:
        super().__init__(name=f"thread-{device}", daemon=True)
        self.runner = SliceRunner(meter)
        self._inbox: queue.Queue[Callable[[], None]] = queue.Queue()
        self._wake = threading.Event()
        self._open = True

    def run(self) -> None:
        """Turn after turn."""
        while self._open:
            try:
                self._once()
            except Exception:  # noqa: BLE001 - no tenant may stay locked for a mistake of ours
                traceback.print_exc()
                self.runner.unlock()
                self._wait(_PAUSE_S)
        self.runner.close()

    def do(self, call: Callable[[], object]) -> None:
        """Have something done between two turns, and wait for it."""
        done = threading.Event()

        def task() -> None:
            try:
                call()
            finally:
                done.set()

        # Queued, then woken: a turn that is under way ends early and finds the task.
        self._inbox.put(task)
        self._wake.set()
        # Not for ever: a driver that hangs in this thread must not take the caller with it.
        done.wait(_ANSWER_S)

    def close(self) -> None:
        """No more turns; all tenants of the device are unlocked."""
        self._open = False
        self._wake.set()
        self.join(_ANSWER_S)

    def _once(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()
        if self.runner.tenants:
            self.runner.step(self._wait)
        else:
            self._wait(_IDLE_S)

    def _wait(self, for_s: float) -> None:
        self._wake.wait(for_s)
        self._wake.clear()
