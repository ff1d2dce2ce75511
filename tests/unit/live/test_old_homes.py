"""Homes that older versions left behind are opened; what a newer one wrote is refused.

The archives in ``tests/data/homes`` were made once, by the version in their name, and are never
made anew: a server with a job that succeeded, one that failed, one that runs and one that waits.
A release, or a change of the schema, adds one.
"""

from __future__ import annotations

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from roost import placement, policies
from roost.core import JobId, RunId
from roost.engines.local import run_status
from roost.engines.local.run_folders import RunFolders
from roost.errors import Fatal
from roost.live.recovery import check_past, recover
from roost.server import identity
from roost.store import Store, open_store
from roost.store.migrations import MIGRATIONS
from roost.store.rows import EventQuery, JobQuery, JournalEntry

HOMES = sorted((Path(__file__).parents[2] / "data" / "homes").glob("*.tar.gz"))
STATES = {"good": "succeeded", "bad": "failed", "runs": "running", "waits": "queued"}
POLICY, PLACER = policies.policy("backfill"), placement.placer("consolidate")


@pytest.fixture(params=HOMES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 has it
        tar.extractall(tmp_path)  # noqa: S202 - archives of our own
    return tmp_path


def opened(home: Path) -> Store:
    return open_store(f"sqlite://{home}/roost.db")


def test_there_is_a_home_of_every_schema_that_was_released() -> None:
    assert {path.name for path in HOMES} >= {"0.1.0-schema-2.tar.gz", "0.1.0-schema-5.tar.gz"}
    assert MIGRATIONS[-1].number >= 5


def test_an_old_home_is_opened_with_all_that_it_knows(home: Path) -> None:
    known = identity.claim(home, "moved")
    with opened(home) as store:
        store.journal.claim(known.row)
        found = recover(store, POLICY, PLACER)
        check_past(store, found.seq)
        rows = {row.name: row for row in store.jobs.find(JobQuery()).items}
        assert {name: row.state for name, row in rows.items()} == STATES
        assert rows["good"].labels == {"team": "a"}
        assert rows["bad"].view["exit_code"] == 3
        assert {found.core.jobs[JobId(row.id)].state for row in rows.values()} == {*STATES.values()}
        assert {queue.id for queue in store.accounts.queues()} == {"default", "vision"}
        assert store.events.find(EventQuery(job=rows["good"].id)).total >= 3
        store.journal.serve()  # and it can be written to
    runs = RunFolders(home)
    for name in ("good", "bad", "runs"):  # the last one was killed when no server was there
        assert run_status.examine(runs, RunId(JobId(rows[name].id), 1)).kind == "over"
    runs.close()


def test_an_entry_of_a_newer_roost_says_so(home: Path) -> None:
    with opened(home) as store:
        store.journal.serve()
        last = store.journal.last()
        assert last is not None
        odd = {**last.body, "events": [{"type": "Woke", "time": 1.0, "mood": "bright"}]}
        store.journal.append([JournalEntry(last.seq + 1, "new", last.time, odd)])
        with pytest.raises(Fatal, match=r"was written by a newer Roost .*'mood'.* upgrade Roost"):
            recover(store, POLICY, PLACER)


def test_a_database_of_a_newer_roost_is_refused_untouched(home: Path) -> None:
    with opened(home):
        pass
    file = home / "roost.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE roost_meta SET schema = 99")
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = file.read_bytes()
    with pytest.raises(Fatal, match="was written by a newer Roost"):
        opened(home)
    assert file.read_bytes() == before
