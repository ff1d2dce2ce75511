"""What a server has run, as a trace; and what a table says of jobs that declare nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.told import roost
from tests.unit.client.fakes import NOW, FakeServer

from roost.core.events import Outcome
from roost.traces import read

NODE = {"id": "n1", "gpus": 4, "kind": "A100", "cpus": 16.0, "memory_mib": 1024}


@pytest.fixture
def past(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Three jobs of this week that are over, one of last year, one that never ran."""
    monkeypatch.setattr("roost.cli.history.time.time", lambda: NOW)
    for name, state, age_s, ran_s in (
        ("old", "succeeded", 4e7, 50.0),
        ("first", "succeeded", 3000.0, 100.0),
        ("second", "failed", 2000.0, 20.0),
        ("third", "cancelled", 1000.0, 7.0),
        ("never", "cancelled", 900.0, 0.0),
    ):
        server.add(name, state, submitted_at=NOW - age_s, ran_s=ran_s, user="ada")
        document = {"name": name, "command": ["true"], "workers": 2, "resources": {"gpu": 1}}
        server.routes["GET", f"/jobs/{name}/file"] = document
    server.routes["GET", "/nodes"] = {"items": [NODE]}
    return server


def test_what_ran_becomes_a_trace(past: FakeServer, tmp_path: Path) -> None:
    del past
    jobs, nodes = tmp_path / "jobs.csv", tmp_path / "nodes.csv"
    told = roost("history", "export", str(jobs), "--since", "7d", "--cluster", str(nodes))
    assert told.out.splitlines() == [
        f"written: {jobs}, 3 jobs",
        f"written: {nodes}, 1 nodes",
    ]
    found = read(jobs).jobs
    assert [(job.id, job.submitted_at, job.work_s, job.outcome) for job in found] == [
        ("first", 0.0, 100.0, Outcome.SUCCEEDED),
        ("second", 1000.0, 20.0, Outcome.FAILED),
        ("third", 2000.0, 7.0, Outcome.CANCELLED),
    ]
    assert found[0].spec.gpus == 2
    assert found[0].spec.user == "ada"


def test_an_elastic_job_counts_with_what_it_had(past: FakeServer, tmp_path: Path) -> None:
    """Half of its 100 s with two workers of two GPUs each, the rest with eight."""
    document = {"name": "first", "command": ["true"], "workers": {"min": 2, "max": 8}}
    past.routes["GET", "/jobs/first/file"] = document | {"resources": {"gpu": 2}}
    past.jobs["first"]["gpu_s"] = 50.0 * 2 * 2 + 50.0 * 8 * 2
    roost("history", "export", str(tmp_path / "jobs.csv"), "--since", "7d")
    first, second, _ = read(tmp_path / "jobs.csv").jobs
    assert first.spec.workers == (2, 8)
    assert first.work_s == 50.0 + 50.0 * 4
    assert second.work_s == 20.0


def test_it_is_replayed_at_once(past: FakeServer) -> None:
    del past
    told = roost("compare", "--from", "history", "--policies", "fifo,sjf", "-o", "json")
    rows = json.loads(told.out)
    assert [row["policy"] for row in rows] == ["fifo", "sjf"]
    assert "no job declares a run time" in rows[0]["notes"][0]
    told = roost("simulate", "--from", "history", "--since", "7d", "--policy", "srtf")
    assert "3 of 3 jobs over" in told.out
    assert "note: no job declares a run time" in told.out
    told = roost("simulate", "--from", "history", "--declare", "work")
    assert "declares" not in told.out


def test_nothing_of_the_past_is_said(server: FakeServer) -> None:
    server.routes["GET", "/nodes"] = {"items": [NODE]}
    assert "no job that ran is over" in roost("compare", "--from", "history").err
    assert "--since goes with --from history" in roost("compare", "--since", "7d").err


def test_run_times_can_be_declared(tmp_path: Path) -> None:
    """A short job passes a long one only if its length is known."""
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submitted_at,work_s\na,0,100\nlong,1,500\nshort,2,10\n")
    page = tmp_path / "page.html"
    options = [str(trace), "--nodes", "1", "--gpus-per-node", "1", "--policy", "sjf"]
    blind = roost("simulate", *options, "--report", str(page), "-o", "json")
    told = roost("simulate", *options, "--declare", "work", "-o", "json")
    roughly = roost("simulate", *options, "--declare", "noisy:0.3", "-o", "json")
    assert "no job declares" in page.read_text()
    assert json.loads(blind.out)["notes"]
    assert json.loads(told.out)["notes"] == json.loads(roughly.out)["notes"] == []
    assert json.loads(told.out)["jct_mean"] < json.loads(blind.out)["jct_mean"]
    assert "neither work nor such as" in roost("simulate", *options, "--declare", "x").err
