"""The log of a server that this command line starts: files in its home, and what matters here."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

#: A log file is closed at this size, and so many older ones are kept.
_LOG_BYTES = 10 << 20
_LOGS_KEPT = 3


@contextmanager
def server_log(home: Path, level: str, *, also_here: bool) -> Iterator[None]:
    """Log to the home, in files of a bounded size; in the foreground what matters is shown, too."""
    from roost.server.home import Home

    file = ServerLogFile(
        Home(home).log_file, maxBytes=_LOG_BYTES, backupCount=_LOGS_KEPT, encoding="utf-8"
    )
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handlers: list[logging.Handler] = [file]
    if also_here:
        handlers.append(_Here())
        handlers[-1].setLevel(logging.WARNING)
        handlers[-1].setFormatter(logging.Formatter("roost: %(levelname)s: %(message)s"))
    root, before = logging.getLogger(), logging.getLogger().level
    root.setLevel(level.upper())
    if level != "debug":  # it tells of every connection
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


class _Here(logging.StreamHandler[TextIO]):
    """Shows warnings on standard error; a terminal that has gone is no error."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - theirs
        """Ignore it: there is no other place to complain."""


class ServerLogFile(RotatingFileHandler):
    """A log that only its owner can read. A disk that is full costs lines, and no more."""

    _complained = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - theirs
        """Say once that lines are missing."""
        del record
        if not self._complained:
            self._complained = True
            with suppress(OSError):
                text = f"roost: warning: cannot write {self.baseFilename}: {sys.exc_info()[1]}"
                sys.stderr.write(f"{text}\n")

    def close(self) -> None:
        """Close the file, with or without its last line."""
        with suppress(OSError):
            super().close()

    def _open(self) -> TextIOWrapper:
        # Not open(): the file must never be readable for others, whatever the umask.
        file = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(file, "a", encoding=self.encoding, errors="backslashreplace")
