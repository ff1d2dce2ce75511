"""Sorts of jobs: drawn from models of speed, or read from a table such as DL2's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from roost.errors import InvalidSpec
from roost.learn.sorts import MOST, TABLE, draw_sorts, read_sorts

MODELS = (
    *("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq"),
    *("cnn-text-classification", "dssm", "wlm"),
)


def table(folder: Path, *more: str) -> Path:
    """A table of our own invention in DL2's form: two points for each model."""
    lines = [
        f"({name!r}, 'dist_sync', 32, {p}, {w}, {[float(p)] * w}, [1.0], [1.0])"
        for name in MODELS
        for p, w in ((1, 1), (16, 1), (1, 16), (16, 16))
    ]
    (folder / TABLE).write_text("\n".join([*lines, *more]))
    return folder


def test_the_same_seed_draws_the_same_sorts() -> None:
    one, same, other = draw_sorts(1), draw_sorts(1), draw_sorts(2)

    assert all(np.array_equal(a.speeds, b.speeds) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0].speeds, other[0].speeds)
    assert all((sort.speeds > 0).all() and not sort.name for sort in one)


def test_a_table_meets_what_was_measured_and_is_above_0_everywhere(tmp_path: Path) -> None:
    found = {sort.name: sort for sort in read_sorts(table(tmp_path))}
    speeds = found["resnet-50"].speeds

    assert list(found) == list(MODELS)
    assert speeds.shape == (MOST, MOST)
    assert speeds[15, 15] == pytest.approx(16 * 16 * 1200 / 115)
    assert speeds[0, 15] == pytest.approx(16 * 1200 / 115)
    assert all((sort.speeds > 0).all() for sort in found.values())
    assert not found["dssm"].gpu


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "('wlm', 'dist_sync', 32)",
        "('wlm', 'a', 1, 0, 1, [1.0])",
        "('wlm', 'a', 1, 1, 1, ['x'])",
        "('wlm', 'a', 1, 1, 1, [-1.0])",
        "('wlm', 'a', 1, 1, 1, [1e999])",
    ],
)
def test_a_line_that_is_no_measurement_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidSpec, match=r"config_speed\.txt, line 33"):
        read_sorts(table(tmp_path, line))


def test_a_table_that_is_not_there_or_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="DL2's table of speeds"):
        read_sorts(tmp_path)
    (tmp_path / TABLE).write_text("('wlm', 'dist_sync', 32, 1, 1, [1.0], [1.0], [1.0])\n")
    with pytest.raises(InvalidSpec, match="no speeds of resnet-50, vgg-16"):
        read_sorts(tmp_path)
