"""Having claims bound before their pod is: the scheduler's part of the protocol.

A volume that is there is given to the claim by a reference in it; a claim that is to be provisioned
is told for which node. The rest is done by the controllers of volumes and by provisioners, and
waited for. A provisioner that gives up takes the node off the claim again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from roost.core import NodeId
from roost.errors import Conflict, NotFound, Retryable
from roost.kubernetes.client.kinds import NODES, VOLUME_CLAIMS, VOLUMES, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.filters.volumes.catalog import StorageCatalog
from roost.kubernetes.filters.volumes.decisions import VolumeDecisions
from roost.kubernetes.filters.volumes.matching import VolumeChoice
from roost.kubernetes.objects.pods import uid_of
from roost.kubernetes.objects.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    Volume,
    VolumeClaim,
)
from roost.kubernetes.objects.values import labels_of

if TYPE_CHECKING:
    from roost.kubernetes.operator.workload import OperatorContext

#: How long volumes may take until they are bound, in seconds.
BIND_S = 600.0
#: When a place is looked for anew after volumes were not bound.
_AGAIN_S = 1.0


class VolumeBinder:
    """Has the claims of pods bound, and waits for it."""

    def __init__(
        self,
        context: OperatorContext,
        catalog: StorageCatalog,
        decisions: VolumeDecisions,
        bind_s: float,
    ) -> None:
        self._context, self._catalog, self._decisions = context, catalog, decisions
        self._bind_s = bind_s
        self._news = asyncio.Event()

    def news(self) -> None:
        """Something changed that may be waited for."""
        self._news.set()
        self._news = asyncio.Event()

    async def bind(self, pod: Object, node: NodeId) -> None:
        """Bind all claims of a pod; raises Retryable if that cannot be, now or there."""
        meta = pod["metadata"]
        key = str(meta.get("namespace") or ""), str(meta["name"])
        choices = self._decisions.of(key)
        if not choices:
            if choices is None:
                raise Retryable("its volumes are others' by now", _AGAIN_S)
            return

        def still() -> None:
            if self._decisions.of(key) is not choices:
                raise Retryable("it is not to go there any more", _AGAIN_S)

        try:
            async with asyncio.timeout(self._bind_s):
                await asyncio.gather(*(self._bind_one(pod, node, one, still) for one in choices))
        except (Conflict, NotFound) as error:
            if isinstance(error, Deposed):
                raise
            raise Retryable(f"a volume was changed meanwhile: {error}", _AGAIN_S) from error
        except TimeoutError:
            names = ", ".join(one.claim.name for one in choices)
            why = f"no volume was bound to {names} in {self._bind_s / 60:g} min"
            self._context.write_event(pod, "VolumesNotBound", why, warning=True)
            raise Retryable(why, _AGAIN_S) from None

    async def _bind_one(
        self, pod: Object, node: NodeId, choice: VolumeChoice, still: Callable[[], None]
    ) -> None:
        claim = await self._made(choice.claim, uid_of(pod), still)
        if choice.volume and not claim.is_bound:
            await self._decisions.once(choice, lambda: self._give(choice.volume, claim))
            claim = await self._until_given(choice.volume, claim, still)
        elif not claim.is_bound:
            claim = await self._provisioned(pod, claim, choice, still)
        await self._check_reach(claim, node, still)

    async def _made(self, wanted: VolumeClaim, pod: str, still: Callable[[], None]) -> VolumeClaim:
        """A claim as it is now; that of an ephemeral volume is made after its pod."""
        while True:
            still()
            news = self._news
            found = self._catalog.claims.get(wanted.key)
            if found is not None and (
                found.uid == wanted.uid if wanted.uid else found.owner == pod
            ):
                return found
            if wanted.uid:
                raise Retryable(f"claim {wanted.name} is gone", _AGAIN_S)
            await news.wait()

    # -- a volume that is there ------------------------------------------------------------------

    async def _give(self, name: str, claim: VolumeClaim) -> int:
        volume = self._volume(name, claim)
        if volume.claim is not None and volume.claim.uid:
            return _number(volume.version)
        reference = {
            "apiVersion": VOLUME_CLAIMS.api_version,
            "kind": VOLUME_CLAIMS.kind,
            "namespace": claim.key[0],
            "name": claim.name,
            "uid": claim.uid,
            "resourceVersion": claim.version,
        }
        # Whoever bound it says whether it may be unbound: not what a person wrote.
        notes = {} if volume.claim is not None else {BOUND_BY_CONTROLLER: "yes"}
        meta = {"uid": volume.uid, "resourceVersion": volume.version, "annotations": notes}
        body = {"metadata": meta, "spec": {"claimRef": reference}}
        context = self._context
        found = await context.binder.write(lambda: context.api.patch(VOLUMES, name, body))
        return _number(found["metadata"].get("resourceVersion"))

    async def _until_given(
        self, name: str, claim: VolumeClaim, still: Callable[[], None]
    ) -> VolumeClaim:
        began = self._volume(name, claim)
        while True:
            still()
            news = self._news
            now = self._present(claim)
            if now.is_bound and now.volume == name:
                return now
            if now.volume not in ("", name):
                raise Retryable(f"claim {claim.name} was bound to another volume", _AGAIN_S)
            volume = self._volume(name, claim)
            if volume.claim is None and volume.version != began.version:
                raise Retryable(f"volume {name} was taken from claim {claim.name}", _AGAIN_S)
            await news.wait()

    def _volume(self, name: str, claim: VolumeClaim) -> Volume:
        volume = self._catalog.volumes.get(name)
        if volume is None:
            raise Retryable(f"volume {name} is gone", _AGAIN_S)
        if volume.claim is not None and not volume.claim.means(claim):
            raise Retryable(f"volume {name} was given to another claim", _AGAIN_S)
        return volume

    def _present(self, claim: VolumeClaim) -> VolumeClaim:
        found = self._catalog.claims.get(claim.key)
        if found is None or found.uid != claim.uid or found.is_leaving:
            raise Retryable(f"claim {claim.name} is gone, or about to go", _AGAIN_S)
        return found

    # -- a volume that has to be made ------------------------------------------------------------

    async def _provisioned(
        self, pod: Object, claim: VolumeClaim, choice: VolumeChoice, still: Callable[[], None]
    ) -> VolumeClaim:
        written = 0
        if claim.selected_node != choice.node:
            written = await self._decisions.once(choice, lambda: self._select(claim, choice.node))
            text = f"waits for the volume of claim {claim.name}, which is made for {choice.node}"
            self._context.write_event(pod, "WaitsForVolumes", text)
        while True:
            still()
            news = self._news
            now = self._present(claim)
            is_known = _number(now.version) >= written
            if is_known and now.is_bound:
                return now
            if is_known and now.selected_node != choice.node:
                self._decisions.fail(claim.key, choice.node)
                why = f"no volume could be made for claim {claim.name} and node {choice.node}"
                self._context.write_event(pod, "VolumeNotMade", why, warning=True)
                raise Retryable(why, _AGAIN_S)
            await news.wait()

    async def _select(self, claim: VolumeClaim, node: NodeId) -> int:
        """Say for which node a volume is wanted; the version of the claim that says so."""
        # Another scheduler may have told the provisioner of another node: the version tells.
        meta = {"uid": claim.uid, "resourceVersion": claim.version}
        body = {"metadata": {**meta, "annotations": {SELECTED_NODE: node}}}
        context, (namespace, name) = self._context, claim.key
        found = await context.binder.write(
            lambda: context.api.patch(VOLUME_CLAIMS, name, body, namespace)
        )
        return _number(found["metadata"].get("resourceVersion"))

    async def _check_reach(
        self, claim: VolumeClaim, node: NodeId, still: Callable[[], None]
    ) -> None:
        """Whether a volume can be had where its pod goes; not all are made for a single node."""
        while (volume := self._catalog.volumes.get(claim.volume)) is None:
            still()
            await self._news.wait()
        found = self._context.objects(NODES).get(("", node))
        if found is None or not volume.is_near(labels_of(found)):
            raise Retryable(f"volume {volume.name} was made where {node} is not", _AGAIN_S)


def _number(version: object) -> int:
    return int(version) if isinstance(version, str) and version.isdecimal() else 0
