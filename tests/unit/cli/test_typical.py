"""``--typical FILE``: what usually comes is told before the first job comes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost.cli.typical import read_typical
from roost.errors import InvalidSpec

JOBS = "id,submitted_at,work_s,gpus\na,0,100,1\nb,1,100,8\n"
NODES = "id,gpus\nn0,8\nn1,2\n"
USUAL = "id,submitted_at,work_s,gpus,min_workers\nx,0,1,8,5\ny,0,1,1,5\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("jobs", JOBS), ("nodes", NODES), ("usual", USUAL)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def ends(*more: str) -> dict[str, float]:
    told = roost(
        *("simulate", "jobs.csv", "--cluster", "nodes.csv", "--placer", "fgd"),
        *(*more, "-o", "csv"),
    )
    assert told.status == 0, told
    head, *rows = (line.split(",") for line in told.out.splitlines())
    return {row[0]: float(row[head.index("finished_at")]) for row in rows}


@pytest.mark.usefixtures("folder")
def test_the_first_job_goes_where_it_spoils_nothing_for_those_that_usually_come() -> None:
    assert ends() == {"a": 100.0, "b": 200.0}, "it took a GPU of the only node with eight"
    assert ends("--typical", "usual.csv") == {"a": 100.0, "b": 101.0}


@pytest.mark.usefixtures("folder")
def test_a_saved_run_knows_it_when_it_goes_on() -> None:
    typed = ("jobs.csv", "--cluster", "nodes.csv", "--placer", "fgd", "--typical", "usual.csv")
    half = roost("simulate", *typed, "--stop-at", "0.5s", "--save", "half.roost")
    assert half.status == 0, half
    told = roost("simulate", "--resume", "half.roost", "-o", "csv")
    assert told.status == 0, told
    assert told.out == roost("simulate", *typed, "-o", "csv").out


def test_how_many_workers_ask_for_what_is_counted(folder: Path) -> None:
    assert [(need.gpus, count) for need, count in read_typical(folder / "usual.csv")] == [
        (8, 5),
        (1, 5),
    ]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--typical", "nothing.csv"), "nothing.csv"),
        (("--typical", "empty.csv"), "empty.csv"),
        (
            ("--typical", "usual.csv", "--placer", "pack"),
            "placer 'pack' does not go by what usually comes: known shapes are for fgd, usable,",
        ),
        (("--typical", "usual.csv", "--from", "live"), "does not go with --from"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_are_told(typed: tuple[str, ...], said: str) -> None:
    Path("empty.csv").write_text("id,submitted_at,work_s\n")
    given = () if "--from" in typed else ("jobs.csv", "--cluster", "nodes.csv", "--placer", "fgd")
    assert said in roost("simulate", *given, *typed).error


def test_a_trace_without_jobs_says_nothing_of_what_usually_comes(folder: Path) -> None:
    (folder / "empty.csv").write_text("id,submitted_at,work_s\n")
    with pytest.raises(InvalidSpec, match=r"empty\.csv"):
        read_typical(folder / "empty.csv")


@pytest.mark.usefixtures("folder")
def test_a_server_is_not_started_with_what_its_placer_does_not_go_by() -> None:
    told = roost("up", "--typical", "usual.csv", "--placer", "topology", "--home", "home")
    assert "placer 'topology' does not go by what usually comes" in told.error
    assert not Path("home").exists()
