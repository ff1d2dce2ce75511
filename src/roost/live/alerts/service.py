"""Looks at the cluster again and again, and does what the rules of alerts say.

1. what is measured is gathered on the driver's loop: a few numbers of each run and node
2. rules find conditions in it; one that lasts as long as its rule says fires, once
3. a firing is a line in the event log, goes to viewers, and then its actions are taken
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from roost.api.alerts import AlertList, AlertView
from roost.core import Event, JobId, NodeCordoned, NodeId
from roost.errors import RoostError
from roost.jobs.change_feed import ClusterChange
from roost.live.alerts.alert_log import AlertLog
from roost.live.alerts.findings import ClusterFigures, RunFigures
from roost.live.alerts.rules import AlertRule, RuleFile, shown
from roost.live.snapshots import StoreQuery
from roost.store.rows import EventRow, JobRow

if TYPE_CHECKING:
    from roost.live.curve_files import CurveFiles
    from roost.live.driver import Driver
    from roost.live.notifications.service import NotificationService

_log = logging.getLogger(__name__)

#: How often to look, in seconds.
EVERY_S = 10.0
#: Jobs of a line of waiting ones that are looked at for the oldest.
_HEAD = 200
_ITSELF = "roost"


class AlertCommands(Protocol):
    """What an alert can do to a cluster, and what it looks at."""

    async def suspend(self, job: JobId, actor: str) -> JobRow:
        """Take a job off its devices."""
        ...

    async def care_for(self, event: Callable[[float], Event], actor: str) -> None:
        """Take a machine out of service."""
        ...

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes with their devices."""
        ...


class AlertService:
    """The alerts of one server."""

    def __init__(
        self,
        driver: Driver,
        commands: AlertCommands,
        curves: CurveFiles,
        notifications: NotificationService,
        ask: StoreQuery,
    ) -> None:
        self._driver, self._commands, self._curves = driver, commands, curves
        self._notifications, self._ask = notifications, ask
        self._home = driver.private_files.home
        self._file = RuleFile(self._home / "alerts.yaml")
        self._log = AlertLog(self._home / "alerts.json")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what was written, and look again and again from now on."""
        await asyncio.to_thread(self._log.load)
        await asyncio.to_thread(self._file.refresh)
        self._task = asyncio.create_task(self._run(), name="alerts")

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # -- questions -----------------------------------------------------------------------------

    def firing(self) -> list[AlertView]:
        """What fires now."""
        return list(self._log.firing.values())

    def shown(self) -> AlertList:
        """What fires and fired, and the rules."""
        return AlertList(
            tuple(self.firing()),
            tuple(reversed(self._log.ended)),
            tuple(map(shown, self._file.rules)),
            self._file.problem,
        )

    async def change(self, told: dict[str, Any], actor: str) -> AlertList:
        """Take over other rules; raises InvalidSpec."""
        await asyncio.to_thread(self._file.change, told)
        await self._record(EventRow(0, 0, self._now(), actor, kind="alert", text="rules changed"))
        await self.look()
        return self.shown()

    # -- looking -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - the next look may do better
                _log.exception("alerts could not be looked for")

    async def look(self) -> None:
        """Look once, and act on what began and what ended."""
        await asyncio.to_thread(self._file.refresh)
        seen = self._figures(await asyncio.to_thread(self._disk_free))
        news = self._log.look(self._file.rules, seen, self._now())
        if not news.fired and not news.ended:
            return
        # Before anything is done: a server that is killed in between does nothing twice.
        await asyncio.to_thread(self._log.save, self._log.text())
        for alert in news.ended:
            await self._record(_line(alert, f"over: {alert.text}", alert.ended_at or 0.0))
        for alert, rule in news.fired:
            await self._record(_line(alert, alert.text, alert.fired_at))
            self._log.done(alert, [said async for said in self._act(alert, rule)])
        await asyncio.to_thread(self._log.save, self._log.text())

    def _figures(self, disk_free: float | None) -> ClusterFigures:
        driver = self._driver
        oldest: dict[str, float] = {}
        for line in driver.core.waiting.open:
            # In the order of a line, which is mostly that of age; there may be very many behind.
            for _, _, job in line.entries[:_HEAD]:
                queue = job.spec.queue
                oldest[queue] = min(oldest.get(queue, job.submitted_at), job.submitted_at)
        health = driver.health
        return ClusterFigures(
            list(self._runs()),
            self._commands.nodes(),
            oldest,
            disk_free,
            "" if health.ok else health.why,
        )

    def _runs(self) -> Iterable[RunFigures]:
        for run in self._driver.core.runs.values():
            record = self._driver.records.get(run.job.id)
            if record is None or run.started_at is None or run.parked:
                continue
            spec = run.job.spec
            yield RunFigures(
                run.job.id,
                record.user,
                spec.queue,
                run.started_at,
                spec.gpus,
                record.busy,
                self._curves.moved_at(run.job.id),
            )

    def _disk_free(self) -> float | None:
        try:
            found = shutil.disk_usage(self._home)
        except OSError:
            return None
        return found.free / found.total if found.total else None

    # -- acting --------------------------------------------------------------------------------

    async def _act(self, alert: AlertView, rule: AlertRule) -> AsyncIterator[str]:
        """Take the actions of a rule; what came of each, in words."""
        for action in rule.do:
            try:
                yield await self._acts[action](self, alert, rule)
            except RoostError as error:
                _log.warning("alert %s: %s was not done: %s", alert.rule, action, error)
                yield f"{action}: {error}"

    async def _tell(self, alert: AlertView, rule: AlertRule) -> str:
        row = await self._ask(self._driver.store.jobs.get, alert.job) if alert.job else None
        told = {
            "id": hashlib.sha256(f"alert/{alert.id}".encode()).hexdigest()[:32],
            "event": "alert",
            "time": alert.fired_at,
            "text": f"{alert.rule}: {alert.text}",
            "job": {} if row is None else {"id": row.id, "name": row.name, "user": row.user},
        }
        number = self._notifications.tell(rule.to, told, row)
        return f"told {number} target{'' if number == 1 else 's'}" if number else "shown"

    async def _suspend(self, alert: AlertView, _rule: AlertRule) -> str:
        await self._commands.suspend(JobId(alert.job), _ITSELF)
        return "suspended"

    async def _drain(self, alert: AlertView, _rule: AlertRule) -> str:
        node, why = NodeId(alert.node), f"alert {alert.rule}: {alert.text}"[:200]
        await self._commands.care_for(
            lambda now: NodeCordoned(now, node, why, _ITSELF, drain=True), _ITSELF
        )
        return "drained"

    _acts: Mapping[str, Callable[[AlertService, AlertView, AlertRule], Awaitable[str]]] = {
        "tell": _tell,
        "suspend": _suspend,
        "drain": _drain,
    }

    async def _record(self, line: EventRow) -> None:
        """Write a line of the event log, and let viewers know."""
        try:
            written = await self._ask(self._driver.store.note, line)
        except RoostError as error:
            _log.warning("an alert is not in the event log: %s", error)
            written = replace(line, seq=self._driver.seq)
        self._driver.feed.publish(ClusterChange(self._driver.seq, events=[written]))

    def _now(self) -> float:
        return self._driver.clock.now()


def _line(alert: AlertView, text: str, time: float) -> EventRow:
    return EventRow(
        0, 0, time, _ITSELF, alert.job, alert.user, alert.node, "alert", new=alert.rule, text=text
    )
