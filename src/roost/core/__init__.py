"""The vocabulary, the plan and the controller: no I/O, no clock, no randomness.

Names are loaded when they are used: a program that only needs the vocabulary, such as the job file
or the client, loads no ledger and no controller.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.core.actions import Action, Launch, Migrate, Resize, Resume, Stop, Suspend
    from roost.core.allocation import WORKER, Allocation, Part
    from roost.core.controller import Core, Policy
    from roost.core.decisions import Decision, Evict, Place, Reclaim, Reshape, SetAside
    from roost.core.events import (
        Adopted,
        CancelRequested,
        Deleted,
        Event,
        Exited,
        GpuFailed,
        GpuRestored,
        MaintenanceCancelled,
        MaintenancePlanned,
        Measured,
        MigrateRequested,
        NodeChanged,
        NodeCordoned,
        NodeJoined,
        NodeLost,
        NodeUncordoned,
        Outcome,
        PoolChanged,
        Progressed,
        Protected,
        QueueChanged,
        QueueDeleted,
        Resized,
        ResumeRequested,
        ScaleRequested,
        Shrank,
        Started,
        Submitted,
        Suspended,
        SuspendRequested,
        Woke,
    )
    from roost.core.ledger import Ledger
    from roost.core.node import Node
    from roost.core.observed import Observed, Setting
    from roost.core.plan import Placer, Plan
    from roost.core.reasons import Cause, Explanation, Reason
    from roost.core.spec import (
        WHOLE,
        Costs,
        JobId,
        JobSpec,
        Level,
        NodeId,
        NodeSpec,
        Qos,
        QueueId,
        QueueSpec,
        Range,
        Resources,
        Role,
        RunId,
        Shape,
        Training,
        Way,
    )
    from roost.core.state import Job, JobState, Queue, Run
    from roost.core.transitions import RunPhase
    from roost.core.waiting import Line, Waiting

__all__ = [
    "WHOLE",
    "WORKER",
    "Action",
    "Adopted",
    "Allocation",
    "CancelRequested",
    "Cause",
    "Core",
    "Costs",
    "Decision",
    "Deleted",
    "Event",
    "Evict",
    "Exited",
    "Explanation",
    "GpuFailed",
    "GpuRestored",
    "Job",
    "JobId",
    "JobSpec",
    "JobState",
    "Launch",
    "Ledger",
    "Level",
    "Line",
    "MaintenanceCancelled",
    "MaintenancePlanned",
    "Measured",
    "Migrate",
    "MigrateRequested",
    "Node",
    "NodeChanged",
    "NodeCordoned",
    "NodeId",
    "NodeJoined",
    "NodeLost",
    "NodeSpec",
    "NodeUncordoned",
    "Observed",
    "Outcome",
    "Part",
    "Place",
    "Placer",
    "Plan",
    "Policy",
    "PoolChanged",
    "Progressed",
    "Protected",
    "Qos",
    "Queue",
    "QueueChanged",
    "QueueDeleted",
    "QueueId",
    "QueueSpec",
    "Range",
    "Reason",
    "Reclaim",
    "Reshape",
    "Resize",
    "Resized",
    "Resources",
    "Resume",
    "ResumeRequested",
    "Role",
    "Run",
    "RunId",
    "RunPhase",
    "ScaleRequested",
    "SetAside",
    "Setting",
    "Shape",
    "Shrank",
    "Started",
    "Stop",
    "Submitted",
    "Suspend",
    "SuspendRequested",
    "Suspended",
    "Training",
    "Waiting",
    "Way",
    "Woke",
]

#: The modules of these names, each after those that it imports.
_MODULES = (
    *("spec", "allocation", "actions", "events", "decisions", "observed", "reasons"),
    *("transitions", "state", "node", "ledger", "waiting", "plan", "controller"),
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = vars(import_module(f"{__name__}.{module}")).get(name)
            if found is not None:
                globals()[name] = found  # asked once
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
