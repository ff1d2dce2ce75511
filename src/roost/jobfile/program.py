"""The program of a job: what an engine runs, beside the spec and the allocation of the core.

Plain values only, so that a program can be journaled, sent and compared. Secrets appear by name;
their values travel apart from it and are never written down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from roost.errors import InvalidSpec

#: How a job is suspended: its processes freeze where they are, or stop and restart later.
Suspend = Literal["freeze", "stop"]

LOG_LIMIT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Task:
    """The command of one role's workers: an argv, or a script for ``bash -eo pipefail``."""

    command: tuple[str, ...] = ()
    script: str = ""

    def __post_init__(self) -> None:
        """Refuse a task that runs nothing, or two things."""
        if bool(self.command) == bool(self.script):
            msg = "a task runs a command or a script, exactly one of them"
            raise InvalidSpec(msg)


@dataclass(frozen=True, slots=True)
class Program:
    """The commands of a job, with their folder, environment and limits.

    ``tasks`` maps each role to its task; the main role is ``worker``. ``setup`` runs once before
    the workers. ``workdir`` is an absolute folder, empty for a folder of the run's own; ``git`` is
    an address and a ref to check out into it; ``sent`` names a folder that its user sent, and that
    it begins with. ``checkpoint_dir`` empty means the job's own.
    ``image`` is that of the containers that the workers run in; empty: they are plain processes.
    ``mounts`` are folders that an administrator has given names.
    """

    tasks: Mapping[str, Task]
    setup: str = ""
    workdir: str = ""
    git: tuple[str, str] = ("", "")
    env: Mapping[str, str] = field(default_factory=dict)
    secret_names: tuple[str, ...] = ()
    max_duration_s: float = math.inf
    grace_s: float = 30.0
    stop_signal: str = "SIGTERM"
    checkpoint_dir: str = ""
    log_limit_bytes: int = LOG_LIMIT_BYTES
    suspend: Suspend = "freeze"
    sent: str = ""
    image: str = ""
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often a failed job is tried again, after which exit codes (empty: any) and when."""

    max: int = 3
    on_exit_codes: tuple[int, ...] = ()
    delay_s: float = 5.0
