"""Roost as people install it: a wheel in an environment of its own, far from the checkout.

The wheel is built from just the files that the image's build copies, so that none is forgotten
there. What Roost depends on is taken from the environment of these tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.docs.pages import ROOT

SCRIPT = """import sys
from roost.start import main
if __name__ == "__main__":
    sys.exit(main())
"""
CSV = "id,submitted_at,work_s\na,0,60\nb,1,30\n"
#: The path that makes the packages of these tests visible, but no editable install among them.
_PATHS = (sysconfig.get_paths()["purelib"], *(one for one in sys.path if "site-packages" in one))


@pytest.fixture(scope="module")
def roost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    for line in (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and line.split()[-1].startswith("."):
            for name in line.split()[1:-1]:
                (sources / name).symlink_to(ROOT / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    built = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    _run(*pip, "wheel", *built, str(sources), ROOST_COMPILE="no")
    (wheel,) = folder.glob("roost-*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    site = folder / "venv/lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    target = ("--quiet", "--no-deps", "--target", str(site))
    _run(*pip, "install", *target, str(wheel))
    # Before the packages of these tests: the checkout must not be what is imported.
    (site / "packages.pth").write_text("\n".join(dict.fromkeys(_PATHS)) + "\n")
    command = folder / "venv/bin/roost"
    command.write_text(f"#!{folder}/venv/bin/python\n{SCRIPT}")
    command.chmod(0o755)
    return command


def _run(*words: str, cwd: Path | None = None, **env: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own
        words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_is_roost_and_nothing_else(roost: Path) -> None:
    (wheel,) = roost.parents[2].glob("roost-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"roost"}
    assert not [name for name in names if "bench" in name or "/tests/" in name]


def test_a_release_pins_every_dependency_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    pins = {
        canonicalize_name(name): pin for name, _, pin in (line.partition("==") for line in lines)
    }
    for text in (*project["dependencies"], *extras["kubernetes"], *extras["postgres"]):
        needed = Requirement(text)
        assert pins[canonicalize_name(needed.name)] in needed.specifier, text


def test_a_wheel_is_all_that_is_needed(roost: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(CSV)
    where = "import roost, sys; sys.stdout.write(roost.__file__)"
    assert str(roost.parents[1]) in _run(str(roost.with_name("python")), "-c", where, cwd=tmp_path)
    assert "roost" in _run(str(roost), "policies", cwd=tmp_path)
    assert "kind: CustomResourceDefinition" in _run(str(roost), "kubernetes", "crds", cwd=tmp_path)
    assert "--policy" in _run(str(roost), "operator", "--help", cwd=tmp_path)
    compared = _run(str(roost), "compare", "jobs.csv", "--nodes", "1", cwd=tmp_path)
    assert "srtf" in compared

    home = {"ROOST_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path)}
    _run(str(roost), "up", "--detach", "--port", "0", "--slots", "1", cwd=tmp_path, **home)
    try:
        submitted = _run(str(roost), "submit", "-f", "--", "echo", "hi", cwd=tmp_path, **home)
    finally:
        _run(str(roost), "down", cwd=tmp_path, **home)
    assert "hi" in submitted
