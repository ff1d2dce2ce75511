"""``roost operator``: what is refused before a cluster is asked anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.cli import main


def test_its_help_names_what_it_listens_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(["operator", "--help"])
    shown = capsys.readouterr().out
    for text in ("--lease-name", "8612", "8611", "schedulerName: roost", "Examples:"):
        assert text in shown


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--policy", "prioriti"], "unknown policy 'prioriti'; did you mean 'priority'?"),
        (["--placer", "pak"], "unknown placer 'pak'; did you mean 'pack'?"),
        (["--connections", "1"], "--connections"),
        (["--lease", "1s"], "a lease of less than 2s is lost whenever the API server is slow"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_kubeconfig_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nowhere"
    assert main(["operator", "--kubeconfig", str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err
