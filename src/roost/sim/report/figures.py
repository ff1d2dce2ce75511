"""How the page presents each figure of a summary: its name, its unit, and which way is better."""

from __future__ import annotations

from typing import Literal, NamedTuple


class FigureFormat(NamedTuple):
    """How to present one figure of a summary: its name, its unit, and which way is better."""

    key: str
    label: str
    group: str
    unit: Literal["s", "gpu_h", "fraction", "ratio", "count"]
    better: Literal["low", "high"] | None
    meaning: str


FIGURES = tuple(
    FigureFormat(*row)
    for row in (
        ("jct_mean", "Mean JCT", "Completion", "s", "low", "from submission to the end"),
        ("jct_median", "Median JCT", "Completion", "s", "low", "half of the jobs took less"),
        ("jct_p95", "p95 JCT", "Completion", "s", "low", "19 jobs in 20 took less"),
        ("jct_p99", "p99 JCT", "Completion", "s", "low", "99 jobs in 100 took less"),
        ("jct_max", "Longest JCT", "Completion", "s", "low", "the job that took longest"),
        ("makespan", "Makespan", "Completion", "s", "low", "first submission to last end"),
        ("finished", "Finished", "Completion", "count", "high", "jobs that ended in any way"),
        ("delay_mean", "Mean wait", "Waiting", "s", "low", "time a job did not run"),
        ("delay_median", "Median wait", "Waiting", "s", "low", "half of the jobs waited less"),
        ("delay_p95", "p95 wait", "Waiting", "s", "low", "19 jobs in 20 waited less"),
        ("wait_quota", "Quota wait", "Waiting", "s", None, "its queue was over its quota"),
        ("wait_fragmentation", "Fragmentation wait", "Waiting", "s", None, "room, but in pieces"),
        ("wait_capacity", "Capacity wait", "Waiting", "s", None, "not enough free GPUs"),
        ("wait_turn", "Turn wait", "Waiting", "s", None, "room, but others went first"),
        ("gpu_allocation", "GPUs held", "GPUs", "fraction", "high", "of GPU time in service"),
        ("gpu_useful", "GPUs useful", "GPUs", "fraction", "high", "held, less what was lost"),
        ("lost_gpu_h", "Lost", "GPUs", "gpu_h", "low", "thrown away or spent on restarts"),
        ("rho_mean", "Mean rho", "Fairness", "ratio", "low", "JCT over that on an equal part"),
        ("rho_p95", "p95 rho", "Fairness", "ratio", "low", "19 jobs in 20 were below"),
        ("rho_max", "Worst rho", "Fairness", "ratio", "low", "the job treated worst"),
        (
            "unfair_fraction",
            "rho above 1",
            "Fairness",
            "fraction",
            "low",
            "less than an equal part",
        ),
        ("restarts", "Restarts", "Disruption", "count", "low", "runs beyond each job's first"),
        ("preemptions", "Preemptions", "Disruption", "count", "low", "runs stopped for others"),
        ("resizes", "Resizes", "Disruption", "count", None, "runs grown or shrunk"),
    )
)
