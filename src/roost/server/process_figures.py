"""What the process of this server uses: memory, CPU time, open files."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import NamedTuple


class ProcessFigures(NamedTuple):
    """Memory that is resident now, in bytes; CPU seconds; open files, and how many there may be."""

    rss_bytes: int
    cpu_s: float
    files: int
    most_files: int | None


def process_figures() -> ProcessFigures:
    """The figures of this process now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    # The second field of statm is what is resident now; getrusage knows only the peak.
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFigures(
        pages * resource.getpagesize(),
        used.ru_utime + used.ru_stime,
        sum(1 for _ in Path("/proc/self/fd").iterdir()),
        None if most == resource.RLIM_INFINITY else most,
    )
