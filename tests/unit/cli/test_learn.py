"""``roost learn``: weights that the policy takes, a curve, and a comparison at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.cli import main
from roost.policies import policy


def test_what_was_learnt_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, curve = tmp_path / "weights.json", tmp_path / "curve.csv"
    main(["learn", "dl2", "--generations", "0", "--nodes", "96", "--out", str(out), "--curve",
          str(curve)])  # fmt: skip
    told = capsys.readouterr()

    policy(f"dl2:weights={out}")
    assert curve.read_text().splitlines()[0] == "generation,cpu_s,candidates,chosen,best"
    assert "generation 0" in told.err
    assert "lookahead" in told.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--nodes", "0"], "--nodes takes numbers"),
        (["--nodes", "x"], "--nodes takes numbers"),
        (["--seconds", "0s"], "training takes some seconds"),
        (["--data", "nowhere"], "cannot read nowhere/config_speed.txt"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    out = tmp_path / "weights.json"
    status = main(["learn", "dl2", *options, "--out", str(out)])

    assert status == 2
    assert says in capsys.readouterr().err
    assert not out.exists()
