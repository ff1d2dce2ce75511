"""``roost bench openb``: the same figures for the same seed, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.told import roost

NODES = "sn,cpu_milli,memory_mib,gpu,model\nc0,32000,65536,0,\n" + "".join(
    f"g{n},64000,262144,{4 if n % 2 else 2},{'T4' if n % 2 else 'G2'}\n" for n in range(10)
)
SHARES = (300, 700, 1000, 500)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{n:03},{2000 + n % 3 * 2000},4096,1,{SHARES[n % 4]},{'T4' * (n % 5 == 0)}\n"
    for n in range(60)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods-default.csv").write_text(PODS)
    return tmp_path


def test_a_row_for_each_run(data: Path) -> None:
    said = roost(
        *("bench", "openb", "--data", data, "--placers", "pack,fgd,usable", "--seeds", "1-2"),
        *("-o", "json"),
    )
    rows = json.loads(said.out)
    assert [(row["placer"], row["seed"]) for row in rows] == [
        (name, seed) for name in ("pack", "fgd", "usable") for seed in (1, 2)
    ]
    for row in rows:
        assert list(row)[:6] == [
            *("variant", "placer", "seed", "allocated_pct", "frag_pct", "us_per_pod"),
        ]
        assert 60 < row["allocated_pct"] <= 100
        assert 0 <= row["frag_pct"] <= 100 - row["allocated_pct"] + 5
    again = json.loads(
        roost(
            *("bench", "openb", "--data", data, "--placers", "fgd", "--seeds", "2", "-o", "json")
        ).out
    )
    assert again[0]["allocated_pct"] == rows[3]["allocated_pct"]


def test_pods_may_leave_again(data: Path) -> None:
    said = roost(
        *("bench", "openb", "--data", data, "--placers", "fgd", "--seeds", "1", "--load", "1.2"),
        *("-o", "json"),
    )
    (row,) = json.loads(said.out)
    assert row["load"] == 1.2
    assert 50 < row["allocated_pct"] <= 100


def test_the_table_has_what_was_published(data: Path) -> None:
    said = roost("bench", "openb", "--data", data, "--placers", "fgd", "--seeds", "1,2")
    assert "95.23 ± 0.10" in said.out
    assert " ± " in said.out.splitlines()[1]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--variants", "nope"), "there is no variant 'nope'; there are default"),
        (("--seeds", "5-1"), "such as 42-51"),
        (("--placers", "nope"), "nope"),
    ],
)
def test_mistakes_say_what_to_do(data: Path, asked: tuple[str, ...], told: str) -> None:
    assert told in roost("bench", "openb", "--data", data, *asked).error


def test_a_folder_without_the_trace(tmp_path: Path) -> None:
    assert "no nodes.csv and pods-*.csv" in roost("bench", "openb", "--data", tmp_path).error
