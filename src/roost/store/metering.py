"""Spells of usage: who held what, who waited, and what nodes had, from when to when.

A view of the journal, written in its transactions. It outlives jobs, users and nodes, and the
entries that it follows from, so that last year's usage can still be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from roost.store.database import Database, Row, Session
from roost.store.encoding import clean, from_json, row_sum, to_json
from roost.store.errors import StoreBroken
from roost.usage.spells import AnySpell, NodeSpell, Spell

_COLUMNS = "n, kind, begin_ms, end_ms, owner, job, body"
_PLACES = ", ".join("?" * (len(_COLUMNS.split(",")) + 1))
_RUN, _WAIT, _NODE = "run", "wait", "node"
#: The end of a spell that goes on.
_OPEN = -1
_CHUNK = 5000


class UsageQuery(NamedTuple):
    """Which spells to find: those in a time, in milliseconds, of a user or a job if that is so."""

    since_ms: int = 0
    until_ms: int | None = None
    user: str = ""
    job: str = ""


def encoded(spells: Iterable[AnySpell]) -> list[Row]:
    """Spells as they are written; of several states of one, the last."""
    return [_row(spell) for spell in {spell.n: spell for spell in spells}.values()]


def write(session: Session, rows: Sequence[Row]) -> None:
    """Add spells, or put them in the place of what they were."""
    session.run_many(
        f"INSERT INTO usage_spells ({_COLUMNS}, sum) VALUES ({_PLACES}) ON CONFLICT (n) DO "  # noqa: S608 - constants
        "UPDATE SET end_ms = excluded.end_ms, body = excluded.body, sum = excluded.sum",
        [(*row, row_sum(row)) for row in rows],
    )


class UsageTable:
    """All spells."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self) -> tuple[list[AnySpell], int]:
        """The spells that go on, and the last number."""
        with self._database.reading() as session:
            rows = session.all(
                f"SELECT {_COLUMNS}, sum FROM usage_spells WHERE end_ms = ? ORDER BY n",  # noqa: S608 - constants
                (_OPEN,),
            )
            last = session.one("SELECT MAX(n) FROM usage_spells")
        return [_decoded(row) for row in rows], 0 if not last or last[0] is None else int(last[0])

    def find(self, query: UsageQuery) -> Iterator[AnySpell]:
        """The spells of a time, in the order of their numbers."""
        where, values = ["(end_ms = ? OR end_ms > ?)"], [_OPEN, query.since_ms]
        asked: list[object] = list(values)
        if query.until_ms is not None:
            where.append("begin_ms < ?")
            asked.append(query.until_ms)
        for column, value in (("owner", query.user), ("job", query.job)):
            if value:
                where.append(f"{column} = ?")
                asked.append(clean(value))
        after = 0
        while True:
            with self._database.reading() as session:
                rows = session.all(
                    f"SELECT {_COLUMNS}, sum FROM usage_spells WHERE n > ? AND "  # noqa: S608 - values are parameters
                    f"{' AND '.join(where)} ORDER BY n LIMIT {_CHUNK}",
                    (after, *asked),
                )
            yield from map(_decoded, rows)
            if len(rows) < _CHUNK:
                return
            after = rows[-1][0]


def _row(spell: AnySpell) -> Row:
    end_ms = _OPEN if spell.end_ms is None else spell.end_ms
    body = to_json(f"spell {spell.n} of usage", spell.document())
    if isinstance(spell, NodeSpell):
        return (spell.n, _NODE, spell.begin_ms, end_ms, "", "", body)
    kind = _RUN if spell.node else _WAIT
    return (spell.n, kind, spell.begin_ms, end_ms, clean(spell.user), clean(spell.job), body)


def _decoded(row: Row) -> AnySpell:
    *kept, total = row
    if total != row_sum(kept):
        raise StoreBroken(
            f"spell {row[0]} of usage is damaged in the store: its checksum does not fit; "
            "stop, keep a copy, and restore a backup"
        )
    document = from_json(f"spell {row[0]} of usage", kept[-1])
    return NodeSpell.of(document) if kept[1] == _NODE else Spell.of(document)
