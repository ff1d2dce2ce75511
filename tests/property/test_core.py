"""Whatever happens, in whatever order: books balance, no device is given twice, no job is lost.

A state machine drives the core with every policy: users who change their minds, machines that
break, and an engine that answers late, out of order or twice.
"""

from __future__ import annotations

import math
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from roost import policies
from roost.core import (
    Action,
    CancelRequested,
    Core,
    Event,
    Exited,
    GpuFailed,
    GpuRestored,
    JobId,
    JobSpec,
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
    Resized,
    ResumeRequested,
    RunId,
    Shape,
    Started,
    Submitted,
    Suspended,
    SuspendRequested,
    Woke,
)
from roost.placement import PLACERS, placer
from roost.testing.builders import queue
from roost.testing.checks import validate
from roost.testing.engine import FakeEngine
from roost.testing.journal import check_journal, differ, snapshot
from roost.testing.policies import Restless
from roost.testing.strategies import QUEUES, clusters, examples, queues, specs

#: These may leave a job that fits waiting behind one that never will.
STRICT = {"fifo", "static", "conservative"}

times = st.sampled_from((0.0, 0.0, 1.0, 7.0, 30.0))


class Engine(FakeEngine):
    """An engine that knows whether its core broke down: then there is nothing more to learn."""

    failed = False

    def tell(self, *events: Event) -> list[Action]:
        self.failed = True
        actions = super().tell(*events)
        self.failed = False
        return actions


class CoreMachine(RuleBasedStateMachine):
    """Drives one core."""

    policies: ClassVar[list[str]] = policies.names()
    jobs: Bundle[JobId] = Bundle("jobs")

    @initialize(
        data=st.data(),
        cluster=clusters(),
        where=st.sampled_from(sorted(PLACERS)),
        limits=st.lists(queues(), max_size=2),
    )
    def begin(
        self, data: st.DataObject, cluster: list[NodeSpec], where: str, limits: list[QueueSpec]
    ) -> None:
        self.name = data.draw(st.sampled_from(self.policies), label="policy")
        self.placer = placer(where)
        self.policy = self.make(self.name)
        self.engine = Engine(Core(self.policy, self.placer))
        self.cluster = {node.id: node for node in cluster}
        self.broken: set[tuple[NodeId, int]] = set()
        self.gone: list[RunId] = []
        self.allowed: dict[QueueId, float] = {}
        self.submitted = 0
        self.tell(*(NodeJoined(0.0, node) for node in cluster))
        self.tell(*(QueueChanged(0.0, spec) for spec in limits))

    def make(self, name: str) -> Policy:
        return policies.policy(name)

    def tell(self, *events: Event) -> None:
        if events:
            before = set(self.engine.core.runs)
            self.engine.tell(*events)
            self.gone += sorted(before - set(self.engine.core.runs))

    @property
    def core(self) -> Core:
        return self.engine.core

    def later(self, after_s: float) -> float:
        self.engine.now += after_s
        return self.engine.now

    def pick(self, data: st.DataObject, runs: list[RunId]) -> RunId:
        return data.draw(st.sampled_from(runs), label="run")

    # -- users ---------------------------------------------------------------------------------

    @rule(target=jobs, wanted=st.lists(specs(), min_size=1, max_size=3), after_s=times)
    def submit(self, wanted: list[JobSpec], after_s: float) -> MultipleResults[JobId]:
        now, first = self.later(after_s), self.submitted
        self.submitted += len(wanted)
        names = [JobId(f"j{first + index}") for index in range(len(wanted))]
        self.tell(*(Submitted(now, name, w) for name, w in zip(names, wanted, strict=True)))
        return multiple(*names)

    @rule(name=consumes(jobs), after_s=times)
    def cancel(self, name: JobId, after_s: float) -> None:
        self.tell(CancelRequested(self.later(after_s), name))

    @rule(name=jobs, after_s=times)
    def suspend(self, name: JobId, after_s: float) -> None:
        self.tell(SuspendRequested(self.later(after_s), name))

    @rule(name=jobs, after_s=times)
    def resume(self, name: JobId, after_s: float) -> None:
        self.tell(ResumeRequested(self.later(after_s), name))

    @rule(spec=queues(), after_s=times)
    def change_queue(self, spec: QueueSpec, after_s: float) -> None:
        used = self.core.queues[spec.id].used_milli if spec.id in self.core.queues else 0
        self.allowed[spec.id] = used
        self.tell(QueueChanged(self.later(after_s), spec))

    # -- machines ------------------------------------------------------------------------------

    @precondition(lambda self: any(node.up for node in self.core.ledger.order))
    @rule(data=st.data(), after_s=times, at_once=st.booleans())
    def lose_node(self, data: st.DataObject, after_s: float, at_once: bool) -> None:  # noqa: FBT001
        up = [name for name, node in self.core.ledger.nodes.items() if node.up]
        node = self.core.ledger.nodes[data.draw(st.sampled_from(up), label="node")]
        now = self.later(after_s)
        events: list[Event] = [NodeLost(now, node.id)]
        if at_once:
            hit = {r.id for r in node.runs} & set(self.engine.processes)
            for run_id in sorted(hit):
                del self.engine.processes[run_id]
                events.append(Exited(now, run_id, Outcome.LOST, 1.0))
        self.tell(*events)

    @precondition(lambda self: not all(node.up for node in self.core.ledger.order))
    @rule(data=st.data(), after_s=times)
    def join_node(self, data: st.DataObject, after_s: float) -> None:
        down = [name for name, node in self.core.ledger.nodes.items() if not node.up]
        name = data.draw(st.sampled_from(down), label="node")
        self.tell(NodeJoined(self.later(after_s), self.cluster[name]))

    @rule(data=st.data(), after_s=times)
    def break_or_repair_gpu(self, data: st.DataObject, after_s: float) -> None:
        devices = [(node.id, gpu) for node in self.cluster.values() for gpu in range(node.gpus)]
        if not devices:
            return
        where = data.draw(st.sampled_from(devices), label="GPU")
        now = self.later(after_s)
        self.tell(GpuRestored(now, *where) if where in self.broken else GpuFailed(now, *where))
        self.broken ^= {where}

    # -- the engine ----------------------------------------------------------------------------

    @precondition(lambda self: self.engine.unanswered)
    @rule(data=st.data(), after_s=times)
    def answer(self, data: st.DataObject, after_s: float) -> None:
        run_id = self.pick(data, self.engine.unanswered)
        before = set(self.core.runs)
        self.engine.answer(run_id, after_s=after_s)
        self.gone += sorted(before - set(self.core.runs))

    @precondition(lambda self: self.engine.unanswered)
    @rule()
    def answer_everything(self) -> None:
        before = set(self.core.runs)
        self.engine.answer_all()
        self.gone += sorted(before - set(self.core.runs))

    @precondition(lambda self: self.engine.processes)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), after_s=times)
    def end(self, data: st.DataObject, outcome: Outcome, after_s: float) -> None:
        run_id = self.pick(data, list(self.engine.processes))
        self.later(after_s)
        self.engine.end(run_id, outcome, data.draw(st.sampled_from((0.0, 3.0)), label="saved"))
        self.gone.append(run_id)

    @precondition(lambda self: self.engine.working)
    @rule(data=st.data(), rate=st.floats(0.01, 100.0), after_s=times)
    def progress(self, data: st.DataObject, rate: float, after_s: float) -> None:
        run_id = self.pick(data, self.engine.working)
        done_s = data.draw(st.floats(0.0, 600.0), label="done")
        self.tell(Progressed(self.later(after_s), run_id, done_s, rate))

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def late_report(self, data: st.DataObject) -> None:
        run_id, now = self.pick(data, self.gone), self.engine.now
        if run_id in self.core.runs:  # taken back before it was launched, and given out again
            return
        state = snapshot(self.core)
        reports: list[Event] = [
            Started(now, run_id),
            Resized(now, run_id),
            Suspended(now, run_id, 1.0),
            Progressed(now, run_id, 1.0, 1.0),
            Exited(now, run_id, Outcome.SUCCEEDED, 1.0),
        ]
        self.tell(data.draw(st.sampled_from(reports), label="report"))
        assert differ(state, snapshot(self.core)) == []

    @precondition(lambda self: self.core.runs)
    @rule(data=st.data())
    def repeated_report(self, data: st.DataObject) -> None:
        """What was answered already, once more; only what is still asked for may be believed."""
        run_id, now = self.pick(data, list(self.core.runs)), self.engine.now
        asked = [type(action).__name__ for action in self._asked(run_id)]
        reports: list[Event] = []
        if not {"Launch", "Resume"} & set(asked):
            reports.append(Started(now, run_id))
        if not {"Resize", "Migrate"} & set(asked):
            reports.append(Resized(now, run_id))
        if "Suspend" not in asked:
            reports.append(Suspended(now, run_id, 1.0))
        self.tell(data.draw(st.sampled_from(reports), label="report"))

    def _asked(self, run_id: RunId) -> list[object]:
        process = self.engine.processes.get(run_id)
        return list(process.asked) if process is not None else []

    # -- time ----------------------------------------------------------------------------------

    @rule(after_s=times)
    def tick(self, after_s: float) -> None:
        self.tell(Woke(self.later(after_s)))

    @precondition(lambda self: self.core.wake_at < math.inf)
    @rule()
    def wake(self) -> None:
        self.engine.now = max(self.engine.now, self.core.wake_at)
        self.tell(Woke(self.engine.now))

    @rule()
    def restart(self) -> None:
        """The controller dies and is brought back from its journal."""
        again = Core(self.policy, self.placer)
        for batch in self.engine.journal:
            again.refold(batch.events, batch.decisions)
        assert differ(snapshot(self.core), snapshot(again)) == []
        self.engine.core = again
        self.tell(Woke(self.engine.now))

    # -- what must always hold -----------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "engine"):
            return
        validate(self.core, limits=False)
        for name, tenant in self.core.queues.items():
            limit = tenant.spec.limit_milli
            if limit is not None:
                allowed = max(limit, self.allowed.get(name, 0))
                assert tenant.used_milli <= allowed, f"queue {name} is over its limit"
                self.allowed[name] = min(allowed, tenant.used_milli)

    def teardown(self) -> None:
        if not hasattr(self, "engine") or self.engine.failed:
            return
        self.heal()
        self.finish()
        waiting = list(self.core.waiting)
        for job in self.core.jobs.values():
            assert job.state.over or job in waiting, f"job {job.id} is lost: {job}"
        assert all(node.taken == 0 for node in self.core.ledger.order)
        never = [job for job in waiting if not self.fits(job.spec)]
        if self.name not in STRICT:
            assert never == waiting, "someone waits in an empty cluster"
        elif self.name != "static":
            assert never or not waiting, "everyone waits in an empty cluster"
        validate(self.core, limits=False)
        check_journal(self.engine.journal, self.core)

    def heal(self) -> None:
        now = self.engine.now
        self.tell(*(QueueChanged(now, queue(name)) for name in QUEUES))
        self.tell(
            *(GpuRestored(now, *where) for where in sorted(self.broken)),
            *(NodeJoined(now, node.spec) for node in self.core.ledger.order if not node.up),
            *(ResumeRequested(now, job.id) for job in self.core.jobs.values()),
        )

    def finish(self) -> None:
        """Let everything that runs succeed, until only those who can never run are left."""
        for _ in range(10 * len(self.core.jobs) + 10):
            self.engine.answer_all()
            for run_id in self.engine.working:
                if run_id in self.engine.processes:
                    self.engine.end(run_id, Outcome.SUCCEEDED, 1.0)
            self.tick(60.0)
            if all(run.parked for run in self.core.runs.values()):
                return
        raise AssertionError(f"jobs never end: {list(self.core.runs)}")

    def fits(self, spec: JobSpec) -> bool:
        shape = Shape(spec.workers.min, spec.resources, spec.roles, spec.within)
        return self.placer(self.core.ledger, shape) is not None


class RestlessMachine(CoreMachine):
    """Drives one core whose policy disturbs everything."""

    policies: ClassVar[list[str]] = ["restless"]

    def make(self, name: str) -> Policy:
        return Restless(len(name))

    def heal(self) -> None:
        assert isinstance(self.policy, Restless)
        self.policy.calm = True
        super().heal()


TestPolicies = CoreMachine.TestCase
TestPolicies.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestRestless = RestlessMachine.TestCase
TestRestless.settings = settings(max_examples=examples(40), stateful_step_count=50)
