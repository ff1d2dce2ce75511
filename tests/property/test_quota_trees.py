"""Random trees of queues and random histories, against sums that are made slowly and plainly."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from roost.core import (
    Core,
    Exited,
    Launch,
    Outcome,
    QueueChanged,
    QueueId,
    QueueSpec,
    Started,
    Stop,
    Submitted,
    Woke,
)
from roost.core.actions import Action
from roost.core.quota import Quota
from roost.core.spec import JobId
from roost.policies import policy
from roost.testing.builders import core_with, node, spec
from roost.testing.checks import validate

NAMES = [QueueId(name) for name in ("root", "a", "b", "c", "d")]
KIND = "gpu:H100"


@st.composite
def trees(draw: st.DrawFn) -> list[QueueSpec]:
    """A tree of five queues with quotas of GPUs and of one kind."""
    found = [QueueSpec(NAMES[0], quota_milli=1000 * draw(st.integers(0, 2)))]
    for place, name in enumerate(NAMES[1:], start=1):
        quota, kind = 1000 * draw(st.integers(0, 4)), 1000 * draw(st.integers(0, 2))
        above = draw(st.none() | st.integers(0, 3))
        lends = draw(st.none() | st.integers(0, quota // 1000))
        found.append(
            QueueSpec(
                name,
                quota_milli=quota,
                limit_milli=None if above is None else quota + 1000 * above,
                weight=draw(st.sampled_from((0.5, 1.0, 3.0))),
                parent=NAMES[draw(st.integers(0, place - 1))],
                lending_milli=None if lends is None else 1000 * lends,
                quotas=(Quota(KIND, kind, draw(st.sampled_from((None, 0, 1000)))),),
            )
        )
    return found


class Oracle:
    """The rule by its definition: everything is summed up again each time."""

    def __init__(self, core: Core, specs: list[QueueSpec], resource: str) -> None:
        self.specs = {spec.id: spec for spec in specs}
        self.promised = {
            spec.id: next((q for q in spec.promises if q.resource == resource), Quota(resource, 0))
            for spec in specs
        }
        self.held: Counter[QueueId] = Counter()
        for run in core.runs.values():
            if run.booked:
                for part in (run.target or run.allocation).parts:
                    kind = core.ledger.nodes[part.node].spec.kind
                    if resource in ("gpu", f"gpu:{kind}"):
                        self.held[run.job.spec.queue] += part.gpu_milli

    def children(self, name: QueueId) -> list[QueueId]:
        return [child for child, spec in self.specs.items() if spec.parent == name]

    def quota(self, name: QueueId) -> int:
        lent = sum(self.quota(child) - self.kept(child) for child in self.children(name))
        return self.promised[name].nominal + lent

    def kept(self, name: QueueId) -> int:
        lending = self.promised[name].lending
        return 0 if lending is None else max(0, self.quota(name) - lending)

    def used(self, name: QueueId) -> int:
        passed_on = (max(0, self.used(child) - self.kept(child)) for child in self.children(name))
        return self.held[name] + sum(passed_on)

    def borrowed(self, name: QueueId) -> int:
        return max(0, self.used(name) - self.quota(name))


def check(core: Core, specs: list[QueueSpec]) -> None:
    """No queue has more than it may, and the accounts say the same as the sums."""
    validate(core)
    for resource in ("gpu", KIND):
        oracle = Oracle(core, specs, resource)
        assert oracle.used(NAMES[0]) <= oracle.quota(NAMES[0])
        for name in NAMES:
            account = core.queues[name].account
            assert account is not None
            assert account.used.get(resource, 0) == oracle.used(name)
            assert account.quota[resource] == oracle.quota(name)
            above = oracle.promised[name].borrowing
            assert above is None or oracle.borrowed(name) <= above
        _check_lent(core, oracle, resource)


def _check_lent(core: Core, oracle: Oracle, resource: str) -> None:
    """What is borrowed at a place of the tree is what others there lend, or it comes from above."""
    lent = {
        name: {each.resource: each.lent for each in account.holdings()}.get(resource, 0)
        for name in NAMES
        if (account := core.queues[name].account) is not None
    }
    for name in NAMES:
        idle = oracle.promised[name].nominal - oracle.held[name]
        wants = sum(map(oracle.borrowed, oracle.children(name))) + lent[name] + max(0, -idle)
        has = sum(lent[child] for child in oracle.children(name)) + oracle.borrowed(name)
        assert has <= wants <= has + max(0, idle)


def settle(core: Core, actions: list[Action], at: float) -> None:
    """Let all that was decided happen, until nothing is left to do."""
    for _ in range(50):
        if not actions:
            return
        events: list[Started | Exited] = []
        for action in actions:
            if isinstance(action, Launch):
                events.append(Started(at, action.run))
            elif isinstance(action, Stop):
                events.append(Exited(at, action.run, Outcome.STOPPED))
        actions = core.handle(*events)
    raise AssertionError("the decisions never end")


jobs = st.tuples(
    st.sampled_from(NAMES[1:]),
    st.integers(1, 3),
    st.sampled_from(((), ("H100",), ("A100",))),
    st.integers(0, 1),
)


@settings(max_examples=120, deadline=None)
@given(trees(), st.lists(jobs | st.none(), max_size=14), st.sampled_from(("priority", "fair")))
def test_no_queue_has_more_than_its_tree_lets_it(
    specs: list[QueueSpec], history: list[tuple[QueueId, int, tuple[str, ...], int] | None], by: str
) -> None:
    core = core_with(policy(by), node("h0", 8, kind="H100"), node("a0", 8, kind="A100"))
    core.handle(*(QueueChanged(0.0, each) for each in specs))
    for at, step in enumerate(history, start=1):
        if step is None:
            ready = sorted(run.id for run in core.runs.values() if run.settled)
            actions = core.handle(Exited(at, ready[0], Outcome.SUCCEEDED) if ready else Woke(at))
        else:
            name, gpus, kinds, priority = step
            asked = spec(gpus, queue=name, kinds=kinds, priority=priority)
            actions = core.handle(Submitted(at, JobId(f"j{at}"), asked))
        check(core, specs)
        settle(core, actions, at)
        check(core, specs)
        if by == "priority":
            no_lender_waits(core)


def no_lender_waits(core: Core) -> None:
    """No job within what its queue was promised waits while others have borrowed it."""
    for job in core.waiting:
        account = job.queue.account
        assert account is not None
        within = [claim for claim in account.claims(job.spec) if account.promised(claim)]
        if not within or len(job.spec.resources.kinds) != 1 or not _reachable(core, job.queue.spec):
            continue
        lacking = account.lacks(within[0])
        borrowers = [
            member
            for member in account.tree.members
            for name in lacking
            if member is not account and member.own.get(name, 0) > member.nominal(name)
        ]
        assert not borrowers, f"{job.id} waits for {lacking}"


def _reachable(core: Core, queue: QueueSpec) -> bool:
    """Whether nothing above a queue bounds what it may have: then its quota is always its own."""
    at = queue.parent
    while at is not None:
        spec = core.queues[at].spec
        if spec.limit_milli is not None or spec.lending_milli is not None or spec.quotas:
            return False
        at = spec.parent
    return True
