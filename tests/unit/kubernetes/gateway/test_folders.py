"""Folders of a namespace: what is sent, what is reused, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from roost.api.folders import FolderView
from roost.api.manifests import manifest_id
from roost.api.schema import decode
from roost.client.folder_scan import FolderScan, scan
from roost.client.uploads import _bodies
from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, Object, ResourceKind
from roost.kubernetes.gateway import folders
from roost.kubernetes.gateway.folders import ClusterFolders

MADE_AT = 1_767_225_600.0
OWNER = {"apiVersion": "roost.dev/v1alpha1", "kind": "Job", "name": "train", "uid": "u1"}


class Namespace:
    """The ConfigMaps of a namespace, as an API server has them."""

    namespace = "lab"

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.may_list = True

    async def list_metadata(
        self, kind: ResourceKind, namespace: str, *, labels: str
    ) -> list[Object]:
        assert (kind, namespace, labels) == (CONFIG_MAPS, "lab", "roost.dev/folder=parcel")
        if not self.may_list:
            raise Forbidden("no permission to list configmaps")
        return [{"metadata": one["metadata"]} for one in self.objects.values()]

    async def get(self, _kind: ResourceKind, name: str, _namespace: str) -> Object:
        return self.objects[name]

    async def create(self, _kind: ResourceKind, body: Object) -> Object:
        name = body["metadata"]["name"]
        if name in self.objects:
            raise Conflict("there is one")
        body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        self.objects[name] = body
        return body

    async def patch(
        self, _kind: ResourceKind, name: str, body: Object, _namespace: str, *, strategy: str
    ) -> Object:
        assert strategy == "strategic"
        if name not in self.objects:
            raise NotFound(name)
        owners = self.objects[name]["metadata"].setdefault("ownerReferences", [])
        owners += body["metadata"]["ownerReferences"]
        return self.objects[name]

    async def delete(self, _kind: ResourceKind, name: str, _namespace: str) -> None:
        del self.objects[name]


def run(work: Callable[[], Any]) -> Any:
    return asyncio.run(work())


def folders_of(space: Namespace, now: float = MADE_AT) -> ClusterFolders:
    return ClusterFolders(cast("Api", space), lambda: now)


async def sent(space: Namespace, place: Path, now: float = MADE_AT) -> tuple[str, ...]:
    """Send a folder as a client does, and stow it."""
    found = folders_of(space, now)
    looked = scan(place)
    await offered(found, looked)
    return await found.stow(looked.id)


async def offered(found: ClusterFolders, looked: FolderScan) -> list[int]:
    """Offer a folder and send what is lacking; the sizes of that."""
    view = decode(FolderView, await asyncio.to_thread(found.offer, "ada", looked.text, keep=True))
    for body in _bodies(looked, view):
        await asyncio.to_thread(found.add, "ada", body)
    return [blob.size_bytes for blob in view.missing]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for number in range(5):
        (tmp_path / f"{number}.py").write_text(f"print({number})")
    return tmp_path


def test_only_what_changed_is_kept_anew(place: Path) -> None:
    async def scenario() -> None:
        space = Namespace()
        first = await sent(space, place)
        assert await sent(space, place) == first
        (place / "0.py").write_text("print('changed')")
        found = folders_of(space)
        assert await offered(found, scan(place)) == [len("print('changed')")]
        second = await found.stow(scan(place).id)
        assert second[: len(first)] == first
        assert set(space.objects) == {*first, *second}
        # By the name alone: a job that runs again.
        again = await folders_of(space).stow(scan(place).id)
        assert set(again) == set(second)

    run(scenario)


def test_a_folder_that_changes_often_does_not_come_to_be_in_ever_more_parcels(place: Path) -> None:
    async def scenario() -> None:
        space = Namespace()
        most = 0
        for number in range(60):
            (place / f"{number}.py").write_text(f"print({number}, 'once more')")
            names = await sent(space, place)
            await folders_of(space).hold(names, OWNER)
            most = max(most, len(names))
        assert 20 < most <= 26

    run(scenario)


def test_what_was_left_behind_is_swept_after_a_day(place: Path) -> None:
    async def scenario() -> None:
        space = Namespace()
        first = await sent(space, place)
        (place / "0.py").write_text("print('changed')")
        late = MADE_AT + folders.KEPT_S + 1
        second = await sent(space, place, late)
        assert set(space.objects) == set(second)
        assert not set(first) & set(second)
        await folders_of(space).hold(second, OWNER)
        (place / "0.py").write_text("print('again')")
        assert set(second) < set(await sent(space, place, late))

    run(scenario)


def test_a_parcel_that_goes_meanwhile_is_told(place: Path) -> None:
    async def scenario() -> None:
        space = Namespace()
        names = await sent(space, place)
        found = folders_of(space)
        await offered(found, scan(place))
        space.objects.clear()
        with pytest.raises(Conflict, match="submit again"):
            await found.stow(scan(place).id)
        with pytest.raises(Conflict, match="submit again"):
            await found.hold(names, OWNER)
        with pytest.raises(NotFound, match="submit the job from your folder again"):
            await folders_of(space).stow(scan(place).id)

    run(scenario)


def test_there_is_a_bound_for_a_namespace(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_BYTES", 200)

    async def scenario() -> None:
        with pytest.raises(Conflict, match=r"namespace 'lab'.*delete jobs that are over"):
            await sent(Namespace(), place)

    run(scenario)


def test_who_may_not_list_config_maps_is_told_what_helps(place: Path) -> None:
    async def scenario() -> None:
        space = Namespace()
        space.may_list = False
        with pytest.raises(Forbidden, match=r"no permission .*--no-send"):
            await sent(space, place)

    run(scenario)


def test_what_is_not_what_its_name_says_is_refused() -> None:
    async def scenario() -> None:
        found = folders_of(Namespace())
        name = manifest_id(b"print(1)")
        with pytest.raises(InvalidSpec, match="not what its name says"):
            found.add("ada", f"{name} 0 5 5\n".encode() + b"other")
        with pytest.raises(Conflict, match="0 bytes have come"):
            found.add("ada", f"{name} 3 5 8\n".encode() + b"nt(1)")
        half = f"{name} 0 3 8\n".encode() + b"pri" + f"{name} 3 5 8\n".encode() + b"nt(1)"
        assert found.add("ada", half) == {"whole": 1, "parts": 1}
        large = f"{name} 0 {17 << 20} {17 << 20}\n".encode() + bytes(17 << 20)
        with pytest.raises(InvalidSpec, match="more than 16 MiB"):
            found.add("ada", large)

    run(scenario)
