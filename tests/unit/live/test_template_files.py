from __future__ import annotations

from pathlib import Path

import pytest

from roost.errors import Conflict, Forbidden, NotFound
from roost.jobs.templates import BUILT_IN, JobTemplate
from roost.live.template_files import TemplateFiles

MINE = JobTemplate("mine", "run: a", author="ada", changed_at=1.0)


def test_what_is_kept_is_there_again_beside_what_is_shipped(tmp_path: Path) -> None:
    TemplateFiles(tmp_path).set(MINE, anyones=False)
    (tmp_path / "templates" / "broken.json").write_text("{")
    (tmp_path / "templates" / "odd.json").write_text("[1]")
    kept = TemplateFiles(tmp_path)
    assert kept.get("mine") == MINE
    assert len(kept.all()) == len(BUILT_IN) + 1
    kept.delete("mine", "ada", anyones=False)
    with pytest.raises(NotFound):
        kept.get("mine")


def test_nobody_changes_what_is_somebody_elses(tmp_path: Path) -> None:
    kept = TemplateFiles(tmp_path)
    kept.set(MINE, anyones=False)
    theirs = JobTemplate("mine", "run: b", author="bob")
    with pytest.raises(Forbidden, match="ada's"):
        kept.set(theirs, anyones=False)
    with pytest.raises(Forbidden, match="ada's"):
        kept.delete("mine", "bob", anyones=False)
    changed = kept.set(theirs, anyones=True)
    assert (changed.text, changed.author) == ("run: b", "ada")


def test_what_is_shipped_can_be_replaced_by_administrators_and_comes_back(tmp_path: Path) -> None:
    kept = TemplateFiles(tmp_path)
    own = JobTemplate("hello", "run: a", author="root")
    with pytest.raises(Forbidden, match="shipped"):
        kept.set(own, anyones=False)
    kept.set(own, anyones=True)
    assert kept.get("hello").text == "run: a"
    kept.delete("hello", "root", anyones=True)
    assert kept.get("hello") in BUILT_IN
    with pytest.raises(Conflict, match="stays"):
        kept.delete("hello", "root", anyones=True)
