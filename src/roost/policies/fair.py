"""Max-min fair share between queues, with preemption.

The classic water-filling: GPUs are dealt out by weight, no queue gets more than it asks for, and
what one leaves is dealt to the others. A queue below its share may take GPUs back from queues above
theirs (as Hadoop's Fair Scheduler and Kueue's fair sharing do); what is idle may be borrowed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.state import Queue, Run
from roost.core.waiting import Line
from roost.policies.fifo import arrival
from roost.policies.kit.order import displace, may_disturb
from roost.policies.kit.reclaim import reclaim


@dataclass(frozen=True, slots=True)
class FairShare:
    """Max-min fair share between queues by weight; those above their share give way."""

    min_run_s: float = 0.0

    def __call__(self, plan: Plan) -> None:
        """Serve the queue that is furthest below its share, again and again."""
        lines: dict[Queue, list[Line]] = defaultdict(list)
        for line in plan.lines(arrival, by_queue=True):
            lines[line.head.queue].append(line)
        if not lines:
            return
        shares = fair_shares(plan)
        heap = [(queue.used_milli / queue.spec.weight, queue.spec.id, queue) for queue in lines]
        heapq.heapify(heap)
        while heap:
            _, name, queue = heap[0]
            if self._start_next(plan, queue, lines[queue], shares):
                heapq.heapreplace(heap, (queue.used_milli / queue.spec.weight, name, queue))
            else:
                heapq.heappop(heap)

    def _start_next(
        self, plan: Plan, queue: Queue, lines: list[Line], shares: Mapping[Queue, float]
    ) -> bool:
        while lines:
            line = min(lines, key=lambda line: line.entries[0][:2])
            refused = line.refused_at == plan.ledger.releases
            job = line.head
            started = (not refused and plan.place(job)) or (
                line.preempts
                and queue.used_milli + line.gpu_milli <= shares[queue]
                and not plan.over_limit(job, line.gpu_milli)
                and displace(plan, job, self._victims(plan, shares))
            )
            started = started or reclaim(plan, line, self.min_run_s)
            if not started:
                plan.hold(line)
            if not started or not line.entries:
                lines.remove(line)
            if started:
                return True
        return False

    def _victims(self, plan: Plan, shares: Mapping[Queue, float]) -> list[Run]:
        """Runs that queues hold above their shares: youngest first, from the most spoilt queue."""
        over = {q: q.used_milli - shares.get(q, 0.0) for q in plan.queues.values()}
        found: list[Run] = []
        runs = sorted(
            (run for run in plan.running if over[run.job.queue] > 0 and self._may_go(plan, run)),
            key=lambda run: (
                over[run.job.queue] / run.job.queue.spec.weight,
                run.placed_at,
                run.id,
            ),
            reverse=True,
        )
        for run in runs:
            if over[run.job.queue] >= run.gpu_milli:
                over[run.job.queue] -= run.gpu_milli
                found.append(run)
        return found

    def _may_go(self, plan: Plan, run: Run) -> bool:
        return run.job.preemptible and may_disturb(plan, run, self.min_run_s)


def fair_shares(plan: Plan) -> dict[Queue, float]:
    """Water-filling: each queue's fair share in milli-GPUs, given what it uses and asks for."""
    wants: dict[Queue, float] = defaultdict(float)
    for queue in plan.queues.values():
        wants[queue] = queue.used_milli
    for line in plan.waiting.open:
        wants[line.head.queue] += line.gpu_milli * len(line.entries)
    for queue, want in wants.items():
        if queue.spec.limit_milli is not None:
            wants[queue] = min(want, queue.spec.limit_milli)
    left = float(plan.ledger.capacity_milli)
    shares: dict[Queue, float] = {}
    open_queues = sorted(wants, key=lambda queue: wants[queue] / queue.spec.weight)
    weights = sum(queue.spec.weight for queue in open_queues)
    for queue in open_queues:
        share = min(wants[queue], left * queue.spec.weight / weights) if weights > 0 else 0.0
        left -= share
        weights -= queue.spec.weight
        shares[queue] = round(share, 3)  # weights such as 0.1 are not exact
    return shares
