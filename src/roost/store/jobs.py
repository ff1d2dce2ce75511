"""Jobs as lists show them: written with the journal, found by indexes.

A page is found in three steps: how many there are (kept by owner, queue and state, so mostly
without counting), the ids of the page (from an index alone), and the rows. So the first page costs
the same however many finished jobs lie behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from roost.store.database import Database, Row, Session
from roost.store.encoding import clean, from_json, from_time, row_sum, to_json, to_time
from roost.store.errors import StoreBroken
from roost.store.rows import (
    OPEN_STATES,
    JobCounts,
    JobQuery,
    JobRow,
    OutlivedQuery,
    RowPage,
)

_COLUMNS = (
    "id, name, owner, queue, state, cause, priority, gpus, "
    "submitted_at, started_at, finished_at, request, labels, rev, kept_until, sum"
)
_NAMES = _COLUMNS.split(", ")
_PLACES = ", ".join("?" * len(_NAMES))
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in _NAMES[1:])
_LABELS = _NAMES.index("labels")
_SUM = _NAMES.index("sum")
_OWNER, _STATE, _REQUEST = (_NAMES.index(name) for name in ("owner", "state", "request"))
_CHUNK = 200
#: How long the request of a job that was deleted is remembered.
SPENT_S = 7 * 86400.0
#: Rows per row wanted that are worth walking along an index in the order that is asked for.
_SPARSE = 20

_ALL = f"SELECT {', '.join(f'jobs.{name}' for name in _NAMES)}, job_views.body, job_documents.body "
_SELECT = (
    f"{_ALL} FROM jobs "
    "JOIN job_views ON job_views.id = jobs.id JOIN job_documents ON job_documents.id = jobs.id "
)
#: The same, also of jobs that have lost a part.
_SELECT_ANY = _SELECT.replace("JOIN", "LEFT JOIN")
_VIEW, _DOCUMENT = len(_NAMES), len(_NAMES) + 1

#: A word is in the texts of a job, or in one of its labels.
_CONTAINS = (
    "(lower(id) LIKE ? ESCAPE '!' OR lower(name) LIKE ? ESCAPE '!'"
    " OR lower(owner) LIKE ? ESCAPE '!' OR lower(queue) LIKE ? ESCAPE '!'"
    " OR id IN (SELECT id FROM job_labels WHERE lower(label || '=' || content) LIKE ? ESCAPE '!'))"
)

Sort = tuple[str, str, str]


class EncodedJob(NamedTuple):
    """A job's row as it is written."""

    row: Row
    labels: list[Row]
    view: str
    document: str

    @property
    def id(self) -> str:
        """The job's id."""
        return str(self.row[0])

    @property
    def sort(self) -> Sort:
        """Owner, queue and state: what jobs are counted by."""
        return self.row[2], self.row[3], self.row[4]


class StoredJob(NamedTuple):
    """A job that is not over as the store has it, not decoded yet; its checksum was compared."""

    id: str
    user: str
    request: str
    view_text: str
    document_text: str

    @property
    def view(self) -> dict[str, Any]:
        """What is shown of it."""
        view: dict[str, Any] = from_json(f"job {self.id}", self.view_text)
        return view

    @property
    def document(self) -> dict[str, Any]:
        """Its job file."""
        document: dict[str, Any] = from_json(f"job {self.id}", self.document_text)
        return document


class RequestKey(NamedTuple):
    """A request for a new job: its user, its idempotency key, if any, and the id it would get."""

    user: str
    key: str
    id: str


class RequestTrace(NamedTuple):
    """What there is of a request: its job, or the id of that if it was deleted of late.

    ``taken``: another job has the id that was asked for.
    """

    row: JobRow | None
    spent: str
    taken: bool


class OpenJob(NamedTuple):
    """A job that is not over, in short."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    submitted_at: float
    rev: int


def encoded(jobs: Sequence[JobRow]) -> list[EncodedJob]:
    """Rows as they are written, the last one of each job; raises InvalidSpec."""
    return [_encoded(job) for job in {job.id: job for job in jobs}.values()]


def write(session: Session, jobs: Sequence[EncodedJob], deleted: Sequence[str], now: float) -> None:
    """Bring the views of some jobs up to date, and forget others."""
    before = _before(session, [*(job.id for job in jobs), *deleted])
    moves: Counter[Sort] = Counter()
    for sort, _ in before.values():
        moves[sort] -= 1
    gone = set(deleted)
    jobs = [job for job in jobs if job.id not in gone]
    for job in jobs:
        moves[job.sort] += 1
    _spend(session, gone, now)
    session.run_many("DELETE FROM jobs WHERE id = ?", [(name,) for name in gone])
    session.run_many(
        f"INSERT INTO jobs ({_COLUMNS}) VALUES ({_PLACES}) "  # noqa: S608 - constants
        f"ON CONFLICT (id) DO UPDATE SET {_UPDATES}",
        [job.row for job in jobs],
    )
    _write_bodies(session, jobs, before)
    _count(session, moves)


def _spend(session: Session, jobs: Collection[str], now: float) -> None:
    """Remember the requests of jobs that go: sent again, they must not make second ones."""
    if not jobs:
        return
    session.run_many(
        "INSERT INTO spent_requests (owner, request, job, deleted_at) "
        "SELECT owner, request, id, ? FROM jobs WHERE id = ? AND request <> '' "
        "ON CONFLICT (owner, request) DO NOTHING",
        [(now, name) for name in jobs],
    )
    session.run("DELETE FROM spent_requests WHERE deleted_at < ?", (now - SPENT_S,))


class JobTable:
    """The list of jobs: which there are, by id, by request or by a query."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> JobRow | None:
        """One job by its id."""
        with self._database.reading() as session:
            row = session.one(f"{_SELECT} WHERE jobs.id = ?", (clean(name),))
        return None if row is None else _decoded(row)

    def by_request(self, user: str, key: str) -> JobRow | None:
        """The job that a user's request with this idempotency key made."""
        with self._database.reading() as session:
            return _by_request(session, user, key)

    def known_requests(self, asked: Sequence[RequestKey]) -> list[RequestTrace]:
        """What there is of some requests, in their order, all at one moment."""
        with self._database.reading() as session:
            return [
                RequestTrace(
                    _by_request(session, user, key),
                    _spent_request(session, user, key) if key else "",
                    session.one("SELECT 1 FROM jobs WHERE id = ?", (clean(name),)) is not None,
                )
                for user, key, name in asked
            ]

    def owners(self) -> dict[str, str]:
        """The user of every job."""
        with self._database.reading() as session:
            return {str(job): str(user) for job, user in session.all("SELECT id, owner FROM jobs")}

    def some(self, names: Sequence[str]) -> list[JobRow]:
        """Jobs by their ids, in that order; those that are no more are left out."""
        found: list[JobRow] = []
        for start in range(0, len(names), _CHUNK):
            with self._database.reading() as session:
                found += _rows(session, names[start : start + _CHUNK])
        return found

    def unfinished(self) -> Iterator[StoredJob]:
        """Every job that is not over, oldest first; not decoded, because a start needs few."""
        names = list(self.open_users())
        for start in range(0, len(names), _CHUNK):
            with self._database.reading() as session:
                rows = _raw(session, names[start : start + _CHUNK])
            for row in rows:
                if row[_STATE] in OPEN_STATES:
                    _check(row)
                    yield _stored(row)

    def stored(self, name: str) -> StoredJob:
        """One job that is in the list, not decoded; raises StoreBroken where it is not."""
        with self._database.reading() as session:
            row = session.one(f"{_SELECT} WHERE jobs.id = ?", (name,))
        if row is None:
            raise _astray(self._database.where, f"the rows of job {name}")
        _check(row)
        return _stored(row)

    def open_users(self) -> dict[str, str]:
        """Every job that is not over, oldest first, with its user; not checked."""
        places = ", ".join("?" * len(OPEN_STATES))
        with self._database.reading() as session:
            rows = session.all(
                f"SELECT id, owner FROM jobs WHERE state IN ({places}) "  # noqa: S608 - values are parameters
                "ORDER BY submitted_at, id",
                OPEN_STATES,
            )
        return dict(rows)

    def open(self) -> list[OpenJob]:
        """The same in short; what is read here is not checked: ``verify`` does that."""
        places = ", ".join("?" * len(OPEN_STATES))
        with self._database.reading() as session:
            rows = session.all(
                "SELECT id, name, owner, queue, state, submitted_at, rev FROM jobs "  # noqa: S608 - values are parameters
                f"WHERE state IN ({places}) ORDER BY submitted_at, id",
                OPEN_STATES,
            )
        return list(map(OpenJob._make, rows))

    def outlived(self, rule: OutlivedQuery) -> list[JobRow]:
        """Jobs that are over and need not be kept any longer, the oldest first."""
        where, parameters = ["(kept_until >= 0 AND kept_until < ?)"], [rule.now]
        free = "kept_until < 0 AND finished_at >= 0"
        if rule.before is not None:
            where.append(f"({free} AND finished_at < ?)")
            parameters.append(rule.before)
        with self._database.reading() as session:
            if rule.most is not None:
                row = session.one(
                    "SELECT finished_at FROM jobs WHERE finished_at >= 0 "
                    "ORDER BY finished_at DESC, id DESC LIMIT 1 OFFSET ?",
                    (rule.most,),
                )
                if row is not None:
                    where.append(f"({free} AND finished_at <= ?)")
                    parameters.append(row[0])
            if rule.every:
                where = ["finished_at >= 0"]
                parameters = [rule.now]
            order = "CASE WHEN kept_until > ? THEN 1 ELSE 0 END, " if rule.every else ""
            names = session.all(
                f"SELECT id FROM jobs WHERE {' OR '.join(where)} "  # noqa: S608 - values are parameters
                f"ORDER BY {order}finished_at, id LIMIT ?",
                (*parameters, rule.limit),
            )
            return _rows(session, [row[0] for row in names])

    def verify(
        self,
        rest: Callable[[], None] = lambda: None,
        take: Callable[[list[StoredJob]], None] = lambda _some: None,
    ) -> None:
        """Compare the checksums of all jobs, and the tables made of them; raises StoreBroken.

        ``take`` is given those that are not over, some at a time. ``rest`` is called after some of
        them, without a transaction.
        """
        last = ""
        while True:
            with self._database.reading() as session:
                rows = session.all(
                    f"{_SELECT_ANY} WHERE jobs.id > ? ORDER BY jobs.id LIMIT ?", (last, _CHUNK)
                )
            if not rows:
                break
            for row in rows:
                if row[_VIEW] is None or row[_DOCUMENT] is None:
                    raise _astray(self._database.where, "jobs without a view or a document")
                _check(row)
            if some := [_stored(row) for row in rows if row[_STATE] in OPEN_STATES]:
                take(some)
            last = rows[-1][0]
            rest()
        self._verify_counts()

    def _verify_counts(self) -> None:
        with self._database.reading() as session:
            counted = session.all("SELECT owner, queue, state, jobs FROM job_counts")
            there = session.all(
                "SELECT owner, queue, state, COUNT(*) FROM jobs GROUP BY owner, queue, state"
            )
            labels = session.all("SELECT id, labels FROM jobs WHERE labels <> '{}'")
            pairs = session.all("SELECT id, label, content FROM job_labels")
        if sorted(counted) != sorted(there):
            raise _astray(self._database.where, "the numbers of jobs by state")
        told = {
            (name, label, content)
            for name, text in labels
            for label, content in from_json(f"job {name}", text).items()
        }
        if set(pairs) != told:
            raise _astray(self._database.where, "the labels of jobs")

    def find(self, query: JobQuery) -> RowPage[JobRow]:
        """A page of the jobs that a query lets through."""
        search = _Search(query)
        with self._database.reading() as session:
            total, dense = search.total(session)
            names = search.page(session, dense=dense) if total > query.offset else []
            return RowPage(tuple(_rows(session, names)), total)

    def totals(self, query: JobQuery) -> JobCounts:
        """How many jobs a query lets through, whatever its page."""
        with self._database.reading() as session:
            sorts = _Search(query).sorts(session)
        states, queues, users = Counter[str](), Counter[str](), Counter[str]()
        for owner, queue, state, number in sorts:
            states[state] += number
            queues[queue] += number
            users[owner] += number
        return JobCounts(states.total(), dict(states), dict(queues), dict(users))


class _Search:
    """A query as SQL."""

    def __init__(self, query: JobQuery) -> None:
        self._query = query
        self._in = {
            column: values
            for column, values in (
                ("owner", query.users),
                ("queue", query.queues),
                ("state", query.states),
            )
            if values
        }

    def total(self, session: Session) -> tuple[int, bool]:
        """Count the jobs, and say whether they are a fair part of all jobs."""
        where, parameters = self._memberships("{}")
        counted = session.all(
            f"SELECT COALESCE(SUM(jobs), 0) FROM job_counts{where}",  # noqa: S608 - values are parameters
            parameters,
        )
        most = int(counted[0][0])
        if not self._in:
            dense = True
        else:
            every = session.all("SELECT COALESCE(SUM(jobs), 0) FROM job_counts")
            dense = most * _SPARSE >= int(every[0][0])
        if self._is_counted:
            return most, dense
        where, parameters = self._where(dense=dense)
        counted = session.all(f"SELECT COUNT(*) FROM jobs{where}", parameters)  # noqa: S608 - values are parameters
        return int(counted[0][0]), dense

    @property
    def _is_counted(self) -> bool:
        """Whether it asks for nothing but what jobs are counted by."""
        query = self._query
        looks_closer = query.name or query.names or query.labels or query.words
        return not looks_closer and query.ended_after is None

    def sorts(self, session: Session) -> list[Row]:
        """Owner, queue, state, and how many jobs there are of each such sort."""
        if self._is_counted:
            where, parameters = self._memberships("{}")
            return session.all(
                f"SELECT owner, queue, state, jobs FROM job_counts{where}",  # noqa: S608 - values are parameters
                parameters,
            )
        where, parameters = self._where(dense=False)
        return session.all(
            f"SELECT owner, queue, state, COUNT(*) FROM jobs{where} "  # noqa: S608 - values are parameters
            "GROUP BY owner, queue, state",
            parameters,
        )

    def page(self, session: Session, *, dense: bool) -> list[str]:
        """The ids of the page, in order."""
        query = self._query
        field = query.sort.removeprefix("-")
        column = "owner" if field == "user" else field
        turn = " DESC" if query.sort.startswith("-") else ""
        order = f"id{turn}" if column == "id" else f"{column}{turn}, id{turn}"
        where, parameters = self._where(dense=dense)
        rows = session.all(
            f"SELECT id FROM jobs{where} ORDER BY {order} LIMIT ? OFFSET ?",  # noqa: S608 - values are parameters
            (*parameters, query.limit, query.offset),
        )
        return [row[0] for row in rows]

    def _where(self, *, dense: bool) -> tuple[str, list[object]]:
        # Where many jobs pass, the index in the order asked for soon has a page together; hidden
        # in an expression, a column's own index is not used instead.
        where, parameters = self._memberships("({} || '')" if dense else "{}")
        parts = [where.removeprefix(" WHERE ")] if where else []
        if self._query.names:
            parts.append(f"name IN ({', '.join('?' * len(self._query.names))})")
            parameters += self._query.names
        if self._query.name:
            parts.append("lower(name) LIKE ? ESCAPE '!'")
            parameters.append(f"%{_escaped(self._query.name)}%")
        for label, content in sorted(self._query.labels.items()):
            parts.append("id IN (SELECT id FROM job_labels WHERE label = ? AND content = ?)")
            parameters += [label, content]
        for word in self._query.words:
            parts.append(_CONTAINS)
            parameters += [f"%{_escaped(word)}%"] * _CONTAINS.count("?")
        if self._query.ended_after is not None:
            parts.append("finished_at >= ?")
            parameters.append(self._query.ended_after)
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), parameters

    def _memberships(self, form: str) -> tuple[str, list[object]]:
        parts, parameters = list[str](), list[object]()
        for column, values in self._in.items():
            parts.append(f"{form.format(column)} IN ({', '.join('?' * len(values))})")
            parameters += values
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), parameters


def _by_request(session: Session, user: str, key: str) -> JobRow | None:
    if not key:
        return None
    row = session.one(
        f"{_SELECT} WHERE jobs.owner = ? AND jobs.request = ? AND jobs.request <> ''",
        (clean(user), clean(key)),
    )
    return None if row is None else _decoded(row)


def _spent_request(session: Session, user: str, key: str) -> str:
    row = session.one(
        "SELECT job FROM spent_requests WHERE owner = ? AND request = ?", (clean(user), clean(key))
    )
    return "" if row is None else str(row[0])


def _astray(where: str, what: str) -> StoreBroken:
    return StoreBroken(f"{where} is damaged: {what} do not fit; keep a copy, and restore a backup")


def _escaped(name: str) -> str:
    for letter in "!%_":
        name = name.replace(letter, f"!{letter}")
    # As the databases' own lower(): letters of ASCII alone.
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _rows(session: Session, names: Sequence[str]) -> list[JobRow]:
    """Jobs by id, in the order of ids given."""
    return [_decoded(row) for row in _raw(session, names)]


def _raw(session: Session, names: Sequence[str]) -> list[Row]:
    if not names:
        return []
    places = ", ".join("?" * len(names))
    found = session.all(f"{_SELECT} WHERE jobs.id IN ({places})", names)
    rows = {row[0]: row for row in found}
    return [rows[name] for name in names if name in rows]


def _encoded(job: JobRow) -> EncodedJob:
    what = f"job {job.id}"
    labels = {clean(label): clean(content) for label, content in job.labels.items()}
    row = (
        *(clean(text) for text in (job.id, job.name, job.user, job.queue, job.state, job.cause)),
        *(job.priority, float(job.gpus), float(job.submitted_at)),
        *(from_time(job.started_at), from_time(job.finished_at)),
        *(clean(job.request), to_json(what, labels), job.rev, from_time(job.kept_until)),
    )
    pairs: list[Row] = [(label, content, job.id) for label, content in labels.items()]
    view, document = to_json(what, dict(job.view)), to_json(what, dict(job.document))
    return EncodedJob((*row, row_sum((*row, view, document))), pairs, view, document)


def seal(session: Session) -> None:
    """Give every row that an older Roost wrote its checksum."""
    names = [row[0] for row in session.all("SELECT id FROM jobs WHERE sum = '' ORDER BY id")]
    for start in range(0, len(names), _CHUNK):
        chunk = names[start : start + _CHUNK]
        rows = session.all(f"{_SELECT} WHERE jobs.id IN ({', '.join('?' * len(chunk))})", chunk)
        session.run_many(
            "UPDATE jobs SET sum = ? WHERE id = ?",
            [(row_sum((*row[:_SUM], *row[_SUM + 1 :])), row[0]) for row in rows],
        )


def _check(row: Row) -> None:
    """Compare the checksum of a job; raises StoreBroken."""
    if row[_SUM] != row_sum((*row[:_SUM], *row[_SUM + 1 :])):
        raise StoreBroken(
            f"job {row[0]} is damaged in the store: its checksum does not fit; "
            "stop, keep a copy, and restore a backup"
        )


def _stored(row: Row) -> StoredJob:
    """A row whose checksum was compared."""
    return StoredJob(row[0], row[_OWNER], row[_REQUEST], *row[-2:])


def _decoded(row: Row) -> JobRow:
    what = f"job {row[0]}"
    _check(row)
    *plain, started, finished, request, labels, rev, kept, _, view, document = row
    times = (to_time(started), to_time(finished))
    bodies = (from_json(what, view), from_json(what, document))
    return JobRow(*(*plain, *times, request, from_json(what, labels), rev, *bodies, to_time(kept)))


def _before(session: Session, names: Sequence[str]) -> dict[str, tuple[Sort, str]]:
    """The stored sort and labels of some jobs."""
    found: dict[str, tuple[Sort, str]] = {}
    for start in range(0, len(names), _CHUNK):
        chunk = names[start : start + _CHUNK]
        rows = session.all(
            "SELECT id, owner, queue, state, labels FROM jobs "  # noqa: S608 - values are parameters
            f"WHERE id IN ({', '.join('?' * len(chunk))})",
            chunk,
        )
        found |= {row[0]: ((row[1], row[2], row[3]), row[4]) for row in rows}
    return found


def _write_bodies(
    session: Session, jobs: Sequence[EncodedJob], before: dict[str, tuple[Sort, str]]
) -> None:
    for table, bodies in (
        ("job_views", [(job.id, job.view) for job in jobs]),
        ("job_documents", [(job.id, job.document) for job in jobs]),
    ):
        session.run_many(
            f"INSERT INTO {table} (id, body) VALUES (?, ?) ON CONFLICT (id) "  # noqa: S608 - constants
            f"DO UPDATE SET body = excluded.body WHERE {table}.body <> excluded.body",
            bodies,
        )
    changed = [job for job in jobs if before.get(job.id, ("", "{}"))[1] != job.row[_LABELS]]
    session.run_many(
        "DELETE FROM job_labels WHERE id = ?", [(job.id,) for job in changed if job.id in before]
    )
    session.run_many(
        "INSERT INTO job_labels (label, content, id) VALUES (?, ?, ?)",
        [pair for job in changed for pair in job.labels],
    )


def _count(session: Session, moves: Counter[Sort]) -> None:
    session.run_many(
        "INSERT INTO job_counts (owner, queue, state, jobs) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (owner, queue, state) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs",
        [(*sort, change) for sort, change in sorted(moves.items()) if change],
    )
    session.run_many(
        "DELETE FROM job_counts WHERE owner = ? AND queue = ? AND state = ? AND jobs = 0",
        [sort for sort, change in sorted(moves.items()) if change < 0],
    )
