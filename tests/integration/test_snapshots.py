"""Snapshots and clones with real processes, and a server that is killed in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.server_process import ServerProcess

from roost.failpoints import KEEPING

#: Counts, and saves the count; goes on from what it finds.
COUNTER = """
step=$(cat "$ROOST_CHECKPOINT_DIR/step" 2>/dev/null || echo 0)
echo "begin at $step"
while [ "$step" -lt 100000 ]; do
  step=$((step + 1))
  echo "$step" > "$ROOST_CHECKPOINT_DIR/draft"
  mv "$ROOST_CHECKPOINT_DIR/draft" "$ROOST_CHECKPOINT_DIR/step"
  sleep 0.05
done
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServerProcess]:
    found = ServerProcess(tmp_path / "home", slots=2)
    yield found
    if not found.alive:
        found.start()
        eventually(found.ready)
    for job in found.get("/jobs")["items"]:
        found.ask("POST", f"/api/v1/jobs/{job['id']}/cancel")
    eventually(lambda: all(job["finished_at"] for job in found.get("/jobs")["items"]))
    found.close()


def eventually(done: Callable[[], object], within_s: float = 60.0) -> None:
    """Until something is so that nobody tells of."""
    end = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end, "it never was"
        time.sleep(0.02)


def up(served: ServerProcess, failpoint: str = "") -> None:
    served.start(failpoint)
    eventually(served.ready)


def counting(served: ServerProcess) -> str:
    """A job that has saved something."""
    body = {"job": {"name": "counter", "run": COUNTER, "application": "counter"}}
    answer = served.ask("POST", "/api/v1/jobs", body)
    assert answer is not None, "no answer"
    assert answer.status_code == 201, answer.text
    job = str(answer.json()["id"])
    eventually((checkpoints(served, job) / "step").exists)
    return job


def checkpoints(served: ServerProcess, job: str) -> Path:
    return served.home / "runs" / job / "checkpoints"


def take(served: ServerProcess, job: str, name: str = "one") -> Any:
    return served.ask("POST", f"/api/v1/jobs/{job}/snapshots", {"name": name}, key=name)


def shelved(served: ServerProcess) -> list[str]:
    shelf = served.home / "snapshots"
    return sorted(str(path.relative_to(shelf)) for path in shelf.glob("*/*"))


def test_a_clone_goes_on_where_the_snapshot_was_taken(served: ServerProcess) -> None:
    up(served)
    job = counting(served)
    answer = take(served, job)
    assert answer.status_code == 201, answer.text
    kept = int((served.home / "snapshots" / job / "one" / "files" / "step").read_text())
    clone = served.ask("POST", f"/api/v1/jobs/{job}/clone", {"changes": {"name": "branch"}})
    assert clone is not None
    assert clone.status_code == 201, clone.text
    name = clone.json()["id"]

    def log() -> str:
        told = served.ask("GET", f"/api/v1/jobs/{name}/logs")
        return told.text if told is not None else ""

    eventually(lambda: "begin" in log())
    assert log() == f"begin at {kept}\n"
    eventually(lambda: int((checkpoints(served, name) / "step").read_text()) > kept)
    files = served.home / "snapshots" / job / "one" / "files"
    assert int((files / "step").read_text()) == kept, "a snapshot does not change"
    assert checkpoints(served, name) != checkpoints(served, job)


def test_a_job_that_saved_nothing_has_no_snapshot(served: ServerProcess) -> None:
    up(served)
    body = {"job": {"name": "sleeper", "run": "echo up; sleep 60"}}
    answer = served.ask("POST", "/api/v1/jobs", body)
    assert answer is not None
    job = answer.json()["id"]
    eventually(lambda: served.get(f"/jobs/{job}")["state"] == "running")
    refused = take(served, job)
    assert refused.status_code == 409
    assert "ROOST_CHECKPOINT_DIR" in refused.json()["error"]["message"]
    assert shelved(served) == []


@pytest.mark.parametrize("point", KEEPING)
def test_a_server_killed_on_the_way_leaves_a_whole_snapshot_or_none(
    served: ServerProcess, point: str
) -> None:
    up(served, point)
    job = counting(served)
    answer = take(served, job)
    if point == "keep.before-removal":
        assert answer.status_code == 201
        assert served.ask("DELETE", f"/api/v1/jobs/{job}/snapshots/one") is None
    else:
        assert answer is None, "it was killed"
    eventually(lambda: not served.alive)
    assert shelved(served), "something was left"
    up(served)
    there = point == "keep.after-row"
    listed = [item["id"] for item in served.get("/snapshots")["items"]]
    assert listed == ([f"{job}@one"] if there else [])
    assert shelved(served) == ([f"{job}/one"] if there else [])
    assert served.get(f"/jobs/{job}")["state"] == "running", "the job did not notice"
    again = take(served, job, "two")
    assert again.status_code == 201, again.text


def test_a_clone_that_waits_when_the_server_is_killed_is_restored(served: ServerProcess) -> None:
    up(served)
    job, other = counting(served), counting(served)  # both slots are taken
    assert take(served, job).status_code == 201
    clone = served.ask("POST", f"/api/v1/jobs/{job}/clone", {"changes": {"name": "branch"}})
    assert clone is not None
    name = clone.json()["id"]
    assert clone.json()["state"] == "queued"
    refused = served.ask("DELETE", f"/api/v1/jobs/{job}/snapshots/one")
    assert refused is not None
    assert refused.status_code == 409, "the clone needs it"
    served.kill()
    up(served)
    served.ask("POST", f"/api/v1/jobs/{other}/cancel")
    kept = int((served.home / "snapshots" / job / "one" / "files" / "step").read_text())
    eventually(lambda: served.get(f"/jobs/{name}")["state"] == "running")
    eventually(lambda: int((checkpoints(served, name) / "step").read_text()) > kept)
