"""The checkout in which the benchmarks lie: some need the support of Roost's own tests."""

from __future__ import annotations

import sys
from pathlib import Path

from roost.errors import NotFound

_ROOT = Path(__file__).resolve().parents[2]


def need_test_support() -> None:
    """Let ``tests.support`` be imported; raises NotFound outside of a checkout."""
    if not (_ROOT / "tests" / "support").is_dir():
        raise NotFound(
            f"this benchmark needs the folder tests/support of Roost's sources, which is not in "
            f"{_ROOT}: run it from a checkout (make install)"
        )
    if str(_ROOT) not in sys.path:
        sys.path.append(str(_ROOT))
