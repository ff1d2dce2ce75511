"""Named points where a test may kill the process: between command, journal, effect and answer.

``ROOST_FAILPOINT=journal.after-commit:3`` kills this process with SIGKILL at the third hit of that
point; nothing is flushed, closed or answered. Without it a hit costs one comparison. The shim of a
run has points of its own (``shim.*``): it gets the variable in its own environment. It has to start
in milliseconds, so this module imports nothing that it does not need for a hit.

``ROOST_FAILPOINT_LOG`` names a file to which each point is appended when it is first reached.
"""

from __future__ import annotations

import os

#: Every point that each job meets, in the order in which a command meets them.
NAMES = (
    "command.received",
    "journal.before-append",
    "journal.before-commit",
    "journal.after-commit",
    "effect.before-perform",
    "effect.before-fork",
    "effect.after-fork",
    "effect.after-perform",
    "command.before-answer",
    "report.received",
    "snapshot.before-write",
    "snapshot.after-write",
    "adopt.before",
    "adopt.after",
    "shim.before-start-record",
    "shim.after-start-record",
    "shim.after-spawn",
    "shim.before-exit-record",
    "shim.after-exit-record",
)

#: Points in a change of members, in the same order; jobs that cannot change never meet them all.
CHANGING = (
    "resize.before-wanted",
    "resize.after-wanted",
    "resize.after-signal",
    "shim.before-change",
    "shim.after-joiners",
    "shim.before-publish",
    "shim.after-publish",
    "shim.before-change-record",
    "shim.after-change-record",
    "resize.before-answer",
    "shim.after-loss",
)

#: Points in taking and deleting the snapshot of a job.
KEEPING = (
    "keep.after-copy",
    "keep.after-files",
    "keep.after-row",
    "keep.before-removal",
)
#: Points in the life of a Job on Kubernetes, between requests to the API server.
ON_KUBERNETES = (
    "pods.before-objects",
    "pods.before-create",
    "pods.after-create",
    "pods.before-bind",
    "pods.after-bind",
    "pods.before-remove",
    "pods.after-remove",
    "status.before-write",
    "status.after-write",
)
_ALL = NAMES + CHANGING + KEEPING + ON_KUBERNETES

_SIGKILL = 9

_hits: dict[str, int] = {}


def _parse(text: str) -> tuple[str, int]:
    name, _, count = text.partition(":")
    _check(name)
    if not (count or "1").isdigit():
        from roost.errors import InvalidSpec  # noqa: PLC0415 - see above

        raise InvalidSpec(f"ROOST_FAILPOINT must be NAME or NAME:COUNT, got {text!r}")
    return name, int(count or "1")


def _check(name: str) -> None:
    if name not in _ALL:
        from roost.errors import unknown  # noqa: PLC0415 - see above

        raise unknown("failpoint", name, _ALL)


_text = os.environ.get("ROOST_FAILPOINT", "")
_armed: tuple[str, int] | None = _parse(_text) if _text else None
_log = os.environ.get("ROOST_FAILPOINT_LOG", "")


def hit(name: str) -> None:
    """Pass a point, or end here if a test wants it so."""
    if _armed is None and not _log:
        return
    _check(name)
    _hits[name] = _hits.get(name, 0) + 1
    if _log and _hits[name] == 1:
        with open(_log, "a", encoding="utf-8") as log:  # noqa: PTH123 - pathlib is slow to import
            log.write(f"{name}\n")
    if _armed is not None and (name, _hits[name]) == _armed:
        os.kill(os.getpid(), _SIGKILL)
