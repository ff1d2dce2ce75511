"""Settings that change while a server runs: by SIGHUP, from the config file it was started with.

What became of it is in ``reload.json`` in the home, for ``roost reload`` to show.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roost.errors import RoostError
from roost.files import save

if TYPE_CHECKING:
    from roost.live.cluster import Cluster
    from roost.server.boot import ServerSettings

_log = logging.getLogger(__name__)

NOTE = "reload.json"
#: Settings that are not a person's, or that change at once.
_OTHERS = {"reread", "origin", "adopt_home", "options", "retention", "bounds", "policy"}
_KEPT = {"keep_s": "keep", "jobs": "keep-jobs", "disk_bytes": "max-disk"}
_BOUNDS = {"jobs": "user-jobs", "disk_bytes": "user-disk", "disk_max_bytes": "user-disk-max"}
_WORDS = {"allow": "allow-host", "tls": "tls-cert and tls-key"}


@dataclass(slots=True)
class ServerReload:
    """Reads the settings of a server again, and applies what can change without a restart."""

    start: ServerSettings
    cluster: Cluster
    home: Path

    def __call__(self) -> None:
        """Apply the file, and note what became of it."""
        changed, restart, problem = list[str](), list[str](), ""
        try:
            if self.start.reread is None:
                problem = "the server was started without --config: there is no file to read"
            else:
                level = logging.getLogger().level
                found = self.start.reread()
                restart = self._differing(found)
                if logging.getLogger().level != level:
                    changed.append("log-level")
                if found.policy != self.start.policy:
                    self.cluster.change_policy(found.policy)
                    self.start = replace(self.start, policy=found.policy)
                    changed.append("policy")
                if found.retention != self.cluster.retention.rule:
                    changed += _changed(_KEPT, self.cluster.retention.rule, found.retention)
                    self.cluster.retention.rule = found.retention
                if found.bounds != self.cluster.bounds.defaults:
                    changed += _changed(_BOUNDS, self.cluster.bounds.defaults, found.bounds)
                    self.cluster.bounds.defaults = found.bounds
        except RoostError as error:
            problem = str(error)
        _log.info("reloaded: changed %s, restart for %s; %s", changed, restart, problem or "fine")
        told = {"at": time.time(), "changed": changed, "restart": restart, "error": problem}
        with suppress(RoostError):
            save(self.home / NOTE, json.dumps(told), 0o644)

    def _differing(self, found: ServerSettings) -> list[str]:
        names = [one.name for one in fields(found) if one.name not in _OTHERS]
        return [
            _WORDS.get(name, name.replace("_", "-"))
            for name in names
            if getattr(found, name) != getattr(self.start, name)
        ]


def _changed(words: Mapping[str, str], old: object, new: object) -> list[str]:
    """The words of the options that differ."""
    return [word for name, word in words.items() if getattr(old, name) != getattr(new, name)]


def notify_ready() -> None:
    """Tell systemd that the server is up, if it asked to be told."""
    _notify(f"READY=1\nMAINPID={os.getpid()}\n")


async def notify_alive() -> None:
    """Tell systemd that the loop goes on, as often as it wants to hear that (``WatchdogSec``).

    It starts a server again that has stopped answering, whatever the reason.
    """
    every, whom = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not every.isdecimal() or whom not in ("", str(os.getpid())):
        return
    while True:
        _notify("WATCHDOG=1\n")
        await asyncio.sleep(int(every) / 2e6)


def _notify(text: str) -> None:
    """Send systemd a line (``sd_notify``)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    address = f"\0{place[1:]}" if place.startswith("@") else place
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        sock.sendall(text.encode())
