"""HiveD's cases and random histories, as ``roost bench hived`` runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from roost.errors import InvalidSpec
from roost_bench.hived.cases import run_cases
from roost_bench.hived.command import hived


def test_all_cases_of_hived_give_what_it_gives() -> None:
    results = run_cases(None)

    assert [result for result in results if not result.passed] == []
    assert len(results) > 50


def test_a_case_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "cluster: [{tree: t, kind: A, inner: one, nodes: [n0]}]\n"
        "inner: {one: [{gpus: 4}]}\n"
        "queues: {red: '1xnode'}\n"
        "suites: [{name: s, steps: [{case: a, submit: j, queue: red, priority: 0, gpus: 4,"
        " expect: {at: 'n0:0'}}]}]\n"
    )

    shown = CliRunner().invoke(hived, ["--cases", str(tmp_path), "-o", "json"])

    assert shown.exit_code == 1
    (row,) = json.loads(shown.output)
    assert row["case"] == "a"
    assert row["got"] == "at n0:0,1,2,3"
    assert row["passed"] is False


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="has no files"):
        run_cases(tmp_path)


def test_random_histories_break_nothing() -> None:
    shown = CliRunner().invoke(hived, ["--steps", "300", "--seed", "3", "-o", "json"])

    assert shown.exit_code == 0
    assert "no promise broken, " in json.loads(shown.output)[0]["got"]
