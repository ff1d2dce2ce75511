"""Charts: every bar where its value puts it, and nothing that breaks the file."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from roost_bench.plots import Bar, bars

_RECT = "{http://www.w3.org/2000/svg}rect"


def svg(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own


def test_bars_are_as_high_as_their_values() -> None:
    drawn = svg(bars("t", "h", {"g": {"a": Bar(1.0), "b": Bar(2.0)}}))
    heights = [float(rect.attrib["height"]) for rect in drawn.iter(_RECT) if list(rect)]
    assert len(heights) == 2
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.01)


def test_all_that_is_drawn_stays_inside() -> None:
    groups = {"g" * 30: {"series": Bar(3.0, spread=7.0, mark=12.0)}, "h": {"other": Bar(0.0)}}
    drawn = svg(bars("A title", "hours", groups, mark="published"))
    width, height = float(drawn.attrib["width"]), float(drawn.attrib["height"])
    for rect in drawn.iter(_RECT):
        x, y = float(rect.get("x", "0")), float(rect.get("y", "0"))
        assert 0 <= x <= x + float(rect.attrib["width"]) <= width
        assert 0 <= y <= y + float(rect.attrib["height"]) <= height


def test_names_are_only_text() -> None:
    evil = '</svg><script>"&'
    drawn = svg(bars(evil, evil, {evil: {evil: Bar(1.0)}}, mark=evil))
    assert [element.tag for element in drawn.iter() if "script" in element.tag] == []


def test_nothing_to_draw_is_an_empty_chart() -> None:
    assert svg(bars("t", "h", {})).tag.endswith("svg")


def test_a_bar_that_dwarfs_the_others_is_cut_off() -> None:
    group = {"a": Bar(1.0), "b": Bar(1.5), "c": Bar(100.0)}
    drawn = svg(bars("t", "h", {"g": group}))
    heights = [float(rect.attrib["height"]) for rect in drawn.iter(_RECT) if list(rect)]
    assert heights[2] < 6 * heights[0]
    assert "100" in [element.text for element in drawn.iter()]
