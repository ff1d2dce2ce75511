"""Long random histories of a core: jobs, requests, faults. The same seed gives the same one."""

from __future__ import annotations

import random
from collections.abc import Callable

from roost.core import (
    CancelRequested,
    Costs,
    Deleted,
    JobId,
    JobSpec,
    Level,
    Measured,
    MigrateRequested,
    NodeJoined,
    NodeSpec,
    NodeUncordoned,
    Outcome,
    Policy,
    Progressed,
    Range,
    ResumeRequested,
    ScaleRequested,
    SuspendRequested,
    Way,
    Woke,
)
from roost.core.spec import CPU_SLOT
from roost.testing.builders import node, queue, role, spec
from roost.testing.faulty_engine import POOLS, QUEUES, FaultyEngine

__all__ = ["RandomHistory"]

_WAYS = tuple(Way)


class RandomHistory:
    """A long random history. ``crowd`` is how many jobs may wait before no more come."""

    crowd = 12

    def __init__(self, policy: Policy, placer: str, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"storm/{seed}")  # noqa: S311 - not for secrets
        cluster = [self._node(index) for index in range(self.chance.randint(1, 5))]
        self.engine = FaultyEngine(policy, placer, cluster)
        self._incidents: list[tuple[int, Callable[[], object]]] = [
            (8, self._submit),
            (3, self._adopt),
            (1, self._adopt_in_vain),
            (2, self._protect),
            (2, self._change_pool),
            (2, self._change_node),
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
            (1, self._cordon),
            (2, self._uncordon),
            (1, self._plan_maintenance),
            (8, self._answer),
            (8, self._answer_each),
            (6, self._end),
            (3, self._progress),
            (2, self._measure),
            (2, self._lose_worker),
            (1, self._late),
            (1, self._repeat),
            (4, self._tick),
            (4, self._wake),
        ]

    def run(self, steps: int) -> FaultyEngine:
        """Let so many things happen, check after each, and return the engine."""
        weights = [weight for weight, _ in self._incidents]
        for step in range(steps):
            (incident,) = self.chance.choices(
                [incident for _, incident in self._incidents], weights
            )
            self.engine.later(self.chance.choice((0.0, 0.0, 1.0, 7.5, 60.0)))
            try:
                incident()
                self.engine.check()
            except Exception as error:
                error.add_note(f"history {self.seed}, step {step}: {incident.__name__}")
                raise
        return self.engine

    # -- what happens --------------------------------------------------------------------------

    def _submit(self) -> None:
        if self.engine.core.waiting.count < self.crowd:
            self.engine.submit(*(self._spec() for _ in range(self.chance.randint(1, 3))))

    def _adopt(self) -> None:
        pick, now = self.chance.choice, self.engine.now
        self.engine.adopt(
            self._spec(),
            placed=bool(self.chance.randrange(4)),
            running=bool(self.chance.randrange(3)),
            failures=pick((0, 0, 1)),
            done_s=pick((0.0, 3.0)),
            submitted_at=pick((None, now - 100.0)),
            started_at=pick((None, now - 50.0)),
            held=self.chance.randrange(6) == 0,
            not_before=pick((0.0, 0.0, now + 40.0)),
        )

    def _adopt_in_vain(self) -> None:
        if self.engine.core.runs:
            self.engine.adopt_in_vain(self._spec(), self.chance.choice(list(self.engine.core.runs)))

    def _protect(self) -> None:
        leaving = [run.job.id for run in self.engine.core.runs.values() if run.leaves]
        if name := self.chance.choice(leaving) if leaving else self._job():
            why = self.chance.choice(("", "its budget allows nothing", "its budget allows nothing"))
            self.engine.protect(name, why)

    def _change_pool(self) -> None:
        nodes = [*self.engine.cluster, node("n9").id]
        members = self.chance.sample(nodes, self.chance.randint(0, len(nodes)))
        self.engine.change_pool(self.chance.choice(POOLS), members)

    def _change_node(self) -> None:
        index = self.chance.randrange(len(self.engine.cluster))
        self.engine.change_node(self._node(index))

    def _job(self) -> JobId | None:
        living = [job.id for job in self.engine.core.jobs.values() if not job.state.over]
        others = list(self.engine.core.jobs)
        names = living if living and self.chance.randrange(8) else others
        return self.chance.choice(names) if names else None

    def _cancel(self) -> None:
        if name := self._job():
            self.engine.tell(CancelRequested(self.engine.now, name))

    def _suspend(self) -> None:
        if name := self._job():
            self.engine.tell(SuspendRequested(self.engine.now, name))

    def _resume(self) -> None:
        held = [job.id for job in self.engine.core.jobs.values() if job.held]
        if name := self.chance.choice(held) if held else self._job():
            self.engine.tell(ResumeRequested(self.engine.now, name))

    def _scale(self) -> None:
        if name := self._job():
            low = self.chance.choice((1, 1, 2, 3))
            wanted = Range(low, low + self.chance.choice((0, 0, 2)))
            self.engine.request(ScaleRequested(self.engine.now, name, wanted))

    def _migrate(self) -> None:
        if name := self._job():
            where = self.chance.choice((None, *self.engine.cluster))
            self.engine.request(MigrateRequested(self.engine.now, name, where))

    def _delete(self) -> None:
        if name := self._job():
            self.engine.request(Deleted(self.engine.now, name))

    def _change_queue(self) -> None:
        quota, limit = self.chance.choice(((None, None), (None, 3000), (1000, 8000), (0, 0)))
        name = self.chance.choice(QUEUES)
        weight, priority = self.chance.choice((1.0, 2.0)), self.chance.choice((0, 0, 3, -3))
        changed = queue(
            name, quota_milli=quota, limit_milli=limit, weight=weight, priority=priority
        )
        self.engine.change_queue(changed)

    def _lose(self) -> None:
        up = [place.id for place in self.engine.core.ledger.order if place.here]
        if len(up) > 1:
            self.engine.lose(self.chance.choice(up), at_once=self.chance.random() < 0.5)  # noqa: PLR2004

    def _join(self) -> None:
        down = [place.spec for place in self.engine.core.ledger.order if not place.here]
        if down:
            self.engine.tell(NodeJoined(self.engine.now, self.chance.choice(down)))

    def _cordon(self) -> None:
        node_id = self.chance.choice(list(self.engine.cluster))
        self.engine.cordon(node_id, drain=bool(self.chance.randrange(3)))

    def _uncordon(self) -> None:
        if cordoned := list(self.engine.core.ledger.cordoned):
            self.engine.tell(NodeUncordoned(self.engine.now, self.chance.choice(cordoned)))

    def _plan_maintenance(self) -> None:
        node_id = self.chance.choice(list(self.engine.cluster))
        after_s, lasts_s = self.chance.choice((0.0, 40.0, 300.0)), self.chance.choice((20.0, 200.0))
        self.engine.plan_maintenance(node_id, after_s, lasts_s)

    def _break_or_repair(self) -> None:
        devices = [(n.id, gpu) for n in self.engine.cluster.values() for gpu in range(n.gpus)]
        broken = sorted(self.engine.broken)
        if broken and self.chance.randrange(3):
            self.engine.break_or_repair(*self.chance.choice(broken))
        elif devices:
            self.engine.break_or_repair(*self.chance.choice(devices))

    def _answer(self) -> None:
        self.engine.took_s = self.chance.choice((None, 0.0, 2.5))
        if self.engine.unanswered:
            self.engine.answer(self.chance.choice(self.engine.unanswered))

    def _answer_each(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.engine.answer_each()

    def _end(self) -> None:
        if self.engine.processes:
            run_id = self.chance.choice(list(self.engine.processes))
            outcome = self.chance.choice((Outcome.SUCCEEDED, *Outcome))
            final, delay_s = self.chance.random() < 0.1, self.chance.choice((0.0, 0.0, 40.0))  # noqa: PLR2004
            saved_s = self.chance.choice((0.0, 3.0))
            self.engine.end(run_id, outcome, saved_s, final=final, delay_s=delay_s)

    def _progress(self) -> None:
        if self.engine.working:
            run_id = self.chance.choice(self.engine.working)
            done_s, rate = self.chance.uniform(0.0, 600.0), self.chance.uniform(0.01, 20.0)
            self.engine.tell(Progressed(self.engine.now, run_id, done_s, rate))

    def _measure(self) -> None:
        if self.engine.working:
            run_id = self.chance.choice(self.engine.working)
            workers, step_s = self.chance.randint(1, 4), self.chance.uniform(0.01, 2.0)
            noise = self.chance.choice((None, 64.0))
            self.engine.tell(Measured(self.engine.now, run_id, workers, step_s, 500, noise))

    def _lose_worker(self) -> None:
        if self.engine.shrinkable:
            run_id = self.chance.choice(self.engine.shrinkable)
            self.engine.lose_worker(run_id, self.chance.randrange(8))

    def _late(self) -> None:
        over = [run_id for run_id in self.engine.gone if run_id not in self.engine.core.runs]
        if over:
            reports = self.engine.late_reports(self.chance.choice(over))
            self.engine.report_late(self.chance.choice(reports))

    def _repeat(self) -> None:
        runs = list(self.engine.core.runs)
        reports = self.engine.repeated_reports(self.chance.choice(runs)) if runs else []
        if reports:
            self.engine.tell(self.chance.choice(reports))

    def _tick(self) -> None:
        self.engine.tell(Woke(self.engine.now))

    def _wake(self) -> None:
        wake_at = self.engine.core.wake_at
        if wake_at < self.engine.now + 1e5:
            self.engine.later(max(0.0, wake_at - self.engine.now))
            self._tick()

    # -- nodes and jobs ------------------------------------------------------------------------

    def _node(self, index: int) -> NodeSpec:
        pick = self.chance.choice
        return node(
            f"n{index}",
            pick((8, 4, 4, 2, 2, 1, 0)),
            kind=pick(("a", "a", "a", "b", CPU_SLOT)),
            gpu_memory_mib=pick((0, 0, 1000)),
            cpu_milli=pick((0, 0, 8000)),
            memory_mib=pick((0, 0, 800)),
            sockets=pick((1, 2)),
            switch=pick(("", "s1")),
            extras=pick(((), (("nic", 2), ("port/*", 1)))),
            mixed=pick((True, True, False)),
        )

    def _spec(self) -> JobSpec:
        pick = self.chance.choice
        low = pick((1, 1, 1, 2, 3))
        with_servers = self.chance.randrange(8) == 0
        servers = role("ps", pick((1, 2)), pick((0, 0.5, 1)), cpu_milli=1000, way=pick(_WAYS))
        return spec(
            pick((1, 1, 1, 2, 0.5, 0.25, 0.7, 0)),
            pick((None, 5.0, 50.0, 500.0, 5000.0)),
            workers=(low, low + pick((0, 0, 1, 2))),
            gpu_memory_mib=pick((0, 0, 0, 300, 600)),
            kinds=pick(((), (), (), ("a",), ("a", "b"))),
            cpu_milli=pick((0, 0, 1000, 1500)),
            memory_mib=pick((0, 0, 0, 100)),
            way=pick(_WAYS),
            pool=pick(("", "", "", *POOLS)),
            extras=pick(((), (), (), (), (("nic", 1),), (("port/80", 1),))),
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
