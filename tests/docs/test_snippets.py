"""Every Python snippet in the documentation runs, and the example package passes its own tests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import NAMES, page

WITH_PYTHON = [
    name
    for name in NAMES
    if any(block.language == "python" and not block.title for block in page(name).blocks)
]

#: The policies of loose files pass the suite, too.
LOOSE = """
import pytest
from biggest import biggest
from longest_queue import LongestQueue
from roost.testing.conformance import PolicyConformance


class TestLoose(PolicyConformance):
    @pytest.fixture(params=[biggest, LongestQueue(), LongestQueue(budget=1, min_run_s=0.0)])
    def policy(self, request):
        return request.param
"""


#: Pages whose snippets need PyTorch: ``tests/torch`` runs them.
WITH_TORCH = [
    name for name in WITH_PYTHON if any("import torch" in one.text for one in page(name).blocks)
]


@pytest.mark.parametrize("name", [name for name in WITH_PYTHON if name not in WITH_TORCH])
@pytest.mark.usefixtures("folder")
def test_the_snippets_of_a_page_run(name: str, request: pytest.FixtureRequest) -> None:
    if any("roost.job" in block.text for block in page(name).blocks):
        request.getfixturevalue("served")
    run_snippets(name)


def run_snippets(name: str) -> None:
    """Run the Python blocks of a page one after the other."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in page(name).blocks:
        if block.language == "python" and not block.title:
            tree = ast.parse(block.text)
            ast.increment_lineno(tree, block.line - 1)
            exec(compile(tree, name, "exec"), namespace)  # noqa: S102 - our own pages


def test_every_block_says_its_language() -> None:
    known = {"python", "console", "toml", "yaml", "bash", "text", "json"}
    wrong = [
        f"{name}:{block.line} is {block.language!r}"
        for name in NAMES
        for block in page(name).blocks
        if block.language not in known
    ]
    assert not wrong


def test_the_example_package_passes_the_tests_it_comes_with(package: Path) -> None:
    (package / "test_longest_queue.py").write_text(LOOSE, encoding="utf-8")
    (package / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
