"""How long a step waits until the gradients of all workers have come together.

DDP brings them together while the backward pass still computes, so that only the end of it is
waited for: from when this worker's last gradient is there until the backward pass is over. A hook
on the parameter with the last gradient takes the time; on a GPU it puts an event into the
stream, which is read later, so that nothing waits for it. One step is looked at now and then,
and the others pay for a test of a list.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import nn

#: So many of the last looks count; one that was disturbed says nothing.
_LOOKS = 9


class SyncTime:
    """Looks at a step when asked to, and says what such steps waited."""

    def __init__(self, parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        self._parameters, self._on_gpu = parameters, device.type == "cuda"
        #: The parameter with the last gradient when all were watched.
        self._last: nn.Parameter | None = None
        self._hooks: list[Any] = []
        self._computed: tuple[nn.Parameter | None, Any] | None = None
        #: Two events of a stream that may not have come to them yet.
        self._pending: tuple[Any, Any] | None = None
        self._seen: deque[float] = deque(maxlen=_LOOKS)

    @property
    def seconds(self) -> float | None:
        """Seconds of a step, of late; None before one was looked at."""
        self._read()
        return median(self._seen) if self._seen else None

    def look(self) -> None:
        """Look at the next step."""
        if self._hooks:
            return
        watched = self._parameters if self._last is None else [self._last]
        self._computed = None
        hook: Any = nn.Parameter.register_post_accumulate_grad_hook
        self._hooks = [hook(one, self._came) for one in watched]

    def skip(self) -> None:
        """Do not look at this step: it is not like the others."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def forget(self) -> None:
        """Others train together from now on."""
        self.skip()
        self._seen.clear()
        self._pending = None

    def computed(self) -> None:
        """All gradients of this worker are there, and none of the others'."""
        if self._hooks:
            last = None if self._computed is None else self._computed[0]
            self._computed = last, self._mark()

    def ended(self) -> None:
        """The backward pass is over, and the gradients of all have come together."""
        if not self._hooks:
            return
        found, self._last = self._computed, None
        if found is not None:
            self._read()
            self._last, began = found
            self._pending = began, self._mark()
        self.skip()

    def _came(self, parameter: nn.Parameter) -> None:
        self._computed = parameter, self._mark()

    def _mark(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _read(self) -> None:
        """Take in the last look, if the GPU has come that far."""
        if self._pending is None:
            return
        began, ended = self._pending
        if not self._on_gpu:
            self._seen.append(ended - began)
        elif ended.query():
            self._seen.append(began.elapsed_time(ended) / 1000.0)
        else:
            return
        self._pending = None
