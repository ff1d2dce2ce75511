"""``--world learning`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.oracles.profiled import write_profiles
from tests.unit.cli.told import roost, write_jobs

LEARN = ("simulate", "jobs.csv", "--nodes", 1, "--world", "learning")
SIA = "name,time,application,num_replicas,batch_size\na,0,bert,2,32\nb,60,cifar10,1,128\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_jobs(tmp_path)
    (tmp_path / "sia.csv").write_text(SIA, encoding="utf-8")
    return tmp_path


def figures(*typed: object) -> dict[str, float]:
    told = roost(*typed, "-o", "json")
    assert told.status == 0, told
    found: dict[str, float] = json.loads(told.out)
    return found


def test_jobs_of_a_table_learn(folder: Path) -> None:
    found = figures(*LEARN, "--report", "run.html", "--events", "run.jsonl")
    assert found["finished"] == 3
    assert found["jct_mean"] > figures("simulate", "jobs.csv", "--nodes", 1)["jct_mean"]
    assert '"kind":"event Measured"' in (folder / "run.jsonl").read_text()
    assert (folder / "run.html").exists()


def test_policies_are_compared(folder: Path) -> None:
    del folder
    typed = ("--synthetic", "jobs=12,max_run_s=30m,elastic=1", "--nodes", 1, "--world", "learning")
    told = roost("compare", *typed, "--policies", "fifo,roost", "-o", "csv", "-j", 1)
    assert told.status == 0, told
    assert told.out.count("\n") == 3


def test_a_sia_trace_learns_with_built_in_applications_or_with_profiles(folder: Path) -> None:
    for name in ("bert", "cifar10"):
        write_profiles(folder / "profiles", name)
    typed = ("simulate", "sia.csv", "--nodes", 2, "--gpus-per-node", 4, "--kind", "T4")
    for more in ((), ("--profiles", "profiles")):
        found = figures(*typed, "--world", "learning", "--policy", "sia", *more)
        assert found["finished"] == 2


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--spread", "node=0.9"), "--spread does not go with --world learning"),
        (("--checkpoint-every", "5m"), "--checkpoint-every does not go with --world learning"),
        (("--save", "half.roost"), "--save does not go with --world learning"),
        (("--profiles", "none"), "no folder of profiles: none"),
        (("--profiles", ".", "--speed", "gpu=2"), "--speed does not go with --profiles"),
    ],
)
def test_what_does_not_go_together_is_refused(typed: tuple[str, ...], said: str) -> None:
    assert said in roost(*LEARN, *typed).error


def test_profiles_need_the_world_of_learning() -> None:
    told = roost("simulate", "jobs.csv", "--nodes", 1, "--profiles", ".")
    assert "--profiles goes with --world learning only" in told.error
