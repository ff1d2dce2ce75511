"""Folders that were sent: whose they are, what is kept of them, and what is removed when."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from roost.api.manifests import FolderManifest, ManifestFile, manifest_id
from roost.core import JobId
from roost.engines.local.accounts import Account
from roost.engines.local.run_folders import RunFolder
from roost.engines.local.snapshots import CopyContext
from roost.engines.local.work_folder import fill
from roost.errors import Conflict, InvalidSpec, NotFound
from roost.live import sent_folders
from roost.live.sent_folders import KEPT_S, SentFolders
from roost.store import StoreFull

JOB = JobId("train-abcde")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def text_of(**files: bytes) -> bytes:
    found = {name: ManifestFile(sha(body), len(body)) for name, body in files.items()}
    return FolderManifest(found).encode()


def part(content: bytes, start: int = 0, end: int | None = None) -> bytes:
    body = content[start:end]
    return f"{sha(content)} {start} {len(body)} {len(content)}\n".encode() + body


class Clock:
    """A clock that is ahead of the wall's by as much as a test says."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folders(tmp_path: Path, clock: Clock) -> SentFolders:
    return SentFolders(tmp_path, clock)


def missing(told: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {one["sha256"]: one["have_bytes"] for one in told["missing"]}


def test_only_what_is_lacking_is_sent(folders: SentFolders) -> None:
    text = text_of(a=b"one", b=b"two")
    assert missing(folders.offer("ada", text, keep=True)) == {sha(b"one"): 0, sha(b"two"): 0}
    assert folders.add("ada", part(b"one")) == {"whole": 1, "parts": 0}
    assert missing(folders.offer("ada", text, keep=True)) == {sha(b"two"): 0}
    with pytest.raises(Conflict, match="1 files of the folder have not been sent"):
        folders.hold("ada", manifest_id(text), JOB)
    folders.add("ada", part(b"two") + part(b"one"))
    told = folders.offer("ada", text, keep=False)
    assert (told["id"], told["files"], told["missing"]) == (manifest_id(text), 2, [])
    folders.hold("ada", manifest_id(text), JOB)


def test_a_large_file_goes_on_where_it_was_cut(folders: SentFolders) -> None:
    body = os.urandom(100_000)
    text = text_of(model=body)
    folders.offer("ada", text, keep=True)
    assert folders.add("ada", part(body, 0, 60_000)) == {"whole": 0, "parts": 1}
    assert missing(folders.offer("ada", text, keep=True)) == {sha(body): 60_000}
    with pytest.raises(Conflict, match="60000 bytes have come"):
        folders.add("ada", part(body, 70_000))
    folders.add("ada", part(body, 50_000, 80_000))  # once more does no harm
    assert folders.add("ada", part(body, 80_000)) == {"whole": 1, "parts": 0}
    place = folders.place("ada", manifest_id(text))
    assert (place.blobs / sha(body)[:2] / sha(body)).read_bytes() == body


def test_what_is_not_what_it_says(folders: SentFolders) -> None:
    lie = part(b"one").replace(b"one", b"two")
    with pytest.raises(InvalidSpec, match="not what its name says"):
        folders.add("ada", lie)
    assert folders.add("ada", part(b"one"))["whole"] == 1
    for odd in (
        b"x",
        b"{}",
        part(b"one")[:-1],
        b"../x 0 1 1\nx",
        part(b"a").replace(b" 1 ", b" 9 "),
    ):
        with pytest.raises(InvalidSpec):
            folders.add("ada", odd)
    with pytest.raises(InvalidSpec):
        folders.offer("../ada", text_of(), keep=True)


def test_users_know_nothing_of_each_other(folders: SentFolders) -> None:
    text = text_of(a=b"one")
    folders.offer("ada", text, keep=True)
    folders.add("ada", part(b"one"))
    assert missing(folders.offer("bob", text, keep=False)) == {sha(b"one"): 0}
    with pytest.raises(NotFound, match="you have sent no folder"):
        folders.hold("bob", manifest_id(text), JOB)


def test_what_no_job_refers_to_is_removed(folders: SentFolders, clock: Clock) -> None:
    first, second = text_of(a=b"one", b=b"both"), text_of(c=b"two", b=b"both")
    for text in (first, second):
        folders.offer("ada", text, keep=True)
    folders.add("ada", part(b"one") + part(b"two") + part(b"both") + part(b"left over"))
    assert folders.collect() == 1  # nobody offered that
    folders.hold("ada", manifest_id(first), JOB)
    assert folders.collect() == 0  # the other is on its way
    clock.ahead = KEPT_S + 60
    assert folders.collect() == 1  # b"two"; a job needs the others
    assert folders.offer("ada", first, keep=False)["missing"] == []
    assert missing(folders.offer("ada", second, keep=False)) == {sha(b"two"): 0}

    again = SentFolders(folders._path.parent, clock)
    again.sweep(lambda job: job == JOB)
    assert again.offer("ada", first, keep=False)["missing"] == []
    again.release("ada", JOB)
    assert again.collect() == 2


def test_refs_of_jobs_that_were_never_accepted(folders: SentFolders, clock: Clock) -> None:
    text = text_of(a=b"one")
    folders.offer("ada", text, keep=True)
    folders.add("ada", part(b"one"))
    folders.hold("ada", manifest_id(text), JOB)
    clock.ahead = KEPT_S + 60
    folders.sweep(lambda _job: False)
    assert missing(folders.offer("ada", text, keep=False)) == {sha(b"one"): 0}


def test_a_user_cannot_keep_too_much(folders: SentFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_folders, "MOST_BYTES", 1200)
    folders.offer("ada", text_of(a=b"x" * 900), keep=True)
    folders.add("ada", part(b"x" * 900))
    with pytest.raises(Conflict, match="delete jobs that are over"):
        folders.offer("ada", text_of(a=b"y" * 200), keep=True)
    with pytest.raises(Conflict):
        folders.add("ada", part(b"y" * 200))
    folders.offer("bob", text_of(a=b"y" * 200), keep=True)
    for letter in (b"p", b"q"):  # what is never whole counts, too
        folders.add("bob", part(letter * 900, 0, 400))
    assert 800 < folders.sizes()["bob"] < 1200
    with pytest.raises(Conflict):
        folders.add("bob", part(b"r" * 900, 0, 400))


def test_a_full_disk(folders: SentFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.offer("ada", text_of(a=b"one"), keep=True)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull, match="No space left"):
        folders.add("ada", part(b"one"))
    monkeypatch.undo()
    assert folders.add("ada", part(b"one"))["whole"] == 1


def filled(folders: SentFolders, tmp_path: Path, manifest: FolderManifest) -> Path:
    text = manifest.encode()
    folders.offer("ada", text, keep=True)
    folders.add("ada", part(b"one") + part(b""))
    run = tmp_path / "run"
    (run / "work").mkdir(parents=True, exist_ok=True)
    account = Account("nobody", 65534, 65534, (65534,), "/") if os.geteuid() == 0 else None
    with RunFolder(os.open(run, os.O_RDONLY), run) as folder:
        fill(folders.place("ada", manifest_id(text)), folder, CopyContext(account, ""))
    return run / "work"


def test_a_run_begins_with_what_was_sent(folders: SentFolders, tmp_path: Path) -> None:
    one = ManifestFile(sha(b"one"), 3)
    manifest = FolderManifest(
        {
            "a/b/c.py": one,
            "run.sh": one._replace(executable=True),
            "none": ManifestFile(sha(b""), 0),
        },
        {"a/link": "../run.sh"},
        ("out/deep",),
    )
    work = filled(folders, tmp_path, manifest)

    assert (work / "a" / "b" / "c.py").read_bytes() == (work / "a" / "link").read_bytes() == b"one"
    assert (work / "none").read_bytes() == b""
    assert (work / "out" / "deep").is_dir()
    assert [path.stat().st_mode & 0o777 for path in (work / "run.sh", work / "none")] == [
        0o755,
        0o644,
    ]
    if os.geteuid() == 0:
        for path in (work, work / "a", work / "a" / "b" / "c.py", work / "out" / "deep"):
            assert path.stat().st_uid == 65534
    # What the job makes of it stays the job's.
    (work / "run.sh").write_text("other")
    place = folders.place("ada", manifest_id(manifest.encode()))
    assert (place.blobs / sha(b"one")[:2] / sha(b"one")).read_bytes() == b"one"
    assert filled(folders, tmp_path, manifest) == work
    assert (work / "run.sh").read_text() == "other"


def test_a_folder_that_is_gone(folders: SentFolders, tmp_path: Path) -> None:
    manifest = FolderManifest({"a": ManifestFile(sha(b"never sent"), 10)})
    with pytest.raises(InvalidSpec, match="submit it again"):
        filled(folders, tmp_path, manifest)
    assert list((tmp_path / "run").iterdir()) == [tmp_path / "run" / "work"]
