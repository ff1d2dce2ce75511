"""A policy from elsewhere: installed next to Roost, it is a policy like any other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.integration.commands import JOBS, ROOST, one_error, run

POLICY = '''
"""Policies of a third party."""
from __future__ import annotations
from dataclasses import dataclass
from roost.core.plan import Plan
from roost.core.state import Job
from roost.policies.kit.order import fill

def widest(job: Job) -> tuple[float, int]:
    return -job.gpu_milli, job.seq

@dataclass(frozen=True)
class Widest:
    """Widest first, after a while.

    More than one line is not listed.
    """

    patience_s: float = 0.0
    shape: tuple[int, ...] = (1, 2)

    def __post_init__(self) -> None:
        if self.patience_s > 99:
            raise ValueError("nobody is that patient")

    def __call__(self, plan: Plan) -> None:
        for job in sorted(plan.pending, key=widest):
            plan.place(job)

def plain(plan: Plan) -> None:
    """Whatever comes."""
    for job in plan.pending:
        plan.place(job)

class Old:
    """A class that is no dataclass."""

    def __call__(self, plan: Plan) -> None:
        plain(plan)
'''
ENTRIES = """[roost.policies]
widest = mine:Widest
plain-old = mine:plain
no-dataclass = mine:Old
"""
TAKEN = "fifo = mine:plain\n"
BROKEN = "broken = mine:nothing\nabsent = none.at_all:nothing\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed distribution, made by hand, and a trace."""
    return installed(tmp_path, ENTRIES)


def installed(folder: Path, entries: str) -> Path:
    (folder / "mine.py").write_text(POLICY)
    (folder / "jobs.csv").write_text(JOBS)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)
    return folder


def said(site: Path, *args: object) -> str:
    found = run(ROOST, *args, cwd=site, PYTHONPATH=str(site))
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_it_is_listed_with_its_line_and_its_parameters(site: Path) -> None:
    lines = said(site, "policies").splitlines()
    assert [line.split()[1:] for line in lines if line.startswith("widest ")] == [
        ["Widest", "first,", "after", "a", "while."]
    ]
    about = json.loads(said(site, "policies", "widest", "-o", "json"))
    assert about["parameters"] == {"patience_s": 0.0, "shape": [1, 2]}
    assert "  shape=1/2" in said(site, "policies", "widest")


@pytest.mark.parametrize("name", ["widest:patience_s=1m,shape=4/5", "plain-old"])
def test_it_runs_is_compared_and_can_be_saved(name: str, site: Path) -> None:
    whole = said(site, "simulate", "jobs.csv", "--nodes", 1, "-p", name, "-o", "csv")
    assert whole.count("succeeded") == 3

    said(site, "simulate", "jobs.csv", "--nodes", 1, "-p", name, "--stop-at", 20, "--save", "run")
    assert said(site, "simulate", "--resume", "run", "-o", "csv") == whole

    both = said(site, "compare", "jobs.csv", "--nodes", 1, "-p", f"fifo,{name}", "-o", "csv")
    assert both.splitlines()[2].startswith(f'"{name}"' if "," in name else name)


def test_a_class_that_is_no_dataclass_runs_without_parameters(site: Path) -> None:
    assert "succeeded" in said(site, "simulate", "jobs.csv", "--nodes", 1, "-p", "no-dataclass")
    found = run(
        *(ROOST, "simulate", "jobs.csv", "--nodes", 1, "-p", "no-dataclass:x=1"),
        cwd=site,
        PYTHONPATH=str(site),
    )
    assert "unknown parameter of policy 'no-dataclass': 'x'" in one_error(found.stderr)


def test_what_it_refuses_is_told_in_one_line(site: Path) -> None:
    for typed, says in (
        ("widest:patience_s=1h", "policy 'widest': nobody is that patient"),
        ("widest:patience=1", "did you mean 'patience_s'?"),
        ("widset", "did you mean 'widest'?"),
    ):
        found = run(
            *(ROOST, "simulate", "jobs.csv", "--nodes", 1, "-p", typed),
            cwd=site,
            PYTHONPATH=str(site),
        )
        assert found.returncode == 2
        assert says in one_error(found.stderr)


def test_one_that_does_not_load_or_takes_a_name_does_not_hide_the_others(tmp_path: Path) -> None:
    site = installed(tmp_path, ENTRIES + BROKEN + TAKEN)

    lines = {line.split()[0]: line for line in said(site, "policies").splitlines()}
    assert {"fifo", "widest", "broken", "absent"} <= set(lines)
    assert "First come, first served" in lines["fifo"]
    assert "cannot be loaded" in lines["broken"]
    assert "cannot be loaded" in lines["absent"]
    listed = json.loads(said(site, "policies", "-o", "json"))
    assert {"fifo", "widest"} <= {each["name"] for each in listed}
    for name in ("broken", "absent"):
        found = run(
            *(ROOST, "simulate", "jobs.csv", "--nodes", 1, "-p", name),
            cwd=site,
            PYTHONPATH=str(site),
        )
        assert f"policy {name!r}" in one_error(found.stderr)


def test_without_it_its_saved_run_is_refused(site: Path) -> None:
    said(
        *(site, "simulate", "jobs.csv", "--nodes", 1, "-p", "widest"),
        *("--stop-at", 20, "--save", "run"),
    )
    elsewhere = site / "elsewhere"
    elsewhere.mkdir()

    found = run(ROOST, "simulate", "--resume", site / "run", cwd=elsewhere, PYTHONPATH=os.curdir)

    assert found.returncode == 2
    assert "no installed policy is in 'mine'" in one_error(found.stderr)
