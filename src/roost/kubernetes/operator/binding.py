"""Writes to the API server: so many at once, and none without the lease.

A binding is asked for once and never assumed to have failed. The server binds a pod only if it is
bound to no node yet, so a second request does no harm; but a request with a lost answer leaves
open what happened, and then the pod is read before anything else is done.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable
from roost.kubernetes.client.api import Api, Object, Unpermitted
from roost.kubernetes.client.kinds import PODS
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.client.transport import GUARD

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: How often a binding is tried that the server refuses though the pod is free.
_PATIENCE = 3
#: Of so many requests at once one may be mere telling.
_TOLD = 8
#: How long to wait before a request with a lost answer is made again, at most, in seconds.
_PAUSE_S = 5.0


class Binding(NamedTuple):
    """A pod, the node that it goes to, and what is written on it there."""

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]


class BindingFate(StrEnum):
    """What became of a binding."""

    BOUND = "bound"
    #: The pod is no more, or about to go.
    GONE = "gone"
    #: Another scheduler bound it, to another node.
    ELSEWHERE = "elsewhere"
    #: The server does not let it be bound.
    REFUSED = "refused"


class Binder:
    """Makes requests that change something; ``check`` raises when this process may not."""

    def __init__(self, api: Api, check: Callable[[], None], at_once: int = 48) -> None:
        self._api = api
        #: Raises Deposed when this process may make no requests any more.
        self.check = check
        self._slots = asyncio.Semaphore(at_once)
        self._telling = asyncio.Semaphore(max(1, at_once // _TOLD))
        #: What became of requests: ``bound``, ``conflict``, ``unknown``, ``evicted`` and so on.
        self.counts: Counter[str] = Counter()
        #: What this process is not allowed to do, as far as it was told by name.
        self._denied: set[tuple[str, str]] = set()
        self._refused: dict[str, str] = {}

    async def write(self, request: Callable[[], Awaitable[_T]]) -> _T:
        """Make one request when it is its turn, if this process may still make any.

        A permission that is missing is named once in the log.
        """
        async with self._slots:
            self.check()
            guard = GUARD.set(self.check)
            try:
                return await request()
            except Unpermitted as error:
                if (error.verb, error.resource) not in self._denied:
                    self._denied.add((error.verb, error.resource))
                    _log.warning("a permission is missing: %s", error)
                raise
            finally:
                GUARD.reset(guard)

    async def tell(self, request: Callable[[], Awaitable[_T]]) -> _T:
        """Make a request that nothing waits for, few at a time.

        To change the status of a custom resource costs the server four times what a pod costs it:
        of a thousand Jobs that come at once all are to run before all are told that they do.
        """
        async with self._telling:
            return await self.write(request)

    async def bind(self, binding: Binding) -> BindingFate:
        """Bind a pod, and say what became of it; returns when that is certain."""
        fate = None
        refusals = 0
        while fate is None:
            fate = await self._tried(binding)
            if fate is BindingFate.REFUSED and refusals < _PATIENCE:
                refusals += 1
                await asyncio.sleep(0.1 * refusals)
                fate = None
        self.counts[fate.value] += 1
        return fate

    def why_refused(self, uid: str) -> str:
        """Why the last binding of a pod was refused, as the API server says; told once."""
        return self._refused.pop(uid, "")

    async def evict(self, pod: Object, grace_s: int | None = None) -> None:
        """Ask a pod to leave; raises Disrupted where a budget does not allow it now."""
        meta = pod["metadata"]
        try:
            await self.write(
                lambda: self._api.evict(meta["namespace"], meta["name"], meta["uid"], grace_s)
            )
        except NotFound:
            return
        self.counts["evicted"] += 1

    async def remove(self, pod: Object, grace_s: int | None = None) -> None:
        """Delete a pod, whatever budgets say; one that is gone or another by now is left alone."""
        meta = pod["metadata"]
        try:
            await self.write(
                lambda: self._api.delete(
                    PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_s=grace_s
                )
            )
        except Deposed:
            raise
        except Conflict:  # another pod of that name
            return
        self.counts["removed"] += 1

    async def _tried(self, binding: Binding) -> BindingFate | None:
        """One attempt; None: nothing happened, and the pod is free."""
        namespace, name, uid, node, annotations = binding
        try:
            await self.write(lambda: self._api.bind(namespace, name, uid, node, annotations))
        except NotFound:
            return BindingFate.GONE
        except Deposed:
            raise
        except Conflict:
            self.counts["conflict"] += 1
            return await self._found(binding) or BindingFate.REFUSED
        except (InvalidSpec, Forbidden) as error:
            if self._refused.get(uid) != str(error):
                _log.warning("%s/%s cannot be bound to %s: %s", namespace, name, node, error)
            self._refused[uid] = str(error)
            return BindingFate.REFUSED
        except Retryable as error:
            self.counts["unknown"] += 1
            await self._pause(error)
            return await self._found(binding)
        return BindingFate.BOUND

    async def _found(self, binding: Binding) -> BindingFate | None:
        """What a pod itself says; None: it is bound to no node."""
        while True:
            try:
                async with self._slots:
                    pod = await self._api.get(PODS, binding.name, binding.namespace)
                break
            except NotFound:
                return BindingFate.GONE
            except Retryable as error:
                await self._pause(error)
        if pod["metadata"]["uid"] != binding.uid:
            return BindingFate.GONE
        node = pod["spec"].get("nodeName")
        if node:
            return BindingFate.BOUND if node == binding.node else BindingFate.ELSEWHERE
        return BindingFate.GONE if pod["metadata"].get("deletionTimestamp") else None

    @staticmethod
    async def _pause(error: Retryable) -> None:
        await asyncio.sleep(min(max(error.after, 0.1), _PAUSE_S) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
