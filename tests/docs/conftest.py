"""A folder with the files that the documentation talks about, and the example package installed."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import files

from roost.client import Client
from roost.demo.server import ScratchServer, scratch_server
from roost.traces import Workload, write_workload
from roost.traces.generate import Synthetic, generate

MODULE = "roost_urgent"
#: Job files that the documentation talks about.
JOBS = {
    "train.py": "import time\n\nprint('training', flush=True)\ntime.sleep(60)\n",
    "train.yaml": "name: resnet\nrun: python train.py\nworkdir: .\nworkers: 1..2\nrun_time: 1m\n",
    "train.sbatch": "#!/bin/bash\n#SBATCH -J resnet\n#SBATCH --gres=gpu:1\npython train.py\n",
}
#: The configuration of HiveD that the documentation talks about.
HIVED = """
physicalCluster:
  cellTypes:
    SOCKET: {childCellType: A100, childCellNumber: 4}
    NODE: {childCellType: SOCKET, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n1, pinnedCellId: OWN}
  - {cellType: NODE, cellAddress: n2}
  - {cellType: NODE, cellAddress: n3}
virtualClusters:
  vision:
    virtualCells: [{cellType: NODE, cellNumber: 1}]
    pinnedCells: [{pinnedCellId: OWN}]
  speech:
    virtualCells: [{cellType: NODE.SOCKET, cellNumber: 1}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of someone who reads the documentation."""
    workload = generate(Synthetic(jobs=40, gpus=16, max_run_s=7200.0))
    write_workload(tmp_path / "jobs.csv", workload)
    (tmp_path / "philly.csv").write_text(_flattened(workload), encoding="utf-8")
    loose = {name: files()[name] for name in ("biggest.py", "longest_queue.py")}
    for name, text in {**JOBS, **loose, "hivedscheduler.yaml": HIVED}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # With one core, runs stay in this process.
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    return tmp_path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScratchServer]:
    """A real server with a job that everybody finds, as if the reader had started both before.

    Another job is over: the server has a past.
    """
    with scratch_server("docs", 4) as server:
        server.start()
        with Client(server.url, server.token) as client:
            client.submit({"name": "past", "command": ["true"]}).wait()
            client.submit({"name": "earlier", "command": ["sleep", "600"], "run_time": "10m"})
        monkeypatch.setenv("ROOST_HOME", str(server.home))
        for name in ("ROOST_URL", "ROOST_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        monkeypatch.setenv("PATH", programs)
        yield server


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example package of the documentation, as if pip had installed it."""
    home = tmp_path / "package"
    home.mkdir()
    for name, text in files().items():
        (home / name).write_text(text, encoding="utf-8")
    project = tomllib.loads((home / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = home / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        encoding="utf-8",
    )
    entries = [
        f"[{group}]\n" + "\n".join(f"{name} = {target}" for name, target in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(entries), encoding="utf-8")
    monkeypatch.syspath_prepend(home)
    importlib.invalidate_caches()
    yield home
    sys.modules.pop(MODULE, None)


def _flattened(workload: Workload) -> str:
    lines = ["timestamp,duration,num_gpus,gpu_time,cluster"]
    for job in workload.jobs:
        gpus = job.spec.gpus
        lines.append(
            f"{job.submitted_at},{job.work_s},{gpus:g},{job.work_s * gpus},{job.spec.queue}"
        )
    return "\n".join(lines) + "\n"
