"""The real files, where they are: ``ROOST_DATA`` or ``../shared/data`` beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.traces import read
from roost.traces.openb import read_openb_nodes

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("ROOST_DATA", ROOT.parent / "shared" / "data"))

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no public traces in {DATA}")

COUNTS = {
    "philly/philly.csv": 82_247,
    "openb/pods-cpu050.csv": 7439,
    "openb/pods-cpu200.csv": 8832,
    "openb/pods-default.csv": 8152,
    "openb/pods-gpushare100.csv": 8152,
    "openb/pods-gpushare40.csv": 8152,
    "openb/pods-gpuspec10.csv": 8152,
    "openb/pods-gpuspec33.csv": 8152,
    "openb/pods-multigpu20.csv": 8324,
    "openb/pods-multigpu50.csv": 9061,
    "gavel/msr-ee9e8c-seed0.trace": 2000,
    "gavel/physical-max_min_fairness.trace": 96,
    **{f"sia/workloads/newtrace-{n}.csv": 960 for n in (1, 2, 3)},
    **{f"sia/workloads/philly-{n}.csv": 160 for n in (1, 2, 3, 4)},
    **{f"sia/workloads/saturn-{n}.csv": 160 for n in (1, 2, 3, 4, 5)},
}


@pytest.mark.parametrize("file", COUNTS)
def test_every_row_of_a_public_trace_is_a_job(file: str) -> None:
    workload = read(DATA / file)
    assert len(workload.jobs) == COUNTS[file]
    assert workload.skipped == []
    times = [job.submitted_at for job in workload.jobs]
    assert times == sorted(times)
    assert file.startswith("sia") or times[0] == 0.0


def test_every_trace_there_is_read() -> None:
    here = {
        str(path.relative_to(DATA))
        for pattern in ("philly/*", "openb/pods-*", "gavel/*.trace", "sia/workloads/*")
        for path in DATA.glob(pattern)
    }
    assert here == COUNTS.keys()


def test_openb_has_6212_gpus() -> None:
    nodes = read_openb_nodes(DATA / "openb" / "nodes.csv")
    assert len(nodes) == 1523
    assert sum(node.gpus for node in nodes) == 6212


def test_the_philly_trace_is_as_published() -> None:
    jobs = read(DATA / "philly" / "philly.csv").jobs
    assert len({job.spec.queue for job in jobs}) == 15
    assert max(job.spec.workers.max for job in jobs) == 128
    assert sum(job.work_s * job.spec.gpus for job in jobs) / len(jobs) == pytest.approx(
        42_811.075, abs=0.001
    )
