"""Accounts: users, their tokens, and the queues with the users that may submit to them.

A token's secret is shown once and kept only as its SHA-256: it has 256 random bits, so a slow hash
would add nothing. Every change adds a line of kind ``account`` to the event log, in the same
transaction. Rows have checksums, like those of jobs: a flipped bit must make no administrator.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import astuple, replace

from roost.core.cells import format_promises, parse_promises
from roost.errors import Conflict, InvalidSpec, NotFound, RoostError, unknown
from roost.store import events
from roost.store.database import Database, Row, Session
from roost.store.encoding import clean, from_json, row_sum, to_json
from roost.store.errors import StoreBroken
from roost.store.journal import Journal
from roost.store.rows import ROLES, SESSION_ID, EventRow, QueueRow, Token, User, storable

#: A token's time of use is noted at most this often, in seconds.
TOUCH_S = 60.0
_SECRET = "roost_"  # noqa: S105 - what all of them start with
#: What the secrets of sessions begin with.
SESSION = "roost_session_"
_MOST_SESSIONS = 50
_LONGEST = 256
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.@+-]{0,62}[A-Za-z0-9_])?")
_UNIX = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63})?")
_USER = "name, role, unix, active, jobs, disk_bytes, disk_max_bytes"
_TOKEN = "id, owner, label, created_at, expires_at, revoked_at, last_used_at, parent"  # noqa: S105 - columns
_QUEUE = "id, quota_milli, limit_milli, weight, priority, submitters, cells, overflows"
#: Before queues could be promised cells.
_PLAIN_QUEUE = _QUEUE.removesuffix(", cells, overflows")
#: Of each table its key, its columns, and those that its checksums cover: when a token was used
#: last is written often, and decides nothing.
_SEALED = {
    "users": ("name", _USER, _USER),
    "tokens": ("id", f"{_TOKEN}, hash", _TOKEN.replace("last_used_at, ", "") + ", hash"),
    "queues": ("id", _QUEUE, _QUEUE),
}
_TOKEN_PARTS = len(_SEALED["tokens"][1].split(", ")) + 1
_LAST_USED = _TOKEN.split(", ").index("last_used_at")


class Accounts:
    """Users, their tokens, and the queues with their submitters."""

    def __init__(self, database: Database, journal: Journal, clock: Callable[[], float]) -> None:
        self._database, self._journal, self._clock = database, journal, clock
        #: When each token's use was last written down.
        self._touched: dict[str, float] = {}

    def add_user(self, user: User, *, actor: str = "") -> User:
        """Add a user; raises Conflict if the name is taken."""
        _check_user(user)
        with self._database.writing() as session:
            self._journal.fence(session)
            if _user(session, user.name) is not None:
                raise Conflict(f"user {user.name!r} exists already")
            session.run(
                f"INSERT INTO users ({_USER}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constant
                _user_row(user),
            )
            _seal(session, "users", user.name)
            self._note(session, actor, user.name, new=_told(user), text=f"user {user.name} added")
        return user

    def set_user(self, user: User, *, actor: str = "") -> User:
        """Change a user's role, Unix account or whether they are admitted; raises NotFound."""
        _check_user(user)
        with self._database.writing() as session:
            self._journal.fence(session)
            old = _user(session, user.name)
            if old is None:
                raise self._no_user(session, user.name)
            if old != user:
                session.run(
                    "UPDATE users SET name = ?, role = ?, unix = ?, active = ?, jobs = ?, "
                    "disk_bytes = ?, disk_max_bytes = ? WHERE name = ?",
                    (*_user_row(user), user.name),
                )
                _seal(session, "users", user.name)
                text = f"user {user.name} changed"
                self._note(session, actor, user.name, _told(old), _told(user), text)
        return user

    def delete_user(self, name: str, *, actor: str = "") -> None:
        """Forget a user and its tokens; those that were made with them are revoked.

        Raises NotFound.
        """
        with self._database.writing() as session:
            self._journal.fence(session)
            old = _user(session, clean(name))
            if old is None:
                raise self._no_user(session, name)
            rows = session.all("SELECT id FROM tokens WHERE owner = ?", (old.name,))
            own = {str(row[0]) for row in rows}
            for token in {one.id for name in own for one in _tree(session, name)} - own:
                session.run(
                    "UPDATE tokens SET revoked_at = COALESCE(revoked_at, ?) WHERE id = ?",
                    (self._clock(), token),
                )
                session.run(
                    f"UPDATE tokens SET parent = NULL WHERE id = ? AND parent IN ({_holes(own)})",  # noqa: S608 - holes
                    (token, *own),
                )
                _seal(session, "tokens", token)
            session.run("DELETE FROM tokens WHERE owner = ?", (old.name,))
            session.run("DELETE FROM users WHERE name = ?", (old.name,))
            text = f"user {old.name} deleted"
            self._note(session, actor, old.name, old=_told(old), text=text)

    def user(self, name: str) -> User | None:
        """One user by name."""
        with self._database.reading() as session:
            return _user(session, clean(name))

    def users(self) -> list[User]:
        """All users, by name."""
        with self._database.reading() as session:
            rows = session.all(f"SELECT {_USER}, sum FROM users ORDER BY name")  # noqa: S608 - constant
        return [_as_user(row) for row in rows]

    def add_token(
        self,
        user: str,
        label: str,
        expires_at: float | None = None,
        *,
        parent: str | None = None,
        actor: str = "",
    ) -> tuple[Token, str]:
        """Make a token for a user ; its secret is returned, and not kept; raises NotFound.

        ``parent`` is the token it is made with: they are revoked together. Raises Conflict if that
        one was revoked meanwhile.
        """
        now = self._clock()
        if expires_at is not None and not (math.isfinite(expires_at) and expires_at > now):
            raise InvalidSpec(f"a token must expire in the future, not at {expires_at}")
        if len(label) > _LONGEST or not storable(label):
            raise InvalidSpec(f"a token's label must be a text of at most {_LONGEST} letters")
        secret = _SECRET + secrets.token_urlsafe(32)
        token = Token(f"tok-{secrets.token_hex(5)}", user, label, now, expires_at, parent=parent)
        with self._database.writing() as session:
            self._journal.fence(session)
            if not storable(user) or _user(session, user) is None:
                raise self._no_user(session, user)
            if parent is not None:
                _must_live(session, parent)
            session.run(
                f"INSERT INTO tokens ({_TOKEN}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constant
                (*astuple(token), _hash(secret)),
            )
            _seal(session, "tokens", token.id)
            text = f"token {token.id} ({label}) of {user} added"
            self._note(session, actor, user, new=token.id, text=text)
        return token, secret

    def add_session(
        self, user: str, parent: str, expires_at: float, label: str
    ) -> tuple[Token, str]:
        """Begin a session of a browser; it ends with the token ``parent`` at the latest.

        Sessions that are over are forgotten, and so is the oldest of very many. Raises Conflict if
        ``parent`` is not valid any more, NotFound without the user.
        """
        now = self._clock()
        secret = SESSION + secrets.token_urlsafe(32)
        with self._database.writing() as session:
            self._journal.fence(session)
            if not storable(user) or _user(session, user) is None:
                raise self._no_user(session, user)
            end = _must_live(session, parent)
            if end is not None and end <= now:
                raise Conflict(f"token {parent!r} has expired: nothing is made with it")
            ends = min(expires_at, expires_at if end is None else end)
            name = f"{SESSION_ID}{secrets.token_hex(5)}"
            token = Token(name, user, label[:_LONGEST], now, ends, parent=parent)
            others = [one for one in _sessions(session, user) if (one.expires_at or now) > now]
            self._drop_sessions(session, user, {one.id for one in others[-_MOST_SESSIONS + 1 :]})
            session.run(
                f"INSERT INTO tokens ({_TOKEN}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constant
                (*astuple(token), _hash(secret)),
            )
            _seal(session, "tokens", token.id)
            self._note(session, user, user, new=name, text=f"session {name} of {user} began")
        return token, secret

    def end_sessions(self, user: str, only: str = "", *, actor: str = "") -> None:
        """End all sessions of a user, or one; a second time changes nothing."""
        with self._database.writing() as session:
            self._journal.fence(session)
            gone = [one for one in _sessions(session, clean(user)) if only in ("", one.id)]
            for one in gone:
                session.run("DELETE FROM tokens WHERE id = ?", (one.id,))
                text = f"session {one.id} of {one.user} ended"
                self._note(session, actor, one.user, old=one.id, text=text)

    @staticmethod
    def _drop_sessions(session: Session, user: str, keep: Collection[str]) -> None:
        """Forget sessions that are over, and those that are too many."""
        for one in _sessions(session, user):
            if one.id not in keep or one.revoked_at is not None:
                session.run("DELETE FROM tokens WHERE id = ?", (one.id,))

    def find_token(self, secret: str) -> tuple[Token, User] | None:
        """The token and the user of a secret; None if it is unknown, expired or revoked."""
        if not secret.startswith(_SECRET) or len(secret) > _LONGEST:
            return None
        with self._database.reading() as session:
            row = session.one(
                f"SELECT {_token_columns('tokens.')}, {_USER}, users.sum FROM tokens "  # noqa: S608 - constant
                "JOIN users ON users.name = tokens.owner WHERE tokens.hash = ?",
                (_hash(secret),),
            )
        if row is None:
            return None
        token, user = _as_token(row[:_TOKEN_PARTS]), _as_user(row[_TOKEN_PARTS:])
        now = self._clock()
        expired = token.expires_at is not None and token.expires_at <= now
        if expired or token.revoked_at is not None or not user.active:
            return None
        return self._touch(token, now), user

    def revoke_token(self, name: str, *, actor: str = "") -> Token:
        """Revoke a token and all tokens that were made with it; raises NotFound.

        A second time changes nothing.
        """
        now = self._clock()
        with self._database.writing() as session:
            self._journal.fence(session)
            tree = _tree(session, clean(name))
            if not tree:
                raise NotFound(f"no such token: {clean(name)[:_LONGEST]!r}")
            for token in tree:
                if token.revoked_at is None:
                    session.run("UPDATE tokens SET revoked_at = ? WHERE id = ?", (now, token.id))
                    _seal(session, "tokens", token.id)
                    with_it = "" if token is tree[0] else f", for it was made with {token.parent}"
                    text = f"token {token.id} ({token.label}) of {token.user} revoked{with_it}"
                    self._note(session, actor, token.user, old=token.id, text=text)
        first = tree[0]
        return first if first.revoked_at is not None else replace(first, revoked_at=now)

    def tokens(self, user: str | None = None) -> list[Token]:
        """The tokens of a user, or of all, oldest first."""
        where, parameters = ("", []) if user is None else (" WHERE owner = ?", [clean(user)])
        with self._database.reading() as session:
            rows = session.all(
                f"SELECT {_token_columns()} FROM tokens{where} ORDER BY created_at, id",  # noqa: S608 - values are parameters
                parameters,
            )
        return [_as_token(row) for row in rows]

    def queues(self) -> list[QueueRow]:
        """Every queue, by id."""
        with self._database.reading() as session:
            rows = session.all(f"SELECT {_QUEUE}, sum FROM queues ORDER BY id")  # noqa: S608 - constant
        return [_as_queue(row) for row in rows]

    def set_queue(self, queue: QueueRow, *, actor: str = "") -> QueueRow:
        """Create a queue, or change it and its submitters."""
        texts = (queue.id, *queue.submitters)
        if not queue.id or not all(storable(text) and len(text) <= _LONGEST for text in texts):
            raise InvalidSpec("a queue and its submitters must have names of a sensible length")
        if not (math.isfinite(queue.weight) and queue.weight > 0):
            raise InvalidSpec(f"queue {queue.id}: weight must be positive, got {queue.weight}")
        columns = _QUEUE.split(", ")[1:]
        with self._database.writing() as session:
            self._journal.fence(session)
            old = _queue(session, queue.id)
            if old != queue:
                renewed = ", ".join(f"{name} = excluded.{name}" for name in columns)
                session.run(
                    f"INSERT INTO queues ({_QUEUE}) VALUES ({_holes(['id', *columns])}) "  # noqa: S608 - constants
                    f"ON CONFLICT (id) DO UPDATE SET {renewed}",
                    (
                        *astuple(queue)[:5],
                        to_json(f"queue {queue.id}", list(queue.submitters)),
                        format_promises(queue.cells),
                        int(queue.overflows),
                    ),
                )
                _seal(session, "queues", queue.id)
                before = "" if old is None else ",".join(old.submitters)
                text = f"queue {queue.id} {'added' if old is None else 'changed'}"
                if queue.cells != (() if old is None else old.cells):
                    text += f", cells {format_promises(queue.cells) or 'none'}"
                self._note(session, actor, "", before, ",".join(queue.submitters), text)
        return queue

    def delete_queue(self, name: str, *, actor: str = "") -> None:
        """Forget a queue; raises NotFound."""
        with self._database.writing() as session:
            self._journal.fence(session)
            if session.run("DELETE FROM queues WHERE id = ?", (clean(name),)) != 1:
                names = [row[0] for row in session.all("SELECT id FROM queues LIMIT 1000")]
                raise unknown("queue", clean(name), names or ["(none)"])
            self._note(session, actor, "", old=clean(name), text=f"queue {clean(name)} deleted")

    def _touch(self, token: Token, now: float) -> Token:
        """Note that a token is used, at most once per ``TOUCH_S``; a failure does not matter."""
        last = max(token.last_used_at or 0.0, self._touched.get(token.id, 0.0))
        if 0 <= now - last < TOUCH_S:
            return token
        self._touched[token.id] = now
        with suppress(RoostError), self._database.writing(patience_s=0.0) as session:
            session.run("UPDATE tokens SET last_used_at = ? WHERE id = ?", (now, token.id))
        return replace(token, last_used_at=now)

    def _note(  # noqa: PLR0913 - a line has that many parts
        self, session: Session, actor: str, user: str, old: str = "", new: str = "", text: str = ""
    ) -> None:
        line = EventRow(0, 0, self._clock(), actor, "", user, "", "account", old, new, text)
        events.note(session, line)

    @staticmethod
    def _no_user(session: Session, name: str) -> NotFound:
        names = [row[0] for row in session.all("SELECT name FROM users ORDER BY name LIMIT 1000")]
        return unknown("user", clean(name)[:_LONGEST], names or ["(none)"])


def _check_user(user: User) -> None:
    if not _NAME.fullmatch(user.name):
        raise InvalidSpec(
            f"user {clean(user.name)[:_LONGEST]!r}: a name has up to 64 letters, digits or _.@+-"
        )
    if user.role not in ROLES:
        raise InvalidSpec(str(unknown("role", clean(user.role)[:_LONGEST], ROLES)))
    if not _UNIX.fullmatch(user.unix):
        raise InvalidSpec(f"user {user.name}: {clean(user.unix)[:_LONGEST]!r} is no Unix account")


def _told(user: User) -> str:
    bounds = {"jobs": user.jobs, "disk": user.disk_bytes, "disk-max": user.disk_max_bytes}
    told = "".join(f", {name} {most}" for name, most in bounds.items() if most is not None)
    account = f" as {user.unix}" if user.unix else ""
    return f"{user.role}{account}{'' if user.active else ' (off)'}{told}"


def _user_row(user: User) -> Row:
    return (*astuple(user)[:3], int(user.active), *astuple(user)[4:])


def _as_user(row: Row) -> User:
    _check(f"user {row[0]}", row)
    name, role, unix, active, *bounds = row[:-1]
    return User(name, role, unix, bool(active), *bounds)


def _user(session: Session, name: str) -> User | None:
    row = session.one(f"SELECT {_USER}, sum FROM users WHERE name = ?", (name,))  # noqa: S608 - constant
    return None if row is None else _as_user(row)


def _as_queue(row: Row) -> QueueRow:
    _check(f"queue {row[0]}", row)
    name, quota, limit, weight, priority, submitters, cells, overflows = row[:-1]
    admitted = tuple(from_json(f"queue {name}", submitters))
    promised = parse_promises(cells)
    numbers = (quota, limit, weight, priority)
    return QueueRow(name, *numbers, admitted, promised, bool(overflows))


def _queue(session: Session, name: str) -> QueueRow | None:
    row = session.one(f"SELECT {_QUEUE}, sum FROM queues WHERE id = ?", (name,))  # noqa: S608 - constant
    return None if row is None else _as_queue(row)


def _tree(session: Session, name: str) -> list[Token]:
    """A token, then all tokens that were made with it, directly or not."""
    columns, children = _token_columns(), _token_columns("tokens.")
    rows = session.all(
        f"WITH RECURSIVE tree AS (SELECT {columns} FROM tokens WHERE id = ? "  # noqa: S608 - constant
        f"UNION SELECT {children} FROM tokens JOIN tree ON tokens.parent = tree.id) "
        f"SELECT {columns} FROM tree",
        (name,),
    )
    return sorted((_as_token(row) for row in rows), key=lambda token: token.id != name)


def _token_columns(table: str = "") -> str:
    return ", ".join(f"{table}{name}" for name in (*_SEALED["tokens"][1].split(", "), "sum"))


def _as_token(row: Row) -> Token:
    _check(f"token {row[0]}", (*row[:_LAST_USED], *row[_LAST_USED + 1 :]))
    return Token(*row[:-2])


def _check(what: str, row: Row) -> None:
    """Compare the checksum at the end of a row; raises StoreBroken."""
    if row[-1] != row_sum(row[:-1]):
        raise StoreBroken(
            f"{what} is damaged in the store: its checksum does not fit; "
            "stop, keep a copy, and restore a backup"
        )


def _seal(session: Session, table: str, name: str, columns: str = "") -> None:
    """Give a row its checksum, of what the database made of its values."""
    key, _, every = _SEALED[table]
    covered = columns or every
    row = session.one(f"SELECT {covered} FROM {table} WHERE {key} = ?", (name,))  # noqa: S608 - constants
    if row is not None:
        session.run(f"UPDATE {table} SET sum = ? WHERE {key} = ?", (row_sum(row), name))  # noqa: S608 - constants


def seal(session: Session) -> None:
    """Give every row that an older Roost wrote its checksum, of the columns that there were."""
    for table, (key, _, covered) in (_SEALED | {"queues": ("id", "", _PLAIN_QUEUE)}).items():
        for row in session.all(f"SELECT {key} FROM {table} WHERE sum = ''"):  # noqa: S608 - constants
            _seal(session, table, str(row[0]), covered)


def seal_cells(session: Session) -> None:
    """Let the checksums of queues cover their cells, too; raises StoreBroken for a damaged one."""
    for row in session.all(f"SELECT {_PLAIN_QUEUE}, sum FROM queues"):  # noqa: S608 - constants
        _check(f"queue {row[0]}", row)
        _seal(session, "queues", str(row[0]))


def _holes(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _must_live(session: Session, name: str) -> float | None:
    """When a token ends, if it does; raises Conflict for one that was revoked."""
    row = session.one("SELECT revoked_at, expires_at FROM tokens WHERE id = ?", (clean(name),))
    if row is None or row[0] is not None:
        raise Conflict(f"token {clean(name)[:_LONGEST]!r} is revoked: nothing is made with it")
    end: float | None = row[1]
    return end


def _sessions(session: Session, user: str) -> list[Token]:
    """The sessions of a user, the oldest first."""
    rows = session.all(
        f"SELECT {_token_columns()} FROM tokens WHERE owner = ? AND id LIKE ? "  # noqa: S608 - constant
        "ORDER BY created_at, id",
        (user, f"{SESSION_ID}%"),
    )
    return [_as_token(row) for row in rows]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
