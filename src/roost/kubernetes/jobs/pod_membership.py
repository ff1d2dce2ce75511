"""The members of one elastic run on Kubernetes: words in, effects out, no I/O.

The protocol is ``roost.elastic``, the same as on one machine. This is its host. Workers are pods
that the caller makes and deletes, the first member is met at the address of its pod, a version
becomes known by an answer that pods wait for (``rendezvous``), and the operator may be killed at
any moment, while training goes on.

So every call returns effects, and the caller keeps ``saved()`` *before* it carries them out: the
next operator goes on from there (``restored``), publishes again, and asks again for pods that are
missing. What workers said to an operator that is gone they say again (``roost.train.pod``). Times
must come from a clock that goes on over restarts.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.elastic.members import MemberList
from roost.elastic.turnover import Turnover

#: How long new pods may take until they are ready, images included, and all to go on.
PATIENCE = {"ready_s": 600.0, "join_s": 120.0}
#: By how much pods may know of a later version than an operator that lost its notes.
_AHEAD = 1000


@dataclass(frozen=True, slots=True)
class PublishView:
    """Let all workers know this view of the members."""

    view: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make a pod for a new member; ``seat`` is what was said of it with ``want``."""

    member: str
    rank: int
    seat: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod of a member; ``kill``: it had its time to leave."""

    member: str
    kill: bool


@dataclass(frozen=True, slots=True)
class PodLeft:
    """A pod has ended, and that is no part of how the run ends."""

    member: str


@dataclass(frozen=True, slots=True)
class RanksAssigned:
    """These have the ranks from now on, in this order."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeDone:
    """What was wanted is so; how long that took, and how long the training stood still."""

    number: int
    members: tuple[str, ...]
    took_s: float
    pause_s: float


@dataclass(frozen=True, slots=True)
class WentOnWithout:
    """Members were lost, and the others train without them."""

    members: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class StopPods:
    """End all pods: ``stopped`` to start again with what is wanted, ``exit`` for good."""

    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Something to be known of the job, as if it had said it: ``elastic``, ``world``."""

    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class MemberNote:
    """A sentence about what happened to the job, for people."""

    text: str


MemberEffect = (
    PublishView
    | CreatePod
    | DeletePod
    | PodLeft
    | RanksAssigned
    | ChangeDone
    | WentOnWithout
    | StopPods
    | JobFacts
    | MemberNote
)


class PodMembership:
    """The members of one run. All times are ``now`` of the caller."""

    def __init__(
        self,
        ids: Sequence[str],
        least: int,
        *,
        grace_s: float = 30.0,
        patience: Mapping[str, float] | None = None,
    ) -> None:
        self._host = _PodHost(list(ids), grace_s, patience or PATIENCE)
        self._turnover = Turnover(self._host, self._host, least)
        self._host.pending_losses = self._stop
        self._least, self._grace_s = least, grace_s

    @classmethod
    def restored(cls, text: str, present: Iterable[str]) -> PodMembership:
        """As ``saved()`` had it; ``present`` are members that have a pod, ended or not."""
        kept = json.loads(text)
        self = cls(
            kept["roll"]["ids"], kept["least"], grace_s=kept["grace_s"], patience=kept["patience"]
        )
        host, there = self._host, set(present)
        host.members.load(kept["roll"])
        host.is_open, host.is_stopped = kept["open"], kept["stopped"]
        host.people = {one: runs for one, runs in kept["people"].items() if one in there}
        host.facts = kept["more"]
        # Members without a pod have died: the caller says so, by ``ended``.
        host.people |= {one: True for one in host.members.ids if one not in there}
        self._turnover.load(kept["turnover"])
        if host.is_open:
            host.members.publish()
        return self

    def saved(self) -> str:
        """All of it, to be kept before effects are carried out."""
        host = self._host
        return json.dumps(
            {
                "least": self._least,
                "grace_s": self._grace_s,
                "patience": dict(host.patience),
                "open": host.is_open,
                "stopped": host.is_stopped,
                "people": host.people,
                "more": host.facts,
                "roll": host.members.dump(),
                "turnover": self._turnover.dump(),
            }
        )

    @property
    def members(self) -> tuple[str, ...]:
        """The members, by rank, as last published."""
        return tuple(self._host.members.ids)

    @property
    def people(self) -> tuple[str, ...]:
        """All that have, or shall have, a pod: members, new ones, and those that leave."""
        return tuple(self._host.people)

    @property
    def elastic(self) -> bool:
        """Whether all members said that they can change."""
        return self._host.members.elastic

    @property
    def version(self) -> int:
        """Of the view that was last published; 0 if none was."""
        return self._host.members.version if self._host.is_open else 0

    @property
    def due(self) -> float:
        """When to call ``tick``, whatever happens."""
        return math.inf if self._host.is_stopped else self._turnover.due

    def where(self, now: float, places: Mapping[str, str]) -> list[MemberEffect]:
        """Take note where members can be met, as ``host:port``; the first view waits for that."""
        host = self._host
        host.publisher.places = dict(places)
        first = host.members.ids[0]
        if not host.is_open and first in places:
            host.members.address, host.is_open = places[first], True
            host.members.publish()
        return self._go_on(now)

    def hear(self, now: float, line: dict[str, Any]) -> list[MemberEffect]:
        """Take in a line that a worker told."""
        self._host.now = now
        self._turnover.hear([line])
        return self._go_on(now)

    def want(self, now: float, number: int, seats: Sequence[dict[str, Any]]) -> list[MemberEffect]:
        """Let these be the members, by rank: ``member`` is one that stays, empty for a new one.

        Each wish has a higher ``number``. One that is known is not begun again; if it has come
        true, that is said again.
        """
        roll, self._host.now = self._host.members, now
        if not self._host.is_stopped:
            wanted = {"number": number, "seats": [dict(seat) for seat in seats]}
            self._turnover.look({**wanted, "save": roll.save, "offload": roll.offload})
        return self._go_on(now)

    def ended(self, now: float, member: str, status: int, how: str) -> list[MemberEffect]:
        """A pod has ended, by an exit code or by minus a signal, or it is gone."""
        host = self._host
        host.now = now
        if not host.people.get(member):
            return self._go_on(now)
        host.people[member] = False
        if host.is_stopped:
            return self._go_on(now)
        if self._turnover.takes(member, status, ([], how)):
            host.effects.append(PodLeft(member))
        elif status:
            host.stop("exit", how)
        elif not host.running:
            host.stop("exit", "")
        return self._go_on(now)

    def saw(self, now: float, version: int) -> list[MemberEffect]:
        """A worker has seen this version: if it is none of ours, ours has to be a later one."""
        host, roll = self._host, self._host.members
        host.now = now
        if host.is_running and roll.version < version <= roll.version + _AHEAD:
            roll.version = version
            roll.change(roll.ids, roll.lost)
        return self._go_on(now)

    def tick(self, now: float) -> list[MemberEffect]:
        """Time passed."""
        return self._go_on(now)

    def _go_on(self, now: float) -> list[MemberEffect]:
        host = self._host
        host.now = now
        if host.is_running:
            self._turnover.go_on()
        effects, host.effects = host.effects, []
        return effects

    def _stop(self) -> list[str]:
        """Wait for nothing any more; the losses that the others did not get over."""
        losses = [how for _, how in self._turnover.pending_losses()]
        self._turnover.over()
        return losses


class _PodPublisher:
    """Makes versions known as effects; members are met at the pod of the first of them."""

    def __init__(self, publish: Callable[[dict[str, Any]], None]) -> None:
        self._publish = publish
        self.places: dict[str, str] = {}

    def can_meet(self, ids: Sequence[str]) -> bool:
        return ids[0] in self.places

    def address(self, ids: Sequence[str], current: str) -> str:
        found = self.places.get(ids[0], current)
        if not found:
            raise OSError(errno.EADDRNOTAVAIL, f"it is not known where member {ids[0]} is")
        return found

    def publish(self, view: dict[str, Any]) -> None:
        if view["address"]:
            self._publish(view)


class _PodHost:
    """Pods as ``Turnover`` sees workers: what it wants of them becomes effects."""

    def __init__(self, ids: list[str], grace_s: float, patience: Mapping[str, float]) -> None:
        self.publisher = _PodPublisher(lambda view: self.effects.append(PublishView(view)))
        self.members = MemberList(ids, "", self.publisher)
        self.grace_s, self.patience = grace_s, patience
        self.now = 0.0
        self.effects: list[MemberEffect] = []
        #: All that were started, and whether they have not ended.
        self.people = dict.fromkeys(ids, True)
        self.is_open = self.is_stopped = False
        self.facts: dict[str, object] = {}
        self.pending_losses: Callable[[], list[str]] = list

    @property
    def is_running(self) -> bool:
        return self.is_open and not self.is_stopped

    @property
    def present(self) -> list[str]:
        return list(self.people)

    @property
    def running(self) -> set[str]:
        return {member for member, runs in self.people.items() if runs}

    def add(self, members: Sequence[tuple[str, int, Any]]) -> str:
        for member, rank, seat in members:
            self.people[member] = True
            self.effects.append(CreatePod(member, rank, seat))
        return ""

    def remove(self, member: str) -> None:
        if self.people.pop(member, False):
            self.effects.append(DeletePod(member, kill=False))

    def kill(self, member: str) -> None:
        self.effects.append(DeletePod(member, kill=True))

    def assign_ranks(self, ranked: Sequence[str]) -> None:
        self.effects.append(RanksAssigned(tuple(ranked)))

    def stop(self, cause: str, detail: str) -> None:
        if self.is_stopped:
            return
        self.is_stopped = True
        losses = self.pending_losses()
        if losses and cause == "exit":
            detail = f"{losses[0]}, and the others did not go on without it"
        self.effects.append(StopPods(cause, detail))

    def note(self, text: str) -> None:
        self.effects.append(MemberNote(text))

    def report(self, fields: dict[str, object]) -> None:
        self.effects.append(JobFacts(fields))

    def announce(self, message: dict[str, Any]) -> None:
        match message:
            case {"change": {"number": number, "members": ids, "took_s": took_s, "pause_s": pause}}:
                self.effects.append(ChangeDone(number, tuple(ids), took_s, pause))
            case {"lost": {"members": ids, "why": why}}:
                self.effects.append(WentOnWithout(tuple(ids), why))
            case _:  # that it is elastic is said as well
                return
