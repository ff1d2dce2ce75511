"""Faults of PostgreSQL under a real ``roost up``: killed, cut off, locked, taken over."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.faults.faults import cancel_all, lasting, refused, running, trial, until
from tests.integration.unix_proxy import Proxy
from tests.support import witness
from tests.support.chaos import play
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.trial import SubmittedJob, Trial

pytestmark = pytest.mark.skipif(bool(PostgresServer.missing()), reason=PostgresServer.missing())
#: The session of the server.
HOLDER = "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted LIMIT 1)"


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with PostgresServer() as found:
        yield found


def name_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


def test_a_killed_database_costs_no_job(database: PostgresServer, tmp_path: Path) -> None:
    with trial(tmp_path, seed=30, store=database.database()) as one:
        assert one.begin()
        job = running(one)
        with submitting(one):
            for _ in range(2):
                time.sleep(0.3)
                database.kill()
                time.sleep(0.3)
                database.start()
                assert until(lambda: one.server.get("/health")["ok"])
        assert one.server.alive, one.server.said()
        assert one.view(job)["attempt"] == 1
        cancel_all(one)
        one.settle()
        assert one.check() == []
        assert len(one.jobs) > 5


@contextmanager
def submitting(one: Trial) -> Iterator[None]:
    """Somebody submits all the time; what is refused is refused with a hint when to come back."""
    enough, waits = threading.Event(), list[str | None]()

    def work() -> None:
        while not enough.wait(0.02):
            job = lasting(one, 0.0)
            if not job.id:
                answer = one.ask_for(job)
                if answer is not None and answer.status_code == 503:
                    waits.append(answer.headers.get("Retry-After"))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join(60.0)
    assert None not in waits


@pytest.mark.parametrize("mode", ["before", "after", "held"])
def test_a_commit_whose_answer_is_lost_is_resolved(
    mode: str, database: PostgresServer, tmp_path: Path
) -> None:
    url = database.database()
    with Proxy(database.socket) as proxy, trial(tmp_path, 31, store=proxy.url(name_of(url))) as one:
        assert one.begin()
        job = running(one)
        for _ in range(3):
            proxy.cut_at_commit(mode)
            lasting(one, 0.0)
            assert until(lambda: not proxy.mode and one.server.get("/health")["ok"])
        one.repeat()
        assert one.view(job)["attempt"] == 1
        cancel_all(one)
        one.settle()
        assert one.check() == []
        assert len({asked.id for asked in one.jobs}) == len(one.jobs)


def test_a_locked_table_is_waited_for_with_bounds(database: PostgresServer, tmp_path: Path) -> None:
    import psycopg  # noqa: PLC0415 - an extra

    url = database.database()
    with trial(tmp_path, seed=32, store=url) as one:
        assert one.begin()
        job = running(one)
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE roost_meta, jobs IN ACCESS EXCLUSIVE MODE")
            asked = SubmittedJob("key-locked", witness.document(one.folder, one.chance, 0.0))
            one.jobs.append(asked)
            answer = one.ask_for(asked)
            assert not asked.id
            assert answer is not None, "no answer in time"
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["Retry-After"]) >= 1
            healthy = one.server.ask("GET", "/healthz")
            assert healthy is not None
            assert healthy.is_success
            other.rollback()
        assert until(lambda: one.server.get("/health")["ok"])
        assert one.server.alive
        assert one.view(job)["attempt"] == 1
        cancel_all(one)
        one.settle()
        assert one.check() == []


def test_a_server_that_lost_its_lock_gives_way(database: PostgresServer, tmp_path: Path) -> None:
    with trial(tmp_path, seed=33, store=database.database()) as one:
        assert one.begin()
        job = running(one, 600.0)
        first, home = one.server, one.server.home
        first.send(signal.SIGSTOP)
        second = one.server = ServerProcess(home, 4, one.store)
        try:
            # All that keeps a second server away, one after the other.
            assert f"pid {first.pid}" in refused(second)
            (home / "server.json").unlink()
            assert "another server" in refused(second)
            database.run(name_of(one.store), f"SELECT pg_terminate_backend({HOLDER})")
            assert "another engine" in refused(second)
            (home / "engine.lock").unlink()
            assert one.begin(), second.said()
            one.until(job, "running")
            assert one.submit(witness.document(one.folder, one.chance, 0.0)).id
        finally:
            first.send(signal.SIGCONT)
        answer = first.ask("POST", "/api/v1/jobs", {"job": job.document})
        assert answer is None or not answer.is_success
        assert first.ended() not in (None, 0), first.said()
        assert "another server took over" in first.said()
        first.close()
        # It took nothing with it: the second server serves on, and hears of its jobs.
        assert second.alive
        assert (home / "server.json").exists()
        one.until(lasting(one, 0.0), "succeeded")
        assert one.view(job)["attempt"] == 1
        assert one.view(job)["state"] == "running"
        cancel_all(one)
        one.settle()
        assert one.check() == []


def test_a_database_belongs_to_one_home(database: PostgresServer, tmp_path: Path) -> None:
    """Another home does not see the runs of the first: it would start them again."""
    with trial(tmp_path, seed=34, store=database.database()) as one:
        one.begin("effect.after-fork:1")
        lasting(one, 60.0)
        assert one.server.ended() == -signal.SIGKILL
        said = refused(ServerProcess(tmp_path / "other" / "home", 4, one.store))
        assert str(one.server.home) in said
        assert one.begin()
        cancel_all(one)
        one.settle()
        assert one.check() == []


def test_chaos_with_a_database_that_dies(database: PostgresServer, tmp_path: Path) -> None:
    chaos = play(12, 0, (), tmp_path, kills=2, database=database)
    assert chaos.problems == []
    assert any(told.command == "submit" for told in chaos.told)
