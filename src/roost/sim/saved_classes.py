"""What a saved simulation may be made of: a table of classes, and a few functions by name.

Of the modules of policies, data classes, named tuples and enumerations are admitted: a policy keeps
notes of its own. No class is called because a file says so: instances are filled in field by field.
Functions stand in ``CALLED`` alone: a policy, a key that it sorts by, the world that is simulated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum, EnumType
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import BuiltinFunctionType, FunctionType
from typing import Any, get_args

from roost.core.events import Event, Outcome
from roost.errors import InvalidSpec
from roost.policies import GROUP

#: Module → its classes that are the state of a simulation.
_CLASSES = {
    "roost.core.allocation": "Allocation Part Seat",
    "roost.core.cells.books": "CellBooks",
    "roost.core.cells.claim": "CellClaim",
    "roost.core.cells.dues": "Due Dues",
    "roost.core.cells.forest": "Cell Chain Forest",
    "roost.core.cells.holdings": "Holdings",
    "roost.core.cells.places": "Places _Asked",
    "roost.core.cells.promise": "CellPromise",
    "roost.core.cells.refused_lines": "ClaimVersion RefusedLines _Refusal",
    "roost.core.cells.site": "CellSite InnerLevel OuterCell",
    "roost.core.cluster_state": "ClusterState",
    "roost.core.controller": "Core",
    "roost.core.demand": "Demand Need Typical",
    "roost.core.decisions": "Place Reshape Evict SetAside Reclaim",
    "roost.core.events": " ".join(kind.__name__ for kind in (*get_args(Event), Outcome)),
    "roost.core.history": "History Profile Spending Spent",
    "roost.core.ledger": "Ledger",
    "roost.core.node": "Device Node Notice",
    "roost.core.observed": "Setting Company Mean Timing Observed",
    "roost.core.occupancy": "Occupancy",
    "roost.core.plan": "Plan",
    "roost.core.quota": "Quota",
    "roost.core.quota_tree": "Account Tree",
    "roost.core.reasons": "Cause Reason",
    "roost.core.spec": (
        "RunId Qos Way Level Range Resources Role Training Costs JobSpec Shape NodeSpec QueueSpec"
    ),
    "roost.core.state": "JobState Queue Job Run",
    "roost.core.transitions": "RunPhase Trigger",
    "roost.core.waiting": "Line Waiting",
    "roost.perf.convergence": "Rule Remaining LossCurve",
    "roost.perf.goodput": "BatchLimits Tuned",
    "roost.perf.hybrid": "ReplicaSplit HybridModel",
    "roost.perf.interference": "Interference PairSpeed",
    "roost.perf.kinds": "Fit _Seen Estimates _Known",
    "roost.perf.pairs": "Pairs",
    "roost.perf.servers": "Mode ServerSample ServerModel Fits",
    "roost.perf.speed": "Speed",
    "roost.perf.steps": "StepSample StepModel Look Objective",
    "roost.perf.uncertainty": "LogNormal Prior Measurements Belief",
    "roost.placement.even": "Portion Refusals Even",
    "roost.placement.fragment_placers": "Fgd Usable Compact",
    "roost.placement.placers": "FirstFit Cells Pack Consolidate Spread Topology Anywhere",
    "roost.sim.failures": "Failures Breakdowns",
    "roost.sim.simulation": "Setup Simulation",
    "roost.sim.worlds.rates": "TrueJob TrueRun Gauges EndedHold World",
    "roost.sim.worlds.sharing": "SharingWorld",
    "roost.traces.workload": "TraceJob BadRow Workload",
}
#: Where a function or a method may stand: a class and its field.
CALLED = {
    ("roost.core.controller.Core", "policy"),
    ("roost.core.waiting.Waiting", "key"),
    ("roost.sim.simulation.Setup", "policy"),
    ("roost.sim.simulation.Setup", "world"),
}
#: The functions of Roost that stand there, but for those of policies.
_FUNCTIONS = {
    "roost.core.waiting": "by_arrival",
    "roost.sim.worlds.rates": "World",
    "roost.sim.worlds.sharing": "SharingWorld",
}


def full_name(thing: Any) -> str:
    """The name under which ``find_class`` and ``find_function`` know it."""
    return f"{thing.__module__}.{thing.__qualname__}"


@cache
def find_class(name: str) -> type:
    """The class of that name, if it is data of a simulation."""
    module, _, short = name.rpartition(".")
    if short in _CLASSES.get(module, "").split():
        found: type = getattr(import_module(module), short)
        return found
    of_policy = _of_policies(module, short)
    if isinstance(of_policy, type):
        kind: type = of_policy
        if is_dataclass(kind) or issubclass(kind, tuple | Enum):
            return kind
    raise InvalidSpec(f"{name!r} does not belong there")


def find_function(name: str) -> Callable[..., Any]:
    """The function of that name, if a simulation may call it."""
    module, _, short = name.rpartition(".")
    if short in _FUNCTIONS.get(module, "").split():
        found: Callable[..., Any] = getattr(import_module(module), short)
        return found
    found = _of_policies(module, short)
    # Functions of compiled modules are built in.
    if isinstance(found, FunctionType | BuiltinFunctionType):
        return found
    raise InvalidSpec(f"{name!r} does not belong there")


def find_method(owner: object, name: str) -> Callable[..., Any]:
    """A policy's own method, such as the key by which it sorts."""
    kind = type(owner)
    if _homes_policies(kind.__module__) and not name.startswith("_"):
        for base in kind.__mro__:
            # Looked up without asking the object: a property is not called, nor a field taken.
            found = vars(base).get(name)
            if found is not None and (
                isinstance(found, FunctionType) or type(found).__name__ == "method_descriptor"
            ):
                method: Callable[..., Any] = found.__get__(owner, kind)
                return method
    raise InvalidSpec(f"{kind.__name__}.{name} does not belong there")


def find_member(name: str, member: str) -> Enum:
    """The member of an enumeration."""
    kind = find_class(name)
    if isinstance(kind, EnumType) and member in kind.__members__:
        found: Enum = kind.__members__[member]
        return found
    raise InvalidSpec(f"{name}.{member} does not belong there")


def import_policy(module: str) -> None:
    """Import the module of an installed policy, and with it the modules that it uses."""
    if module not in _homes():
        raise InvalidSpec(f"no installed policy is in {module!r}")
    import_module(module)


def home_of(module: str) -> str | None:
    """The module of a policy's entry point in or below which a module is, if there is one."""
    return next(
        (home for home in _homes() if module == home or module.startswith(f"{home}.")), None
    )


def _homes_policies(module: str) -> bool:
    """Whether policies live there: Roost's own, or installed ones in their module or below it."""
    return module.startswith("roost.policies.") or home_of(module) is not None


def _homes() -> set[str]:
    return {entry.module for entry in entry_points(group=GROUP)}


def _of_policies(module: str, name: str) -> Any:
    """What a module of policies defines under a name, or None.

    It must have been imported by the policy already: nothing is imported for a file's sake.
    """
    if not _homes_policies(module) or module not in sys.modules:
        return None
    found = vars(sys.modules[module]).get(name)
    return found if getattr(found, "__module__", None) == module else None
