"""A core as JSON: what a restart must bring back, without folding the journal from its beginning.

    load(dump(core), policy, placer)    a core that goes on as one that was folded from the journal

A driver keeps it as lines instead: a head, and a line for each job, so that only those of jobs that
changed need to be written anew (``head_line``, ``job_line``, ``load_lines``).

Kept are facts, not what follows from them: the books of nodes and queues, the masks and the lines
are worked out anew, so a snapshot that contradicts itself is refused. What policies keep for
themselves (memos, wake-ups, reasons, the order of lines) is no part of it.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from roost.core.actions import Action
from roost.core.allocation import Allocation, Part
from roost.core.cells.claim import CellClaim
from roost.core.controller import Core, Policy
from roost.core.demand import Need
from roost.core.events import Event, MigrateRequested
from roost.core.history_codec import (
    ObservedRecord,
    ProfileRecord,
    SpentRecord,
    SuccessRecord,
    decode_observed,
    encode_observed,
    profile_records,
    restore,
    spent_records,
    success_records,
)
from roost.core.node import Notice, Window, devices, mask_of
from roost.core.plan import Placer
from roost.core.reasons import Cause
from roost.core.snapshot_v1 import upgraded
from roost.core.spec import WHOLE, Contingent, JobId, JobSpec, NodeId, NodeSpec, QueueSpec, RunId
from roost.core.state import Job, JobState, Queue, Run, needs
from roost.core.transitions import RESHAPING, UP, WAITING, RunPhase
from roost.core.wire import canonical, decode, encode, reader
from roost.errors import Fatal, InvalidSpec, NotFound

VERSION = 2

#: Stands for what a job asks for where that is told apart.
_NO_SPEC = JobSpec()
_CAUSES = len(Cause)
#: What is told of a job that has only waited so far.
_NEWCOMER = frozenset(
    ("id", "seq", "spec", "submitted_at", "run_time_s", "waits", "queued_at", "waiting")
)
_FLOAT = {float}
#: Lines that are parsed at once.
_AT_ONCE = 500

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def dump(core: Core, *, over: bool = True) -> dict[str, Any]:
    """Everything of a core that a restart must bring back, ready for JSON.

    ``over=False`` leaves out jobs that are over, as if they were deleted.
    """
    jobs = (job for job in core.jobs.values() if over or not job.state.over)
    data: dict[str, Any] = encode(_core_record(core, (_job_record(core, job) for job in jobs)))
    return data


def head_line(core: Core) -> str:
    """The same as one line of JSON, without the jobs."""
    return canonical(encode(_core_record(core, ())))


def job_line(core: Core, job: Job) -> str:
    """A job as one line: what became of it, and what was asked for."""
    record = _job_record(core, job)
    data = encode(record._replace(spec=_NO_SPEC))
    data.pop("spec", None)
    return f"{canonical(data)}\t{canonical(encode(record.spec))}"


def load_lines(head: str, jobs: Iterable[str], policy: Policy, placer: Placer) -> Core:
    """The core that a head and the lines of its jobs tell of; raises as ``load`` does."""
    data = _parsed(head)
    _check_version(data)
    if data.get("jobs") or data["version"] != VERSION:
        raise InvalidSpec("the head of a snapshot in lines has jobs, or is of an older version")
    specs: dict[str, JobSpec] = {}

    def spec(text: str) -> JobSpec:
        # Jobs that ask for the same share what they ask for.
        if (known := specs.get(text)) is None:
            known = specs[text] = decode(JobSpec, _parsed(text))
        return known

    read = reader(_JobRecord, spec=spec)

    def record(about: dict[str, Any]) -> _JobRecord:
        found: _JobRecord = _newcomer(about, spec) or read(about)
        return found

    data["jobs"] = []
    return _filled(decode(_CoreRecord, data), map(record, _told(jobs)), policy, placer)


def _newcomer(about: dict[str, Any], spec: Callable[[str], JobSpec]) -> _JobRecord | None:
    """A job that came and waits since, as nearly all do where they are many; None: another one.

    It tells the same as any other does, in a fraction of the time: all kinds are known beforehand.
    """
    if type(about) is not dict or about.keys() != _NEWCOMER or type(about["waits"]) is not list:
        return None
    name, seq, run_time_s, waits = about["id"], about["seq"], about["run_time_s"], about["waits"]
    submitted_at, queued_at = about["submitted_at"], about["queued_at"]
    times = [submitted_at, queued_at, 0.0 if run_time_s is None else run_time_s, *waits]
    plain = type(name) is str and type(seq) is int and about["waiting"] is True
    if not plain or set(map(type, times)) != _FLOAT or not math.isfinite(sum(times)):
        return None
    return _JobRecord(
        JobId(name),
        seq,
        spec(about["spec"]),
        submitted_at,
        run_time_s,
        tuple(waits),
        queued_at=queued_at,
        waiting=True,
    )


def _told(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What lines tell of their jobs, with what each asks for as a text; many are parsed at once."""
    left = iter(lines)
    while some := [line.partition("\t") for line in islice(left, _AT_ONCE)]:
        if not all(tab for _, tab, _ in some):
            raise InvalidSpec("a line of a snapshot does not say what its job asks for")
        found = _parsed(f'{{"jobs":[{",".join([told for told, _, _ in some])}]}}')["jobs"]
        if len(found) != len(some):
            raise InvalidSpec("a line of a snapshot is about more than one job, or none")
        for about, (_, _, asked) in zip(found, some, strict=True):
            if type(about) is dict:  # what is not, is refused by what reads it
                about["spec"] = asked
            yield about


def _core_record(core: Core, jobs: Iterable[_JobRecord]) -> _CoreRecord:
    ledger = core.ledger
    nodes = (
        _NodeRecord(
            node.spec,
            node.here,
            devices(((1 << node.spec.gpus) - 1) & ~node.healthy),
            tuple(run.id for run in node.runs),
            node.cordon,
            node.draining,
            tuple(_DeviceNotice(*told) for told in sorted(node.notices.items())),
        )
        for node in ledger.order
    )
    return _CoreRecord(
        VERSION,
        core.now,
        core.submitted,
        core.finished,
        tuple(nodes),
        tuple(ledger.switches),
        tuple(queue.spec for queue in core.queues.values()),
        tuple(jobs),
        tuple(_run_record(run) for run in core.runs.values()),
        tuple(_leaving(core)),
        tuple(job.id for job in core.out_of_range.values() if _is_out_of_range(core, job)),
        tuple(core.history.service),
        success_records(core.history),
        *_pending(core),
        profile_records(core.history),
        spent_records(core.history),
        tuple(
            _PoolRecord(
                name, nodes, ledger.preferred.get(name, ()), ledger.contingents.get(name, ())
            )
            for name, nodes in ledger.members.items()
        ),
        tuple(ledger.windows),
        tuple(_ClaimRecord(*one) for one in ledger.cells.holdings.claims.items())
        if ledger.cells
        else (),
        tuple(_NeedRecord(count, *need) for need, count in ledger.demand.counts.items()),
    )


def load(data: Any, policy: Policy, placer: Placer) -> Core:
    """The core that ``dump`` was given, with this policy and placer.

    Raises InvalidSpec where the data is of another version, is malformed or contradicts itself.
    """
    if _check_version(data) == 1:
        data = upgraded(data)
    state: _CoreRecord = decode(_CoreRecord, data)
    return _filled(state, state.jobs, policy, placer)


def _check_version(data: Any) -> int:
    version = data.get("version") if isinstance(data, dict) else None
    if type(version) is not int or not 1 <= version <= VERSION:
        known = f"versions 1 to {VERSION}"
        raise InvalidSpec(f"a snapshot of version {version!r}; this Roost reads {known}")
    return version


def _parsed(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidSpec(f"a snapshot is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidSpec("a line of a snapshot is no object")
    return data


def _filled(state: _CoreRecord, jobs: Iterable[_JobRecord], policy: Policy, placer: Placer) -> Core:
    core = Core(policy, placer)
    try:
        _fill(core, state, jobs)
    except (Fatal, NotFound) as error:
        raise InvalidSpec(f"the snapshot contradicts itself: {error}") from error
    return core


def digest(core: Core) -> str:
    """The state in short: equal for a core and for one that was folded from its journal.

    How long a job waited for which reason is left out: reasons are the policy's.
    """
    data = dump(core)
    for job in data["jobs"]:
        job.pop("waits", None)
    if "out_of_range" in data:
        data["out_of_range"].sort()
    return hashlib.sha256(canonical(data).encode()).hexdigest()


# -- what is kept ----------------------------------------------------------------------------------


class _DeviceNotice(NamedTuple):
    """Why a device is not healthy."""

    gpu: int
    notice: Notice


class _NodeRecord(NamedTuple):
    """A node; ``up``: it is here, cordoned or not. ``runs`` are in the order of its list."""

    spec: NodeSpec
    up: bool = True
    broken: tuple[int, ...] = ()
    runs: tuple[RunId, ...] = ()
    cordon: Notice | None = None
    draining: bool = False
    notices: tuple[_DeviceNotice, ...] = ()


class _PoolRecord(NamedTuple):
    """A pool, its nodes, groups of them that are preferred, and how a gang is divided."""

    name: str
    nodes: frozenset[NodeId]
    preferred: tuple[frozenset[NodeId], ...] = ()
    contingents: tuple[Contingent, ...] = ()


class _JobRecord(NamedTuple):
    """A job; see ``Job``. ``waits`` are settled up to the time of the snapshot."""

    id: JobId
    seq: int
    spec: JobSpec
    submitted_at: float
    run_time_s: float | None
    waits: tuple[float, ...]
    state: JobState = JobState.QUEUED
    attempts: int = 0
    failures: int = 0
    saved_s: float = 0.0
    attained_gpu_s: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    queued_at: float = 0.0
    not_before: float = 0.0
    preemptions: int = 0
    resizes: int = 0
    held: bool = False
    cancelling: bool = False
    protected: str = ""
    waiting: bool = False
    observed: ObservedRecord | None = None


class _RunRecord(NamedTuple):
    """A run; see ``Run``."""

    id: RunId
    allocation: Allocation
    placed_at: float
    done_s: float
    rate: float
    after: tuple[RunId, ...] = ()
    started_at: float | None = None
    ends_at: float = math.inf
    measured_at: float = 0.0
    changed_at: float = 0.0
    phase: RunPhase = RunPhase.RUNNING
    was: RunPhase = RunPhase.RUNNING
    reason: str = ""
    target: Allocation | None = None
    leaving: tuple[Part, ...] = ()


class _LeavingRecord(NamedTuple):
    """A run that holds what others were promised, and the runs that wait for it, in order."""

    run: RunId
    waiters: tuple[RunId, ...] = ()


class _ClaimRecord(NamedTuple):
    """The claims on cells by which a job has its place."""

    job: JobId
    claims: tuple[CellClaim, ...]


class _NeedRecord(NamedTuple):
    """What so many workers asked for, as far as it matters to those who come after them."""

    workers: int
    cpu_milli: int
    share_milli: int
    gpus: int
    kinds: tuple[str, ...] = ()


class _CoreRecord(NamedTuple):
    """A core. ``actions`` to ``moves`` are left behind by a batch refused in its middle."""

    version: int
    now: float
    submitted: int
    finished: int
    nodes: tuple[_NodeRecord, ...]
    switches: tuple[str, ...]
    queues: tuple[QueueSpec, ...]
    jobs: tuple[_JobRecord, ...]
    runs: tuple[_RunRecord, ...]
    leaving: tuple[_LeavingRecord, ...] = ()
    out_of_range: tuple[JobId, ...] = ()
    service: tuple[float, ...] = ()
    succeeded: tuple[SuccessRecord, ...] = ()
    actions: tuple[Action, ...] = ()
    replan: Event | None = None
    moves: tuple[MigrateRequested, ...] = ()
    profiles: tuple[ProfileRecord, ...] = ()
    costs: tuple[SpentRecord, ...] = ()
    pools: tuple[_PoolRecord, ...] = ()
    windows: tuple[Window, ...] = ()
    claims: tuple[_ClaimRecord, ...] = ()
    #: None: it was written before this was kept.
    demand: tuple[_NeedRecord, ...] | None = None


# -- out -------------------------------------------------------------------------------------------

_JOB = tuple(name for name in _JobRecord._fields if name not in ("waits", "observed"))
_job_fields = attrgetter(*_JOB)
_RUN = tuple(name for name in _RunRecord._fields if name != "after")
_run_fields = attrgetter(*_RUN)


def _job_record(core: Core, job: Job) -> _JobRecord:
    waits = tuple(core.waiting.waits(job, core.now))
    told = dict(zip(_JOB, _job_fields(job), strict=True))
    return _JobRecord(**told, waits=waits, observed=encode_observed(job.observed))


def _run_record(run: Run) -> _RunRecord:
    after = tuple(sorted(run.after))
    return _RunRecord(**dict(zip(_RUN, _run_fields(run), strict=True)), after=after)


def _leaving(core: Core) -> Iterable[_LeavingRecord]:
    """Which run waits for which; a waiter that is gone for good waits no longer."""
    for run_id, waiters in core.occupancy._leaving.items():  # noqa: SLF001 - its own other half
        here = (run.id for run in waiters if core.runs.get(run.id) is run)
        yield _LeavingRecord(run_id, tuple(here))


def _is_out_of_range(core: Core, job: Job) -> bool:
    """Whether a job's run really has too few or too many workers, or will: the core looks later."""
    run, (low, high) = job.run, job.spec.workers
    if core.jobs.get(job.id) is not job or run is None:
        return False
    sizes = (run.workers, run.target.workers if run.target is not None else run.workers)
    return not low <= min(sizes) <= max(sizes) <= high


def _pending(core: Core) -> tuple[tuple[Action, ...], Event | None, tuple[MigrateRequested, ...]]:
    return tuple(core.state.actions), core.replan, tuple(core.state.moves)


# -- in --------------------------------------------------------------------------------------------


def _fill(core: Core, state: _CoreRecord, jobs: Iterable[_JobRecord]) -> None:
    """Put the facts into an empty core, and work out what follows from them."""
    facts = core.state
    facts.now, facts.submitted, facts.finished = state.now, state.submitted, state.finished
    core.wake_at = math.inf if state.now == -math.inf else state.now  # as after a refold
    core.queues.update(_unique("queue", ((spec.id, Queue(spec)) for spec in state.queues)))
    facts.regrow()
    core.ledger.switches.update(dict.fromkeys(state.switches, 0))
    for pool in state.pools:
        core.ledger.set_pool(*pool)
    for place in state.nodes:
        if place.spec.id in core.ledger.nodes:
            raise Fatal(f"node {place.spec.id} is there twice")
        core.ledger.join(place.spec)
    in_line: list[Job] = []
    core.jobs.update(_unique("job", ((record.id, _job(core, record, in_line)) for record in jobs)))
    if state.demand is None:
        for job in core.jobs.values():
            facts.note_demand(job.spec)
    else:
        core.ledger.demand.recall(
            {
                Need(known.cpu_milli, known.share_milli, known.gpus, known.kinds): known.workers
                for known in state.demand
            }
        )
    core.runs.update(_unique("run", ((record.id, _run(core, record)) for record in state.runs)))
    for run in core.runs.values():
        _book(core, run)
    _settle(core, state)
    _await(core, state.leaving)
    _take_out(core, state)
    _claim(core, state)
    _stand(core, in_line)
    core.out_of_range.update((name, _known("job", core.jobs, name)) for name in state.out_of_range)
    core.history.service.extend(state.service)
    restore(core.history, state.succeeded, state.profiles, state.costs)
    facts.actions.extend(state.actions)
    facts.moves.extend(state.moves)
    core.replan = state.replan


def _take_out(core: Core, state: _CoreRecord) -> None:
    """Take nodes and devices out of service that were; what runs there was booked before."""
    for place in state.nodes:
        for gpu in place.broken:
            core.ledger.set_health(place.spec.id, gpu, healthy=False)
        core.ledger.nodes[place.spec.id].notices.update(place.notices)
        if place.cordon is not None:
            core.ledger.cordon(place.spec.id, place.cordon, drain=place.draining)
        if not place.up:
            core.ledger.lose(place.spec.id)
    for window in state.windows:
        _known("node", core.ledger.nodes, window.node)
    core.ledger.set_windows(state.windows)


def _claim(core: Core, state: _CoreRecord) -> None:
    """Let runs have their places by the claims that they had."""
    core.state.reclaim()
    books = core.ledger.cells
    if books is None:
        return
    for name, claims in state.claims:
        run = _known("job", core.jobs, name).run
        if (
            run is None
            or not run.booked
            or any(one.cell not in books.dues.forest.cells for one in claims)
        ):
            raise Fatal(f"job {name} cannot have claims on {[one.cell for one in claims]}")
        books.enter(run.job, run.target or run.allocation, claims)


def _unique(kind: str, items: Iterable[tuple[_Key, _Value]]) -> dict[_Key, _Value]:
    found: dict[_Key, _Value] = {}
    for name, item in items:
        if name in found:
            raise Fatal(f"{kind} {name} is there twice")
        found[name] = item
    return found


def _known(kind: str, things: Mapping[_Key, _Value], name: _Key) -> _Value:
    if name not in things:
        raise Fatal(f"there is no {kind} {name}")
    return things[name]


def _job(core: Core, record: _JobRecord, in_line: list[Job]) -> Job:
    queue = _known("queue", core.queues, record.spec.queue)
    waits, observed = record.waits, record.observed
    if len(waits) != _CAUSES:
        raise Fatal(f"job {record.id} has {len(waits)} waits, not {_CAUSES}")
    # Neither by name nor field by field: there may be a hundred thousand of them.
    job = Job(
        record.id,
        record.seq,
        record.spec,
        queue,
        record.submitted_at,
        record.run_time_s,
        record.state,
        None,
        None,
        record.attempts,
        record.failures,
        record.saved_s,
        record.attained_gpu_s,
        record.started_at,
        record.finished_at,
        record.queued_at,
        record.not_before,
        record.preemptions,
        record.resizes,
        record.held,
        record.cancelling,
        record.protected,
        list(waits),
        history=core.history,
        observed=None if observed is None else decode_observed(observed),
    )
    if record.waiting:
        in_line.append(job)
    return job


def _run(core: Core, record: _RunRecord) -> Run:
    job = _known("job", core.jobs, record.id.job)
    if job.run is not None or job.state.over:
        raise Fatal(f"job {job.id} is {job.state} and has another run {record.id}")
    held = record.allocation
    run = Run(
        record.id,
        job,
        held,
        held.workers,
        held.gpu_milli,
        record.placed_at,
        record.done_s,
        record.rate,
    )
    for name in _RunRecord._field_defaults:
        value = getattr(record, name)
        setattr(run, name, set(value) if name == "after" else value)
    _check_phase(run)
    job.run = run
    return run


def _check_phase(run: Run) -> None:
    """Refuse a run that has not what its phase carries."""
    carries = (
        (bool(run.after), run.phase in WAITING),
        (run.target is not None, run.phase in RESHAPING),
        (run.started_at is not None, run.activity in UP),
    )
    if run.phase is RunPhase.ENDED or any(has != should for has, should in carries):
        raise Fatal(f"run {run.id} cannot be {run.phase.name} as it stands")


def _book(core: Core, run: Run) -> None:
    """Enter what a run holds in the books of its nodes and its queue."""
    for part in _parts(run):
        node = _known("node", core.ledger.nodes, part.node)
        if not run.parked and not all(0 <= gpu < node.spec.gpus for gpu in part.gpus):
            raise Fatal(f"{part} is not on node {node.id} with {node.spec.gpus} GPUs")
    if run.booked:
        booked = run.target or run.allocation
        for part in booked.parts:
            if part.share_milli != WHOLE and not (len(part.gpus) == 1 and part.share_milli > 0):
                raise Fatal(f"{part} is no share of a GPU")
            core.ledger.take(part, needs(run.job, part))
        run.job.queue.charge(run.job, booked)


def _parts(run: Run) -> tuple[Part, ...]:
    """Everything that a run holds, will hold or is leaving."""
    target = run.target.parts if run.target is not None else ()
    return (*run.allocation.parts, *target, *run.leaving)


def _settle(core: Core, state: _CoreRecord) -> None:
    """Note which runs are on which node, and what they are leaving."""
    there: dict[NodeId, dict[RunId, int]] = {name: {} for name in core.ledger.nodes}
    for run in core.runs.values():
        if run.parked:
            continue
        for part in run.allocation.parts:
            held = there[part.node]
            held[run.id] = held.get(run.id, 0) + part.gpu_milli
        for part in _parts(run):
            there[part.node].setdefault(run.id, 0)
        for part in run.leaving:
            core.ledger.nodes[part.node].leaving |= mask_of(part.gpus)
    for place in state.nodes:
        node, held = core.ledger.nodes[place.spec.id], there[place.spec.id]
        if len(place.runs) != len(held) or set(place.runs) != held.keys():
            raise Fatal(f"node {node.id} lists other runs than those that are on it")
        node.runs.update((core.runs[run_id], held[run_id]) for run_id in place.runs)


def _await(core: Core, leaving: Iterable[_LeavingRecord]) -> None:
    """Note which run waits for which to leave."""
    waiters = core.occupancy._leaving  # noqa: SLF001 - its own other half
    for record in leaving:
        _known("run", core.runs, record.run)
        waiters[record.run] = [_known("run", core.runs, name) for name in record.waiters]
    for run in core.runs.values():
        if run.leaving and run.id not in waiters:
            raise Fatal(f"run {run.id} leaves something, and nobody is to be told")
        for run_id in run.after:
            if run not in waiters.get(run_id, ()):
                raise Fatal(f"run {run.id} waits for {run_id}, which does not know of it")


def _stand(core: Core, in_line: list[Job]) -> None:
    """Let jobs wait in their lines, others for the end of their back-off."""
    for job in in_line:
        if job.state.over or not (job.run is None or job.run.parked):
            raise Fatal(f"job {job.id} is {job.state} and stands in line")
    core.waiting.join_all(in_line, core.now)
    for job in core.jobs.values():
        if job.state is JobState.QUEUED and job.run is None and not job.waiting:
            heapq.heappush(core.backing_off, (job.not_before, job.seq, job))
