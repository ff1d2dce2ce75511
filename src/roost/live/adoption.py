"""A new server takes over: devices, runs that are alive, nodes of another home."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from roost.core import Action, Core, JobId, NodeJoined, NodeLost, RunId
from roost.core.transitions import RunPhase
from roost.engines import Assigned, Ended, Report, RunOrder
from roost.errors import Conflict
from roost.jobs.record import JobRecord
from roost.live.recovery import pending


def check_hardware(core: Core, reports: Sequence[Report]) -> None:
    """Refuse to go on without the devices that live runs hold."""
    ended = {report.run for report in reports if isinstance(report, Ended)}
    for report in reports:
        if not isinstance(report, NodeJoined) or report.node.id not in core.ledger.nodes:
            continue
        node, spec = core.ledger.nodes[report.node.id], report.node
        for run in node.runs:
            beyond = any(g >= spec.gpus for part in run.allocation.parts for g in part.gpus)
            if run.id not in ended and (beyond or spec.kind != node.spec.kind):
                raise Conflict(
                    f"run {run.id} still holds a device of node {spec.id} that is not there: "
                    f"it had {node.spec.gpus} x {node.spec.kind}, now {spec.gpus} x {spec.kind}"
                    f"; start with what it had (--slots {node.spec.gpus}) until it is over"
                )


def left_behind(core: Core, reports: Sequence[Report], now: float) -> list[Report]:
    """The nodes of another home, which no server has any more."""
    here = {report.node.id for report in reports if isinstance(report, NodeJoined)}
    nodes = core.ledger.nodes.values()
    return [NodeLost(now, node.id) for node in nodes if node.here and node.id not in here]


def begun(core: Core) -> tuple[JobId, ...]:
    """The jobs that are not over and ran before."""
    return tuple(job.id for job in core.jobs.values() if job.attempts and not job.state.over)


def assigned(
    core: Core,
    records: Mapping[JobId, JobRecord],
    order: Callable[[Action, JobRecord], RunOrder],
    *,
    foreign: bool,
) -> dict[RunId, Assigned]:
    """What the journal says is alive, with the orders that it has no outcome of."""
    found: dict[RunId, Assigned] = {}
    for run in core.runs.values():
        action, record = pending(run), records[run.job.id]
        reserved = run.phase is RunPhase.RESERVED
        found[run.id] = Assigned(
            parked=run.parked or run.frozen,
            launched=not reserved,
            order=None if action is None else order(action, record),
            foreign=foreign,
        )
    return found
