"""Asks for nodes on behalf of Jobs that wait for room, and withdraws what is asked no longer.

Every few seconds it compares what should be asked with the placeholders that there are. All that
it knows it can read from them, but for how often it asked in vain.

    asked      placeholders of the whole gang are there, since the oldest of them was made
    in vain    the Job did not start within ``PATIENCE_S``: they are withdrawn, and the Job rests
               for a minute, twice as long each time, up to half an hour
    launched   they go at once, before the Job's own pods ask for the same room
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from roost.core import Core, JobId, QueueId
from roost.errors import Fatal, RoostError
from roost.kubernetes.autoscaling.placeholders import job_name, placeholders
from roost.kubernetes.client.kinds import JOBS, PODS, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.jobs.blueprint import JobOwner, Site
from roost.kubernetes.jobs.pods import ensure
from roost.kubernetes.jobs.request import JobRequest, id_of
from roost.kubernetes.objects.pods import created_at, is_leaving
from roost.kubernetes.operator.status import stamp
from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: How long an autoscaler may take to bring nodes, in seconds: as Cluster Autoscaler itself.
PATIENCE_S = 900.0
#: How long a Job rests that asked in vain, the first time and at most, in seconds.
_REST_S = (60.0, 1800.0)
#: How often it is compared, in seconds.
_LOOK_S = 1.0
#: The most placeholders of all Jobs together; those that wait behind ask later.
_MOST = 1000


class NodeWish(NamedTuple):
    """A Job that lacks room for so many workers."""

    job: JobId
    asked: JobRequest
    workers: int


@dataclass(slots=True)
class _Asking:
    """How a Job fares that asks."""

    workers: int = 0
    since: float = 0.0
    in_vain: int = 0
    rests_until: float = 0.0


class NodeRequests:
    """The placeholders of all Jobs; ``wishes`` tells who lacks room, the first in line first."""

    def __init__(
        self,
        context: OperatorContext,
        site: Callable[[], Site],
        wishes: Callable[[], Iterable[NodeWish]],
        changed: Callable[[JobId], None],
    ) -> None:
        self._context, self._site, self._wishes = context, site, wishes
        #: Called with a Job of which something else is told now.
        self._changed = changed
        self._said: dict[JobId, str] = {}
        self._asking: dict[JobId, _Asking] = {}
        self._launched: set[JobId] = set()
        self._decided = asyncio.Event()
        #: Jobs with placeholders that nobody wanted the last time: one may only not be read yet.
        self._unwanted: set[JobId] = set()

    async def run(self) -> None:
        """Compare for as long as this process leads, once the core knows who waits."""
        await self._decided.wait()
        while True:
            await self._compare()
            await asyncio.sleep(_LOOK_S)

    async def withdraw_all(self) -> None:
        """Nothing is asked any more: remove what an operator left that did ask."""
        for job in self._there():
            await self._guarded(job, self._withdraw(job))

    def decided(self, launched: Iterable[JobId]) -> None:
        """Some Jobs have their nodes: what stood for them goes before their pods come."""
        self._decided.set()
        for job in launched:
            if job in self._asking:
                self._launched.add(job)
                self._context.spawn(self._withdraw(job), f"placeholders of {job}")

    def told(self, job: JobId) -> str:
        """What is asked for a Job, for people; empty if nothing is."""
        asking = self._asking.get(job)
        if asking is None:
            return ""
        if asking.rests_until:
            again = _clock(asking.rests_until)
            return f"no nodes came for it, they are asked for again at {again}"
        if not asking.since:
            return ""
        workers = "1 worker" if asking.workers == 1 else f"{asking.workers} workers"
        return f"nodes for {workers} were asked for at {_clock(asking.since)}"

    async def _compare(self) -> None:
        """Ask for what is wanted, and withdraw the rest."""
        wanted = {wish.job: wish for wish in affordable(self._context.core, self._wishes())}
        there = self._there()
        for job in [job for job in self._asking if job not in wanted]:
            del self._asking[job]
        self._launched &= wanted.keys()
        before, self._unwanted = self._unwanted, there.keys() - wanted.keys()
        for job in before & self._unwanted:
            await self._guarded(job, self._withdraw(job))
        for wish in wanted.values():
            if wish.job not in self._launched:
                await self._guarded(wish.job, self._ask(wish, there.get(wish.job, {})))
        said = {job: self.told(job) for job in self._asking}
        last, self._said = self._said, said
        for job in last.keys() | said.keys():
            if last.get(job, "") != said.get(job, ""):
                self._changed(job)

    async def _guarded(self, job: JobId, work: Awaitable[None]) -> None:
        """One Job of which something is refused must not keep the others from asking."""
        try:
            await work
        except (Deposed, Fatal):
            raise
        except RoostError as error:
            _log.warning("nodes for %s: %s", job, error)
            self._rest(job, str(error))

    def _there(self) -> dict[JobId, dict[str, Object]]:
        found: dict[JobId, dict[str, Object]] = {}
        for (namespace, name), pod in self._context.objects(PODS).items():
            if owner := job_name(pod):
                found.setdefault(id_of(namespace, owner), {})[name] = pod
        return found

    # -- one Job ---------------------------------------------------------------------------------

    async def _ask(self, wish: NodeWish, there: dict[str, Object]) -> None:
        now = self._context.now()
        asking = self._asking.setdefault(wish.job, _Asking())
        asking.workers = wish.workers
        if asking.rests_until > now:
            await self._withdraw(wish.job)
            return
        asking.rests_until = 0.0
        made = [created_at(pod) or now for pod in there.values() if not is_leaving(pod)]
        asking.since = min(made, default=0.0)
        if made and now - asking.since > PATIENCE_S:
            self._rest(wish.job, "")
            await self._withdraw(wish.job)
            return
        bodies = placeholders(wish.asked, wish.workers, self._site())
        names = {body["metadata"]["name"] for body in bodies}
        for name in there.keys() - names:
            await self._context.binder.remove(there[name])
        await self._make(wish, bodies, there)
        if not asking.since:
            asking.since = now
            self._tell(wish.asked.owner, self.told(wish.job))

    async def _make(self, wish: NodeWish, bodies: list[Object], there: dict[str, Object]) -> None:
        """Make those that are missing; only when all are there does any say that it waits."""
        owner, ready = wish.asked.owner, []
        for body in bodies:
            name = body["metadata"]["name"]
            found = there.get(name)
            if found is None or not owner.owns(found):
                found = await ensure(self._context, owner, PODS, body)
            if wish.job in self._launched:
                return
            if not _waits(found):
                ready.append(name)
        told = {"status": {"conditions": [_condition(self._context.now())]}}
        for name in ready:
            await self._context.binder.write(
                lambda name=name: self._context.api.patch(  # type: ignore[misc]
                    PODS, name, told, owner.namespace, sub="status"
                )
            )

    async def _withdraw(self, job: JobId) -> None:
        for pod in self._there().get(job, {}).values():
            if not is_leaving(pod):
                await self._context.binder.remove(pod)

    def _rest(self, job: JobId, why: str) -> None:
        asking = self._asking.get(job)
        if asking is None:
            return
        asking.in_vain += 1
        pause = min(_REST_S[0] * 2.0 ** (asking.in_vain - 1), _REST_S[1])
        asking.since, asking.rests_until = 0.0, self._context.now() + pause
        found = self._job(job)
        if found is not None:
            text = f"{self.told(job)}: {why}" if why else self.told(job)
            self._context.write_event(found, "NoNodesCame", text, warning=True)

    def _job(self, job: JobId) -> Object | None:
        namespace, _, name = job.partition(".")
        return self._context.objects(JOBS).get((namespace, name))

    def _tell(self, owner: JobOwner, text: str) -> None:
        found = self._context.objects(JOBS).get((owner.namespace, owner.name))
        if found is not None:
            self._context.write_event(found, "AskedForNodes", text)


def affordable(core: Core, wishes: Iterable[NodeWish]) -> Iterator[NodeWish]:
    """Of those in line, the ones that their queues would let run if they had nodes, up to a bound.

    A node for a Job that its queue then holds would be paid for and stand empty.
    """
    asked: dict[QueueId, int] = {}
    pods = 0
    for wish in wishes:
        spec = wish.asked.spec
        pods += wish.workers + sum(role.workers for role in spec.roles)
        if pods > _MOST:
            return
        queue = core.queues.get(spec.queue)
        limit = None if queue is None else queue.spec.limit_milli
        used = asked.get(spec.queue, 0 if queue is None else queue.used_milli)
        wanted = used + spec.gpu_milli(wish.workers)
        if limit is None or wanted <= limit:
            asked[spec.queue] = wanted
            yield wish


def _waits(pod: Object) -> bool:
    """Whether a pod says already that no node has room for it."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "PodScheduled" for one in conditions)


def _condition(now: float) -> Object:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "it stands for a worker of a Job that waits for nodes",
        "lastTransitionTime": stamp(now),
    }


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")
