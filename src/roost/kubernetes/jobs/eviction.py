"""How pods of a run leave for the sake of others: evicted, as far as disruption budgets allow it.

The core chooses whom to disturb, and knows of budgets a moment late. So the server has the last
word: where it refuses and nobody has left yet, the core hears that the job is protected, and the
run stays where it is. A gang of which one has left is broken: then the others go like after any
other end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from roost.core import Protected, Run
from roost.errors import Retryable
from roost.kubernetes.client.api import Disrupted
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.pods import is_leaving
from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)


class RunEviction:
    """A run that was asked to make room; ``forbids`` says why budgets do not let pods go."""

    def __init__(
        self, context: OperatorContext, run: Run, forbids: Callable[[Sequence[Object]], str]
    ) -> None:
        self._context, self._run, self._forbids = context, run, forbids
        self._refused = ""
        #: Whether somebody has left, so that all others have to.
        self.has_begun = False

    @property
    def stays(self) -> bool:
        """Whether the core has taken it back."""
        run = self._run
        return self._context.core.runs.get(run.id) is run and run.booked

    @property
    def is_gentle(self) -> bool:
        """Whether budgets count: not for what its user ends, nor for what nobody can end."""
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
