"""Tells people and programs what becomes of jobs, beside the driver's loop and never in its way.

    1. the change feed tells of a job; rules of its file, its user and its queue name the targets
    2. what is to be told goes to the outbox, and the outbox to its file
    3. threads send what is due; what fails is tried again, ever later, for a day

A start first looks at what the journal has beyond the outbox. So each is told at least once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from roost.errors import Conflict, Forbidden, Retryable, RoostError
from roost.jobfile.notify import NotifyRule, check_target
from roost.jobs.change_feed import ChangeFeed, ClusterChange
from roost.jobs.clock import WallClock
from roost.live.notifications.delivery_queue import Delivery, DeliveryQueue
from roost.live.notifications.senders import send
from roost.live.notifications.settings import SettingsFile
from roost.store import Store
from roost.store.rows import EventQuery, EventRow, JobRow

_log = logging.getLogger(__name__)

#: How long to wait after the first failure, at most between two tries, and in all, in seconds.
_AGAIN_S = 5.0
_LATEST_S = 3600.0
_GIVEN_UP_S = 86400.0
_SENDERS = 4
_PAGE = 200
#: How often the outbox is written though nothing waits in it, in seconds.
_SAVE_S = 60.0
_STATES = {"running": "started", "succeeded": "", "failed": "", "cancelled": ""}


class NotificationService:
    """Sends notifications of one server's jobs."""

    def __init__(self, store: Store, home: Path, clock: WallClock) -> None:
        self._store, self._clock = store, clock
        folder = home / "notifications"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = SettingsFile(folder / "settings.json")
        self._outbox = DeliveryQueue.load(folder / "outbox.json")
        self._news = asyncio.Event()
        self._dirty = False
        self._threads = ThreadPoolExecutor(_SENDERS, "notify")
        self._task: asyncio.Task[None] | None = None
        self._stop: Callable[[], None] | None = None

    async def start(self, feed: ChangeFeed, seq: int) -> None:
        """Look at what happened since the last server, then listen; ``seq`` is the last entry."""
        self._stop = feed.subscribe(self._changed)
        if self._outbox.seq is None:  # the first server that notifies: the past is past
            self._outbox.seq = seq
        else:
            await asyncio.to_thread(self._catch_up, self._outbox.seq)
        self._outbox.seq = max(seq, self._outbox.seq)
        self._dirty = True
        self._task = asyncio.create_task(self._run(), name="notifications")

    async def close(self) -> None:
        """Stop sending; what waits is in the file."""
        if self._stop is not None:
            self._stop()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            with suppress(RoostError):
                await self._save()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- for administrators and users ----------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        """The settings without secrets, and what waits to be sent."""
        waiting = [
            {
                "id": one.id,
                "target": _masked(one.target),
                "job": str(one.told.get("job", {}).get("id", "")),
                "tries": one.tries,
                "next_at": one.next_at,
                "error": one.error,
            }
            for one in list(self._outbox.pending.values())[:100]
        ]
        dropped = self._outbox.dropped
        return {"settings": self._file.settings.shown(), "waiting": waiting, "dropped": dropped}

    async def change(self, told: dict[str, Any]) -> dict[str, Any]:
        """Take over other settings; raises InvalidSpec."""
        await asyncio.to_thread(self._file.change, told)
        self._news.set()
        return self.shown()

    async def test(self, target: str, user: str) -> None:
        """Send a notification to a target now; raises what came in the way."""
        check_target(target)
        now = self._clock.now()
        told = {
            "id": hashlib.sha256(f"{self._outbox.home}/test/{now}".encode()).hexdigest()[:32],
            "event": "test",
            "time": now,
            "text": f"a test that {user} asked for",
            "job": {},
        }
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, send, target, told, self._file.settings)
        except Retryable as error:
            raise Conflict(f"{_masked(target)} was not told: {error}") from None

    def tell(self, targets: Sequence[str], told: Mapping[str, Any], row: JobRow | None) -> int:
        """Send something to targets soon; ``owner``: those whom the owner of a job wants told.

        It carries its ``id`` and its ``event``. How many targets there are.
        """
        wanted = [target for target in targets if target != "owner"]
        if "owner" in targets and row is not None:
            wanted += [r.target for r in self._rules(row) if r.applies(str(told["event"]))]
        for target in dict.fromkeys(wanted):
            name = hashlib.sha256(f"{told['id']}/{target}".encode()).hexdigest()[:32]
            self._outbox.add(Delivery(name, target, {**told, "id": name}, self._clock.now()))
        if wanted:
            self._dirty = True
            self._news.set()
        return len(set(wanted))

    # -- what is to be told --------------------------------------------------------------------

    def _changed(self, change: ClusterChange) -> None:
        rows = {row.id: row for row in change.jobs}
        for event in change.events:
            if event.kind == "state" and event.new in _STATES and event.job in rows:
                self._tell(event, rows[event.job])
        self._outbox.seq = max(change.seq, self._outbox.seq or 0)

    def _catch_up(self, after: int) -> None:
        """Find what happened and was not noted: a server was killed in between."""
        line: int | None = None
        while True:
            query = EventQuery(after=after, after_n=line, kind="state", limit=_PAGE)
            lines: Sequence[EventRow] = self._store.events.find(query).items
            for event in lines:
                row = self._store.jobs.get(event.job) if event.new in _STATES else None
                if row is not None:
                    self._tell(event, row)
            if len(lines) < _PAGE:
                return
            after, line = lines[-1].seq, lines[-1].n

    def _tell(self, event: EventRow, row: JobRow) -> None:
        moment = _STATES[event.new] or event.new
        for rule in self._rules(row):
            if rule.applies(moment):
                place = f"{self._outbox.home}/{event.seq}/{event.n}/{rule.target}"
                name = hashlib.sha256(place.encode()).hexdigest()[:32]
                told = _document(name, moment, event, row.view)
                self._outbox.add(Delivery(name, rule.target, told, self._clock.now()))
                self._dirty = True
        if self._dirty:
            self._news.set()

    def _rules(self, row: JobRow) -> Sequence[NotifyRule]:
        """Who is told of a job: by its file, its user, its queue."""
        own = row.document.get("notify") or ()
        lines = tuple(map(str, own)) if isinstance(own, list | tuple) else (str(own),)
        return self._file.settings.rules(row.user, row.queue, lines)

    # -- sending -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._once()
            except RoostError as error:  # such as a full disk
                _log.warning("notifications have to wait: %s", error)
                await asyncio.sleep(_AGAIN_S)

    async def _once(self) -> None:
        self._news.clear()
        if self._dirty:
            await self._save()
        now = self._clock.now()
        due = [one for one in self._outbox.pending.values() if one.next_at <= now][:_SENDERS]
        if due:
            await asyncio.gather(*map(self._try, due))
            self._dirty = True
            return
        soonest = min((one.next_at for one in self._outbox.pending.values()), default=now + _SAVE_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), max(0.0, min(soonest - now, _SAVE_S)))
            return
        self._dirty = True  # the number of the last entry, now and then

    async def _try(self, delivery: Delivery) -> None:
        loop, settings = asyncio.get_running_loop(), self._file.settings
        try:
            await loop.run_in_executor(
                self._threads, send, delivery.target, delivery.told, settings
            )
        except Forbidden as error:
            self._outbox.drop(delivery, f"{_masked(delivery.target)}: {error}")
        except Retryable as error:
            self._failed(delivery, str(error))
        except Exception as error:  # noqa: BLE001 - one odd target must not keep the others waiting
            _log.exception("notification %s", delivery.id)
            self._failed(delivery, type(error).__name__)
        else:
            self._outbox.pending.pop(delivery.id, None)

    def _failed(self, delivery: Delivery, why: str) -> None:
        now = self._clock.now()
        delivery.tries += 1
        delivery.error = why
        delivery.next_at = now + min(_LATEST_S, _AGAIN_S * 2 ** (delivery.tries - 1))
        if delivery.next_at - delivery.made_at > _GIVEN_UP_S:
            self._outbox.drop(delivery, f"{_masked(delivery.target)}: {why}")

    async def _save(self) -> None:
        self._dirty, text = False, self._outbox.text()
        try:
            await asyncio.to_thread(self._outbox.save, text)
        except RoostError:
            self._dirty = True
            raise


def _masked(target: str) -> str:
    """A target without the part of a URL that may be a secret."""
    scheme, mark, rest = target.partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0]}/..." if mark else target


_TOLD = (
    *("id", "name", "user", "queue", "state", "reason", "exit_code", "attempt"),
    *("submitted_at", "started_at", "finished_at"),
)


def _document(name: str, moment: str, event: EventRow, view: Mapping[str, Any]) -> dict[str, Any]:
    why = f": {event.text}" if event.text else ""
    return {
        "id": name,
        "event": moment,
        "time": event.time,
        "text": f"{event.job} of {event.user} {moment}{why}",
        "job": {**{key: view.get(key) for key in _TOLD}, "state": event.new},
    }
