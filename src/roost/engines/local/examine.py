"""What is true of a run, from its folder alone: the lock and the records tell, no process is asked.

lock held                         alive: adopt it
lock free, exit record            over, parked or between two generations: report it
lock free, start record only      lost: kill what is left of it, then report
lock free, neither                nothing has begun: it may be launched
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from roost.core.spec import RunId
from roost.engines import Ended, WorkerExit
from roost.engines.local import proc
from roost.engines.local.folder import Folder, Runs
from roost.engines.local.state import VERSION, State
from roost.errors import Fatal, NotFound

Kind = Literal["nothing", "alive", "parked", "between", "over", "lost"]


class Found(NamedTuple):
    """What is true of a run now."""

    kind: Kind
    state: State | None = None
    start: dict[str, Any] | None = None
    end: dict[str, Any] | None = None


def examine(runs: Runs, run: RunId) -> Found:
    """Look into a run's folder."""
    try:
        folder = runs.open(run)
    except NotFound:
        return Found("nothing")
    with folder:
        body = folder.read("run.json")
        if body is None:
            return Found("nothing")
        if body.get("version") != VERSION:
            raise Fatal(f"run {run} was written by another version of Roost: {body.get('version')}")
        state = State.decode(body)
        start = _current(folder.read("start.json"), state)
        lock = folder.lock()
        if lock is None:
            return Found("alive", state, start)
        try:
            # Once more: it may have ended after the first look.
            start = _current(folder.read("start.json"), state)
            return _settled(state, start, _current(folder.read("exit.json"), state))
        finally:
            os.close(lock)


def conclude(runs: Runs, run: RunId, cause: str, detail: str = "") -> dict[str, Any]:
    """Write down, as far as that is possible, an end that no shim wrote."""
    state = State(run, "")
    with suppress(OSError, NotFound), runs.open(run) as folder:
        body = folder.read("run.json")
        if body is not None:
            state = State.decode(body)
            folder.save("exit.json", _end(state, cause, detail))
    return _end(state, cause, detail)


def save(runs: Runs, state: State) -> None:
    """Write down what is wanted of a run."""
    with runs.open(state.run) as folder:
        folder.save("run.json", state.encode())


def last_words(runs: Runs, run: RunId) -> str:
    """What a shim that failed had to say."""
    try:
        with runs.open(run) as folder, _Errors(folder) as text:
            return text
    except (NotFound, OSError):
        return ""


def told(runs: Runs, run: RunId) -> dict[str, Any] | None:
    """What the job said last of itself."""
    try:
        with runs.open(run) as folder:
            return folder.read("progress.json")
    except NotFound:
        return None


def ended(run: RunId, end: dict[str, Any], now: float) -> Ended:
    """The report of an exit record. Its time is the time since, whatever the clock did."""
    when = float(end["time"])
    if end["boot"] == proc.boot_id():
        when = now - (time.clock_gettime(time.CLOCK_BOOTTIME) - float(end["uptime"]))
    exits = tuple(WorkerExit(*one) for one in end["exits"])
    return Ended(min(when, now), run, exits, end["cause"], end["detail"])


class _Errors:
    def __init__(self, folder: Folder) -> None:
        self._fd = os.open("shim.err", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder.fd)

    def __enter__(self) -> str:
        lines = os.pread(self._fd, 1 << 16, 0).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _settled(state: State, start: dict[str, Any] | None, end: dict[str, Any] | None) -> Found:
    if end is not None:
        if end["cause"] != "stopped" or not state.intent:
            return Found("over", state, start, end)
        state.used_s += float(end["ran_s"])
        return Found("parked" if state.intent == "suspend" else "between", state, start, end)
    if start is not None:
        return Found("lost", state, start)
    # It was written down that a generation would begin, and it did not.
    state.generation -= 1
    return Found("between" if state.generation else "nothing", state)


def _current(body: dict[str, Any] | None, state: State) -> dict[str, Any] | None:
    """A record of this generation; older ones have had their say."""
    if body is None or (body["token"], body["generation"]) != (state.token, state.generation):
        return None
    return body


def _end(state: State, cause: str, detail: str) -> dict[str, Any]:
    return {
        "version": VERSION,
        "token": state.token,
        "generation": state.generation,
        "boot": proc.boot_id(),
        "time": time.time(),
        "uptime": time.clock_gettime(time.CLOCK_BOOTTIME),
        "cause": cause,
        "detail": detail[:1000],
        "exits": [],
        "ran_s": 0.0,
    }
