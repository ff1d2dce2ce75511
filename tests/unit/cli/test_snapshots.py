"""Snapshots and clones on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.unit.cli.told import roost
from tests.unit.client.fakes import NOW, FakeServer, view

from roost.errors import InvalidSpec

JOB = "resnet-x7k2p"


def point(name: str = "one", **changed: Any) -> dict[str, Any]:
    """A snapshot as the API tells it."""
    told: dict[str, Any] = {
        "id": f"{JOB}@{name}",
        "job": JOB,
        "name": name,
        "user": "ada",
        "job_name": "resnet",
    }
    told |= {"created_at": NOW, "step": 1200, "progress": 0.25, "files": 2, "size_bytes": 3 << 20}
    return {**told, "fresh": True, "took_s": 0.84, "function": False, **changed}


def answering(
    server: FakeServer, method: str, path: str, *answers: httpx.Response
) -> list[httpx.Request]:
    """Let the server give these answers, one after the other; what it is asked."""
    asked: list[httpx.Request] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return left.pop(0)

    server.routes[method, path] = answer
    return asked


def test_a_snapshot_is_taken_however_long_it_lasts(server: FakeServer) -> None:
    server.add(JOB, "running")
    under_way = httpx.Response(202, json={"job": JOB, "name": "one", "state": "taking"})
    done = httpx.Response(201, json=point())
    asked = answering(server, "POST", f"/jobs/{JOB}/snapshots", under_way, done)
    told = roost("snapshot", JOB, "--name", "one")
    assert told.out == f"{JOB}@one\n"
    assert told.err.splitlines() == [
        "2 files, 3.0 MiB in 0.84 s, saved for it",
        f"Next: roost clone {JOB}@one",
    ]
    assert [json.loads(request.content) for request in asked] == [{"name": "one"}] * 2
    assert len({request.headers["Idempotency-Key"] for request in asked}) == 1


def test_a_snapshot_is_named_after_the_time(server: FakeServer) -> None:
    server.add(JOB, "running")
    done = httpx.Response(201, json=point(fresh=False))
    (asked,) = [answering(server, "POST", f"/jobs/{JOB}/snapshots", done)]
    told = roost("snapshot", JOB, "-o", "json")
    assert json.loads(told.out) == point(fresh=False)
    day, _, time = json.loads(asked[0].content)["name"].partition("-")
    assert (len(day), len(time)) == (8, 6)


def test_snapshots_are_listed_page_by_page(server: FakeServer) -> None:
    pages = [
        httpx.Response(200, json={"items": [point("two")], "total": 2}),
        httpx.Response(200, json={"items": [point()], "total": 2}),
    ]
    asked = answering(server, "GET", "/snapshots", *pages)
    lines = roost("snapshots", JOB).out.splitlines()
    assert lines[0].split() == ["SNAPSHOT", "USER", "STEP", "DONE", "FILES", "SIZE", "TAKEN"]
    assert lines[1].split() == [
        f"{JOB}@two",
        "ada",
        "1,200",
        "25%",
        "2",
        *["3.0", "MiB", "1h", "ago"],
    ]
    assert lines[3] == "2 snapshots, 6.0 MiB"
    assert [dict(request.url.params) for request in asked] == [
        {"job": JOB, "offset": "0", "limit": "200"},
        {"job": JOB, "offset": "1", "limit": "200"},
    ]
    server.routes["GET", "/snapshots"] = {"items": [], "total": 0}
    assert roost("snapshots").out == "no snapshots; take one with: roost snapshot JOB\n"
    assert roost("snapshots", "list", "-o", "json").out == "[]\n"


def test_deleting_is_asked_and_each_is_told(
    server: FakeServer, typing: Callable[[str], None]
) -> None:
    gone = httpx.Response(204)
    asked = answering(server, "DELETE", f"/jobs/{JOB}/snapshots/one", gone)
    typing("n\n")
    assert roost("snapshots", "delete", f"{JOB}@one").status == 1
    assert not asked
    told = roost("snapshots", "delete", "-y", f"{JOB}@one", JOB)
    assert told.status == 2
    assert told.out == f"{JOB}@one  deleted\n"
    assert f"say which snapshot, such as {JOB}@NAME" in told.err


def test_a_clone_is_a_new_job_with_changes(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "canary")
    monkeypatch.setenv("DATA", "/data")
    made = view("slow-aaaaa", "queued", clone_of=f"{JOB}@one")
    asked = answering(server, "POST", f"/jobs/{JOB}/clone", httpx.Response(201, json=made))
    told = roost(
        *("clone", f"{JOB}@one", "--name", "slow", "--priority", 0, "--workers", "1..4"),
        *("--env", "RATE=0.1", "--env", "DATA", "--secret", "KEY"),
    )
    assert told.out == "slow-aaaaa\n"
    assert told.err.splitlines()[0] == f"starts from {JOB}@one"
    assert json.loads(asked[0].content) == {
        "snapshot": "one",
        "changes": {
            "name": "slow",
            "priority": 0,
            "workers": "1..4",
            "env": {"RATE": "0.1", "DATA": "/data"},
        },
        "secrets": {"KEY": "canary"},
    }
    assert "canary" not in told.out + told.err
    assert "takes the name" in roost("clone", JOB, "--secret", "hunter2=x").error
    assert "not set here" in roost("clone", JOB, "--env", "NOBODY_SET_THIS").error


def test_the_newest_is_cloned_without_a_name(server: FakeServer) -> None:
    made = view("resnet-aaaaa", "queued", clone_of=f"{JOB}@one")
    asked = answering(server, "POST", f"/jobs/{JOB}/clone", httpx.Response(201, json=made))
    with server.client() as client:
        handle = client.clone(JOB, {"env": {"A": "1"}}, key="k")
    assert handle.view.clone_of == f"{JOB}@one"
    body = {"snapshot": None, "changes": {"env": {"A": "1"}}, "secrets": {}}
    assert json.loads(asked[0].content) == body
    assert asked[0].headers["Idempotency-Key"] == "k"


def test_a_snapshot_needs_a_name_to_be_deleted(server: FakeServer) -> None:
    with server.client() as client:
        for given in ((JOB,), ("@one",) * 2, (f"{JOB}@one", "two")):
            with pytest.raises(InvalidSpec, match="say which snapshot"):
                client.delete_snapshot(*given)
