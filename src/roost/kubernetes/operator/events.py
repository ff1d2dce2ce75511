"""What people are told: Events about objects, and on pods that wait the reason why.

Both are thinned out, for they cost the API server as much as a binding does: Events are sent so
many a second and the oldest dropped where there are too many; a pod gets a reason once it has
waited for a second, and another one only when it says something else, and not too often.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import secrets
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

from roost.core.reasons import NO_MATCH, Cause
from roost.errors import NotFound, RoostError
from roost.kubernetes.client.kinds import EVENTS, PODS, Object
from roost.kubernetes.operator.status import word

if TYPE_CHECKING:
    from roost.kubernetes.client.api import Api
    from roost.kubernetes.gangs.discovery import GangSource
    from roost.kubernetes.gangs.gang import PodGang
    from roost.kubernetes.operator.binding import Binder
    from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: The name under which Events are written.
CONTROLLER = "roost.dev/operator"
#: Events a second, how many may wait, and how long the same is not said again.
_EVENTS_PER_S = 20.0
_MOST_EVENTS = 1000
_SILENCE_S = 300.0
#: Words of the condition PodScheduled: there is no room (what autoscalers look for); something has
#: to be changed or to come first.
NO_ROOM, BLOCKED = "Unschedulable", "Blocked"
#: How long a pod has to wait before it is told why, and to wait for another reason.
_PATIENCE_S = 1.0
_AGAIN_S = 20.0
#: Pods that are told in one go, and gangs that are looked at.
_TOLD = 40
_LOOKED_AT = 1000
_LONGEST = 1000
#: What so many pods were told is remembered, beside those that wait.
_FORGET = 1000


class EventWriter:
    """Writes Events, some a second."""

    def __init__(self, api: Api, binder: Binder, instance: str) -> None:
        self._api, self._binder, self._instance = api, binder, instance
        self._queue: deque[tuple[Object, str, str, bool]] = deque(maxlen=_MOST_EVENTS)
        self._said: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._some = asyncio.Event()

    def put(self, about: Object, reason: str, text: str, *, warning: bool) -> None:
        """Write one soon."""
        said = (about["metadata"].get("uid", ""), reason, text)
        now = time.monotonic()
        if now - self._said.get(said, -_SILENCE_S) < _SILENCE_S:
            return
        self._said[said] = now
        if len(self._said) > 4 * _MOST_EVENTS:
            self._said.popitem(last=False)
        self._queue.append((about, reason, text, warning))
        self._some.set()

    async def run(self) -> None:
        """Write them for ever."""
        while True:
            await self._some.wait()
            while self._queue:
                await self._write(*self._queue.popleft())
                await asyncio.sleep(1.0 / _EVENTS_PER_S)
            self._some.clear()

    async def _write(self, about: Object, reason: str, text: str, warning: bool) -> None:  # noqa: FBT001 - as it was queued
        body = self._body(about, reason, text, warning=warning)
        try:
            await self._binder.write(lambda: self._api.create(EVENTS, body))
        except RoostError as error:
            _log.debug("an Event is lost: %s", error)
            self._binder.check()

    def _body(self, about: Object, reason: str, text: str, *, warning: bool) -> Object:
        meta = about["metadata"]
        namespace = meta.get("namespace") or "default"
        return {
            "metadata": {
                "name": f"{meta['name'][:200]}.{secrets.token_hex(8)}",
                "namespace": namespace,
            },
            "eventTime": _micro_time(),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:128],
            "action": "Scheduling",
            "reason": reason,
            "regarding": {
                "apiVersion": about.get("apiVersion", "v1"),
                "kind": about.get("kind", "Pod"),
                "namespace": meta.get("namespace", ""),
                "name": meta["name"],
                "uid": meta.get("uid", ""),
            },
            "note": text[:_LONGEST],
            "type": "Warning" if warning else "Normal",
        }


class WaitingReason(NamedTuple):
    """Why a pod waits: a word for programs, a sentence for people."""

    word: str
    sentence: str


_RESERVED = WaitingReason("Reserved", "a place is reserved for it, as soon as others have left")


class WaitingReasons:
    """Tells pods that wait why they do.

    Autoscalers buy nodes for pods that are ``Unschedulable``. So only those are called that for
    which there is no room; a pod that its queue, its order or its gang keeps has another word.
    """

    def __init__(self, context: OperatorContext, gangs: GangSource) -> None:
        self._context, self._gangs = context, gangs
        #: What each pod was told, and when; forgotten with those that do not wait any more.
        self._told: dict[str, tuple[WaitingReason, float]] = {}
        self._cursor = 0

    async def tell(self) -> None:
        """Tell some of those that wait for long enough and do not know why, or not any more."""
        told: list[tuple[Object, WaitingReason]] = []
        for gang in self._next():
            if self._context.now() - gang.since < _PATIENCE_S:
                continue
            why = self._reason(gang)
            pods = gang.waiting() if why is not None else []
            told += [(pod, why) for pod in pods if why is not None and self._is_news(pod, why)]
            if len(told) >= _TOLD:
                break
        forlorn = [
            (pod, WaitingReason(BLOCKED, text))
            for pod, text in self._gangs.forlorn(self._context.now())
        ]
        told += [(pod, why) for pod, why in forlorn if self._is_news(pod, why)][:_TOLD]
        for pod, why in told:
            self._told[pod["metadata"]["uid"]] = why, self._context.now()
            await self._say(pod, why)

    def _next(self) -> list[PodGang]:
        """Some of the gangs that wait, all of them in turn."""
        waiting = self._gangs.waiting
        if len(self._told) > _FORGET + 4 * len(waiting):
            self._told.clear()
        gangs = list(waiting.values())
        if len(gangs) <= _LOOKED_AT:
            return gangs
        self._cursor = self._cursor % len(gangs)
        some = gangs[self._cursor : self._cursor + _LOOKED_AT]
        self._cursor += len(some)
        return some

    def _reason(self, gang: PodGang) -> WaitingReason | None:
        if gang.problem:
            return WaitingReason(BLOCKED, gang.problem)
        core = self._context.core
        job = core.jobs.get(gang.id)
        if job is None:
            return None
        if job.run is not None:
            return _RESERVED if job.run.after else None
        found = core.explain(gang.id, limit=0)
        if found is None:
            return None
        cause = found.reason.cause
        roomless = cause in (Cause.CAPACITY, Cause.FRAGMENTATION)
        text = found.reason.text
        if text == NO_MATCH:
            text = self._context.mismatch(job.spec.resources.pool) or text
        if roomless and gang.kept_off:
            text = f"{text}; {gang.kept_off}"
        return WaitingReason(NO_ROOM if roomless else word(cause.token), text)

    def _is_news(self, pod: Object, why: WaitingReason) -> bool:
        said, at = self._told.get(pod["metadata"]["uid"], (None, 0.0))
        return said != why and (said is None or self._context.now() - at >= _AGAIN_S)

    async def _say(self, pod: Object, why: WaitingReason) -> None:
        meta = pod["metadata"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": why.word,
            "message": why.sentence[:_LONGEST],
            "lastTransitionTime": _micro_time()[:19] + "Z",
        }
        context = self._context
        try:
            await context.binder.write(
                lambda: context.api.patch(
                    PODS,
                    meta["name"],
                    {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [condition]}},
                    meta["namespace"],
                    sub="status",
                    strategy="strategic",
                )
            )
        except NotFound:
            return
        except RoostError as error:
            _log.debug("%s/%s is not told why it waits: %s", meta["namespace"], meta["name"], error)
            context.binder.check()
            return
        context.write_event(pod, "FailedScheduling", why.sentence, warning=True)


def _micro_time() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
