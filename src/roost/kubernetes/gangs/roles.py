"""Pods of a gang as workers of a job: who is of which role, and who sits where.

To the core a gang is so many workers of a main role and so many of others, all of one role alike.
Pods are told apart by what they need, not by what they are called: a master that needs the same as
the workers is one of them, and the first. The role that needs most is the main one. None of this
depends on how many pods there are, so whoever looks later at what is left names them the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from roost.core import WORKER, JobSpec, Range, Resources, Role
from roost.core.allocation import Allocation, Seat, seats

#: Roles that lead others, and so come first.
_FIRST = ("master", "chief", "launcher", "driver", "head")


class GangMember(NamedTuple):
    """A pod as its gang sees it."""

    uid: str
    name: str
    role: str
    number: int
    resources: Resources

    @property
    def rank(self) -> tuple[bool, str, int, str]:
        """Its place among its likes."""
        return self.role not in _FIRST, self.role, self.number, self.name


class GangRoles:
    """The members of a gang by their role in the core."""

    def __init__(self, members: Iterable[GangMember]) -> None:
        by_need: dict[Resources, list[GangMember]] = {}
        for member in members:
            by_need.setdefault(member.resources, []).append(member)
        self.roles: dict[str, list[GangMember]] = {}
        for need in sorted(by_need, key=_weight, reverse=True) if len(by_need) > 1 else by_need:
            likes = by_need[need]
            if len(likes) > 1:
                likes.sort(key=lambda member: member.rank)
            self.roles[self._name(likes[0])] = likes
        self.role_of = {m.uid: name for name, likes in self.roles.items() for m in likes}

    def _name(self, first: GangMember) -> str:
        if not self.roles:
            return WORKER
        name = first.role if first.role not in ("", WORKER) else "other"
        return f"{name}-{len(self.roles)}" if name in self.roles else name

    def spec(self, template: JobSpec, counts: Mapping[str, int] | None = None) -> JobSpec:
        """The job that they are, or of which there are so many of each role."""
        have = {name: len(likes) for name, likes in self.roles.items()}
        wanted = {name: n for name, n in (counts or have).items() if n}
        main = wanted.pop(WORKER, 0)
        return JobSpec(
            workers=Range(main, main),
            resources=self.roles[WORKER][0].resources,
            roles=tuple(
                Role(name, count, self.roles[name][0].resources) for name, count in wanted.items()
            ),
            queue=template.queue,
            priority=template.priority,
            user=template.user,
            application=template.application,
            preemptible=template.preemptible,
            preempts=template.preempts,
        )

    def seat(
        self, uids: Iterable[str], vacant: Sequence[Seat], last: Mapping[tuple[str, int], str]
    ) -> dict[str, Seat]:
        """Seats for some of them, in their order; one who had a seat before gets it back."""
        free: dict[str, list[Seat]] = {}
        for seat in vacant:
            free.setdefault(seat.role, []).append(seat)
        wanted = set(uids)
        found: dict[str, Seat] = {}
        for role, likes in self.roles.items():
            mine = [member for member in likes if member.uid in wanted]
            left = free.get(role, [])
            if last:
                for member in mine:
                    name = last.get((member.role, member.number))
                    again = next((seat for seat in left if seat.name == name), None)
                    if again is not None:
                        found[member.uid] = again
                        left.remove(again)
            rest = [member.uid for member in mine if member.uid not in found]
            found.update(zip(rest, left, strict=False))
        return found


def counts_of(allocation: Allocation) -> dict[str, int]:
    """How many workers of each role an allocation has."""
    counts: dict[str, int] = {}
    for part in allocation.parts:
        counts[part.role] = counts.get(part.role, 0) + part.workers
    return counts


def vacant(allocation: Allocation, taken: Iterable[Seat]) -> list[Seat]:
    """The seats that nobody sits on."""
    names = {seat.name for seat in taken}
    return [seat for seat in seats(allocation) if seat.name not in names]


def _weight(need: Resources) -> tuple[int, int, int, str]:
    return need.gpu_milli, need.cpu_milli, need.memory_mib, repr(need)
