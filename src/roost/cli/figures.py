"""How the figures of runs are printed, for one run and for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from roost.cli.output import duration, number, percent, print_csv, print_json, print_table

if TYPE_CHECKING:
    from roost.sim.metrics import Estimate
    from roost.sim.results import Results

#: Columns of the comparison: heading, figure, how it is written.
_COLUMNS: list[tuple[str, str, Callable[[float | None], str]]] = [
    ("jct mean", "jct_mean", duration),
    ("median", "jct_median", duration),
    ("p95", "jct_p95", duration),
    ("p99", "jct_p99", duration),
    ("queued", "delay_mean", duration),
    ("makespan", "makespan", duration),
    ("allocated", "gpu_allocation", percent),
    ("useful", "gpu_useful", percent),
    ("preempted", "preemptions", number),
    ("resized", "resizes", number),
    ("lost gpu h", "lost_gpu_h", number),
    ("unfair", "unfair_fraction", percent),
]


def print_comparison(runs: Sequence[Results], output: str) -> None:
    """One row per policy."""
    from roost.sim.metrics import compare

    rows = compare(runs)
    if output == "json":
        print_json(
            [
                {
                    "policy": row.policy,
                    "placer": row.placer,
                    "seeds": list(row.seeds),
                    "figures": {k: _estimate(v) for k, v in row.figures.items()},
                    "against_first": {k: _estimate(v) for k, v in row.against_first.items()},
                    "runs": [summary.to_dict() for summary in row.summaries],
                    "notes": list(all_notes(runs)),
                }
                for row in rows
            ]
        )
    elif output == "csv":
        print_csv(
            [
                {"policy": row.policy, "placer": row.placer, "seeds": len(row.seeds)}
                | {k: v.mean for k, v in row.figures.items()}
                | {f"{k}_ci95": v.half_width for k, v in row.figures.items()}
                for row in rows
            ]
        )
    else:
        print_table(
            [
                {"policy": row.policy}
                | {head: _with_ci(row.figures[name], write) for head, name, write in _COLUMNS}
                for row in rows
            ]
        )
        _print_notes(runs)


def print_run(
    results: Results, output: str, *, stopped_at: float | None = None, to_come: int = 0
) -> None:
    """One run: the headline figures, then queues and sizes.

    It may have been stopped before all jobs were over, with some still to come.
    """
    from roost.sim.metrics import summarise
    from roost.sim.results import JobResult

    summary = summarise(results)
    ended_at = results.series.time[-1] if results.series.time else 0.0
    if stopped_at is not None:
        ended_at = max(ended_at, stopped_at)
    if output == "json":
        print_json(
            {
                "policy": results.policy,
                "placer": results.placer,
                "workload": results.workload,
                "seed": results.seed,
                "nodes": results.nodes,
                "gpus": results.gpus,
                "events": results.events,
                "simulated_s": ended_at,
                "to_come": to_come,
                "cpu_s": results.cpu_s,
                "notes": list(results.notes),
                **summary.to_dict(),
            }
        )
        return
    if output == "csv":
        print_csv([row._asdict() for row in results.jobs], JobResult._fields)
        return
    coming = f" ({to_come:,} still to come)" if to_come else ""
    click.echo(
        f"{results.policy} on {results.workload}: {summary.finished:,} of {summary.jobs:,} jobs "
        f"over after {duration(ended_at)}{coming}, {results.nodes:,} nodes, "
        f"{results.gpus:,} GPUs, {results.events:,} events in {results.cpu_s:.2f} CPU s"
    )
    click.echo()
    print_table(
        [
            {"": name} | {head: write(getattr(part, field)) for head, field, write in _COLUMNS}
            for name, part in [
                ("all jobs", summary),
                *((f"queue {name}", part) for name, part in summary.by_queue.items()),
                *((f"{name} GPUs", part) for name, part in summary.by_size.items()),
            ]
        ]
    )
    click.echo()
    click.echo(
        f"queued on average {duration(summary.delay_mean)}: "
        f"over quota {duration(summary.wait_quota)}, "
        f"fragmentation {duration(summary.wait_fragmentation)}, "
        f"no capacity {duration(summary.wait_capacity)}, "
        f"not its turn {duration(summary.wait_turn)}"
    )
    outcomes = ", ".join(f"{count} {name}" for name, count in summary.outcomes.items())
    click.echo(f"outcomes: {outcomes or 'none yet'}")
    _print_notes([results])


def all_notes(runs: Sequence[Results]) -> dict[str, None]:
    """The notes of all runs, each once."""
    return dict.fromkeys(note for run in runs for note in run.notes)


def _print_notes(runs: Sequence[Results]) -> None:
    for note in all_notes(runs):
        click.echo(f"note: {note}")


def note_unfinished(runs: Sequence[Results]) -> None:
    """Say on standard error where jobs never ended, for figures leave them out."""
    for run in runs:
        left = sum(row.finished_at is None for row in run.jobs)
        if left:
            click.echo(
                f"note: under {run.policy} with seed {run.seed}, "
                f"{left:,} of {len(run.jobs):,} jobs never end",
                err=True,
            )


def _with_ci(value: Estimate, write: Callable[[float | None], str]) -> str:
    if value.half_width is None:
        return write(value.mean)
    return f"{write(value.mean)} ±{write(value.half_width)}"


def _estimate(value: Estimate) -> dict[str, Any]:
    return {"mean": value.mean, "ci95": value.half_width, "n": value.n}
