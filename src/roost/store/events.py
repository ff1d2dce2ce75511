"""The event log: one line for everything that happened, for people and for audits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import NamedTuple

from roost.store.database import Database, Row, Session
from roost.store.encoding import clean, escaped, row_sum
from roost.store.errors import StoreBroken
from roost.store.rows import AuditQuery, EventQuery, EventRow, RowPage

_COLUMNS = "seq, n, time, actor, job, owner, node, kind, old_value, new_value, text"
_PLACES = ", ".join("?" * (len(_COLUMNS.split(",")) + 1))
_CHUNK = 1000
_FILTERS = {"job": "job", "user": "owner", "node": "node", "kind": "kind"}
_REMEMBERED = 256
#: A word is in the texts of a line.
_CONTAINS = (
    "(lower(text) LIKE ? ESCAPE '!' OR lower(job) LIKE ? ESCAPE '!'"
    " OR lower(node) LIKE ? ESCAPE '!' OR lower(owner) LIKE ? ESCAPE '!'"
    " OR lower(actor) LIKE ? ESCAPE '!')"
)

_Filter = tuple[int | str, ...]


class _Counted(NamedTuple):
    """The number of lines up to an entry."""

    seq: int
    number: int


def encoded(events: Sequence[EventRow]) -> list[Row]:
    """Lines as they are written."""
    return [
        tuple(clean(value) if isinstance(value, str) else value for value in astuple(event))
        for event in events
    ]


def write(session: Session, lines: Sequence[Row]) -> None:
    """Add lines to the log."""
    session.run_many(
        f"INSERT INTO events ({_COLUMNS}, sum) VALUES ({_PLACES})",  # noqa: S608 - constant
        [(*line, row_sum(line)) for line in lines],
    )


def seal(session: Session) -> None:
    """Give every line that an older Roost wrote its checksum."""
    lines = session.all(f"SELECT {_COLUMNS} FROM events WHERE sum = ''")  # noqa: S608 - constant
    session.run_many(
        "UPDATE events SET sum = ? WHERE seq = ? AND n = ?",
        [(row_sum(line), *line[:2]) for line in lines],
    )


def note(session: Session, event: EventRow) -> EventRow:
    """Add a line to the journal's last entry, whatever numbers it came with; the line as it is."""
    row = session.one("SELECT last_seq FROM roost_meta")
    seq = row[0] if row else 0
    last = session.one("SELECT MAX(n) FROM events WHERE seq = ?", (seq,))
    n = 0 if last is None or last[0] is None else last[0] + 1
    write(session, [(seq, n, *encoded([event])[0][2:])])
    return replace(event, seq=seq, n=n)


class EventLog:
    """The list of everything that happened."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counted: dict[_Filter, _Counted] = {}

    def find(self, query: EventQuery) -> RowPage[EventRow]:
        """A page of the event log."""
        where, parameters = _conditions(query)
        turn = " DESC" if query.sort.startswith("-") else ""
        with self._database.reading() as session:
            rows = session.all(
                f"SELECT {_COLUMNS}, sum FROM events{where} "  # noqa: S608 - values are parameters
                f"ORDER BY seq{turn}, n{turn} LIMIT ? OFFSET ?",
                (*parameters, query.limit, query.offset),
            )
            total = query.offset + len(rows)
            if len(rows) == query.limit or (query.offset and not rows):
                total = self._count(session, query)
        return RowPage(tuple(map(_line, rows)), total)

    def audit(self, query: AuditQuery) -> list[EventRow]:
        """What people did; Roost itself is none of them."""
        parts, parameters = ["actor <> ''", "actor <> 'roost'"], list[object]()
        for column, value in (("actor", query.actor), ("kind", query.kind)):
            if value:
                parts.append(f"{column} = ?")
                parameters.append(value)
        for word in query.words:
            parts.append(_CONTAINS)
            parameters += [f"%{escaped(word)}%"] * _CONTAINS.count("?")
        if query.before is not None:
            seq, n = query.before
            parts.append("(seq < ? OR (seq = ? AND n < ?))")
            parameters += [seq, seq, n]
        with self._database.reading() as session:
            rows = session.all(
                f"SELECT {_COLUMNS}, sum FROM events WHERE {' AND '.join(parts)} "  # noqa: S608 - values are parameters
                "ORDER BY seq DESC, n DESC LIMIT ?",
                (*parameters, query.limit),
            )
        return list(map(_line, rows))

    def verify(self, rest: Callable[[], None] = lambda: None) -> None:
        """Compare the checksums of all lines; raises StoreBroken. It may ``rest`` now and then."""
        seq, n = -1, -1
        while True:
            with self._database.reading() as session:
                rows = session.all(
                    f"SELECT {_COLUMNS}, sum FROM events "  # noqa: S608 - constant
                    "WHERE seq > ? OR (seq = ? AND n > ?) ORDER BY seq, n LIMIT ?",
                    (seq, seq, n, _CHUNK),
                )
            if not rows:
                return
            for row in rows:
                _line(row)
            seq, n = rows[-1][:2]
            rest()

    def compact(self, keep: int, after: int, most: int) -> int | None:
        """Remove old lines that are about no job in the list; None when there are no more.

        The newest ``keep`` lines stay. It looks at ``most`` lines after entry ``after``, and says
        where to go on.
        """
        with self._database.writing() as session:
            newest = session.one(
                "SELECT seq FROM events ORDER BY seq DESC, n DESC LIMIT 1 OFFSET ?", (keep,)
            )
            row = newest and session.one(
                "SELECT MAX(seq) FROM (SELECT seq FROM events WHERE seq > ? AND seq < ? "
                "ORDER BY seq LIMIT ?) AS some",
                (after, newest[0], most),
            )
            if not row or row[0] is None:
                return None
            removed = session.run(
                "DELETE FROM events WHERE seq > ? AND seq <= ? "
                "AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = events.job)",
                (after, row[0]),
            )
        if removed:
            self._counted = {}
        return int(row[0])

    def _count(self, session: Session, query: EventQuery) -> int:
        """Count the lines. Between compactions it only grows, so earlier counts stay right."""
        if query.after or query.after_n is not None:
            return _number(session, query)
        first = -1 if query.after is None else 0
        filters = (first, *(getattr(query, name) for name in _FILTERS))
        before = self._counted.get(filters, _Counted(first, 0))
        row = session.one("SELECT last_seq FROM roost_meta")
        # Lines about accounts are still added to the last entry.
        settled = max(before.seq, (row[0] if row else 0) - 1)
        since = replace(query, after=before.seq)
        number = before.number + _number(session, since, settled)
        if len(self._counted) >= _REMEMBERED:
            self._counted.clear()
        self._counted[filters] = _Counted(settled, number)
        return number + _number(session, replace(since, after=settled))


def _line(row: Row) -> EventRow:
    *line, total = row
    if total != row_sum(line):
        raise StoreBroken(
            f"line {line[1]} of entry {line[0]} in the event log is damaged in the store: its "
            "checksum does not fit; stop, keep a copy, and restore a backup"
        )
    return EventRow(*line)


def _number(session: Session, query: EventQuery, until: int | None = None) -> int:
    where, parameters = _conditions(query)
    if until is not None:
        where, parameters = f"{where} AND seq <= ?", [*parameters, until]
    return int(session.all(f"SELECT COUNT(*) FROM events{where}", parameters)[0][0])  # noqa: S608 - values are parameters


def _conditions(query: EventQuery) -> tuple[str, list[object]]:
    parts, parameters = list[str](), list[object]()
    if query.after is not None and query.after_n is not None:
        parts.append("(seq > ? OR (seq = ? AND n > ?))")
        parameters += [query.after, query.after, query.after_n]
    elif query.after is not None:
        parts.append("seq > ?")
        parameters.append(query.after)
    for name, column in _FILTERS.items():
        if value := getattr(query, name):
            parts.append(f"{column} = ?")
            parameters.append(value)
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), parameters
