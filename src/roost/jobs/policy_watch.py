"""A watch on decisions: from a thread of its own it stops a policy that does not come to an end.

The guard stops a policy at the verbs of its plan. One that loops without touching its plan, sleeps
or takes all memory is stopped from here: an exception is raised in its thread. That is done only
while it is in code that is not the core's, where nothing is half done. The exception arrives
between two steps of Python; a call that waits in the main thread is ended by a signal. What goes on
all the same (a loop that catches everything, a call into C that does not return) is *stuck*: who
began the watch is told, and nothing else can be done about that thread.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import ClassVar

#: How often the watch looks, in seconds.
_TICK_S = 0.5
#: How long a policy may do nothing at all, and the part of the time that is nothing.
IDLE_S = 30.0
_NOTHING = 0.02
#: How long it is told to stop, in seconds, before it counts as stuck.
STUCK_S = 10.0
#: What a decision may take of memory in any case, in bytes, and of what is free.
_LEAST_MEMORY, _MEMORY_PART = 1 << 30, 0.5
#: Code in which no exception may be raised: something may be half done there, or be undone.
_CORE = ("roost.core.", "roost.placement.")
_GUARDS = ("roost.jobs.policy_guard", __name__)
_PAGE = resource.getpagesize()


class PolicyStopped(BaseException):
    """Raised in a policy that does not end. No ``Exception``: few take it for one of theirs."""

    #: Of the class, for no instance can be raised in another thread.
    why: ClassVar[str] = "it was told to stop"

    def __str__(self) -> str:
        """Why it had to be stopped."""
        return self.why


@dataclass(slots=True, eq=False)
class DecisionRecord:
    """A thread that decides, and what was seen of it."""

    thread: int
    patience_s: float
    on_stuck: Callable[[str], None] | None = None
    #: Its CPU time when it was seen first since its last verb; None: not seen yet since then.
    since_cpu_s: float | None = None
    #: The memory of the process when it was seen first, and what may be added.
    since_bytes: int = 0
    most_bytes: float = 0.0
    seen_s: float = 0.0
    #: Why it has to stop, and for how long it has been told so.
    why: str = ""
    told_s: float = 0.0

    def renew(self) -> None:
        """Another decision begins in the same thread."""
        self.since_cpu_s, self.why, self.told_s, self.most_bytes = None, "", 0.0, 0.0


class PolicyWatch:
    """Looks at threads that decide, now and then; they only say when they begin and end."""

    def __init__(  # bounds that suit people; tests have less time
        self,
        *,
        tick_s: float = _TICK_S,
        idle_s: float = IDLE_S,
        stuck_s: float = STUCK_S,
        least_memory: int = _LEAST_MEMORY,
        memory_part: float = _MEMORY_PART,
    ) -> None:
        self._tick_s, self._idle_s, self._stuck_s = tick_s, idle_s, stuck_s
        self._least_memory, self._memory_part = least_memory, memory_part
        self._decisions: dict[int, DecisionRecord] = {}
        self._thread: threading.Thread | None = None
        #: Whether somebody may be deciding: otherwise the watch sleeps until somebody does.
        self._begun = threading.Event()
        #: Held while a thread is looked at: until it has let go, its decision has not ended.
        self._lock = threading.Lock()

    def current(self) -> DecisionRecord | None:
        """What is known of this thread, if it decides."""
        return self._decisions.get(threading.get_ident())

    def enter(self, patience_s: float, on_stuck: Callable[[str], None] | None = None) -> bool:
        """This thread begins to decide; whether it was not watched already."""
        me = threading.get_ident()
        known = self._decisions.get(me)
        if known is not None:
            with self._lock:
                known.renew()
            return False
        self._decisions[me] = DecisionRecord(me, patience_s, on_stuck)
        if not self._begun.is_set():
            self._begun.set()
        if self._thread is None or not self._thread.is_alive():  # it is in no forked process
            self._start()
        return True

    def leave(self, *, outermost: bool) -> None:
        """This thread has decided, and nothing is raised in it any more; or something is left."""
        me = threading.get_ident()
        while True:
            try:
                with self._lock:
                    known = self._decisions.get(me)
                    told = known is not None and known.why
                    if known is not None:
                        known.renew()
                    if outermost:
                        self._decisions.pop(me, None)
                if told:  # what was raised and has not arrived is taken back
                    _raise_in(me, None)
            except PolicyStopped:  # it arrived here
                continue
            return

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            if threading.current_thread() is threading.main_thread():
                _hear_signals()
            self._thread = threading.Thread(target=self._run, name="policy watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        tick = threading.Event()  # never set
        while True:
            self._begun.wait()
            tick.wait(self._tick_s)
            # Cleared before it looks: who begins to decide after that sets it again.
            self._begun.clear()
            if self._decisions:
                self._begun.set()
            for decision in list(self._decisions.values()):
                stuck = False
                with self._lock:
                    if self._decisions.get(decision.thread) is decision:
                        stuck = self._look(decision)
                if stuck and decision.on_stuck is not None:
                    decision.on_stuck(decision.why)

    def _look(self, decision: DecisionRecord) -> bool:
        """See how far a decision is, and tell it to stop; whether it is found to be stuck now."""
        decision.why = decision.why or self._judge(decision)
        if not decision.why:
            return False
        frame = sys._current_frames().get(decision.thread)  # noqa: SLF001 - no other way
        if frame is None or _module(frame).startswith((*_CORE, *_GUARDS)):
            return False
        was_stuck = decision.told_s > self._stuck_s
        decision.told_s += self._tick_s
        if not was_stuck:
            _raise_in(
                decision.thread, type("PolicyStopped", (PolicyStopped,), {"why": decision.why})
            )
        return decision.told_s > self._stuck_s and not was_stuck

    def _judge(self, decision: DecisionRecord) -> str:
        """Why a decision has to stop, if it has."""
        cpu_s = _cpu_s(decision.thread)
        if decision.since_cpu_s is None:
            decision.since_cpu_s, decision.seen_s = cpu_s, 0.0
            if not decision.most_bytes:
                decision.since_bytes = _memory()
                decision.most_bytes = max(self._least_memory, self._memory_part * _free_memory())
            return self._judge_memory(decision)
        # Counted in looks, not by a clock: a process that was halted has not been idle.
        decision.seen_s += self._tick_s
        used_s = cpu_s - decision.since_cpu_s
        if used_s > decision.patience_s:
            return f"it took more than {decision.patience_s:g} s without a look at its plan"
        if decision.seen_s > self._idle_s and used_s < _NOTHING * decision.seen_s:
            return f"it did nothing for {self._idle_s:g} s"
        return self._judge_memory(decision)

    @staticmethod
    def _judge_memory(decision: DecisionRecord) -> str:
        if _memory() - decision.since_bytes > decision.most_bytes:
            return f"it took more than {decision.most_bytes / (1 << 30):.1f} GiB of memory"
        return ""


#: The one watch of a process.
WATCH = PolicyWatch()


def _hear_signals() -> None:
    """Let SIGURG end calls that wait. Its default is to be ignored, which ends none."""
    if signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(signal.SIGURG, lambda *_: None)


def is_half_done(error: BaseException) -> bool:
    """Whether a policy was stopped in the midst of the core: it may not be possible to undo it."""
    trace = error.__traceback__
    if not isinstance(error, PolicyStopped) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return _module(trace.tb_frame).startswith(_CORE)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next step, or take one back."""
    what = ctypes.py_object() if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
    if error is not None and thread == threading.main_thread().ident:
        with suppress(ProcessLookupError):
            signal.pthread_kill(thread, signal.SIGURG)


def _cpu_s(thread: int) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


def _memory() -> int:
    """What this process has in memory, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def _free_memory() -> int:
    """What processes here can still take, in bytes: of the machine, or of this container."""
    free = os.sysconf("SC_AVPHYS_PAGES") * _PAGE
    with suppress(OSError, ValueError, IndexError):
        told = Path("/proc/meminfo").read_text(encoding="ascii").split("MemAvailable:")[1]
        free = int(told.split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # without a bound of its own it says "max"
        bound = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, bound - int((group / "memory.current").read_text(encoding="ascii")))
    return free
