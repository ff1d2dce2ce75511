"""Contents in ConfigMaps, and the way back into a folder."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.api.manifests import FolderManifest, ManifestFile, manifest_id
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs import unpack_folder
from roost.kubernetes.objects.folder_parcels import (
    content_in,
    covering,
    parcel_objects,
    parcel_of,
)

LARGE = os.urandom(700_000)
CONTENTS = {
    "train.py": b"print(1)",
    "data/large.bin": LARGE,
    "run.sh": b"#!/bin/sh\n",
    "empty": b"",
}


def sha(content: bytes) -> str:
    return manifest_id(content)


def folder(contents: dict[str, bytes]) -> bytes:
    """The manifest of a folder with these files, a link and an empty folder."""
    files = {
        path: ManifestFile(sha(content), len(content), path.endswith(".sh"))
        for path, content in contents.items()
    }
    return FolderManifest(files, {"latest": "data/large.bin"}, ("out/empty",)).encode()


def parcels(contents: dict[str, bytes]) -> tuple[str, list[Object]]:
    """The name of a folder, and the parcels that it is in."""
    text = folder(contents)
    every = [text, *contents.values()]
    return sha(text), list(parcel_objects(((sha(one), one) for one in every), "lab"))


def laid_out(objects: list[Object], place: Path) -> Path:
    """The parcels as a kubelet shows them."""
    place.mkdir()
    for one in objects:
        for key, value in one["binaryData"].items():
            (place / key).write_bytes(base64.b64decode(value))
    return place


def test_parcels_fit_into_objects_and_are_named_by_their_contents() -> None:
    name, made = parcels(CONTENTS)
    assert len(made) == 2
    assert made == parcels(CONTENTS)[1]
    for one in made:
        assert len(json.dumps(one)) < 1 << 20
        assert one["immutable"]
        assert parcel_of(one).keys == set(one["binaryData"])
    many = [(sha(str(n).encode()), str(n).encode()) for n in range(1_500)]
    assert [len(one["binaryData"]) for one in parcel_objects(many, "lab")] == [1_000, 500]
    assert content_in(made[0], name) == folder(CONTENTS)
    assert content_in(made[0], sha(LARGE)) is None  # a piece of it is in the other


def test_few_parcels_cover_a_folder() -> None:
    name, made = parcels(CONTENTS)
    (late,) = parcel_objects([(sha(b"new"), b"new"), (sha(b"print(1)"), b"print(1)")], "lab")
    there = [parcel_of(one) for one in (*made, late)]
    contents = {name, *map(sha, CONTENTS.values())}

    chosen, lacking = covering(there, contents)
    assert ([one.name for one in chosen], lacking) == ([one.name for one in there[:2]], set())
    assert covering(there, {*contents, sha(b"new")})[1] == set()
    # A content of which a piece is missing is missing.
    assert covering(there[1:], contents)[1] >= {sha(LARGE), name}
    assert covering([], contents) == ([], contents)
    assert covering(there, contents, most=1)[1] == {sha(LARGE)} | (contents - there[0].keys)


def test_a_folder_is_unpacked_as_it_was(tmp_path: Path) -> None:
    name, made = parcels(CONTENTS)
    place, work = laid_out(made, tmp_path / "parcels"), tmp_path / "work"
    work.mkdir()
    for _ in range(2):  # begun anew, it makes the same
        done = subprocess.run(  # noqa: S603 - ours
            [sys.executable, "-I", unpack_folder.__file__, str(place), str(work), name], check=False
        )
        assert done.returncode == 0
    for path, content in CONTENTS.items():
        assert (work / path).read_bytes() == content
    assert (work / "latest").readlink() == Path("data/large.bin")
    assert (work / "out" / "empty").is_dir()
    assert os.access(work / "run.sh", os.X_OK)
    assert not os.access(work / "train.py", os.X_OK)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda place: (place / sha(b"print(1)")).unlink(), "is not there"),
        (lambda place: next(place.glob(f"{sha(LARGE)}.1.*")).unlink(), "is not there"),
        (lambda place: (place / sha(b"")).write_bytes(b"?"), "decompressing"),
        (
            lambda place: (place / sha(b"")).write_bytes((place / sha(b"print(1)")).read_bytes()),
            "is not what was sent",
        ),
    ],
)
def test_what_is_not_what_was_sent_is_not_unpacked(
    tmp_path: Path, change: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, made = parcels(CONTENTS)
    place = laid_out(made, tmp_path / "parcels")
    assert callable(change)
    change(place)
    assert unpack_folder.main(["", str(place), str(tmp_path / "work"), name]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert told.startswith("the folder that was sent cannot be unpacked: ")


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../b"])
def test_nothing_is_unpacked_outside_of_the_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="no path within"):
        unpack_folder.inside(tmp_path, path)
