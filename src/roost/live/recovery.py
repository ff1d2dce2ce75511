"""Coming back: the newest snapshot and the journal after it give the state that was.

Folding never asks a policy. What the journal says was ordered and does not say was done is given
to the engine again (``pending``): engines are idempotent per run.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from roost.core import (
    Action,
    Core,
    JobId,
    Launch,
    Migrate,
    Placer,
    Policy,
    Resize,
    Resume,
    Run,
    Stop,
    Suspend,
)
from roost.core import snapshot as core_snapshot
from roost.core.transitions import RunPhase
from roost.core.wire import decode_decision, decode_event
from roost.errors import Fatal, InvalidSpec
from roost.jobs.history import touched
from roost.jobs.record import OpenRecords
from roost.live.state_text import StateText, is_packed, packed, unpacked
from roost.store import Store
from roost.store.jobs import StoredJob
from roost.store.rows import JournalEntry

_log = logging.getLogger(__name__)

#: The format of an entry's body. An unknown one is refused before anything is written.
FORMAT = 1


class RecoveredState(NamedTuple):
    """A core as the journal tells it, up to entry ``seq``, and what is kept beside it."""

    core: Core
    seq: int
    records: OpenRecords
    #: When the last entry was written.
    time: float
    text: StateText


def recover(store: Store, policy: Policy, placer: Placer, *, whole: bool = True) -> RecoveredState:
    """Read everything back. A snapshot that does not fit its journal is as good as none.

    Unless that is to be the ``whole``, the rows of jobs are left for later: see ``check_past``.
    """
    users = {JobId(job): user for job, user in store.jobs.open_users().items()}
    records = OpenRecords(users, store.jobs.stored)
    if whole:
        records.take(store.jobs.unfinished())
    odd: set[JobId] = set()
    for core, text, seq in _bases(store, policy, placer):
        last, written_at = seq, -math.inf
        for entry in store.journal.entries(after=max(0, seq - 1)):
            if entry.seq > seq:
                text.touch(_refold(core, entry).jobs)
            last, written_at = entry.seq, entry.time
        odd = {job.id for job in core.jobs.values() if not job.state.over} ^ records.keys()
        if not odd:
            return RecoveredState(core, last, records, written_at, text)
        _log.warning("folding from entry %s does not give the jobs that are listed", seq)
    if not odd:
        raise Fatal(
            "no snapshot of the journal can be read, and the entries before them were compacted "
            "away: if a newer Roost served this store, upgrade; else restore a backup"
        )
    raise Fatal(f"the store's list of jobs and its journal do not agree about {min(odd)}")


def check_past(
    store: Store,
    upto: int,
    rest: Callable[[], None] = lambda: None,
    take: Callable[[list[StoredJob]], None] = lambda _some: None,
) -> None:
    """Read what folding left out, for its checksums alone; raises Fatal where it is damaged.

    That is the journal before its snapshot, and the lists of jobs and events. ``take`` is given
    the rows of jobs that are not over. ``rest`` is called after every few of all these.
    """
    store.jobs.verify(rest, take)
    store.journal.verify(upto, rest)
    store.events.verify(rest)


class _FoldedEntry(NamedTuple):
    """What followed from an entry, and the jobs that it was about."""

    actions: list[Action]
    jobs: list[JobId]


def fold(core: Core, entry: JournalEntry) -> list[Action]:
    """Fold one entry of the journal into a core."""
    return _refold(core, entry).actions


def _refold(core: Core, entry: JournalEntry) -> _FoldedEntry:
    body = entry.body
    if body.get("v") != FORMAT:
        raise Fatal(
            f"entry {entry.seq} of the journal was written by a newer Roost: it has format "
            f"{body.get('v')!r}, and this one reads {FORMAT}: upgrade Roost"
        )
    try:
        events = [decode_event(data) for data in body["events"]]
        decisions = [decode_decision(data) for data in body["decisions"]]
    except (InvalidSpec, KeyError, TypeError) as error:
        # Its checksum fits, so this is what was written: by a Roost that knows more.
        raise Fatal(
            f"entry {entry.seq} of the journal was written by a newer Roost ({error}): "
            "upgrade Roost, or restore an older backup"
        ) from None
    actions = core.refold(events, decisions)
    jobs = touched(core, events, actions)
    return _FoldedEntry(actions, [*jobs, *(decision.job for decision in decisions)])


def snapshot_of(core: Core) -> str:
    """A core as text, for the store."""
    return packed(StateText(core).lines())


def read_snapshot(text: str, policy: Policy, placer: Placer) -> tuple[Core, StateText]:
    """The core that a text of the store tells of; raises InvalidSpec, Fatal or ValueError."""
    if is_packed(text):
        return unpacked(text, policy, placer)
    core = core_snapshot.load(json.loads(text), policy, placer)  # an older Roost wrote it
    return core, StateText(core)


def _bases(store: Store, policy: Policy, placer: Placer) -> Iterator[tuple[Core, StateText, int]]:
    """Where folding can begin: after the newest snapshot, an older one, or at the beginning."""
    for seq, text in store.journal.snapshots():
        try:
            core, lines = read_snapshot(text, policy, placer)
        except (InvalidSpec, Fatal, ValueError) as error:
            _log.warning("snapshot %s cannot be used (%s); an older one will do", seq, error)
        else:
            yield core, lines, seq
    if not store.journal.base:
        core = Core(policy, placer)
        yield core, StateText(core), 0


def pending(run: Run) -> Action | None:
    """What was asked of a run and has not been answered; None if nothing is."""
    match run.phase:
        case RunPhase.SUSPENDING | RunPhase.FREEZING:
            return Suspend(run.id, run.reason)
        case RunPhase.STOPPING:
            return Stop(run.id, run.reason)
        case RunPhase.SUSPENDED:
            return Stop(run.id, "cancelled") if run.job.cancelling else None
        case RunPhase.CHANGING:
            target = run.target or run.allocation
            same = target.workers == run.workers
            return (Migrate if same else Resize)(run.id, target)
        case RunPhase.RESUMING:
            return Resume(run.id, run.allocation)
        case RunPhase.STARTING:
            return Launch(run.id, run.job.spec, run.allocation)
        case _:
            return None
