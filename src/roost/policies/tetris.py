"""Tetris: pack by alignment, and prefer jobs with little work left.

Grandl et al., "Multi-Resource Packing for Cluster Schedulers" (SIGCOMM 2014). The score of a job is
a - e * p: a is the dot product of its demand and what is free where it would go, both relative to
capacity; p is its remaining work (demand x time); e = mean a / mean p makes them comparable. The
sign is the paper's: *less* remaining work scores higher.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.allocation import Part
from roost.core.plan import Plan
from roost.core.spec import WHOLE
from roost.core.waiting import Line
from roost.policies.sjf import time_left


@dataclass(frozen=True, slots=True)
class Tetris:
    """Multi-resource packing by alignment, favouring little remaining work."""

    def __call__(self, plan: Plan) -> None:
        """Start the job with the best score that fits, again and again."""
        lines = [line for line in plan.lines(time_left) if line.refused_at != plan.ledger.releases]
        while lines:
            scored: list[tuple[Line, float, float]] = []
            for line in list(lines):
                parts = plan.placer(plan.ledger, line.shape)
                if parts is None or plan.over_limit(line.head, line.gpu_milli):
                    plan.hold(line)
                    lines.remove(line)
                else:
                    scored.append((line, alignment(plan, line, parts), work_left(line)))
            if not scored:
                return
            best = self._best(scored)
            if not plan.place(best.head):
                plan.hold(best)
                lines.remove(best)
            elif not best.entries:
                lines.remove(best)

    @staticmethod
    def _best(scored: list[tuple[Line, float, float]]) -> Line:
        mean_work = sum(work for _, _, work in scored) / len(scored)
        mean_alignment = sum(aligned for _, aligned, _ in scored) / len(scored)
        weight = mean_alignment / mean_work if mean_work else 0.0
        return max(scored, key=lambda item: (item[1] - weight * item[2], -item[0].head.seq))[0]


def alignment(plan: Plan, line: Line, parts: tuple[Part, ...]) -> float:
    """Demand times free capacity on the nodes where the gang would go, resource by resource."""
    need = line.shape.resources
    total = 0.0
    for part in parts:
        node = plan.ledger.nodes[part.node]
        spec = node.spec
        if spec.gpus:
            total += (part.gpu_milli / WHOLE / spec.gpus) * (node.shown_milli / WHOLE / spec.gpus)
        if spec.cpu_milli:
            asked = part.workers * need.cpu_milli
            total += (asked / spec.cpu_milli) * (node.cpu_left / spec.cpu_milli)
        if spec.memory_mib:
            asked = part.workers * need.memory_mib
            total += (asked / spec.memory_mib) * (node.memory_left / spec.memory_mib)
    return total / len(parts)


def work_left(line: Line) -> float:
    """GPU-seconds that the head of a line still needs; a day where that is unknown."""
    left = line.head.remaining_s
    return (left if left < float("inf") else 86400.0) * max(line.gpu_milli, 1) / WHOLE
