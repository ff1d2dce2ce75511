"""The wheel of Roost has no benchmark and no test rig; `roost bench` without its package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.unit.cli.told import roost

from roost import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(  # noqa: S603 - our own
        build, cwd=ROOT, env={"HATCH_BUILD_NO_HOOKS": "true"}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_has_the_package_and_nothing_beside_it(names: list[str]) -> None:
    assert "roost/cli/__init__.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"roost"}


@pytest.mark.parametrize("word", ["bench", "chaos", "storm", "witness", "control_plane", "kwok"])
def test_the_wheel_has_no_benchmark_and_no_rig(names: list[str], word: str) -> None:
    assert [name for name in names if word in name] == []


def test_without_the_benchmarks_the_command_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "_entry_points", dict)
    for typed in (["bench"], ["bench", "sim", "--trace", "jobs.csv"], ["bench", "--help"]):
        told = roost(*typed)
        assert told.status == 2
        assert "pip install -e benchmarks" in told.err
    assert "bench" in roost("--help").out
