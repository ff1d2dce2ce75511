"""Trouble of the machine while jobs are launched: they wait, none of them fails, and all go on.

A full disk, too few descriptors, a folder that is gone. What a job itself does wrong still is its
own fault, and at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.faults import can, script, tiny_disk, trial, until
from tests.support.trial import SubmittedJob, Trial

SLOTS, JOBS = 2, 8
can_mount = pytest.mark.skipif(
    not (os.geteuid() == 0 and can("unshare", "-m", "true")), reason="only root mounts"
)


def gated(one: Trial, gate: Path) -> SubmittedJob:
    """A job that ends once there is a file, submitted."""
    wait = 'until [ -e "$GATE" ]; do sleep 0.05; done'
    document = script(one, wait)
    document["env"] |= {"GATE": str(gate)}
    return one.submit(document)


def fill(path: Path) -> None:
    """Take all the room there is."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def is_ready(one: Trial) -> bool:
    answer = one.server.ask("GET", "/readyz")
    return answer is not None and answer.is_success


def held(one: Trial) -> list[dict[str, Any]]:
    """The jobs that the server's trouble keeps from starting."""
    # A server without descriptors closes connections: what has no answer is asked again.
    answers = [one.server.ask("GET", f"/api/v1/jobs/{job.id}") for job in one.jobs if job.id]
    views = [answer.json() for answer in answers if answer is not None and answer.is_success]
    return [view for view in views if view["cause"] == "server"]


def all_accepted(one: Trial) -> bool:
    """Ask again for what was refused for now; whether nothing was this time."""
    one.repeat()
    return all(job.id for job in one.jobs)


def all_succeed_at_once(one: Trial, job: SubmittedJob) -> None:
    """It succeeded in its first attempt, and nothing was ever held against it."""
    view = one.until(job, "succeeded", "failed")
    told = [view[key] for key in ("state", "attempt", "failures", "platform_failures", "verdict")]
    assert told == ["succeeded", 1, 0, 0, None], view


@can_mount
@pytest.mark.parametrize("apart", [False, True], ids=["one disk", "database elsewhere"])
def test_a_full_disk_makes_jobs_wait(apart: bool, tmp_path: Path) -> None:  # noqa: FBT001
    store = f"sqlite://{tmp_path / 'roost.db'}" if apart else ""
    gate = tmp_path / "gate"
    with tiny_disk(32) as disk, trial(disk, slots=SLOTS, store=store) as one:
        assert one.begin()
        jobs = [gated(one, gate) for _ in range(JOBS)]
        for job in jobs[:SLOTS]:
            one.until(job, "running")
        ballast = disk / "ballast"
        fill(ballast)
        gate.touch()
        assert until(lambda: not is_ready(one)), one.server.said()
        if apart:
            waits_with_a_reason(one, jobs)
        # What does not need room still works: a job that is held can be cancelled.
        answer = one.server.ask("POST", f"/api/v1/jobs/{jobs[-1].id}/cancel")
        assert answer is not None
        assert answer.is_success or answer.status_code == 507
        cancelled = answer.is_success
        ballast.unlink()
        for job in jobs[:-1] if cancelled else jobs:
            all_succeed_at_once(one, job)
        assert until(lambda: is_ready(one))
        all_succeed_at_once(one, gated(one, gate))
        assert "Traceback" not in one.server.said()


def waits_with_a_reason(one: Trial, jobs: list[SubmittedJob]) -> None:
    """Users read what is the matter, and new work is refused for now."""
    assert until(lambda: len(held(one)) == SLOTS), [one.view(job) for job in jobs]
    says = "the server's disk is full; it starts by itself when there is room"
    assert {(view["state"], view["reason"]) for view in held(one)} == {("starting", says)}
    explained = one.server.get(f"/jobs/{jobs[-1].id}/explain")
    assert (explained["state"], explained["cause"]) == ("queued", "server")
    assert explained["reason"] == says
    assert says in one.server.get("/health")["why"]
    plain = script(one, "true")
    secret = {**plain, "secrets": ["KEY"]}
    for body in ({"job": plain}, {"job": secret, "secrets": {"KEY": "hush"}}):
        answer = one.server.ask("POST", "/api/v1/jobs", body)
        assert answer is not None
        assert (answer.status_code, answer.json()["error"]["kind"]) == (507, "full")


def test_too_few_descriptors_make_jobs_wait(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with trial(tmp_path, slots=30) as one:
        one.server.start(before=("bash", "-c", 'ulimit -n 52; exec "$@"', "bash"))
        assert one.server.ready(), one.server.said()
        jobs = [gated(one, gate) for _ in range(30)]
        # What ends first is a matter of chance: descriptors for a launch, or for the journal.
        assert until(lambda: held(one) or not all(job.id for job in one.jobs)), one.server.said()
        gate.touch()
        assert until(lambda: all_accepted(one)), one.server.said()
        for job in jobs:
            all_succeed_at_once(one, job)
        assert one.problems == []


def test_a_folder_that_is_gone_makes_jobs_wait(tmp_path: Path) -> None:
    with trial(tmp_path, slots=SLOTS) as one:
        assert one.begin()
        marks, away = one.server.home / "running", one.server.home / "away"
        marks.rename(away)
        jobs = [one.submit(script(one, "true")) for _ in range(3)]
        assert until(lambda: held(one)), one.server.said()
        assert "No such file or directory" in held(one)[0]["reason"]
        answer = one.server.ask("POST", "/api/v1/jobs", {"job": script(one, "true")})
        assert answer is not None
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        # A restart knows of nothing else than that they are to be launched.
        one.server.kill()
        away.rename(marks)
        assert one.begin()
        assert until(lambda: all_accepted(one))
        for job in jobs:
            all_succeed_at_once(one, job)


OWN: dict[str, Callable[[Trial], dict[str, Any]]] = {
    "missing-file": lambda one: script(one, "true", workdir="/no/such/folder"),
    "command-not-found": lambda one: {**script(one, ""), "run": None, "command": ["no-program"]},
    "disk-full": lambda one: script(one, "echo 'No space left on device' >&2; exit 28"),
}


def test_what_a_job_does_wrong_is_its_own_fault(tmp_path: Path) -> None:
    with trial(tmp_path, slots=SLOTS) as one:
        assert one.begin()
        for kind, document in OWN.items():
            given = {key: value for key, value in document(one).items() if value is not None}
            view = one.until(one.submit(given), "failed")
            assert (view["verdict"]["kind"], view["attempt"]) == (kind, 1)
            assert view["platform_failures"] == 0
        assert is_ready(one)
