"""Files of jobs that are not to be trusted: what is listed, and what is never opened."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from roost.engines import FileQuery
from roost.engines.local.accounts import Account
from roost.engines.local.job_files import RunFiles
from roost.errors import Conflict, InvalidSpec, NotFound, RoostError


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder of a hostile job."""
    folder = tmp_path / "work"
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "out" / "a.txt").write_text("a")
    (folder / "out" / "deep" / "model.pt").write_bytes(b"m" * 5000)
    (folder / "run.sh").write_text("true")
    (folder / "run.sh").chmod(0o755)
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    (folder.joinpath(os.fsdecode(b"no-utf8-\xff"))).write_text("x")
    return folder


def files(work: Path, account: Account | None = None) -> RunFiles:
    return RunFiles({"work": work, "logs": work.parent / "logs"}, account, sys.executable)


def names(found: list[dict[str, object]]) -> list[object]:
    return [one["path"] for one in found]


def test_what_is_listed(work: Path) -> None:
    found = files(work).page(FileQuery("work", deep=True))

    assert names(found) == [
        *("work/link", "work/out", "work/out/a.txt", "work/out/deep"),
        *("work/out/deep/model.pt", "work/run.sh", "work/up"),
    ]
    by = {str(one["path"]): one for one in found}
    assert by["work/link"]["target"] == str(work.parent / "secret")
    assert (by["work/run.sh"]["executable"], by["work/out/a.txt"]["executable"]) == (True, False)
    assert by["work/out/deep/model.pt"]["size_bytes"] == 5000
    assert names(files(work).page(FileQuery("work/out"))) == ["work/out/a.txt", "work/out/deep"]
    assert names(files(work).page(FileQuery("work/run.sh"))) == ["work/run.sh"]


def test_a_list_goes_on_where_it_was(work: Path) -> None:
    whole = names(files(work).page(FileQuery("work", deep=True)))
    for most in (1, 2, 3):
        found: list[object] = []
        after = ""
        while page := names(files(work).page(FileQuery("work", after, most, deep=True))):
            assert len(page) <= most
            found += page
            after = str(page[-1])
        assert found == whole


@pytest.mark.parametrize(
    "path",
    ["work/link", "work/up/secret", "work/pipe", "work/out", "work/none", "work/out/a.txt/b"],
)
def test_what_is_no_file_of_the_job_is_not_there(work: Path, path: str) -> None:
    with pytest.raises(NotFound, match="has no file"):
        files(work).open(path)


@pytest.mark.parametrize(
    "path", ["work/../secret", "work//secret", "work/./a", "work/a\0b", "work/" + "x" * 300]
)
def test_paths_that_are_none(work: Path, path: str) -> None:
    with pytest.raises(InvalidSpec, match="no path within"):
        files(work).open(path)


@pytest.mark.parametrize("path", ["", "elsewhere/x", "../work/run.sh", "/etc/passwd"])
def test_folders_that_are_not_the_jobs(work: Path, path: str) -> None:
    with pytest.raises(RoostError):
        files(work).open(path)


def test_a_version_tells_one_content_from_another(work: Path) -> None:
    with files(work).open("work/out/a.txt") as file:
        before = file.version()
        assert file.read(0, 10) == b"a"
    (listed,) = files(work).page(FileQuery("work/out/a.txt"))
    assert listed["version"] == before
    (work / "out" / "a.txt").write_text("other")
    with files(work).open("work/out/a.txt") as file:
        assert file.version() != before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take other accounts")
def test_another_account_reads_with_its_own_rights(work: Path) -> None:
    nobody = Account("nobody", 65534, 65534, (65534,), "/")
    for folder in (work, *work.parents):
        if folder != Path("/tmp"):  # noqa: S108 - the one above all tests
            folder.chmod(folder.stat().st_mode | 0o711)
    (work / "closed").write_text("root's own")
    (work / "closed").chmod(0o600)
    os.link(work.parent / "secret", work / "hard")
    (work.parent / "secret").chmod(0o600)
    work.chmod(0o755)

    theirs = files(work, nobody)
    with theirs.open("work/out/a.txt") as file:
        assert file.read(0, 10) == b"a"
    assert "work/out/deep/model.pt" in names(theirs.page(FileQuery("work", deep=True)))
    for path in ("work/closed", "work/hard"):
        with pytest.raises(Conflict, match="Permission denied"):
            theirs.open(path)
    with pytest.raises(NotFound):
        theirs.open("work/link")
