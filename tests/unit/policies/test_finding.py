"""Policies by name, by file, and what they say of themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost import policies
from roost.errors import InvalidSpec, NotFound
from roost.policies import kit
from roost.policies.kit import order
from roost.policies.tiresias import Tiresias
from roost.sim.parallel import run_many
from roost.sim.scenario import Scenario, uniform_cluster
from roost.traces.generate import Synthetic

MINE = '''"""An experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from roost.core import Job, Plan
from roost.policies.kit import Key, fill, resizing


@resizing
def widest(plan: Plan) -> None:
    """Most GPUs first."""
    fill(plan, _most_gpus)


def _most_gpus(job: Job) -> Key:
    return -job.gpu_milli


@dataclass(frozen=True, slots=True)
class Longest:
    """Longest first."""

    resizes: ClassVar[bool] = False

    gap_s: float = 60.0

    def __call__(self, plan: Plan) -> None:
        fill(plan, _most_gpus)
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_name_with_parameters() -> None:
    assert policies.policy("tiresias:promote=4") == Tiresias(promote=4)
    with pytest.raises(NotFound, match="did you mean 'srtf'"):
        policies.policy("srft")


def test_a_policy_of_a_loose_file(mine: Path) -> None:
    longest = policies.policy(f"{mine}:Longest:gap_s=2m")

    assert longest.gap_s == 120.0  # type: ignore[attr-defined]
    assert longest == policies.policy(f"{mine}:Longest:gap_s=120")
    assert policies.policy(f"{mine}:widest").__name__ == "widest"
    assert policies.summary(f"{mine}:widest") == "Most GPUs first."
    assert policies.parameters(f"{mine}:Longest") == {"gap_s": 60.0}


def test_a_file_that_was_edited_is_read_again(mine: Path) -> None:
    before = policies.policy(f"{mine}:Longest")
    mine.write_text(MINE.replace("60.0", "90.0"))

    assert before.gap_s == 60.0  # type: ignore[attr-defined]
    assert policies.policy(f"{mine}:Longest").gap_s == 90.0  # type: ignore[attr-defined]


def test_a_path_holds_in_another_folder(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent)

    assert policies.absolute("mine.py:Longest:gap_s=2m") == f"{mine}:Longest:gap_s=2m"
    assert policies.absolute("tiresias:promote=4") == "tiresias:promote=4"


def test_what_is_wrong_with_a_file_is_said(mine: Path) -> None:
    with pytest.raises(NotFound, match=r"no policy file .*none\.py: No such file"):
        policies.policy(str(mine.with_name("none.py")) + ":Longest")
    with pytest.raises(NotFound, match=r"unknown policy of .*mine\.py: 'Longst'.*'Longest'"):
        policies.policy(f"{mine}:Longst")
    with pytest.raises(InvalidSpec, match=r"say which policy of .*widest, Longest"):
        policies.policy(str(mine))
    with pytest.raises(InvalidSpec, match=r"policy 'widest' has no parameters"):
        policies.policy(f"{mine}:widest:gap=1")


def test_the_line_of_an_error_is_said(mine: Path) -> None:
    mine.write_text("import roost\n\nimport nothing_of_the_kind\n")
    with pytest.raises(InvalidSpec, match=r"mine\.py, line 3: ModuleNotFoundError: .*nothing_of"):
        policies.policy(f"{mine}:Longest")
    mine.write_text("def broken(:\n")
    with pytest.raises(InvalidSpec, match=r"mine\.py, line 1: SyntaxError: "):
        policies.policy(f"{mine}:broken")


def test_several_processes_read_the_same_file(mine: Path) -> None:
    name = f"{os.path.relpath(mine)}:Longest:gap_s=1m"
    scenario = Scenario(Synthetic(jobs=20, gpus=16), uniform_cluster(2, 8))

    runs = run_many(scenario, [(name, 1), ("fifo", 1)], "consolidate", processes=2)

    assert [run.policy for run in runs] == [name, "fifo"]


# -- does it resize -------------------------------------------------------------------------------


def test_a_policy_says_itself_whether_it_resizes(mine: Path) -> None:
    found = {name for name in policies.names() if policies.resizes(policies.policy(name))}

    assert found >= {"alnair", "bundles", "dl2", "lookahead", "optimus", "pollux", "roost", "sia"}
    assert not found & {"fifo", "drf", "tetris", "tiresias", "timeslice"}
    assert policies.resizes(policies.policy(f"{mine}:widest"))
    assert not policies.resizes(policies.policy(f"{mine}:Longest"))


# -- the kit --------------------------------------------------------------------------------------


def test_what_the_kit_promises_is_there_and_nothing_else() -> None:
    public = {
        name
        for name, value in vars(kit).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("roost.pol")
    }

    assert public | {"Key"} == set(kit.__all__)
    assert list(kit.__all__) == sorted(kit.__all__)
    if order.__file__.endswith(".py"):  # compiled, it has no docstrings
        assert all(getattr(kit, name).__doc__ for name in kit.__all__)
