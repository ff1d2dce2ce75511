"""One start of a run: its pods, from the first request until the last of them has ended.

    made -> up -> over

It is told what becomes of its pods (``saw``) and judges from that (``look``): whether all are up,
and whether it has to end. Then, or when it is told to (``end``), the pods that are left are asked
to leave, and it is over when none of them runs. Requests are made in two tasks that follow each
other, so nothing is made any more while things are taken away. What all of it means for the job is
for ``workload``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple

from roost.core import WORKER, Allocation, JobId
from roost.core.allocation import Seat
from roost.engines import Ending, Report, WorkerExit
from roost.errors import (
    Conflict,
    Fatal,
    Forbidden,
    InvalidSpec,
    NotFound,
    Retryable,
    RoostError,
)
from roost.failpoints import hit
from roost.jobs.reports import TAILS
from roost.kubernetes.client.kinds import CONFIG_MAPS, PODS, SECRETS, SERVICES, Object
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.filters.node_filter import NotReady
from roost.kubernetes.jobs.blueprint import Blueprint
from roost.kubernetes.jobs.log_keeper import LogKeeper
from roost.kubernetes.jobs.pod_ends import PodEnd, end_of, stuck, tails_of, why_deleted
from roost.kubernetes.jobs.pods import RunEviction, ensure, pause
from roost.kubernetes.objects.kept_logs import LogEnd
from roost.kubernetes.objects.pods import PLAN, is_leaving, is_over, is_running, node_of
from roost.kubernetes.operator.binding import Binding, BindingFate
from roost.kubernetes.operator.workload import OperatorContext

_log = logging.getLogger(__name__)

#: How long pods may take until all are up, and how often it is seen whether those that are to leave
#: have left, in seconds.
START_S = 1800.0
_LOOK_S = 2.0
#: After so many tries to make pods the pause grows by a second each time, up to so many seconds.
_SOON, _LATER_S = 5, 30


class PlaceRefused(RoostError):
    """Pods cannot go where they were meant to, and have to be placed anew."""


class EndReason(NamedTuple):
    """Why a generation ends."""

    cause: Ending
    detail: str = ""


class Generation:
    """The pods of one start of a run."""

    def __init__(
        self, context: OperatorContext, job: JobId, plan: Blueprint, token: str = ""
    ) -> None:
        self._context, self._job, self.plan = context, job, plan
        self._token = token
        self.seats: dict[str, Seat] = {plan.pod_name(seat): seat for seat in plan.crew.seats}
        self.pods: dict[str, Object] = {}
        self.ends: dict[str, PodEnd] = {}
        #: The ends of the logs of workers that ended by themselves.
        self.tails: dict[str, LogEnd] = {}
        self._logs = LogKeeper(context, plan)
        self.why: EndReason | None = None
        #: Whether all pods were made and bound; whether all were up; whether none is left.
        self.is_made = self.is_running = self.is_over = False
        self.began_at = context.now()
        self._stuck_since: dict[str, float] = {}
        #: Why it does not begin, as the first of its pods that is stuck says.
        self.delay = ""
        #: What keeps its pods from being made, as the API server says it.
        self._hindrance = ""
        self._making: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._removed: set[str] = set()
        #: Pods for which filters still do something before they are bound.
        self._held_up: dict[str, Object] = {}
        #: The eviction by which it leaves; None: it ends whatever budgets say.
        self._departure: RunEviction | None = None

    # -- what is told of it ----------------------------------------------------------------------

    def has(self, pod: Object) -> bool:
        """Whether a pod is one of its own."""
        return pod["metadata"]["name"] in self.seats and self.plan.owner.owns(pod)

    def pod_changed(self, name: str, pod: Object | None) -> None:
        """A pod of it came, changed or is gone."""
        if pod is None:
            gone = self.pods.pop(name, None)
            if gone is not None and (end := end_of(gone)) is not None:
                self.ends.setdefault(name, end)
        else:
            self.pods[name] = pod
            if (end := end_of(pod)) is not None:
                self.ends.setdefault(name, end)
        self._news.set()

    def adopt(self, pods: Iterable[Object], *, up: bool, kept: str = "") -> None:
        """Take over what another operator began; what is missing is made unless all were up.

        ``kept`` is what that one had written down last, if anything.
        """
        del kept
        for pod in pods:
            self.pod_changed(pod["metadata"]["name"], pod)
        if up:
            self.is_made = self.is_running = True
        else:
            self.begin()

    def begin(self) -> None:
        """Make what is not there yet."""
        self._making = self._context.spawn(self._make(), f"pods of {self.plan.run}")
        self._context.requeue_at(self._job, self.began_at + START_S)

    def end(self, cause: Ending, detail: str = "", departure: RunEviction | None = None) -> None:
        """Let all pods that are left leave; the first reason counts.

        With a ``departure`` they are asked to, and it may come to nothing.
        """
        if self.why is None:
            self.why, self._departure = EndReason(cause, detail), departure
            self._news.set()
            self._give_back(self._held_up)
            self._context.spawn(self._wind_up(), f"the end of {self.plan.run}")
            if departure is None:
                self._part()
        elif departure is None and self._departure is not None:
            self._departure.has_begun = True  # there is another reason now
            self._news.set()

    def _part(self) -> None:
        """It ends, and nothing will keep it."""

    def change(self, allocation: Allocation, now: float) -> bool:
        """Begin to change its size or place while it runs; False: it has to start anew for that.

        One that began and cannot be ends as if it was stopped.
        """
        del allocation, now
        return False

    def hear(self, member: str, line: dict[str, Any]) -> None:
        """A worker said something."""

    def polled(self, member: str, version: int) -> None:
        """A worker asked for the members, and has seen that version of them."""

    def news(self, now: float) -> list[Report]:
        """What is to be reported of it besides its beginning and its end."""
        del now
        return []

    # -- what it comes to ------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Judge what is known of the pods."""
        if self.why is None:
            why = self._bare() or self._reason_to_end(now)
            if why is not None:
                self.end(*why)
            elif self.is_made and all(map(self._is_up, self.seats)):
                self.is_running = True

    @property
    def exits(self) -> tuple[WorkerExit, ...]:
        """How its workers ended, in the order in which they did."""
        return tuple(end.exit for end in sorted(self.ends.values(), key=lambda end: end.at))

    @property
    def cause(self) -> Ending:
        """Why it is over; it succeeded if all workers had succeeded before they were stopped."""
        if self.why is None:
            return "lost"
        return "exit" if self.why.cause == "stopped" and self._succeeded() else self.why.cause

    @property
    def detail(self) -> str:
        """More about it."""
        return self.why.detail if self.why is not None else ""

    @property
    def alive(self) -> list[Object]:
        """Pods that may still run."""
        return [pod for pod in self.pods.values() if not is_over(pod)]

    def _is_up(self, name: str) -> bool:
        pod = self.pods.get(name)
        return pod is not None and (is_running(pod) or is_over(pod))

    def _succeeded(self) -> bool:
        main = [name for name, seat in self.seats.items() if seat.role == WORKER]
        return all(name in self.ends and self.ends[name].exit.code == 0 for name in main)

    def _bare(self) -> EndReason | None:
        """Whether it cannot begin, since the folder that was sent cannot be unpacked."""
        found = [end.bare for end in self.ends.values() if end.bare and not self.is_running]
        return EndReason("never-started", f"InvalidSpec: {found[0]}") if found else None

    def _reason_to_end(self, now: float) -> EndReason | None:
        for name, end in self.ends.items():
            if end.lost:
                return EndReason("lost", end.lost)
            if end.exit.code != 0 and name in self.seats:
                return EndReason("exit")
        if self._succeeded():
            return EndReason("exit")
        for name in self.seats:
            pod = self.pods.get(name)
            if pod is None and self.is_made and name not in self.ends:
                return EndReason("lost", f"pod {name} was deleted")
            if pod is not None and is_leaving(pod) and not is_over(pod):
                return EndReason("lost", why_deleted(name, pod))
        return None if self.is_running else self._too_late(now)

    def _too_late(self, now: float) -> EndReason | None:
        """Whether pods that do not begin have taken too long."""
        wait_until = self.began_at + START_S
        self.delay = self._hindrance
        for name, pod in self.pods.items():
            found = stuck(pod)
            if found is None:
                self._stuck_since.pop(name, None)
                continue
            self.delay = self.delay or f"pod {name}: {found.why}"
            until = self._stuck_since.setdefault(name, now) + found.patience_s
            if until <= now:
                return EndReason("never-started", f"pod {name}: {found.why}")
            wait_until = min(wait_until, until)
        if wait_until <= now:
            waiting = [name for name in self.seats if not self._is_up(name)]
            return EndReason(
                "never-started", f"pod {waiting[0]} did not start in {START_S / 60:g} min"
            )
        if self._stuck_since:
            self._context.requeue_at(self._job, wait_until)
        return None

    # -- making ----------------------------------------------------------------------------------

    async def _make(self) -> None:
        tried = 0
        try:
            while self.why is None:
                try:
                    await self._objects()
                    await self._pods()
                    await self._bind()
                    break
                except PlaceRefused as error:
                    self.end("lost", str(error))
                except Retryable as error:
                    self._hinder(str(error))
                    await pause(error, tried)
                    # A webhook that is silent is so for long: each try asks it for every pod.
                    await asyncio.sleep(min(max(0, tried - _SOON), _LATER_S))
                    tried += 1
            self._hinder("")
        except Deposed:
            raise
        except (InvalidSpec, Forbidden, Conflict, NotFound) as error:
            self.end("never-started", f"{type(error).__name__}: {error}")
        finally:
            self.is_made = True
            self._context.requeue(self._job)

    def _hinder(self, why: str) -> None:
        """Note what keeps its pods from being made; told once it has lasted for a while."""
        if not why:
            self._hindrance = ""
        elif self._hindrance != (told := f"its pods cannot be made yet: {why}"):
            _log.info("%s: %s", self.plan.run, why)
            self._hindrance = told
            self._context.requeue(self._job)

    async def _objects(self) -> None:
        hit("pods.before-objects")
        if not self.plan.is_alone:
            await ensure(self._context, self.plan.owner, SERVICES, self.plan.service())
        if self.plan.has_config_map:
            await self._config_map()
        if self._token:
            await self._secret()

    async def _config_map(self) -> None:
        plan, owner = self.plan, self.plan.owner
        wanted = plan.config_map()
        found = await ensure(self._context, owner, CONFIG_MAPS, wanted)
        if found.get("data") != wanted["data"]:
            name, data = plan.record_name, {"data": wanted["data"]}
            await self._context.binder.write(
                lambda: self._context.api.patch(CONFIG_MAPS, name, data, owner.namespace)
            )
        for name in plan.parcels:
            try:
                await self._context.api.get_metadata(CONFIG_MAPS, name, owner.namespace)
            except NotFound:
                raise InvalidSpec(
                    f"the folder that was sent is gone with the ConfigMap {name}: submit it again"
                ) from None

    async def _secret(self) -> None:
        """Make its token; one left by an earlier try, which no pod has yet, is replaced."""
        plan, owner = self.plan, self.plan.owner
        body = plan.secret(self._token)
        try:
            await self._context.binder.write(
                lambda: self._context.api.create(SECRETS, body, owner.namespace)
            )
        except Deposed:
            raise
        except Conflict:
            name = plan.token_name
            await self._context.binder.write(
                lambda: self._context.api.delete(SECRETS, name, owner.namespace)
            )
            raise Retryable(f"the token of {plan.run} is made anew", 0.0) from None
        self._token = ""

    async def _pods(self) -> None:
        bodies = [body for body in self.plan.pods() if body["metadata"]["name"] not in self.pods]
        if self.plan.is_alone:
            self._place(bodies)
        # The pods with the plan come first: a new leader that finds any pod must find the plan.
        first = [body for body in bodies if PLAN in body["metadata"]["annotations"]]
        await _all(self._create(body) for body in first)
        rest = [body for body in bodies if PLAN not in body["metadata"]["annotations"]]
        await _all(self._create(body) for body in rest)

    def _place(self, bodies: Iterable[Object]) -> None:
        """Have a pod made where it belongs: no other pod has to be there first.

        One that filters have a say about may need something done between the two.
        """
        for body in bodies:
            if not self._context.filters.concerns(body):
                body["spec"]["nodeName"] = self.seats[body["metadata"]["name"]].node

    async def _create(self, body: Object) -> None:
        if self.why is not None:
            return
        hit("pods.before-create")
        found = await ensure(self._context, self.plan.owner, PODS, body)
        hit("pods.after-create")
        name = body["metadata"]["name"]
        if name not in self.pods and name not in self.ends:
            self.pod_changed(name, found)

    async def _bind(self) -> None:
        await self._ready(self.seats)
        await _all(self._seat(name) for name in self.seats)

    async def _ready(self, names: Iterable[str]) -> None:
        """Have done what filters want done before any of these pods is bound.

        Raises PlaceRefused if they do not let them go there, by now.
        """
        filters = self._context.filters
        found = [
            (pod, self.seats[name].node)
            for name in names
            if (pod := self.pods.get(name)) is not None
            and not (node_of(pod) or is_over(pod))
            and filters.concerns(pod)
        ]
        if not found or self.why is not None:
            return
        # As it was planned with: of what is made for a pod that is there not all is there yet.
        bodies = {body["metadata"]["name"]: body for body in self.plan.pods()}
        held_up = {pod["metadata"]["name"]: pod for pod, _ in found}
        self._held_up |= held_up
        try:
            why = self._context.admit(
                [(bodies[pod["metadata"]["name"]], node) for pod, node in found]
            )
            if not why:
                await asyncio.gather(*(filters.prepare(pod, node) for pod, node in found))
                for name in held_up:
                    self._held_up.pop(name, None)
                return
        except (Retryable, NotReady) as error:
            why = str(error)
        self._give_back(held_up)
        filters.forget(self._job)  # where it may go is looked at anew as soon as it waits again
        raise PlaceRefused(why)

    def _give_back(self, names: Iterable[str]) -> None:
        """Let filters forget pods that are not bound yet; what they wait for is not wanted."""
        for name in list(names):
            pod = self._held_up.pop(name, None)
            if pod is not None:
                self._context.filters.release(pod)

    async def _seat(self, name: str) -> None:
        pod, seat = self.pods.get(name), self.seats[name]
        if pod is None or self.why is not None or is_over(pod):
            return
        if found := node_of(pod):
            if found != seat.node:
                self.end("lost", f"pod {name} went to {found} in place of {seat.node}")
            return
        hit("pods.before-bind")
        meta = pod["metadata"]
        notes = meta.get("annotations") or {}
        self._context.filters.reserve(pod, seat.node)  # for those that are placed in the meantime
        fate = await self._context.binder.bind(
            Binding(meta["namespace"], name, meta["uid"], seat.node, notes)
        )
        hit("pods.after-bind")
        match fate:
            case BindingFate.GONE:
                self.end("lost", f"pod {name} was deleted")
            case BindingFate.ELSEWHERE:
                self.end("lost", f"another scheduler bound pod {name}")
            case BindingFate.REFUSED:
                why = self._context.binder.why_refused(meta["uid"])
                told = f"pod {name} cannot be bound to {seat.node}"
                # In the words of a refusal: no node had a part in it.
                self.end("never-started", f"Forbidden: {told}: {why}" if why else told)
            case _:
                return
        self._context.filters.release(pod)

    # -- ending ----------------------------------------------------------------------------------

    async def _wind_up(self) -> None:
        if self._making is not None:
            await asyncio.wait([self._making])
        if self.cause in ("exit", "never-started"):
            await self._read()
        while alive := self.alive:
            self._news.clear()
            try:
                if await self._is_kept(alive):
                    return
            except (Deposed, Fatal):
                raise
            except Retryable as error:
                _log.info("%s: %s", self.plan.run, error)
            except RoostError as error:  # an administrator has to act; until then it is tried
                _log.warning("%s cannot be ended: %s", self.plan.run, error)
            with_news = asyncio.ensure_future(self._news.wait())
            await asyncio.wait([with_news], timeout=_LOOK_S)
            with_news.cancel()
        self.is_over = True
        self._context.requeue(self._job)
        kept = self._logs.keep(list(self.pods.values()), self.tails)
        self._context.spawn(kept, f"the log of {self.plan.run}")

    async def _is_kept(self, alive: list[Object]) -> bool:
        """Have pods leave that are left; True: they stay, the core has taken it back."""
        departure = self._departure
        if departure is not None and departure.is_gentle:
            if departure.stays:
                self.why = self._departure = None
                self._logs.stop()
                self._context.requeue(self._job)
                return True
            await self._logs.listen(alive)
            self._removed |= await departure.ask(alive)
            if departure.is_gentle:
                return False
        if departure is not None:
            self._departure = None
            self._part()
        await self._logs.listen(alive)
        await _all(self._remove(pod) for pod in alive)
        return False

    async def _remove(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        node = node_of(pod)
        is_gone = self._context.is_node_gone(node) if node else False
        if name in self._removed and not is_gone:
            return
        hit("pods.before-remove")
        await self._context.binder.remove(pod, 0 if is_gone or not node else None)
        hit("pods.after-remove")
        self._removed.add(name)

    async def _read(self) -> None:
        """The ends of the logs of those that ended, to understand why."""
        ended = sorted(self.ends, key=lambda name: self.ends[name].at)
        pods = [self.pods[name] for name in ended if name in self.pods]
        self.tails |= await tails_of(self._context, pods[:TAILS])


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of it; when all have ended the worst error, if there was any."""
    results = await asyncio.gather(*work, return_exceptions=True)
    errors = [result for result in results if result is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Retryable)):
        raise error
