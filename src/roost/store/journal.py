"""The journal: entries numbered without a gap, each chained to the one before by a checksum.

Only the one server appends, and only while its epoch is the database's: the entry, the end of the
chain, and the views that follow from it are one transaction. Reading checks every link. A flipped
bit, a row that is missing or a database that was put back to an older state are reported with
their position; nothing is skipped. The oldest entries may be compacted away: then the chain begins
at the last of those, and a snapshot stands for all of them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from roost.errors import Conflict, Fatal
from roost.failpoints import hit
from roost.store import events as event_log
from roost.store import homes, metering
from roost.store import jobs as job_views
from roost.store.database import Database, Row, Session
from roost.store.encoding import from_json, to_json
from roost.store.errors import Fenced, StoreBroken
from roost.store.rows import EventRow, HomeRow, JobRow, JournalEntry
from roost.usage.spells import AnySpell

log = logging.getLogger(__name__)

#: So many entries are read at a time.
_CHUNK = 500
#: The same where nobody waits for them, and others shall have their turn.
_AT_ONCE = 100
#: So many snapshots are kept: the newest may turn out to be damaged.
_SNAPSHOTS = 2
_COLUMNS = "seq, id, time, body, sum"


class JournalHead(NamedTuple):
    """The end of a journal: the number and the checksum of its last entry."""

    seq: int
    sum: str


class Journal:
    """The entries of one database, the end of their chain, and the right to append."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch: int | None = None
        self._head = JournalHead(0, "")
        self._home: HomeRow | None = None
        self._foreign = False

    def claim(self, home: HomeRow | None = None, *, adopt: bool = False) -> bool:
        """Keep other servers away, and check that this one may serve; nothing is written yet.

        Returns whether runs in the journal may be of another home: then they are lost.
        Raises Conflict if another server or, unless that is to ``adopt``, another home has it.
        """
        database = self._database
        if database.claimed:
            return self._foreign
        database.claim()
        try:
            with database.reading() as session:
                _, head = _meta(session, database.where)
                if home is not None:
                    self._foreign = homes.is_foreign(session, database.where, home, adopt=adopt)
            self._not_older(head, database.acknowledged)
            self._head, self._home = head, home
            self.last()
        except BaseException:
            database.release()
            raise
        return self._foreign

    def serve(self) -> int:
        """Become the one server and return its epoch; raises Conflict that names the other.

        To read before anything is written, ``claim`` the database first.
        """
        if self._epoch is not None:
            return self._epoch
        self.claim()
        try:
            self._epoch = self._take_over()
        except BaseException:
            self._database.release()
            raise
        return self._epoch

    def _take_over(self) -> int:
        database = self._database
        database.settle()
        with database.writing() as session:
            session.run("UPDATE roost_meta SET epoch = epoch + 1")
            epoch, head = _meta(session, database.where)
            if head != self._head:
                raise Conflict(f"another server wrote to {database.where}; start again")
            if self._home is not None:
                homes.take(session, self._home, foreign=self._foreign)
        return epoch

    def settle_home(self) -> None:
        """Note that the journal has no run of another home any more."""
        with self._database.writing() as session:
            self.fence(session)
            homes.settle(session)
        self._foreign = False

    def append(
        self,
        entries: Sequence[JournalEntry],
        jobs: Sequence[JobRow] = (),
        events: Sequence[EventRow] = (),
        deleted: Sequence[str] = (),
        spells: Sequence[AnySpell] = (),
    ) -> None:
        """Add entries and what they mean for the views, all or nothing.

        Durable when it returns. When it raises a StoreFull, StoreBusy, StoreLost, StoreBroken or
        Fenced, reopen and ask ``last()``. Fatal: the numbers do not follow the journal's last one.
        Conflict, InvalidSpec: nothing was written, and nothing needs to be reopened.
        """
        if self._epoch is None:
            raise Fatal(f"{self._database.where}: only the server appends; call serve() first")
        rows, head = self._chained(entries)
        views = job_views.encoded(jobs)
        lines = event_log.encoded(events)
        used = metering.encoded(spells)
        with self._database.writing(journal=True) as session:
            # First the end of the chain: it locks the row, so that of two servers one is refused
            # before either has written an entry.
            self._advance(session, head)
            session.run_many(
                f"INSERT INTO journal ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - constant
                rows,
            )
            job_views.write(session, views, deleted, entries[-1].time if entries else 0.0)
            event_log.write(session, lines)
            metering.write(session, used)
            hit("journal.before-commit")
        # Before our own note of the end: if the file was replaced meanwhile, this raises.
        self._database.committed(head.seq)
        self._head = head
        hit("journal.after-commit")

    def entries(self, after: int = 0) -> Iterator[JournalEntry]:
        """The entries after a number, up to the last one there is now; raises Fatal on damage.

        Those that were compacted away are not among them.
        """
        for rows in self._chain(after):
            for row in rows:
                yield _entry(row)

    def verify(self, upto: int, rest: Callable[[], None] = lambda: None) -> None:
        """Compare the checksums of all entries up to a number; raises Fatal on damage.

        ``rest`` is called after some of them, without a transaction. Entries may be compacted away
        meanwhile.
        """
        for _ in self._chain(0, upto):
            rest()

    def _chain(self, after: int, upto: int | None = None) -> Iterator[list[Row]]:
        """The rows after a number, some at a time, each compared with the one before.

        With ``upto`` those that are compacted away before it is their turn are left out.
        """
        with self._database.reading() as session:
            _, head = _meta(session, self._database.where)
            after = max(after, _base(session).seq)
            link = _link(session, after)
        if link is None:
            self._not_older(head, after)
            raise self._damaged(after, "it is missing")
        last = head.seq if upto is None else min(upto, head.seq)
        while link.seq < last:
            with self._database.reading() as session:
                if upto is not None and (base := _base(session)).seq > link.seq:
                    link = base
                rows = session.all(
                    f"SELECT {_COLUMNS} FROM journal WHERE seq > ? AND seq <= ? "  # noqa: S608 - constant
                    f"ORDER BY seq LIMIT {_CHUNK if upto is None else _AT_ONCE}",
                    (link.seq, last),
                )
            if not rows and link.seq < last:
                raise self._damaged(link.seq + 1, "it is missing")
            for row in rows:
                link = self._checked(link, row)
            yield rows
        if last == head.seq and link != head:
            raise self._damaged(head.seq, "the end of the chain does not fit")

    def last(self) -> JournalEntry | None:
        """The last entry there is; None: the journal is empty."""
        with self._database.reading() as session:
            _, head = _meta(session, self._database.where)
            base = _base(session)
            rows = session.all(
                f"SELECT {_COLUMNS} FROM journal ORDER BY seq DESC LIMIT 2"  # noqa: S608 - constant
            )
        if not rows:
            if head != JournalHead(0, ""):
                raise self._damaged(head.seq, "it is missing")
            return None
        previous = JournalHead(rows[1][0], rows[1][4]) if len(rows) > 1 else base
        if self._checked(previous, rows[0]) != head:
            raise self._damaged(head.seq, "the end of the chain does not fit")
        return _entry(rows[0])

    @property
    def base(self) -> int:
        """The number of the last entry that was compacted away; 0: all are there."""
        with self._database.reading() as session:
            return _base(session).seq

    def compact(self, keep: int, most: int) -> int:
        """Remove the oldest entries, at most so many; how many that were.

        The newest ``keep`` stay, and all that a start may need: those after the older of the two
        snapshots, because the newer one may be damaged.
        """
        with self._database.writing() as session:
            self.fence(session)
            _, head = _meta(session, self._database.where)
            base = _base(session)
            row = session.one("SELECT COUNT(*), MIN(seq) FROM snapshots")
            if row is None or row[0] < _SNAPSHOTS:
                return 0
            last = min(row[1] - 1, head.seq - keep, base.seq + most)
            link = _link(session, last) if last > base.seq else None
            if link is None:
                return 0
            session.run("UPDATE roost_meta SET base_seq = ?, base_sum = ?", link)
            session.run("DELETE FROM journal WHERE seq <= ?", (last,))
        return int(last - base.seq)

    def reopen(self) -> None:
        """Drop all connections and connect again; raises Fenced if another server took over.

        Ask ``last()`` afterwards: what was under way is either there by now or never will be.
        """
        self._database.reopen()
        if self._epoch is None:
            return
        with self._database.reading() as session:
            epoch, head = _meta(session, self._database.where)
        if epoch > self._epoch:
            raise _fenced(self._database.where, self._epoch, epoch)
        if epoch < self._epoch:
            raise self._put_back(head, self._head.seq)
        self._not_older(head, self._head.seq)
        self._head = head

    def save_snapshot(self, seq: int, body: str) -> None:
        """Keep the state after entry ``seq``, and the one before it.

        Raises as ``append`` does, but nothing needs to be reopened.
        """
        with self._database.writing() as session:
            self.fence(session)
            link = _link(session, seq)
            if link is None:
                raise Fatal(f"{self._database.where}: no entry {seq} to keep a snapshot of")
            session.run("DELETE FROM snapshots WHERE seq = ?", (seq,))
            session.run(
                "INSERT INTO snapshots (seq, journal_sum, body, sum) VALUES (?, ?, ?, ?)",
                (seq, link.sum, body, _snapshot_sum(seq, link.sum, body)),
            )
            session.run(
                "DELETE FROM snapshots WHERE seq NOT IN "
                "(SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (_SNAPSHOTS,),
            )

    def snapshots(self) -> Iterator[tuple[int, str]]:
        """The snapshots that fit this journal, newest first; damaged ones are left out."""
        with self._database.reading() as session:
            rows = session.all(
                "SELECT seq, journal_sum, body, sum FROM snapshots ORDER BY seq DESC"
            )
            links = [_link(session, row[0]) for row in rows]
        for (seq, journal_sum, body, total), link in zip(rows, links, strict=True):
            fits = link is not None and link.sum == journal_sum
            if fits and _snapshot_sum(seq, journal_sum, body) == total:
                yield seq, body
            else:
                log.warning("%s: snapshot %s is damaged; left out", self._database.where, seq)

    def fence(self, session: Session) -> None:
        """Lock the journal's end for this transaction; raises Fenced if another server took over.

        A database that was put back meanwhile raises Fatal.
        """
        if self._epoch is None:
            session.run("UPDATE roost_meta SET epoch = epoch")
            return
        known = self._head.seq
        locked = session.run(
            "UPDATE roost_meta SET epoch = epoch WHERE epoch = ? AND last_seq >= ?",
            (self._epoch, known),
        )
        if locked != 1:
            epoch, found = _meta(session, self._database.where)
            if epoch > self._epoch:
                raise _fenced(self._database.where, self._epoch, epoch)
            raise self._put_back(found, known)

    def _chained(self, entries: Sequence[JournalEntry]) -> tuple[list[Row], JournalHead]:
        link, rows = self._head, list[Row]()
        for entry in entries:
            if entry.seq != link.seq + 1:
                raise Fatal(
                    f"{self._database.where}: entry {entry.seq} cannot follow entry {link.seq}; "
                    "stop the server and start it again"
                )
            body = to_json(f"entry {entry.seq}", entry.body)
            time = float(entry.time)
            link = JournalHead(entry.seq, _sum(link.sum, (entry.seq, entry.id, time, body)))
            rows.append((entry.seq, entry.id, time, body, link.sum))
        return rows, link

    def _advance(self, session: Session, head: JournalHead) -> None:
        """Move the journal's end, if it is where this server left it and it still serves."""
        moved = session.run(
            "UPDATE roost_meta SET last_seq = ?, last_sum = ? "
            "WHERE epoch = ? AND last_seq = ? AND last_sum = ?",
            (*head, self._epoch, *self._head),
        )
        if moved == 1:
            return
        epoch, found = _meta(session, self._database.where)
        if epoch > (self._epoch or 0):
            raise _fenced(self._database.where, self._epoch or 0, epoch)
        raise self._put_back(found, self._head.seq)

    def _not_older(self, head: JournalHead, known: int) -> None:
        if head.seq < known:
            raise self._put_back(head, known)

    def _checked(self, link: JournalHead, row: Row) -> JournalHead:
        seq, *_, total = row
        if seq != link.seq + 1:
            raise self._damaged(link.seq + 1, "it is missing")
        if total != _sum(link.sum, row[:4]):
            raise self._damaged(seq, "its checksum does not fit")
        return JournalHead(seq, total)

    def _put_back(self, head: JournalHead, known: int) -> StoreBroken:
        return StoreBroken(
            f"{self._database.where} was put back to an older state: its journal ends at entry "
            f"{head.seq}, but {known} was written; {self._database.older_advice}"
        )

    def _damaged(self, seq: int, why: str) -> StoreBroken:
        return StoreBroken(
            f"{self._database.where}: the journal is damaged at entry {seq}: {why}; "
            "stop, keep a copy, and restore a backup"
        )


def _meta(session: Session, where: str) -> tuple[int, JournalHead]:
    rows = session.all("SELECT epoch, last_seq, last_sum FROM roost_meta")
    match rows:
        case [(int() as epoch, int() as seq, str() as total)]:
            return epoch, JournalHead(seq, total)
    raise StoreBroken(
        f"{where} is damaged: it does not say where its journal ends; restore a backup"
    )


def _link(session: Session, seq: int) -> JournalHead | None:
    """The link of the chain at an entry, or before the first one there is."""
    if (base := _base(session)).seq == seq:
        return base
    row = session.one("SELECT seq, sum FROM journal WHERE seq = ?", (seq,))
    return None if row is None else JournalHead(*row)


def _base(session: Session) -> JournalHead:
    """Where the chain begins: at the last entry that was compacted away."""
    rows = session.all("SELECT base_seq, base_sum FROM roost_meta")
    return JournalHead(*rows[0]) if rows else JournalHead(0, "")


def _entry(row: Row) -> JournalEntry:
    seq, name, time, body, _ = row
    return JournalEntry(seq, name, time, from_json(f"entry {seq} of the journal", body))


def _sum(previous: str, row: Sequence[object]) -> str:
    # Through repr: a value that comes back as another type does not fit.
    return hashlib.sha256(repr((previous, *row)).encode("utf-8", "surrogatepass")).hexdigest()


def _snapshot_sum(seq: int, journal_sum: str, body: str) -> str:
    return _sum(journal_sum, (seq, body))


def _fenced(where: str, ours: int, theirs: int) -> Fenced:
    return Fenced(
        f"another server took over {where} (epoch {theirs}, ours was {ours}); stop this one"
    )
