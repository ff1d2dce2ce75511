"""The table of a job's variables has all that engines set, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import roost.engines.local

_HERE = Path(roost.engines.local.__file__).parent
_SOURCES = ("../rank_environment.py", "environment.py", "launcher.py")
_PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"
#: What these files name and do not set for every job.
_OTHERS = {"PYTHONPATH", "PCI_BUS_ID", "ROOST_FAILPOINT", "ROOST_FAILPOINT_LOG", "ROOST_", "LC_ALL"}


def test_every_variable_is_in_the_table() -> None:
    section = _PAGE.read_text(encoding="utf-8").partition("## Variables of a job")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row.split("|")[1])}
    set_ = set[str]()
    for source in _SOURCES:
        text = (_HERE / source).read_text(encoding="utf-8")
        set_ |= set(re.findall(r'"([A-Z][A-Z_]*[A-Z])"', text))
    set_ -= {name for name in set_ if name.startswith("SIG") or name == "MASTER"}
    assert told == set_ - _OTHERS
