"""DL2's comparison: its rows, the same again with the same seed, and sorts that are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roost.cli import main
from roost.errors import InvalidSpec
from roost_bench.dl2.benchmark import Dl2Bench, Dl2Row, own_sorts, run

SMALL = Dl2Bench(nodes=24, generations=0, traces=2, jobs=10)


@pytest.fixture(scope="module")
def rows() -> dict[str, Dl2Row]:
    return {row.compared.policy: row for row in run(SMALL, 1)}


def test_all_that_is_compared_has_a_row(rows: dict[str, Dl2Row]) -> None:
    assert list(rows) == [
        *("drf", "optimus", "optimus-best-fit", "lookahead"),
        *("dl2", "dl2:inputs=own", "floor"),
    ]
    assert all(row.compared.to_floor >= 1 for row in rows.values())
    assert rows["drf"].compared.to_drf == pytest.approx(1.0)


def test_two_sorts_are_left_out_of_another_training(rows: dict[str, Dl2Row]) -> None:
    row = rows["dl2"]
    names = row.unknown_sorts.split(" and ")

    assert len(set(names) & {sort.name for sort in own_sorts()}) == 2
    assert row.unknown_ratio == pytest.approx(1.0)  # nothing was learnt, so there is none unknown


def test_another_seed_has_other_traces(rows: dict[str, Dl2Row]) -> None:
    same = next(iter(run(SMALL, 1)))
    other = next(iter(run(SMALL, 2)))

    assert same.compared == rows["drf"].compared != other.compared


def test_a_table_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="config_speed"):
        next(run(replace(SMALL, data=tmp_path), 0))


def test_the_command_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "dl2", "--nodes", "24", "--generations", "0", "--traces", "1", "--jobs", "5",
          "-o", "json"])  # fmt: skip
    found = json.loads(capsys.readouterr().out)

    assert {"policy", "nodes", "seed", "mean_jct", "to_optimus", "to_drf", "train_cpu_s"} <= set(
        found[0]
    )
