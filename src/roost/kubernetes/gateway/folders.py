"""Folders that jobs are sent with, kept in the namespace of a cluster (``objects.folder_parcels``).

What a client sends stays here, in memory, until the job is submitted; then all of it that the
namespace lacks goes into new parcels, the Job names the parcels that it needs, and becomes one of
their owners. A parcel without an owner is left by a submission that was cut off: after a day the
next one removes it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from roost.api.blob_parts import BlobPart, blob_parts
from roost.api.manifests import (
    CLUSTER_BOUND,
    FolderManifest,
    check_bound,
    decode_manifest,
    manifest_id,
)
from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, Object
from roost.kubernetes.objects.folder_parcels import (
    LABEL,
    SIZE,
    VALUE,
    FolderParcel,
    content_in,
    covering,
    parcel_objects,
    parcel_of,
)
from roost.kubernetes.operator.status import moment

#: What the folders of all jobs of a namespace may hold: the API server has little room.
MOST_BYTES = 128 << 20
#: How long a parcel without an owner is kept.
KEPT_S = 86_400.0

#: A folder that changes a little each time comes to be in many parcels: beyond so many, contents
#: are sent again, together. With the new ones there are never more than a Job can name (96).
_MOST_REUSED = 24
_SELECTOR = f"{LABEL}={VALUE}"

Found = TypeVar("Found")


class ClusterFolders:
    """The folders of a namespace; ``offer`` and ``add`` block: not for the thread of the loop."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.time) -> None:
        self._api, self._clock = api, clock
        self._loop = asyncio.get_running_loop()
        self._manifests: dict[str, bytes] = {}
        self._drafts: dict[str, bytearray] = {}
        self._came: dict[str, bytes] = {}

    # -- what a client sends -------------------------------------------------------------------

    def offer(self, user: str, text: bytes, *, keep: bool) -> dict[str, Any]:  # noqa: ARG002 - of the namespace
        """What is lacking of a folder; ``keep`` it, so that it can be sent. Raises InvalidSpec."""
        manifest, name = decode_manifest(text), manifest_id(text)
        check_bound(manifest, CLUSTER_BOUND)
        sizes = manifest.blobs
        _, lacking = covering(self._wait(self._parcels()), sizes, _MOST_REUSED)
        if keep:
            self._manifests[name] = text
        missing = [{"sha256": one, "size_bytes": sizes[one]} for one in sorted(lacking)]
        return {
            "id": name,
            "files": len(manifest.files),
            "size_bytes": manifest.size_bytes,
            "missing": [{**one, "have_bytes": 0} for one in missing],
        }

    def add(self, user: str, body: bytes) -> dict[str, int]:  # noqa: ARG002 - of the namespace
        """Take parts of contents; raises Conflict or InvalidSpec."""
        done = [self._add(part) for part in blob_parts(body)]
        return {"whole": sum(done), "parts": len(done) - sum(done)}

    def _add(self, part: BlobPart) -> bool:
        """Take a part; whether the content is whole with it."""
        draft = self._drafts.setdefault(part.sha256, bytearray())
        if part.offset != len(draft):
            raise Conflict(f"{len(draft)} bytes have come, and not {part.offset}: submit again")
        held = sum(map(len, self._drafts.values())) + sum(map(len, self._came.values()))
        if held + len(part.body) > CLUSTER_BOUND.size_bytes:
            raise InvalidSpec(f"more than {CLUSTER_BOUND.size_bytes >> 20} MiB are sent at once")
        draft += part.body
        if len(draft) < part.size_bytes:
            return False
        content = bytes(self._drafts.pop(part.sha256))
        if hashlib.sha256(content).hexdigest() != part.sha256:
            raise InvalidSpec("a file is not what its name says: submit again")
        self._came[part.sha256] = content
        return True

    def _wait(self, work: Coroutine[Any, Any, Found]) -> Found:
        """What the loop of the cluster comes to; called on another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # -- what a job needs ----------------------------------------------------------------------

    async def stow(self, name: str) -> tuple[str, ...]:
        """Have a folder in the namespace, whole; the parcels that it is in.

        Raises NotFound for one that nobody sent, Conflict where something of it is gone meanwhile
        or there is no room.
        """
        parcels = await self._parcels(sweep=True)
        here = dict(self._came)
        if name in self._manifests:
            here[name] = self._manifests[name]
        manifest = await self._manifest(name, parcels)
        contents = {name: None, **dict.fromkeys(manifest.blobs)}
        found, lacking = covering(parcels, contents, _MOST_REUSED)
        more, gone = covering(parcels, lacking - here.keys())
        if gone:
            raise Conflict(f"{len(gone)} files of the folder are not here any more: submit again")
        new = list(
            parcel_objects(
                ((one, here[one]) for one in contents if one in lacking and one in here),
                self._api.namespace,
            )
        )
        self._check_room(parcels, new)
        for body in new:
            with suppress(Conflict):  # the same from another submission
                await self._api.create(CONFIG_MAPS, body)
        names = [*(one.name for one in (*found, *more)), *(one["metadata"]["name"] for one in new)]
        return tuple(dict.fromkeys(names))

    async def hold(self, parcels: Iterable[str], owner: Object) -> None:
        """Let a Job be an owner of its parcels; raises Conflict if one is gone."""
        # Merged by the uid: owners that others add at the same time stay.
        change = {"metadata": {"ownerReferences": [owner]}}
        for name in parcels:
            try:
                await self._api.patch(
                    CONFIG_MAPS, name, change, self._api.namespace, strategy="strategic"
                )
            except NotFound:
                raise Conflict(
                    "a part of the folder went with another job meanwhile: submit again"
                ) from None

    async def _manifest(self, name: str, parcels: Sequence[FolderParcel]) -> FolderManifest:
        if name in self._manifests:
            return decode_manifest(self._manifests[name])
        for parcel in parcels:
            if any(key.startswith(name) for key in parcel.keys):
                text = content_in(
                    await self._api.get(CONFIG_MAPS, parcel.name, self._api.namespace), name
                )
                if text is not None:
                    return decode_manifest(text)
        raise NotFound(
            f"the folder {name[:12]} is not in namespace {self._api.namespace!r} any more: "
            "submit the job from your folder again"
        )

    async def _parcels(self, *, sweep: bool = False) -> list[FolderParcel]:
        """What is in the namespace, without what was left behind long ago; ``sweep`` removes it."""
        try:
            found = await self._api.list_metadata(
                CONFIG_MAPS, self._api.namespace, labels=_SELECTOR
            )
        except Forbidden as error:
            raise Forbidden(f"{error}; without it no folder can be sent (--no-send)") from None
        parcels, oldest = [parcel_of(one) for one in found], self._clock() - KEPT_S
        left = [one for one in parcels if not one.is_owned and _made(one) < oldest]
        for parcel in left if sweep else ():
            with suppress(RoostError):  # it is not in our way
                await self._api.delete(CONFIG_MAPS, parcel.name, self._api.namespace)
        return [one for one in parcels if one not in left]

    def _check_room(self, parcels: Iterable[FolderParcel], new: Sequence[Object]) -> None:
        used = sum(one.size_bytes for one in parcels)
        size = sum(int(one["metadata"]["annotations"][SIZE]) for one in new)
        if used + size > MOST_BYTES:
            raise Conflict(
                f"the folders of jobs in namespace {self._api.namespace!r} have {used >> 20} MiB, "
                f"and at most {MOST_BYTES >> 20} MiB are kept there: delete jobs that are over"
            )


def _made(parcel: FolderParcel) -> float:
    return moment(parcel.made_at) or 0.0
