"""Where the command begins: so small that Ctrl-C is answered while the rest is loaded."""

from __future__ import annotations

import sys
from typing import Any

_INTERRUPTED = 130


def main() -> Any:
    """Run the command line; the exit status."""
    try:
        from roost.cli import main as run  # noqa: PLC0415 - that is the point

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
