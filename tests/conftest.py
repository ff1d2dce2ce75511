"""Real processes share their machine: a test that fails is tried once more, and listed as such.

A test that fails twice has failed. What failed once stands in the summary, to be looked at: with
``ONE_TRY=1`` in the environment it fails as it should.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Where tests start servers and processes, or live in real time, and wait for them.
_REAL = tuple(
    Path(__file__).parent / name
    for name in ("browser", "integration", "kubernetes", "unit/operator", "unit/train")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("ONE_TRY"):
        return
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in _REAL):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
