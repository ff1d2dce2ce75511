"""Asks for nodes on behalf of Jobs that wait for room, and withdraws what is asked no longer.

Every few seconds it compares what should be asked with what is there: placeholders, or a
ProvisioningRequest. All that it knows it can read from them, but for how often it asked in vain.

    asked      they are there for the whole gang, since the oldest of them was made
    in vain    the autoscaler says that no nodes will come, or the Job did not start within
               ``PATIENCE_S``: they are withdrawn, and the Job rests for a minute, twice as long
               each time, up to half an hour
    launched   placeholders go at once, before the Job's own pods ask for the same room; a
               ProvisioningRequest goes when the Job waits no longer

Where the server has no ProvisioningRequests, Jobs ask by placeholders until it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from roost.core import Core, JobId, QueueId
from roost.core.quota_tree import Account, Amounts
from roost.core.spec import JobSpec
from roost.errors import Fatal, NotFound, RoostError
from roost.kubernetes.autoscaling.provisioning import ProvisioningRequests
from roost.kubernetes.autoscaling.ways import AskingWay, NodeWish, Placeholders
from roost.kubernetes.client.kinds import JOBS, PROVISIONING_REQUESTS, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.jobs.blueprint import JobOwner, Site
from roost.kubernetes.objects.pods import created_at, is_leaving
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
#: How often it is looked whether the server has ProvisioningRequests by now, in seconds.
_DISCOVER_S = 30.0


@dataclass(slots=True)
class _Asking:
    """How a Job fares that asks."""

    workers: int = 0
    since: float = 0.0
    in_vain: int = 0
    rests_until: float = 0.0
    #: What the autoscaler says of it.
    answer: str = ""


class NodeRequests:
    """What all Jobs ask for; ``wishes`` tells who lacks room, the first in line first."""

    def __init__(
        self,
        context: OperatorContext,
        site: Callable[[], Site],
        wishes: Callable[[], Iterable[NodeWish]],
        changed: Callable[[JobId], None],
    ) -> None:
        self._context, self._wishes = context, wishes
        self._placeholders: AskingWay = Placeholders(context, site)
        self._requests: AskingWay = ProvisioningRequests(context, site)
        self._site = site
        self._way: AskingWay = self._placeholders
        #: When the server was last asked for ProvisioningRequests, and whether they lacked then.
        self._discovered_at, self._lacks = -_DISCOVER_S, False
        #: Called with a Job of which something else is told now.
        self._changed = changed
        self._said: dict[JobId, str] = {}
        self._asking: dict[JobId, _Asking] = {}
        self._launched: set[JobId] = set()
        self._decided = asyncio.Event()
        #: Jobs for which is asked what nobody wanted the last time: one may only not be read yet.
        self._unwanted: set[JobId] = set()

    async def run(self) -> None:
        """Compare for as long as this process leads, once the core knows who waits."""
        await self._decided.wait()
        while True:
            await self._choose_way()
            await self._compare()
            await asyncio.sleep(_LOOK_S)

    async def withdraw_all(self) -> None:
        """Nothing is asked any more: remove what an operator left that did ask."""
        for way in (self._placeholders, self._requests):
            await self._withdraw_of(way)

    async def _withdraw_of(self, way: AskingWay) -> None:
        for job, there in way.there().items():
            await self._guarded(job, way.withdraw(there))

    async def _choose_way(self) -> None:
        """Ask by ProvisioningRequests if that is wanted and the server has them."""
        if not self._site().provisioning:
            await self._withdraw_of(self._requests)
            return
        now = self._context.now()
        if now - self._discovered_at >= _DISCOVER_S:
            try:
                has = await self._context.api.discover(PROVISIONING_REQUESTS)
            except RoostError as error:
                _log.info("ProvisioningRequests: %s", error)
                return
            self._discovered_at = now
            if not has and not self._lacks:
                _log.warning(
                    "the cluster has no %s/%s: Jobs ask for nodes by placeholders until it has",
                    PROVISIONING_REQUESTS.resource,
                    PROVISIONING_REQUESTS.version,
                )
            self._lacks = not has
        self._way = self._placeholders if self._lacks else self._requests
        if not self._lacks:
            await self._withdraw_of(self._placeholders)

    def decided(self, launched: Iterable[JobId]) -> None:
        """Some Jobs have their nodes: what stood for them goes before their pods come."""
        self._decided.set()
        for job in launched:
            if job in self._asking:
                self._launched.add(job)
                if self._way.gives_way:
                    self._context.spawn(self._withdraw(job), f"placeholders of {job}")

    def told(self, job: JobId) -> str:
        """What is asked for a Job, for people; empty if nothing is."""
        asking = self._asking.get(job)
        if asking is None:
            return ""
        if asking.rests_until:
            again = f"they are asked for again at {_clock(asking.rests_until)}"
            return f"{asking.answer or 'no nodes came for it'}, {again}"
        if not asking.since:
            return ""
        workers = "1 worker" if asking.workers == 1 else f"{asking.workers} workers"
        said = f"nodes for {workers} were asked for at {_clock(asking.since)}"
        return f"{said}, {asking.answer}" if asking.answer else said

    async def _compare(self) -> None:
        """Ask for what is wanted, and withdraw the rest."""
        wanted = {wish.job: wish for wish in affordable(self._context.core, self._wishes())}
        there = self._way.there()
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
            if isinstance(error, NotFound):  # perhaps the kind is no more
                self._discovered_at = -_DISCOVER_S
            _log.warning("nodes for %s: %s", job, error)
            self._rest(job, str(error))

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
            asking.answer = ""
            self._rest(wish.job, "")
            await self._withdraw(wish.job)
            return
        answer = self._way.answer(there)
        asking.answer = answer.sentence
        if answer.refused:
            self._rest(wish.job, "")
            await self._withdraw(wish.job)
            return
        await self._way.ask(wish, there, lambda: wish.job in self._launched)
        if not asking.since:
            asking.since = now
            self._tell(wish.asked.owner, self.told(wish.job))

    async def _withdraw(self, job: JobId) -> None:
        await self._way.withdraw(self._way.there().get(job, {}))

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


def affordable(core: Core, wishes: Iterable[NodeWish]) -> list[NodeWish]:
    """Of those in line, the ones that their queues would let run if they had nodes, up to a bound.

    A node for a Job that its queue then holds would be paid for and stand empty.
    """
    asked: dict[QueueId, int] = {}
    booked: list[tuple[Account, Amounts]] = []
    found: list[NodeWish] = []
    pods = 0
    try:
        for wish in wishes:
            spec = wish.asked.spec
            pods += wish.workers + sum(role.workers for role in spec.roles)
            if pods > _MOST:
                break
            queue = core.queues.get(spec.queue)
            limit = None if queue is None else queue.spec.limit_milli
            used = asked.get(spec.queue, 0 if queue is None else queue.used_milli)
            wanted = used + spec.gpu_milli(wish.workers)
            if limit is not None and wanted > limit:
                continue
            account = None if queue is None else queue.account
            if account is not None:
                claim = _claim(account, spec)
                if claim is None:
                    continue
                account.book(claim)
                booked.append((account, claim))
            asked[spec.queue] = wanted
            found.append(wish)
    finally:
        # Those before others in line count as if they ran, but only for this question.
        for account, claim in booked:
            account.book(claim, -1)
    return found


def _claim(account: Account, spec: JobSpec) -> Amounts | None:
    """What a Job would take of the quotas of its queue's tree; None if there is no room for it.

    What its queue was promised it gets back from those that borrowed it.
    """
    claims = list(account.claims(spec)) or [account.asked(spec, spec.workers.min)]
    return next((each for each in claims if account.admits(each) or account.promised(each)), None)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")
