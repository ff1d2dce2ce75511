"""Restore points: the snapshots of jobs that can be cloned; the files are elsewhere.

A row says that the files are there, so it is written last and deleted first. It outlives its job:
whatever a clone needs stands in it. Every change adds a line of kind ``snapshot`` to the event log,
in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace

from roost.errors import Conflict, NotFound
from roost.store import events
from roost.store.database import Database, Row, Session
from roost.store.encoding import clean, from_json, to_json
from roost.store.journal import Journal
from roost.store.rows import EventRow, RestorePointRow, RowPage

_COLUMNS = (
    "job, name, owner, job_name, created_at, step, progress, files, size_bytes, "
    "fresh, took_s, function, document"
)
_PLACES = ", ".join("?" * len(_COLUMNS.split(",")))
#: The most snapshots that are kept of one job.
MOST_POINTS = 100


class RestorePoints:
    """The list of job snapshots."""

    def __init__(self, database: Database, journal: Journal, clock: Callable[[], float]) -> None:
        self._database, self._journal, self._clock = database, journal, clock

    def add(self, point: RestorePointRow, *, actor: str = "", text: str = "") -> RestorePointRow:
        """Note that a snapshot's files are in place.

        Raises Conflict where the job has one of that name, or too many.
        """
        with self._database.writing() as session:
            self._journal.fence(session)
            _check_room(session, point.job, point.name)
            session.run(f"INSERT INTO restore_points ({_COLUMNS}) VALUES ({_PLACES})", _row(point))  # noqa: S608 - constants
            self._log(session, point, actor, text or f"{point.name} taken")
        return point

    def check(self, job: str, name: str) -> None:
        """Raise Conflict where a snapshot of that name could not be added."""
        with self._database.reading() as session:
            _check_room(session, clean(job), clean(name))

    def delete(self, job: str, name: str, *, actor: str = "") -> RestorePointRow:
        """Forget a snapshot; raises NotFound."""
        with self._database.writing() as session:
            self._journal.fence(session)
            point = _point(session, clean(job), clean(name))
            if point is None:
                raise NotFound(f"job {clean(job)[:100]} has no snapshot {clean(name)[:100]!r}")
            session.run(
                "DELETE FROM restore_points WHERE job = ? AND name = ?", (point.job, point.name)
            )
            self._log(session, point, actor, f"{point.name} deleted")
        return point

    def get(self, job: str, name: str = "") -> RestorePointRow | None:
        """A snapshot of a job by its name; without one, the newest."""
        with self._database.reading() as session:
            return _point(session, clean(job), clean(name))

    def sizes(self) -> dict[str, int]:
        """The bytes of all snapshots of each user."""
        with self._database.reading() as session:
            rows = session.all("SELECT owner, SUM(size_bytes) FROM restore_points GROUP BY owner")
        return {str(user): int(size) for user, size in rows}

    def find(
        self, job: str = "", user: str = "", *, offset: int = 0, limit: int = 50
    ) -> RowPage[RestorePointRow]:
        """Snapshots of a job, of a user's jobs or of all, the newest first."""
        asked = [(column, value) for column, value in (("job", job), ("owner", user)) if value]
        where = " AND ".join(f"{column} = ?" for column, _ in asked)
        where = f" WHERE {where}" if where else ""
        values = [clean(value) for _, value in asked]
        with self._database.reading() as session:
            total = session.all(f"SELECT COUNT(*) FROM restore_points{where}", values)[0][0]  # noqa: S608 - values are parameters
            rows = session.all(
                f"SELECT {_COLUMNS} FROM restore_points{where} "  # noqa: S608 - values are parameters
                "ORDER BY created_at DESC, job, name LIMIT ? OFFSET ?",
                (*values, limit, offset),
            )
        return RowPage(tuple(map(_decoded, rows)), int(total))

    def _log(self, session: Session, point: RestorePointRow, actor: str, text: str) -> None:
        line = EventRow(
            *(0, 0, self._clock(), actor, point.job, point.user),
            kind="snapshot",
            text=text,
        )
        events.note(session, line)


def _check_room(session: Session, job: str, name: str) -> None:
    """Raise Conflict where a job has a snapshot of that name, or no room for another."""
    if _point(session, job, name) is not None:
        raise Conflict(f"job {job} has a snapshot {name!r} already; delete it, or choose a name")
    count = session.all("SELECT COUNT(*) FROM restore_points WHERE job = ?", (job,))[0][0]
    if count >= MOST_POINTS:
        raise Conflict(
            f"job {job} has {count} snapshots, and more are not kept; delete some with: "
            f"roost snapshots delete {job}@NAME"
        )


def _point(session: Session, job: str, name: str) -> RestorePointRow | None:
    named, values = (" AND name = ?", [job, name]) if name else ("", [job])
    row = session.one(
        f"SELECT {_COLUMNS} FROM restore_points WHERE job = ?{named} "  # noqa: S608 - values are parameters
        "ORDER BY created_at DESC, name LIMIT 1",
        values,
    )
    return None if row is None else _decoded(row)


def _row(point: RestorePointRow) -> Row:
    *plain, fresh, took_s, function, document = astuple(replace(point, document={}))
    del document
    body = to_json(f"snapshot {point.name}", dict(point.document))
    texts = [clean(value) if isinstance(value, str) else value for value in plain]
    return (*texts, int(fresh), took_s, int(function), body)


def _decoded(row: Row) -> RestorePointRow:
    *plain, fresh, took_s, function, document = row
    what = f"snapshot {row[1]} of {row[0]}"
    return RestorePointRow(
        *(*plain, bool(fresh), took_s, bool(function), from_json(what, document))
    )
