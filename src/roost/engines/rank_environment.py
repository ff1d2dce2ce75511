"""What every worker is told, whichever engine starts it: its rank, and where the others are.

The variables of training frameworks (torchrun, TensorFlow, Open MPI, OpenPAI) and Roost's own. An
engine adds what only it knows: folders, and which devices a process may see.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roost.core.allocation import WORKER, Seat
from roost.core.spec import RunId
from roost.errors import InvalidSpec


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """The workers of a run, main ones first and by rank, and where each of them is found.

    ``meet`` is where the first one waits for the others. ``addresses`` are in the order of the
    seats; they may be left out where they are not asked for.
    """

    run: RunId
    user: str
    seats: tuple[Seat, ...]
    meet: Address
    addresses: Sequence[Address] = ()

    def counts(self) -> Counter[str]:
        """Workers by role."""
        return Counter(seat.role for seat in self.seats)

    def ranks(self, seat: Seat, processes: int) -> dict[str, str]:
        """The place of a worker, for PyTorch and those like it, and for torchrun."""
        size, rank = str(self.counts()[seat.role]), str(seat.index)
        return {
            "RANK": rank,
            "WORLD_SIZE": size,
            # A worker sees its own devices only, and a script takes the one of its local rank:
            # each worker is as if on a machine of its own.
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "NODE_RANK": rank,
            "MASTER_ADDR": self.meet.host,
            "MASTER_PORT": str(self.meet.port),
            # What torchrun reads.
            "PET_NNODES": size,
            "PET_NODE_RANK": rank,
            "PET_NPROC_PER_NODE": str(processes),
            "PET_MASTER_ADDR": self.meet.host,
            "PET_MASTER_PORT": str(self.meet.port),
        }

    def clusters(self, seat: Seat) -> dict[str, str]:
        """TensorFlow's and OpenPAI's lists of workers and addresses; nothing for a single one."""
        counts = self.counts()
        if counts.total() == 1:
            return {}
        addresses: dict[str, list[str]] = {role: [] for role in counts}
        found = {
            "PAI_JOB_NAME": str(self.run.job),
            "PAI_USER_NAME": self.user,
            "PAI_TASK_ROLE_COUNT": str(len(counts)),
            "PAI_TASK_ROLE_LIST": ",".join(counts),
            "PAI_CURRENT_TASK_ROLE_NAME": seat.role,
            "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(seat.index),
        }
        for other, address in zip(self.seats, self.addresses, strict=True):
            addresses[other.role].append(str(address))
            place = f"{other.role}_{other.index}"
            found[f"PAI_HOST_IP_{place}"] = address.host
            found[f"PAI_PORT_LIST_{place}_http"] = str(address.port)
        for role, count in counts.items():
            found[f"PAI_TASK_ROLE_TASK_COUNT_{role}"] = str(count)
        task = {"type": seat.role, "index": seat.index}
        return {**found, "TF_CONFIG": json.dumps({"cluster": addresses, "task": task})}

    def hosts(self) -> list[str]:
        """Where the main workers are, by rank."""
        pairs = zip(self.seats, self.addresses, strict=True)
        return [address.host for seat, address in pairs if seat.role == WORKER]


def run_variables(run: RunId, generation: int) -> dict[str, str]:
    """Which run a process belongs to."""
    return {
        "ROOST_JOB": str(run.job),
        "ROOST_ATTEMPT": str(run.attempt),
        "ROOST_GENERATION": str(generation),
    }


def seat_variables(seat: Seat) -> dict[str, str]:
    """What one worker holds, and its place among those of its role."""
    return {
        "ROOST_INDEX": str(seat.index),
        "ROOST_GPUS": str(len(seat.gpus)),
        "ROOST_SHARE": f"{seat.share_milli / 1000:g}",
    }


def hostfile(hosts: Iterable[str]) -> str:
    """Machines as Open MPI wants them: a line for each, with how many workers it has."""
    return "".join(f"{host} slots={count}\n" for host, count in Counter(hosts).items())


def own_variables(
    plain: Mapping[str, str], names: Sequence[str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """What the user wants set, secrets included; raises InvalidSpec without telling values."""
    missing = [name for name in names if name not in secrets]
    if missing:
        raise InvalidSpec(f"secret {missing[0]} has no value here")
    found = {**plain, **secrets}
    for name, value in found.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidSpec(f"{name!r} cannot be the name of a variable, or has a zero byte")
        if name.startswith("ROOST_"):
            raise InvalidSpec(f"the environment may not set {name}: it is Roost's own")
    return found
