"""Huge pages while processes are brought off a GPU: what makes that slow is page faults.

The driver copies device memory into fresh host memory with one thread: two million page faults for
8 GiB. With transparent huge pages set to ``always`` there are a few thousand, and it takes little
more than half as long. The setting is the whole machine's: it is changed for as long as something
is being parked, where that is allowed, and put back afterwards. What it was is in a file, so that
the next daemon puts it back if this one is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roost import files
from roost.errors import RoostError

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_ALWAYS = "always"


class HugePages:
    """The machine's setting, changed while it is needed; ``note`` remembers what it was."""

    def __init__(self, note: Path, setting: Path = SETTING) -> None:
        self._note, self._setting = note, setting
        self._mutex = threading.Lock()
        self._users = 0

    @contextmanager
    def always(self) -> Iterator[None]:
        """Huge pages for everything, as long as a call is in here; or all as it is."""
        # Tenants are parked on threads of their own: the first one changes the setting, and
        # the last one puts it back.
        with self._mutex:
            self._users += 1
            if self._users == 1:
                self._change()
        try:
            yield
        finally:
            with self._mutex:
                self._users -= 1
                if not self._users:
                    self.put_back()

    def put_back(self) -> None:
        """Set them as they were, if they were changed."""
        try:
            before = self._note.read_text().strip()
        except OSError:
            return
        with suppress(OSError):
            self._setting.write_text(before)
            self._note.unlink()

    def _change(self) -> None:
        now = current(self._setting)
        if not now or now == _ALWAYS:
            return
        with suppress(OSError, RoostError):
            # The note first: a daemon that is killed in between leaves what is true anyway.
            files.save(self._note, now, 0o600)
            try:
                self._setting.write_text(_ALWAYS)
            except OSError:  # not ours to change
                self._note.unlink()


def current(setting: Path = SETTING) -> str:
    """How transparent huge pages are set; "" if that is not known."""
    try:
        return setting.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        return ""
