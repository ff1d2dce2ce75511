"""Writes ``schedules.json`` anew. Look at the diff: every number that moved needs a reason.

python tests/golden/regenerate.py              all policies
python tests/golden/regenerate.py --show las   print one policy's digest, write nothing
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden.schedules import STORED, differences, measure, store, stored

from roost.policies import names


def main(arguments: list[str]) -> None:
    """Measure every policy and keep what came out, or show one."""
    if arguments[:1] == ["--show"]:
        for name in arguments[1:]:
            print(measure(name)["digest"])  # noqa: T201 - its purpose
        return
    before = stored() if STORED.exists() else {}
    measured = {name: measure(name) for name in names()}
    store(measured)
    for name, found in measured.items():
        for line in differences(before[name], found) if name in before else ["new"]:
            print(f"{name}: {line}")  # noqa: T201 - its purpose


if __name__ == "__main__":
    main(sys.argv[1:])
