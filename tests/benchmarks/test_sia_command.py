"""``roost bench sia``: rows per run and pooled, a plot, and errors that name what there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.benchmarks.test_plots import svg
from tests.oracles.profiled import write_profiles
from tests.unit.cli.told import roost

from roost.errors import NotFound
from roost.traces.profiles import CONSTANTS
from roost_bench.sia.command import family, find_workloads

HEADER = "name,time,application,num_replicas,batch_size\n"
KEYS = [
    *("policy", "workload", "jobs", "mean_jct_h", "p99_jct_h", "makespan_h"),
    *("gpu_hours_per_job", "restarts_per_job", "wall_s", "decision_ms_p50"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in CONSTANTS:
        write_profiles(tmp_path / "profiles", name)
    (tmp_path / "workloads").mkdir()
    for name, count in (("philly-1", 3), ("philly-10", 1), ("philly-2", 2), ("saturn-1", 2)):
        rows = [f"bert-{at},{60 * at},bert,2,64\n" for at in range(count)]
        (tmp_path / "workloads" / f"{name}.csv").write_text(HEADER + "".join(rows))
    return tmp_path


def test_json_is_a_list_of_runs(data: Path) -> None:
    said = roost(
        "bench",
        "sia",
        "--data",
        data,
        "--workloads",
        "philly-1",
        *_policies("fifo,las"),
        "-o",
        "json",
    )
    rows = json.loads(said.out)
    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert [(row["policy"], row["workload"], row["jobs"]) for row in rows] == [
        ("fifo", "philly-1", 3),
        ("las", "philly-1", 3),
    ]
    assert all(row["mean_jct_h"] > 0 and row["gpu_hours_per_job"] > 0 for row in rows)
    assert "[2/2]" in said.err


def test_pooled_rows_come_by_trace_and_over_all(data: Path) -> None:
    said = roost("bench", "sia", "--data", data, *_policies("fifo"), "--pooled", "-o", "json")
    rows = {row["workload"]: row for row in json.loads(said.out)}
    assert list(rows) == [
        *("philly-1", "philly-2", "philly-10", "saturn-1"),
        *("philly", "saturn", "all"),
    ]
    assert (rows["philly"]["jobs"], rows["all"]["jobs"]) == (6, 8)


def test_the_table_stands_beside_the_published_one_and_the_plot_is_drawn(data: Path) -> None:
    plot = data / "plot.svg"
    workloads = ("--workloads", "philly-2,saturn-1")
    said = roost("bench", "sia", "--data", data, *workloads, *_policies("fifo"), "--plot", plot)
    assert "PUBLISHED" in said.out
    assert "BERT H / RESTARTS" in said.out
    drawn = svg(plot.read_text())
    texts = [element.text for element in drawn.iter() if element.text]
    assert {"fifo", "philly", "saturn", "all"} <= set(texts)


def test_workloads_come_in_the_order_of_their_numbers(data: Path) -> None:
    assert [file.stem for file in find_workloads(data, "philly")] == [
        *("philly-1", "philly-2", "philly-10")
    ]
    assert [file.stem for file in find_workloads(data, "saturn-1,philly-2.csv")] == [
        *("saturn-1", "philly-2")
    ]
    assert family("scale_2x") == "scale_2x"


def test_an_unknown_workload_names_those_there_are(data: Path) -> None:
    said = roost("bench", "sia", "--data", data, "--workloads", "phily-1", *_policies("fifo"))
    assert "did you mean 'philly-1'?" in said.error
    assert "has philly-1, philly-2, philly-10, saturn-1" in said.error


def test_a_folder_without_data_is_named(data: Path) -> None:
    said = roost("bench", "sia", "--data", data / "workloads", *_policies("fifo"))
    assert str(data / "workloads" / "workloads") in said.error
    (data / "empty" / "profiles").mkdir(parents=True)
    (data / "empty" / "workloads").mkdir()
    with pytest.raises(NotFound, match="holds no workloads"):
        find_workloads(data / "empty", None)


def test_a_wrong_policy_is_found_before_anything_runs(data: Path) -> None:
    said = roost("bench", "sia", "--data", data, *_policies("fifo,siaa"))
    assert "policy 'siaa'" in said.error


def test_a_bad_table_is_named(data: Path) -> None:
    (data / "profiles" / "bert" / "scalability-rtx.csv").unlink()
    said = roost("bench", "sia", "--data", data, "--workloads", "philly-1", *_policies("fifo"))
    assert said.status == 2
    assert "scalability-rtx.csv" in said.err


def test_what_is_over_is_shown_though_a_later_run_fails(data: Path) -> None:
    (data / "workloads" / "saturn-1.csv").write_text(HEADER + "gpt-0,0,gpt,2,64\n")
    workloads = ("--workloads", "philly-2,saturn-1")
    command = ("bench", "sia", "--data", data, *workloads, *_policies("fifo"), "-j", 1)
    said = roost(*command, "-o", "json")
    assert said.status == 2
    assert "saturn-1.csv, line 2, column 'application'" in said.err
    assert [row["workload"] for row in json.loads(said.out)] == ["philly-2"]


def _policies(names: str) -> tuple[str, str]:
    return "--policies", names
