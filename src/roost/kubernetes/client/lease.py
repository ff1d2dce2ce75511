"""Leader election: one of several operators may act at a time, by a Lease that it renews.

Clocks of two machines are never compared. The holder counts its own time from before it asked for
a renewal, and must not act after ``renew_s`` of it; the others count theirs from when they saw the
lease change, and wait the whole ``lease_s``. What lies between is the margin for requests under way
and for clocks that do not run alike. Every write of the lease names the version that it replaces,
so two never both get it.

A process can be stopped for longer than its lease and wake without knowing it: so the leader
calls ``check`` immediately before each write, which looks at the clock and makes no request.

With an ``ApiThread`` all requests for the lease are made in that thread. Of what it writes the
leader's own thread reads two attributes, each of them set as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import math
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from roost.errors import Conflict, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.api_thread import ApiThread
from roost.kubernetes.client.kinds import LEASES, Object

log = logging.getLogger(__name__)

#: How long the lease is given back for, on the way out.
RELEASE_S = 2.0


class Deposed(Conflict):
    """We lead no longer, or cannot know it: nothing may be written."""


class LeaseCandidate:
    """A candidate for a lease, and its holder while ``leads``.

    ``identity`` is for people to read: something of chance is added, so that the lease of a
    process is never mistaken for that of its predecessor under the same name.
    """

    def __init__(  # noqa: PLR0913 - the three times belong together
        self,
        api: Api,
        name: str,
        namespace: str,
        identity: str,
        *,
        lease_s: float = 15.0,
        renew_s: float = 10.0,
        retry_s: float = 2.0,
        beside: ApiThread | None = None,
    ) -> None:
        if not 0.0 < retry_s < renew_s < lease_s:
            raise ValueError("a lease needs 0 < retry_s < renew_s < lease_s")
        self.identity = f"{identity}_{secrets.token_hex(4)}"
        self._api = api if beside is None else beside.api
        self._beside, self._name, self._namespace = beside, name, namespace
        self._lease_s, self._renew_s, self._retry_s = lease_s, renew_s, retry_s
        #: Labels and annotations that the lease carries from when we take it.
        self.metadata: Object = {}
        self._until = 0.0
        self._held: Object | None = None
        self._seen: Any = None
        self._seen_at = 0.0
        self._trouble = ""

    @property
    def leads(self) -> bool:
        """Whether we hold the lease, and may act now."""
        return self._held is not None and _now() < self._until

    def check(self) -> None:
        """Raise Deposed unless we may act at this moment; to be called before each write."""
        if self._held is None:
            raise Deposed(f"{self.identity} does not lead")
        if _now() >= self._until:
            raise Deposed(f"{self.identity} has not renewed its lease for {self._renew_s:g} s")

    async def run(self, on_lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, lead, and wait again when it is lost; until ``on_lead`` returns.

        ``on_lead`` is cancelled the moment the lease is lost or cannot be renewed in time. The
        lease is given back on the way out, once ``on_lead`` has ended.
        """
        try:
            while True:
                await self._run(self._acquire())
                if await self._lead(on_lead):
                    return
        finally:
            await self._run(self._release())

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what concerns the lease where its connection is."""
        await (work if self._beside is None else self._beside.run(work))

    # Waiting for it

    async def _acquire(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._renew_s):
                    if await self._attempt():
                        return
                self._trouble = ""
            except (RoostError, TimeoutError) as error:
                self._complain(error)
            await asyncio.sleep(self._retry_s * random.uniform(0.8, 1.2))  # noqa: S311 - no secret

    async def _attempt(self) -> bool:
        """Look at the lease, and take it if it is free."""
        found = await self._find()
        if found is not None and not self._is_free(found.get("spec") or {}):
            return False
        asked_at = _now()
        try:
            if found is None:
                meta = {"name": self._name, "namespace": self._namespace}
                self._take(await self._api.create(LEASES, self._ours({"metadata": meta})), asked_at)
            else:
                self._take(await self._api.replace(LEASES, self._ours(found)), asked_at)
        except Conflict:
            return False  # another was faster
        return self.leads

    async def _find(self) -> Object | None:
        try:
            return await self._api.get(LEASES, self._name, self._namespace)
        except NotFound:
            return None

    def _is_free(self, spec: Object) -> bool:
        """Whether it is free: given back, ours already, or unchanged for its whole time."""
        now = _now()
        if spec != self._seen:
            self._seen, self._seen_at = spec, now
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return True
        return now - self._seen_at >= float(spec.get("leaseDurationSeconds") or self._lease_s)

    def _take(self, held: Object, asked_at: float) -> None:
        self._held, self._until = held, asked_at + self._renew_s
        self._trouble = ""

    # Holding it

    async def _lead(self, on_lead: Callable[[], Awaitable[None]]) -> bool:
        """Lead until it is over; whether ``on_lead`` ended by itself."""
        log.info("%s leads (%s)", self.identity, self._name)
        work = asyncio.ensure_future(on_lead())
        renewal = asyncio.create_task(self._run(self._renew()))
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                with contextlib.suppress(Deposed):
                    await work
                    return True
            self._held = None
        finally:
            await _end(work, renewal)
        self._held = None  # a renewal in the other thread may have been about to end
        log.warning("%s leads no longer (%s)", self.identity, self._name)
        return False

    async def _renew(self) -> None:
        """Renew until that fails for too long, or another holds it."""
        while self._held is not None:
            await asyncio.sleep(min(self._retry_s, max(0.0, self._until - _now())))
            left = self._until - _now()
            if left <= 0.0:
                return
            try:
                async with asyncio.timeout(min(left, self._renew_s / 2.0)):
                    await self._renew_once()
            except (RoostError, TimeoutError) as error:
                self._complain(error)

    async def _renew_once(self) -> None:
        """One renewal; ``_held`` is None afterwards if the lease is another's."""
        held = self._held
        if held is None:
            return
        asked_at = _now()
        try:
            fresh = await self._api.replace(LEASES, self._ours(held))
        except (Conflict, NotFound):
            await self._look_again()
            return
        if asked_at < self._until:  # an answer to a process that slept comes too late
            self._take(fresh, asked_at)

    async def _look_again(self) -> None:
        """It was written or deleted: perhaps only a label, perhaps our own unanswered write."""
        found = await self._find()
        spec = found.get("spec") or {} if found is not None else {}
        self._held = found if spec.get("holderIdentity") == self.identity else None

    def _ours(self, found: Object) -> Object:
        """The lease as ours, with what others wrote on it beside what we say."""
        meta = dict(found["metadata"])
        for name, wanted in self.metadata.items():
            meta[name] = {**(meta.get(name) or {}), **wanted}
        return found | {"metadata": meta, "spec": self._spec(found.get("spec"))}

    def _spec(self, old: Object | None) -> Object:
        """The lease as ours; its times of day are for people only."""
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = old or {}
        spec = {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._lease_s),
            "renewTime": now,
        }
        if old.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + bool(old)
        return spec

    async def _release(self) -> None:
        """Give the lease back, so that the next leader need not wait for its end."""
        held, self._held = self._held, None
        if held is None:
            return
        spec = held["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
        with contextlib.suppress(RoostError, TimeoutError):
            async with asyncio.timeout(RELEASE_S):
                await self._api.replace(LEASES, held | {"spec": spec})

    def _complain(self, error: Exception) -> None:
        """Log a failure once, not each time."""
        trouble = str(error) or "no answer in time"
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("lease %s/%s: %s", self._namespace, self._name, trouble)


def _now() -> float:
    """Seconds that go on while the machine sleeps, where the system counts such."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


async def _end(*tasks: asyncio.Future[None]) -> None:
    """Cancel tasks and wait for their ends; errors are logged."""
    going = [task for task in tasks if not task.done()]
    for task in going:
        task.cancel()
    if going:
        await asyncio.wait(going)
    for task in going:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an error on the way out", exc_info=error)
