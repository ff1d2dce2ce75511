"""One database and several homes; one home and an engine that took it over."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.faults.faults import cancel_all, lasting, refused, script, trial, until
from tests.integration.local_world import World, run_id, shell, world
from tests.support import oracles
from tests.support.server_process import ServerProcess, holders
from tests.support.trial import Trial, kill_exactly
from tests.unit.cli.told import roost

from roost.core.actions import Action, Launch, Stop, Suspend
from roost.core.allocation import Allocation, Part
from roost.core.spec import JobSpec
from roost.engines import Assigned, Ended, RunOrder
from roost.engines.local.devices import node_name


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


RUN = run_id("job")
WHERE = Allocation((Part(node_name(), (0,), 1000, 1),))


@pytest.mark.parametrize(
    "action",
    [Launch(RUN, JobSpec(), WHERE), Stop(RUN, "test"), Suspend(RUN, "test")],
    ids=["launch", "stop", "suspend"],
)
def test_an_order_of_another_home_is_lost_not_carried_out(action: Action, home: Path) -> None:
    run = RUN
    here = World(home)
    order = RunOrder(action, shell(f"touch {home}/began"))
    try:
        here.start({run: Assigned(order=order, foreign=True)})
        ended = here.until(Ended, run)
    finally:
        here.close()

    assert (ended.cause, ended.exits) == ("lost", ())
    assert not (home / "began").exists()
    assert not (home / "runs" / "job").exists()


def test_an_engine_that_ends_leaves_the_ear_of_its_successor(home: Path) -> None:
    first, second = World(home), World(home)
    first.start()
    (home / "engine.lock").unlink()
    second.start()
    heard = (home / "engine.sock").stat().st_ino
    first.close()
    assert (home / "engine.sock").stat().st_ino == heard
    second.close()
    assert not (home / "engine.sock").exists()
    with world(home):
        assert (home / "engine.sock").exists()


def test_a_home_that_adopts_a_database_runs_its_jobs_anew(tmp_path: Path) -> None:
    with trial(tmp_path, seed=41) as one:
        assert one.begin()
        job = lasting(one, 60.0)
        one.until(job, "running")
        one.server.kill()
        database = f"sqlite://{one.server.home}/roost.db"
        other = ServerProcess(tmp_path / "other" / "home", 4, database)
        said = refused(other)
        assert f"belongs to the home {one.server.home} on" in said
        assert "roost up --adopt-home" in said
        # The machine of the first home is gone, with all that ran on it.
        for pid in (*holders(one.server.home), *(one.pid for one in oracles.carrying(one.mark))):
            kill_exactly(pid, b"", "cmdline")
        other.start(options=("--adopt-home",))
        try:
            assert other.ready(), other.said()
            assert until(lambda: other.get(f"/jobs/{job.id}")["state"] == "running")
            view = other.get(f"/jobs/{job.id}")
            assert (view["attempt"], view["platform_failures"]) == (2, 1)
            assert other.ask("POST", f"/api/v1/jobs/{job.id}/cancel") is not None
            assert until(lambda: other.get(f"/jobs/{job.id}")["state"] == "cancelled")
        finally:
            other.close()
        assert f"belongs to the home {other.home} on" in refused(one.server)


def copied(home: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", home, to], check=True)  # noqa: S603, S607


def pids(one: Trial) -> set[int]:
    return {process.pid for process in oracles.carrying(one.mark)}


def test_a_copy_of_a_home_leaves_the_jobs_of_the_original_alone(tmp_path: Path) -> None:
    with trial(tmp_path, seed=42) as one:
        assert one.begin()
        job = lasting(one, 60.0)
        one.until(job, "running")
        waits = one.submit(script(one, "true", workers=4))
        before = pids(one)
        copy = one.server.home.with_name("copy")
        one.server.stop()
        copied(one.server.home, copy)
        other = ServerProcess(copy, 4)
        said = refused(other)
        assert f"{copy} is not where it was" in said
        assert "roost up --as-copy" in said
        assert "the original is still at" in refused(other, options=("--moved",))
        assert pids(one) == before
        other.start(options=("--as-copy",))
        try:
            assert other.ready(), other.said()
            assert until(lambda: other.get(f"/jobs/{job.id}")["state"] == "cancelled")
            view = other.get(f"/jobs/{job.id}")
            assert view["reason"] == "cancelled by roost up --as-copy"
            assert view["attempt"] == 1
            assert until(lambda: other.get(f"/jobs/{waits.id}")["state"] == "succeeded")
            assert pids(one) == before
        finally:
            other.close()
        assert one.begin()
        view = one.view(job)
        assert (view["state"], view["attempt"]) == ("running", 1)
        assert pids(one) == before
        cancel_all(one)


def test_a_home_that_was_moved_takes_over(tmp_path: Path) -> None:
    with trial(tmp_path, seed=43) as one:
        assert one.begin()
        job = lasting(one, 60.0)
        one.until(job, "running")
        one.server.kill()
        old = pids(one)
        copy = one.server.home.with_name("there")
        copied(one.server.home, copy)
        shutil.rmtree(one.server.home)
        other = ServerProcess(copy, 4)
        other.start(options=("--moved",))
        try:
            assert other.ready(), other.said()
            assert until(lambda: other.get(f"/jobs/{job.id}")["state"] == "running")
            assert other.get(f"/jobs/{job.id}")["attempt"] == 2
            # What was left of the original's run ended before the next one began.
            assert not old & pids(one)
            assert other.ask("POST", f"/api/v1/jobs/{job.id}/cancel") is not None
            assert until(lambda: other.get(f"/jobs/{job.id}")["state"] == "cancelled")
        finally:
            other.close()


def test_what_was_accepted_before_a_backup_is_there_after_it(tmp_path: Path) -> None:
    with trial(tmp_path, seed=44) as one:
        assert one.begin()
        runs = lasting(one, 60.0)
        one.until(runs, "running")
        done = one.submit(script(one, "echo all done"))
        one.until(done, "succeeded")
        waits = one.submit(script(one, "true", workers=4))
        file, there = tmp_path / "backup.tar", one.server.home.with_name("there")
        assert roost("backup", str(file), "--home", str(one.server.home)).status == 0
        one.server.kill()
        said = roost("restore", str(file), "--to", str(there))
        assert "--moved" in said.out, said
        shutil.rmtree(one.server.home)
        other = ServerProcess(there, 4)
        other.start(options=("--moved",))
        try:
            assert other.ready(), other.said()
            assert until(lambda: other.get(f"/jobs/{runs.id}")["state"] == "running")
            assert other.get(f"/jobs/{runs.id}")["attempt"] == 2
            assert other.get(f"/jobs/{done.id}")["state"] == "succeeded"
            answer = other.ask("GET", f"/api/v1/jobs/{done.id}/logs")
            assert answer is not None
            assert "all done" in answer.text
            assert other.get(f"/jobs/{waits.id}")["state"] == "queued"
            assert other.ask("POST", f"/api/v1/jobs/{runs.id}/cancel") is not None
            assert until(lambda: other.get(f"/jobs/{waits.id}")["state"] == "succeeded")
        finally:
            other.close()
