"""The config file of ``roost up``: the words of its options, and no others."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from roost.cli.up import up
from roost.errors import InvalidSpec, NotFound

YAML = "port: 0\nkeep: 30d\nkeep_jobs: 50\nmax-disk: 2Gi\nallow-host: [a, b]\npolicy: fifo\n"
TOML = (
    'port = 0\nkeep = "30d"\nkeep-jobs = 50\nmax-disk = "2Gi"\n'
    'allow-host = ["a", "b"]\npolicy = "fifo"\n'
)


def params(*args: str) -> dict[str, object]:
    with up.make_context("up", list(args)) as ctx:
        return dict(ctx.params)


@pytest.mark.parametrize(("name", "text"), [("c.yaml", YAML), ("c.toml", TOML)])
def test_a_file_has_the_words_of_the_options(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    found = params("--config", str(file), "--policy", "srtf")
    assert (found["port"], found["keep_s"], found["keep_jobs"]) == (0, 30 * 86400.0, 50)
    assert (found["max_disk"], found["allow"]) == (2 << 30, ("a", "b"))
    assert found["policy"] == "srtf"  # what is typed counts more
    assert found["placer"] == params()["placer"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 1", "did you mean 'port'"),
        ("moved: true", "unknown option 'moved'"),
        ("port: [1, 2]", "takes one value"),
        ("port: {a: 1}", "takes one value"),
        ("- port", "expected options"),
        ("port: 1\nport: 2", "port"),
        ("a: [", "not YAML"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSpec) as refused:
        params("--config", str(file))
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_value_is_checked_like_one_that_was_typed(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("keep: soon\n")
    with pytest.raises(click.BadParameter, match="not a duration"):
        params("--config", str(file))
    with pytest.raises(NotFound, match="no such file"):
        params("--config", str(tmp_path / "none.yaml"))


def test_a_unit_says_what_was_typed_and_starts_nothing(tmp_path: Path) -> None:
    home, config = tmp_path / "a home", tmp_path / "c.yaml"
    config.write_text("port: 0\n")
    typed = ["--home", str(home), "--config", str(config), "--keep", "30d", "--user-disk", "25%"]
    typed += ["--user-disk-max", "none", "--allow-host", "a", "--allow-host", "b", "-d"]
    done = CliRunner().invoke(up, [*typed, "--print-unit"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert f'Environment="ROOST_HOME={home}"' in lines
    assert {"Type=notify", "KillMode=process", "Delegate=yes"} <= set(lines)
    (start,) = (line for line in lines if line.startswith("ExecStart="))
    program, _, options = start.removeprefix("ExecStart=").partition(" up ")
    assert Path(program).is_absolute()
    again = shlex.split(options.replace("%%", "%"))
    assert "--detach" not in again
    wanted, found = params(*typed), params("--home", str(home), *again)
    assert {**found, "detach": True} == wanted
    assert not home.exists()
