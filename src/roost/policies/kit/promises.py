"""Promises to queues: what is left of them while jobs are counted, and what a reclaim must stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roost.core.allocation import Allocation
from roost.core.plan import Plan
from roost.core.quota import GPU
from roost.core.quota_tree import Amounts
from roost.core.spec import QueueId
from roost.core.state import Job, Queue, Run
from roost.core.waiting import Line


def any_promises(queues: Iterable[Queue]) -> bool:
    """Whether some queue was promised something, or may not have what it likes."""
    return any(queue.spec.quota_milli is not None or queue.account is not None for queue in queues)


class Promises:
    """What is left of the quotas of queues, as jobs are counted against them."""

    def __init__(self, plan: Plan) -> None:
        self.left: dict[QueueId, Amounts] = {}
        for name, queue in plan.queues.items():
            account, quota = queue.account, queue.spec.quota_milli
            if account is not None and account.quotas:
                counted = account.tree.counted
                self.left[name] = {resource: account.nominal(resource) for resource in counted}
            elif account is None and quota is not None:
                self.left[name] = {GPU: quota}

    def covers(self, queue: Queue) -> bool:
        """Whether a queue was promised anything."""
        return queue.spec.id in self.left

    def take_run(self, run: Run) -> bool:
        """Count a run, if it is within what is left."""
        job = run.job
        account = job.queue.account
        if account is None:
            return self._take(job.queue, {GPU: job.gpu_milli})
        return self._take(job.queue, account.held(job, run.target or run.allocation))

    def take_waiting(self, queue: Queue, line: Line) -> bool:
        """Count a job of a line, if it is within what is left."""
        account = queue.account
        if account is None:
            return self._take(queue, {GPU: line.gpu_milli})
        return any(self._take(queue, claim) for claim in account.claims(line.head.spec))

    def _take(self, queue: Queue, amounts: Amounts) -> bool:
        left = self.left[queue.spec.id]
        if any(amount > left.get(name, 0) for name, amount in amounts.items()):
            return False
        for name, amount in amounts.items():
            left[name] -= amount
        return True


def in_the_way(job: Job, allocation: Allocation, cleared: Sequence[Run]) -> list[Run]:
    """Which of some runs that were cleared had to go for the quota of a job that was placed.

    Those that were cleared last may stay first. The books are left as they are.
    """
    account = job.queue.account
    if account is None or not cleared:
        return []
    wanted, needed = account.held(job, allocation), list[Run]()
    back: list[tuple[Run, Amounts]] = []
    account.book(wanted, -1)
    for run in reversed(cleared):
        other = run.job.queue.account
        if other is None:
            continue
        amounts = other.held(run.job, run.allocation)
        other.book(amounts)
        if account.admits(wanted):
            back.append((run, amounts))
        else:
            other.book(amounts, -1)
            needed.append(run)
    for run, amounts in back:
        if run.job.queue.account is not None:
            run.job.queue.account.book(amounts, -1)
    account.book(wanted)
    return needed[::-1]
