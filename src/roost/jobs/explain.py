"""Why a job is where it is, when it will start, and the smallest change that would start it now.

    explain(core, job, ...)    of a job that was submitted
    plan(core, spec, ...)      of one that was not

Nothing here changes the core: questions are answered on copies of it, with the simulator for the
times. What would start a job now is found in ``remedies``. Where there are too many jobs for that,
or it would cost too much (``allowance``), times are estimates (``backlog``):

    estimate(core, job, ...)        takes what it needs at once, and answers when it is called,
    estimate_plan(core, spec, ...)  in any thread
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from roost.api.jobs import AheadView, ExplanationView, HolderView, PlanView
from roost.api.schema import encode
from roost.core.allocation import Allocation, Part
from roost.core.cells.telling import promise_of, tell
from roost.core.controller import Core, Policy
from roost.core.events import Submitted
from roost.core.ledger import Ledger
from roost.core.plan import Placer
from roost.core.reasons import NO_MATCH, Cause, Explanation, gpus, lack, too_late
from roost.core.spec import WHOLE, JobId, JobSpec, NodeSpec, QueueSpec, Resources, Shape
from roost.core.state import Job, Queue, Run
from roost.jobs.allowance import allowance
from roost.jobs.amounts import asked, counted, missing, there
from roost.jobs.backlog import NOT_TRIED, Backlog, too_many
from roost.jobs.remedies import remedies
from roost.jobs.views import placement_of
from roost.sim.forecast import Forecast, Present, forecast

#: How far to look, how much to simulate for one answer, and how wrong estimates may be.
_HORIZON_S = 30 * 86400.0
_EVENTS = 20_000
_PACES = (0.7, 1.5)
#: How many of those ahead are named, and of those that hold what a job needs.
_AHEAD = 20
_HOLDERS = 5
_PLANNED = JobId("(planned)")


def explain(  # noqa: PLR0913 - the core, the question, and the policy
    core: Core,
    job_id: JobId,
    policy: Policy,
    placer: Placer,
    now: float,
    *,
    said: Explanation | None = None,
) -> dict[str, Any]:
    """Why a job is where it is, ready for JSON; raises NotFound for an unknown one.

    ``said`` is what the policy said, where ``core`` is a copy to which it said nothing yet.
    """
    if too_many(core):
        return estimate(core, job_id, policy, now, said=said)()
    job = core.job(job_id)
    why = said or core.explain(job_id, limit=_AHEAD)
    found = _told(core, job, policy, now, why)
    if job.state.over or job.held or job.cancelling:
        return found
    spent, present = allowance(core), Present.of(core, now)
    expected = _forecast(present, job.id, policy, placer, to_its_end=True, spent=spent)
    if spent():
        return estimate(core, job_id, policy, now, said=said)()
    if job.waiting and why is not None:
        runs = _in_the_way(core, job, why.reason.cause)
        found["held_by"] = _holders(runs, lambda run: expected.times[run.id.job].ends_at)
    return found | _foreseen(present, job, policy, placer, expected, spent)


def estimate(
    core: Core, job_id: JobId, policy: Policy, now: float, *, said: Explanation | None = None
) -> Callable[[], dict[str, Any]]:
    """The same without a simulation: looks at the core now, and answers when it is called."""
    job = core.job(job_id)
    why = said or core.explain(job_id, limit=_AHEAD)
    found = _told(core, job, policy, now, why)
    if job.state.over or job.held or job.cancelling:
        return lambda: found
    backlog = Backlog.of(core, job, now)
    run = None if job.waiting else job.run
    holding = _in_the_way(core, job, why.reason.cause) if why is not None and job.waiting else []

    def answer() -> dict[str, Any]:
        if run is not None:
            starts_at = now if run.started_at is None else run.started_at
            times = {"starts_at": starts_at, "ends_at": backlog.ends_at(run)}
        else:
            times = _estimated(backlog)
        held_by = _holders(holding, backlog.ends_at)
        return found | {"held_by": held_by, "assumptions": backlog.assumptions()} | times

    return answer


def _estimated(backlog: Backlog) -> dict[str, Any]:
    starts_at = backlog.starts_at()
    others = [backlog.starts_at(pace) for pace in _PACES]
    return {
        "starts_at": starts_at,
        "starts_between": _between(starts_at, *others),
        "ends_at": None if starts_at is None else starts_at + backlog.lasts_s(),
    }


def _told(
    core: Core, job: Job, policy: Policy, now: float, why: Explanation | None
) -> dict[str, Any]:
    """What the core knows of where a job is, and why."""
    cause, reason, times = _situation(job, now)
    if why is not None and job.waiting:
        cause, reason = why.reason.cause.token, why.reason.text
    elif cause == "running" and job.run is not None:
        reason += _why_no_more(core, job.run, policy) + _by_promise(core, job)
    ahead, ahead_count = _ahead(core, job, why)
    return encode(
        ExplanationView(
            job.id,
            job.state.value,
            cause,
            reason,
            since=times.get("since"),
            not_before=times.get("not_before"),
            ahead=ahead,
            ahead_count=ahead_count,
        )
    )


def _foreseen(  # noqa: PLR0913 - the question, the policy, and how far to go
    present: Present,
    job: Job,
    policy: Policy,
    placer: Placer,
    expected: Forecast,
    spent: Callable[[], bool],
) -> dict[str, Any]:
    """What only trying can tell: when a job starts and ends, and what would start it now."""
    times = expected.times[job.id]
    found: dict[str, Any] = {
        "starts_at": times.starts_at,
        "ends_at": times.ends_at,
        "assumptions": list(expected.assumptions),
    }
    if times.starts_at is None or times.starts_at > present.now:
        others = [
            _forecast(present, job.id, policy, placer, pace=pace, spent=spent) for pace in _PACES
        ]
        starts = [forecast.times[job.id].starts_at for forecast in others]
        if not spent():  # else they were not followed far enough
            found["starts_between"] = _between(times.starts_at, *starts)
    if job.waiting:
        if not spent():
            found["remedies"] = remedies(present, job.id, policy, placer, spent)
        if spent() and not found.get("remedies"):
            found["assumptions"].append(NOT_TRIED)
    return found


def plan(core: Core, spec: JobSpec, policy: Policy, placer: Placer, now: float) -> dict[str, Any]:
    """What would become of a job that was not submitted yet, ready for JSON."""
    never = impossible(core, spec, placer)
    found = encode(PlanView(fits=False, never=never is not None, reason=never or ""))
    if never is not None:
        return found
    if too_many(core):
        return found | _estimated_plan(core, spec, placer, now)()
    copy = Present.of(core, now).core(policy, placer)
    copy.handle(Submitted(copy.now, _PLANNED, spec))
    run, why = copy.jobs[_PLANNED].run, copy.explain(_PLANNED)
    fits = run is not None and not run.after
    spent, present = allowance(core), Present.of(copy)
    expected = _forecast(present, _PLANNED, policy, placer, to_its_end=True, spent=spent)
    if spent():
        return found | _estimated_plan(core, spec, placer, now)()
    times = expected.times[_PLANNED]
    place = expected.places.get(_PLANNED) if run is None else run.allocation
    return found | {
        "fits": fits,
        "reason": _planned_reason(run, why),
        "starts_at": copy.now if fits else times.starts_at,
        "ends_at": times.ends_at,
        "placement": [] if place is None else [encode(part) for part in placement_of(place)],
        "assumptions": list(expected.assumptions),
    }


def estimate_plan(
    core: Core, spec: JobSpec, placer: Placer, now: float
) -> Callable[[], dict[str, Any]]:
    """The same without a simulation: looks at the core now, and answers when it is called."""
    never = impossible(core, spec, placer)
    found = encode(PlanView(fits=False, never=never is not None, reason=never or ""))
    if never is not None:
        return lambda: found
    rest = _estimated_plan(core, spec, placer, now)
    return lambda: found | rest()


def _estimated_plan(
    core: Core, spec: JobSpec, placer: Placer, now: float
) -> Callable[[], dict[str, Any]]:
    queue = core.queues.get(spec.queue) or Queue(QueueSpec(spec.queue))
    job = Job(_PLANNED, core.submitted, spec, queue, now, core.history.expected_s(spec))
    parts, reason = _room_now(core, job, placer, now)
    backlog = Backlog.of(core, job, now)

    def answer() -> dict[str, Any]:
        starts_at = now if parts else backlog.starts_at()
        return {
            "fits": bool(parts),
            "reason": reason,
            "starts_at": starts_at,
            "ends_at": None if starts_at is None else starts_at + backlog.lasts_s(),
            "placement": [encode(part) for part in placement_of(Allocation(parts))],
            "assumptions": backlog.assumptions(),
        }

    return answer


def _room_now(core: Core, job: Job, placer: Placer, now: float) -> tuple[tuple[Part, ...], str]:
    """Where there is room for a new job now that no other job waits for; else why there is none."""
    spec, ledger, limit = job.spec, core.ledger, job.queue.spec.limit_milli
    shape, milli = Shape(spec.workers.min, spec.resources, spec.roles, spec.within), job.gpu_milli
    if limit is not None and job.queue.used_milli + milli > limit:
        return (), lack(Cause.QUOTA, milli)
    if late := too_late(ledger, shape, now, job.remaining_s):
        return (), late
    parts = placer(ledger, shape)
    if parts is None:
        cause = Cause.CAPACITY if ledger.free_milli < milli else Cause.FRAGMENTATION
        return (), lack(cause, milli, spec.resources.kinds)
    if any(line.cause is Cause.TURN or line.said for line in core.waiting.open):
        return (), lack(Cause.TURN, milli)
    return parts, "there is room for it now"


def _planned_reason(run: Run | None, why: Explanation | None) -> str:
    if why is not None:
        return why.reason.text
    return _starting(run) if run is not None and run.after else "there is room for it now"


def impossible(core: Core, spec: JobSpec, placer: Placer) -> str | None:
    """Why a job can never run here, even if all were empty and mended; None: it can."""
    queue = core.queues.get(spec.queue)
    limit = None if queue is None else queue.spec.limit_milli
    least = spec.gpu_milli(spec.workers.min)
    if limit is not None and least > limit:
        return (
            f"it asks for {gpus(least)}, its queue {spec.queue!r} is limited to {limit / WHOLE:g}"
        )
    empty = Ledger()
    for node in core.ledger.order:
        empty.join(node.spec)
    for name, members in core.ledger.members.items():
        empty.set_pool(name, members)
    if not empty.order:
        return "the cluster has no nodes"
    shape = Shape(spec.workers.min, spec.resources, spec.roles, spec.within)
    if placer(empty, shape) is None:
        return _too_large(core, spec)
    if spec.cell and not _fits_cell(core, empty, spec, shape, placer):
        return f"it asks for {asked(spec)}; that cell is smaller, even if nothing else ran there"
    return None


def _fits_cell(core: Core, empty: Ledger, spec: JobSpec, shape: Shape, placer: Placer) -> bool:
    """Whether a job fits into the cell that it names; one that is not there now may come back."""
    cells = core.ledger.cells
    cell = None if cells is None else cells.dues.forest.cells.get(spec.cell)
    if cell is None:
        return True
    with empty.within({empty.nodes[node.id]: mask for node, mask in cell.masks}):
        return placer(empty, shape) is not None


def _too_large(core: Core, spec: JobSpec) -> str:
    wanted = [spec.resources, *(role.resources for role in spec.roles)]
    nodes = _matching(core, {need.pool for need in wanted})
    if not nodes:
        return f"it asks for {asked(spec)}; {NO_MATCH}"
    instead = missing(nodes, wanted) or (
        f"there is no such place, even if nothing else ran: {there(nodes, wanted)}"
    )
    if others := len(core.ledger.order) - len(nodes):
        does = "does" if others == 1 else "do"
        instead += f"; {counted(others, 'other node')} {does} not match what it asks for"
    return f"it asks for {asked(spec)}; {instead}"


def _matching(core: Core, pools: set[str]) -> list[NodeSpec]:
    """The nodes that are in one of these pools; all of them, where any node will do."""
    every = [node.spec for node in core.ledger.order]
    if "" in pools:
        return every
    known = {node for pool in pools for node in core.ledger.members.get(pool, ())}
    return [node for node in every if node.id in known]


# -- what the core knows ---------------------------------------------------------------------------


def _situation(job: Job, now: float) -> tuple[str, str, dict[str, float | None]]:
    """One cause token, a sentence, and the times that go with them."""
    run = job.run
    since: dict[str, float | None] = {"since": job.queued_at}
    if job.state.over:
        return "over", _ended(job), {"since": job.finished_at}
    if run is not None and (run.leaves or job.cancelling):
        return "leaving", f"its run is being stopped: {run.reason or 'cancelled'}", since
    if job.held:
        return "held", f"suspended by its user; it goes on with: roost resume {job.id}", since
    if run is None and not job.waiting:
        return "back-off", _next_try(job, now), {**since, "not_before": job.not_before}
    if run is not None and run.started_at is not None:
        return "running", _running(run), {"since": run.started_at}
    if run is not None and not run.parked:
        return "starting", _starting(run), {"since": run.placed_at}
    return "", "", since


def _ended(job: Job) -> str:
    if job.started_at is None:
        return f"{job.state.value} before it ran"
    failed = f", {job.failures} of them failed" if job.failures else ""
    return f"{job.state.value} after {counted(job.attempts, 'run')}{failed}"


def _next_try(job: Job, now: float) -> str:
    left = max(0.0, job.not_before - now)
    return (
        f"its last run failed ({job.failures} of {job.spec.max_retries + 1} tries); "
        f"the next one comes in {left:.0f} s"
    )


def _running(run: Run) -> str:
    if run.target is None:
        return f"runs with {counted(run.workers, 'worker')}"
    if run.target.workers == run.workers:
        return "runs, and is being moved"
    return f"runs, and is being changed from {run.workers} to {run.target.workers} workers"


def _why_no_more(core: Core, run: Run, policy: Policy) -> str:
    """Why an elastic run has no more workers; empty if it has all that it can use."""
    job, ledger = run.job, core.ledger
    most, need = job.spec.workers.max, job.spec.resources
    if run.target is not None or run.workers >= most:
        return ""
    queue, text = job.queue, f" of at most {most}: "
    limit = queue.spec.limit_milli
    if limit is not None and queue.used_milli + need.gpu_milli > limit:
        return f"{text}its queue {queue.spec.id} is at its limit"
    if not getattr(policy, "resizes", False):
        return f"{text}this policy changes no sizes by itself; you can: roost scale {job.id} {most}"
    if not ledger.candidates(need):
        waiting = core.waiting.count
        others = f", and {counted(waiting, 'job')} {'wait' if waiting > 1 else 'waits'}"
        return f"{text}there is no room for one more{others if waiting else ''}"
    return f"{text}one more would bring it less than the change costs, or it has just changed"


def _by_promise(core: Core, job: Job) -> str:
    """Whether a run is within what its queue was promised, where somebody was promised cells."""
    cells = core.ledger.cells
    if cells is None or not job.gpu_milli:
        return ""
    if promise := promise_of(cells, job):
        return f"; its queue {job.queue.spec.id} is promised {promise}"
    if not job.preemptible:
        return ""
    own = tell(cells, job.queue.spec.id)
    return "; it is beyond the promise of its queue" * bool(own) + (
        "; it makes room for queues that are promised cells"
    )


def _starting(run: Run) -> str:
    if not run.after:
        return "its workers are being started"
    others = counted(len(run.after), "other job")
    return f"a place is reserved for it, as soon as {others} left"


def _ahead(core: Core, job: Job, why: Explanation | None) -> tuple[tuple[AheadView, ...], int]:
    """Jobs that go first or have to leave, nearest to the front first, and how many they are."""
    names, count = (
        (list(why.ahead), why.ahead_count) if why is not None and job.waiting else ([], 0)
    )
    if job.run is not None:
        leaving = sorted({run_id.job for run_id in job.run.after})
        names, count = names + leaving, count + len(leaving)
    specs = ((name, core.jobs[name].spec) for name in names[:_AHEAD])
    return tuple(AheadView(name, spec.gpus, spec.user) for name, spec in specs), count


def _holders(runs: Iterable[Run], ends_at: Callable[[Run], float | None]) -> list[dict[str, Any]]:
    """Jobs that hold what a waiting one needs, those that will end first of all first."""
    found = []
    for run in runs:
        end = ends_at(run)
        found.append((math.inf if end is None else end, run.job.seq, run))
    return [
        encode(
            HolderView(
                run.id.job,
                run.job.spec.user,
                run.gpu_milli / WHOLE,
                None if math.isinf(end) else end,
            )
        )
        for end, _, run in sorted(found, key=itemgetter(0, 1))[:_HOLDERS]
    ]


def _in_the_way(core: Core, job: Job, cause: Cause) -> list[Run]:
    """Runs that hold what a job lacks: a part of its queue's limit, or devices that would do.

    Where the job lacks nothing but its turn, no run does.
    """
    runs = [run for run in core.runs.values() if not run.parked]
    if cause is Cause.TURN:
        return []
    if cause is Cause.QUOTA:
        return [run for run in runs if run.job.queue is job.queue]
    needs = (job.spec.resources, *(role.resources for role in job.spec.roles))
    return [run for run in runs if any(_would_do(core, run, need) for need in needs)]


def _would_do(core: Core, run: Run, need: Resources) -> bool:
    """Whether a run holds devices on which a worker with such a need could run."""
    if not run.gpu_milli and need.gpu_milli:
        return False
    nodes = core.ledger.nodes
    return not need.kinds or any(
        nodes[part.node].spec.kind in need.kinds for part in run.allocation.parts
    )


# -- what the simulator says -----------------------------------------------------------------------


def _forecast(present: Present, job: JobId, policy: Policy, placer: Placer, **how: Any) -> Forecast:
    return forecast(
        present, policy, placer, horizon_s=_HORIZON_S, limit_events=_EVENTS, job=job, **how
    )


def _between(*starts: float | None) -> list[float | None]:
    """The earliest and the latest of several estimates; None: later than anyone looked."""
    known = [at for at in starts if at is not None]
    if not known:
        return [None, None]
    return [min(known), max(known) if len(known) == len(starts) else None]
