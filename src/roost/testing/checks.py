"""Checks of a whole core: everything it keeps up to date step by step, worked out again.

``validate`` recomputes the books, the masks, the lines and the states from the jobs and their runs
and compares; it costs as much as the cluster is large, so it is for tests. That a restart brings
all of it back is checked in ``journal``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from roost.core import (
    WHOLE,
    Core,
    Evict,
    Job,
    JobState,
    Ledger,
    Node,
    NodeId,
    Part,
    Place,
    QueueId,
    Reshape,
    Resources,
    Run,
    RunId,
    SetAside,
    Shape,
    Way,
)
from roost.core.allocation import beyond
from roost.core.extras import extra_capacity
from roost.core.node import devices, memory_on
from roost.core.occupancy import pinned
from roost.core.state import needs
from roost.core.transitions import EXPLAINED, RESHAPING, UP, WAITING, RunPhase
from roost.testing.engine import overuse
from roost.testing.gang_checks import gang_problems, strangers
from roost.testing.promises import broken_promises
from roost.testing.usage import DeviceUsage, used, worst

__all__ = ["impossible_decisions", "mask_problems", "rough_decisions", "validate"]


def validate(core: Core, *, limits: bool = True) -> None:
    """Raise ``AssertionError`` with everything that is wrong about a core.

    ``limits=False`` lets queues hold more than their limit: what they held before it was lowered
    stays theirs.
    """
    found = [
        *_ledger(core),
        *_runs_of_nodes(core),
        *mask_problems(core.ledger),
        *_queues(core, limits=limits),
        *_jobs(core),
        *_runs(core),
        *_gangs(core),
        *_lines(core),
        *_promises(core),
        *broken_promises(core, fits=False),
        *(f"processes use {what}" for what in overuse(core, map(_now_used, core.runs.values()))),
    ]
    if found:
        raise AssertionError("\n".join(found))


def rough_decisions(core: Core) -> list[str]:
    """Decisions just made that disturb a job which must not be disturbed, or not so soon."""
    found = []
    for decision in core.decisions:
        if isinstance(decision, Evict | SetAside):
            job, run = core.jobs[decision.job], core.jobs[decision.job].run
            if run is not None and _drained(core, run):
                continue
            if not job.preemptible:
                found.append(f"{job.id} must not be disturbed")
            started_at = run.started_at if run is not None else None
            if started_at is not None and started_at + job.spec.min_run_s > core.now:
                found.append(f"{job.id} ran only {core.now - started_at} s")
    return found


def _drained(core: Core, run: Run) -> bool:
    """Whether a run is on a node that is being drained: nothing there is spared."""
    return any(core.ledger.nodes[part.node].draining for part in run.allocation.parts)


def impossible_decisions(core: Core) -> list[str]:
    """Decisions just made that no policy can make.

    They are against a protection, outside a pool, or on a node that takes nothing new.
    """
    found = []
    for decision in core.decisions:
        job = core.jobs[decision.job]
        match decision:
            case Evict() | SetAside() if job.protected:
                found.append(f"{job.id} was disturbed, though {job.protected}")
            case Place() | Reshape():
                new: tuple[Part, ...] = decision.allocation.parts
                if isinstance(decision, Reshape) and job.run is not None:
                    new = beyond(decision.allocation, job.run.allocation)
                spec = job.spec
                shape = Shape(spec.workers.min, spec.resources, spec.roles)
                found += [f"{job.id}: {wrong}" for wrong in strangers(core.ledger, shape, new)]
                cordoned = {part.node for part in new} & core.ledger.cordoned.keys()
                found += [f"{job.id} is to begin on {name}, which is cordoned" for name in cordoned]
            case _:
                pass
    return found


# -- the books: what is promised -----------------------------------------------------------------


def _ledger(core: Core) -> Iterator[str]:
    """Books of each node against what runs hold there."""
    books = {name: _Books(node) for name, node in core.ledger.nodes.items()}
    for run in core.runs.values():
        if _booked(run):
            for part in (run.target or run.allocation).parts:
                books[part.node].take(part, needs(run.job, part))
    for book in books.values():
        yield from book.compare()


def _runs_of_nodes(core: Core) -> Iterator[str]:
    """The runs that each node lists against those that hold, want or leave something there."""
    there: dict[NodeId, set[RunId]] = {name: set() for name in core.ledger.nodes}
    for run in core.runs.values():
        if not run.parked:
            target = run.target.parts if run.target is not None else ()
            for part in (*run.allocation.parts, *target, *run.leaving):
                there[part.node].add(run.id)
    for name, node in core.ledger.nodes.items():
        listed = {run.id for run in node.runs}
        leaving = {
            gpu for run in node.runs for p in run.leaving if p.node == name for gpu in p.gpus
        }
        if leaving != set(devices(node.leaving)):
            yield f"node {name} says that {devices(node.leaving)} are being left, not {leaving}"
        if listed != there[name]:
            yield f"node {name} lists {sorted(listed)}, but {sorted(there[name])} are there"


class _Books:
    """A node's books, kept by simple addition."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.taken: Counter[int] = Counter()
        self.memory: Counter[int] = Counter()
        self.whole: set[int] = set()
        self.ways: dict[int, set[Way]] = {}
        self.cpu = node.spec.cpu_milli
        self.ram = node.spec.memory_mib
        self.workers = node.spec.workers
        self.extras: Counter[str] = Counter()

    def take(self, part: Part, need: Resources) -> None:
        spec = self.node.spec
        for gpu in part.gpus:
            self.taken[gpu] += part.share_milli
            if part.share_milli == WHOLE:
                self.whole.add(gpu)
                self.memory[gpu] += need.gpu_memory_mib if spec.gpu_memory_mib else 0
            else:
                self.memory[gpu] += memory_on(spec, need)
                self.ways.setdefault(gpu, set()).add(need.way)
        if spec.cpu_milli:
            self.cpu -= need.cpu_milli * part.workers
        if spec.memory_mib:
            self.ram -= need.memory_mib * part.workers
        if spec.workers:
            self.workers -= part.workers
        for name, amount in need.extras:
            self.extras[name] += amount * part.workers

    def compare(self) -> Iterator[str]:
        node = self.node
        taken = sum(1 << gpu for gpu in self.taken)
        idle = node.healthy & ~taken
        shared = {
            gpu: (WHOLE - milli, node.spec.gpu_memory_mib - self.memory[gpu], self.ways[gpu])
            for gpu, milli in self.taken.items()
            if gpu not in self.whole
        }
        booked = {gpu: (d.left_milli, d.left_mib, {d.way}) for gpu, d in node.shared.items()}
        for what, found, expected in (
            ("taken", node.taken, taken),
            ("idle", node.free, idle),
            ("shared", booked, shared),
            ("cpu_left", node.cpu_left, self.cpu),
            ("memory_left", node.memory_left, self.ram),
            ("workers_left", node.workers_left, self.workers),
            ("extras_used", node.extras_used, dict(self.extras)),
        ):
            if found != expected:
                yield f"node {node.id}: {what} is {found}, should be {expected}"
        for gpu, milli in self.taken.items():
            if milli > WHOLE or self.memory[gpu] > node.spec.gpu_memory_mib:
                mib = self.memory[gpu]
                yield f"node {node.id}: GPU {gpu} is promised to {milli} milli-GPUs, {mib} MiB"
        if self.cpu < 0 or self.ram < 0 or self.workers < 0:
            left = f"{self.cpu} milli-CPUs, {self.ram} MiB and room for {self.workers} workers"
            yield f"node {node.id}: {left} are left"
        for name, amount in self.extras.items():
            if amount > (most := extra_capacity(node.spec.extras, name)):
                yield f"node {node.id}: {amount} {name} are promised, there are {most}"


def mask_problems(ledger: Ledger) -> Iterator[str]:
    """Masks and sums of a ledger against the books of its nodes."""
    largest = max((node.spec.gpus for node in ledger.order), default=0)
    at_least = [0] * max(largest + 1, len(ledger.at_least))  # a node may have had more once
    full = sharing = crowded = up = free = capacity = 0
    for node in ledger.order:
        if not node.up:
            continue
        idle = node.free.bit_count()
        live = [d for gpu, d in node.shared.items() if node.healthy >> gpu & 1]
        for level in range(1, idle + 1):
            at_least[level] |= node.bit
        up |= node.bit
        full |= node.bit if idle == node.spec.gpus else 0
        sharing |= node.bit if live else 0
        short = node.spec.workers and node.workers_left < node.spec.gpus
        apart = node.shared and not node.spec.mixed
        crowded |= node.bit if short or apart else 0
        free += idle * WHOLE + sum(device.left_milli for device in live)
        capacity += node.healthy.bit_count() * WHOLE
    pools = {
        name: sum(node.bit for node in ledger.order if node.id in members)
        for name, members in ledger.members.items()
    }
    for what, found, expected in (
        ("pools", ledger.pools, pools),
        ("at_least", ledger.at_least, at_least),
        ("full", ledger.full, full),
        ("sharing", ledger.sharing, sharing),
        ("crowded", ledger.crowded, crowded),
        ("up", ledger.up, up),
        ("free_milli", ledger.free_milli, free),
        ("capacity_milli", ledger.capacity_milli, capacity),
    ):
        if found != expected:
            yield f"ledger: {what} is {found}, should be {expected}"


def _queues(core: Core, *, limits: bool) -> Iterator[str]:
    used_by: dict[QueueId, Counter[str]] = {name: Counter() for name in core.queues}
    for run in core.runs.values():
        if _booked(run):
            for part in (run.target or run.allocation).parts:
                need = needs(run.job, part)
                used_by[run.job.spec.queue].update(
                    gpu=part.gpu_milli,
                    cpu=part.workers * need.cpu_milli,
                    memory=part.workers * need.memory_mib,
                )
    for name, queue in core.queues.items():
        total = used_by[name]
        found = (queue.used_milli, queue.used_cpu_milli, queue.used_memory_mib)
        expected = (total["gpu"], total["cpu"], total["memory"])
        if found != expected:
            yield f"queue {name} uses {found}, should be {expected}"
        limit = queue.spec.limit_milli
        if limits and limit is not None and queue.used_milli > limit:
            yield f"queue {name} uses {queue.used_milli}, its limit is {limit}"


# -- jobs and runs -------------------------------------------------------------------------------


def _jobs(core: Core) -> Iterator[str]:
    standing = Counter(job.id for job in core.waiting)
    for job in core.jobs.values():
        if not _plausible(job):
            yield f"job {job.id} is {job.state}, held={job.held}, with run {job.run}"
        expected = 1 if _should_wait(job, core.now) else 0
        if standing[job.id] != expected:
            yield f"job {job.id} ({job.state}) stands in line {standing[job.id]} times"
        if job.run is not None and core.runs.get(job.run.id) is not job.run:
            yield f"job {job.id} has run {job.run.id}, which the core does not know"
        if (job.finished_at is not None) != job.state.over:
            yield f"job {job.id} is {job.state}, finished at {job.finished_at}"
        if core.explain(job.id) is None and expected:
            yield f"job {job.id} waits and cannot say why"
    over = sum(job.state.over for job in core.jobs.values())
    forgotten = core.submitted - len(core.jobs)
    if core.finished != over + forgotten:
        yield f"{core.finished} jobs are counted as over, {over} are and {forgotten} were"


def _should_wait(job: Job, now: float) -> bool:
    away = job.state.over or job.held or job.cancelling or job.not_before > now
    return not away and (job.run is None or job.run.parked)


def _plausible(job: Job) -> bool:
    """Whether a job's state fits its run."""
    run = job.run
    match job.state:
        case JobState.QUEUED:
            return run is None and not job.held
        case JobState.STARTING:
            if run is None or run.parked:
                return False
            return run.started_at is None or run.leaves
        case JobState.RUNNING:
            return run is not None and run.started_at is not None and run.target is None
        case JobState.RESIZING:
            return run is not None and (run.target is not None or run.leaves)
        case JobState.SUSPENDED:
            return job.held if run is None else run.parked or run.activity is RunPhase.FROZEN
        case _:
            return run is None


def _runs(core: Core) -> Iterator[str]:
    for run in core.runs.values():
        job = run.job
        if job.run is not run or run.id != (job.id, job.attempts):
            yield f"run {run.id} belongs to {job.id}, which has {job.run and job.run.id}"
        yield from _phase(run)
        frozen = run.activity in (RunPhase.FREEZING, RunPhase.FROZEN)
        if frozen and not pinned(run, core.ledger):
            yield f"run {run.id} is frozen where nothing keeps it"
        if (run.leaves or _shrinks(run)) != bool(run.leaving):
            yield f"run {run.id} is {run.phase.name} and leaves {run.leaving}"
        held = sum(part.gpu_milli for part in run.allocation.parts)
        if not run.parked and (run.gpu_milli, run.workers) != (held, run.allocation.workers):
            yield f"run {run.id} says it holds {run.gpu_milli} with {run.workers} workers"


def _phase(run: Run) -> Iterator[str]:
    """Whether a run has what its phase carries, and nothing else."""
    carried = (
        (bool(run.after), run.phase in WAITING, f"waits for {run.after}"),
        (run.target is not None, run.phase in RESHAPING, f"changes to {run.target}"),
        (run.started_at is not None, run.activity in UP, f"is up since {run.started_at}"),
    )
    for has, should, what in carried:
        if has != should:
            yield f"run {run.id} is {run.phase.name} and {what}"
    if run.phase is RunPhase.ENDED or (run.reason and run.phase not in EXPLAINED):
        yield f"run {run.id} is {run.phase.name} for {run.reason!r}"


def _shrinks(run: Run) -> bool:
    """Whether a reshape gives up something on some device or node."""
    if run.target is None:
        return False
    old, new = used(run.job.spec, run.allocation), used(run.job.spec, run.target)
    fewer = any(milli > new.milli[device] for device, milli in old.milli.items())
    before, after = (_without_devices(a.parts) for a in (run.allocation, run.target))
    return fewer or bool(before - after)


def _without_devices(parts: Iterable[Part]) -> Counter[tuple[NodeId, str]]:
    """Workers that hold no device, by node and role."""
    found: Counter[tuple[NodeId, str]] = Counter()
    for part in parts:
        if not part.gpus:
            found[part.node, part.role] += part.workers
    return found


def _gangs(core: Core) -> Iterator[str]:
    """Every allocation is a whole gang, in the cell and on the kinds that it asked for.

    Pools do not matter here: their nodes may change under a run.
    """
    for run in core.runs.values():
        spec = run.job.spec
        for allocation in () if run.parked else filter(None, (run.allocation, run.target)):
            shape = Shape(allocation.workers, spec.resources, spec.roles, spec.within)
            low, high = spec.workers
            if not low <= allocation.workers <= high and run.job.id not in core.out_of_range:
                yield f"run {run.id} has {allocation.workers} workers, asked for {low}..{high}"
            for problem in gang_problems(core.ledger, shape, allocation.parts):
                yield f"run {run.id}: {problem}"


# -- lines, and runs that wait for others --------------------------------------------------------


def _lines(core: Core) -> Iterator[str]:
    waiting = core.waiting
    standing = sum(len(line.entries) for line in waiting.open)
    if waiting.count != standing:
        yield f"{waiting.count} jobs are counted as waiting, {standing} stand in line"
    for line in waiting.lines.values():
        if bool(line.entries) != (line in waiting.open):
            yield f"the line for {line.shape} has {len(line.entries)} jobs, but is not in open"
    for line in waiting.open:
        keys = [(key, seq) for key, seq, _ in line.entries]
        if keys != sorted(keys):
            yield f"the line for {line.shape} is out of order: {keys}"
        for key, seq, job in line.entries:
            spec = job.spec
            shape = Shape(spec.workers.min, spec.resources, spec.roles, spec.within)
            limited = waiting.by_queue or job.queue.bounded
            if key != waiting.key(job) or seq != job.seq:
                yield f"job {job.id} stands under {key}, should be {waiting.key(job)}"
            own = (shape, spec.queue if limited else None, spec.preempts)
            if (line.shape, line.queue, line.preempts) != own:
                yield f"job {job.id} stands in the line of {line.shape}, {line.queue}"
            if job.line is not line or line.epoch != waiting.epoch:
                yield f"job {job.id} does not know its line"


def _promises(core: Core) -> Iterator[str]:
    """A reserved run waits for runs that really leave something it needs."""
    for run in core.runs.values():
        for other_id in run.after:
            other = core.runs.get(other_id)
            if other is None or not other.leaving:
                yield f"run {run.id} waits for {other_id}, which leaves nothing"
        if run.after and run.started_at is not None and run.target is None:
            yield f"run {run.id} is up and waits for {run.after}"


def _booked(run: Run) -> bool:
    """Whether the books have a run: it holds its place, and is not on its way out."""
    return run.booked


def _now_used(run: Run) -> DeviceUsage:
    """What a run's processes may use now."""
    if run.parked or (run.after and run.target is None):
        return DeviceUsage()
    usage = used(run.job.spec, run.allocation)
    if run.target is not None and not run.after:
        usage = worst(usage, used(run.job.spec, run.target))
    return usage
