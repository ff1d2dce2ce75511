"""``roost bench harmony``: rows per run, a small table, and errors that say what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost.errors import InvalidSpec
from roost_bench.sharing.benchmark import SharingRow, measure, read_table, setup, workload

KEYS = ["policy", "load", "seed", "mean_jct_h", "p99_jct_h", "work_per_gpu"]
DATA = os.environ.get("ROOST_DATA", "/nowhere")
TYPES = ("LM", "GAN", "A3C")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A table in which two of a kind do badly, and others well."""
    keys = [f"('{name}', 1)" for name in TYPES]
    table = {
        key: {"null": 10.0} | {other: [3.0, 3.0] if other == key else [9.0, 9.0] for other in keys}
        for key in keys
    }
    (tmp_path / "throughputs.json").write_text(json.dumps({"v100": table}))
    return tmp_path


def test_json_is_a_row_for_each_run(data: Path) -> None:
    said = roost(
        *("bench", "harmony", "--data", data, "--load", "1.2", "--seeds", "1", "--first-seed", "3"),
        *("-p", "balance,harmony,known", "-o", "json"),
    )

    rows = json.loads(said.out)

    assert [(row["policy"], row["load"], row["seed"]) for row in rows] == [
        ("balance", 1.2, 3),
        ("harmony", 1.2, 3),
        ("known", 1.2, 3),
    ]
    assert list(rows[0])[: len(KEYS)] == KEYS
    assert rows[2]["mean_jct_h"] <= rows[1]["mean_jct_h"] * 1.1 < rows[0]["mean_jct_h"] * 1.1
    assert all(row["misfits"] == 0 for row in rows)
    assert rows[1]["worst_losing_s"] <= 61
    assert "[3/3]" in said.err


def test_the_model_is_measured_by_itself() -> None:
    if not (Path(DATA) / "gavel").is_dir():
        pytest.skip("needs ROOST_DATA with gavel/throughputs.json")
    said = roost(
        "bench", "harmony", "--data", Path(DATA) / "gavel", "--only", "model", "-o", "json"
    )

    rows = json.loads(said.out)

    seen = [row["median_error"] for row in rows if row["pairs_seen"] == 100]
    assert len(seen) == 8
    assert sum(seen) / 8 <= 0.10


def test_the_same_seed_is_the_same_workload_and_load_moves_it_apart(data: Path) -> None:
    pairs = read_table(str(data))
    one, again, busier = (workload(pairs, load, 5, 20) for load in (1.0, 1.0, 2.0))

    assert one.jobs == again.jobs
    assert [job.work_s for job in one.jobs] == [job.work_s for job in busier.jobs]
    assert busier.jobs[-1].submitted_at == pytest.approx(one.jobs[-1].submitted_at / 2, rel=1e-3)


def test_one_per_gpu_means_whole_gpus(data: Path) -> None:
    pairs = read_table(str(data))
    alone = setup("fifo", pairs, workload(pairs, 1.0, 0, 5)).workload.jobs
    shared = setup("harmony", pairs, workload(pairs, 1.0, 0, 5)).workload.jobs

    assert {job.spec.resources.share_milli for job in alone} == {1000}
    assert {job.spec.resources.share_milli for job in shared} == {500}


def test_it_is_the_same_again(data: Path) -> None:
    def figures() -> list[object]:
        row = measure(str(data), "harmony", 1.3, 1)
        return [getattr(row, name) for name in SharingRow.__slots__ if name != "cpu_s"]

    assert figures() == figures()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--load", "x"), "--load takes positive numbers"),
        (("--load", "0"), "--load takes positive numbers"),
        (("-p", "harmonie"), "harmony"),
    ],
)
def test_what_makes_no_sense_is_refused(data: Path, asked: tuple[str, str], told: str) -> None:
    said = roost("bench", "harmony", "--data", data, *asked)

    assert said.status != 0
    assert told in said.err


def test_a_folder_without_the_table_is_refused(tmp_path: Path) -> None:
    said = roost("bench", "harmony", "--data", tmp_path)

    assert said.status != 0
    assert "throughputs.json" in said.err


def test_a_load_of_nothing_is_no_workload(data: Path) -> None:
    with pytest.raises(InvalidSpec, match="a load must be positive"):
        workload(read_table(str(data)), 0.0, 0)


def test_gandiva_is_measured_part_by_part(data: Path) -> None:
    said = roost(
        *("bench", "gandiva", "--data", data, "--load", "1.4", "--seeds", "1", "-o", "json")
    )

    rows = json.loads(said.out)

    by = {(row["part"], row["policy"]): row for row in rows}
    assert by["pack", "gandiva"]["mean_jct_h"] < by["pack", "balance"]["mean_jct_h"]
    assert {name for part, name in by if part == "move"} == {"gandiva", "gandiva:move=no"}
    assert by["move", "gandiva:move=no"]["moves"] == 0 < by["move", "gandiva"]["moves"]
    assert by["search", "gandiva"]["times_sooner"] >= 8
    assert 0 < by["search", "gandiva"]["switching"] <= 0.05


@pytest.mark.parametrize(
    ("asked", "told"), [(("--only", "pack"), "--data DIR"), (("--only", "pak"), "pack")]
)
def test_parts_that_cannot_be_run_are_refused(asked: tuple[str, str], told: str) -> None:
    said = roost("bench", "gandiva", *asked)

    assert said.status != 0
    assert told in said.err
