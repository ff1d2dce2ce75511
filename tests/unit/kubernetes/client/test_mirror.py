"""A mirror whatever the server says, how often, and in which order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubernetes.client.faulty_server import pod

from roost.errors import NotFound, Retryable, RoostError
from roost.kubernetes.client import mirror as module
from roost.kubernetes.client.api import Api, Expired, Unpermitted
from roost.kubernetes.client.kinds import PODS
from roost.kubernetes.client.mirror import Mirror

Object = dict[str, Any]
Event = tuple[str, Object]
Told = tuple[str | None, str | None]


class Script:
    """Lists and watches in the order told; nothing comes after the last."""

    def __init__(self, *told: RoostError | tuple[list[Object], str] | list[Event]) -> None:
        self.told = list(told)
        self.versions: list[str] = []
        self.over = asyncio.Event()

    def next(self) -> Any:
        if not self.told:
            self.over.set()
            return None
        told = self.told.pop(0)
        if isinstance(told, RoostError):
            raise told
        return told

    async def pages(self, *_: Any, **__: Any) -> AsyncGenerator[tuple[bool, list[Object], str]]:
        told = self.next()
        if told is None:
            await asyncio.Event().wait()
        items, version = told
        half = len(items) // 2
        yield True, items[:half], version
        yield False, items[half:], version

    async def watch(self, _: Any, version: str, *__: Any, **___: Any) -> AsyncGenerator[Event]:
        self.versions.append(version)
        told = self.next()
        if told is None:
            await asyncio.Event().wait()
        for event in told:
            if isinstance(event, RoostError):
                raise event
            yield event


def play(*told: Any) -> tuple[Mirror, list[Told], Script]:
    """Run a mirror through a script; what it told is of names and versions."""
    seen: list[Told] = []

    def changed(old: Object | None, new: Object | None) -> None:
        seen.append((_text(old), _text(new)))

    async def main() -> tuple[Mirror, Script]:
        script = Script(*told)
        mirror = Mirror(cast("Api", script), PODS, changed)
        task = asyncio.create_task(mirror.run())
        async with asyncio.timeout(60.0):
            await script.over.wait()
        task.cancel()
        await asyncio.wait([task])
        return mirror, script

    mirror, script = asyncio.run(main())
    return mirror, seen, script


def _text(found: Object | None) -> str | None:
    if found is None:
        return None
    return f"{found['metadata']['name']}{found['metadata']['resourceVersion']}"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOONEST_S", 0.001)
    monkeypatch.setattr(module, "LATEST_S", 0.01)
    monkeypatch.setattr(module, "REFUSED_S", 0.02)
    monkeypatch.setattr(module, "SHORTEST_S", 0.0)


def names(mirror: Mirror) -> dict[str, str]:
    return {
        name: found["metadata"]["resourceVersion"] for (_, name), found in mirror.objects.items()
    }


def mark(version: int) -> Event:
    return "BOOKMARK", {"metadata": {"resourceVersion": str(version)}}


def test_a_list_and_what_changes_after_it() -> None:
    mirror, told, script = play(
        ([pod("a", 1), pod("b", 2)], "2"),
        [
            ("ADDED", pod("c", 3)),
            ("MODIFIED", pod("a", 4)),
            ("DELETED", pod("b", 5)),
            mark(9),
        ],
    )
    assert told == [(None, "a1"), (None, "b2"), (None, "c3"), ("a1", "a4"), ("b2", None)]
    assert names(mirror) == {"a": "4", "c": "3"}
    assert script.versions == ["2", "9"]
    assert mirror.synced.is_set()


def test_what_was_said_before_is_not_told_again() -> None:
    mirror, told, _ = play(
        ([pod("a", 4)], "4"),
        [
            ("ADDED", pod("a", 4)),
            ("MODIFIED", pod("a", 6)),
            ("MODIFIED", pod("a", 5)),
            ("MODIFIED", pod("a", 6)),
            ("DELETED", pod("a", 3)),
            ("DELETED", pod("a", 7)),
            ("MODIFIED", pod("a", 6)),
            ("DELETED", pod("a", 7)),
            ("ADDED", pod("a", 8, "second")),
        ],
    )
    assert told == [(None, "a4"), ("a4", "a6"), ("a6", None), (None, "a8")]
    assert names(mirror) == {"a": "8"}


def test_a_version_that_nobody_knows_any_more() -> None:
    _, told, script = play(
        ([pod("a", 1), pod("b", 1), pod("c", 1)], "1"),
        [Expired("too old")],
        ([pod("a", 1), pod("b", 5), pod("c", 6, "other"), pod("d", 7)], "8"),
    )
    assert told[3:] == [("b1", "b5"), ("c1", None), (None, "c6"), (None, "d7")]
    assert script.versions == ["1", "8"]


def test_objects_that_went_while_nobody_watched() -> None:
    mirror, told, _ = play(([pod("a", 1)], "1"), Expired("too old"), ([], "3"))
    assert told == [(None, "a1"), ("a1", None)]
    assert mirror.objects == {}


def test_another_object_of_the_same_name() -> None:
    _, told, _ = play(([pod("a", 1)], "1"), [("MODIFIED", pod("a", 5, "other"))])
    assert told == [(None, "a1"), ("a1", None), (None, "a5")]


def test_a_broken_watch_goes_on_where_it_was() -> None:
    broken = Retryable("reset", 1.0)
    _, told, script = play(
        ([], "1"), [("ADDED", pod("a", 2)), broken], broken, [("ADDED", pod("b", 3))]
    )
    assert told == [(None, "a2"), (None, "b3")]
    assert script.versions == ["1", "2", "2", "3"]


def test_watches_that_never_work_lead_to_a_list() -> None:
    broken = Retryable("too large resource version", 1.0)
    _, _, script = play(([], "9"), broken, broken, broken, ([], "3"))
    assert script.versions == ["9", "9", "9", "3"]


def test_watches_that_end_at_once_are_no_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST_S", 1.0)
    mirror, _, script = play(([], "9"), [], [], [mark(10)], ([], "12"))
    assert script.versions == ["9", "9", "9", "12"]
    assert mirror.trouble == ""


def test_trouble_ends_with_the_next_news() -> None:
    broken = Retryable("reset", 1.0)
    mirror, _, _ = play(([], "9"), broken, [("ADDED", pod("a", 10))])
    assert mirror.trouble == ""
    mirror, _, _ = play(([], "9"), broken)
    assert mirror.trouble == "reset"


def test_a_missing_right_is_named_once_and_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing = Unpermitted("list", "pods")
    with caplog.at_level(logging.WARNING):
        mirror, told, _ = play(missing, missing, missing, ([pod("a", 1)], "1"))
    assert [record.message for record in caplog.records] == [
        "cannot follow pods: no permission to list pods in the whole cluster"
    ]
    assert told == [(None, "a1")]
    assert mirror.trouble == ""


def test_a_kind_that_is_not_served_has_no_objects() -> None:
    mirror, told, _ = play(NotFound("no such kind"))
    assert mirror.synced.is_set()
    assert told == []
    assert "no such kind" in mirror.trouble


def test_a_kind_that_goes_takes_its_objects_with_it_but_not_at_once() -> None:
    gone = NotFound("no such kind")
    mirror, told, _ = play(([pod("a", 1)], "1"), gone, ([pod("a", 1)], "2"))
    assert told == [(None, "a1")]
    mirror, told, _ = play(([pod("a", 1)], "1"), gone, gone, gone)
    assert told == [(None, "a1"), ("a1", None)]
    assert mirror.objects == {}


def test_a_list_from_the_past_is_asked_for_again() -> None:
    mirror, told, _ = play(
        ([pod("a", 9)], "9"), Expired("old"), ([pod("a", 5)], "5"), ([pod("a", 10)], "12")
    )
    assert told == [(None, "a9"), ("a9", "a10")]
    assert mirror.version == "12"


def test_a_list_that_stays_in_the_past_is_a_server_that_was_restored() -> None:
    past = ([pod("a", 5)], "5")
    mirror, told, _ = play(([pod("a", 9)], "9"), Expired("old"), *[past] * (module.LISTS + 1))
    assert told == [(None, "a9"), ("a9", "a5")]
    assert mirror.version == "5"


def test_an_error_in_the_callback_is_logged_and_the_mirror_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def changed(_: Object | None, new: Object | None) -> None:
        if new is not None and new["metadata"]["name"] == "a":
            raise ValueError("bad")

    async def main() -> Mirror:
        script = Script(([pod("a", 1), pod("b", 1)], "1"))
        mirror = Mirror(cast("Api", script), PODS, changed)
        task = asyncio.create_task(mirror.run())
        await script.over.wait()
        task.cancel()
        await asyncio.wait([task])
        return mirror

    assert set(names(asyncio.run(main()))) == {"a", "b"}
    assert "('lab', 'a')" in caplog.text


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    def odd(name: str, version: str) -> Object:
        return {"metadata": {"name": name, "resourceVersion": version}}

    _, told, script = play(([odd("a", "x1")], "x1"), [("MODIFIED", odd("a", "w9"))])
    assert told == [(None, "ax1"), ("ax1", "aw9")]
    assert script.versions == ["x1", "w9"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Event], list[Event]]:
    """What really happened to a few pods, and how it was told: repeated and out of order."""
    truth: list[Event] = []
    alive: set[str] = set()
    for version in range(1, draw(st.integers(1, 25)) + 1):
        name = draw(st.sampled_from("abc"))
        if name in alive and draw(st.booleans()):
            alive.discard(name)
            truth.append(("DELETED", pod(name, version)))
        else:
            what = "MODIFIED" if name in alive else "ADDED"
            alive.add(name)
            truth.append((what, pod(name, version)))
    again = draw(st.lists(st.sampled_from(truth), max_size=10))
    return truth, draw(st.permutations(truth + again))


@given(histories())
def test_the_end_is_the_truth_in_whatever_order_it_is_told(
    told: tuple[list[Event], list[Event]],
) -> None:
    truth, said = told
    mirror = Mirror(cast("Api", None), PODS, lambda *_: None)
    for what, found in said:
        mirror._see(what, found)
    left: dict[str, str] = {}
    for what, found in truth:
        left[found["metadata"]["name"]] = found["metadata"]["resourceVersion"]
        if what == "DELETED":
            del left[found["metadata"]["name"]]
    assert names(mirror) == left
