"""Weather: everything that can happen to a core, and what must hold in the end.

``Weather`` is a fake engine that can also lose nodes, break GPUs, repeat itself, report late and
restart the core from its journal. A test decides what happens; ``Storm`` decides by chance, and the
same seed gives the same storm. ``shortest`` reduces the journal of one that broke something.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from roost.core import (
    Action,
    CancelRequested,
    Core,
    Costs,
    Deleted,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    JobId,
    JobSpec,
    Level,
    MigrateRequested,
    NodeId,
    NodeJoined,
    NodeLost,
    NodeSpec,
    Outcome,
    Policy,
    Progressed,
    QueueChanged,
    QueueId,
    QueueSpec,
    Range,
    Resized,
    ResumeRequested,
    RunId,
    ScaleRequested,
    Shape,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.errors import Conflict, NotFound
from roost.placement import placer as placer_named
from roost.testing.builders import node, queue, role, spec
from roost.testing.checks import rough_decisions, validate
from roost.testing.engine import FakeEngine
from roost.testing.journal import check_journal, differ, snapshot

QUEUES = ("red", "blue")


class Weather(FakeEngine):
    """A core, a cluster, and what happens to them."""

    def __init__(self, policy: Policy, placer: str, cluster: Sequence[NodeSpec]) -> None:
        self.policy = policy
        self.placer = placer_named(placer)
        super().__init__(Core(policy, self.placer))
        self.cluster = {spec.id: spec for spec in cluster}
        self.broken: set[tuple[NodeId, int]] = set()
        #: Runs that are over, for reports that come late.
        self.gone: list[RunId] = []
        self.failed = False
        #: Whether the policy must leave alone who is not to be disturbed, or not yet.
        self.gentle = True
        self._allowed: dict[QueueId, int] = {}
        self.tell(*(NodeJoined(0.0, spec) for spec in cluster))

    def tell(self, *events: Event) -> list[Action]:
        """Hand a batch to the core; remember who is gone, and whether the core broke down."""
        before = set(self.core.runs)
        self.failed = True
        actions = super().tell(*events)
        self.failed = False
        self.gone += sorted(before - set(self.core.runs))
        return actions

    def later(self, after_s: float) -> float:
        """Let time pass."""
        self.now += after_s
        return self.now

    # -- what can happen -----------------------------------------------------------------------

    def submit(self, *wanted: JobSpec) -> list[JobId]:
        """Users hand in jobs."""
        first = self.core.submitted
        names = [JobId(f"j{first + index}") for index in range(len(wanted))]
        self.tell(*(Submitted(self.now, name, w) for name, w in zip(names, wanted, strict=True)))
        return names

    def request(self, event: Event) -> None:
        """Users ask for what may be impossible just now; that changes nothing."""
        try:
            self.tell(event)
        except (Conflict, NotFound):
            self.failed = False

    def change_queue(self, changed: QueueSpec) -> None:
        """A queue's promise, limit or priority changes; what it holds stays its own."""
        held = self.core.queues.get(changed.id)
        self._allowed[changed.id] = held.used_milli if held is not None else 0
        self.tell(QueueChanged(self.now, changed))

    def lose(self, name: NodeId, *, at_once: bool) -> None:
        """A node goes down; its runs are reported with it, or later."""
        events: list[Event] = [NodeLost(self.now, name)]
        if at_once:
            hit = {run.id for run in self.core.ledger.nodes[name].runs} & set(self.processes)
            for run_id in sorted(hit):
                del self.processes[run_id]
                events.append(Exited(self.now, run_id, Outcome.LOST, 1.0))
        self.tell(*events)

    def break_or_repair(self, name: NodeId, gpu: int) -> None:
        """A GPU fails, or works again."""
        device = (name, gpu)
        repaired = device in self.broken
        self.broken ^= {device}
        self.tell(GpuRestored(self.now, *device) if repaired else GpuFailed(self.now, *device))

    def late_reports(self, run_id: RunId) -> list[Event]:
        """What an attempt that is over may still report."""
        return [
            Started(self.now, run_id),
            Resized(self.now, run_id),
            Suspended(self.now, run_id, 1.0),
            Progressed(self.now, run_id, 1.0, 1.0),
            Exited(self.now, run_id, Outcome.SUCCEEDED, 1.0),
        ]

    def report_late(self, report: Event) -> None:
        """A report of an attempt that is over: but for the time, it changes nothing."""
        self.tell(Woke(self.now))  # what time itself brings about is no fault of the report
        before = snapshot(self.core)
        self.tell(report)
        changed = differ(before, {**snapshot(self.core), "now": before["now"]})
        if changed:
            raise AssertionError(f"{report} came late and changed {changed}")

    def repeated_reports(self, run_id: RunId) -> list[Event]:
        """What a run may report once more; what it is still asked for is not among it."""
        process = self.processes.get(run_id)
        asked = {type(action).__name__ for action in process.asked} if process else set()
        reports: list[Event] = []
        if not {"Launch", "Resume"} & asked:
            reports.append(Started(self.now, run_id))
        if not {"Resize", "Migrate"} & asked:
            reports.append(Resized(self.now, run_id))
        if "Suspend" not in asked:
            reports.append(Suspended(self.now, run_id, 1.0))
        return reports

    def restart(self) -> None:
        """The controller dies and is brought back from its journal."""
        again = Core(self.policy, self.placer)
        for batch in self.journal:
            again.refold(batch.events, batch.decisions)
        changed = differ(snapshot(self.core), snapshot(again))
        if changed:
            raise AssertionError(f"the restart changed {changed}")
        self.core = again
        self.tell(Woke(self.now))

    # -- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        """Everything about the core is sound, and queues stay within what they may hold."""
        validate(self.core, limits=False)
        rough = rough_decisions(self.core) if self.gentle else []
        if rough:
            raise AssertionError("; ".join(rough))
        for name, tenant in self.core.queues.items():
            limit = tenant.spec.limit_milli
            if limit is not None:
                allowed = max(limit, self._allowed.get(name, 0))
                if tenant.used_milli > allowed:
                    raise AssertionError(f"queue {name} uses {tenant.used_milli} of {allowed}")
                self._allowed[name] = min(allowed, tenant.used_milli)

    def clear_up(self) -> None:
        """Repair everything, lift all limits, let everyone go on, and let all that runs succeed.

        Then no job is lost: each is over, or waits, and nothing is taken.
        """
        self.tell(*(QueueChanged(self.now, queue(name)) for name in self.core.queues))
        self.tell(
            *(GpuRestored(self.now, *device) for device in sorted(self.broken)),
            *(NodeJoined(self.now, n.spec) for n in self.core.ledger.order if not n.up),
            *(ResumeRequested(self.now, job.id) for job in self.core.jobs.values()),
        )
        self._finish()
        for job in self.core.jobs.values():
            if not (job.state.over or job.waiting):
                raise AssertionError(f"{job.id} is lost: {job}")
        for place in self.core.ledger.order:
            if place.taken:
                raise AssertionError(f"devices of {place.id} are never given back")
        self.check()
        check_journal(self.journal, self.core)

    def _finish(self) -> None:
        for _ in range(10 * len(self.core.jobs) + 10):
            self.answer_all()
            for run_id in self.working:
                if run_id in self.processes:
                    self.end(run_id, Outcome.SUCCEEDED, 1.0)
            self.tell(Woke(self.later(60.0)))
            if all(run.parked for run in self.core.runs.values()):
                return
        raise AssertionError(f"jobs never end: {list(self.core.runs)}")

    def still_fit(self) -> list[JobId]:
        """Jobs that wait though there would be room for them."""
        return [job.id for job in self.core.waiting if self._fits(job.spec)]

    def _fits(self, wanted: JobSpec) -> bool:
        shape = Shape(wanted.workers.min, wanted.resources, wanted.roles, wanted.within)
        return self.placer(self.core.ledger, shape) is not None


class Storm:
    """A long run of random weather. ``crowd`` is how many jobs may wait before no more come."""

    crowd = 12

    def __init__(self, policy: Policy, placer: str, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"storm/{seed}")  # noqa: S311 - not for secrets
        cluster = [self._node(index) for index in range(self.chance.randint(1, 5))]
        self.weather = Weather(policy, placer, cluster)
        self._things: list[tuple[int, Callable[[], object]]] = [
            (8, self._submit),
            (2, self._cancel),
            (2, self._suspend),
            (3, self._resume),
            (1, self._scale),
            (1, self._migrate),
            (1, self._delete),
            (1, self._change_queue),
            (1, self._lose),
            (2, self._join),
            (2, self._break_or_repair),
            (8, self._answer),
            (8, self._answer_each),
            (6, self._end),
            (3, self._progress),
            (1, self._late),
            (1, self._repeat),
            (4, self._tick),
            (4, self._wake),
        ]

    def blow(self, steps: int) -> Weather:
        """Let so many things happen, check after each, and return what is left."""
        weights = [weight for weight, _ in self._things]
        for step in range(steps):
            (thing,) = self.chance.choices([thing for _, thing in self._things], weights)
            self.weather.later(self.chance.choice((0.0, 0.0, 1.0, 7.5, 60.0)))
            try:
                thing()
                self.weather.check()
            except Exception as error:
                error.add_note(f"storm {self.seed}, step {step}: {thing.__name__}")
                raise
        return self.weather

    # -- what happens --------------------------------------------------------------------------

    def _submit(self) -> None:
        if self.weather.core.waiting.count < self.crowd:
            self.weather.submit(*(self._spec() for _ in range(self.chance.randint(1, 3))))

    def _job(self) -> JobId | None:
        living = [job.id for job in self.weather.core.jobs.values() if not job.state.over]
        others = list(self.weather.core.jobs)
        names = living if living and self.chance.randrange(8) else others
        return self.chance.choice(names) if names else None

    def _cancel(self) -> None:
        if name := self._job():
            self.weather.tell(CancelRequested(self.weather.now, name))

    def _suspend(self) -> None:
        if name := self._job():
            self.weather.tell(SuspendRequested(self.weather.now, name))

    def _resume(self) -> None:
        held = [job.id for job in self.weather.core.jobs.values() if job.held]
        if name := self.chance.choice(held) if held else self._job():
            self.weather.tell(ResumeRequested(self.weather.now, name))

    def _scale(self) -> None:
        if name := self._job():
            low = self.chance.choice((1, 1, 2, 3))
            wanted = Range(low, low + self.chance.choice((0, 0, 2)))
            self.weather.request(ScaleRequested(self.weather.now, name, wanted))

    def _migrate(self) -> None:
        if name := self._job():
            where = self.chance.choice((None, *self.weather.cluster))
            self.weather.request(MigrateRequested(self.weather.now, name, where))

    def _delete(self) -> None:
        if name := self._job():
            self.weather.request(Deleted(self.weather.now, name))

    def _change_queue(self) -> None:
        quota, limit = self.chance.choice(((None, None), (None, 3000), (1000, 8000), (0, 0)))
        name = self.chance.choice(QUEUES)
        weight, priority = self.chance.choice((1.0, 2.0)), self.chance.choice((0, 0, 3, -3))
        changed = queue(
            name, quota_milli=quota, limit_milli=limit, weight=weight, priority=priority
        )
        self.weather.change_queue(changed)

    def _lose(self) -> None:
        up = [place.id for place in self.weather.core.ledger.order if place.up]
        if len(up) > 1:
            self.weather.lose(self.chance.choice(up), at_once=self.chance.random() < 0.5)  # noqa: PLR2004

    def _join(self) -> None:
        down = [place.spec for place in self.weather.core.ledger.order if not place.up]
        if down:
            self.weather.tell(NodeJoined(self.weather.now, self.chance.choice(down)))

    def _break_or_repair(self) -> None:
        devices = [(n.id, gpu) for n in self.weather.cluster.values() for gpu in range(n.gpus)]
        broken = sorted(self.weather.broken)
        if broken and self.chance.randrange(3):
            self.weather.break_or_repair(*self.chance.choice(broken))
        elif devices:
            self.weather.break_or_repair(*self.chance.choice(devices))

    def _answer(self) -> None:
        if self.weather.unanswered:
            self.weather.answer(self.chance.choice(self.weather.unanswered))

    def _answer_each(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.weather.answer_each()

    def _end(self) -> None:
        if self.weather.processes:
            run_id = self.chance.choice(list(self.weather.processes))
            outcome = self.chance.choice((Outcome.SUCCEEDED, *Outcome))
            final, delay_s = self.chance.random() < 0.1, self.chance.choice((0.0, 0.0, 40.0))  # noqa: PLR2004
            saved_s = self.chance.choice((0.0, 3.0))
            self.weather.end(run_id, outcome, saved_s, final=final, delay_s=delay_s)

    def _progress(self) -> None:
        if self.weather.working:
            run_id = self.chance.choice(self.weather.working)
            done_s, rate = self.chance.uniform(0.0, 600.0), self.chance.uniform(0.01, 20.0)
            self.weather.tell(Progressed(self.weather.now, run_id, done_s, rate))

    def _late(self) -> None:
        over = [run_id for run_id in self.weather.gone if run_id not in self.weather.core.runs]
        if over:
            reports = self.weather.late_reports(self.chance.choice(over))
            self.weather.report_late(self.chance.choice(reports))

    def _repeat(self) -> None:
        runs = list(self.weather.core.runs)
        reports = self.weather.repeated_reports(self.chance.choice(runs)) if runs else []
        if reports:
            self.weather.tell(self.chance.choice(reports))

    def _tick(self) -> None:
        self.weather.tell(Woke(self.weather.now))

    def _wake(self) -> None:
        wake_at = self.weather.core.wake_at
        if wake_at < self.weather.now + 1e5:
            self.weather.later(max(0.0, wake_at - self.weather.now))
            self._tick()

    # -- who is there --------------------------------------------------------------------------

    def _node(self, index: int) -> NodeSpec:
        pick = self.chance.choice
        return node(
            f"n{index}",
            pick((8, 4, 4, 2, 2, 1, 0)),
            kind=pick("aab"),
            gpu_memory_mib=pick((0, 0, 1000)),
            cpu_milli=pick((0, 0, 8000)),
            memory_mib=pick((0, 0, 800)),
            sockets=pick((1, 2)),
            switch=pick(("", "s1")),
        )

    def _spec(self) -> JobSpec:
        pick = self.chance.choice
        low = pick((1, 1, 1, 2, 3))
        with_servers = self.chance.randrange(8) == 0
        servers = role("ps", pick((1, 2)), pick((0, 0.5, 1)), cpu_milli=1000)
        return spec(
            pick((1, 1, 1, 2, 0.5, 0.25, 0.7, 0)),
            pick((None, 5.0, 50.0, 500.0, 5000.0)),
            workers=(low, low + pick((0, 0, 1, 2))),
            gpu_memory_mib=pick((0, 0, 0, 300, 600)),
            kinds=pick(((), (), (), ("a",), ("a", "b"))),
            cpu_milli=pick((0, 0, 1000, 1500)),
            memory_mib=pick((0, 0, 0, 100)),
            roles=(servers,) if with_servers else (),
            queue=pick(QUEUES),
            priority=pick((0, 0, 0, 3)),
            application=pick(("", "x")),
            costs=Costs(checkpoint_every_s=pick((0.0, 30.0)), restart_s=pick((0.0, 5.0))),
            min_run_s=pick((0.0, 0.0, 20.0)),
            max_retries=pick((0, 1, 2)),
            preemptible=bool(self.chance.randrange(6)),
            within=pick((*(None,) * 6, *Level)),
        )


def shortest(events: Sequence[Event], breaks: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """The fewest of these events that still break something: drop runs of them, ever shorter."""
    left = list(events)
    length = len(left) // 2
    while length:
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + length :]
            if breaks(fewer):
                left = fewer
            else:
                start += length
        length //= 2
    return left
