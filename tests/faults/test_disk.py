"""Faults of the disk, with a real ``roost up``: full, failing, damaged, put back, too new."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.faults.faults import (
    can,
    cancel_all,
    lasting,
    refused,
    running,
    script,
    tiny_disk,
    trial,
    until,
)
from tests.support import oracles
from tests.support.server_process import ServerProcess
from tests.support.trial import LATER, SubmittedJob, Trial

from roost.server import identity
from roost.store import open_store

can_mount = pytest.mark.skipif(
    not (os.geteuid() == 0 and can("unshare", "-m", "true")), reason="only root mounts"
)
can_trace = pytest.mark.skipif(
    not can("strace", "-f", "-e", "inject=fdatasync:error=EIO:when=9999", "true"),
    reason="needs strace, and the right to trace",
)


@can_mount
def test_a_full_disk_stops_intake_and_nothing_else(tmp_path: Path) -> None:
    del tmp_path
    count = 'i=0; until [ -e "$GO" ]; do i=$((i+1)); echo $i; sleep 0.05; done'
    with tiny_disk(12) as disk, trial(disk) as one:
        assert one.begin()
        job = one.submit(script(one, count))
        one.until(job, "running")
        ballast = disk / "ballast"
        refusals = [refusal for _ in range(5) for refusal in fill_and_ask(one, ballast)]
        assert {refusal.status_code for refusal in refusals} <= set(LATER)
        message = refusals[0].json()["error"]["message"]
        assert "is full; make room on it" in message
        # Reading goes on, and so does what runs.
        assert one.view(job)["state"] == "running"
        assert one.server.get(f"/jobs/{job.id}/events")["items"]
        assert one.server.alive
        ballast.unlink()
        assert until(lambda: one.server.get("/health")["ok"]), one.server.get("/health")
        (one.folder / "go").touch()
        assert one.until(job, "succeeded")["attempt"] == 1
        one.settle()
        assert one.check() == []
        assert "Traceback" not in one.server.said()


@can_mount
def test_a_home_on_a_full_disk_is_served_and_takes_nothing_new(tmp_path: Path) -> None:
    """Reading and cancelling work, a submission is refused, and it goes on when there is room."""
    del tmp_path
    with tiny_disk(24) as disk, trial(disk) as one:
        assert one.begin()
        job = one.submit(script(one, "sleep 1000"))
        one.until(job, "running")
        one.server.stop()
        ballast = disk / "ballast"
        fill(ballast)
        for _ in range(2):  # the second finds the reserve used
            one.server.start()
            assert one.server.ready(want=503), one.server.said()
            health = one.server.get("/health")
            assert not health["ok"]
            assert "is full" in health["why"]
            assert one.view(job)["state"] == "running"
            one.jobs.append(SubmittedJob("refused", script(one, "true")))
            refusal = one.ask_for(one.jobs.pop())
            assert refusal is not None
            assert refusal.status_code == 507, refusal.text
            one.server.stop()
        one.server.start()
        assert one.server.ready(want=503), one.server.said()
        cancel_all(one)
        assert one.until(job, "cancelled")["attempt"] == 1
        ballast.unlink()
        assert until(lambda: one.server.get("/health")["ok"]), one.server.get("/health")
        one.submit(script(one, "true"))
        one.settle()
        assert one.check() == []
        assert "Traceback" not in one.server.said()


def fill_and_ask(one: Trial, ballast: Path) -> list[httpx.Response]:
    """Take all room again and again, and ask for jobs until that is refused; the refusals."""
    found: list[httpx.Response] = []
    for _ in range(200):
        fill(ballast)
        one.jobs.append(SubmittedJob(f"key-{len(one.jobs)}", script(one, "true")))
        answer = one.ask_for(one.jobs[-1])
        if answer is not None and not answer.is_success:
            found.append(answer)
            break
    assert found, "a full disk was not noticed"
    return found


def fill(path: Path) -> None:
    """Take all the room there is."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


#: What fails, counted for each thread of the server.
FAILING = (
    "fdatasync:error=EIO:when=30",
    "fsync,fdatasync:error=EIO:when=30+",
    "pwrite64:error=EIO:when=400+",
)


@can_trace
@pytest.mark.parametrize("fault", FAILING, ids=["once", "for good", "writes"])
def test_a_failing_disk_ends_the_server_and_loses_nothing(fault: str, tmp_path: Path) -> None:
    with trial(tmp_path, seed=5, slots=1) as one:
        trace = ("strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", str(tmp_path / "trace"))
        calls = fault.partition(":")[0]
        one.server.start(before=(*trace, "-e", f"trace={calls}", "-e", f"inject={fault}"))
        assert one.server.ready(), one.server.said()
        job = running(one)  # and all others wait for it
        for _ in range(150):
            if not one.server.alive:
                break
            lasting(one, 0.0)
        assert "INJECTED" in (tmp_path / "trace").read_text()
        assert one.server.ended(20.0) not in (None, 0), one.server.said()
        assert "Traceback" not in one.server.said()
        assert one.begin(), one.server.said()
        one.repeat()
        # Whatever was acknowledged is asked for once more: the same jobs answer.
        for asked in one.jobs:
            before = asked.id
            one.ask_for(asked)
            assert asked.id == before
        assert one.view(job)["attempt"] == 1
        cancel_all(one)
        one.settle()
        assert one.check() == []


# -- what is there at the start ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """Homes of a cluster that was served for a while: early, killed later, or stopped then."""

    folder: Path
    jobs: tuple[str, ...]

    def home(self, name: str, where: Path) -> ServerProcess:
        """A server of one of them, as if it had always been there."""
        place(self.folder / name, where / "home")
        return ServerProcess(where / "home", 4)


def place(kept: Path, home: Path) -> None:
    """Copy a home, and let it take the copy's place for its own."""
    shutil.copytree(kept, home)
    note = json.loads((home / "home.json").read_text())
    note["place"] = identity.place_of(home)._asdict()
    (home / "home.json").write_text(json.dumps(note))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("kept")
    finished = shutil.ignore_patterns("runs", "*.sock")
    with trial(folder, seed=6) as one:
        for name, end in (("early", one.server.stop), ("killed", one.server.kill)):
            assert one.begin()
            for job in [lasting(one, 0.0) for _ in range(3)]:
                one.until(job, "succeeded")
            end()
            shutil.copytree(one.server.home, folder / name, ignore=finished)
    shutil.copytree(folder / "killed", folder / "stopped")
    with closing(sqlite3.connect(folder / "stopped" / "roost.db")) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return Kept(folder, tuple(job.id for job in one.jobs))


def contents(server: ServerProcess) -> dict[str, str]:
    """The bytes of the database and of its log."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(server.home.glob("roost.db*"))
        if not path.name.endswith(("-shm", ".lock"))
    }


def refused_untouched(server: ServerProcess) -> str:
    """What a server says that must not start, and must not change the database either."""
    before = contents(server)
    said = refused(server)
    assert contents(server) == before
    return said


def test_flipped_bytes_are_found_before_anything_is_done(kept: Kept, tmp_path: Path) -> None:
    server = kept.home("stopped", tmp_path)
    file, job = server.home / "roost.db", kept.jobs[2]
    with closing(sqlite3.connect(file)) as raw:
        query = "SELECT seq, body FROM journal WHERE body LIKE ? ORDER BY seq LIMIT 1"
        seq, text = raw.execute(query, (f"%{job}%",)).fetchone()
    data = bytearray(file.read_bytes())
    data[data.index(text.encode()) + text.index(job) + 2] ^= 1
    file.write_bytes(data)
    said = refused_untouched(server)
    assert f"damaged at entry {seq}" in said
    assert "restore a backup" in said


def test_pages_of_rubbish_are_refused(kept: Kept, tmp_path: Path) -> None:
    server = kept.home("stopped", tmp_path)
    file = server.home / "roost.db"
    with closing(sqlite3.connect(file)) as database:
        ((page, size),) = database.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = 'jobs'"
        )
    data = bytearray(file.read_bytes())
    data[(page - 1) * size : page * size] = random.Random(1).randbytes(size)
    file.write_bytes(data)
    assert "damaged" in refused_untouched(server)


def test_a_missing_log_is_noticed(kept: Kept, tmp_path: Path) -> None:
    server = kept.home("killed", tmp_path)
    wal = server.home / "roost.db-wal"
    log = wal.read_bytes()
    wal.unlink()
    said = refused_untouched(server)
    assert "put the newer database back (with its -wal file)" in said
    wal.write_bytes(log)  # as advised
    server.start()
    try:
        assert server.ready(), server.said()
        assert server.get("/jobs")["total"] == 6
    finally:
        server.close()


@pytest.mark.skipif(not can("unshare", "-Urm", "true"), reason="needs unshare")
def test_a_folder_that_cannot_be_written_to_is_refused(kept: Kept, tmp_path: Path) -> None:
    server = kept.home("stopped", tmp_path)
    before = contents(server)
    bound = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    server.start(before=("unshare", "-Urm", "sh", "-c", bound, str(server.home)))
    assert server.ended(20.0) not in (None, 0)
    assert "Traceback" not in server.said()
    assert "ead-only" in server.said() or "cannot be written" in server.said()
    assert contents(server) == before


def test_an_older_copy_is_noticed_at_the_start(kept: Kept, tmp_path: Path) -> None:
    server = kept.home("stopped", tmp_path)
    shutil.copyfile(kept.folder / "early" / "roost.db", server.home / "roost.db")
    assert "was put back to an older state" in refused_untouched(server)
    shutil.copyfile(kept.folder / "stopped" / "roost.db", server.home / "roost.db")
    server.start()
    try:
        assert server.ready(), server.said()
    finally:
        server.close()


@pytest.mark.parametrize("way", ["renamed", "in place"])
def test_an_older_copy_is_noticed_while_serving(way: str, kept: Kept, tmp_path: Path) -> None:
    older = kept.folder / "early" / "roost.db"
    with trial(tmp_path, seed=11) as one:
        place(kept.folder / "stopped", one.server.home)
        assert one.begin()
        job = running(one)
        file = one.server.home / "roost.db"
        if way == "renamed":
            shutil.copyfile(older, tmp_path / "older.db")
            (tmp_path / "older.db").replace(file)
        else:  # as a restore would: the file is written over, its log emptied
            file.write_bytes(older.read_bytes())
            os.truncate(f"{file}-wal", 0)
        known = len(one.told)
        for _ in range(3):
            if one.server.alive:
                one.server.ask("POST", "/api/v1/jobs", {"job": script(one, "true")})
        assert len(one.told) == known
        assert one.server.ended(20.0) not in (None, 0), one.server.said()
        assert "Traceback" not in one.server.said()
        (one.server.home / "roost.db-wal").unlink(missing_ok=True)
        said = refused(one.server)
        assert "was put back to an older state" in said or "damaged at entry" in said
        alive = {process.job for process in oracles.carrying(one.mark)}
        assert alive == {job.id}


@pytest.mark.parametrize("column", ["format", "schema"])
def test_a_database_of_a_newer_roost_is_refused_untouched(
    column: str, kept: Kept, tmp_path: Path
) -> None:
    server = kept.home("stopped", tmp_path)
    with closing(sqlite3.connect(server.home / "roost.db")) as raw:
        raw.execute(f"UPDATE roost_meta SET {column} = 99")  # noqa: S608 - ours
        raw.commit()
    said = refused_untouched(server)
    assert "was written by a newer Roost" in said
    assert f"{column} 99" in said


def test_an_entry_of_a_newer_roost_is_refused_untouched(kept: Kept, tmp_path: Path) -> None:
    server = kept.home("stopped", tmp_path)
    with open_store(f"sqlite://{server.home / 'roost.db'}") as store:
        store.journal.serve()
        last = store.journal.last()
        assert last is not None
        store.journal.append(
            [last._replace(seq=last.seq + 1, id="new", body={**last.body, "v": 99})]
        )
    assert f"entry {last.seq + 1} of the journal was written by a newer Roost" in refused_untouched(
        server
    )


def test_endless_output_hurts_nobody(tmp_path: Path) -> None:
    with trial(tmp_path, seed=13) as one:
        assert one.begin()
        other = running(one, 1.0)
        before = resident(one.server.pid)
        job = one.submit(script(one, "yes", max_duration=2))
        one.until(job, "running")
        answer = one.server.ask("GET", f"/api/v1/jobs/{job.id}/logs?tail=10")
        assert answer is not None
        assert answer.is_success
        assert one.until(job, "failed")["verdict"]["kind"]
        one.until(other, "succeeded")
        assert resident(one.server.pid) - before < 50 << 20
        size = sum(path.stat().st_size for path in one.server.home.rglob("worker-0.log"))
        assert size < (256 << 20) + (1 << 20)
        one.settle()
        assert one.check() == []


def resident(pid: int) -> int:
    """Memory of a process, in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
