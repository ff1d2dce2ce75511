"""What usually comes, as a trace of jobs tells it: ``--typical FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.core.demand import Counts


def read_typical(trace: Path) -> Counts:
    """What the workers of a trace ask for, and how many of them; raises InvalidSpec or NotFound."""
    from roost import traces
    from roost.core.demand import counted

    found = counted(job.spec for job in traces.read(trace).jobs)
    if not found:
        raise InvalidSpec(f"--typical {trace}: there is no job in it")
    return found
