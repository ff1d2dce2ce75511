"""What the engine wants of a run, kept in its folder so that the next server knows it too.

Secrets and the job's environment are not part of it: they come with each order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from roost.core.allocation import WORKER, Allocation, Part, Seat, seats
from roost.core.spec import JobId, JobSpec, NodeId, Qos, Resources, RunId
from roost.engines.local.shim import record

#: What the end of this generation is for: the end of the run, to park it, or to start the next.
Intent = Literal["", "suspend", "resize"]

#: The format of the records; an unknown one is refused.
VERSION = 1
_MARK = 1 << 62


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


def needs_of(spec: JobSpec) -> dict[str, Resources]:
    """What a worker of each role needs."""
    return {WORKER: spec.resources, **{role.name: role.resources for role in spec.roles}}


def slot_bytes(workers: int) -> int:
    """How much room the records of so many workers need."""
    return -(-(2048 + 192 * workers) // record.PAGE) * record.PAGE


def _part(node: str, gpus: list[int], share_milli: int, workers: int, role: str) -> Part:
    return Part(NodeId(node), tuple(gpus), share_milli, workers, role)


def _need(body: dict[str, Any]) -> Resources:
    return Resources(**{**body, "kinds": tuple(body["kinds"]), "qos": Qos(body["qos"])})
