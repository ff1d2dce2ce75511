"""Each failpoint kills a real server or supervisor once, and nothing is lost, doubled or left."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.chaos import play

from roost.failpoints import CHANGING, KEEPING, NAMES

#: Two groups of about the same length, so that two processes share the work.
STARTING = ("adopt.", "shim.", "snapshot.")
GROUPS = {
    "while serving": tuple(name for name in NAMES if not name.startswith(STARTING)),
    "while starting, stopping and supervising": tuple(
        name for name in NAMES if name.startswith(STARTING)
    ),
}


def test_the_groups_are_all_failpoints() -> None:
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(NAMES)


@pytest.mark.parametrize("points", GROUPS.values(), ids=GROUPS)
def test_a_death_at_each_point_is_survived(points: tuple[str, ...], tmp_path: Path) -> None:
    chaos = play(7, len(points), points, tmp_path, kills=0)
    assert chaos.problems == []
    assert {name for name in points if chaos.hits[name]} == set(points)
    assert set(points) <= set(chaos.server.reached())


def test_the_documentation_lists_every_failpoint() -> None:
    page = Path(__file__).parents[2] / "docs" / "reliability.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in NAMES + CHANGING + KEEPING if f"`{name}`" not in text] == []
