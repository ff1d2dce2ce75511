"""Folders that are to be sent: what goes, what is refused, and that a manifest can be trusted."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from roost.api import manifests
from roost.api.manifests import FolderBound, FolderManifest, decode_manifest, manifest_id
from roost.client.folder_scan import scan
from roost.errors import InvalidSpec

NAME = "a" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    (found / "pkg").mkdir(parents=True)
    (found / "out").mkdir()
    (found / "train.py").write_text("print(1)")
    (found / "pkg" / "same.py").write_text("print(1)")
    (found / "run.sh").write_text("true")
    (found / "run.sh").chmod(0o755)
    return found


def test_what_is_found(folder: Path) -> None:
    (folder / "here").symlink_to("pkg/same.py")
    (folder / "pkg" / "up").symlink_to("../run.sh")
    (folder / "whole").symlink_to(folder / "run.sh")
    os.mkfifo(folder / "pipe")
    found = scan(folder)

    digest = hashlib.sha256(b"print(1)").hexdigest()
    assert found.manifest.files["train.py"] == (digest, 8, False)
    assert found.manifest.files["run.sh"].executable
    assert set(found.manifest.files) == {"train.py", "pkg/same.py", "run.sh"}
    assert len(found.manifest.blobs) == 2
    assert found.manifest.folders == ("out",)
    assert found.manifest.links == {
        "here": "pkg/same.py",
        "pkg/up": "../run.sh",
        "whole": "run.sh",
    }
    assert decode_manifest(found.text) == found.manifest
    assert found.id == manifest_id(found.text) == scan(folder).id
    (folder / "train.py").write_text("print(2)")
    assert scan(folder).id != found.id


@pytest.mark.parametrize("target", ["/etc/passwd", "../..", "pkg/../../x"])
def test_links_that_leave(folder: Path, target: str) -> None:
    (folder / "data").symlink_to(target)
    with pytest.raises(InvalidSpec, match=r"data is a link to .*echo '/data' >> .roostignore"):
        scan(folder)
    (folder / ".roostignore").write_text("/data\n")
    assert "data" not in scan(folder).manifest.links


def test_too_much(folder: Path) -> None:
    (folder / "big").mkdir()
    for number in range(5):
        (folder / "big" / str(number)).write_bytes(b"x" * 2_000_000)
    with pytest.raises(InvalidSpec, match=r"10 MiB, and at most 9 .*big/ has 10 MiB.*'/big/' >> "):
        scan(folder, FolderBound(20, 9 << 20))
    with pytest.raises(InvalidSpec, match=r"9 files, and at most 6 .*big/ has 5.*; use a volume$"):
        scan(folder, FolderBound(6, 1 << 30, "use a volume"))
    (folder / ".roostignore").write_text("big\n")
    assert len(scan(folder).manifest.files) == 4


@pytest.mark.parametrize(
    "path",
    ["", "/etc/x", "../x", "a/../b", "a//b", "./a", "a/.", "x\0y", "n" * 300, "a/" * 70 + "b"],
)
def test_manifests_with_paths_that_are_none(path: str) -> None:
    told = {"version": 1, "files": {path: [NAME, 1, 0]}, "links": {}, "folders": []}
    with pytest.raises(InvalidSpec):
        decode_manifest(json.dumps(told).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"a": [NAME, 1, 0], "a/b": [NAME, 1, 0]}},
        {"files": {"a": [NAME, 1, 0]}, "links": {"a": "b"}},
        {"files": {"a": [NAME, 1, 0], "b": [NAME, 2, 0]}},
        {"files": {"a": ["../x", 1, 0]}},
        {"files": {"a": [NAME, -1, 0]}},
        {"files": {"a": [NAME, 2**40, 0]}},
        {"links": {"a": "/etc"}},
        {"links": {"a": ".."}},
        {"links": {"d/a": "b/../../../x"}},
        {"links": {"a": ""}},
        {"links": {"a": 5}},
        {"folders": ["a", "a"]},
        {"folders": [7]},
        {"version": 2},
        {"files": []},
        {"files": {"a": NAME}},
    ],
)
def test_manifests_that_are_not_sound(change: dict[str, object]) -> None:
    told = {"version": 1, "files": {}, "links": {}, "folders": [], **change}
    with pytest.raises(InvalidSpec):
        decode_manifest(json.dumps(told).encode())


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b"null", b"[" * 10_000])
def test_texts_that_are_no_manifest(text: bytes) -> None:
    with pytest.raises(InvalidSpec):
        decode_manifest(text)


def test_an_empty_folder() -> None:
    assert decode_manifest(FolderManifest().encode()) == FolderManifest()
    assert manifests.stays_inside("a/b", "../c")
