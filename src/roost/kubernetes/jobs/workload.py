"""One Job: what its object asks for and what its pods do, told to the core; and back.

It serves one object, known by its uid. When that is deleted, or another of its name is in its
place, it ends what runs, waits until nothing is left, and only then begins anew. What the core
wants of a run is for ``runs``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from roost.core import (
    Action,
    Adopted,
    CancelRequested,
    Deleted,
    Event,
    Job,
    JobId,
    JobSpec,
    JobState,
    Launch,
    MigrateRequested,
    NodeId,
    Resources,
    ResumeRequested,
    RunId,
    ScaleRequested,
    Submitted,
    SuspendRequested,
)
from roost.core.folding.requests import check_wish
from roost.errors import Conflict, InvalidSpec, NotFound, RoostError
from roost.kubernetes.client.kinds import JOBS, PRIORITY_CLASSES, Object
from roost.kubernetes.crds import ttl_s
from roost.kubernetes.filters.node_filter import NotReady
from roost.kubernetes.jobs.context import JobsContext
from roost.kubernetes.jobs.elastic import recalled
from roost.kubernetes.jobs.pod_ends import attempt_of
from roost.kubernetes.jobs.pods import OrphanPods
from roost.kubernetes.jobs.recovery import (
    PodRun,
    StatusSummary,
    adopted_event,
    kept_of,
    run_of,
    summary_of,
    waiting_event,
)
from roost.kubernetes.jobs.request import CANCEL, MIGRATE, USER, JobRequest, annotation, is_held
from roost.kubernetes.jobs.run import JobRun
from roost.kubernetes.kueue.admission import Admission
from roost.kubernetes.kueue.promises import is_of_kueue
from roost.kubernetes.objects.pods import is_over, node_of
from roost.kubernetes.operator.queues import DEFAULT
from roost.kubernetes.operator.status import Obstacle

_log = logging.getLogger(__name__)

#: Attempts before the one under way that keep their pods, for the logs.
_KEPT = 2
#: How soon it is looked whether a status was written by now, in seconds.
_SOON_S = 0.5


class JobWorkload:
    """A Job between its object, its pods and the core."""

    def __init__(self, jobs: JobsContext, job: JobId, key: tuple[str, str]) -> None:
        self._jobs, self._context = jobs, jobs.context
        self.id, self._key = job, key
        #: Its pods by name, over or not.
        self.pods: dict[str, Object] = {}
        self._strays = OrphanPods(self._context, job)
        #: What was read last, and of what.
        self._read: tuple[tuple[str, ...], JobRequest] | None = None
        self._begin()

    def _begin(self) -> None:
        """Serve nothing yet."""
        self.asked: JobRequest | None = None
        #: The same while no node here could ever take it: nodes may be asked for.
        self.homeless: JobRequest | None = None
        self.trouble: Obstacle | None = None
        self.past = StatusSummary(None)
        #: What its queue said of it when it came.
        self._admission = Admission(DEFAULT)
        #: What was written down of the members of its run.
        self.kept = ""
        self._uid = ""
        self._is_known = self._is_done = False
        #: Whether filters had a say about its pods when they were asked last, and what they said.
        self._is_filtered = False
        self._kept_off = ""
        self._run = JobRun(self._jobs, self.id)
        #: The wish to move that was heard last, until it is taken off.
        self._heard: str | None = None

    # -- what the loop asks ----------------------------------------------------------------------

    @property
    def object(self) -> Object | None:
        """The object that is served, as it is now; None if it is gone."""
        found = self._context.objects(JOBS).get(self._key)
        return found if found is not None and found["metadata"]["uid"] == self._uid else None

    @property
    def over(self) -> bool:
        """Whether nothing of it is left in the cluster."""
        job = self._context.core.jobs.get(self.id)
        gone = self._context.objects(JOBS).get(self._key) is None
        return gone and not self.pods and (job is None or job.state.over)

    def pod_changed(self, old: Object | None, new: Object | None) -> None:
        """A pod of it came, changed or is gone."""
        pod = new or old
        if pod is None:
            return
        name = pod["metadata"]["name"]
        if new is None:
            self.pods.pop(name, None)
        else:
            self.pods[name] = new
        self._run.pod_changed(name, pod, gone=new is None)

    def heard(self, run: RunId, member: str, line: dict[str, Any]) -> None:
        """A worker of a run said something."""
        self._run.heard(run, member, line)

    def polled(self, run: RunId, member: str, version: int) -> None:
        """A worker of a run asked for its fellows."""
        self._run.polled(run, member, version)

    def reconcile(self, now: float) -> Iterator[Event]:
        """What became of it since the last time; then, once that is folded, its pods of no run."""
        yield from self._reconciled(now)
        for pod in [pod for pod in self.pods.values() if self._is_released(pod)]:
            self.pod_changed(pod, None)
            self._jobs.release_pod(pod)
        alive = [pod for pod in self.pods.values() if not is_over(pod)]
        self._strays.keep_off(
            node for pod in alive if (node := node_of(pod)) and not self._run.counts(pod)
        )

    def _is_released(self, pod: Object) -> bool:
        """Whether a pod is of no run that goes on, and still takes its time to leave."""
        current = self._run.current
        if is_over(pod) or not node_of(pod) or not pod["metadata"].get("deletionTimestamp"):
            return False
        return current is None or not current.has(pod)

    def _reconciled(self, now: float) -> Sequence[Event]:
        found = self._context.objects(JOBS).get(self._key)
        if self._uid and (found is None or found["metadata"]["uid"] != self._uid):
            return self._depart(now, found)
        if found is None:
            self._sweep(bool)
            return ()
        if found["metadata"].get("deletionTimestamp"):
            self._uid = found["metadata"]["uid"]
            return self._depart(now, found)
        if self._is_done:
            return self._linger(found, now)
        if not self._is_known:
            return self._arrive(found, now)
        self._sweep(self._is_stray)
        if self._is_readmitted() or (self._has_turn(now) and self._is_moved(found)):
            self._is_known = False
            again: list[Event] = [CancelRequested(now, self.id), Deleted(now, self.id)]
            return [*again, *self._arrive(found, now)]
        return [*self._news(now), *self._wishes(found, now)]

    def _is_readmitted(self) -> bool:
        """Whether it waits, and its queue says something else of it than when it came."""
        job = self._context.core.jobs.get(self.id)
        if job is None or job.run is not None or job.state.over or self.asked is None:
            return False
        if not is_of_kueue(self._admission.queue):
            return False
        return self._admitted(self.asked, stands=False) != self._admission

    def _has_to_leave(self) -> bool:
        """Whether what runs in its queue must go."""
        if self.asked is None or not is_of_kueue(self._admission.queue):
            return False
        found = self._admitted(self.asked, stands=True)
        return not isinstance(found, Obstacle) and found.drains

    def _admitted(self, asked: JobRequest, *, stands: bool) -> Admission | Obstacle:
        return self._jobs.admitted(asked.owner.namespace, asked.wish, stands=stands)

    def _has_turn(self, now: float) -> bool:
        """Whether it is its turn to ask filters anew where it may go."""
        if not self._is_filtered:
            return False
        job = self._context.core.jobs.get(self.id)
        waits = job is not None and job.run is None and not job.state.over
        if waits and not self._jobs.is_status_written(self.id):
            # What it is taken over from must tell of all that has been.
            self._context.requeue_at(self.id, now + _SOON_S)
            return False
        filters = self._context.filters
        if filters.is_standing(self.id):
            return filters.is_stale(self.id)
        return waits and self._context.take_turn(self.id)

    def _is_moved(self, found: Object) -> bool:
        """Whether filters let it go to other nodes by now than when it began to wait."""
        job = self._context.core.jobs.get(self.id)
        if job is None or job.run is not None or job.state.over or self.asked is None:
            self._context.filters.forget(self.id)
            return False
        placed = self._placed(self._asked(found), None)
        self.trouble = None  # it is told once it is taken over
        return placed is None or placed.spec != self.asked.spec

    def refused(self, event: Event, error: RoostError) -> None:
        """The core did not take an event, and knows nothing of it."""
        _log.warning("%s: %s", self.id, error)
        if not isinstance(event, Adopted | Submitted):
            return
        self._is_known = False
        if isinstance(event, Adopted) and event.allocation is not None:
            # Its place is taken: its pods have to go before it can wait for another.
            self._run.give_up(f"its place is not free: {error}")
        self._context.requeue_at(self.id, self._context.now() + 1.0)

    # -- coming and going ------------------------------------------------------------------------

    def _arrive(self, found: Object, now: float) -> Sequence[Event]:
        """An object that the core does not know: how it stands."""
        self._uid = found["metadata"]["uid"]
        self.past = summary_of(found)
        if self.past.over:
            self._is_done = True
            return self._linger(found, now)
        before, self.trouble, self.homeless = self.trouble, None, None
        given_up = self._run.current
        if given_up is not None and not given_up.is_over:  # it had to give up its place
            return ()
        run: PodRun | None = None
        try:
            asked = self._asked(found)
            run = run_of(asked.owner, self.past, self.pods.values())
            if run is not None:
                run = _recalled(run, kept_of(found))
            self.asked = self._placed(asked, run)
        except InvalidSpec as error:
            self.trouble = Obstacle("invalid-job", str(error), final=True)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            # It did not go through the schema; whatever it is, other objects may be fine.
            self.trouble = Obstacle("invalid-job", f"it makes no sense: {error!r}", final=True)
        self._sweep_strays(run)
        if self.trouble is not None or self.asked is None:
            self._tell_trouble(before)
            return self._failed(found, now) if self.trouble and self.trouble.final else ()
        self._is_known = True
        self._jobs.records[self.id] = self.asked.record(found)
        self._jobs.mark_status(self.id)
        if given_up is not None or run is None:
            self._run = JobRun(self._jobs, self.id)
            last = 0 if given_up is None else given_up.plan.run.attempt
            attempts = max(self.past.attempts, last)
            spec = self.asked.wanted(found)
            arrival = waiting_event(self.id, spec, found, self.past, attempts, now)
        else:
            arrival = self._adopted(self.asked, found, run, now)
        # At once: the core must not start first what is not wanted any more.
        return [arrival, *self._cancelled(found, now)]

    def _asked(self, found: Object) -> JobRequest:
        """What an object asks for, read once: one that waits for a queue is looked at often."""
        meta = found["metadata"]
        labels = str(meta.get("labels"))  # they may name its queue
        key = (meta["uid"], str(meta.get("generation")), annotation(found, USER) or "", labels)
        if self._read is None or self._read[0] != key:
            self._read = key, JobRequest.of(found)
        return self._read[1]

    def _placed(self, asked: JobRequest, run: PodRun | None) -> JobRequest | None:
        """What is asked with queue, rank and nodes; None if it cannot be: ``trouble`` says why."""
        stands = run is not None
        admission = self._jobs.admitted(asked.owner.namespace, asked.wish, stands=stands)
        if isinstance(admission, Obstacle):
            if run is None:
                self.trouble = admission
                return None
            admission = Admission(DEFAULT)  # what runs goes on
        self._admission = admission
        rank = self._context.objects(PRIORITY_CLASSES).get(("", asked.priority_class))
        if rank is not None:
            asked = asked.ranked(rank)
        elif asked.priority_class and run is None:
            sentence = f"there is no PriorityClass {asked.priority_class!r}"
            self.trouble = Obstacle("unknown-priority-class", sentence)
            return None
        placed = self._pooled(asked, admission, is_placed=run is not None)
        if placed is None:
            return None
        if run is None and (refused := self._unpromised(placed.spec)):
            self.trouble = Obstacle("not-promised", refused)
            return None
        why = "" if run is not None else self._jobs.why_impossible(placed)
        if why:
            beside = f"; {self._kept_off}" if self._kept_off else ""
            self.trouble = Obstacle("can-never-fit", f"it can never run here: {why}{beside}")
            self.homeless = placed
        elif why is None:
            self._context.requeue(self.id)
        return None if why or why is None else placed

    def _unpromised(self, spec: JobSpec) -> str:
        """What it asks for that its queue was not promised; that may still come."""
        try:
            check_wish(self._context.core.queues, Submitted(0.0, self.id, spec))
        except (Conflict, NotFound) as error:
            return str(error)
        return ""

    def _pooled(
        self, asked: JobRequest, admission: Admission, *, is_placed: bool
    ) -> JobRequest | None:
        """What is asked with its nodes; None: it is not its turn, or what it needs is not there."""
        self._is_filtered, self._kept_off = False, ""

        def needs(pod: Object) -> Resources:
            if not is_placed and self._context.filters.concerns(pod):
                self._is_filtered = True
            need = self._context.need_of(pod, is_placed=is_placed)
            self._kept_off = self._kept_off or need.kept_off
            return need.resources

        try:
            placed = asked.placed(self._jobs.site(), admission, needs)
        except NotReady as error:
            if self._context.take_turn(self.id):  # it is asked again when something changes
                self.trouble = Obstacle("not-ready", str(error))
            return None
        return None if self._is_filtered and not self._context.take_turn(self.id) else placed

    def _failed(self, found: Object, now: float) -> Sequence[Event]:
        """It is over before it began."""
        self._is_done = True
        self.past = self.past._replace(state=JobState.FAILED, finished_at=now)
        return self._linger(found, now)

    def _tell_trouble(self, before: Obstacle | None) -> None:
        trouble, found = self.trouble, self.object
        if trouble is None or found is None or trouble == before:
            return
        self._jobs.mark_status(self.id)
        reason = "Failed" if trouble.final else "Blocked"
        self._context.write_event(found, reason, trouble.sentence, warning=True)

    def _adopted(self, asked: JobRequest, found: Object, run: PodRun, now: float) -> Event:
        self.kept = kept_of(found)
        self._run.adopt(asked, run, self.kept)
        self._context.requeue(self.id)  # it may have ended while no operator led
        return adopted_event(self.id, asked.wanted(found), found, self.past, run, now)

    def _depart(self, now: float, found: Object | None) -> Sequence[Event]:
        """The object is gone: so shall be all that it had, and then the core's memory of it."""
        job = self._context.core.jobs.get(self.id)
        if job is not None and not job.state.over:
            events = [*self._news(now)]
            if not events and not job.cancelling:
                events.append(CancelRequested(now, self.id))
            return events
        uid = self._uid
        self._sweep(lambda pod: _owned_by(pod, uid))
        if any(_owned_by(pod, uid) for pod in self.pods.values()):
            return ()
        if found is not None and found["metadata"]["uid"] == uid:  # others are not done with it
            return ()
        self._jobs.records.pop(self.id, None)
        self._begin()
        if found is None:
            return ()
        self._context.requeue(self.id)
        return () if job is None else (Deleted(now, self.id),)

    def _linger(self, found: Object, now: float) -> Sequence[Event]:
        """The job is over: its object stays for a while, and nothing of it runs."""
        self._sweep(lambda pod: not is_over(pod))
        finished_at = self.past.finished_at or now
        ttl = _ttl(found)
        if ttl is not None:
            if now >= finished_at + ttl:
                self._context.spawn(self._delete(found), f"the end of {self.id}'s time")
            else:
                self._context.requeue_at(self.id, finished_at + ttl)
        job = self._context.core.jobs.get(self.id)
        if job is None or not self._jobs.is_status_written(self.id):
            return ()
        self._jobs.records.pop(self.id, None)
        return (Deleted(now, self.id),)

    async def _delete(self, found: Object) -> None:
        meta = found["metadata"]
        await self._context.binder.write(
            lambda: self._context.api.delete(JOBS, meta["name"], meta["namespace"], uid=meta["uid"])
        )

    # -- what its user wants ---------------------------------------------------------------------

    def _wishes(self, found: Object, now: float) -> list[Event]:
        job, asked = self._context.core.jobs.get(self.id), self.asked
        if job is None or asked is None:
            return []
        if job.state.over:
            self._finish(job)
            return list(self._linger(found, now))
        if cancelled := self._cancelled(found, now):
            return [] if job.cancelling else cancelled
        events: list[Event] = []
        held = is_held(found) or self._has_to_leave()
        if held != job.held:
            events.append((SuspendRequested if held else ResumeRequested)(now, self.id))
        if (workers := asked.workers(found)) != job.spec.workers:
            events.append(ScaleRequested(now, self.id, workers))
        where, before = annotation(found, MIGRATE), self._heard
        self._heard = where
        if where is not None and where != before:
            self._context.spawn(self._take_off(found), f"the wish to move {self.id}")
            if job.run is not None and job.run.settled:
                events.append(MigrateRequested(now, self.id, NodeId(where) if where else None))
        return events

    def _cancelled(self, found: Object, now: float) -> list[Event]:
        by = annotation(found, CANCEL)
        if by is None:
            return []
        record = self._jobs.records[self.id]
        record.cancelled_by = record.cancelled_by or by or "its user"
        return [CancelRequested(now, self.id)]

    def _finish(self, job: Job) -> None:
        """The core says that it is over."""
        self._is_done = True
        self.past = self.past._replace(state=job.state, finished_at=job.finished_at)
        self._jobs.mark_status(self.id)

    async def _take_off(self, found: Object) -> None:
        """A wish that was heard is not heard again."""
        meta = found["metadata"]
        patch = {"metadata": {"uid": meta["uid"], "annotations": {MIGRATE: None}}}
        await self._context.binder.write(
            lambda: self._context.api.patch(JOBS, meta["name"], patch, meta["namespace"])
        )

    def perform(self, action: Action) -> None:
        """Make an action of the core real."""
        if self.asked is None:
            raise NotFound(f"job {self.id} has nothing to run")
        if isinstance(action, Launch):
            self.kept = ""  # it is of an earlier run
        self._run.perform(self.asked, action)
        self._jobs.mark_status(self.id)

    def _news(self, now: float) -> list[Event]:
        events = [] if self.asked is None else self._run.news(self.asked, now)
        record = self._jobs.records.get(self.id)
        if record is not None and record.delay != self._run.delay:
            record.delay = self._run.delay
            self._jobs.mark_status(self.id)
        return events

    # -- what is not needed any more -------------------------------------------------------------

    def _sweep_strays(self, run: PodRun | None) -> None:
        """Pods that belong to no run that goes on: of an earlier attempt, or another's object."""
        kept = {pod["metadata"]["name"] for pod in run.pods} if run is not None else set()
        uid = self._uid
        self._sweep(
            lambda pod: (
                pod["metadata"]["name"] not in kept and not (_owned_by(pod, uid) and is_over(pod))
            )
        )

    def _is_stray(self, pod: Object) -> bool:
        """Whether a pod is of no use: a late request made it, or it ended long ago."""
        current = self._run.current
        if not _owned_by(pod, self._uid):
            return True
        if is_over(pod):  # kept for its log, as long as there are not too many
            return current is not None and attempt_of(pod) < current.plan.run.attempt - _KEPT
        return current is None or pod["metadata"]["name"] not in current.seats

    def _sweep(self, unwanted: Callable[[Object], bool]) -> None:
        self._strays.sweep([pod for pod in self.pods.values() if unwanted(pod)])


def _recalled(run: PodRun, kept: str) -> PodRun:
    """A run with its present members, if they changed since it began."""
    now = recalled(kept, run.attempt, run.generation, run.allocation)
    return run if now is None else run._replace(allocation=now[0], crew=now[1])


def _owned_by(pod: Object, uid: str) -> bool:
    references = pod["metadata"].get("ownerReferences") or ()
    return any(one.get("uid") == uid for one in references)


def _ttl(found: Object) -> float | None:
    try:
        return ttl_s(found)
    except ValueError:
        return None
