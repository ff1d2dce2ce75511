"""Whose turn it is: an order of jobs by the work that is left of them, with a bound on patience.

``Turns`` starts waiting jobs, and says which rigid runs make room for them:

- **Who goes first.** A higher priority; then the job with the least service left (GPU-seconds),
  which gives short mean completion times (``srsf``). Where no run time is known, service left is
  taken to be what the job has had so far, in doublings (least attained service). Jobs of which
  nothing is known go in the order in which they came.
- **Patience.** Each job is passed only by jobs that come within a time in proportion to its own
  work: later ones go behind it, however short they are.
- **A reservation.** For the first job that finds no room, nodes are kept free (``head``): others
  start there only if they end in time.
- **Room.** A rigid run makes room for a higher priority, for a job that its queue was promised room
  for, and, if a stop costs it little, for an equal with less than half as much work left. Work that
  a stop would lose counts as steps of priority, so that little is not stopped for a lot.

A decision looks at the heads of lines of equals, and at nodes that have changed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from roost.core.allocation import Allocation
from roost.core.decisions import Place
from roost.core.plan import Plan
from roost.core.reasons import Cause, are, gpus
from roost.core.spec import WHOLE, JobId, NodeId, QueueId
from roost.core.state import Job, Run
from roost.core.waiting import Key, Line
from roost.policies.kit.contenders import Owed, priority, within_quota
from roost.policies.kit.head import NEW_S, HeadReservation, reserve
from roost.policies.kit.order import Brake, make_room, some_behind
from roost.policies.kit.promises import any_promises
from roost.policies.kit.reclaim import reclaim

#: Service of a job of which nothing is known, in GPU-seconds. What it has had counts in doublings.
_UNKNOWN_GPU_S = 3600.0
#: A run makes room for an equal that has so many times less work left.
_FACTOR = 2.0
#: A stop costs little if it costs at most this part of the time that the run has had.
_LITTLE = 0.05
#: A run is left in peace by equals for this part of the time for which it waited.
_REST = 0.5
#: So many seconds that a stop would lose count as one step of priority; each step doubles that.
_STEP_S = 600.0
#: A job is passed by those that come within so many times the time that its work would take the
#: whole cluster.
_PATIENCE = 8.0
#: A job has to wait that long before anything is kept free for it.
_GRACE_S = 3600.0
#: A reservation is upheld for so many times the time until its estimated start.
_UPHELD = 1.5
#: Levels and moments that differ by less are the same.
_ROUNDING = 1e-9

#: A place in the order of lines: the class, the key of the head, its number.
_Place: TypeAlias = tuple[float, Key, int]
#: Classes: a run that is left alone, one within its quota, a waiting job within it, all others.
_ALONE, _PROMISED, _OWED, _OTHERS = -1.0, 0.0, 0.5, 1.0
_NEVER: Key = (_ALONE, 0.0, 0.0)


@dataclass(slots=True)
class LineReservation:
    """What is kept free for the first line that finds no room, and until when.

    Estimates may be wrong. A reservation that was in vain is given up for as long as it was held,
    and the next one is held twice as long: so a job that could start does, and an endless run does
    not keep nodes empty for ever. ``reservation`` is None meanwhile.
    """

    line: Line
    reservation: HeadReservation | None
    held_s: float
    until: float
    #: Whether a job that goes first was placed on what was kept.
    taken: bool = False
    #: Heads of lines behind that found no room beside it, and the ledger's count of releases then.
    refused: dict[Line, tuple[int, int]] = field(default_factory=dict)

    @property
    def nodes(self) -> set[NodeId]:
        """Nodes on which something is kept free."""
        parts = self.reservation.parts if self.reservation is not None else ()
        return {part.node for part, _ in parts}


@dataclass(slots=True, eq=False)
class Turns:
    """The order, and what is remembered of it between decisions. It is lost at a restart."""

    #: The least power of two above the number of GPUs in service.
    scale: float = 1.0
    kept: LineReservation | None = None
    #: Runs within the quota of their queue.
    promised: set[JobId] = field(default_factory=set)
    #: Lines of gangs that no cluster of these nodes could hold, and which nodes these are.
    hopeless: set[Line] = field(default_factory=set)
    nodes: tuple[int, int] = (0, -1)
    #: When runs will have less of a claim to their places than before.
    crossings: list[tuple[float, int, int, Job]] | None = None
    queues: dict[QueueId, int] = field(default_factory=dict)
    #: What runs have to show, as worked out in this decision: many lines ask of the same runs.
    keys: dict[Run, Key] = field(default_factory=dict)

    # -- keys ----------------------------------------------------------------------------------

    def waiting(self, job: Job) -> Key:
        """Priority, then arrival and the patience that its work gives it."""
        patience = _PATIENCE * self._left(job) / self.scale
        return (float(-priority(job)), job.submitted_at + patience)

    def claim(self, line: Line, kind: float = _OTHERS) -> Key:
        """What a line's head has to show for taking the place of runs; age does not count."""
        # What an adaptable job is worth compared with equals, a contest says.
        left = math.inf if line.adaptable else self._left(line.head)
        return (kind, float(-priority(line.head)), left)

    def running(self, run: Run, now: float) -> Key:
        """What a run has to show for keeping its place."""
        found = self.keys.get(run)
        if found is None:
            found = self.keys[run] = self._running(run, now)
        return found

    def _running(self, run: Run, now: float) -> Key:
        job = run.job
        spec = job.spec
        if spec.adaptable or not spec.uniform:
            return _NEVER
        if job.id in self.promised:
            return (_PROMISED, 0.0, 0.0)
        lost_s, gpus = run.disturbance_s(now), run.gpu_milli / WHOLE
        left_s = run.work_left_s(now)
        left = left_s * gpus if 0 < left_s < math.inf else _doublings(run.attained_gpu_s(now))
        if self._yields(run, lost_s, now):
            return (_OTHERS, float(-priority(job)), left / _FACTOR - lost_s * gpus)
        steps = 0.5 + math.log2(1.0 + lost_s / _STEP_S)  # above all equals
        return (_OTHERS, -(priority(job) + steps), left)

    @staticmethod
    def _left(job: Job) -> float:
        """GPU-seconds that are left of a waiting job, as declared or else as much as it has had."""
        left_s = job.remaining_s
        if job.run is not None and job.run_time_s is not None:  # suspended, with all it has done
            left_s = job.run_time_s - job.run.done_s
        if 0 < left_s < math.inf:
            return left_s * job.gpu_milli / WHOLE
        return _doublings(job.attained_gpu_s)

    @staticmethod
    def _yields(run: Run, lost_s: float, now: float) -> bool:
        """Whether a run makes room for equals: it had a turn, and a stop costs it little."""
        if run.started_at is None:
            return not lost_s
        return now - run.started_at >= _turn_s(run, lost_s) - _ROUNDING

    # -- a decision ----------------------------------------------------------------------------

    def prepare(self, plan: Plan) -> Owed:
        """Bring notes up to date; returns which jobs are within the quota of their queue."""
        self.keys.clear()
        capacity = max(plan.ledger.capacity_milli / WHOLE, 1.0)
        scale = 2.0 ** math.ceil(math.log2(capacity))
        quotas = any_promises(plan.queues.values())
        if plan.waiting.key != self.waiting:  # nothing is sorted by it yet
            self.scale = scale
        plan.lines(self.waiting, by_queue=quotas, apart=True)
        priorities = {name: queue.spec.priority for name, queue in plan.queues.items()}
        if priorities != self.queues:
            self.queues = priorities
            plan.reconsider()  # runs of a queue that fell may give way now
        if scale != self.scale:
            plan.waiting.rekey_all(lambda: setattr(self, "scale", scale))
        nodes = (plan.ledger.up, plan.ledger.regrouped)
        if nodes != self.nodes:
            self.nodes = nodes
            self.hopeless.clear()
        self._cross(plan)
        owed = within_quota(plan) if quotas else Owed()
        self._promise(plan, owed)
        return owed

    def serve(self, plan: Plan, promised: Owed) -> None:
        """Start waiting jobs in their order, and let rigid runs make room for them."""
        owed = dict(promised.waiting)
        brake = Brake(self, thorough=True, clear=set_aside)
        heap = [(_place(line, owed), line) for line in plan.waiting.open]
        heap.sort(key=_first)
        first: LineReservation | None = None
        while heap:
            (kind, _, _), line = heap[0]
            before = len(plan.decisions)
            if self._start(plan, line, first) or self._take(plan, line, kind, first, brake):
                self._note(plan, line, before, first)
                owed[line] = owed.get(line, 0) - 1
                if line.entries:
                    heapq.heapreplace(heap, (_place(line, owed), line))
                else:
                    heapq.heappop(heap)
                continue
            if first is None and not line.adaptable:
                first = self._keep(plan, line)
            heapq.heappop(heap)
        self.kept = first
        self._ask(plan)

    def _start(self, plan: Plan, line: Line, first: LineReservation | None) -> bool:
        """Start the head of a line where there is room, beside what is kept for the first."""
        ledger, job = plan.ledger, line.head
        # A contest decides about jobs that can change; of other shapes it knows nothing.
        contested = line.adaptable and line.preempts and job.spec.uniform
        if contested or line.refused_at == ledger.releases:
            return False
        if first is None or first.reservation is None:
            if not plan.place(job):
                plan.hold(line)
            return not job.waiting
        refused = first.refused.get(line) == (job.seq, ledger.releases)
        if not refused and self._place_beside(plan, job, first.reservation):
            return True
        if refused or plan.lack(line) is Cause.TURN:
            first.refused[line] = (job.seq, ledger.releases)
            plan.say(line, "it would fit, but delay the first in line", Cause.TURN)
        else:
            plan.hold(line)
        return False

    @staticmethod
    def _place_beside(plan: Plan, job: Job, reservation: HeadReservation) -> bool:
        """Start a job off what is reserved, or there if it ends in time."""
        if plan.now + job.remaining_s <= reservation.start and plan.place(job):
            return True
        with plan.ledger.hidden(reservation.parts):
            parts = plan.probe(job)
        return parts is not None and plan.place_at(job, Allocation(parts))

    def _take(
        self, plan: Plan, line: Line, kind: float, first: LineReservation | None, brake: Brake
    ) -> bool:
        """Let runs make room for the head of a line, but not where it is kept for the first."""
        claim = self.claim(line, kind)
        if kind == _OWED and reclaim(plan, line, clear=brake.clear):
            return True
        if not some_behind(plan, claim, brake):
            return False
        if first is None or first.reservation is None:
            return make_room(plan, line, claim, brake)
        with plan.ledger.hidden(first.reservation.parts):
            return make_room(plan, line, claim, brake._replace(spared=first.nodes))

    def _note(self, plan: Plan, line: Line, before: int, first: LineReservation | None) -> None:
        """Note what was decided about a line: crossings, and what was taken of a reservation."""
        kept = self.kept if first is None else None
        for decision in plan.decisions[before:]:
            if not isinstance(decision, Place):
                continue
            self._expect(plan.jobs[decision.job], None, plan.now)
            if kept is not None and not kept.nodes.isdisjoint(decision.allocation.nodes):
                kept.taken = True
        if kept is not None and kept.line is line:
            self.kept = None  # what was kept for it is its own now

    # -- the first in line ---------------------------------------------------------------------

    def _keep(self, plan: Plan, line: Line) -> LineReservation | None:
        """What is kept for the first line that finds no room; None: nothing can be."""
        job, now, kept = line.head, plan.now, self.kept
        if line in self.hopeless or plan.over_limit(job, line.gpu_milli):
            return None
        if kept is None or kept.line is not line:
            kept = LineReservation(line, None, NEW_S, job.queued_at + _GRACE_S)
        if now < kept.until:
            up = all(plan.ledger.nodes[name].up for name in kept.nodes)
            if not kept.taken and up:
                return self._hold(plan, kept)
        elif kept.reservation is not None:  # it was in vain: others may pass for a while
            return LineReservation(line, None, 2.0 * kept.held_s, now + kept.held_s)
        found = reserve(plan, job, guess=True)
        if found is None:
            self.hopeless.add(line)
            return None
        until = now + _UPHELD * max(found.start - now, kept.held_s)
        return self._hold(plan, LineReservation(line, found, kept.held_s, until))

    def _hold(self, plan: Plan, kept: LineReservation) -> LineReservation:
        """Say what is kept for a line."""
        if kept.reservation is not None:
            need = kept.line.gpu_milli
            plan.say(kept.line, f"first in line; {gpus(need)} {are(need)} kept free for it")
        return kept

    # -- claims that fade ----------------------------------------------------------------------

    def _promise(self, plan: Plan, owed: Owed) -> None:
        """Note which runs are within the quota of their queue."""
        changed = self.promised ^ owed.running
        self.promised = owed.running
        self.keys.clear()
        for name in sorted(changed):
            _touch(plan, plan.jobs.get(name))

    def _cross(self, plan: Plan) -> None:
        """Runs that have less of a claim than before may have to give way: look at them again."""
        if self.crossings is None:  # nothing is remembered, as after a restart
            self.crossings = []
            for run in plan.running:
                self._expect(run.job, run, plan.now)
        crossings, now = self.crossings, plan.now
        while crossings and crossings[0][0] <= now:
            _, _, attempt, job = heapq.heappop(crossings)
            if job.run is not None and job.run.id.attempt == attempt:
                _touch(plan, job)
                self._expect(job, job.run, now)

    def _expect(self, job: Job, run: Run | None, now: float) -> None:
        """Note when a run will have less of a claim; None: it is about to begin."""
        if job.spec.adaptable or not job.spec.uniform or self.crossings is None:
            return
        attempt = job.attempts + 1 if run is None else run.id.attempt
        at = _fades_at(job, run, now)
        if at < math.inf:
            heapq.heappush(self.crossings, (at, job.seq, attempt, job))

    def _ask(self, plan: Plan) -> None:
        """Ask to be woken when something changes by time alone."""
        kept, crossings = self.kept, self.crossings
        if kept is not None and kept.until > plan.now:
            plan.wake(kept.until)
        if crossings and plan.waiting.count:
            plan.wake(max(crossings[0][0], plan.now))


def set_aside(plan: Plan, run: Run, reason: str) -> bool:
    """Take a run off its devices for another job, keeping its state if that can be."""
    return plan.suspend(run, reason) or plan.evict(run, reason)


def _fades_at(job: Job, run: Run | None, now: float) -> float:
    """When a run's claim to its place next becomes less, if it goes on from now.

    Its service passes a doubling, its declared time is over, or a stop now costs it little.
    """
    held = job.gpu_milli / WHOLE
    attained = job.attained_gpu_s if run is None else run.attained_gpu_s(now)
    left_s = job.remaining_s if run is None else run.work_left_s(now)
    times = [math.inf]
    if 0 < left_s < math.inf:
        times.append(now + left_s / (run.rate if run is not None and run.rate else 1.0))
    else:
        times.append(now + (2.0 * _doublings(attained) - attained) / held)
    if run is not None and run.started_at is not None:
        times.append(run.started_at + _turn_s(run, run.disturbance_s(math.inf)))
    else:
        lost_s = job.spec.costs.restart_s + job.spec.costs.checkpoint_every_s / 2.0
        times.append(now + max(lost_s / _LITTLE, _REST * (now - job.queued_at)))
    return min(max(at, math.nextafter(now, math.inf)) for at in times if at > now)


def _turn_s(run: Run, lost_s: float) -> float:
    """How long a run is left in peace by equals: for what it waited, and for what it would lose."""
    return max(lost_s / _LITTLE, _REST * (run.placed_at - run.job.queued_at))


def _doublings(gpu_s: float) -> float:
    """What is taken to be left of a job that has had so much: as much again, rounded down."""
    if gpu_s < 2.0 * _UNKNOWN_GPU_S * (1.0 - _ROUNDING):
        return _UNKNOWN_GPU_S
    return _UNKNOWN_GPU_S * 2.0 ** math.floor(math.log2(gpu_s / _UNKNOWN_GPU_S) + _ROUNDING)


def _touch(plan: Plan, job: Job | None) -> None:
    """Let the nodes of a job's run be looked at again."""
    if job is not None and job.run is not None and job.run.booked:
        for name in job.run.allocation.nodes:
            plan.ledger.touch(plan.ledger.nodes[name])


def _place(line: Line, owed: Mapping[Line, int]) -> _Place:
    """The place of a line among others: first those within their quota."""
    key, seq, _ = line.entries[0]
    return (_OWED if owed.get(line, 0) > 0 else _OTHERS), key, seq


def _first(item: tuple[_Place, Line]) -> _Place:
    return item[0]
