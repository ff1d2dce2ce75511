"""The environment of each worker: what training frameworks expect, what Roost adds, nothing else.

From the server come PATH, HOME, USER, LANG and TZ alone; under another account, HOME, USER and
PATH are its own. The job's own variables win over what is only a default, and may not touch those
of Roost.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from roost.core.allocation import WORKER, Seat
from roost.core.spec import WHOLE
from roost.engines.local.accounts import Account
from roost.engines.local.devices import Machine
from roost.engines.local.run_record import RunRecord
from roost.engines.rank_environment import (
    Address,
    RankEnvironment,
    hostfile,
    run_variables,
    seat_variables,
)

_FROM_SERVER = ("PATH", "HOME", "USER", "LANG", "TZ")
_HOST = "127.0.0.1"
_TMP = "/tmp"  # noqa: S108 - what programs use without it; scripts want it named
_LOOPBACK_PATH = "/usr/local/bin:/usr/bin:/bin"
#: A worker binds its port some time after it was given out: until then the kernel thinks it free.
_RECENT = 4096


class Ports:
    """Free ports, none of them given out twice within a while."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._lock = threading.Lock()

    def take(self, count: int) -> list[int]:
        """So many ports that are free."""
        found: list[int] = []
        # Launches run on several threads. Sockets stay open until all ports are found, or the
        # kernel could name one twice.
        with self._lock, ExitStack() as stack:
            while len(found) < count:
                probe = stack.enter_context(socket.socket())
                probe.bind((_HOST, 0))
                port = probe.getsockname()[1]
                if port not in self._recent:
                    found.append(port)
            self._recent.extend(found)
        return found


@dataclass(frozen=True, slots=True)
class GenerationEnvironment:
    """All that the environments of one generation have in common.

    ``paths`` are Roost's own variables that name files. ``own`` is what the user wants set.
    ``members`` is the file that tells the main workers which of them train together.
    """

    record: RunRecord
    machine: Machine
    ports: Sequence[int]
    user: str
    paths: Mapping[str, Path]
    own: Mapping[str, str]
    account: Account | None = None
    members: Path | None = None

    def base(self) -> dict[str, str]:
        """For what runs before the workers: it sees what the first has to itself, if anything."""
        first = self.record.seats[0]  # no share is held yet
        mine = first if first.share_milli >= WHOLE else replace(first, gpus=())
        return {**self._clean(), **self._roost(), **self._devices(mine), **self.own}

    def worker(self, seat: Seat) -> dict[str, str]:
        """For one worker."""
        threads = self.machine.threads(len(seat.gpus), self.record.needs[seat.role].cpu_milli)
        return {
            **self._clean(),
            "OMP_NUM_THREADS": str(threads),
            **self._ranks(seat),
            **self._devices(seat),
            **self._gang.clusters(seat),
            **self.own,
            **self._roost(),
            "ROOST_ROLE": seat.role,
            **seat_variables(seat),
            **self._member(seat),
        }

    def place(self, seat: Seat) -> dict[str, str]:
        """What sets a new main worker apart from the first one; nothing that is secret.

        Where to meet is not part of it: that is said in the file of the members.
        """
        threads = self.machine.threads(len(seat.gpus), self.record.needs[seat.role].cpu_milli)
        ranks = {name: text for name, text in self._ranks(seat).items() if "MASTER" not in name}
        common = {"OMP_NUM_THREADS": str(threads), **ranks, **self._devices(seat)}
        kept = {name: text for name, text in common.items() if name not in self.own}
        return {**kept, **seat_variables(seat)}

    def hostfile(self) -> str:
        """The machines as Open MPI wants them."""
        return hostfile("localhost" for seat in self.record.seats if seat.role == WORKER)

    @property
    def _gang(self) -> RankEnvironment:
        meet, *others = (Address(_HOST, port) for port in self.ports)
        return RankEnvironment(self.record.run, self.user, self.record.seats, meet, others)

    def _clean(self) -> dict[str, str]:
        found = {name: os.environ[name] for name in _FROM_SERVER if name in os.environ}
        found.setdefault("PATH", _LOOPBACK_PATH)
        if self.account:
            found |= {"HOME": self.account.home, "USER": self.account.name}
            found["PATH"] = _foreign_path(found["PATH"], self.account.home)
        return {**found, "TMPDIR": _TMP}

    def _roost(self) -> dict[str, str]:
        return {
            **run_variables(self.record.run, self.record.generation),
            "ROOST_RUN_TOKEN": self.record.token,
            **{name: str(path) for name, path in self.paths.items()},
        }

    def _member(self, seat: Seat) -> dict[str, str]:
        if seat.role != WORKER or self.members is None:
            return {}
        return {"ROOST_MEMBERS": str(self.members), "ROOST_MEMBER": str(seat.index)}

    def _ranks(self, seat: Seat) -> dict[str, str]:
        return self._gang.ranks(seat, max(len(seat.gpus), 1) if self.machine.real else 1)

    def _devices(self, seat: Seat) -> dict[str, str]:
        if not self.machine.real:
            return {"CUDA_VISIBLE_DEVICES": ""}
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(self.machine.names(seat.gpus)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as the driver counts them
        }


def _foreign_path(path: str, home: str) -> str:
    """The search path of another account: its own programs, and the server's but for private ones.

    What lies in the home of the server's account is nobody else's, and often closed to them.
    """
    own = os.path.expanduser("~").rstrip("/")  # noqa: PTH111 - it may not exist
    common = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and not (own and f"{folder}/".startswith(f"{own}/"))
    ]
    return os.pathsep.join([f"{home}/.local/bin", *(common or _LOOPBACK_PATH.split(os.pathsep))])
