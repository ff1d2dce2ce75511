"""Requests about the pods of a Job: making them, evicting them, removing those of no run.

A request may be made twice, and a second one finds what the first one made: names follow from job,
attempt and rank. An object that is there is as good as one just made, if it is this very Job's.
What an earlier Job of the same name left behind is removed. What belongs to anything else stays,
and the job is told what is in its way.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence

from roost.core import JobId, NodeId, Protected, Run
from roost.errors import Conflict, Fatal, NotFound, Retryable, RoostError
from roost.kubernetes.client.api import Disrupted
from roost.kubernetes.client.kinds import JOBS, Object, ResourceKind
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.jobs.blueprint import JobOwner
from roost.kubernetes.objects.pods import is_leaving
from roost.kubernetes.operator.workload import OperatorContext

_PAUSE_S = (0.2, 5.0)


async def ensure(
    context: OperatorContext, owner: JobOwner, kind: ResourceKind, body: Object
) -> Object:
    """The object, made now or before.

    Raises Conflict where an object of another owner is in the way, Retryable where the outcome is
    not known, or what is in the way is about to go.
    """
    name = body["metadata"]["name"]
    try:
        return await context.binder.write(lambda: context.api.create(kind, body, owner.namespace))
    except Deposed:
        raise
    except Conflict:
        pass
    try:
        found = await context.api.get(kind, name, owner.namespace)
    except NotFound:
        raise Retryable(f"{kind.kind} {name} has just gone", _PAUSE_S[0]) from None
    if owner.owns(found):
        if found["metadata"].get("deletionTimestamp"):
            raise Retryable(f"{kind.kind} {name} is about to go", 1.0)
        return found
    if not _left_behind(owner, found):
        raise Conflict(f"a {kind.kind} named {name} is there that is not this job's")
    uid = found["metadata"]["uid"]
    await context.binder.write(lambda: context.api.delete(kind, name, owner.namespace, uid=uid))
    raise Retryable(f"{kind.kind} {name} of an earlier job is about to go", _PAUSE_S[0])


async def pause(error: Retryable, tried: int) -> None:
    """Wait before the next try: what the server says, or longer each time."""
    longest = min(_PAUSE_S[0] * 2.0 ** min(tried, 10), _PAUSE_S[1])
    await asyncio.sleep(max(min(error.after, _PAUSE_S[1]), longest) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def _left_behind(owner: JobOwner, found: Object) -> bool:
    """Whether an object belonged to an earlier Job of the same name."""
    return any(
        one.get("apiVersion") == JOBS.api_version
        and one.get("kind") == JOBS.kind
        and one.get("name") == owner.name
        for one in found["metadata"].get("ownerReferences") or ()
    )


_log = logging.getLogger(__name__)

#: How often pods are asked to go that could not be asked.
_AGAIN_S = 1.0


class OrphanPods:
    """Removes pods, and shuns the nodes where some are."""

    def __init__(self, context: OperatorContext, job: JobId) -> None:
        self._context, self._job = context, job
        self._sweeping = False
        self._aside: frozenset[NodeId] = frozenset()

    def sweep(self, pods: Iterable[Object]) -> None:
        """Delete pods that were not asked to leave yet."""
        found = [pod for pod in pods if not is_leaving(pod)]
        if found and not self._sweeping:
            self._sweeping = True
            self._context.spawn(self._remove(found), f"what is left of {self._job}")

    def keep_off(self, nodes: Iterable[str]) -> None:
        """Shun these nodes and no others."""
        wanted = frozenset(map(NodeId, nodes))
        for node in self._aside - wanted:
            self._context.reopen_node(node, self._job)
        for node in wanted - self._aside:
            self._context.close_node(node, self._job)
        self._aside = wanted

    async def _remove(self, pods: list[Object]) -> None:
        try:
            for pod in pods:
                await self._context.binder.remove(pod)
        except (Deposed, Fatal):
            raise
        except RoostError as error:  # those that are left are asked again
            _log.warning("what is left of %s cannot be removed: %s", self._job, error)
        finally:
            self._sweeping = False
            self._context.requeue_at(self._job, self._context.now() + _AGAIN_S)


class RunEviction:
    """A run that was asked to make room; ``forbids`` says why budgets do not let pods go."""

    def __init__(
        self, context: OperatorContext, run: Run, forbids: Callable[[Sequence[Object]], str]
    ) -> None:
        self._context, self._run, self._forbids = context, run, forbids
        self._refused = ""
        #: Whether a pod has left, so that all others have to.
        self.has_begun = False

    @property
    def stays(self) -> bool:
        """Whether the core has taken it back."""
        run = self._run
        return self._context.core.runs.get(run.id) is run and run.booked

    @property
    def is_gentle(self) -> bool:
        """Whether budgets count: not for what its user ends, nor for what is over."""
        return not (self.has_begun or self._run.job.cancelling or self._run.job.state.over)

    async def ask(self, pods: Sequence[Object]) -> set[str]:
        """Have pods evicted, and say which go; if none may, tell the core."""
        going: set[str] = set()
        why = self._forbids(pods) if not any(map(is_leaving, pods)) else ""
        if not why:
            refusals = await asyncio.gather(*(self._evict(pod, going) for pod in pods))
            why = next(filter(None, refusals), "")
        self.has_begun = self.has_begun or bool(going)
        if why and not self.has_begun:
            self._context.report(Protected(self._context.now(), self._run.job.id, why))
        return going

    async def _evict(self, pod: Object, going: set[str]) -> str:
        """Why a pod may not go; empty if it does."""
        try:
            if not is_leaving(pod):
                await self._context.binder.evict(pod)
            going.add(pod["metadata"]["name"])
        except Disrupted as error:
            if str(error) != self._refused:
                self._refused = str(error)
                self._context.write_event(pod, "EvictionRefused", str(error), warning=True)
            return str(error)
        except Retryable as error:
            _log.info("%s: %s", self._run.id, error)
        return ""
