"""Every verb on its good days: what it prints in each format, and what it writes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.told import JOBS, Told, roost, write_jobs

from roost import traces
from roost.placement import PLACERS
from roost.policies import names

SIMULATE = ("simulate", "jobs.csv", "--nodes", 1)
COMPARE = ("compare", "jobs.csv", "--nodes", 1, "-p", "fifo,srtf", "-j", 1)
#: All that can differ from seed to seed, small enough for a test.
CHANCE = ("--synthetic", "jobs=40,load=1.2,max_run_s=2h", "--nodes", 1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_jobs(tmp_path)
    return tmp_path


def parsed(told: Told) -> Any:
    """The JSON that was printed, without NaN and infinity; nothing else was said."""
    assert told.status == 0, told
    assert told.err == ""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(told.out, parse_constant=refuse)


def table(told: Told) -> list[dict[str, str]]:
    assert told.status == 0, told
    return list(csv.DictReader(io.StringIO(told.out)))


# -- simulate --------------------------------------------------------------------------------------


def test_simulate_prints_headline_figures_for_people() -> None:
    told = roost(*SIMULATE)

    assert told.status == 0
    assert told.err == ""
    first, *_ = told.out.splitlines()
    assert first.startswith("fifo on jobs: 3 of 3 jobs over after 2.17 m, 1 nodes, 8 GPUs")
    assert "queue default" in told.out
    assert "outcomes: 3 succeeded" in told.out


def test_simulate_as_json_says_what_was_run_and_every_figure() -> None:
    found = parsed(roost(*SIMULATE, "-o", "json", "-p", "srtf", "--seed", 7))

    assert found["policy"] == "srtf"
    assert found["placer"] == "consolidate"
    assert found["workload"] == "jobs"
    assert found["seed"] == 7
    assert (found["nodes"], found["gpus"]) == (1, 8)
    assert (found["jobs"], found["finished"]) == (3, 3)
    assert found["simulated_s"] == found["makespan"] == 130
    assert found["jct_mean"] == 90
    assert set(found["by_size"]) == {"1", "2-4", "5-8"}


def test_simulate_as_csv_has_a_row_per_job() -> None:
    rows = table(roost(*SIMULATE, "-o", "csv"))

    assert [(row["id"], float(row["finished_at"])) for row in rows] == [
        ("a", 100),
        ("b", 50),
        ("c", 130),
    ]


@pytest.mark.parametrize("output", ["table", "json", "csv"])
@pytest.mark.parametrize("stop", ["0", "5", "45s", "2m"])
def test_an_unfinished_run_can_be_shown(stop: str, output: str) -> None:
    told = roost(*SIMULATE, "--stop-at", stop, "-o", output)

    assert told.status == 0
    assert "nan" not in told.out.lower()


def test_an_unfinished_run_says_how_far_it_came() -> None:
    at_45 = parsed(roost(*SIMULATE, "--stop-at", "45s", "-o", "json"))
    assert at_45["simulated_s"] == 45
    assert at_45["finished"] == 0
    assert at_45["jct_mean"] is None
    assert at_45["delay_mean"] == pytest.approx(35 / 3)  # c waits since 10
    assert at_45["gpu_allocation"] == pytest.approx(5 / 8)

    shown = roost(*SIMULATE, "--stop-at", "45s").out
    assert shown.startswith("fifo on jobs: 0 of 3 jobs over after 45 s, 1 nodes")
    assert "1 queued, 2 running" in shown

    at_5 = roost(*SIMULATE, "--stop-at", "5s").out
    assert at_5.startswith("fifo on jobs: 0 of 2 jobs over after 5 s (1 still to come), 1 nodes")
    assert "outcomes: 2 running" in at_5


def test_a_run_that_stops_before_the_first_job_has_figures_of_nothing(folder: Path) -> None:
    write_jobs(folder, "id,submitted_at,work_s\nlate,100,5\n", "late.csv")
    early = ("simulate", "late.csv", "--nodes", 1, "--stop-at", 50)

    assert "0 of 0 jobs over after 50 s (1 still to come)" in roost(*early).out
    assert parsed(roost(*early, "-o", "json"))["to_come"] == 1
    assert roost(*early, "-o", "csv").out.startswith("id,queue,gpus,submitted_at,")
    assert table(roost(*early, "-o", "csv")) == []
    assert roost(*early, "--report", "page.html").status == 0


def test_a_run_that_was_over_before_it_was_to_stop_says_when_it_was_over() -> None:
    assert parsed(roost(*SIMULATE, "--stop-at", "1d", "-o", "json"))["simulated_s"] == 130


def test_a_run_can_be_saved_resumed_and_saved_again(folder: Path) -> None:
    whole = roost(*SIMULATE, "-o", "csv").out

    roost(*SIMULATE, "--stop-at", 5, "--save", "half.roost")
    roost("simulate", "--resume", "half.roost", "--stop-at", 60, "--save", "half.roost")
    rest = roost("simulate", "--resume", "half.roost", "-o", "csv")

    assert rest.out == whole
    assert sorted(path.name for path in folder.iterdir()) == ["half.roost", "jobs.csv"]


def test_the_report_of_a_resumed_run_shows_its_timeline_from_the_start(folder: Path) -> None:
    roost(*SIMULATE, "--report", "whole.html")
    roost(*SIMULATE, "--stop-at", 60, "--save", "half.roost")
    roost("simulate", "--resume", "half.roost", "--report", "resumed.html")

    def content(name: str) -> Any:
        _, _, rest = (folder / name).read_text().partition('type="application/json"')
        return json.loads(rest.partition(">")[2].partition("</script>")[0])

    resumed, whole = content("resumed.html"), content("whole.html")
    for page in (resumed, whole):
        for policy in page["policies"]:
            del policy["wall_s"], policy["cpu_s"]
    assert whole["policies"][0]["bars"]
    assert resumed == whole


def test_the_logs_of_the_parts_of_a_run_are_the_log_of_the_whole(folder: Path) -> None:
    roost(*SIMULATE, "--events", "whole.jsonl")
    roost(*SIMULATE, "--stop-at", 20, "--save", "half.roost", "--events", "first.jsonl")
    roost("simulate", "--resume", "half.roost", "--events", "rest.jsonl")

    first, rest = ((folder / name).read_bytes() for name in ("first.jsonl", "rest.jsonl"))
    assert first
    assert rest
    assert first + rest == (folder / "whole.jsonl").read_bytes()


def test_reports_are_announced_where_they_do_not_disturb(folder: Path) -> None:
    shown = roost(*SIMULATE, "--report", "page.html")
    assert shown.out.endswith("report: page.html\n")
    assert shown.err == ""

    told = roost(*SIMULATE, "--report", "page.html", "-o", "json")
    assert told.err == "report: page.html\n"
    json.loads(told.out)
    assert (folder / "page.html").read_text().startswith("<!doctype html>")


def test_jobs_can_be_generated_on_the_spot() -> None:
    found = parsed(roost("simulate", *CHANCE, "-o", "json"))
    assert found["jobs"] == 40
    assert found["gpus"] == 8

    eight = parsed(roost("simulate", "--synthetic", "jobs=5", "--kind", "A100", "-o", "json"))
    assert (eight["nodes"], eight["gpus"]) == (8, 64)


def test_every_knob_at_once() -> None:
    found = parsed(
        roost(
            *("simulate", *CHANCE, "-p", "tiresias:limits=600/3600,promote=4", "-o", "json"),
            *("--placer", "topology", "--gpus-per-node", 8, "--sockets", 2, "--kind", "V100"),
            *("--nodes-per-switch", 2, "--queue", "queue-1:weight=2,quota_milli=4000"),
            *("--restart", "30s", "--resize", "5s", "--checkpoint-cost", "5s"),
            *("--checkpoint-every", "10m", "--min-run", "5m", "--speed", "V100=1,K80=0.25"),
            *("--spread", "node=0.95,switch=0.8,cluster=0.6", "--scaling", 0.9),
            *("--interference", 0.1, "--node-mtbf", "4d", "--node-mttr", "1h"),
            *("--gpu-mtbf", "9d", "--gpu-mttr", "2h", "--estimate-error", 0.5, "--seed", 1),
        )
    )
    assert found["finished"] == found["jobs"] == 40


def test_a_cluster_can_be_a_table_of_nodes(folder: Path) -> None:
    (folder / "nodes.csv").write_text("id,gpus,kind,switch\nn0,8,A100,s0\nn1,4,K80,s0\n")
    found = parsed(roost("simulate", "jobs.csv", "--cluster", "nodes.csv", "-o", "json"))
    assert (found["nodes"], found["gpus"]) == (2, 12)


def test_impossible_jobs_and_bad_rows_can_be_left_out(folder: Path) -> None:
    (folder / "mixed.csv").write_text(f"{JOBS}wide,20,5,99\nbad,x,5,1\n")

    told = roost(
        *("simulate", "mixed.csv", "--nodes", 1, "-o", "csv"),
        *("--skip-impossible", "--skip-bad-rows"),
    )
    assert told.status == 0
    assert [line[0] for line in told.out.splitlines()[1:]] == ["a", "b", "c"]
    assert told.err.startswith("skipped 1 rows of mixed.csv; the first is line 6, column")


def test_jobs_that_never_end_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.policies.fifo.fifo.__code__", (lambda _plan: None).__code__)

    alone = roost(*SIMULATE)
    assert alone.status == 0
    assert alone.err == "note: under fifo with seed 0, 3 of 3 jobs never end\n"
    assert roost(*COMPARE).err == alone.err
    assert roost(*SIMULATE, "--stop-at", 60).err == ""


def test_only_the_first_jobs_can_be_asked_for() -> None:
    assert len(table(roost(*SIMULATE, "--limit", 2, "-o", "csv"))) == 2


# -- compare ---------------------------------------------------------------------------------------


def test_compare_prints_a_row_per_policy() -> None:
    told = roost(*COMPARE)

    assert told.status == 0
    *table, note = told.out.splitlines()
    assert [line.split()[0] for line in table] == ["POLICY", "fifo", "srtf"]
    assert note.startswith("note: no job declares a run time: ")


def test_compare_as_json_pairs_every_policy_with_the_first() -> None:
    fifo, srtf = parsed(
        roost("compare", *CHANCE, "-p", "fifo,srtf", "-j", 1, "--seeds", 3, "-o", "json")
    )

    assert (fifo["policy"], srtf["policy"]) == ("fifo", "srtf")
    assert fifo["seeds"] == srtf["seeds"] == [0, 1, 2]
    assert fifo["against_first"] == {}
    difference = srtf["against_first"]["jct_mean"]
    means = [each["figures"]["jct_mean"]["mean"] for each in (fifo, srtf)]
    assert difference["mean"] == pytest.approx(means[1] - means[0])
    assert difference["n"] == 3
    assert difference["ci95"] > 0
    assert [run["jobs"] for run in fifo["runs"]] == [40, 40, 40]


def test_compare_as_csv_has_means_and_confidence_intervals() -> None:
    rows = table(roost("compare", *CHANCE, "-p", "fifo,srtf", "-j", 1, "--seeds", 2, "-o", "csv"))

    assert [row["policy"] for row in rows] == ["fifo", "srtf"]
    for row in rows:
        assert row["seeds"] == "2"
        assert float(row["jct_mean"]) > 0
        assert float(row["jct_mean_ci95"]) > 0
    alone = table(roost(*COMPARE, "-o", "csv"))
    assert alone[0]["jct_mean"] == "90.0"
    assert alone[0]["jct_mean_ci95"] == ""  # one run has no spread


def test_compare_shows_confidence_intervals_for_several_seeds() -> None:
    assert "±" in roost("compare", *CHANCE, "-p", "fifo", "-j", 1, "--seeds", 2).out


def test_a_machine_that_runs_out_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_args: object, **_kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr("roost.sim.scenario.generate", exhausted)
    assert roost("simulate", *CHANCE).error == "out of memory"


def test_seeds_without_chance_are_one_run() -> None:
    told = roost(*COMPARE, "--seeds", 5, "-o", "json")

    assert told.err.startswith("note: nothing here is random")
    assert [row["seeds"] for row in json.loads(told.out)] == [[0], [0]]


def test_in_parallel_or_one_after_the_other_the_figures_are_the_same() -> None:
    alone = roost("compare", *CHANCE, "-p", "fifo,las", "-j", 1, "--seeds", 2, "-o", "csv")
    side_by_side = roost("compare", *CHANCE, "-p", "fifo,las", "-j", 2, "--seeds", 2, "-o", "csv")

    assert side_by_side == alone


def test_commas_inside_the_parameters_of_a_policy_belong_to_it() -> None:
    typed = "fifo,tiresias:limits=60/600,promote=4,las"
    rows = table(roost("compare", "jobs.csv", "--nodes", 1, "-j", 1, "-p", typed, "-o", "csv"))
    assert [row["policy"] for row in rows] == ["fifo", "tiresias:limits=60/600,promote=4", "las"]


def test_compare_writes_one_page_for_all(folder: Path) -> None:
    told = roost(*COMPARE, "--report", "page.html")

    assert told.out.endswith("report: page.html\n")
    page = (folder / "page.html").read_text()
    assert '"fifo"' in page
    assert '"srtf"' in page


# -- the others ------------------------------------------------------------------------------------


def test_policies_are_listed_with_a_line_each() -> None:
    told = roost("policies")
    assert [line.split()[0] for line in told.out.splitlines()] == names()
    assert all(len(line.split()) > 3 for line in told.out.splitlines())


def test_policies_as_json_have_their_parameters() -> None:
    found = {each["name"]: each for each in parsed(roost("policies", "-o", "json"))}

    assert list(found) == names()
    assert found["fifo"]["parameters"] == {}
    assert found["tiresias"]["parameters"]["limits"] == [3250, 7200]
    assert parsed(roost("policies", "tiresias", "-o", "json")) == found["tiresias"]


def test_the_parameters_of_a_policy_are_shown_as_they_are_typed() -> None:
    told = roost("policies", "tiresias")
    assert "limits=3250/7200" in told.out
    assert told.out.endswith("set as tiresias:key=value,key=value\n")
    shown = [line.strip() for line in told.out.splitlines()[1:-1]]
    assert roost(*SIMULATE, "-p", f"tiresias:{','.join(shown)}").status == 0


def test_placers_are_listed() -> None:
    lines = roost("placers").out.splitlines()
    assert [line.split()[0] for line in lines] == list(PLACERS)
    found = parsed(roost("placers", "-o", "json"))
    assert [each["name"] for each in found] == list(PLACERS)
    assert all(each["summary"] for each in found)


def test_a_generated_workload_can_be_read_back(folder: Path) -> None:
    told = roost("generate", "new.csv", "--set", "jobs=30,gpu_weights=1:3/2:1", "--seed", 3)

    assert told.status == 0
    assert told.out.endswith("written: new.csv\n")
    workload = traces.read(folder / "new.csv")
    assert len(workload.jobs) == 30
    assert {job.spec.gpus for job in workload.jobs} == {1, 2}


def test_the_same_seed_generates_the_same_file(folder: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        roost("generate", name, "--set", "jobs=30", "--seed", seed)
    a, b, c = ((folder / name).read_bytes() for name in "abc")
    assert a == b != c


def test_inspect_describes_and_converts(folder: Path) -> None:
    told = roost("inspect", "jobs.csv", "--to", "copy.csv")

    assert told.out.startswith("jobs: 3 jobs over 10 s\n")
    assert "GPUs: 1: 1, 4: 1, 8: 1" in told.out
    assert told.out.endswith("written: copy.csv\n")
    assert traces.read(folder / "copy.csv").jobs == traces.read(folder / "jobs.csv").jobs


def test_inspect_without_a_file_lists_formats() -> None:
    lines = roost("inspect").out.splitlines()
    assert [line.split()[0] for line in lines] == ["FORMAT", *traces.FORMATS]


def test_diff_finds_nothing_between_equal_runs() -> None:
    for name in ("a.jsonl", "b.jsonl"):
        roost(*SIMULATE, "--events", name)
    told = roost("diff", "a.jsonl", "b.jsonl")
    assert told.status == 0
    assert told.out.startswith("the same: ")


def test_diff_shows_the_first_difference_and_has_status_1() -> None:
    roost(*SIMULATE, "--events", "a.jsonl")
    roost(*SIMULATE, "--limit", 2, "--events", "b.jsonl")

    told = roost("diff", "a.jsonl", "b.jsonl")

    assert told.status == 1
    assert told.err == ""
    assert told.out.startswith("first difference at line ")
    assert '  - {"kind":"event Submitted","time":10.0' in told.out
    assert '  + {"kind":"event Exited","time":50.0' in told.out
    assert "KIND" in told.out


def test_bench_sim_as_json_has_an_object_per_policy() -> None:
    found = parsed(
        roost(
            *("bench", "sim", "--trace", "jobs.csv", "--nodes", 1, "--gpus-per-node", 8),
            *("--policies", "fifo,srtf", "--placer", "first-fit", "-o", "json"),
        )
    )

    assert [each["policy"] for each in found] == ["fifo", "srtf"]
    for each in found:
        assert each["jobs"] == 3
        assert each["mean_jct_s"] == 90
        assert each["median_jct_s"] == 100
        assert each["makespan_s"] == 130
        assert each["preemptions"] == 0
        assert each["events"] > 0
        assert 0 < each["cpu_s"] < 60
        assert each["events_per_cpu_s"] == pytest.approx(each["events"] / each["cpu_s"], rel=0.01)
        assert 0 < each["wall_s"] < 60
        assert 10 < each["peak_rss_mib"] < 500


def test_the_memory_of_a_measured_process_is_its_own() -> None:
    ballast = bytearray(b"x") * (300 * 2**20)  # Linux counts it in ru_maxrss of children, too

    (found,) = parsed(
        roost(
            *("bench", "sim", "--trace", "jobs.csv", "--nodes", 1),
            *("--policies", "fifo", "-o", "json"),
        )
    )
    assert found["peak_rss_mib"] < len(ballast) / 2**20 / 2


def test_bench_sim_selects_jobs() -> None:
    told = roost(
        *("bench", "sim", "--trace", "jobs.csv", "--nodes", 1, "--policies", "fifo", "-o", "csv"),
        *("--sizes", "1,4", "--min-run", "60s"),
    )
    assert [row["jobs"] for row in table(told)] == ["1"]


def test_bench_decide_times_decisions() -> None:
    typed = ("bench", "decide", "--nodes", 4, "--jobs", 20, "--rounds", 2, "--policies", "fifo,las")
    found = parsed(roost(*typed, "-o", "json"))
    assert [each["policy"] for each in found] == ["fifo", "las"]
    assert all(0 < each["median_ms"] <= each["worst_ms"] for each in found)
    assert roost(*typed).status == 0


def test_the_demo_compares_policies_and_writes_a_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.cli.demo._POLICIES", ["fifo", "las"])  # all take seconds

    told = roost("demo", "policies")

    assert told.status == 0
    assert told.out.startswith("Replaying 400 jobs on 8 nodes of 8 GPUs under 2 policies.\n")
    assert "report: demo.html\n" in told.out
    assert (folder / "demo.html").stat().st_size > 10_000


def test_the_version_is_told() -> None:
    assert roost("--version").out.startswith("roost, version ")
