"""A home knows whether it is the one: renamed it is, copied it is not until it is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from roost.errors import Conflict, InvalidSpec
from roost.server import identity
from roost.server.identity import HomePlace, claim, read, settle


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    return found


def test_a_home_is_known_by_its_id_and_may_be_renamed(home: Path, tmp_path: Path) -> None:
    known = claim(home)
    assert (home / "home.json").stat().st_mode & 0o777 == 0o600
    assert claim(home) == known
    assert known.row.path == str(home)
    other = tmp_path / "other"
    other.mkdir()
    assert claim(other).id != known.id
    home.rename(tmp_path / "renamed")
    found = claim(tmp_path / "renamed")
    assert (found.id, found.generation) == (known.id, 1)
    assert found.place.path == str(tmp_path / "renamed")


def test_a_copy_does_nothing_until_it_is_told_what_it_is(home: Path, tmp_path: Path) -> None:
    known, copy = claim(home), tmp_path / "copy"
    shutil.copytree(home, copy)
    with pytest.raises(Conflict, match=f"{copy} is not where it was") as refused:
        claim(copy)
    assert "roost up --moved" in str(refused.value)
    assert "roost up --as-copy" in str(refused.value)
    assert read(copy) == known
    with pytest.raises(Conflict, match=f"the original is still at {home}"):
        claim(copy, "moved")

    made = claim(copy, "copy")
    assert made.id != known.id
    assert made.copy_of == known.id
    assert claim(copy) == made  # a start that was cut short goes on as a copy
    settle(copy, made)
    assert claim(copy).copy_of == ""
    assert claim(home) == known


def test_a_home_whose_original_is_gone_takes_over(home: Path, tmp_path: Path) -> None:
    known, there = claim(home), tmp_path / "there"
    shutil.copytree(home, there)
    shutil.rmtree(home)
    found = claim(there, "moved")
    assert (found.id, found.generation, found.copy_of) == (known.id, 2, "")
    assert claim(there) == found


def test_a_home_that_is_where_it_was_is_no_copy(home: Path) -> None:
    known = claim(home)
    with pytest.raises(Conflict, match="is no copy"):
        claim(home, "copy")
    assert claim(home, "moved") == known


def test_a_home_of_another_machine_is_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_machine", lambda: "one")
    claim(home)
    monkeypatch.setattr(identity, "_machine", lambda: "another")
    with pytest.raises(Conflict, match="is not where it was"):
        claim(home)
    assert claim(home, "moved").generation == 2


def test_a_file_system_that_is_mounted_anew_has_another_device() -> None:
    before = HomePlace("m", 5, 77, "/srv/roost", "box")
    assert before.is_at(before._replace(device=6))
    assert before.is_at(before._replace(path="/mnt/roost"))
    assert not before.is_at(before._replace(device=6, path="/mnt/roost"))
    assert not before.is_at(before._replace(inode=78))
    assert not identity.NOWHERE.is_at(identity.NOWHERE)


def test_an_older_home_gets_its_place_once_a_server_came_up(home: Path) -> None:
    (home / "id").write_text("a" * 32 + "\n")
    found = claim(home)
    assert (found.id, found.generation) == ("a" * 32, 0)
    assert (home / "id").exists()
    settle(home, found)
    assert not (home / "id").exists()
    assert claim(home).generation == 1
    (home / "home.json").unlink()
    (home / "id").write_text("b" * 32)
    assert claim(home, "copy").copy_of == "b" * 32


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"id": 3}', "x"])
def test_a_damaged_identity_is_refused(home: Path, text: str) -> None:
    (home / "home.json").write_text(text)
    with pytest.raises(InvalidSpec, match="damaged"):
        claim(home)


def test_an_identity_of_a_newer_roost_is_refused(home: Path) -> None:
    claim(home)
    told = json.loads((home / "home.json").read_text())
    (home / "home.json").write_text(json.dumps({**told, "format": 2}))
    with pytest.raises(InvalidSpec, match="written by a newer Roost"):
        claim(home)
