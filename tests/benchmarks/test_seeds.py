"""The evaluation of three papers by one command: every study has rows and a chart."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from roost.cli import main
from roost_bench.optimus.benchmark import OptimusBench
from roost_bench.seeds import studies

SMALL = OptimusBench(jobs=4, nodes=4, length_s=600.0)
POLICIES = ["drf", "dl2"]


def test_policies_that_are_not_there_are_left_out() -> None:
    assert studies.installed(("drf", "no-such-policy", "dl2")) == ["drf", "dl2"]
    assert studies.installed()[0] == "drf"


@pytest.mark.parametrize("name", ["performance", "speed"])
def test_every_value_has_a_row_for_every_policy(name: str) -> None:
    rows = list(studies.run(name, SMALL, POLICIES, [0]))
    values = studies.STUDIES[name].values

    assert [(row.value, row.policy) for row in rows] == [
        (str(value), policy) for value in values for policy in POLICIES
    ]
    assert all(row.jct_ratio == 1 for row in rows if row.policy == "drf")
    chart = ET.fromstring(studies.plot(name, rows))  # noqa: S314 - our own chart
    assert chart.tag.endswith("svg")


def test_decisions_are_timed_on_a_large_cluster() -> None:
    (row,) = studies.decide(8, 16, ["fifo"])

    assert row.decision_ms_max >= row.decision_ms_p50 > 0
    assert "Time of a decision" in studies.plot(studies.DECISIONS, [row])


def test_the_command_prints_rows_beside_what_was_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "bench seeds --only performance --policies drf,dl2 --jobs 3 --nodes 4 --seeds 1 -o json"
    main([*asked.split(), "--plots", str(tmp_path / "plots")])
    found = json.loads(capsys.readouterr().out)

    assert [row["policy"] for row in found["rows"]] == POLICIES
    assert {one["policy"] for one in found["published"]} == {"optimus", "dl2"}
    assert (tmp_path / "plots" / "performance.svg").is_file()


def test_an_unknown_study_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "seeds", "--only", "speeed"]) == 2
    assert "speed" in capsys.readouterr().err
