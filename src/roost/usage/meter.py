"""The meter: what follows from a batch of events for who holds what.

It looks at a core after each batch and ends and begins spells. A run holds devices from its launch
until it has left them, also those that it is changing to; what it holds of a device that is out of
service counts as out of service. So at any moment, on every node,

    held + idle + out of service = capacity

The same batches give the same spells, on a server, in a simulation and from a journal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from roost.core import (
    WHOLE,
    WORKER,
    Allocation,
    Core,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    Job,
    JobId,
    Measured,
    NodeChanged,
    NodeCordoned,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeUncordoned,
    Outcome,
    Part,
    Run,
    Suspended,
)
from roost.core.allocation import without
from roost.core.state import needs
from roost.core.transitions import LEAVING, RunPhase
from roost.usage.spells import AnySpell, Labels, NodeSpell, Spell, to_ms

#: Whose fault lost work is: the job's own, its user's, the scheduler's, or the machines'.
BLAMES: Final = ("job", "user", "scheduler", "platform")

#: Phases in which a run has no device.
_WITHOUT = frozenset({RunPhase.RESERVED, RunPhase.SUSPENDED, RunPhase.RECALLED, RunPhase.ENDED})

#: Phases that matter to what a run holds; in all others it holds its allocation.
_MANNERS = _WITHOUT | LEAVING | {RunPhase.CHANGING}

_Device: TypeAlias = tuple[NodeId, int]


class Holding(NamedTuple):
    """What a run holds on one node."""

    gpu_milli: int
    grown_milli: int
    cpu_milli: int
    memory_mib: int


@dataclass(slots=True)
class _Tenure:
    """A run, as the meter knows it: what it holds, and the spells that go on."""

    run: Run
    seen: tuple[object, ...] = ()
    devices: dict[_Device, int] = field(default_factory=dict)
    spells: dict[NodeId, Spell] = field(default_factory=dict)
    held: int = 0
    hit: bool = False


def _unlabelled(_job: JobId) -> Mapping[str, str]:
    return {}


class Meter:
    """Folds batches into spells. ``labels`` says what a job is labelled with."""

    def __init__(self, labels: Callable[[JobId], Mapping[str, str]] = _unlabelled) -> None:
        self._labels = labels
        self.n = 0
        self._tenures: dict[JobId, _Tenure] = {}
        self._waits: dict[JobId, Spell] = {}
        self._nodes: dict[NodeId, NodeSpell] = {}
        self._held: defaultdict[NodeId, int] = defaultdict(int)
        self._cordoned: set[NodeId] = set()
        self._changed: dict[int, AnySpell] = {}
        #: What spells that are over held, by queue, since this meter began.
        self.closed: Counter[str] = Counter()
        #: Whether there may be runs and nodes that it never saw.
        self.behind = True

    @property
    def open(self) -> Iterable[AnySpell]:
        """Spells that go on."""
        for tenure in self._tenures.values():
            yield from tenure.spells.values()
        yield from self._waits.values()
        yield from self._nodes.values()

    def fold(self, core: Core, events: Iterable[Event], jobs: Iterable[JobId]) -> list[AnySpell]:
        """Take in a batch that a core has just handled; spells that began, ended or changed.

        ``jobs`` are those that the batch was about. A spell has to be kept until it is changed
        again.
        """
        now = to_ms(core.now)
        due = dict.fromkeys(jobs)
        ends, nodes = self._hear(core, events)
        if self.behind:
            self.behind = False
            due = {job.id: None for job in core.jobs.values() if not job.state.over} | due
            nodes |= dict.fromkeys(core.ledger.nodes)
        cordoned = core.ledger.cordoned.keys()
        # By maintenance, without an event.
        if (cordoned or self._cordoned) and cordoned != self._cordoned:
            nodes |= dict.fromkeys(cordoned ^ self._cordoned)
            self._cordoned = set(cordoned)
        if nodes:
            nodes = dict.fromkeys(name for name in nodes if name in core.ledger.nodes)
        for run in [run for name in nodes for run in core.ledger.nodes[name].runs]:
            due.setdefault(run.job.id)
            if (tenure := self._tenures.get(run.job.id)) is not None:
                tenure.seen = ()
        for job in due:
            self._look(core, job, min(ends.get(job, now), now), now)
        for name in nodes:
            self._survey(core, name, now)
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def _hear(
        self, core: Core, events: Iterable[Event]
    ) -> tuple[dict[JobId, int], dict[NodeId, None]]:
        """Take in what was measured and lost; when jobs left their devices, which nodes changed."""
        ends: dict[JobId, int] = {}
        nodes: dict[NodeId, None] = {}
        for event in events:
            match event:
                case Measured():
                    self._measure(event)
                case Exited():
                    ends[event.run.job] = to_ms(event.time)
                    self._lose(core, event)
                case Suspended():
                    ends[event.run.job] = to_ms(event.time)
                case NodeJoined() | NodeChanged():
                    nodes[event.node.id] = None
                case NodeLost() | NodeCordoned() | NodeUncordoned() | GpuFailed() | GpuRestored():
                    nodes[event.node] = None
                case _:
                    pass
        return ends, nodes

    def restore(self, spells: Iterable[AnySpell], core: Core, n: int) -> None:
        """Go on from spells that were kept, beside the core of that moment."""
        self.n, self.behind = n, n == 0
        self._cordoned = set(core.ledger.cordoned)
        for spell in spells:
            if isinstance(spell, NodeSpell):
                self._nodes[NodeId(spell.node)] = spell
            elif not spell.node:
                self._waits[JobId(spell.job)] = spell
            else:
                job = core.jobs.get(JobId(spell.job))
                if job is None or job.run is None:
                    continue
                tenure = self._tenures.setdefault(job.id, _Tenure(job.run))
                tenure.spells[NodeId(spell.node)] = spell
                self._held[NodeId(spell.node)] += spell.gpu_milli
        for tenure in self._tenures.values():
            tenure.devices = _claimed(tenure.run, {})

    # -- jobs ----------------------------------------------------------------------------------

    def _look(self, core: Core, name: JobId, ended: int, now: int) -> None:
        """Compare what a job holds, or waits for, with what it did."""
        job, tenure = core.jobs.get(name), self._tenures.get(name)
        run = None if job is None else job.run
        if tenure is not None and (run is None or tenure.run.id != run.id):
            self._end(core, name, tenure, ended)
            tenure = None
        moved = tenure is None or run is None or not _unmoved(tenure.seen, run)
        if job is not None and run is not None and moved:
            self._hold(core, job, run, ended, now)
        self._wait(job, name, now)

    def _hold(self, core: Core, job: Job, run: Run, ended: int, now: int) -> None:
        tenure = self._tenures.get(job.id)
        if run.phase in _WITHOUT:
            if tenure is not None:
                self._end(core, job.id, tenure, ended)
            return
        if tenure is None:
            tenure = self._tenures[job.id] = _Tenure(run)
        tenure.seen = _sight(run)
        tenure.devices = _claimed(run, tenure.devices)
        devices = _in_service(core, tenure.devices)
        tenure.hit |= run.phase in LEAVING and len(devices) < len(tenure.devices)
        holdings = _holdings(core, run, devices)
        for node in [node for node in tenure.spells if node not in holdings]:
            self._close(core, tenure, node, now)
        for node, holding in holdings.items():
            old = tenure.spells.get(node)
            if old is not None:
                same = (old.gpu_milli, old.grown_milli, old.cpu_milli, old.memory_mib)
                if same == holding:
                    continue
                self._close(core, tenure, node, now)
            kind = core.ledger.nodes[node].spec.kind
            spell = self._begin(job, now, run.id.attempt, holding)
            spell.node, spell.kind = node, kind
            tenure.spells[node] = spell
            self._held[node] += holding.gpu_milli
            self._recount(core, node, now)

    def _end(self, core: Core, name: JobId, tenure: _Tenure, at: int) -> None:
        for node in list(tenure.spells):
            self._close(core, tenure, node, at)
        del self._tenures[name]

    def _close(self, core: Core, tenure: _Tenure, node: NodeId, at: int) -> None:
        spell = tenure.spells.pop(node)
        spell.end_ms = max(at, spell.begin_ms)
        tenure.held += (spell.end_ms - spell.begin_ms) * spell.gpu_milli
        self._changed[spell.n] = spell
        self.closed[spell.queue] += (spell.end_ms - spell.begin_ms) * spell.gpu_milli
        self._held[node] -= spell.gpu_milli
        self._recount(core, node, spell.end_ms)

    def _wait(self, job: Job | None, name: JobId, now: int) -> None:
        """A job waits while it holds nothing, is not over, and its user does not hold it."""
        spell = self._waits.get(name)
        waits = (
            job is not None
            and not job.state.over
            and not job.held
            and (job.run is None or job.run.phase in _WITHOUT)
        )
        if waits and spell is None and job is not None:
            asked = Holding(job.gpu_milli, 0, 0, 0)
            self._waits[name] = self._begin(job, now, job.attempts, asked)
        elif spell is not None and not waits:
            spell.end_ms = now
            self._changed[spell.n] = self._waits.pop(name)

    def _begin(self, job: Job, now: int, attempt: int, holding: Holding) -> Spell:
        self.n += 1
        told = self._labels(job.id)
        labels: Labels = tuple(sorted(told.items())) if told else ()
        spec = job.spec
        spell = Spell(
            *(self.n, now, None, job.id, attempt, spec.user, spec.queue, spec.application, labels),
            gpu_milli=holding.gpu_milli,
            grown_milli=holding.grown_milli,
            cpu_milli=holding.cpu_milli,
            memory_mib=holding.memory_mib,
            measured_to_ms=now,
        )
        self._changed[spell.n] = spell
        return spell

    def _measure(self, event: Measured) -> None:
        """Devices were so busy since the last measurement."""
        tenure = self._tenures.get(event.run.job)
        if event.busy is None or tenure is None or tenure.run.id != event.run:
            return
        at, busy = to_ms(event.time), min(1.0, max(0.0, event.busy))
        for spell in tenure.spells.values():
            amount = max(0, at - spell.measured_to_ms) * spell.gpu_milli
            spell.measured += amount
            spell.busy += round(amount * busy)
            spell.measured_to_ms = max(at, spell.measured_to_ms)
            self._changed[spell.n] = spell

    def _lose(self, core: Core, event: Exited) -> None:
        """Work that no checkpoint kept is lost, at most all that the run held."""
        tenure = self._tenures.get(event.run.job)
        if tenure is None or tenure.run.id != event.run or not tenure.spells:
            return
        if event.outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED):
            return
        run, at = tenure.run, to_ms(event.time)
        gone_s = max(0.0, run.done_s - event.saved_s) / run.rate if run.rate > 0 else 0.0
        milli = sum(spell.gpu_milli for spell in tenure.spells.values())
        held = tenure.held + sum(
            spell.gpu_milli * max(0, at - spell.begin_ms) for spell in tenure.spells.values()
        )
        lost = min(held, to_ms(min(gone_s, event.time)) * milli)
        spell = max(tenure.spells.values(), key=lambda spell: (spell.gpu_milli, spell.node))
        spell.lost, spell.blame = lost, _blame(core.jobs.get(event.run.job), event, tenure)
        self._changed[spell.n] = spell

    # -- nodes ---------------------------------------------------------------------------------

    def _recount(self, core: Core, name: NodeId, now: int) -> None:
        """What is held on a node that takes nothing new is in service there, and no more."""
        if name in self._cordoned:
            self._survey(core, name, now)

    def _survey(self, core: Core, name: NodeId, now: int) -> None:
        """Compare a node with what it was."""
        node, old = core.ledger.nodes[name], self._nodes.get(name)
        capacity = node.spec.gpus * WHOLE
        healthy = node.healthy.bit_count() * WHOLE if node.here else 0
        out = capacity - (healthy if node.cordon is None else min(healthy, self._held[name]))
        if old is not None:
            if (old.kind, old.gpu_milli, old.out_milli) == (node.spec.kind, capacity, out):
                return
            old.end_ms = max(now, old.begin_ms)
            self._changed[old.n] = old
            now = old.end_ms
        self.n += 1
        spell = NodeSpell(self.n, now, None, name, node.spec.kind, capacity, out)
        self._changed[spell.n] = self._nodes[name] = spell


def _blame(job: Job | None, event: Exited, tenure: _Tenure) -> str:
    """Whose fault it is that work was lost."""
    if event.outcome is Outcome.FAILED:
        return "job"
    if tenure.hit or event.outcome is Outcome.LOST:
        return "platform"
    return "user" if job is None or job.cancelling else "scheduler"


def _claimed(run: Run, before: Mapping[_Device, int]) -> dict[_Device, int]:
    """What a run holds of each device, in service or not.

    While it changes that is the more of both its allocations. One that leaves comes to hold
    nothing more: what it was to change to may still be held by others.
    """
    found: dict[_Device, int]
    if run.phase in LEAVING and before:
        found = dict(before)
    else:
        found = _sums(run.allocation.parts)
        others: list[tuple[Part, ...]] = []
        if run.target is not None and run.phase is RunPhase.CHANGING:
            others.append(run.target.parts)
        if run.leaving:
            others.append(without(Allocation(run.leaving), run.allocation) or ())
        for parts in others:
            for device, milli in _sums(parts).items():
                found[device] = max(milli, found.get(device, 0))
    return found


def _in_service(core: Core, devices: Mapping[_Device, int]) -> dict[_Device, int]:
    """What of a claim is on devices that work."""
    nodes = core.ledger.nodes
    return {
        (name, gpu): milli
        for (name, gpu), milli in devices.items()
        if nodes[name].here and nodes[name].healthy >> gpu & 1
    }


def _sums(parts: Iterable[Part]) -> dict[_Device, int]:
    found: dict[_Device, int] = {}
    for part in parts:
        for gpu in part.gpus:
            device = part.node, gpu
            found[device] = found.get(device, 0) + part.share_milli
    return found


def _unmoved(seen: tuple[object, ...], run: Run) -> bool:
    """Whether a run is as it was seen last."""
    if not seen:
        return False
    manner, allocation, target, leaving = _sight(run)
    return (
        seen[0] is manner
        and seen[1] is allocation
        and seen[2] is target
        and (seen[3] is leaving or seen[3] == leaving)
    )


def _sight(run: Run) -> tuple[object, ...]:
    """All that matters to what a run holds; whether it is up does not."""
    phase = run.phase
    manner = phase if phase in _MANNERS else None
    return manner, run.allocation, run.target, run.leaving


def _holdings(core: Core, run: Run, devices: Mapping[_Device, int]) -> dict[NodeId, Holding]:
    """What a run holds on each node, and how much of it is beyond its fewest workers."""
    job, parts = run.job, run.allocation.parts
    still = run.target is None and not run.leaving
    if still and len(parts) == 1 and len(devices) == len(parts[0].gpus) > 0:
        (part,) = parts  # most runs are on one node
        milli, need = sum(devices.values()), needs(job, part)
        grown, workers = max(0, milli - job.gpu_milli), part.workers
        held = Holding(milli, grown, need.cpu_milli * workers, need.memory_mib * workers)
        return {part.node: held}
    gpus: dict[NodeId, int] = {}
    cpus: dict[NodeId, int] = {}
    memory: dict[NodeId, int] = {}
    for part in run.allocation.parts:
        if not core.ledger.nodes[part.node].here:
            continue
        need = job.spec.resources if part.role == WORKER else needs(job, part)
        cpus[part.node] = cpus.get(part.node, 0) + need.cpu_milli * part.workers
        memory[part.node] = memory.get(part.node, 0) + need.memory_mib * part.workers
    for (node, _), milli in devices.items():
        gpus[node] = gpus.get(node, 0) + milli
    grown = max(0, sum(gpus.values()) - job.gpu_milli)
    found: dict[NodeId, Holding] = {}
    for node in reversed(dict.fromkeys((*cpus, *gpus))):
        milli = gpus.get(node, 0)
        beyond = min(grown, milli)
        grown -= beyond
        found[node] = Holding(milli, beyond, cpus.get(node, 0), memory.get(node, 0))
    return found
