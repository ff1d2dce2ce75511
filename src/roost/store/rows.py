"""The records that a store keeps, and the queries that it answers: plain and frozen.

The journal's entries are the truth. Rows of jobs and events are views of it, written in the same
transaction, for lists that are filtered, sorted and paged. Accounts and queues stand beside the
journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from roost.core.cells import CellPromise
from roost.core.state import JobState
from roost.errors import InvalidSpec, unknown

T = TypeVar("T")

#: The largest page that a query may ask for.
MOST = 200
_FARTHEST = 2**62
_MANY, _LONG, _WORDS = 200, 1000, 8

#: Fields by which jobs and events can be sorted; "-" in front turns the order round.
JOB_SORTS = (
    "id",
    "name",
    "user",
    "queue",
    "state",
    "priority",
    "gpus",
    "submitted_at",
    "started_at",
    "finished_at",
)
EVENT_SORTS = ("seq",)

#: What the ids of sessions begin with.
SESSION_ID = "ses-"
#: Stands for all users among the submitters of a queue.
ALL_USERS = "*"
ROLES = ("admin", "user", "viewer")
STATES = tuple(state.value for state in JobState)
OPEN_STATES = tuple(state.value for state in JobState if not state.over)


class HomeRow(NamedTuple):
    """The folder of a server: its id, where it is, and how often it was moved on the way."""

    id: str
    path: str
    host: str
    generation: int = 0


class JournalEntry(NamedTuple):
    """One batch of the journal: events and the decisions that followed, as JSON."""

    seq: int
    id: str
    time: float
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as lists and pages show it; ``rev`` is the journal's number of its last change.

    ``kept_until``: when a job that is over may be forgotten, if its job file says so.
    """

    id: str
    name: str
    user: str
    queue: str
    state: str
    cause: str = ""
    priority: int = 0
    gpus: float = 0.0
    submitted_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    request: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    rev: int = 0
    view: Mapping[str, Any] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)
    kept_until: float | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """One line of the event log: the ``n``-th that the journal's entry ``seq`` brought about.

    ``user`` owns the job, ``actor`` is the user that asked for the change.
    """

    seq: int
    n: int
    time: float
    actor: str = ""
    job: str = ""
    user: str = ""
    node: str = ""
    kind: str = ""
    old: str = ""
    new: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RestorePointRow:
    """A snapshot of a job: how far the job was, what was copied, and the job file of a clone.

    ``fresh``: the job saved itself for it. ``function``: a pickled function is kept with it.
    """

    job: str
    name: str
    user: str
    job_name: str
    created_at: float
    step: int | None = None
    progress: float | None = None
    files: int = 0
    size_bytes: int = 0
    fresh: bool = False
    took_s: float = 0.0
    function: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowPage(Generic[T]):
    """Part of a list, and how long the whole of it is."""

    items: tuple[T, ...]
    total: int


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many jobs a query lets through: in all, by state, by queue and by user."""

    total: int
    states: Mapping[str, int]
    queues: Mapping[str, int]
    users: Mapping[str, int]


def labels_of(given: Iterable[str]) -> dict[str, str]:
    """The labels that a request names as ``key=value``."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidSpec(f"label takes key=value, not {text[:80]!r}")
        found[key] = value
    return found


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A query for jobs: filters, order and page; an empty filter lets everything through.

    ``name`` is contained in the job's name, ``names`` are whole ones. Each of ``words`` is in its
    id, name, user, queue or a label (``key=value``). ``ended_after``: it ended then, or later. What
    has not happened yet sorts before all times.
    """

    states: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    sort: str = "-submitted_at"
    offset: int = 0
    limit: int = 50
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    ended_after: float | None = None

    def __post_init__(self) -> None:
        """Refuse a query that no store can answer; raises InvalidSpec."""
        if len(self.words) > _WORDS:
            raise InvalidSpec(f"at most {_WORDS} words can be looked for")
        for state in self.states:
            if state not in STATES:
                raise InvalidSpec(str(unknown("state", state, STATES)))
        _check_page(self.sort, JOB_SORTS, self.offset, self.limit)
        _check_texts("name", self.name, *self.names)
        _check_texts("word", *self.words)
        _check_texts("user", *self.users)
        _check_texts("queue", *self.queues)
        _check_texts("label", *self.labels, *self.labels.values())

    def at(self, sort: str, offset: int, limit: int) -> JobQuery:
        """The same jobs in another order, or another page of them."""
        return replace(self, sort=sort, offset=offset, limit=limit)


@dataclass(frozen=True, slots=True)
class OutlivedQuery:
    """A query for jobs that are over and need not be kept: at ``now``, at most ``limit``.

    Those whose own time has passed; those that named none and ended ``before``, or are not among
    the newest ``most``. ``every``: all of them, those that asked to be kept last.
    """

    now: float
    before: float | None = None
    most: int | None = None
    every: bool = False
    limit: int = MOST


@dataclass(frozen=True, slots=True)
class EventQuery:
    """A query for lines of the event log: all, or those after entry ``after``; oldest first.

    With ``after_n`` also the later lines of that entry itself: lines about accounts are added to
    the entry that was the last one when they were written (0: before the first).
    """

    after: int | None = None
    after_n: int | None = None
    job: str = ""
    user: str = ""
    node: str = ""
    kind: str = ""
    sort: str = "seq"
    offset: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        """Refuse what no store can answer; raises InvalidSpec."""
        _check_page(self.sort, EVENT_SORTS, self.offset, self.limit)
        if not all(-1 <= (number or 0) < _FARTHEST for number in (self.after, self.after_n)):
            raise InvalidSpec(f"after must be a number of the journal, got {self.after}")
        for name in ("job", "user", "node", "kind"):
            _check_texts(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class User:
    """A user of Roost: a role, and the Unix account that the user's jobs run under.

    The most jobs that are not over, and the most space, in bytes, are those of all users where
    they are None.
    """

    name: str
    role: str = "user"
    unix: str = ""
    active: bool = True
    jobs: int | None = None
    disk_bytes: int | None = None
    disk_max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A user's token, without its secret. ``parent``: the token that it was made with.

    A session is a token that lives in the cookie of a browser.
    """

    id: str
    user: str
    label: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None
    parent: str | None = None

    @property
    def kind(self) -> Literal["token", "session"]:
        """What it is: its id tells."""
        return "session" if self.id.startswith(SESSION_ID) else "token"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue: its promises, and the users that may submit to it (``*`` stands for all)."""

    id: str
    quota_milli: int | None = None
    limit_milli: int | None = None
    weight: float = 1.0
    priority: int = 0
    submitters: tuple[str, ...] = (ALL_USERS,)
    cells: tuple[CellPromise, ...] = ()
    overflows: bool = True

    def admits(self, user: str) -> bool:
        """Whether a user may submit to it."""
        return admits(self.submitters, user)


def admits(submitters: Collection[str], user: str) -> bool:
    """Whether a user is among the submitters."""
    return ALL_USERS in submitters or user in submitters


def storable(text: str) -> bool:
    """Whether every store can keep and compare this text."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _check_page(sort: str, fields: tuple[str, ...], offset: int, limit: int) -> None:
    if sort.removeprefix("-") not in fields:
        raise InvalidSpec(str(unknown("sort field", sort.removeprefix("-"), fields)))
    if not 1 <= limit <= MOST:
        raise InvalidSpec(f"limit must be from 1 to {MOST}, got {limit}")
    if not 0 <= offset < _FARTHEST:
        raise InvalidSpec(f"offset must not be negative or beyond all bounds, got {offset}")


def _check_texts(what: str, *texts: str) -> None:
    if len(texts) > _MANY or any(len(text) > _LONG for text in texts):
        raise InvalidSpec(f"too much of {what} to look for: {_MANY} texts of {_LONG} letters")
    if not all(map(storable, texts)):
        raise InvalidSpec(f"a {what} to look for must not have zero bytes or lone surrogates")
