"""``roost rerun``, and verbs about many jobs at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.unit.cli.told import roost
from tests.unit.client.fakes import FakeServer, refused, view

JOB = "resnet-x7k2p"
DOCUMENT: dict[str, Any] = {
    "name": "resnet",
    "run": "python train.py",
    "env": {"RATE": "0.1"},
    "workers": "1..4",
    "workdir": "/data",
}


def put(server: FakeServer, job: str = JOB, **document: Any) -> list[dict[str, Any]]:
    """A job that can be run again; what is asked for."""
    asked: list[dict[str, Any]] = []

    def made(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(201, json=view(f"again-0000{len(asked)}"))

    if job not in server.jobs:
        server.add(job, "failed")
    server.routes["GET", f"/jobs/{job}/file"] = {**DOCUMENT, **document}
    server.routes["POST", f"/jobs/{job}/rerun"] = made
    return asked


def test_the_same_again_changes_nothing(server: FakeServer) -> None:
    asked = put(server)
    told = roost("rerun", JOB)
    assert (told.status, told.out) == (0, "again-00001\n")
    assert told.err == f"{JOB} runs again as again-00001\n"
    assert asked == [{"changes": {}, "secrets": {}}]
    assert json.loads(roost("rerun", JOB, "-o", "json").out)["id"] == "again-00002"


def test_what_is_typed_comes_on_top(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = put(server, secrets=["OLD"])
    monkeypatch.setenv("HERE", "yes")
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    told = roost(
        *("rerun", JOB, "--name", "slow", "--workers", 2, "--gpus", "A100:2", "--priority", 7),
        *("--queue", "vision", "--env", "RATE=0.01", "--env", "HERE", "--run-time", "2h"),
        *("--label", "sweep=rate", "--secret", "HF_TOKEN", "--", "python", "train.py", "--fast"),
    )
    assert told.status == 0
    assert asked == [
        {
            "changes": {
                "name": "slow",
                "run": None,
                "command": ["python", "train.py", "--fast"],
                "env": {"RATE": "0.01", "HERE": "yes"},
                "secrets": ["OLD", "HF_TOKEN"],
                "workers": 2,
                "resources": {"gpu": "A100:2"},
                "queue": "vision",
                "priority": 7,
                "run_time": "2h",
                "labels": {"sweep": "rate"},
            },
            "secrets": {"HF_TOKEN": "hunter2"},
        }
    ]
    assert "hunter2" not in roost("rerun", JOB, "--secret", "hunter2=x").error


def put_sweep(server: FakeServer) -> None:
    for number, state in enumerate(("failed", "failed", "succeeded", "running", "queued")):
        job = server.add(f"sweep-0000{number}", state, labels={"sweep": "lr"})
        put(server, job)
    server.add("other-aaaaa", "failed", user="bob")


def test_many_run_again_by_what_they_have_in_common(server: FakeServer) -> None:
    put_sweep(server)
    bad = {"POST": refused(422, "invalid", "no such queue")}
    server.routes["POST", "/jobs/sweep-00001/rerun"] = lambda _: bad["POST"]
    told = roost("rerun", "--name", "swe*", "--label", "sweep=lr", "--state", "failed", "-y")
    assert server.requests[1].url.params.get_list("label") == ["sweep=lr"]
    assert (told.status, told.out) == (2, "again-00001\n")
    assert "2 failed" in told.err
    assert "1 of 2 done, 1 not" in told.err
    assert roost("rerun", "--name", "sweep", "-y").out.count("again-") == 2, "over, and not refused"


def test_nothing_happens_to_many_before_somebody_agrees(
    server: FakeServer, typing: Callable[[str], None]
) -> None:
    put_sweep(server)
    before = json.dumps(server.jobs)
    verbs = {"cancel": "2 jobs", "delete": "3 jobs", "rerun": "3 jobs"}
    for verb, many in verbs.items():
        unasked = roost(verb, "--name", "sweep").err
        assert f"{many}: nobody can be asked here; to {verb} them, say --yes" in unasked
        assert roost(verb, "--name", "sweep", "--dry-run").status == 0
    for verb, many in verbs.items():
        typing("n\n")
        declined = roost(verb, "--name", "sweep")
        assert declined.status == 1
        assert f"{verb.capitalize()} {many}? [y/N]" in declined.err
    assert json.dumps(server.jobs) == before
    told = roost("delete", "--name", "s*-0000?", "--state", "failed", "-y")
    assert told.out == "sweep-00000  deleted\nsweep-00001  deleted\n"


def test_which_jobs_are_meant_is_said_once(server: FakeServer) -> None:
    put_sweep(server)
    assert "exclude each other" in roost("cancel", "sweep-00003", "--state", "running").error
    assert "say which jobs" in roost("rerun").error
    assert "say which jobs" in roost("delete", "-y").error
    assert roost("cancel", "--name", "nothing", "-y").err == "nothing to cancel\n"
    assert "other-aaaaa" in roost("delete", "--user", "bob", "--dry-run").err
    assert "other-aaaaa" in roost("rerun", "--user", "all", "--dry-run").err


def test_a_long_list_is_cut(server: FakeServer) -> None:
    for number in range(25):
        server.add(f"job-{number:05d}")
    told = roost("cancel", "--all", "--dry-run")
    assert told.err.splitlines()[-2:] == ["  and 15 more", "25 queued"]


def test_handles_run_again(server: FakeServer) -> None:
    asked = put(server)
    with server.client() as client:
        made = client.job(JOB).rerun({"workers": 2}, {"KEY": "x"})
    assert (made.id, asked) == (
        "again-00001",
        [{"changes": {"workers": 2}, "secrets": {"KEY": "x"}}],
    )
