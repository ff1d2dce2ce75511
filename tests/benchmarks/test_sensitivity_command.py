"""``roost bench sensitivity`` and ``roost bench decide``: tables, figures, a plot, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.test_plots import svg
from tests.oracles.profiled import write_profiles
from tests.unit.cli.told import roost

from roost.traces.profiles import CONSTANTS
from roost_bench.sensitivity import studies
from roost_bench.sensitivity.command import STUDIES

KEYS = [
    *("what", "value", "policy", "jobs", "seeds", "mean_jct_h", "mean_jct_h_ci"),
    *("change", "change_ci", "ratio", "ratio_ci", "p99_jct_h", "p99_jct_h_ci"),
    *("makespan_h", "makespan_h_ci", "restarts_per_job"),
]
BENCH = ("bench", "sensitivity")


def test_the_command_knows_all_studies() -> None:
    assert set(STUDIES) == set(studies.STUDIES)
    said = roost(*BENCH, "--help")
    assert all(f"  {name}  " in said.out for name in STUDIES)


def test_figures_of_parameter_server_jobs() -> None:
    values = ("--values", "sync", "--policies", "fifo", "--seeds", 2, "--jobs", 2)
    said = roost(*BENCH, "mode", *values, "-o", "json")
    rows = json.loads(said.out)
    assert [list(row) for row in rows] == [KEYS]
    assert (rows[0]["value"], rows[0]["policy"], rows[0]["seeds"]) == ("sync", "fifo", 2)
    assert rows[0]["mean_jct_h"] > 0
    assert rows[0]["mean_jct_h_ci"] > 0
    assert "[2/2] mode sync under fifo" in said.err


def test_a_table_and_a_plot_of_adaptive_jobs(tmp_path: Path) -> None:
    for name in CONSTANTS:
        write_profiles(tmp_path / "profiles", name)
    (tmp_path / "workloads").mkdir()
    lines = "".join(f"bert-{at},{60 * at},bert,2,64\n" for at in range(4))
    head = "name,time,application,num_replicas,batch_size\n"
    (tmp_path / "workloads" / "philly-1.csv").write_text(head + lines)
    plot = tmp_path / "plot.svg"
    options = ("--values", "0s,10m", "--policies", "fifo", "--seeds", 1, "--jobs", 3)
    said = roost(*BENCH, "restart-cost", "--data", tmp_path, *options, "--plot", plot)
    assert said.status == 0, said
    title, head, free, dear, _, changes, _, same, more = said.out.splitlines()
    assert title == "What every restart costs: mean JCT in hours, 3 jobs"
    assert head.split() == ["RESTART", "TAKES", "FIFO"]
    assert float(free.split()[1]) < float(dear.split()[1])
    assert changes == "Change from restart takes 0s"
    assert same.split() == ["0s", "+0.0", "%"]
    assert more.split()[1].startswith("+")
    texts = [element.text for element in svg(plot.read_text()).iter()]
    assert {"0s", "10m", "fifo"} <= set(texts)


def test_what_cannot_be_is_refused_before_anything_runs() -> None:
    assert "'loud'" in roost(*BENCH, "loud").err
    assert "'siaa'" in roost(*BENCH, "load", "--policies", "siaa").error
    assert "not a number" in roost(*BENCH, "load", "--policies", "fifo", "--values", "x").error
    missing = roost(*BENCH, "load", "--policies", "fifo", "--data", "nowhere")
    assert "no such folder" in missing.error


def test_decisions_of_training_jobs_can_be_timed() -> None:
    size = ("--nodes", 3, "--jobs", 6, "--rounds", 2)
    said = roost("bench", "decide", "--training", *size, "--policies", "fifo,alnair", "-o", "json")
    rows = json.loads(said.out)
    assert [row["policy"] for row in rows] == ["fifo", "alnair"]
    assert all(row["worst_ms"] >= row["median_ms"] > 0 for row in rows)
