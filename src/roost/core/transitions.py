"""The phases of a run, and what leads from one to the next: a table, as data.

    run.phase           one of ``RunPhase``; only ``advance`` changes it
    advance(run, why)   looks (phase, trigger) up in ``TABLE``; what is not there is ``Fatal``
    accepts(run, why)   whether it is there: a report that is not is old news

A run that was asked to stop remembers the phase before (``run.was``). Reports that were on their
way still move that on: the run may come up, or freeze, while it stops.

``docs/architecture.md`` has the table too; a test compares them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from roost.errors import Fatal

if TYPE_CHECKING:
    from roost.core.state import Run


# Numbers, not words: their hash and their comparison are those of int, which is fast.
class RunPhase(IntEnum):
    """Where a run is between its place and its end."""

    RESERVED = 0  # it has a place, which other runs have yet to leave
    STARTING = 1  # it was launched
    RUNNING = 2  # it is up, and nothing is asked of it
    EXPECTING = 3  # it is up and has another place, which other runs have yet to leave
    CHANGING = 4  # it was asked to change to its other place
    SUSPENDING = 5  # it was asked to leave its devices and to keep its state
    SUSPENDED = 6  # it has left them
    RECALLED = 7  # it was suspended and has a place, which other runs have yet to leave
    RESUMING = 8  # it was asked to go on
    FREEZING = 9  # it was asked to stand still on its devices, which it keeps
    FROZEN = 10  # it stands still
    STOPPING = 11  # it was asked to end
    ENDED = 12  # it is over and holds nothing


class Trigger(IntEnum):
    """What moves a run from phase to phase: a decision, a request, a failure or a report."""

    PLACED = 0  # a suspended run got a place
    READY = 1  # nothing is in its way any more
    STARTED = 2  # report: all workers are up
    RESHAPED = 3  # it got another allocation
    RESIZED = 4  # report: it holds the other allocation
    SHRANK = 5  # report: it goes on with fewer workers
    SUSPEND_ORDERED = 6  # it is to leave its devices
    FREEZE_ORDERED = 7  # it is to stand still where it is
    SUSPENDED = 8  # report: it did
    THAWED = 9  # it is to go on where it stands
    STOP_ORDERED = 10  # it is to end
    KEPT = 11  # what was asked of it last is called off
    WITHDRAWN = 12  # it lost the place that it waited for
    EXITED = 13  # report: it is over


def _table() -> dict[tuple[RunPhase, Trigger], RunPhase | None]:
    p, t = RunPhase, Trigger
    table: dict[tuple[RunPhase, Trigger], RunPhase | None] = {
        (p.RESERVED, t.READY): p.STARTING,
        (p.RESERVED, t.WITHDRAWN): p.ENDED,
        (p.STARTING, t.STARTED): p.RUNNING,
        (p.STARTING, t.SHRANK): p.STARTING,
        (p.STARTING, t.STOP_ORDERED): p.STOPPING,
        (p.RUNNING, t.RESHAPED): p.EXPECTING,
        (p.RUNNING, t.SHRANK): p.RUNNING,
        (p.RUNNING, t.SUSPEND_ORDERED): p.SUSPENDING,
        (p.RUNNING, t.FREEZE_ORDERED): p.FREEZING,
        (p.RUNNING, t.STOP_ORDERED): p.STOPPING,
        (p.EXPECTING, t.READY): p.CHANGING,
        (p.EXPECTING, t.KEPT): p.RUNNING,
        (p.EXPECTING, t.STOP_ORDERED): p.STOPPING,
        (p.CHANGING, t.RESIZED): p.RUNNING,
        (p.CHANGING, t.STOP_ORDERED): p.STOPPING,
        (p.SUSPENDING, t.SUSPENDED): p.SUSPENDED,
        (p.SUSPENDING, t.KEPT): p.RUNNING,
        (p.SUSPENDED, t.PLACED): p.RECALLED,
        (p.RECALLED, t.READY): p.RESUMING,
        (p.RECALLED, t.WITHDRAWN): p.SUSPENDED,
        (p.RESUMING, t.STARTED): p.RUNNING,
        (p.RESUMING, t.SHRANK): p.RESUMING,
        (p.RESUMING, t.STOP_ORDERED): p.STOPPING,
        (p.FREEZING, t.SUSPENDED): p.FROZEN,
        (p.FREEZING, t.STOP_ORDERED): p.STOPPING,
        (p.FROZEN, t.THAWED): p.RESUMING,
        (p.FROZEN, t.SHRANK): p.FROZEN,
        (p.FROZEN, t.STOP_ORDERED): p.STOPPING,
        (p.STOPPING, t.STARTED): p.STOPPING,
        (p.STOPPING, t.SUSPENDED): p.STOPPING,
        (p.STOPPING, t.KEPT): None,
    }
    # A run can end whenever its world says so.
    table.update({(phase, t.EXITED): p.ENDED for phase in p if phase is not p.ENDED})
    return table


#: The phase that follows; None: the one in which the run was asked to stop.
TABLE: Final[dict[tuple[RunPhase, Trigger], RunPhase | None]] = _table()

#: Phases in which a run waits until others have left its place: ``Run.after`` has them.
WAITING: Final = frozenset({RunPhase.RESERVED, RunPhase.RECALLED, RunPhase.EXPECTING})
#: Phases in which a run is to have another allocation: ``Run.target``.
RESHAPING: Final = frozenset({RunPhase.EXPECTING, RunPhase.CHANGING})
#: Phases in which a run gives up its place: others were promised what it still uses.
LEAVING: Final = frozenset({RunPhase.SUSPENDING, RunPhase.STOPPING})
#: Phases with a ``Run.reason``.
EXPLAINED: Final = LEAVING | {RunPhase.FREEZING}
#: Phases in which the workers of a run are up: ``Run.started_at`` says since when.
UP: Final = RESHAPING | {RunPhase.RUNNING, RunPhase.SUSPENDING, RunPhase.FREEZING}
#: Phases in which a run uses more or less than the books say.
MOVING: Final = WAITING | RESHAPING | LEAVING
#: Phases in which the books list nothing for a run.
UNBOOKED: Final = LEAVING | {RunPhase.SUSPENDED, RunPhase.ENDED}
#: Phases on the way back from a suspension.
RETURNING: Final = frozenset({RunPhase.RECALLED, RunPhase.RESUMING})

# A name of the module is found faster than a member of an enumeration.
_STOPPING: Final = RunPhase.STOPPING
#: A stop can be called off for a run that was in one of these.
_KEEPABLE: Final = frozenset({RunPhase.RUNNING, RunPhase.FROZEN})


def accepts(run: Run, trigger: Trigger) -> bool:
    """Whether the table has a next phase for a run."""
    phase = run.phase
    if (phase, trigger) not in TABLE:
        return False
    if phase is not _STOPPING or trigger is Trigger.EXITED:
        return True
    return run.was in _KEEPABLE if trigger is Trigger.KEPT else (run.was, trigger) in TABLE


def advance(run: Run, trigger: Trigger) -> None:
    """Move a run on. It loses the data that its next phase does not carry."""
    phase = run.phase
    new = TABLE.get((phase, trigger)) if phase is not _STOPPING else _while_stopping(run, trigger)
    if new is _STOPPING and phase is not _STOPPING:
        # With its stop a run gives up the change that it was to make.
        run.was = RunPhase.RUNNING if phase in RESHAPING else phase
    if new is None:
        was = f" (was {run.was.name})" if phase is _STOPPING else ""
        raise Fatal(f"run {run.id} is {phase.name}{was}: {trigger.name} cannot be")
    run.phase = new
    if run.target is not None and new not in RESHAPING:
        run.target = None
    if run.reason and new not in EXPLAINED and new is not RunPhase.ENDED:
        run.reason = ""


def _while_stopping(run: Run, trigger: Trigger) -> RunPhase | None:
    """The phase that follows for a run that was asked to stop; None, if there is none."""
    if not accepts(run, trigger):
        return None
    if trigger is Trigger.KEPT:
        return run.was
    if trigger is not Trigger.EXITED:
        run.was = TABLE[run.was, trigger] or run.was
    return TABLE[RunPhase.STOPPING, trigger]
