"""What was decided about claims before the server knows, and where making volumes has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from roost.core import NodeId
from roost.kubernetes.filters.volumes.matching import VolumeChoice
from roost.kubernetes.filters.volumes.users import PodKey
from roost.kubernetes.objects.storage import ClaimKey, VolumeClaim

#: Of so many claims it is remembered where volumes could not be made.
_MOST = 1024


class VolumeDecisions:
    """Choices for claims, each held by the pods that it was made for."""

    def __init__(self) -> None:
        self.choices: dict[ClaimKey, VolumeChoice] = {}
        self._held: dict[PodKey, tuple[VolumeChoice, ...]] = {}
        self._holders: dict[ClaimKey, set[PodKey]] = {}
        #: Writes for claims, one at a time, and the versions that they made.
        self._locks: dict[ClaimKey, asyncio.Lock] = {}
        self._written: dict[ClaimKey, int] = {}
        self._failed: dict[ClaimKey, set[NodeId]] = {}

    def hold(self, pod: PodKey, choices: Sequence[VolumeChoice]) -> None:
        """Keep to these choices for as long as a pod needs them."""
        self._held[pod] = tuple(choices)
        for choice in choices:
            self.choices.setdefault(choice.claim.key, choice)
            self._holders.setdefault(choice.claim.key, set()).add(pod)

    def of(self, pod: PodKey) -> tuple[VolumeChoice, ...] | None:
        """What was chosen for a pod; None: nothing, or it is not wanted any more."""
        return self._held.get(pod)

    def drop(self, pod: PodKey) -> bool:
        """Forget what was chosen for a pod, unless others need it; whether there was anything."""
        held = self._held.pop(pod, None)
        for choice in held or ():
            holders = self._holders[choice.claim.key]
            holders.discard(pod)
            if not holders:
                del self._holders[choice.claim.key]
                for known in (self.choices, self._locks, self._written):
                    known.pop(choice.claim.key, None)
        return held is not None

    async def once(self, choice: VolumeChoice, write: Callable[[], Awaitable[int]]) -> int:
        """Make the write that a choice takes, however many pods share it; the version it made."""
        key = choice.claim.key
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._written.get(key)
            if found is None:
                found = await write()
                if self.choices.get(key) is choice:
                    self._written[key] = found
        return found

    def fail(self, claim: ClaimKey, node: NodeId) -> None:
        """A volume could not be made for a node."""
        self._failed.setdefault(claim, set()).add(node)
        if len(self._failed) > _MOST:
            del self._failed[next(iter(self._failed))]

    def has_failed(self, claims: Iterable[VolumeClaim], node: NodeId) -> bool:
        """Whether a volume for one of these claims could not be made for a node."""
        return bool(self._failed) and any(
            node in self._failed.get(claim.key, ()) for claim in claims
        )

    def forgive(self, claims: Iterable[VolumeClaim]) -> None:
        """Try all nodes again."""
        for claim in claims:
            self._failed.pop(claim.key, None)
