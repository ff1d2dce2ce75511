"""Real processes share their machine: a test that fails is tried once more, and listed as such.

A test that fails twice has failed. What failed once stands in the summary, to be looked at.
"""

from __future__ import annotations

from pathlib import Path

import pytest

#: Where tests start servers and processes, and wait for them.
_REAL = tuple(Path(__file__).parent / name for name in ("browser", "integration", "kubernetes"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in _REAL):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
