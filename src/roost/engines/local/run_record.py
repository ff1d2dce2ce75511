"""What the engine wants of a run, kept in its folder so that the next server knows it too.

Secrets and the job's environment are not part of it: they come with each order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from roost.core.allocation import WORKER, Allocation, Part, Seat, seats
from roost.core.spec import JobId, JobSpec, NodeId, Qos, Resources, RunId, Way
from roost.engines.local.shim import slot_file

#: What the end of this generation is for: the end of the run, to park it, or to start the next.
Intent = Literal["", "suspend", "resize"]

#: The format of the records; an unknown one is refused. Version 1 knew nothing of members.
VERSION = 2
READABLE = (1, VERSION)
_MARK = 1 << 62


@dataclass(slots=True)
class MemberWish:
    """A change of members that was ordered: its number in this generation, and where it leads to.

    ``members`` are those that stay, empty for new workers. ``asked_at`` is when it was
    ordered, in seconds since boot.
    """

    number: int
    parts: tuple[Part, ...]
    ranks: tuple[int, ...]
    members: tuple[str, ...]
    asked_at: float


@dataclass(slots=True)
class RunRecord:
    """A run as the engine knows it. ``used_s`` is what earlier generations ran.

    ``members`` are the ids of the main workers by rank, empty if they cannot be changed; ``ranks``
    are their places among the main seats of ``parts``, empty for the same order. ``wish`` is the
    change under way, ``changes`` the number of the last one. ``shrank`` says why the run holds less
    than it was given. ``checkpoints`` is the folder of its own that the job saves to, if any.
    ``parked``: it was taken off its GPUs, and has not been put back. ``room``: how many workers the
    records of this generation have space for. ``home`` is the id of the home that it was started
    in; a copy of that home leaves it alone.
    """

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
    least: int = 0
    most: int = 0
    members: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    changes: int = 0
    wish: MemberWish | None = None
    shrank: str = ""
    checkpoints: str = ""
    parked: bool = False
    room: int = 0
    home: str = ""
    #: The runtime of the containers that its workers run in; empty: they are plain processes.
    container: str = ""
    #: Why no more output of it is kept, and whether it has to end: its user is beyond a bound.
    restraint: str = ""
    restraint_ends: bool = False

    @property
    def mark(self) -> int:
        """A number made of the token, small enough to be a limit and large enough not to limit."""
        return _MARK | int(self.token, 16) & (_MARK - 1)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The workers, main ones first and by rank."""
        return ranked(self.parts, self.ranks)

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
            "least": self.least,
            "most": self.most,
            "members": list(self.members),
            "ranks": list(self.ranks),
            "changes": self.changes,
            "wish": _encoded(self.wish),
            "shrank": self.shrank,
            "checkpoints": self.checkpoints,
            "parked": self.parked,
            "room": self.room,
            "home": self.home,
            "container": self.container,
            "restraint": self.restraint,
            "restraint_ends": self.restraint_ends,
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
            body.get("least", 0),
            body.get("most", 0),
            tuple(body.get("members", ())),
            tuple(body.get("ranks", ())),
            body.get("changes", 0),
            _wish(body.get("wish")),
            body.get("shrank", ""),
            body.get("checkpoints", ""),
            body.get("parked", False),
            body.get("room", 0),
            body.get("home", ""),
            _runtime(body),
            body.get("restraint", ""),
            body.get("restraint_ends", False),
        )


def ranked(parts: tuple[Part, ...], ranks: tuple[int, ...]) -> tuple[Seat, ...]:
    """The workers of some parts, main ones first, those in the order of their ranks."""
    found = tuple(seats(Allocation(parts)))
    main = [found[place] for place in ranks] if ranks else [*found[: _main(found)]]
    return (
        *(replace(seat, index=rank) for rank, seat in enumerate(main)),
        *found[_main(found) :],
    )


def _main(found: tuple[Seat, ...]) -> int:
    return sum(seat.role == WORKER for seat in found)


def needs_of(spec: JobSpec) -> dict[str, Resources]:
    """What a worker of each role needs."""
    return {WORKER: spec.resources, **{role.name: role.resources for role in spec.roles}}


def slot_bytes(workers: int) -> int:
    """How much room the records of so many workers need."""
    return -(-(3584 + 320 * workers) // slot_file.PAGE) * slot_file.PAGE


def _part(node: str, gpus: list[int], share_milli: int, workers: int, role: str) -> Part:
    return Part(NodeId(node), tuple(gpus), share_milli, workers, role)


def _need(body: dict[str, Any]) -> Resources:
    named = {"qos": Qos(body["qos"]), "way": Way(body.get("way", Way.TEMPORAL))}
    extras = tuple((name, amount) for name, amount in body.get("extras", ()))
    return Resources(**{**body, "kinds": tuple(body["kinds"]), "extras": extras, **named})


def _encoded(wish: MemberWish | None) -> dict[str, object] | None:
    if wish is None:
        return None
    parts = [list(part) for part in wish.parts]
    return {**asdict(wish), "parts": parts}


def _wish(body: dict[str, Any] | None) -> MemberWish | None:
    if body is None:
        return None
    parts = tuple(_part(*part) for part in body["parts"])
    ranks, members = tuple(body["ranks"]), tuple(body["members"])
    return MemberWish(body["number"], parts, ranks, members, body["asked_at"])


def _runtime(body: dict[str, Any]) -> str:
    """The name of a runtime; earlier versions told only that there is one."""
    found = body.get("container", "")
    return "podman" if found is True else found or ""
