"""A backup is whole or refused, and what is restored from it is what was there."""

from __future__ import annotations

import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from roost.errors import Conflict, InvalidSpec
from roost.server import identity
from roost.server.backups import back_up, check, restore
from roost.store import User, open_store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir(mode=0o711)
    identity.claim(found)
    with open_store(f"sqlite://{found}/roost.db") as store:
        store.accounts.add_user(User("ada"))
    contents = {
        "token": "t",
        "secrets/j": "s",
        "payloads/j": "p",
        "runs/j/1/run.json": "{}",
        "runs/j/1/logs/worker-0.log": "hello",
        "runs/j/1/work/model.pt": "w",
        "runs/j/checkpoints/step-1": "c",
        "runs/.gone-1/x": "gone",
        "snapshots/j/best/payload": "p",
        "snapshots/j/best/files/step-1": "c",
        "snapshots/j/.draft-1/files/x": "draft",
        "server.json": "{}",
        "server.log": "log",
        "running/j#1": "",
        "roost.db.lock": "1 1",
    }
    for name, text in contents.items():
        file = found / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o600)
    (found / "runs/j/checkpoints/latest").symlink_to("step-1")
    os.mkfifo(found / "runs/j/1/pipe")
    return found


def names(home: Path) -> set[str]:
    return {
        one.relative_to(home).as_posix()
        for one in home.rglob("*")
        if one.is_symlink() or one.is_file()
    }


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_home_comes_back(home: Path, tmp_path: Path, *, checkpoints: bool) -> None:
    (home / "runs/j/1/work").chmod(0o500)
    made = back_up(home, tmp_path / "b.tar", home / "roost.db", checkpoints=checkpoints)
    assert (tmp_path / "b.tar").stat().st_mode & 0o777 == 0o600
    assert check(tmp_path / "b.tar") == made
    there = tmp_path / "there"
    assert restore(tmp_path / "b.tar", there) == made

    large = {
        "runs/j/1/work/model.pt",
        "runs/j/checkpoints/step-1",
        "runs/j/checkpoints/latest",
        "snapshots/j/best/files/step-1",
    }
    small = {"home.json", "roost.db", "token", "secrets/j", "payloads/j", "runs/j/1/run.json"}
    small |= {"runs/j/1/logs/worker-0.log", "snapshots/j/best/payload"}
    assert names(there) == (small | large if checkpoints else small)
    assert (there / "token").stat().st_mode & 0o777 == 0o600
    if checkpoints:
        assert (there / "runs/j/checkpoints/latest").readlink() == Path("step-1")
        assert (there / "runs/j/1/work").stat().st_mode & 0o777 == 0o500
    with open_store(f"sqlite://{there}/roost.db") as store:
        assert store.accounts.user("ada") is not None
    with pytest.raises(Conflict, match="--moved"):
        identity.claim(there)  # even if it got the inode of the original
    assert identity.claim(there, "copy").copy_of == identity.claim(home).id
    (home / "runs/j/1/work").chmod(0o700)


def test_nothing_is_overwritten(home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "b.tar", home / "roost.db", checkpoints=False)
    with pytest.raises(Conflict, match="there already"):
        back_up(home, tmp_path / "b.tar", home / "roost.db", checkpoints=False)
    with pytest.raises(Conflict, match="not empty"):
        restore(tmp_path / "b.tar", home)
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "b.tar", tmp_path / "empty")
    with pytest.raises(InvalidSpec, match="not the home of a server"):
        back_up(tmp_path, tmp_path / "c.tar", None, checkpoints=False)
    assert not list(tmp_path.glob(".*"))


def test_a_backup_that_is_damaged_anywhere_is_refused(home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "b.tar", home / "roost.db", checkpoints=True)
    whole = (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "b.tar") as tar:
        places = [(one.offset_data, one.size) for one in tar if one.size]
    bad = tmp_path / "bad.tar"
    for place, size in places:
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InvalidSpec, match=r"bad\.tar is"):
            restore(bad, tmp_path / "there")
        bad.write_bytes(whole[: place + size // 2])
        with pytest.raises(InvalidSpec, match=r"bad\.tar is not a whole backup"):
            restore(bad, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    bad.write_text("hello")
    with pytest.raises(InvalidSpec, match="not a whole backup"):
        check(bad)
    with tarfile.open(bad, "w") as tar:
        info = tarfile.TarInfo("../evil")
        info.size = 1
        tar.addfile(info, BytesIO(b"x"))
    with pytest.raises(InvalidSpec, match="no list of its content"):
        restore(bad, tmp_path / "there")
    assert not (tmp_path / "evil").exists()


def test_a_home_without_sqlite_is_backed_up_without_a_database(home: Path, tmp_path: Path) -> None:
    (home / "roost.db").unlink()
    with pytest.raises(InvalidSpec, match="there is no database"):
        back_up(home, tmp_path / "b.tar", home / "roost.db", checkpoints=False)
    assert not back_up(home, tmp_path / "b.tar", None, checkpoints=False).database
    assert not restore(tmp_path / "b.tar", tmp_path / "there").database
