"""Golden schedules: what every policy makes of one small, busy cluster, to the last digit.

300 generated jobs on 8 nodes of 8 GPUs, with costs, failures and elastic jobs on. ``measure`` runs
one policy and boils its schedule down; ``schedules.json`` keeps what came out when somebody last
looked at it and found it right.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from statistics import fmean
from typing import TypedDict

from tests.oracles.workloads import busy, machines, setup

from roost.policies import policy
from roost.sim.results import JobResult
from roost.sim.simulation import Simulation

STORED = Path(__file__).with_name("schedules.json")
SEED = 11
JOBS = 300
#: Hex digits kept of each job, enough to name the first one that differs.
_SHORT = 4


class Golden(TypedDict):
    """A schedule in short. ``digest`` is over all rows; ``jobs`` has four hex digits for each."""

    mean_jct: str
    finished: int
    preemptions: int
    resizes: int
    runs: int
    events: int
    digest: str
    jobs: str


def measure(name: str) -> Golden:
    """Run a policy on the golden cluster."""
    # No static slice could ever hold a gang of two nodes.
    workload = busy(JOBS, SEED, gpus=64, largest=8 if name == "static" else 16)
    results = Simulation(setup(policy(name), workload, machines(8, 8), seed=SEED)).run()
    rows = results.jobs
    texts = [repr(tuple(row)) for row in rows]
    return Golden(
        mean_jct=repr(fmean(_jct(row) for row in rows if row.finished_at is not None)),
        finished=sum(row.finished_at is not None for row in rows),
        preemptions=results.preemptions,
        resizes=sum(row.resizes for row in rows),
        runs=sum(row.runs for row in rows),
        events=results.events,
        digest=_sha("\n".join(texts)),
        jobs="".join(_sha(text)[:_SHORT] for text in texts),
    )


def stored() -> dict[str, Golden]:
    """What is in the file, by policy."""
    found: dict[str, Golden] = json.loads(STORED.read_text())
    return found


def store(measured: dict[str, Golden]) -> None:
    """Write the file anew."""
    STORED.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")


def differences(expected: Golden, found: Golden) -> list[str]:
    """What differs, for people; empty when nothing does."""
    lines = [
        f"{field}: {expected[field]} before, {found[field]} now"
        for field in (
            "mean_jct",
            "finished",
            "preemptions",
            "resizes",
            "runs",
            "events",
            "digest",
        )
        if expected[field] != found[field]
    ]
    pairs = zip(_cut(expected["jobs"]), _cut(found["jobs"]), strict=False)
    changed = [index for index, (before, now) in enumerate(pairs, 1) if before != now]
    if changed:
        lines.append(f"{len(changed)} jobs differ, the first of them is job-{changed[0]}")
    return lines


def _jct(row: JobResult) -> float:
    assert row.finished_at is not None
    return row.finished_at - row.submitted_at


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _cut(jobs: str) -> list[str]:
    return [jobs[at : at + _SHORT] for at in range(0, len(jobs), _SHORT)]
