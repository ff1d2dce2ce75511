"""A start of an elastic run: pods come and go while it lives, and the training goes on.

``PodMembership`` says which members there are, and ``RendezvousServer`` lets pods know; this makes
pods of the one's effects, and words for the core of what became of them. Everything it has to know
is kept in the status of the Job before any of it is done (``keep``): the next leader goes on from
there. A member is hired once, for a seat of its own, and its pod is called by its number for as
long as the attempt lasts; the pod of one that ended stays for its log.

A change that cannot be made while the training runs ends the generation as ``stopped``, and
the next one starts with what was wanted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from roost.core import WORKER, Allocation, JobId, NodeId, Resized, Shrank
from roost.core.allocation import Seat, seats
from roost.elastic.protocol import ABOUT_MEMBERS, checked, take
from roost.engines import ProgressReport, Report
from roost.engines.seating import Seating
from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.blueprint import Blueprint, RunSeats
from roost.kubernetes.jobs.generation import EndReason, Generation, PlaceRefused
from roost.kubernetes.jobs.member_state import (
    beside,
    crew,
    held_by,
    read,
    recalled,
    seat_of,
    seats_in,
    written,
)
from roost.kubernetes.jobs.pod_ends import PodEnd, place_of, why_deleted
from roost.kubernetes.jobs.pod_membership import (
    ChangeDone,
    CreatePod,
    DeletePod,
    JobFacts,
    MemberEffect,
    MemberNote,
    PodLeft,
    PodMembership,
    PublishView,
    RanksAssigned,
    StopPods,
    WentOnWithout,
)
from roost.kubernetes.jobs.pods import pause
from roost.kubernetes.jobs.rendezvous import RendezvousServer
from roost.kubernetes.objects.pods import is_leaving, is_over, node_of
from roost.kubernetes.operator.workload import OperatorContext

__all__ = ["ElasticGeneration", "recalled"]

_log = logging.getLogger(__name__)

_KILLED = -9


class ElasticGeneration(Generation):
    """Pods of one start of a run that may change while it runs."""

    def __init__(  # noqa: PLR0913 - what a generation needs, and its two partners
        self,
        context: OperatorContext,
        job: JobId,
        plan: Blueprint,
        token: str = "",
        *,
        meeting: RendezvousServer,
        keep: Callable[[str], Awaitable[None]],
    ) -> None:
        super().__init__(context, job, plan, token)
        self._seat_of = dict(zip(plan.crew.members, plan.crew.seats, strict=False))
        self._members = PodMembership(
            plan.crew.members, plan.spec.workers.min, grace_s=plan.file.program().grace_s
        )
        #: New members without a pod yet, and the tasks that make their pods.
        self._awaited: set[str] = set()
        self._hiring: set[asyncio.Task[None]] = set()
        #: Members with an end that was told; ends that the others have not got over yet.
        self._seen: set[str] = set()
        self._mourned: dict[str, PodEnd] = {}
        #: Pods that were asked to leave by us.
        self._dismissed: set[str] = set()
        self._meeting, self._keep = meeting, keep
        #: The last wish, whether it is under way, whether this leader's core waits for it, and
        #: what is wanted after it.
        self._number, self._changing, self._ordered = 0, False, False
        self._later: Allocation | None = None
        self._effects: list[MemberEffect] = []
        self._kept = ""
        self._carrying = False
        #: Pods that others asked to leave while their fellows go on.
        self._spared: set[str] = set()
        self._stopped: EndReason | None = None
        self._reports: list[Report] = []
        self._told: dict[str, Any] = {}
        self._says = False

    # -- what the job asks -----------------------------------------------------------------------

    def begin(self) -> None:
        """Make what is not there yet, and let its pods call."""
        self._open()
        super().begin()

    def adopt(self, pods: Iterable[Object], *, up: bool, kept: str = "") -> None:
        """Take over what another operator began, with what it kept."""
        mine, found = list(pods), read(kept, self.plan.run.attempt, self.plan.generation)
        if found is not None:
            present = {str(number) for role, number in map(place_of, mine) if role == WORKER}
            self._members = PodMembership.restored(found["members"], present)
            self._seat_of = seats_in(found)
            self._number, self._changing = found["number"], found["changing"]
            self._replan()
        self._open()
        super().adopt([pod for pod in mine if self.has(pod)], up=up)
        if self._changing:
            self._spared |= self._leaving
        for role, number in (place_of(pod) for pod in mine if self.has(pod) and not node_of(pod)):
            if up and role == WORKER:  # made for a change, and not bound before that one was gone
                self._hire(str(number))
        self._go_on(self._members.tick(self._context.now()))

    def _part(self) -> None:
        """It ends for good: no member has to go on without those that leave."""
        self._meeting.release(self.plan.run)

    def change(self, allocation: Allocation, now: float) -> bool:
        """Let a run hold this from now on, while it runs; False: that cannot be."""
        main = any(part.role == WORKER for part in allocation.parts)
        same = beside(allocation) == beside(self.plan.allocation)
        if not main or not same or not self.is_running or self.why or not self._members.elastic:
            return False
        self._ordered = True
        if self._changing:
            self._later = allocation
            return True
        self._want(self._arrange(allocation), now)
        return True

    def hear(self, member: str, line: dict[str, Any]) -> None:
        """A line that a pod told."""
        now = self._context.now()
        said = checked(line)
        said.pop("elastic", None)  # one worker does not speak for all
        if said and member in self._members.people:
            take(self._told, said)
            self._says = True
        if any(word in line for word in ABOUT_MEMBERS):
            self._go_on(self._members.hear(now, line))

    def polled(self, member: str, version: int) -> None:
        """A pod asked for the members, and has seen that version of them."""
        now = self._context.now()
        self._look_where(now)
        if member in self._members.people:
            self._go_on(self._members.saw(now, version))

    def news(self, now: float) -> list[Report]:
        """What became of it since the last time."""
        found, self._reports = self._reports, []
        if self._says:
            self._says = False
            found.append(ProgressReport(now, self.plan.run, **self._told))
        return found

    @property
    def kept(self) -> str:
        """All that the next leader has to know."""
        held = {member: written(seat) for member, seat in self._seat_of.items()}
        return json.dumps(
            {
                "attempt": self.plan.run.attempt,
                "generation": self.plan.generation,
                "number": self._number,
                "changing": self._changing,
                "seats": held,
                "members": self._members.saved(),
            }
        )

    # -- what it comes to ------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Judge what is known of the pods."""
        self._look_where(now)
        super().look(now)
        if self.why is None and self._members.due < float("inf"):
            self._context.requeue_at(self._job, self._members.due)

    def _reason_to_end(self, now: float) -> EndReason | None:
        self._see_ends(now)
        self._go_on(self._members.tick(now))
        if self._stopped is not None:
            return self._stopped
        for name, seat in self.seats.items():
            if why := self._amiss(name, seat):
                return why
        return None if self.is_running else self._too_late(now)

    def _amiss(self, name: str, seat: Seat) -> EndReason | None:
        """Whether something happened to a pod that is not for its fellows to get over."""
        pod, end = self.pods.get(name), self.ends.get(name)
        if name in self._leaving:
            fine = name in self._dismissed or self._spare(name)
            return None if fine else EndReason("lost", why_deleted(name, self.pods[name]))
        if seat.role == WORKER:
            return None
        if end is not None and end.lost:
            return EndReason("lost", end.lost)
        if end is not None and end.exit.code != 0:
            return EndReason("exit")
        if pod is None and end is None and self.is_made:
            return EndReason("lost", f"pod {name} was deleted")
        return None

    @property
    def _leaving(self) -> set[str]:
        """Pods that were deleted and have not ended."""
        return {name for name, pod in self.pods.items() if is_leaving(pod) and not is_over(pod)}

    def _spare(self, name: str) -> bool:
        """Whether the others go on without the pods that are made to leave."""
        run, leaving = self._members, self._leaving
        stay = [one for one in run.members if self._name(one) not in leaving]
        if name in self._spared or name not in {self._name(one) for one in run.members}:
            return True  # it is left out, or about to be
        enough = len(stay) >= self.plan.spec.workers.min > 0
        if self._changing or not run.elastic or not enough or not self.is_running:
            return False
        self._spared |= leaving
        self._want(_seats_of(stay, self._seat_of), self._context.now())
        return True

    def _see_ends(self, now: float) -> None:
        """Tell of pods of members that have ended, or are gone."""
        for member in self._members.people:
            name = self._name(member)
            end = self.ends.get(name)
            gone = self.is_made and name not in self.pods and member not in self._awaited
            if member in self._seen or (end is None and not gone):
                continue
            self._seen.add(member)
            status, how = _how(name, end)
            self._go_on(self._members.ended(now, member, status, how))

    def _look_where(self, now: float) -> None:
        hosts = {}
        for member in self._members.people:
            pod = self.pods.get(self._name(member)) or {}
            hosts[member] = str((pod.get("status") or {}).get("podIP") or "")
        places = self._meeting.places(self.plan.run, hosts)
        self._go_on(self._members.where(now, places))

    # -- changes ---------------------------------------------------------------------------------

    def _arrange(self, allocation: Allocation) -> list[dict[str, Any]]:
        """The members that stay, by rank, and the seats of new ones."""
        wanted = [seat for seat in seats(allocation) if seat.role == WORKER]
        ranked = [self._seat_of[member] for member in self._members.members]
        seating = Seating(RunSeats(tuple(ranked), self._members.members), allocation)
        places = zip(seating.members, seating.ranks, strict=True)
        return [{"member": one, "seat": written(wanted[place])} for one, place in places]

    def _want(self, chosen: list[dict[str, Any]], now: float) -> None:
        self._number += 1
        self._changing = True
        self._go_on(self._members.want(now, self._number, chosen))

    def _go_on(self, effects: Sequence[MemberEffect]) -> None:
        """Write down how it is, then carry out what is wanted; one after the other."""
        for effect in effects:
            if isinstance(effect, CreatePod):  # known from now on, so that it is kept
                self._seat_of[effect.member] = seat_of(effect.seat["seat"], effect.rank)
                self._awaited.add(effect.member)
        self._effects += effects
        if not self._carrying and (self._effects or self.kept != self._kept):
            self._carrying = True
            self._context.spawn(self._carry_out(), f"the members of {self.plan.run}")

    async def _carry_out(self) -> None:
        tried = 0
        try:
            while self._effects or self.kept != self._kept:
                effects, self._effects = self._effects, []
                text = self.kept
                try:
                    if text != self._kept:
                        await self._keep(text)
                        self._kept, tried = text, 0
                except Retryable as error:
                    self._effects[:0] = effects
                    await pause(error, tried)
                    tried += 1
                    continue
                for effect in effects:
                    self._perform(effect)
                self._context.requeue(self._job)
        finally:
            self._carrying = False

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case PublishView(view):
                self._meeting.publish(self.plan.run, view)
            case CreatePod(member):
                self._replan()
                self._hire(member)
            case DeletePod(member, kill):
                self._dismiss(member, kill=kill)
            case PodLeft(member):
                self._let_go(member)
            case RanksAssigned():
                self._replan()
            case _:
                self._note(effect, self._context.now())

    def _note(self, effect: MemberEffect, now: float) -> None:
        match effect:
            case ChangeDone():
                self._changed(effect, now)
            case WentOnWithout(members, why):
                self._mourned.clear()
                self._reports.append(Shrank(now, self.plan.run, self._held_by(members), why))
            case StopPods(cause, detail):
                self._stop(cause, detail)
            case JobFacts(fields):
                take(self._told, fields)
                self._says = True
            case MemberNote(text):
                _log.info("%s: %s", self.plan.run, text)
            case _:  # checkpoints are not asked for here
                return

    def _changed(self, changed: ChangeDone, now: float) -> None:
        self._changing = False
        self._replan()
        if self._later is not None:
            allocation, self._later = self._later, None
            self._want(self._arrange(allocation), now)
        elif self._ordered:
            self._ordered = False
            self._reports.append(Resized(now, self.plan.run, changed.took_s, changed.pause_s))
        else:  # no wish of this leader's core: it learns what is left
            held = self._held_by(changed.members)
            self._reports.append(Shrank(now, self.plan.run, held, "others had to leave"))

    def _stop(self, cause: str, detail: str) -> None:
        self.ends.update(self._mourned)
        lost = next((end.lost for end in self.ends.values() if end.lost), "")
        if cause == "stopped":
            self._stopped = EndReason("stopped", detail)
        else:
            self._stopped = EndReason("lost", lost) if lost else EndReason("exit", detail)

    # -- pods of members ---------------------------------------------------------------------------

    def _hire(self, member: str) -> None:
        task = self._context.spawn(self._make_one(member), f"a new worker of {self.plan.run}")
        if task is not None:
            self._hiring.add(task)
            task.add_done_callback(self._hiring.discard)

    async def _make_one(self, member: str) -> None:
        name, tried = self._name(member), 0
        body = next(one for one in self.plan.pods() if one["metadata"]["name"] == name)
        while self.why is None and member in self._members.people:
            try:
                await self._create(body)
                self._awaited.discard(member)
                await self._ready((name,))
                return await self._seat(name)
            except Retryable as error:
                await pause(error, tried)
                tried += 1
            except (InvalidSpec, Forbidden, Conflict, NotFound, PlaceRefused) as error:
                self._seen.add(member)
                how = f"pod {name} cannot be made: {error}"
                return self._go_on(self._members.ended(self._context.now(), member, 1, how))
        return None

    def _dismiss(self, member: str, *, kill: bool) -> None:
        name = self._name(member)
        pod = self.pods.get(name)
        self._dismissed.add(name)
        if pod is not None and not is_over(pod):
            grace = 0 if kill else None
            self._context.spawn(self._context.binder.remove(pod, grace), f"the end of {name}")
        if member not in self._members.people:
            self._let_go(member)

    def _let_go(self, member: str) -> None:
        """Its end is no part of how the run ends, unless the others do not get over it."""
        name = self._name(member)
        end = self.ends.pop(name, None)
        if end is not None and (end.lost or end.exit.code != 0):
            self._mourned[name] = end
        self.pods.pop(name, None)
        self._seat_of.pop(member, None)
        self._replan()

    def _replan(self) -> None:
        """Seat the members anew: by rank, then those that come or leave."""
        members = self._members
        people = [*members.members, *(one for one in members.people if one not in members.members)]
        known = [one for one in people if one in self._seat_of]
        there = crew(known, self._seat_of, self.plan.crew)
        self.plan = replace(self.plan, crew=there, allocation=self._held_by(known))
        self.seats = {self.plan.pod_name(seat): seat for seat in there.seats}

    def _held_by(self, members: Iterable[str]) -> Allocation:
        return held_by([self._seat_of[one] for one in members], self.plan.allocation)

    def _name(self, member: str) -> str:
        seat = Seat(WORKER, 0, (), 0, NodeId(""))
        return replace(self.plan, crew=RunSeats((seat,), (member,))).pod_name(seat)

    # -- where pods call -------------------------------------------------------------------------

    def _open(self) -> None:
        self._meeting.close(self.plan.run)  # for pods of an earlier generation
        self._meeting.open(self.plan.run, self.plan.digest)

    async def _wind_up(self) -> None:
        if self._hiring:
            await asyncio.wait(self._hiring)
        await super()._wind_up()
        if self.is_over:
            self._meeting.close(self.plan.run)


def _seats_of(members: list[str], held: dict[str, Seat]) -> list[dict[str, Any]]:
    return [{"member": member, "seat": written(held[member])} for member in members]


def _how(name: str, end: PodEnd | None) -> tuple[int, str]:
    """How a pod ended, as a number and in words."""
    if end is None:
        return _KILLED, f"pod {name} was deleted"
    if end.lost:
        return _KILLED, end.lost
    if end.exit.signal is not None:
        return -end.exit.signal, f"pod {name} was killed by signal {end.exit.signal}"
    return end.exit.code or 0, f"pod {name} exited with {end.exit.code}"
