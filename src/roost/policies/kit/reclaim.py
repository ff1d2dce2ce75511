"""Getting back what was lent: a queue below its quota stops runs of queues that borrowed it.

Which ones: of the lowest priority first and, among equals, those whose stop costs least, by the
work since their last checkpoint and what it takes to start them again. Only queues of the tree that
hold more than they were promised of what is lacking have to give, and no more than that. Where
those that cost least leave no node with room, others are tried, those of one node together.
"""

from __future__ import annotations

from collections.abc import Iterator

from roost.core.plan import Plan
from roost.core.quota_tree import Account, Amounts
from roost.core.state import Job, Run
from roost.core.waiting import Line
from roost.policies.kit.order import displace, may_disturb
from roost.policies.kit.victims import Clear

#: Where searches in vain are noted: the ledger as it was, by line.
_IN_VAIN = "reclaims"
#: How many of them.
_MEMORY = 4096
#: With how many runs the search is begun anew.
_STARTS = 32


def reclaim(plan: Plan, line: Line, min_run_s: float = 0.0, clear: Clear = Plan.evict) -> bool:
    """Stop borrowers until the quota of a line's queue has room for its head, and place it.

    A job within what its queue was promised takes it from the borrowers of its tree. Any job takes
    it from runs of its own queue with a lower priority. Without success nothing is changed.
    """
    job = line.head
    account = job.queue.account
    if account is None or not line.preempts:
        return False
    in_vain: dict[Line, tuple[int, int]] = plan.memo.setdefault(_IN_VAIN, {})
    now = (plan.ledger.stamp, job.seq)
    if in_vain.get(line) == now:
        plan.wake(_next_able(plan, account, min_run_s))
        return False
    asked = account.asked(job.spec, job.spec.workers.min)
    lacking = [name for name in account.tree.counted if _short(account, name, asked, job)]
    if not lacking:
        return False
    lower = [run for run in _lower(plan, job) if may_disturb(plan, run, min_run_s)]
    over = _above(account, lacking)
    lent: list[Run] = []
    if any(map(account.promised, account.claims(job.spec))):
        lent = _borrowers(plan, over, min_run_s)
    for victims in _ways(plan, lower, lent, over):
        if displace(plan, job, dict.fromkeys(victims), clear, "gives back what was lent"):
            return True
    if len(in_vain) > _MEMORY:
        in_vain.clear()
    in_vain[line] = (plan.ledger.stamp, job.seq)
    return False


def price(run: Run, now: float) -> tuple[int, int, float, int]:
    """What the stop of a run costs: its priority, then seconds of work, then the oldest last."""
    job = run.job
    return job.queue.spec.priority, job.spec.priority, run.disturbance_s(now), -job.seq


def _short(account: Account, name: str, asked: Amounts, job: Job) -> bool:
    """Whether there is no room for a job in one resource; of kinds, if any of them would do."""
    amount = asked.get(name, 0)
    if not amount and name.startswith("gpu:") and not job.spec.resources.kinds:
        amount = job.gpu_milli
    return amount > account.room(name)


def _lower(plan: Plan, job: Job) -> list[Run]:
    """Runs of a job's own queue that have a lower priority."""
    return [
        run
        for run in plan.running
        if run.job.queue is job.queue
        and run.job.spec.priority < job.spec.priority
        and run.job.preemptible
        and run.booked
    ]


def _above(account: Account, lacking: list[str]) -> dict[Account, Amounts]:
    """What other queues of a tree have above what they were promised of some resources."""
    over: dict[Account, Amounts] = {}
    for member in account.tree.members:
        if member is not account:
            above = {name: member.own.get(name, 0) - member.nominal(name) for name in lacking}
            over[member] = {name: amount for name, amount in above.items() if amount > 0}
    return over


def _borrowers(plan: Plan, over: dict[Account, Amounts], min_run_s: float) -> list[Run]:
    """Runs of queues above what they were promised, cheapest first."""
    runs = [
        run
        for run in plan.running
        if run.job.queue.account is not None
        and over.get(run.job.queue.account)
        and run.job.preemptible
        and may_disturb(plan, run, min_run_s)
    ]
    return sorted(runs, key=lambda run: price(run, plan.now))


def _ways(
    plan: Plan, lower: list[Run], lent: list[Run], over: dict[Account, Amounts]
) -> Iterator[list[Run]]:
    """Runs that may have to go, in turn: the cheapest; then, with each, what is on its nodes."""
    cheapest = _as_many(lent, over)
    yield sorted(lower + cheapest, key=lambda run: price(run, plan.now))
    if len(cheapest) == len(lent):
        return  # there is no other choice
    for first in lent[:_STARTS]:
        beside = set(first.allocation.nodes)
        order = sorted(
            lent, key=lambda run: (run is not first, beside.isdisjoint(run.allocation.nodes))
        )
        yield _as_many(order, over) + lower


def _as_many(lent: list[Run], over: dict[Account, Amounts]) -> list[Run]:
    """Of runs in their order as many as it takes until nobody has too much."""
    left = {account: dict(amounts) for account, amounts in over.items()}
    found: list[Run] = []
    for run in lent:
        owner = run.job.queue.account
        assert owner is not None  # noqa: S101 - narrows the type
        held = owner.held(run.job, run.allocation)
        if any(left[owner].get(name, 0) > 0 for name in held):
            for name in left[owner]:
                left[owner][name] -= held.get(name, 0)
            found.append(run)
    return found


def _next_able(plan: Plan, account: Account, min_run_s: float) -> float:
    """When the next run of a tree may be disturbed that may not yet."""
    until = [
        run.started_at + max(min_run_s, run.job.spec.min_run_s)
        for run in plan.running
        if run.started_at is not None
        and run.job.queue.account is not None
        and run.job.queue.account.tree is account.tree
    ]
    return min((at for at in until if at > plan.now), default=float("inf"))
