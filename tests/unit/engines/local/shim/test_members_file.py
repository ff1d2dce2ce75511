"""Who trains together: what is published, and what is believed of what workers say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.elastic.members import MemberList
from roost.engines.local.shim.members_file import MembersFile


@pytest.fixture
def members(tmp_path: Path) -> Iterator[MemberList]:
    (tmp_path / "io").mkdir()
    folder, io = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path / "io", os.O_RDONLY)
    yield MemberList(["0", "1"], "127.0.0.1:5000", MembersFile(folder, io))
    os.close(folder)
    os.close(io)


def published(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "io" / "members.json").read_text())
    return found


def test_a_version_is_published_as_a_whole(members: MemberList, tmp_path: Path) -> None:
    members.publish()
    assert published(tmp_path) == {
        "version": 1,
        "address": "127.0.0.1:5000",
        "members": ["0", "1"],
        "lost": [],
        "save": 0,
        "offload": 0,
    }
    members.change(["0", members.new_id()], ["1"])
    now = published(tmp_path)

    assert (now["version"], now["members"], now["lost"]) == (2, ["0", "2"], ["1"])
    assert now["address"] != "127.0.0.1:5000"
    assert [path.name for path in (tmp_path / "io").iterdir()] == ["members.json"]


def test_what_cannot_be_published_has_not_changed(members: MemberList, tmp_path: Path) -> None:
    (tmp_path / "io" / "members.json").mkdir()

    with pytest.raises(OSError, match="directory"):
        members.change(["0"], [])
    assert (members.version, members.ids) == (1, ["0", "1"])


def test_a_link_in_its_place_is_replaced_and_not_followed(
    members: MemberList, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "io" / "members.json").symlink_to(other)
    (tmp_path / ".members.json").symlink_to(other)
    members.publish()

    assert other.read_text() == "mine"
    assert published(tmp_path)["version"] == 1


def test_the_next_version_has_its_space_already(members: MemberList, tmp_path: Path) -> None:
    members.publish()
    spare = tmp_path / ".members.json"
    assert spare.stat().st_size == 4096
    before = spare.stat().st_ino
    members.change(["1"], [])

    assert (tmp_path / "io" / "members.json").stat().st_ino == before
    assert published(tmp_path)["members"] == ["1"]


def test_all_must_say_that_they_can_change(members: MemberList) -> None:
    members.hear({"elastic": True, "member": "0"})
    assert not members.elastic
    members.hear({"elastic": True, "member": "1"})
    assert members.elastic


def test_ids_are_never_given_twice(members: MemberList) -> None:
    assert [members.new_id() for _ in range(3)] == ["2", "3", "4"]


@pytest.mark.parametrize(
    "said",
    [
        {"elastic": True, "member": "7"},
        {"elastic": True, "member": 1},
        {"elastic": True, "member": "01"},
        {"elastic": True, "member": "²"},
        {"elastic": True, "member": "1" * 5000},
        {"elastic": 1, "member": "1"},
        {"elastic": True, "member": ["1"]},
        {"ready": 5},
        {"ready": "99"},
        {"ready": None},
        {"joined": 1, "member": "1"},
        {"joined": 2, "member": "0"},
        {"joined": True, "member": "0"},
        {"joined": "1", "member": "0"},
        {"saved_for": 1},
        {"saved_for": 10**400},
        {"saved_for": -1},
        {"offloaded": 3, "member": "0"},
    ],
)
def test_what_does_not_fit_is_not_believed(members: MemberList, said: dict[str, Any]) -> None:
    members.hear({"elastic": True, "member": "0"})
    members.hear(said)

    assert not members.elastic
    assert members.ready == set()
    assert (members.joined, members.saved, members._offloaded) == (0, 0, {})


def test_the_first_member_says_when_all_train(members: MemberList) -> None:
    members.change(["1", "0"], ["7"])
    assert not members.together
    members.hear({"joined": 2, "member": "1", "pause_s": 0.5, "world": 2})

    assert members.together
    assert (members.pause_s, members.lost) == (0.5, [])


@pytest.mark.parametrize("pause", [-1, float("nan"), float("inf"), 10**400, "1", True, None])
def test_a_pause_that_is_none_is_no_time(members: MemberList, pause: object) -> None:
    members.hear({"joined": 1, "member": "0", "pause_s": pause})

    assert members.together
    assert members.pause_s == 0.0


def test_what_was_asked_for_is_answered(members: MemberList) -> None:
    members.save, members.offload = 2, 1
    members.hear({"saved_for": 2})
    members.hear({"offloaded": 1, "member": "0"})
    assert members.saved == 2
    assert not members.offloaded
    members.hear({"offloaded": 1})  # nobody speaks for the others
    assert not members.offloaded
    for one in members.ids:
        members.hear({"offloaded": 1, "member": one})
    assert members.offloaded


def test_what_is_kept_does_not_grow(members: MemberList) -> None:
    for number in range(10_000):
        members.hear({"elastic": True, "member": str(number), "ready": str(number)})
        members.hear({"joined": number, "saved_for": number, "offloaded": number})

    assert len(members.ready) == 2
    assert len(members._elastic) == 2
    assert members._offloaded == {}
