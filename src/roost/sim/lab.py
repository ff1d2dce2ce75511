"""A what-if in a process of its own: several policies on one scenario, as figures for a page.

``python -m roost.sim.lab`` reads a line with the question, bounds itself, and writes one line with
the answer. It ends as soon as its input does: whoever asked is gone.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import resource
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from roost.errors import RoostError
from roost.sim.metrics import ComparisonRow, compare, summarise
from roost.sim.parallel import run_many
from roost.sim.report.thin import compact, quantiles, thin_steps
from roost.sim.results import Results
from roost.sim.scenario import Scenario

#: Columns of the series over time that are told.
_SERIES = ("capacity", "allocated", "useful", "queued", "running")
_NICE = 15


@dataclass(frozen=True, slots=True)
class LabQuestion:
    """A scenario, and the policies and seeds that it is run with."""

    scenario: Scenario
    policies: tuple[str, ...]
    placer: str
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class LabBounds:
    """What the process of a question may take: CPU seconds, and bytes of memory."""

    cpu_s: int = 300
    memory_bytes: int = 3 << 30


def answer(question: LabQuestion) -> dict[str, Any]:
    """What became of the jobs under each policy, ready for JSON."""
    cases = [(policy, seed) for policy in question.policies for seed in question.seeds]
    runs = run_many(question.scenario, cases, question.placer, processes=1)
    first = runs[0]
    return {
        "workload": first.workload,
        "jobs": len(first.jobs),
        "nodes": first.nodes,
        "gpus": first.gpus,
        "runs": [_run(run) for run in runs],
        "table": [_row(row) for row in compare(runs)],
    }


def question_line(question: LabQuestion, bounds: LabBounds) -> bytes:
    """A question as the line that the process reads."""
    return base64.b64encode(pickle.dumps((question, bounds))) + b"\n"


def _run(run: Results) -> dict[str, Any]:
    """One run: its figures, how long jobs took and waited, and what was used when."""
    summary = summarise(run).to_dict()
    del summary["by_queue"], summary["by_size"]  # queues are nobody's business but their users'
    ended = [job for job in run.jobs if job.finished_at is not None]
    waits = (
        job.wait_quota_s + job.wait_fragmentation_s + job.wait_capacity_s + job.wait_turn_s
        for job in run.jobs
    )
    end = max((job.finished_at or 0.0 for job in ended), default=0.0)
    series = {name: getattr(run.series, name) for name in _SERIES}
    times, columns = thin_steps(run.series.time, series, end)
    return {
        "policy": run.policy,
        "placer": run.placer,
        "seed": run.seed,
        "summary": summary,
        "jct": _distribution((job.finished_at or 0.0) - job.submitted_at for job in ended),
        "wait": _distribution(waits),
        "series": {
            "time": compact(times.tolist()),
            **{
                name: {part: compact(values.tolist()) for part, values in column.items()}
                for name, column in columns.items()
            },
        },
        "notes": list(run.notes),
    }


def _distribution(values: Iterable[float]) -> dict[str, list[float | None]]:
    x, y = quantiles(np.array(list(values), dtype=np.float64))
    return {"x": compact(x.tolist()), "y": compact(y.tolist())}


def _row(row: ComparisonRow) -> dict[str, Any]:
    return {
        "policy": row.policy,
        "seeds": list(row.seeds),
        "figures": {name: one._asdict() for name, one in row.figures.items()},
        "against_first": {name: one._asdict() for name, one in row.against_first.items()},
    }


def _bind(bounds: LabBounds) -> None:
    """Take no more than that, and only what others leave."""
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_s, bounds.cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (bounds.memory_bytes, bounds.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_with_asker() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Answer the question that comes in."""
    # From the server that started this process, and from nobody else.
    question, bounds = pickle.loads(base64.b64decode(sys.stdin.buffer.readline()))  # noqa: S301
    _bind(bounds)
    threading.Thread(target=_leave_with_asker, daemon=True).start()
    try:
        found: dict[str, Any] = {"result": answer(question)}
    except RoostError as error:
        found = {"problem": str(error)}
    except MemoryError:
        found = {"problem": "it takes too much memory: fewer jobs, or fewer nodes"}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the thread waits for its input, and would be waited for


if __name__ == "__main__":
    main()
