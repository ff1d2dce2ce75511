"""Who trains together in one elastic run whose workers are pods: words in, effects out, no I/O.

How members come and go is the same as on one machine, so it is the same code: ``Turnover`` and
``Change`` of the local engine's shim, which know workers by their ids and ask no clock. Here is
what differs: workers are pods that somebody else makes and deletes, the first member is met at the
address of its pod, a version becomes known by an answer that pods wait for (``meeting``), and the
operator may be killed at any moment, while training goes on.

So every call returns effects, and whoever called keeps ``saved()`` *before* carrying them out: the
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
    """A pod has ended whose end is no part of how the run ends."""

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
class WishAnswered:
    """The job did what ``ask`` asked for: ``save`` or ``offload``, and its number."""

    what: str
    number: int


@dataclass(frozen=True, slots=True)
class MemberNote:
    """A sentence for whoever wonders what happened to the job."""

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
    | WishAnswered
    | MemberNote
)


class PodMembership:
    """The members of one run. All times are ``now`` of whoever calls."""

    def __init__(
        self,
        ids: Sequence[str],
        least: int,
        *,
        grace_s: float = 30.0,
        patience: Mapping[str, float] | None = None,
    ) -> None:
        self._company = _Company(list(ids), grace_s, patience or PATIENCE)
        self._turnover = Turnover(self._company, self._company, least)
        self._company.mourned = self._stop
        self._least, self._grace_s = least, grace_s

    @classmethod
    def restored(cls, text: str, present: Iterable[str]) -> PodMembership:
        """As ``saved()`` had it; ``present`` are those whose pods exist, ended or not."""
        kept = json.loads(text)
        self = cls(
            kept["roll"]["ids"], kept["least"], grace_s=kept["grace_s"], patience=kept["patience"]
        )
        company, there = self._company, set(present)
        company.members.recall(kept["roll"])
        company.is_open, company.is_stopped = kept["open"], kept["stopped"]
        company.people = {one: runs for one, runs in kept["people"].items() if one in there}
        company.more = kept["more"]
        # Members without a pod have died: whoever called says so, by ``ended``.
        company.people |= {one: True for one in company.members.ids if one not in there}
        self._turnover.recall(kept["turnover"])
        if company.is_open:
            company.members.publish()
        return self

    def saved(self) -> str:
        """All of it, to be kept before effects are carried out."""
        company = self._company
        return json.dumps(
            {
                "least": self._least,
                "grace_s": self._grace_s,
                "patience": dict(company.patience),
                "open": company.is_open,
                "stopped": company.is_stopped,
                "people": company.people,
                "more": company.more,
                "roll": company.members.kept(),
                "turnover": self._turnover.kept(),
            }
        )

    @property
    def members(self) -> tuple[str, ...]:
        """Who trains together, by rank, as it was last published."""
        return tuple(self._company.members.ids)

    @property
    def people(self) -> tuple[str, ...]:
        """Whoever has, or shall have, a pod: members, those who come, those who leave."""
        return tuple(self._company.people)

    @property
    def elastic(self) -> bool:
        """Whether all members said that they can change."""
        return self._company.members.elastic

    @property
    def version(self) -> int:
        """Of the view that was last published; 0 if none was."""
        return self._company.members.version if self._company.is_open else 0

    @property
    def due(self) -> float:
        """When to call ``tick``, whatever happens."""
        return math.inf if self._company.is_stopped else self._turnover.due

    def where(self, now: float, places: Mapping[str, str]) -> list[MemberEffect]:
        """Take note where members can be met, as ``host:port``; the first view waits for that."""
        company = self._company
        company.members.places = dict(places)
        first = company.members.ids[0]
        if not company.is_open and first in places:
            company.members.address, company.is_open = places[first], True
            company.members.publish()
        return self._go_on(now)

    def hear(self, now: float, line: dict[str, Any]) -> list[MemberEffect]:
        """Take in a line that a worker told."""
        self._company.now = now
        self._turnover.hear([line])
        return self._go_on(now)

    def want(self, now: float, number: int, seats: Sequence[dict[str, Any]]) -> list[MemberEffect]:
        """Let these be the members, by rank: ``member`` says who stays, empty for a new one.

        Each wish has a higher ``number``. One that is known is not begun again; if it has come
        true, that is said again.
        """
        roll, self._company.now = self._company.members, now
        if not self._company.is_stopped:
            wanted = {"number": number, "seats": [dict(seat) for seat in seats]}
            self._turnover.look({**wanted, "save": roll.save, "offload": roll.offload})
        return self._go_on(now)

    def ask(self, now: float, save: int = 0, offload: int = 0) -> list[MemberEffect]:
        """Ask the workers to save, or to leave the memory of the GPU (odd) and come back (even)."""
        self._company.now = now
        self._turnover.look({"number": 0, "save": save, "offload": offload})
        return self._go_on(now)

    def ended(self, now: float, member: str, status: int, how: str) -> list[MemberEffect]:
        """A pod has ended, by an exit code or by minus a signal, or it is gone."""
        company = self._company
        company.now = now
        if not company.people.get(member):
            return self._go_on(now)
        company.people[member] = False
        if company.is_stopped:
            return self._go_on(now)
        if self._turnover.takes(member, status, ([], how)):
            company.effects.append(PodLeft(member))
        elif status:
            company.stop("exit", how)
        elif not company.running:
            company.stop("exit", "")
        return self._go_on(now)

    def saw(self, now: float, version: int) -> list[MemberEffect]:
        """A worker has seen this version: if it is none of ours, ours has to be a later one."""
        company, roll = self._company, self._company.members
        company.now = now
        if company.is_running and roll.version < version <= roll.version + _AHEAD:
            roll.version = version
            roll.change(roll.ids, roll.lost)
        return self._go_on(now)

    def tick(self, now: float) -> list[MemberEffect]:
        """Time passed."""
        return self._go_on(now)

    def _go_on(self, now: float) -> list[MemberEffect]:
        company = self._company
        company.now = now
        if company.is_running:
            self._turnover.go_on()
        effects, company.effects = company.effects, []
        return effects

    def _stop(self) -> list[str]:
        """Nothing is waited for any more; the losses that nobody got over."""
        losses = [how for _, how in self._turnover.mourned()]
        self._turnover.over()
        return losses


class _Roll(MemberList):
    """The members, met at the pod of the first of them."""

    def __init__(self, ids: list[str], publish: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(ids, "")
        self._announce = publish
        self.places: dict[str, str] = {}

    def can_meet(self, ids: list[str]) -> bool:
        return ids[0] in self.places

    def _place(self, ids: list[str]) -> str:
        if ids == self.ids and self.address:
            return self.places.get(ids[0], self.address)
        if ids[0] not in self.places:
            raise OSError(errno.EADDRNOTAVAIL, f"nobody knows where member {ids[0]} is")
        return self.places[ids[0]]

    def _publish(self, version: int, address: str, ids: list[str], lost: list[str]) -> None:
        if address:
            self._announce(self._body(version, address, list(ids), list(lost)))


class _Company:
    """Pods as ``Turnover`` sees workers: what it wants of them becomes effects."""

    def __init__(self, ids: list[str], grace_s: float, patience: Mapping[str, float]) -> None:
        self.members = _Roll(ids, lambda view: self.effects.append(PublishView(view)))
        self.grace_s, self.patience = grace_s, patience
        self.now = 0.0
        self.effects: list[MemberEffect] = []
        #: Everybody who was started, and whether they have not ended.
        self.people = dict.fromkeys(ids, True)
        self.is_open = self.is_stopped = False
        self.more: dict[str, object] = {}
        self.mourned: Callable[[], list[str]] = list

    @property
    def is_running(self) -> bool:
        return self.is_open and not self.is_stopped

    @property
    def present(self) -> list[str]:
        return list(self.people)

    @property
    def running(self) -> set[str]:
        return {member for member, runs in self.people.items() if runs}

    def hire(self, seats: Sequence[tuple[str, int, Any]]) -> str:
        for member, rank, seat in seats:
            self.people[member] = True
            self.effects.append(CreatePod(member, rank, seat))
        return ""

    def part(self, member: str) -> None:
        if self.people.pop(member, False):
            self.effects.append(DeletePod(member, kill=False))

    def end(self, member: str) -> None:
        self.effects.append(DeletePod(member, kill=True))

    def settle(self, ranked: Sequence[str]) -> None:
        self.effects.append(RanksAssigned(tuple(ranked)))

    def stop(self, cause: str, detail: str) -> None:
        if self.is_stopped:
            return
        self.is_stopped = True
        losses = self.mourned()
        if losses and cause == "exit":
            detail = f"{losses[0]}, and the others did not go on without it"
        self.effects.append(StopPods(cause, detail))

    def note(self, text: str) -> None:
        self.effects.append(MemberNote(text))

    def tell(self, fields: dict[str, object]) -> None:
        self.effects.append(JobFacts(fields))

    def news(self, message: dict[str, Any]) -> None:
        match message:
            case {"change": {"number": number, "members": ids, "took_s": took_s, "pause_s": pause}}:
                self.effects.append(ChangeDone(number, tuple(ids), took_s, pause))
            case {"lost": {"members": ids, "why": why}}:
                self.effects.append(WentOnWithout(tuple(ids), why))
            case {"saved_for": number}:
                self.effects.append(WishAnswered("save", number))
            case {"offloaded": number}:
                self.effects.append(WishAnswered("offload", number))
            case _:  # that it is elastic is said as well
                return
