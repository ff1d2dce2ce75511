"""Controllers of volumes within a test, and a provisioner that does what it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

from tests.support.kubernetes.nodes import create
from tests.support.kubernetes.storage import DRIVER, volume

from roost.errors import Conflict, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    NODES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_CLAIMS,
    VOLUMES,
    Object,
    ResourceKind,
)
from roost.kubernetes.objects.storage import BIND_COMPLETED, SELECTED_NODE

#: What binds claims and volumes, makes claims for pods, and lets go of both.
CONTROLLERS = (
    "persistentvolume-binder-controller",
    "ephemeral-volume-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
)
_KINDS = {
    kind.kind: kind
    for kind in (
        *(STORAGE_CLASSES, CSI_DRIVERS, CSI_NODES, STORAGE_CAPACITIES, VOLUMES, VOLUME_CLAIMS),
        VOLUME_ATTACHMENTS,
    )
}
_LOOK_S = 0.05


async def store(api: Api, objects: Iterable[Object]) -> None:
    """Create objects of storage, what others refer to first."""
    found = list(objects)
    for kind in _KINDS.values():
        await create(api, kind, [one for one in found if one["kind"] == kind.kind])


async def are_bound(api: Api, names: Iterable[str]) -> bool:
    """Whether claims have their volumes."""
    found, _ = await api.list(VOLUME_CLAIMS)
    there = {one["metadata"]["name"]: one for one in found}
    return all(
        BIND_COMPLETED in (there[name]["metadata"].get("annotations") or {}) for name in names
    )


@contextlib.asynccontextmanager
async def provisioning(
    api: Api, broken: Callable[[str], bool] = lambda _: False, zone: str = "zone"
) -> AsyncIterator[list[str]]:
    """Make volumes for claims that name a node, in its zone; of broken nodes take the name off.

    What comes is a list of the nodes that were asked for, one after the other.
    """
    asked: list[str] = []

    async def run() -> None:
        done: set[tuple[str, str]] = set()
        while True:
            with contextlib.suppress(Conflict, NotFound):
                for one in (await api.list(VOLUME_CLAIMS))[0]:
                    await serve(one, done)
            await asyncio.sleep(_LOOK_S)

    async def serve(found: Object, done: set[tuple[str, str]]) -> None:
        meta = found["metadata"]
        at = (meta.get("annotations") or {}).get(SELECTED_NODE, "")
        key = (meta["uid"], at)
        if not at or key in done or found["spec"].get("volumeName"):
            return
        asked.append(at)
        if broken(at):
            note = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            await api.patch(VOLUME_CLAIMS, meta["name"], note, meta["namespace"])
            return
        done.add(key)
        await api.create(VOLUMES, await made(found, at))

    async def made(found: Object, at: str) -> Object:
        labels = (await api.get(NODES, at))["metadata"]["labels"]
        spec = found["spec"]
        one = volume(
            f"pvc-{found['metadata']['uid']}",
            at={zone: labels[zone]},
            storage_class=spec["storageClassName"],
            size=spec["resources"]["requests"]["storage"],
            claimed_by=found,
            accessModes=spec["accessModes"],
        )
        one["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": DRIVER}
        return one

    task = asyncio.create_task(run())
    try:
        yield asked
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def forget_storage(api: Api) -> None:
    """Remove all storage, whatever holds it; claims before their volumes."""
    for kind in reversed(_KINDS.values()):
        for one in (await api.list(kind))[0]:
            await _remove(api, kind, one)


async def _remove(api: Api, kind: ResourceKind, found: Object) -> None:
    meta = found["metadata"]
    namespace = meta.get("namespace", "")
    with contextlib.suppress(RoostError):
        await api.delete(kind, meta["name"], namespace)
        note = {"metadata": {"finalizers": None}}
        await api.patch(kind, meta["name"], note, namespace)
