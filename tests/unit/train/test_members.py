"""What is seen of the file that says who trains together."""

from __future__ import annotations

import json
import os
import threading
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost import train
from roost.train.members import CurrentRank, Left, Members, View, _understood

VARIABLES = ("ROOST_MEMBERS", "ROOST_MEMBER", "ROOST_PROGRESS", "RANK", "WORLD_SIZE", "MASTER_PORT")
GOOD = {"version": 1, "address": "127.0.0.1:4000", "members": ["0", "1"]}


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*VARIABLES, "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    yield
    CurrentRank.now = None


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    path = tmp_path / "members.json"
    monkeypatch.setenv("ROOST_MEMBERS", str(path))
    monkeypatch.setenv("ROOST_MEMBER", "1")

    def replace(**fields: object) -> None:
        draft = tmp_path / "draft"
        draft.write_text(json.dumps({**GOOD, **fields}))
        draft.replace(path)

    return replace


def test_outside_of_roost_there_is_one_member_for_ever() -> None:
    members = Members.here()
    assert members.look() == View(1, ("127.0.0.1", 29500), ("0",))
    assert (members.me, members.version, members.changeable) == ("0", 1, False)
    assert members.wait_beyond(1, 0.01) is None


def test_outside_of_roost_the_members_are_those_of_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"RANK": "2", "WORLD_SIZE": "3", "MASTER_PORT": "77"}.items():
        monkeypatch.setenv(name, value)
    members = Members.here()
    assert members.look() == View(1, ("127.0.0.1", 77), ("0", "1", "2"))
    assert members.look().rank(members.me) == 2


def test_a_new_version_is_seen(write: Callable[..., None]) -> None:
    write()
    members = Members.here()
    assert members.look() == View(1, ("127.0.0.1", 4000), ("0", "1"))
    write(version=2, address="[::1]:5", members=["1", "4"], lost=["0"], save=3, offload=1)
    view = members.look()
    assert view == View(2, ("::1", 5), ("1", "4"), frozenset({"0"}), 3, 1)
    assert (view.rank("4"), view.rank("0"), view.size) == (1, None, 2)
    assert members.version == 1
    members.settle(view)
    assert members.version == 2
    assert (train.rank(), train.world_size()) == (0, 2)


def test_who_and_where_never_change_within_a_version(write: Callable[..., None]) -> None:
    write(version=5)
    members = Members.here()
    write(version=5, members=["7"], address="x:1", save=2)
    assert members.look() == View(5, ("127.0.0.1", 4000), ("0", "1"), save=2)
    write(version=4, members=["7"], save=9)
    assert members.look().save == 2


def test_a_file_that_is_not_there_yet_is_no_trouble(write: Callable[..., None]) -> None:
    members = Members.here()
    assert members.look().members == ("0",)
    write()
    assert members.look().members == ("0", "1")
    os.unlink(os.environ["ROOST_MEMBERS"])  # noqa: PTH108
    assert members.look().members == ("0", "1")


def test_an_unchanged_file_is_not_read_again(
    write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(members="nonsense")
    members = Members.here()
    monkeypatch.setattr("roost.train.members._read", lambda _: pytest.fail("was read"))
    members.look()


def test_looking_is_cheap(write: Callable[..., None]) -> None:
    write()
    members = Members.here()
    best = min(timeit.repeat(members.look, number=1000, repeat=7)) / 1000
    assert best < 20e-6  # 2 us where nobody else is busy; the promise is 5


def test_the_next_version_is_awaited(write: Callable[..., None]) -> None:
    write()
    members = Members.here()
    timer = threading.Timer(0.02, lambda: write(version=2))
    timer.start()
    found = members.wait_beyond(1, 20.0)
    timer.join()
    assert found is not None
    assert found.version == 2
    assert members.wait_beyond(2, 20.0, lambda: True) is None


def test_leaving_is_no_failure() -> None:
    with pytest.raises(SystemExit) as left:
        raise Left
    assert left.value.code == 0


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys((*GOOD, "lost", "save"), values)))
def test_whatever_is_understood_makes_sense(said: dict[str, object]) -> None:
    try:
        view = _understood({**GOOD, **said})
    except Exception:  # noqa: BLE001 - the reader takes it for no news
        return
    if view is not None:
        assert view.version >= 1
        assert view.size >= 1
        assert all(isinstance(name, str) for name in (*view.members, *view.lost))
        assert 0 < view.address[1] < 65536
        assert view.save >= 0
