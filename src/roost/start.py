"""Where the command begins: so small that Ctrl-C is answered while the rest is loaded."""

from __future__ import annotations

import signal
import sys

_INTERRUPTED = 130


def main() -> object:
    """Run the command line; the exit status."""
    # Nothing is open yet, and nothing any more at the end: there the signal itself ends us. As an
    # exception within an import it becomes any other error, or none.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from roost.cli import main as run  # noqa: PLC0415 - that is the point

    try:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status: object = run()
    except BaseException as error:
        if not _is_interrupt(error):
            raise
        sys.stderr.write("interrupted\n")
        status = _INTERRUPTED
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C, or what became of one while a verb was loaded."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__
    return False
