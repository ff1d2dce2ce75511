"""Snapshots of version 1, with flags instead of a phase in runs, as those of version 2."""

from __future__ import annotations

from typing import Any, NamedTuple

from roost.core.transitions import RunPhase
from roost.core.wire import decode
from roost.errors import InvalidSpec

#: The reason of every run that was frozen: only users freeze runs, and their reason was not kept.
_FROZEN_BY = "suspended by its user"


class _Flags(NamedTuple):
    """What version 1 said of a run beside its figures."""

    after: tuple[Any, ...] = ()
    started_at: float | None = None
    stopping: str | None = None
    suspending: bool = False
    suspended: bool = False
    resuming: bool = False
    frozen: bool = False
    target: Any = None


_KINDS = {
    "stopping": str | None,
    "suspending": bool,
    "suspended": bool,
    "resuming": bool,
    "frozen": bool,
}


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """The same snapshot in version 2. Raises InvalidSpec where flags are malformed."""
    new = {**data, "version": 2}
    if "misfits" in new:
        new["out_of_range"] = new.pop("misfits")
    runs = data.get("runs")
    if isinstance(runs, list) and all(isinstance(run, dict) for run in runs):
        new["runs"] = [_run(run) for run in runs]
    return new


def _run(run: dict[str, Any]) -> dict[str, Any]:
    for name, kind in _KINDS.items():
        if name in run:
            try:
                decode(kind, run[name])
            except InvalidSpec as error:
                raise InvalidSpec(f"runs.{name}: {error}") from None
    flags = _Flags(**{name: run[name] for name in _Flags._fields if name in run})
    new = {name: value for name, value in run.items() if name not in _KINDS}
    phase, was = _phase(flags)
    if phase is not RunPhase.RUNNING:
        new["phase"] = phase.name.lower()
    if was is not RunPhase.RUNNING:
        new["was"] = was.name.lower()
    reason = _FROZEN_BY if phase is RunPhase.FREEZING else flags.stopping
    if reason:
        new["reason"] = reason
    return new


def _phase(run: _Flags) -> tuple[RunPhase, RunPhase]:
    """The phase of a run and, where it was asked to stop, the one before."""
    if run.suspended:
        return (RunPhase.RECALLED if run.resuming else RunPhase.SUSPENDED), RunPhase.RUNNING
    activity = _activity(run)
    if run.stopping is None or activity is RunPhase.SUSPENDING:
        return activity, RunPhase.RUNNING
    return RunPhase.STOPPING, activity


def _activity(run: _Flags) -> RunPhase:
    if run.suspending:
        return RunPhase.FREEZING if run.frozen else RunPhase.SUSPENDING
    if run.target is not None:
        return RunPhase.EXPECTING if run.after else RunPhase.CHANGING
    if run.started_at is not None:
        return RunPhase.RUNNING
    if run.resuming:
        return RunPhase.RESUMING
    if run.frozen:
        return RunPhase.FROZEN
    return RunPhase.RESERVED if run.after else RunPhase.STARTING
