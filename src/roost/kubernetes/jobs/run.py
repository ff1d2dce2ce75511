"""The runs of one Job: what the core wants, made of generations of pods, and what came of it.

Launch, Resume    a new generation                        Started, or Ended
Stop              the pods leave                          Ended
Suspend           the pods leave, the run is kept         Suspended
Resize, Migrate   while it runs, if it can; else the pods
                  leave, then a new generation            Resized
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from roost.core import (
    Action,
    Allocation,
    Event,
    JobId,
    Launch,
    Migrate,
    Resize,
    Resized,
    Resume,
    RunId,
    Started,
    Stop,
    Suspend,
    Suspended,
)
from roost.engines import Ended
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.jobs.blueprint import Blueprint, digest_of
from roost.kubernetes.jobs.context import JobsContext
from roost.kubernetes.jobs.elastic import ElasticGeneration
from roost.kubernetes.jobs.generation import Generation
from roost.kubernetes.jobs.pods import RunEviction
from roost.kubernetes.jobs.recovery import PodRun, crew_of
from roost.kubernetes.jobs.rendezvous import RendezvousServer
from roost.kubernetes.jobs.request import JobRequest
from roost.kubernetes.objects.pods import node_of
from roost.kubernetes.operator.workload import OperatorContext

Answer = type[Started | Resized]


class _Next(NamedTuple):
    """What to start once the pods have left."""

    run: RunId
    allocation: Allocation
    answer: Answer


class JobRun:
    """The run of a Job that is under way, if any."""

    def __init__(self, jobs: JobsContext, job: JobId) -> None:
        self._jobs, self._context, self._job = jobs, jobs.context, job
        self.current: Generation | None = None
        #: Generations of this run so far.
        self._count = 0
        self._next: _Next | None = None
        self._parking: RunId | None = None
        self._answer: Answer | None = None
        #: A run that is to be ended, and of which there is nothing.
        self._ended: RunId | None = None
        self._asked_at = 0.0

    def adopt(self, asked: JobRequest, run: PodRun, kept: str) -> RunId:
        """Take over a run that another operator began."""
        run_id = RunId(self._job, run.attempt)
        plan = asked.blueprint(run_id, run.allocation, run.crew, self._jobs.site())
        plan = replace(plan, generation=run.generation, digest=run.digest)
        self.current = self._made(plan)
        self.current.adopt(run.pods, up=run.was_up, kept=kept)
        self._count = run.generation
        self._answer = None if run.was_up else Started
        self._asked_at = self._context.now()
        return run_id

    def give_up(self, why: str) -> None:
        """The core has no place for it: its pods have to go."""
        if self.current is not None:
            self.current.end("lost", why)

    # -- what the core wants ---------------------------------------------------------------------

    def perform(self, asked: JobRequest, action: Action) -> None:
        """Make an action of the core real."""
        self._asked_at = self._context.now()
        match action:
            case Launch():
                self._count = 0
                self._start(asked, _Next(action.run, action.allocation, Started))
            case Resume():
                self._start(asked, _Next(action.run, action.allocation, Started))
            case Resize() | Migrate():
                # Also for one that changes while it runs: if that fails, it starts anew.
                self._next = _Next(action.run, action.allocation, Resized)
                current, now = self.current, self._context.now()
                if current is None or not current.change(action.allocation, now):
                    self._leave(asked, action.run)
            case Suspend():
                self._next, self._parking = None, action.run
                self._leave(asked, action.run, self._departure(action.run))
            case Stop():
                self._next = self._parking = None
                self._leave(asked, action.run, self._departure(action.run))
            case _:
                assert_never(action)

    def _departure(self, run: RunId) -> RunEviction | None:
        """How a run leaves that the policy wants to; None: it is not asked."""
        found = self._context.core.runs.get(run)
        if found is None or not self._jobs.is_victim(self._job):
            return None
        return RunEviction(self._context, found, self._jobs.eviction_forbidden)

    def _leave(self, asked: JobRequest, run: RunId, departure: RunEviction | None = None) -> None:
        if self.current is not None:
            self.current.end("stopped", departure=departure)
        elif self._next is not None:
            self._start(asked, self._next)
        else:
            self._ended = run
        self._context.requeue(self._job)

    def _start(self, asked: JobRequest, what: _Next) -> None:
        self._next, self._parking, self._answer = None, None, what.answer
        self._count += 1
        crew = crew_of(what.allocation)
        plan = asked.blueprint(what.run, what.allocation, crew, self._jobs.site())
        token = secrets.token_urlsafe(24) if plan.elastic else ""
        plan = replace(plan, generation=self._count, digest=digest_of(token) if token else "")
        self.current = self._made(plan, token)
        self.current.begin()

    def _made(self, plan: Blueprint, token: str = "") -> Generation:
        async def keep(text: str) -> None:
            await self._jobs.save_members(self._job, text)

        means = Means(self._jobs.meeting, keep)
        return generation(self._context, self._job, plan, means, token)

    # -- what became of it -----------------------------------------------------------------------

    def counts(self, pod: Object) -> bool:
        """Whether the core keeps the place of a pod for it."""
        current = self.current
        run = None if current is None else self._context.core.runs.get(current.plan.run)
        if current is None or run is None or run.parked or not current.has(pod):
            return False
        return current.seats[pod["metadata"]["name"]].node == node_of(pod)

    def pod_changed(self, name: str, pod: Object, *, gone: bool) -> None:
        """A pod of the Job came, changed or is gone."""
        if self.current is not None and self.current.has(pod):
            self.current.pod_changed(name, None if gone else pod)

    def heard(self, run: RunId, member: str, line: dict[str, Any]) -> None:
        """A worker of a run said something."""
        if self.current is not None and self.current.plan.run == run:
            self.current.hear(member, line)
            self._context.requeue(self._job)

    def polled(self, run: RunId, member: str, version: int) -> None:
        """A worker of a run asked for its fellows."""
        if self.current is not None and self.current.plan.run == run:
            self.current.polled(member, version)
            self._context.requeue(self._job)

    @property
    def delay(self) -> str:
        """Why it does not begin, if its pods say so."""
        current = self.current
        return "" if current is None or current.is_running else current.delay

    def news(self, asked: JobRequest, now: float) -> list[Event]:
        """What is to be told of it since the last time."""
        current = self.current
        if current is None:
            if self._ended is None:
                return []
            run, self._ended = self._ended, None
            return self._jobs.interpret(Ended(now, run, (), "stopped"), now)
        current.look(now)
        self._watch_time(asked, current, now)
        events: list[Event] = []
        if current.is_running and self._answer is not None and not current.is_over:
            answer, self._answer = self._answer, None
            took_s = max(now - self._asked_at, 0.0)
            events += self._jobs.interpret(answer(now, current.plan.run, took_s), now)
        for report in current.news(now):
            if isinstance(report, Resized):
                self._next = None
            self._jobs.mark_status(self._job)
            events += self._jobs.interpret(report, now)
        return events + (self._gone(asked, current, now) if current.is_over else [])

    def _gone(self, asked: JobRequest, gone: Generation, now: float) -> list[Event]:
        """No pod of a generation is left: begin the next one, or say what became of the run."""
        self.current, run = None, gone.plan.run
        if gone.cause == "stopped" and self._next is not None:
            self._start(asked, self._next)
            return []
        parked, self._parking, self._next = self._parking, None, None
        if gone.cause == "stopped" and parked == run:
            took_s = max(now - self._asked_at, 0.0)
            return self._jobs.interpret(Suspended(now, run, 0.0, took_s), now)
        self._jobs.keep_tails(run, {worker: log.text for worker, log in gone.tails.items()})
        ended = Ended(now, run, gone.exits, gone.cause, gone.detail)
        events = self._jobs.interpret(ended, now)
        self._jobs.keep_tails(run, {})
        return events

    def _watch_time(self, asked: JobRequest, current: Generation, now: float) -> None:
        """A run may take no longer than its job file allows."""
        job = self._context.core.jobs.get(self._job)
        run = None if job is None else job.run
        limit_s = asked.file.max_duration
        if limit_s is None or math.isinf(limit_s) or current.why is not None:
            return
        if run is None or run.started_at is None:
            return
        if now >= run.started_at + limit_s:
            current.end("timeout")
        else:
            self._context.requeue_at(self._job, run.started_at + limit_s)


class Means(NamedTuple):
    """What a run with changing members needs besides.

    ``meeting`` is where its pods call; None: nowhere. ``keep`` writes a text down, and returns when
    the next leader will find it.
    """

    meeting: RendezvousServer | None
    keep: Callable[[str], Awaitable[None]]


def generation(
    context: OperatorContext, job: JobId, plan: Blueprint, means: Means, token: str = ""
) -> Generation:
    """A generation of pods that are not asked for yet."""
    if plan.elastic and means.meeting is not None:
        return ElasticGeneration(context, job, plan, token, meeting=means.meeting, keep=means.keep)
    return Generation(context, job, plan, token)
