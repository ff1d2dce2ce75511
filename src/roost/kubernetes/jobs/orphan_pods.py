"""Pods of a Job that are of no run: they go, and until then nothing new goes to where they are.

The core knows nothing of them: a request that came late made them, their run ended while nobody
led, or there was no room for it in the books. They take devices all the same, so their nodes are
shunned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from roost.core import JobId, NodeId
from roost.errors import Fatal, RoostError
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.objects.pods import is_leaving
from roost.kubernetes.operator.workload import OperatorContext

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
        """Let pods go that nobody asked to yet."""
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
