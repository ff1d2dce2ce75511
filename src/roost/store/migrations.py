"""The tables of a store, and the steps from one schema to the next.

Each step is one transaction that also notes its number, so a step that was cut short has not
happened and the next start does it. Only one process at a time takes steps. A database of a newer
Roost is refused before anything is written, and so is a database of something else.

Never change a step that was released: add one. The columns ``format`` and ``schema`` of
``roost_meta`` are for ever, because every older Roost reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roost.errors import Fatal, InvalidSpec
from roost.store import accounts, events, jobs
from roost.store.database import Database, Session
from roost.store.errors import StoreBroken

#: The format of the journal's entries and of their chain of checksums.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its number, what it is for, its statements, and what fills the new columns."""

    number: int
    name: str
    statements: tuple[str, ...]
    fill: tuple[Callable[[Session], None], ...] = ()


_JOURNAL = (
    """
    CREATE TABLE roost_meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        format INTEGER NOT NULL,
        schema INTEGER NOT NULL,
        epoch BIGINT NOT NULL,
        last_seq BIGINT NOT NULL,
        last_sum {text} NOT NULL,
        home_id {text} NOT NULL,
        home_path {text} NOT NULL,
        home_host {text} NOT NULL,
        home_settled INTEGER NOT NULL
    )""",
    """
    CREATE TABLE journal (
        seq {key},
        id {text} NOT NULL UNIQUE,
        time DOUBLE PRECISION NOT NULL,
        body TEXT NOT NULL,
        sum {text} NOT NULL
    )""",
    """
    CREATE TABLE snapshots (
        seq {key},
        journal_sum {text} NOT NULL,
        body TEXT NOT NULL,
        sum {text} NOT NULL
    )""",
    f"INSERT INTO roost_meta VALUES (1, {FORMAT}, 0, 0, 0, '', '', '', '', 1)",  # noqa: S608 - a number
)
_JOBS = (
    """
    CREATE TABLE jobs (
        id {text} PRIMARY KEY,
        name {text} NOT NULL,
        owner {text} NOT NULL,
        queue {text} NOT NULL,
        state {text} NOT NULL,
        cause {text} NOT NULL,
        priority BIGINT NOT NULL,
        gpus DOUBLE PRECISION NOT NULL,
        submitted_at DOUBLE PRECISION NOT NULL,
        started_at DOUBLE PRECISION NOT NULL,
        finished_at DOUBLE PRECISION NOT NULL,
        request {text} NOT NULL,
        labels TEXT NOT NULL,
        rev BIGINT NOT NULL
    )""",
    "CREATE INDEX jobs_name ON jobs (name, id)",
    "CREATE INDEX jobs_owner ON jobs (owner, id)",
    "CREATE INDEX jobs_queue ON jobs (queue, id)",
    "CREATE INDEX jobs_state ON jobs (state, id)",
    "CREATE INDEX jobs_priority ON jobs (priority, id)",
    "CREATE INDEX jobs_gpus ON jobs (gpus, id)",
    "CREATE INDEX jobs_submitted ON jobs (submitted_at, id)",
    "CREATE INDEX jobs_started ON jobs (started_at, id)",
    "CREATE INDEX jobs_finished ON jobs (finished_at, id)",
    "CREATE INDEX jobs_owner_submitted ON jobs (owner, submitted_at, id)",
    "CREATE UNIQUE INDEX jobs_request ON jobs (owner, request) WHERE request <> ''",
    # Apart from the jobs, so that scans of those stay narrow.
    """
    CREATE TABLE job_views (
        id {text} PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
        body TEXT NOT NULL
    )""",
    """
    CREATE TABLE job_documents (
        id {text} PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
        body TEXT NOT NULL
    )""",
    """
    CREATE TABLE job_labels (
        label {text} NOT NULL,
        content {text} NOT NULL,
        id {text} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        PRIMARY KEY (label, content, id)
    )""",
    "CREATE INDEX job_labels_id ON job_labels (id)",
    # How many jobs there are of each sort, so that totals need no counting.
    """
    CREATE TABLE job_counts (
        owner {text} NOT NULL,
        queue {text} NOT NULL,
        state {text} NOT NULL,
        jobs BIGINT NOT NULL,
        PRIMARY KEY (owner, queue, state)
    )""",
)
_EVENTS = (
    """
    CREATE TABLE events (
        seq BIGINT NOT NULL,
        n BIGINT NOT NULL,
        time DOUBLE PRECISION NOT NULL,
        actor {text} NOT NULL,
        job {text} NOT NULL,
        owner {text} NOT NULL,
        node {text} NOT NULL,
        kind {text} NOT NULL,
        old_value {text} NOT NULL,
        new_value {text} NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (seq, n)
    )""",
    "CREATE INDEX events_job ON events (job, seq, n)",
    "CREATE INDEX events_owner ON events (owner, seq, n)",
    "CREATE INDEX events_node ON events (node, seq, n)",
    "CREATE INDEX events_kind ON events (kind, seq, n)",
)
_ACCOUNTS = (
    """
    CREATE TABLE users (
        name {text} PRIMARY KEY,
        role {text} NOT NULL,
        unix {text} NOT NULL,
        active INTEGER NOT NULL
    )""",
    """
    CREATE TABLE tokens (
        id {text} PRIMARY KEY,
        hash {text} NOT NULL UNIQUE,
        owner {text} NOT NULL REFERENCES users (name),
        label {text} NOT NULL,
        created_at DOUBLE PRECISION NOT NULL,
        expires_at DOUBLE PRECISION,
        revoked_at DOUBLE PRECISION,
        last_used_at DOUBLE PRECISION,
        parent {text} REFERENCES tokens (id)
    )""",
    "CREATE INDEX tokens_owner ON tokens (owner, created_at, id)",
    "CREATE INDEX tokens_parent ON tokens (parent)",
    """
    CREATE TABLE queues (
        id {text} PRIMARY KEY,
        quota_milli BIGINT,
        limit_milli BIGINT,
        weight DOUBLE PRECISION NOT NULL,
        priority BIGINT NOT NULL,
        submitters TEXT NOT NULL
    )""",
)
_POINTS = (
    """
    CREATE TABLE restore_points (
        job {text} NOT NULL,
        name {text} NOT NULL,
        owner {text} NOT NULL,
        job_name {text} NOT NULL,
        created_at DOUBLE PRECISION NOT NULL,
        step BIGINT,
        progress DOUBLE PRECISION,
        files BIGINT NOT NULL,
        size_bytes BIGINT NOT NULL,
        fresh INTEGER NOT NULL,
        took_s DOUBLE PRECISION NOT NULL,
        function INTEGER NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (job, name)
    )""",
    "CREATE INDEX restore_points_owner ON restore_points (owner, created_at)",
    "CREATE INDEX restore_points_created ON restore_points (created_at)",
)

_MOVED_HOMES = ("ALTER TABLE roost_meta ADD COLUMN home_generation BIGINT NOT NULL DEFAULT 0",)
_RETENTION = (
    # The journal's last entry that was compacted away: the chain of checksums begins there.
    "ALTER TABLE roost_meta ADD COLUMN base_seq BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE roost_meta ADD COLUMN base_sum {text} NOT NULL DEFAULT ''",
    # Until when a job that is over asked to be kept; -1: it did not ask.
    "ALTER TABLE jobs ADD COLUMN kept_until DOUBLE PRECISION NOT NULL DEFAULT -1",
    "CREATE INDEX jobs_kept_until ON jobs (kept_until, id)",
)
_SUMS = (
    "ALTER TABLE jobs ADD COLUMN sum {text} NOT NULL DEFAULT ''",
    "ALTER TABLE events ADD COLUMN sum {text} NOT NULL DEFAULT ''",
)

_SPENT_REQUESTS = (
    """
    CREATE TABLE spent_requests (
        owner {text} NOT NULL,
        request {text} NOT NULL,
        job {text} NOT NULL,
        deleted_at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (owner, request)
    )""",
    "CREATE INDEX spent_requests_deleted ON spent_requests (deleted_at)",
)

_USER_BOUNDS = tuple(
    f"ALTER TABLE users ADD COLUMN {column} BIGINT"
    for column in ("jobs", "disk_bytes", "disk_max_bytes")
)

_ACCOUNT_SUMS = tuple(
    f"ALTER TABLE {table} ADD COLUMN sum {{text}} NOT NULL DEFAULT ''"
    for table in ("users", "tokens", "queues")
)

_CELLS = (
    "ALTER TABLE queues ADD COLUMN cells TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE queues ADD COLUMN overflows INTEGER NOT NULL DEFAULT 1",
)

_USAGE = (
    """
    CREATE TABLE usage_spells (
        n {key},
        kind {text} NOT NULL,
        begin_ms BIGINT NOT NULL,
        end_ms BIGINT NOT NULL,
        owner {text} NOT NULL,
        job {text} NOT NULL,
        body TEXT NOT NULL,
        sum {text} NOT NULL
    )""",
    "CREATE INDEX usage_spells_end ON usage_spells (end_ms, n)",
    "CREATE INDEX usage_spells_owner ON usage_spells (owner, end_ms)",
    "CREATE INDEX usage_spells_job ON usage_spells (job, n)",
    """
    CREATE TABLE usage_prices (
        kind {text} NOT NULL,
        since {text} NOT NULL,
        micro BIGINT NOT NULL,
        currency {text} NOT NULL,
        source {text} NOT NULL,
        PRIMARY KEY (kind, since)
    )""",
    """
    CREATE TABLE budgets (
        subject {text} NOT NULL,
        name {text} NOT NULL,
        amount BIGINT NOT NULL,
        unit {text} NOT NULL,
        every {text} NOT NULL,
        consequence {text} NOT NULL,
        growth_is_free INTEGER NOT NULL,
        PRIMARY KEY (subject, name)
    )""",
)

MIGRATIONS = (
    Migration(1, "the first tables", (*_JOURNAL, *_JOBS, *_EVENTS, *_ACCOUNTS)),
    Migration(2, "snapshots of jobs", _POINTS),
    Migration(3, "homes that were moved", _MOVED_HOMES),
    Migration(4, "what is kept, and for how long", _RETENTION),
    Migration(5, "checksums of jobs and events", _SUMS, (jobs.seal, events.seal)),
    Migration(6, "requests whose jobs were deleted", _SPENT_REQUESTS),
    Migration(7, "bounds of users", _USER_BOUNDS),
    Migration(8, "checksums of users, tokens and queues", _ACCOUNT_SUMS, (accounts.seal,)),
    Migration(9, "cells that queues are promised", _CELLS, (accounts.seal_cells,)),
    Migration(10, "usage, prices and budgets", _USAGE),
)


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a database to the newest schema; raises Fatal where it is newer, Conflict if served."""
    newest = migrations[-1].number
    with database.reading() as session:
        found = _schema(database, session, newest)
    database.prepare()
    if found == 0:
        _make_new(database, migrations)
    elif found < newest:
        # A server of an older Roost must not have its tables changed under it.
        database.claim()
        try:
            database.backup(f"schema-{found}")
            _take_all(database, migrations)
            database.rebuild()
        finally:
            database.release()


def _take_all(database: Database, migrations: Sequence[Migration]) -> None:
    for step in migrations:
        with database.writing() as session:
            database.wait_for_migrator(session)
            if _schema(database, session, migrations[-1].number) < step.number:
                _take(database, session, step)


def _make_new(database: Database, migrations: Sequence[Migration]) -> None:
    """All steps at once: whoever opens it meanwhile finds nothing, or all of it."""
    with database.writing() as session:
        database.wait_for_migrator(session)
        if _schema(database, session, migrations[-1].number) == 0:
            for step in migrations:
                _take(database, session, step)


def _take(database: Database, session: Session, step: Migration) -> None:
    for statement in step.statements:
        words = statement
        for word, meaning in database.words.items():
            words = words.replace(f"{{{word}}}", meaning)
        session.run(words)
    for fill in step.fill:
        fill(session)
    session.run("UPDATE roost_meta SET schema = ?", (step.number,))


def _schema(database: Database, session: Session, newest: int) -> int:
    """The schema of a database that this Roost may write to; 0: it is empty."""
    tables = database.tables(session)
    if not tables:
        if database.acknowledged:
            raise Fatal(
                f"{database.where} is empty, but a server answered for {database.acknowledged} "
                "entries of it: put the database back; to start afresh, remove its .lock file"
            )
        return 0
    if "roost_meta" not in tables:
        raise InvalidSpec(f"{database.where} is not a Roost database: it has other tables")
    rows = session.all("SELECT format, schema FROM roost_meta")
    if len(rows) != 1 or not all(isinstance(number, int) and number > 0 for number in rows[0]):
        raise StoreBroken(f"{database.where} is damaged: it does not say its format")
    form, schema = rows[0]
    if form > FORMAT or schema > newest:
        raise Fatal(
            f"{database.where} was written by a newer Roost (format {form}, schema {schema}; "
            f"this one knows {FORMAT} and {newest}): upgrade Roost, or restore an older backup"
        )
    return int(schema)
