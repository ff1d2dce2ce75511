"""How an autoscaler is told what a waiting Job needs, and how it answers.

A way keeps objects on the server and nothing else: what is asked can be read from them, by the next
leader too. When to ask and for how long is decided in ``node_requests``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from roost.core import JobId
from roost.kubernetes.autoscaling.placeholders import job_name, placeholders
from roost.kubernetes.client.kinds import PODS, Object
from roost.kubernetes.jobs.blueprint import JobOwner, Site
from roost.kubernetes.jobs.pods import ensure
from roost.kubernetes.jobs.request import JobRequest, id_of
from roost.kubernetes.objects.pods import is_leaving
from roost.kubernetes.operator.status import stamp
from roost.kubernetes.operator.workload import OperatorContext

#: Objects by name.
Asked = Mapping[str, Object]


class NodeWish(NamedTuple):
    """A Job that lacks room for so many workers."""

    job: JobId
    asked: JobRequest
    workers: int

    @property
    def owner(self) -> JobOwner:
        """The Job that all that is made for it belongs to."""
        return self.asked.owner


class AutoscalerAnswer(NamedTuple):
    """What an autoscaler says: a sentence for people, and whether no nodes will come."""

    sentence: str = ""
    refused: bool = False


class AskingWay(Protocol):
    """One way of asking."""

    @property
    def gives_way(self) -> bool:
        """Whether what was asked takes the room of the Job's own pods, and so goes before them."""
        ...

    def there(self) -> dict[JobId, dict[str, Object]]:
        """What is asked, by Job and name."""
        ...

    async def ask(self, wish: NodeWish, there: Asked, stopped: Callable[[], bool]) -> None:
        """Ask for what is wanted and is not there, until ``stopped``."""
        ...

    async def withdraw(self, there: Asked) -> None:
        """Ask no longer."""
        ...

    def answer(self, there: Asked) -> AutoscalerAnswer:
        """What came of it so far."""
        ...


class Placeholders:
    """Asks by pods that nobody runs: any autoscaler sees them; none answers but with nodes."""

    gives_way = True

    def __init__(self, context: OperatorContext, site: Callable[[], Site]) -> None:
        self._context, self._site = context, site

    def there(self) -> dict[JobId, dict[str, Object]]:
        """All placeholders."""
        return by_job(self._context.objects(PODS), job_name)

    async def ask(self, wish: NodeWish, there: Asked, stopped: Callable[[], bool]) -> None:
        """Make those that are missing; only when all are there does any say that it waits."""
        bodies = placeholders(wish.asked, wish.workers, self._site())
        names = {body["metadata"]["name"] for body in bodies}
        for name in there.keys() - names:
            await self._context.binder.remove(there[name])
        owner, ready = wish.owner, []
        for body in bodies:
            name = body["metadata"]["name"]
            found = there.get(name)
            if found is None or not owner.owns(found):
                found = await ensure(self._context, owner, PODS, body)
            if stopped():
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

    async def withdraw(self, there: Asked) -> None:
        """Remove them."""
        for pod in there.values():
            if not is_leaving(pod):
                await self._context.binder.remove(pod)

    def answer(self, there: Asked) -> AutoscalerAnswer:
        """Nothing is said on placeholders."""
        del there
        return AutoscalerAnswer()


def by_job(
    objects: Mapping[tuple[str, str], Object], job_of: Callable[[Object], str]
) -> dict[JobId, dict[str, Object]]:
    """Objects by the Job that they are for, where ``job_of`` names one."""
    found: dict[JobId, dict[str, Object]] = {}
    for (namespace, name), one in objects.items():
        if job := job_of(one):
            found.setdefault(id_of(namespace, job), {})[name] = one
    return found


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
