"""The pods of an elastic run: which members have one, its seat and its name.

A member is started once, for a seat of its own, and its pod has its number in its name for as long
as the attempt lasts. One that leaves gives up the seat; the pod of one that ended stays for its
log. ``elastic`` decides which members come and go, and when.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from roost.core import WORKER, Allocation, JobId, NodeId
from roost.core.allocation import Seat
from roost.errors import Conflict, Forbidden, InvalidSpec, NotFound, Retryable
from roost.kubernetes.jobs.blueprint import Blueprint, RunSeats
from roost.kubernetes.jobs.generation import Generation
from roost.kubernetes.jobs.member_state import crew, held_by
from roost.kubernetes.jobs.pod_ends import PodEnd
from roost.kubernetes.jobs.pod_membership import MemberEffect, PodMembership
from roost.kubernetes.jobs.pods import pause
from roost.kubernetes.objects.pods import is_over
from roost.kubernetes.operator.workload import OperatorContext


class MemberPods(Generation, ABC):
    """A generation of pods, one for each member."""

    def __init__(
        self, context: OperatorContext, job: JobId, plan: Blueprint, token: str = ""
    ) -> None:
        super().__init__(context, job, plan, token)
        self._seat_of = dict(zip(plan.crew.members, plan.crew.seats, strict=False))
        self._members = PodMembership(
            plan.crew.members, plan.spec.workers.min, grace_s=plan.file.program().grace_s
        )
        #: New members that have no pod yet, and the tasks that make one.
        self._awaited: set[str] = set()
        self._hiring: set[asyncio.Task[None]] = set()
        #: Members with an end that was told; ends that the others have not got over yet.
        self._seen: set[str] = set()
        self._mourned: dict[str, PodEnd] = {}
        #: Pods that were asked to leave by us.
        self._dismissed: set[str] = set()

    @abstractmethod
    def _go_on(self, effects: Sequence[MemberEffect]) -> None:
        """Carry out what is wanted of the members now."""

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
                return await self._seat(name)
            except Retryable as error:
                await pause(error, tried)
                tried += 1
            except (InvalidSpec, Forbidden, Conflict, NotFound) as error:
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
        """Set the seats: members by rank, then those that come or leave."""
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
