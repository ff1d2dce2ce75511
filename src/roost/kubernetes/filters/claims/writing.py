"""Writes what was decided on claims, and takes it back.

kube-scheduler and the resourceclaim controller keep to the same protocol. A claim gets a finalizer
before it gets devices, so that it cannot go while they are in use. Devices and the first pod come
in one write. Each write names the version that it was made for: whoever is second starts anew.
When no pod is left the resourceclaim controller takes the devices away; Roost does so only with
what it has just written for a pod that was not bound, and with what nobody uses.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from roost.errors import Conflict, NotFound, Retryable, RoostError
from roost.kubernetes.client.kinds import RESOURCE_CLAIMS, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.filters.claims.books import (
    ClaimBooks,
    Decision,
    Key,
    allocation,
    consumers,
    is_free_but_for,
)
from roost.kubernetes.objects.values import text

if TYPE_CHECKING:
    from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: Keeps a claim that has devices from being deleted; the resourceclaim controller takes it off.
FINALIZER = "resource.kubernetes.io/delete-protection"
#: How often a write is tried that others came before.
_TRIES = 5
#: How long a place that could not be had is left alone, in seconds.
_AGAIN_S = 1.0


class ClaimWriter:
    """Writes on claims, one at a time for each."""

    def __init__(self, context: OperatorContext, books: ClaimBooks) -> None:
        self._context, self._books = context, books
        self._locks: dict[Key, asyncio.Lock] = {}
        self._waiting: dict[Key, int] = {}

    async def reserve(self, key: Key, uid: str, decision: Decision | None, pod: Object) -> bool:
        """Give a claim its devices, and reserve it for a pod; whether they were given now.

        No decision: it has devices. Retryable: somebody else was there before.
        """
        async with _Turn(self, key):
            return await self._tried(key, uid, lambda found: self._reserved(found, decision, pod))

    async def give_back(self, key: Key, uid: str, pod_uid: str, *, devices: bool) -> None:
        """Forget that a claim is reserved for a pod; with its devices, if nobody else has it."""
        async with _Turn(self, key):
            await self._tried(key, uid, lambda found: self._unreserved(found, pod_uid, devices))

    async def _tried(self, key: Key, uid: str, write: Any) -> bool:
        found = self._books.claims.get(key)
        for _ in range(_TRIES):
            if found is None or found["metadata"].get("uid") != uid:
                raise Retryable(f"claim {key[1]} is gone", _AGAIN_S)
            try:
                return bool(await write(found))
            except Deposed:
                raise
            except Conflict:
                found = await self._context.api.get(RESOURCE_CLAIMS, key[1], key[0])
                self._books.learn(key, found)
        raise Retryable(f"claim {key[1]} is written by others all the time", _AGAIN_S)

    async def _reserved(self, found: Object, decision: Decision | None, pod: Object) -> bool:
        meta, pod_uid = found["metadata"], pod["metadata"]["uid"]
        if meta.get("deletionTimestamp"):
            raise Retryable(f"claim {meta['name']} is being deleted", _AGAIN_S)
        has = allocation(found)
        gives = decision is not None and not _is_same(has, decision.allocation)
        if has is None and decision is None:
            raise Retryable(f"claim {meta['name']} has no devices any more", _AGAIN_S)
        if gives and has is not None:
            if not is_free_but_for(found, pod_uid):
                raise Retryable(f"claim {meta['name']} was given other devices", _AGAIN_S)
            found = await self._patch_status(found, _without(found, []))
        there = consumers(found)
        if not gives and any(text(one, "uid") == pod_uid for one in there):
            return False
        status: Object = {"reservedFor": [*there, _consumer(pod)]}
        if gives and decision is not None:
            if FINALIZER not in (found["metadata"].get("finalizers") or ()):
                names = [*(found["metadata"].get("finalizers") or ()), FINALIZER]
                found = await self._patch(found, {"metadata": {"finalizers": names}})
            status = {"allocation": decision.allocation, "reservedFor": [_consumer(pod)]}
        await self._patch_status(found, status)
        return gives

    async def _unreserved(self, found: Object, pod_uid: str, devices: bool) -> bool:  # noqa: FBT001 - told by name
        there = consumers(found)
        left = [one for one in there if text(one, "uid") != pod_uid]
        if len(left) == len(there):
            return False
        takes = devices and not left
        status = _without(found, left) if takes else {"reservedFor": left}
        await self._patch_status(found, status)
        return True

    async def _patch(self, found: Object, change: Object) -> Object:
        """The claim after a change of this very version of it."""
        meta, body = found["metadata"], _of_version(found, change)
        return self._learnt(
            await self._context.binder.write(
                lambda: self._context.api.patch(
                    RESOURCE_CLAIMS, meta["name"], body, meta["namespace"]
                )
            )
        )

    async def _patch_status(self, found: Object, status: Object) -> Object:
        """The same of its status."""
        meta, body = found["metadata"], _of_version(found, {"status": status})
        return self._learnt(
            await self._context.binder.write(
                lambda: self._context.api.patch(
                    RESOURCE_CLAIMS, meta["name"], body, meta["namespace"], sub="status"
                )
            )
        )

    def _learnt(self, answer: Object) -> Object:
        """A claim as the server has it now; the books know it from here on."""
        meta = answer["metadata"]
        self._books.learn((meta["namespace"], meta["name"]), answer)
        return answer

    # -- taking turns ----------------------------------------------------------------------------

    def lock(self, key: Key) -> asyncio.Lock:
        """The lock of a claim, for somebody who waits for it."""
        self._waiting[key] = self._waiting.get(key, 0) + 1
        return self._locks.setdefault(key, asyncio.Lock())

    def unlocked(self, key: Key) -> None:
        """Somebody has the lock no longer, and does not wait for it."""
        self._waiting[key] -= 1
        if not self._waiting[key]:
            del self._waiting[key], self._locks[key]


class _Turn:
    """The turn of one who writes on a claim: pods of a gang may share one."""

    def __init__(self, writer: ClaimWriter, key: Key) -> None:
        self._writer, self._key = writer, key

    async def __aenter__(self) -> None:
        self._lock = self._writer.lock(self._key)
        try:
            await self._lock.acquire()
        except BaseException:
            self._writer.unlocked(self._key)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._writer.unlocked(self._key)


async def quietly(work: Any, what: str) -> None:
    """Take something back as far as it can be: whatever goes wrong, the next one finds it."""
    try:
        await work
    except Deposed:
        raise
    except NotFound:
        pass
    except RoostError as error:
        _log.info("%s: %s", what, error)


def _consumer(pod: Object) -> Object:
    meta = pod["metadata"]
    return {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}


def _without(found: Object, left: list[Object]) -> Object:
    """A status without devices, as a patch."""
    gone: Object = {"allocation": None, "reservedFor": left or None}
    if (found.get("status") or {}).get("devices"):
        gone["devices"] = None
    return gone


def _is_same(has: Object | None, wanted: Object) -> bool:
    """Whether a claim has these very devices."""
    if has is None:
        return False
    return _results(has) == _results(wanted)


def _results(given: Object) -> list[tuple[object, ...]]:
    names = ("request", "driver", "pool", "device")
    results = (given.get("devices") or {}).get("results") or ()
    return [tuple(one.get(name) for name in names) for one in results]


def _of_version(found: Object, change: Object) -> Object:
    """A change that is made to this version of an object alone."""
    meta = found["metadata"]
    own = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    return {**change, "metadata": {**change.get("metadata", {}), **own}}
