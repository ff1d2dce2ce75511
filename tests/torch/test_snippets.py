"""Snippets of the documentation that need PyTorch run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.test_snippets import WITH_TORCH, run_snippets


@pytest.mark.parametrize("name", WITH_TORCH)
def test_the_snippets_of_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_snippets(name)
