"""The label of the pod that leads: the Service of the meeting sends workers there alone.

Every replica is ready, but only the leader listens for workers. A replica takes the label off when
it starts, for its container may have been restarted in a pod that led, puts it on when it leads,
and takes it off again when it does no longer.
"""

from __future__ import annotations

import asyncio
import logging

from roost.errors import NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import PODS

_log = logging.getLogger(__name__)

LEADER = "roost.dev/leader"
#: How long to wait before a label is written again that could not be, in seconds.
_AGAIN_S = 2.0
#: How long taking it off may take.
_PATIENCE_S = 2.0


class LeaderLabel:
    """Marks the pod of this process while it leads; outside of a pod there is nothing to mark."""

    def __init__(self, api: Api, namespace: str, pod: str) -> None:
        self._api, self._namespace, self._pod = api, namespace, pod

    async def put_on(self) -> None:
        """Mark it; tried until it is done, for no elastic job can meet without it."""
        trouble = ""
        while self._pod:
            try:
                await self._write("true")
            except RoostError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("pod %s cannot be marked as the leader: %s", self._pod, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def take_off(self) -> None:
        """Mark it no longer; where that fails, workers that come here are refused and try again."""
        if not self._pod:
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):  # the lease waits to be given back
                await self._write(None)
        except NotFound:
            pass  # it is being deleted
        except (RoostError, TimeoutError) as error:
            _log.warning("pod %s keeps the mark of the leader: %s", self._pod, error)

    async def _write(self, value: str | None) -> None:
        change = {"metadata": {"labels": {LEADER: value}}}
        await self._api.patch(PODS, self._pod, change, self._namespace)
