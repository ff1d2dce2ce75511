"""The objects of one kind in some namespaces: a mirror for each, and one view of them all.

For an operator that may read these namespaces and no others. Each mirror has its own watch, so one
namespace that is gone or may not be read stops none of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.client.mirror import Changed, Key, Mirror

#: How the trouble of a mirror begins that lacks a permission.
UNPERMITTED = "no permission to"


class NamespacedMirror:
    """Mirrors of a kind by namespace; to its readers one mirror."""

    def __init__(
        self,
        api: Api,
        kind: ResourceKind,
        changed: Changed,
        namespaces: Iterable[str],
        trim: Callable[[Object], Object] | None = None,
    ) -> None:
        self.kind = kind
        self.objects: dict[Key, Object] = {}
        self._changed = changed
        self.parts = {
            name: Mirror(api, kind, self._note, namespace=name, trim=trim) for name in namespaces
        }

    @property
    def synced(self) -> asyncio.Event:
        """Set once all objects were read: that of a mirror that is late, if there is one."""
        events = [part.synced for part in self.parts.values()]
        return next((event for event in events if not event.is_set()), events[-1])

    @property
    def trouble(self) -> str:
        """What is wrong with one of them; empty if nothing is."""
        return next((part.trouble for part in self.parts.values() if part.trouble), "")

    @property
    def stale_s(self) -> float:
        """Seconds since the server was last heard of, by the one that hears least."""
        return max(part.stale_s for part in self.parts.values())

    async def run(self) -> None:
        """Keep the objects as the server has them, until cancelled."""
        tasks = [asyncio.create_task(part.run()) for part in self.parts.values()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def refresh(self) -> None:
        """Know at least what the server knows now."""
        await asyncio.gather(*(part.refresh() for part in self.parts.values()))

    def _note(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self.objects[_key(new)] = new
        elif old is not None:
            self.objects.pop(_key(old), None)
        self._changed(old, new)


def is_unpermitted(mirror: Mirror) -> bool:
    """Whether a mirror has nothing because it may not read."""
    return not mirror.synced.is_set() and mirror.trouble.startswith(UNPERMITTED)


def _key(found: Object) -> Key:
    meta = found["metadata"]
    return meta.get("namespace", ""), meta["name"]
