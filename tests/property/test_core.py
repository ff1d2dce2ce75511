"""Whatever happens, in whatever order: books balance, no device is given twice, no job is lost.

A state machine drives the core with every policy: users who change their minds, machines that
break, and an engine that answers late, out of order or twice. It finds short stories; the
random histories beside it are long ones.
"""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
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
from tests.support.effort import examples, quick

from roost import policies
from roost.core import (
    CancelRequested,
    Core,
    Deleted,
    Evict,
    Job,
    JobId,
    JobSpec,
    Measured,
    MigrateRequested,
    NodeId,
    NodeJoined,
    NodeSpec,
    NodeUncordoned,
    Outcome,
    Policy,
    Progressed,
    QueueSpec,
    Range,
    ResumeRequested,
    RunId,
    ScaleRequested,
    SuspendRequested,
    Woke,
)
from roost.placement import PLACERS
from roost.testing.faulty_engine import FaultyEngine
from roost.testing.policies import Restless
from roost.testing.random_history import RandomHistory
from roost.testing.strategies import POOLS, clusters, nodes, queues, specs

#: These may leave a job that fits waiting behind one that never will.
STRICT = {"fifo", "static", "conservative"}

times = st.sampled_from((0.0, 0.0, 1.0, 7.0, 30.0))


def rank(job: Job) -> tuple[int, int]:
    return job.queue.spec.priority, job.spec.priority


def promised(job: Job) -> bool:
    """Whether its queue was promised room for at least this one job."""
    quota = job.queue.spec.quota_milli
    return quota is not None and job.gpu_milli <= quota


def nobody_waits_in_vain(engine: FaultyEngine, name: str) -> None:
    """When all is over, only those wait for whom there is no room even in an empty cluster."""
    fit = engine.still_fit()
    if name not in STRICT:
        assert not fit, f"{fit} wait in an empty cluster"
    elif name != "static":
        assert not fit or len(fit) < engine.core.waiting.count, f"all of {fit} wait"


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
        self.policy = self.make(self.name)
        self.engine = FaultyEngine(self.policy, where, cluster)
        self.engine.gentle = self.name != "restless"
        for limit in limits:
            self.engine.change_queue(limit)

    def make(self, name: str) -> Policy:
        return quick(name)

    def pick(self, data: st.DataObject, runs: list[RunId]) -> RunId:
        return data.draw(st.sampled_from(runs), label="run")

    # -- users ---------------------------------------------------------------------------------

    @rule(
        target=jobs,
        wanted=st.lists(specs(), min_size=1, max_size=4),
        after_s=times,
        answer=st.booleans(),
    )
    def submit(
        self,
        wanted: list[JobSpec],
        after_s: float,
        answer: bool,  # noqa: FBT001
    ) -> MultipleResults[JobId]:
        self.engine.later(after_s)
        names = self.engine.submit(*wanted)
        if answer:
            self.engine.answer_each()
        return multiple(*names)

    @rule(
        target=jobs,
        data=st.data(),
        wanted=specs(),
        placed=st.booleans(),
        running=st.booleans(),
        after_s=times,
    )
    def adopt(
        self,
        data: st.DataObject,
        wanted: JobSpec,
        placed: bool,  # noqa: FBT001
        running: bool,  # noqa: FBT001
        after_s: float,
    ) -> JobId:
        now = self.engine.later(after_s)
        return self.engine.adopt(
            wanted,
            placed=placed,
            running=running,
            done_s=data.draw(st.sampled_from((0.0, 3.0)), label="done"),
            started_at=data.draw(st.sampled_from((None, now - 30.0)), label="started"),
            held=data.draw(st.sampled_from((False, False, True)), label="held"),
            not_before=data.draw(st.sampled_from((0.0, 0.0, now + 40.0)), label="not before"),
        )

    @precondition(lambda self: self.engine.core.runs)
    @rule(data=st.data(), wanted=specs(), after_s=times)
    def adopt_in_vain(self, data: st.DataObject, wanted: JobSpec, after_s: float) -> None:
        self.engine.later(after_s)
        self.engine.adopt_in_vain(wanted, self.pick(data, list(self.engine.core.runs)))

    @rule(name=jobs, why=st.sampled_from(("its budget", "its budget", "")), after_s=times)
    def protect(self, name: JobId, why: str, after_s: float) -> None:
        self.engine.later(after_s)
        self.engine.protect(name, why)

    @rule(name=consumes(jobs), after_s=times)
    def cancel(self, name: JobId, after_s: float) -> None:
        self.engine.tell(CancelRequested(self.engine.later(after_s), name))

    @rule(name=jobs, after_s=times)
    def suspend(self, name: JobId, after_s: float) -> None:
        self.engine.tell(SuspendRequested(self.engine.later(after_s), name))

    @rule(name=jobs, after_s=times)
    def resume(self, name: JobId, after_s: float) -> None:
        self.engine.tell(ResumeRequested(self.engine.later(after_s), name))

    @rule(name=jobs, low=st.integers(1, 3), more=st.integers(0, 2), after_s=times)
    def scale(self, name: JobId, low: int, more: int, after_s: float) -> None:
        wanted = Range(low, low + more)
        self.engine.request(ScaleRequested(self.engine.later(after_s), name, wanted))

    @rule(data=st.data(), name=jobs, after_s=times)
    def migrate(self, data: st.DataObject, name: JobId, after_s: float) -> None:
        where = data.draw(st.sampled_from((None, *self.engine.cluster)), label="node")
        self.engine.request(MigrateRequested(self.engine.later(after_s), name, where))

    @rule(name=consumes(jobs), after_s=times)
    def delete(self, name: JobId, after_s: float) -> None:
        self.engine.request(Deleted(self.engine.later(after_s), name))

    @rule(changed=queues(), after_s=times)
    def change_queue(self, changed: QueueSpec, after_s: float) -> None:
        self.engine.later(after_s)
        self.engine.change_queue(changed)

    # -- machines ------------------------------------------------------------------------------

    @precondition(lambda self: any(node.here for node in self.engine.core.ledger.order))
    @rule(data=st.data(), after_s=times, at_once=st.booleans())
    def lose_node(self, data: st.DataObject, after_s: float, at_once: bool) -> None:  # noqa: FBT001
        up = [name for name, node in self.engine.core.ledger.nodes.items() if node.here]
        self.engine.later(after_s)
        self.engine.lose(data.draw(st.sampled_from(up), label="node"), at_once=at_once)

    @precondition(lambda self: not all(node.here for node in self.engine.core.ledger.order))
    @rule(data=st.data(), after_s=times)
    def join_node(self, data: st.DataObject, after_s: float) -> None:
        down = [name for name, node in self.engine.core.ledger.nodes.items() if not node.here]
        name = data.draw(st.sampled_from(down), label="node")
        self.engine.tell(NodeJoined(self.engine.later(after_s), self.engine.cluster[name]))

    @rule(data=st.data(), drain=st.booleans(), after_s=times)
    def cordon(self, data: st.DataObject, drain: bool, after_s: float) -> None:  # noqa: FBT001
        name = data.draw(st.sampled_from(list(self.engine.cluster)), label="node")
        self.engine.later(after_s)
        self.engine.cordon(name, drain=drain)

    @precondition(lambda self: self.engine.core.ledger.cordoned)
    @rule(data=st.data(), after_s=times)
    def uncordon(self, data: st.DataObject, after_s: float) -> None:
        cordoned = list(self.engine.core.ledger.cordoned)
        name = data.draw(st.sampled_from(cordoned), label="node")
        self.engine.tell(NodeUncordoned(self.engine.later(after_s), name))

    @rule(data=st.data(), name=st.sampled_from(POOLS), after_s=times)
    def change_pool(self, data: st.DataObject, name: str, after_s: float) -> None:
        known = st.sampled_from((*self.engine.cluster, NodeId("unknown")))
        members = data.draw(st.lists(known, unique=True), label="nodes")
        self.engine.later(after_s)
        self.engine.change_pool(name, members)

    @rule(data=st.data(), after_s=times)
    def change_node(self, data: st.DataObject, after_s: float) -> None:
        name = data.draw(st.sampled_from(list(self.engine.cluster)), label="node")
        self.engine.later(after_s)
        self.engine.change_node(data.draw(nodes(name), label="hardware"))

    @rule(data=st.data(), after_s=times)
    def break_or_repair_gpu(self, data: st.DataObject, after_s: float) -> None:
        nodes = self.engine.cluster.values()
        devices = [(node.id, gpu) for node in nodes for gpu in range(node.gpus)]
        if devices:
            self.engine.later(after_s)
            self.engine.break_or_repair(*data.draw(st.sampled_from(devices), label="GPU"))

    # -- the engine ----------------------------------------------------------------------------

    @precondition(lambda self: self.engine.unanswered)
    @rule(data=st.data(), after_s=times)
    def answer(self, data: st.DataObject, after_s: float) -> None:
        self.engine.took_s = data.draw(st.sampled_from((None, 0.0, 2.5)), label="took")
        self.engine.answer(self.pick(data, self.engine.unanswered), after_s=after_s)

    @rule(rounds=st.integers(1, 3))
    def answer_each(self, rounds: int) -> None:
        for _ in range(rounds):
            self.engine.answer_each()

    @precondition(lambda self: self.engine.processes)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), after_s=times)
    def end(self, data: st.DataObject, outcome: Outcome, after_s: float) -> None:
        run_id = self.pick(data, list(self.engine.processes))
        self.engine.later(after_s)
        saved_s = data.draw(st.sampled_from((0.0, 3.0)), label="saved")
        delay_s = data.draw(st.sampled_from((0.0, 0.0, 40.0)), label="delay")
        final = data.draw(st.sampled_from((False, False, True)), label="final")
        self.engine.end(run_id, outcome, saved_s, final=final, delay_s=delay_s)

    @precondition(lambda self: self.engine.working)
    @rule(data=st.data(), rate=st.floats(0.01, 100.0), after_s=times)
    def progress(self, data: st.DataObject, rate: float, after_s: float) -> None:
        run_id = self.pick(data, self.engine.working)
        done_s = data.draw(st.floats(0.0, 600.0), label="done")
        self.engine.tell(Progressed(self.engine.later(after_s), run_id, done_s, rate))

    @precondition(lambda self: self.engine.working)
    @rule(data=st.data(), workers=st.integers(1, 4), step_s=st.floats(0.01, 9.0), after_s=times)
    def measure(self, data: st.DataObject, workers: int, step_s: float, after_s: float) -> None:
        run_id = self.pick(data, self.engine.working)
        self.engine.tell(Measured(self.engine.later(after_s), run_id, workers, step_s, 100, 8.0))

    @precondition(lambda self: self.engine.shrinkable)
    @rule(data=st.data(), index=st.integers(0, 4), after_s=times)
    def lose_worker(self, data: st.DataObject, index: int, after_s: float) -> None:
        run_id = self.pick(data, self.engine.shrinkable)
        self.engine.later(after_s)
        self.engine.lose_worker(run_id, index)

    @precondition(lambda self: self.engine.gone)
    @rule(data=st.data())
    def late_report(self, data: st.DataObject) -> None:
        run_id = self.pick(data, self.engine.gone)
        if run_id not in self.engine.core.runs:  # else it was taken back, and given out again
            reports = self.engine.late_reports(run_id)
            self.engine.report_late(data.draw(st.sampled_from(reports), label="report"))

    @precondition(lambda self: self.engine.core.runs)
    @rule(data=st.data())
    def repeated_report(self, data: st.DataObject) -> None:
        reports = self.engine.repeated_reports(self.pick(data, list(self.engine.core.runs)))
        self.engine.tell(data.draw(st.sampled_from(reports), label="report"))

    # -- time ----------------------------------------------------------------------------------

    @rule(after_s=times)
    def tick(self, after_s: float) -> None:
        self.engine.tell(Woke(self.engine.later(after_s)))

    @precondition(lambda self: self.engine.core.wake_at < math.inf)
    @rule()
    def wake(self) -> None:
        self.engine.later(max(0.0, self.engine.core.wake_at - self.engine.now))
        self.engine.tell(Woke(self.engine.now))

    @rule()
    def restart(self) -> None:
        self.engine.restart()

    # -- what must always hold -----------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check()

    def teardown(self) -> None:
        if hasattr(self, "engine") and not self.engine.failed:
            self.calm_down()
            self.engine.clear_up()
            nobody_waits_in_vain(self.engine, self.name)

    def calm_down(self) -> None:
        """Let the policy only start what fits, if it is not content with that."""


class RestlessMachine(CoreMachine):
    """Drives one core whose policy disturbs everything."""

    policies: ClassVar[list[str]] = ["restless"]

    def make(self, name: str) -> Policy:
        return Restless(len(name))

    def calm_down(self) -> None:
        assert isinstance(self.policy, Restless)
        self.policy.calm = True


TestPolicies = CoreMachine.TestCase
TestPolicies.settings = settings(max_examples=examples(90), stateful_step_count=40)
TestRestless = RestlessMachine.TestCase
TestRestless.settings = settings(max_examples=examples(60), stateful_step_count=50)


@pytest.mark.parametrize("seed", range(examples(4)))
@pytest.mark.parametrize("name", policies.names())
def test_every_policy_weathers_a_storm(name: str, seed: int) -> None:
    where = sorted(PLACERS)[seed % len(PLACERS)]

    engine = RandomHistory(quick(name), where, seed).run(200)
    engine.restart()
    engine.clear_up()

    nobody_waits_in_vain(engine, name)


@pytest.mark.parametrize("seed", range(examples(16)))
def test_the_core_weathers_a_policy_that_disturbs_everything(seed: int) -> None:
    policy = Restless(seed)

    history = RandomHistory(policy, sorted(PLACERS)[seed % len(PLACERS)], seed)
    history.engine.gentle = False
    history.run(150).restart()
    engine = history.run(150)
    policy.calm = True
    engine.clear_up()

    nobody_waits_in_vain(engine, "restless")


@pytest.mark.parametrize("seed", range(examples(6)))
def test_only_lower_priorities_make_room_unless_it_was_promised(seed: int) -> None:
    policy = policies.policy("priority")
    history = RandomHistory(policy, sorted(PLACERS)[seed % len(PLACERS)], seed)
    batches = history.run(250).journal
    again = Core(policy, history.engine.placer)

    for batch in batches:
        again.refold(batch.events, batch.decisions)
        for decision in batch.decisions:
            if isinstance(decision, Evict) and "drained" not in decision.reason:
                favoured = again.jobs[JobId(decision.reason.removeprefix("makes room for "))]
                assert promised(favoured) or rank(favoured) > rank(again.jobs[decision.job])
