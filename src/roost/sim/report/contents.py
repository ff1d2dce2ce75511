"""What the page embeds: figures, distributions, series, bars and jobs, as compact columns.

Times are whole ticks since the first submission. Figures and distributions cover all seeds; what
shows one run (series, timeline, jobs) is of the first seed. How it is drawn is left to the scripts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from roost.sim.metrics import CAUSES, ComparisonRow, Summary, compare, estimate
from roost.sim.report.bars import TickScale, bars, node_rows
from roost.sim.report.figures import FIGURES
from roost.sim.report.intake import in_order, intakes
from roost.sim.report.thin import compact, quantiles, thin_steps
from roost.sim.results import Results

MAX_BARS = 180_000

#: Figures shown by queue and by job size.
GROUP_FIGURES = (
    *("jct_mean", "jct_median", "jct_p95", "delay_mean", "delay_p95"),
    *("gpu_allocation", "rho_mean", "unfair_fraction", "preemptions", "jobs"),
)

SERIES = ("capacity", "allocated", "useful", "queued", "running", "demand")


def contents(runs: Sequence[Results]) -> dict[str, Any]:
    """Everything the page needs to know about ``runs``, as plain values for JSON."""
    rows = compare(runs)
    shown = [in_order(_shown(runs, row)) for row in rows]
    clock, end = _clock(shown)
    nodes = node_rows(shown)
    given = intakes(shown)
    drawn = [bars(run.segments, nodes, clock, MAX_BARS // len(rows)) for run in shown]
    for intake, columns in zip(given, drawn, strict=True):
        intake.mention(columns["job"])
    queues = _queues(shown)
    outcomes = sorted({job.outcome for run in shown for job in run.jobs})
    distinct = list({id(intake): intake for intake in given}.values())
    policies = [
        {
            "name": _name(row, rows),
            **_figures(row),
            **_totals([run for run in runs if _is_of(run, row)]),
            "series": _series(run, clock, end),
            "intake": distinct.index(intake),
            "jobs": intake.outcomes(run, clock, outcomes),
            "bars": {**columns, "job": intake.known(columns["job"])},
        }
        for row, run, intake, columns in zip(rows, shown, given, drawn, strict=True)
    ]
    return {
        "workload": ", ".join(dict.fromkeys(run.workload for run in runs)),
        "nodes": runs[0].nodes,
        "gpus": runs[0].gpus,
        "seeds": list(dict.fromkeys(run.seed for run in runs)),
        "jobs": max(len(run.jobs) for run in runs),
        "tick": clock.tick,
        "horizon": max(1, clock.at(end)),
        "causes": CAUSES,
        "figures": [figure._asdict() for figure in FIGURES],
        "group_figures": GROUP_FIGURES,
        "queues": queues,
        "outcomes": outcomes,
        "node_rows": list(nodes.items()),
        "intakes": [intake.columns(clock, queues) for intake in distinct],
        "policies": policies,
    }


def _is_of(run: Results, row: ComparisonRow) -> bool:
    return (run.policy, run.placer) == (row.policy, row.placer)


def _shown(runs: Sequence[Results], row: ComparisonRow) -> Results:
    """Choose the run to show series of: that of the first run's workload and seed, if any."""
    own = [run for run in runs if _is_of(run, row)]
    wanted = (runs[0].workload, runs[0].seed)
    return next((run for run in own if (run.workload, run.seed) == wanted), own[0])


def _name(row: ComparisonRow, rows: Sequence[ComparisonRow]) -> str:
    """Name a policy, with its placer where the same policy comes with several."""
    twice = sum(other.policy == row.policy for other in rows) > 1
    return f"{row.policy} · {row.placer}" if twice else row.policy


def _clock(runs: Sequence[Results]) -> tuple[TickScale, float]:
    """Choose the origin, a tick of which about a million cover everything, and the end."""
    times = [run.series.time for run in runs if run.series.time]
    begins = [job.submitted_at for run in runs for job in run.jobs] or [at[0] for at in times]
    ends = [job.finished_at for run in runs for job in run.jobs if job.finished_at is not None]
    if len(ends) < len(begins):
        ends += [at[-1] for at in times]
    ends += [segment.end for run in runs for segment in run.segments]
    origin = min(begins, default=0.0)
    end = max(ends, default=origin)
    span = max(end - origin, 1e-3)
    return TickScale(origin, 10.0 ** min(0, math.ceil(math.log10(span / 1e6)))), end


def _queues(runs: Sequence[Results]) -> list[str]:
    """Name all queues, those that held most GPU time first."""
    held: dict[str, float] = {}
    for run in runs:
        for job in run.jobs:
            held[job.queue] = held.get(job.queue, 0.0) + job.service_gpu_s
    return sorted(held, key=lambda queue: (-held[queue], queue))


def _figures(row: ComparisonRow) -> dict[str, Any]:
    """Every figure with its interval and its difference to the first policy, and by group."""
    own = [row.figures[figure.key] for figure in FIGURES]
    against = [row.against_first.get(figure.key) for figure in FIGURES]
    return {
        "placer": row.placer,
        "seeds": row.seeds,
        "mean": compact([value.mean for value in own]),
        "half": compact([value.half_width for value in own]),
        "diff": compact([value.mean if value else None for value in against]),
        "diff_half": compact([value.half_width if value else None for value in against]),
        "waits": compact([row.figures[f"wait_{cause}"].mean for cause in CAUSES]),
        "by_queue": _groups(row.summaries, lambda summary: summary.by_queue),
        "by_size": _groups(row.summaries, lambda summary: summary.by_size),
    }


def _groups(
    summaries: Sequence[Summary], of: Callable[[Summary], dict[str, Summary]]
) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for summary in summaries for name in of(summary))
    return {
        name: compact(
            [
                estimate(getattr(of(one)[name], key) for one in summaries if name in of(one)).mean
                for key in GROUP_FIGURES
            ]
        )
        for name in names
    }


def _totals(own: Sequence[Results]) -> dict[str, Any]:
    """Add up all seeds of a policy: the distribution of completion times, and what it cost."""
    jct = [
        job.finished_at - job.submitted_at
        for run in own
        for job in run.jobs
        if job.finished_at is not None
    ]
    at, fraction = quantiles(np.array(jct, dtype=np.float64))
    jobs = sum(len(run.jobs) for run in own)
    return {
        "cdf": {
            "x": compact(at.tolist(), digits=5),
            "y": compact((fraction * len(jct) / max(jobs, 1)).tolist(), digits=5),
        },
        "events": sum(run.events for run in own),
        "decisions": sum(run.decisions for run in own),
        "wall_s": compact([sum(run.wall_s for run in own)])[0],
        "cpu_s": compact([sum(run.cpu_s for run in own)])[0],
    }


def _series(run: Results, clock: TickScale, end: float) -> dict[str, Any]:
    at, columns = thin_steps(
        run.series.time, {name: getattr(run.series, name) for name in SERIES}, end
    )
    ticks = [clock.at(time) for time in at.tolist()]
    gaps = [one - before for before, one in zip([0, *ticks], ticks, strict=False)]
    return {
        "at": gaps,
        **{
            name: {kind: compact(values.tolist()) for kind, values in kinds.items()}
            for name, kinds in columns.items()
        },
    }
