"""What the engine wants of a run, kept in its folder so that the next server knows it too.

Secrets and the job's environment are not part of it: they come with each order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.spec import JobId, JobSpec, NodeId, Qos, Resources, RunId
from roost.engines.local.shim import record

#: What the end of this generation is for: the end of the run, to park it, or to start the next.
Intent = Literal["", "suspend", "resize"]

#: The format of the records; an unknown one is refused.
VERSION = 1
_MARK = 1 << 62


@dataclass(frozen=True, slots=True)
class Seat:
    """One worker of a gang: its role, its index in it, and the devices that it holds."""

    role: str
    index: int
    gpus: tuple[int, ...]
    share_milli: int

    @property
    def name(self) -> str:
        """The name of its log."""
        return f"{self.role}-{self.index}"


@dataclass(slots=True)
class State:
    """A run as the engine knows it. ``used_s`` is what earlier generations ran."""

    run: RunId
    token: str
    unix: str = ""
    generation: int = 0
    intent: Intent = ""
    parts: tuple[Part, ...] = ()
    needs: dict[str, Resources] = field(default_factory=dict)
    cpus: dict[str, list[int]] = field(default_factory=dict)
    used_s: float = 0.0
    cgroup: str = ""

    @property
    def mark(self) -> int:
        """A number made of the token, small enough to be a limit and large enough not to limit."""
        return _MARK | int(self.token, 16) & (_MARK - 1)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The workers, main ones first."""
        return tuple(seats(Allocation(self.parts)))

    def encode(self) -> dict[str, object]:
        """Ready for JSON."""
        return {
            "version": VERSION,
            "run": list(self.run),
            "token": self.token,
            "unix": self.unix,
            "generation": self.generation,
            "intent": self.intent,
            "parts": [list(part) for part in self.parts],
            "needs": {role: asdict(need) for role, need in self.needs.items()},
            "cpus": self.cpus,
            "used_s": self.used_s,
            "cgroup": self.cgroup,
        }

    @classmethod
    def decode(cls, body: dict[str, Any]) -> Self:
        """From JSON."""
        job, attempt = body["run"]
        return cls(
            RunId(JobId(job), attempt),
            body["token"],
            body["unix"],
            body["generation"],
            body["intent"],
            tuple(_part(*part) for part in body["parts"]),
            {role: _need(need) for role, need in body["needs"].items()},
            body["cpus"],
            body["used_s"],
            body["cgroup"],
        )

    def copy(self) -> Self:
        """One to change while the other still counts."""
        return replace(self)


def needs_of(spec: JobSpec) -> dict[str, Resources]:
    """What a worker of each role needs."""
    return {WORKER: spec.resources, **{role.name: role.resources for role in spec.roles}}


def seats(allocation: Allocation) -> Iterator[Seat]:
    """The workers of an allocation, main ones first, each with its devices."""
    counts: dict[str, int] = {}
    for part in sorted(allocation.parts, key=lambda part: part.role != WORKER):
        each = len(part.gpus) // part.workers if part.workers else 0
        for number in range(part.workers):
            index = counts.get(part.role, 0)
            counts[part.role] = index + 1
            gpus = part.gpus[number * each : (number + 1) * each]
            yield Seat(part.role, index, gpus, part.share_milli)


def slot_bytes(workers: int) -> int:
    """How much room the records of so many workers need."""
    return -(-(2048 + 192 * workers) // record.PAGE) * record.PAGE


def _part(node: str, gpus: list[int], share_milli: int, workers: int, role: str) -> Part:
    return Part(NodeId(node), tuple(gpus), share_milli, workers, role)


def _need(body: dict[str, Any]) -> Resources:
    return Resources(**{**body, "kinds": tuple(body["kinds"]), "qos": Qos(body["qos"])})
