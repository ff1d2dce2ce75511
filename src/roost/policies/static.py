"""Static partition: every queue has its own slice of the cluster and never leaves it."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from roost.core.plan import Plan
from roost.core.reasons import Cause, gpus
from roost.core.state import Queue
from roost.core.waiting import Line
from roost.policies.fifo import arrival


@dataclass(frozen=True, slots=True)
class StaticPartition:
    """Every queue has its own slice, by quota or by weight; first come, first served inside."""

    def __call__(self, plan: Plan) -> None:
        """Serve each queue from its slice, as if the others were not there."""
        lines: dict[Queue, list[Line]] = defaultdict(list)
        for line in plan.lines(arrival, by_queue=True):
            lines[line.head.queue].append(line)
        sizes = slices(plan)
        for queue, own in sorted(lines.items(), key=lambda item: item[0].spec.id):
            self._serve(plan, queue, own, sizes[queue])

    @staticmethod
    def _serve(plan: Plan, queue: Queue, lines: list[Line], size_milli: int) -> None:
        while lines:
            line = min(lines, key=lambda line: line.entries[0][:2])
            inside = queue.used_milli + line.gpu_milli <= size_milli
            refused = line.refused_at == plan.ledger.releases
            if inside and not refused and plan.place(line.head):
                if not line.entries:
                    lines.remove(line)
                continue
            if inside:
                plan.hold(line)
                return
            text = f"its queue has {gpus(size_milli)} of its own; too little of that is free"
            for other in lines:
                plan.say(other, text, Cause.QUOTA)
            return


def slices(plan: Plan) -> dict[Queue, int]:
    """Each queue's slice in milli-GPUs: its quota, or its weight's share of what has no quota."""
    queues = list(plan.queues.values())
    promised = sum(queue.spec.quota_milli or 0 for queue in queues)
    rest = max(0, plan.ledger.capacity_milli - promised)
    weights = sum(queue.spec.weight for queue in queues if queue.spec.quota_milli is None)
    return {
        queue: math.floor(round(rest * queue.spec.weight / weights, 3))  # 0.1 is not exact
        if queue.spec.quota_milli is None
        else queue.spec.quota_milli
        for queue in queues
    }
