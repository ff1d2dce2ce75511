"""What is true of a run, from its folder alone: the lock and the records tell, no process is asked.

lock held                         alive: adopt it
lock free, exit record            over, parked or between two generations: report it
lock free, start record only      lost: kill what is left of it, then report
lock free, neither                nothing has begun: it may be launched
of another home                   nothing has begun here: its processes are not ours to touch
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args

from roost.core.spec import RunId
from roost.engines import Ended, Ending, WorkerExit
from roost.engines.local import processes
from roost.engines.local.run_folders import RunFolders
from roost.engines.local.run_record import READABLE, VERSION, RunRecord
from roost.errors import Fatal, InvalidSpec, NotFound

#: There is no folder, or there can be none.
_NOT_THERE = (NotFound, InvalidSpec)
#: What must be in a record.
_OF_ALL = {"token": str, "generation": int, "boot": str}
_START = {**_OF_ALL, "pid": int, "ticks": int, "phase": str}
_EXIT: dict[str, type | UnionType] = {
    **_OF_ALL,
    **dict.fromkeys(("time", "uptime", "ran_s"), int | float),
    "cause": str,
    "detail": str,
    "exits": list,
}
_PARTS = len(fields(WorkerExit))

_ERROR = re.compile(r"^\w*Error: \[Errno (\d{1,3})\] (.*)")

Kind = Literal["nothing", "alive", "parked", "between", "over", "lost"]


class RunStatus(NamedTuple):
    """What is true of a run now."""

    kind: Kind
    record: RunRecord | None = None
    start: dict[str, Any] | None = None
    end: dict[str, Any] | None = None


def examine(runs: RunFolders, run: RunId) -> RunStatus:
    """Look into a run's folder."""
    try:
        folder = runs.open(run)
    except _NOT_THERE:
        return RunStatus("nothing")
    with folder:
        record = _state(run, folder.read("run.json"))
        # Before the lock: in the copy of a home it is free, and the run is alive in the original.
        if record is not None and not runs.fence.admits(record.home):
            return RunStatus("nothing")
        start = _current(folder.read("start.json"), record, _START)
        # The lock decides. The start record is read before: a shim that ends in between has written
        # its end by the time its lock is free, and that is read below.
        lock = folder.lock()
        if lock is None:
            return RunStatus("alive", record, start)
        try:
            if record is None:
                return RunStatus("nothing")
            # Once more: it may have ended after the first look.
            start = _current(folder.read("start.json"), record, _START)
            return _settled(record, start, _current(folder.read("exit.json"), record, _EXIT))
        finally:
            os.close(lock)


def conclude(runs: RunFolders, run: RunId, cause: str, detail: str = "") -> dict[str, Any]:
    """Write down, as far as that is possible, an end that no shim wrote."""
    record = RunRecord(run, "")
    with suppress(*_NOT_THERE), runs.open(run) as folder:
        record = _state(run, folder.read("run.json")) or record
        if record.generation:
            with suppress(OSError):
                folder.save("exit.json", _end(record, cause, detail))
    return _end(record, cause, detail)


def save(runs: RunFolders, record: RunRecord) -> None:
    """Write down what is wanted of a run."""
    with runs.open(record.run) as folder:
        folder.save("run.json", record.encode())


def wanted(runs: RunFolders, run: RunId) -> RunRecord:
    """What is wanted of a run, whatever is true of it; raises NotFound."""
    with runs.open(run) as folder:
        record = _state(run, folder.read("run.json"))
    if record is None:
        raise NotFound(f"nothing is kept of run {run}")
    return record


def started(runs: RunFolders, run: RunId) -> dict[str, Any] | None:
    """What the shim of a run says of it now."""
    try:
        with runs.open(run) as folder:
            return folder.read("start.json")
    except _NOT_THERE:
        return None


def last_words(runs: RunFolders, run: RunId) -> str:
    """What a shim that failed had to say."""
    try:
        with runs.open(run) as folder:
            lines = folder.words("shim.err").strip().splitlines()
    except _NOT_THERE:
        return ""
    return lines[-1] if lines else ""


def short_of(status: RunStatus) -> OSError | None:
    """What the machine lacked when the shim could not start its workers; None: it is not that."""
    if status.kind not in {"nothing", "between"} or status.end is None:
        return None
    number = status.end.get("short")
    return OSError(number, os.strerror(number)) if isinstance(number, int) and number else None


def short_by(words: str) -> OSError | None:
    """The same, of a shim that did not come so far as to write a record."""
    found = _ERROR.search(words)
    return OSError(int(found[1]), found[2]) if found else None


def told(runs: RunFolders, run: RunId) -> dict[str, Any] | None:
    """What the job said last of itself."""
    try:
        with runs.open(run) as folder:
            return folder.read("progress.json")
    except _NOT_THERE:
        return None


def has_saved(runs: RunFolders, record: RunRecord) -> bool:
    """Whether a job has written anything where its checkpoints belong."""
    own = runs.path / record.run.job / "checkpoints"
    try:
        with os.scandir(record.checkpoints or own) as found:
            return any(found)
    except OSError:
        return False


def ended(run: RunId, end: dict[str, Any], now: float) -> Ended:
    """The report of an exit record. Its time is the time since, whatever the clock did."""
    when = float(end["time"])
    if end["boot"] == processes.boot_id():
        when = now - (time.clock_gettime(time.CLOCK_BOOTTIME) - float(end["uptime"]))
    exits = tuple(WorkerExit(*one) for one in end["exits"])
    when = min(when, now) if math.isfinite(when) else now
    return Ended(when, run, exits, end["cause"], end["detail"])


def _settled(
    record: RunRecord, start: dict[str, Any] | None, end: dict[str, Any] | None
) -> RunStatus:
    if end is not None:
        if end["cause"] == "never-started" and end.get("short"):  # no worker ever ran
            return RunStatus("between" if record.generation > 1 else "nothing", record, start, end)
        if end["cause"] != "stopped" or not record.intent:
            return RunStatus("over", record, start, end)
        record.used_s += float(end["ran_s"])
        return RunStatus("parked" if record.intent == "suspend" else "between", record, start, end)
    if start is not None:
        return RunStatus("lost", record, start)
    # It was written down that a generation would begin, and it did not.
    record.generation -= 1
    return RunStatus("between" if record.generation else "nothing", record)


def _state(run: RunId, body: dict[str, Any] | None) -> RunRecord | None:
    """What is wanted of a run; None if that is not to be read."""
    if body is None:
        return None
    if body.get("version") not in READABLE:
        raise Fatal(
            f"run {run} was written by a newer Roost (format {body.get('version')}, this one knows "
            f"{VERSION}): upgrade Roost"
        )
    try:
        return RunRecord.decode(body)
    except (KeyError, TypeError, ValueError):
        return None


def _current(
    body: dict[str, Any] | None, record: RunRecord | None, kinds: Mapping[str, type | UnionType]
) -> dict[str, Any] | None:
    """A record of this generation; older ones have had their say.

    A job may share the server's account and write what it likes: what is no record is not there.
    """
    if body is None or not all(isinstance(body.get(name), kinds[name]) for name in kinds):
        return None
    if record and (body["token"], body["generation"]) != (record.token, record.generation):
        return None
    fits = all(isinstance(one, list) and len(one) == _PARTS for one in body.get("exits", ()))
    return body if fits and body.get("cause", "lost") in get_args(Ending) else None


def _end(record: RunRecord, cause: str, detail: str) -> dict[str, Any]:
    return {
        "version": VERSION,
        "token": record.token,
        "generation": record.generation,
        "boot": processes.boot_id(),
        "time": time.time(),
        "uptime": time.clock_gettime(time.CLOCK_BOOTTIME),
        "cause": cause,
        "detail": detail[:1000],
        "exits": [],
        "ran_s": 0.0,
    }
