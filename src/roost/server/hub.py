"""The live state for many viewers: encoded once per tick and audience, never once per viewer.

An *audience* is all viewers that see the same: all jobs, or those of one user. Changes are gathered
for a tick; then each audience with a listener gets one encoded delta, kept in a ring. Viewers read
the ring at their own pace and send the very same bytes. A viewer that comes back with the id of an
event that is still in the ring goes on from there; one that is too slow or too old gets a snapshot.

Why a job waits changes without an entry of the journal: what is sent of jobs that wait is brought
up to date, and every few seconds those with another reason are sent again.

Ids are ``<epoch>-<seq>``: the server's epoch, and the journal's number of the last change *that the
audience saw*, so that they tell nothing about the others. Snapshots hold a page of the jobs that
are not over, and say how many more there are; deltas hold whole views of what changed, so that
applying one twice does no harm. Of all other jobs only the state is kept here: there may be very
many of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from roost import __version__
from roost.api.alerts import AlertView
from roost.api.jobs import WAITING_KEYS
from roost.errors import Retryable
from roost.server.options import ServerOptions
from roost.server.shared_gzip import HEADER, SharedMessage
from roost.server.streams import OpenStream, beats, message
from roost.server.visibility import Visibility
from roost.server.waiting_times import WaitingTimes, since_of
from roost.store.jobs import OpenJob
from roost.store.rows import OPEN_STATES, EventRow, JobRow

if TYPE_CHECKING:
    from roost.jobs.change_feed import ClusterChange

log = logging.getLogger("roost.server")

_OPEN = frozenset(OPEN_STATES)
_WAITS = "queued"
#: Jobs that are looked at before others get their turn.
_BATCH = 50
#: Jobs that wait and are sent again when something else is said of them.
_SHOWN = 1000
#: At most one part in so many of the time is spent looking.
_REST = 20


#: What a delta tells of, if there is something.
_TOLD = ("jobs", "deleted", "events", "nodes", "queues", "alerts")


class ViewSources(NamedTuple):
    """Where the hub finds what is not in changes: nodes, queues and jobs as they are now."""

    nodes: Callable[[], list[dict[str, Any]]]
    queues: Callable[[], Awaitable[list[dict[str, Any]]]]
    view: Callable[[JobRow], Mapping[str, Any]]
    rows: Callable[[Sequence[str]], Awaitable[list[JobRow]]]
    alerts: Callable[[], Sequence[AlertView]]
    now: Callable[[], float]
    assets: Callable[[], str]


class _Tick:
    """What changed since the last tick."""

    def __init__(self) -> None:
        self.seq = 0
        self.jobs: dict[str, JobRow] = {}
        self.deleted: dict[str, str] = {}
        self.events: list[EventRow] = []

    def __bool__(self) -> bool:
        return bool(self.seq or self.jobs)


class Audience:
    """Viewers that see the same, and the deltas they were sent last."""

    def __init__(self, visibility: Visibility, seq: int, options: ServerOptions) -> None:
        self.visibility, self.seq, self._options = visibility, seq, options
        self.streams: set[OpenStream] = set()
        self.left_at = time.monotonic()
        #: How many deltas there were so far; a viewer's position counts them, too.
        self.sent = 0
        self.ring: deque[tuple[int, SharedMessage]] = deque()
        self._size = 0
        self.snapshot: SharedMessage | None = None
        #: Held while a snapshot is made: others wait for that one.
        self.making = asyncio.Lock()
        self.nodes: dict[str, Any] = {}
        self.queues: dict[str, Any] = {}
        self.alerts: dict[str, Any] = {}

    def publish(self, seq: int, encoded: SharedMessage) -> None:
        """Add a delta and wake all streams."""
        self.ring.append((seq, encoded))
        self._size += len(encoded)
        while len(self.ring) > self._options.ring or self._size > self._options.ring_bytes:
            self._size -= len(self.ring.popleft()[1])
        self.sent += 1
        self.seq = seq
        self.snapshot = None
        for stream in self.streams:
            stream.wake()

    def lose(self) -> None:
        """Something could not be sent: all streams need a snapshot."""
        self.ring.clear()
        self._size = 0
        self.sent += 1
        self.snapshot = None
        for stream in self.streams:
            stream.wake()

    def after(self, position: int) -> list[SharedMessage] | None:
        """The deltas from a position on, or ``None`` where the ring has lost some of them."""
        behind = self.sent - position
        if behind > len(self.ring):
            return None
        return [self.ring[index][1] for index in range(len(self.ring) - behind, len(self.ring))]

    def position(self, seq: int) -> int | None:
        """Where a viewer goes on after its last event; ``None`` where the ring has it no more."""
        numbers = [number for number, _ in self.ring]
        if seq not in numbers:
            return None
        return self.sent - (len(numbers) - 1 - numbers.index(seq))


class StreamHub:
    """Turns changes of the cluster into streams."""

    def __init__(self, sources: ViewSources, epoch: int, options: ServerOptions) -> None:
        self._sources, self._epoch, self._options = sources, epoch, options
        #: User → the jobs that are not over, and how many are in which state.
        self._open: dict[str, dict[str, OpenJob]] = {}
        self._states: dict[str, Counter[str]] = {}
        self._oldest = WaitingTimes(self._is_waiting)
        #: Jobs that wait and that viewers were told of, as they were told of them.
        self._shown: dict[str, JobRow] = {}
        self._leaving: dict[str, str] = {}
        self._audiences: dict[str, Audience] = {}
        self._tick = _Tick()
        self._ticking: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()
        self._ticked_at = 0.0
        self._watched = asyncio.Event()
        #: What changed before the jobs were loaded is newer than what is loaded.
        self._early: set[str] | None = set()
        self.seq = 0
        #: How often something was encoded, and ticks that had something to tell.
        self.encoded = 0
        self.ticks = 0

    def load(self, jobs: Iterable[OpenJob], seq: int) -> None:
        """Begin with the jobs that are open now; what changed meanwhile stands."""
        self.seq = max(self.seq, seq)
        early, self._early = self._early or set(), None
        for job in jobs:
            if job.id not in early:
                self._open.setdefault(job.user, {})[job.id] = job
        for user, own in self._open.items():
            self._states[user] = Counter([job.state for job in own.values()])
            for job in own.values():
                self._oldest.note(job)

    def changed(self, change: ClusterChange) -> None:
        """Take in a change; it goes out with the next tick."""
        tick = self._tick
        tick.seq = max(tick.seq, change.seq)
        if self._early is not None:
            self._early.update(row.id for row in change.jobs)
            self._early.update(change.deleted)
        for row in change.jobs:
            tick.jobs[row.id] = row
            self._note(_short(row))
            self._show(row, new=False)
        for job in change.deleted:
            tick.jobs.pop(job, None)
            tick.deleted[job] = self._leaving.pop(job, "")
        tick.events.extend(change.events)
        self._plan()

    async def close(self) -> None:
        """Tick no more."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait({self._ticking})

    def leaves(self, row: JobRow) -> None:
        """Remember the user of a job that is about to be deleted: a deletion does not name it."""
        self._leaving[row.id] = row.user

    def stays(self, row: JobRow) -> None:
        """It was not deleted after all."""
        self._leaving.pop(row.id, None)

    def _note(self, job: OpenJob) -> None:
        own = self._open.setdefault(job.user, {})
        states = self._states.setdefault(job.user, Counter())
        if (before := own.get(job.id)) is not None:
            states[before.state] -= 1
        if job.state in _OPEN:
            own[job.id] = job
            states[job.state] += 1
        else:
            own.pop(job.id, None)
        if before is None or (before.state, before.queue) != (job.state, job.queue):
            self._oldest.note(job)

    @property
    def viewers(self) -> int:
        """How many streams of the live state are open."""
        return sum(len(audience.streams) for audience in self._audiences.values())

    @property
    def jobs(self) -> int:
        """How many jobs are not over."""
        return sum(map(len, list(self._open.values())))

    def states(self, user: str) -> Mapping[str, int]:
        """How many jobs of a user are in which state, of those that are not over."""
        return {state: self._states.get(user, Counter())[state] for state in OPEN_STATES}

    def _is_waiting(self, job: OpenJob) -> bool:
        known = self._open.get(job.user, {}).get(job.id)
        return known is not None and known.state == _WAITS and known.queue == job.queue

    def _show(self, row: JobRow, *, new: bool = True) -> None:
        """Remember what viewers are told of a job that waits; only so many are kept up to date."""
        known = self._shown.pop(row.id, None)
        if row.state == _WAITS and (new or known is not None):
            self._shown[row.id] = row
            if len(self._shown) > _SHOWN:
                del self._shown[next(iter(self._shown))]

    def open_jobs(self, visibility: Visibility) -> Iterator[OpenJob]:
        """The jobs that are not over, as far as they are seen."""
        if not visibility.all:
            return iter(self._open.get(visibility.user, {}).values())
        return (job for own in self._open.values() for job in own.values())

    def _plan(self) -> None:
        """Tick now if the last tick is long ago, else when its time has passed."""
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._wait_and_flush())

    async def _wait_and_flush(self) -> None:
        while self._tick:
            await asyncio.sleep(self._ticked_at + self._options.tick_s - time.monotonic())
            try:
                await self.flush()
            except Exception:
                log.exception("a tick failed; viewers get a snapshot next time")
                for audience in self._audiences.values():
                    audience.lose()

    async def flush(self) -> None:
        """Encode what changed, once per audience; afterwards all that was said is in the rings."""
        async with self._flushing:
            tick, self._tick = self._tick, _Tick()
            if not tick:
                return
            self._ticked_at = time.monotonic()
            self.seq = max(self.seq, tick.seq)
            self.ticks += 1
            self._drop_empty()
            if self._audiences:
                await self._encode(tick)

    async def _encode(self, tick: _Tick) -> None:
        queues = None
        with suppress(Retryable):  # then they stay as they were
            queues = await self._sources.queues()
        nodes = self._sources.nodes()
        tick.jobs = {name: self._told(row) for name, row in tick.jobs.items()}
        for audience in self._audiences.values():
            body = self._delta(audience, tick, nodes, queues)
            if body is not None:
                self.encoded += 1
                seq = body["seq"]
                told = message(body, "delta", f"{self._epoch}-{seq}")
                audience.publish(seq, SharedMessage(told))

    def _fresh(self, row: JobRow) -> JobRow:
        """A job with what is said of it just now; the same row if that is the same."""
        if row.state != _WAITS:
            return row
        now = self._sources.view(row)
        if now["state"] != row.state:  # it is about to change, and that is not durable yet
            return row
        said = {key: now[key] for key in WAITING_KEYS if key in now}
        if all(row.view.get(key) == value for key, value in said.items()):
            return row
        return replace(row, cause=str(said.get("cause", row.cause)), view={**row.view, **said})

    def _told(self, row: JobRow) -> JobRow:
        """The same, remembered as what was told last."""
        fresh = self._fresh(row)
        self._show(fresh)
        return fresh

    async def keep_fresh(self) -> None:
        """While there are viewers, tell of jobs that wait for another reason now; until cancelled.

        The pause is at least so long that most of the time is left for everything else.
        """
        while True:
            await self._watched.wait()
            began = time.monotonic()
            try:
                await self.refresh()
            except Exception:
                log.exception("reasons could not be brought up to date")
            spent = time.monotonic() - began
            await asyncio.sleep(max(self._options.refresh_s, _REST * spent))
            if not any(audience.streams for audience in self._audiences.values()):
                self._watched.clear()
                self._shown.clear()

    async def refresh(self) -> None:
        """Look at the jobs that wait and that viewers know of; those that are different go out."""
        rows = iter(list(self._shown.values()))
        while batch := list(islice(rows, _BATCH)):
            for row in batch:
                if self._shown.get(row.id) is not row:
                    continue  # it changed meanwhile, and goes out as it is then
                if _differs(row, self._fresh(row), self._options.refresh_s):
                    self._tick.jobs.setdefault(row.id, row)
            if self._tick:
                self._plan()
            await asyncio.sleep(0)

    def _drop_empty(self) -> None:
        now = time.monotonic()
        for name, audience in list(self._audiences.items()):
            if not audience.streams and now - audience.left_at > self._options.linger_s:
                del self._audiences[name]

    def _delta(
        self,
        audience: Audience,
        tick: _Tick,
        nodes: list[dict[str, Any]],
        queues: list[dict[str, Any]] | None,
    ) -> dict[str, Any] | None:
        """What an audience is told of a tick; ``None`` where nothing of it is for them."""
        visibility = audience.visibility
        jobs = [visibility.job(row) for row in tick.jobs.values() if visibility.sees(row.user)]
        gone = [job for job, user in tick.deleted.items() if visibility.sees(user)]
        events = [visibility.event(row) for row in tick.events if visibility.sees(row.user)]
        body = {
            # What has no entry of its own comes under the last one that they saw.
            "seq": tick.seq or audience.seq,
            "jobs": jobs,
            "deleted": gone,
            "events": events,
            "nodes": _news(audience.nodes, [visibility.node(node) for node in nodes]),
            "queues": []
            if queues is None
            else _news(audience.queues, self.queues(visibility, queues)),
            "alerts": _news(audience.alerts, self._alerts(visibility)),
        }
        if not any(body[name] for name in _TOLD):
            return None
        return {**body, "counts": self._counts(visibility), "time": self._sources.now()}

    def queues(self, visibility: Visibility, queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The queues that are seen, with the counts of the jobs that are."""
        jobs = () if visibility.all else self.open_jobs(visibility)
        own = [job for job in jobs if job.state == _WAITS]
        waiting = Counter(job.queue for job in own)
        found = []
        for queue in queues:
            if visibility.may_use(queue):
                name = str(queue["id"])
                since = self._oldest.since(name) if visibility.all else since_of(own, name)
                found.append({**visibility.queue(queue, waiting), "oldest_at": since})
        return found

    def _alerts(self, visibility: Visibility) -> list[dict[str, Any]]:
        found = map(visibility.alert, self._sources.alerts())
        return [alert for alert in found if alert is not None]

    def _counts(self, visibility: Visibility) -> dict[str, int]:
        users = self._states if visibility.all else [visibility.user]
        states = [self._states.get(user, Counter()) for user in users]
        return {state: sum(own[state] for own in states) for state in OPEN_STATES}

    async def audience(self, visibility: Visibility) -> Audience:
        """The audience that sees with these visibility, with everything that was said so far."""
        await self.flush()
        found = self._audiences.get(visibility.name)
        if found is None:
            queues = await self._sources.queues()
            found = self._audiences.get(visibility.name)
        if found is None:
            first = max((job.rev for job in self.open_jobs(visibility)), default=0)
            found = Audience(visibility, self.seq if visibility.all else first, self._options)
            _news(found.nodes, [visibility.node(node) for node in self._sources.nodes()])
            _news(found.queues, self.queues(visibility, queues))
            _news(found.alerts, self._alerts(visibility))
            self._audiences[visibility.name] = found
        return found

    async def _snapshot(self, audience: Audience) -> SharedMessage:
        """The beginning of a stream: what there is, and of the jobs a page."""
        async with audience.making:
            return audience.snapshot or await self._make_snapshot(audience)

    async def _make_snapshot(self, audience: Audience) -> SharedMessage:
        visibility, sent, seq = audience.visibility, audience.sent, audience.seq
        rows = await self._sources.rows(self._page(visibility))
        counts = self._counts(visibility)
        self.encoded += 1
        jobs = [visibility.job(self._told(row)) for row in rows if row.state in _OPEN]
        body = {
            "seq": seq,
            "epoch": self._epoch,
            "jobs": jobs,
            "more": max(0, sum(counts.values()) - len(jobs)),
            "nodes": list(audience.nodes.values()),
            "queues": list(audience.queues.values()),
            "alerts": list(audience.alerts.values()),
            "counts": counts,
            "time": self._sources.now(),
            "version": __version__,
            "assets": self._sources.assets(),
        }
        encoded = SharedMessage(message(body, "snapshot", f"{self._epoch}-{seq}"))
        if audience.sent == sent:  # else others would miss what was sent meanwhile
            audience.snapshot = encoded
        return encoded

    def _page(self, visibility: Visibility) -> list[str]:
        """The first jobs: those that hold something, then those that wait longest."""
        most, waiting, others = self._options.stream_jobs, list[str](), list[str]()
        for job in self.open_jobs(visibility):
            if job.state != _WAITS:
                others.append(job.id)
            elif len(waiting) < most:
                waiting.append(job.id)
        return [*others, *waiting][:most]

    async def watch(
        self, stream: OpenStream, visibility: Visibility, last: str = "", *, zips: bool = False
    ) -> AsyncGenerator[bytes]:
        """The stream for one viewer; ``last`` is the id of the last event it saw.

        ``zips``: as gzip, of which all viewers share the pieces.
        """
        if zips:
            yield HEADER
        async with aclosing(self._messages(stream, visibility, last)) as messages:
            async for some in messages:
                yield b"".join([one.zipped if zips else one.plain for one in some])

    async def _messages(
        self, stream: OpenStream, visibility: Visibility, last: str
    ) -> AsyncGenerator[Sequence[SharedMessage]]:
        audience = await self.audience(visibility)
        position = audience.position(self._number(last))
        audience.streams.add(stream)
        self._watched.set()
        try:
            if position is None:
                position = audience.sent
                yield [await self._snapshot(audience)]
            stream.wake()
            async for beat in beats(stream, self._options.heartbeat_s):
                if beat is not None:
                    yield [SharedMessage(beat)]
                    continue
                news = audience.after(position)
                position = audience.sent
                if news is None:
                    yield [await self._snapshot(audience)]
                elif news:
                    yield news
        finally:
            audience.streams.discard(stream)
            audience.left_at = time.monotonic()

    def _number(self, last: str) -> int:
        """The journal's number in an id of this server's epoch, else -1."""
        epoch, _, seq = last.partition("-")
        plain = seq.isascii() and seq.isdigit() and len(seq) <= 18  # noqa: PLR2004
        if epoch != str(self._epoch) or not plain:
            return -1
        return int(seq)


def _short(row: JobRow) -> OpenJob:
    return OpenJob(row.id, row.name, row.user, row.queue, row.state, row.submitted_at, row.rev)


def _differs(row: JobRow, fresh: JobRow, seconds: float) -> bool:
    """Whether something else is said of a job: a start that moves a little is the same."""
    if row is fresh:
        return False
    before, after = row.view.get("starts_at"), fresh.view.get("starts_at")
    if any(row.view.get(key) != fresh.view.get(key) for key in ("cause", "reason")):
        return True
    return (before is None) != (after is None) or (
        before is not None and after is not None and abs(after - before) >= seconds
    )


def _news(known: dict[str, Any], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the things that differ from what is known, which is brought up to date.

    What is no more is told as ``{"id": ..., "gone": true}``.
    """
    ids = {thing["id"] for thing in now}
    found = [thing for thing in now if known.get(thing["id"]) != thing]
    found += [{"id": name, "gone": True} for name in known if name not in ids]
    known.clear()
    known.update((thing["id"], thing) for thing in now)
    return found
