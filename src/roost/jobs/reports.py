"""What an engine's reports mean to the core: restamped, understood, or dropped as old news.

How processes ended becomes an ``Exited`` with a verdict (``failures``) and, where different jobs
fail on one device, the failure of that device (``blame``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Protocol

from roost.core import (
    WORKER,
    Core,
    Event,
    Exited,
    GpuFailed,
    JobId,
    NodeId,
    NodeJoined,
    NodeLost,
    Outcome,
    Progressed,
    Run,
    RunId,
    Started,
    Suspended,
    Woke,
)
from roost.core.allocation import seats
from roost.core.spec import CPU_SLOT
from roost.core.transitions import RunPhase, Trigger, accepts
from roost.engines import Delayed, Ended, LaunchTrouble, LogFile, ProgressReport, Report, Stuck
from roost.errors import RoostError
from roost.jobs.failures.blame import DeviceKey, Suspicions
from roost.jobs.failures.classify import Verdict, classify, decide, sentence
from roost.jobs.failures.verdicts import verdict
from roost.jobs.observations import measured, observed
from roost.jobs.record import JobRecord

_log = logging.getLogger(__name__)

#: How much of the end of a log is read to understand a failure, and of how many workers.
TAIL_BYTES = 64 * 1024
TAILS = 16
#: How often progress goes into the journal, in seconds.
_PROGRESS_EVERY_S = 10.0
#: More steps than these are nonsense.
_MOST_STEPS = 1e15


class LogSource(Protocol):
    """Where the output of runs is found: an engine, or what was read of it before."""

    def workers(self, run: RunId) -> tuple[str, ...]:
        """The workers of a run that have an output."""
        ...

    def logs(self, run: RunId, worker: str = "worker-0") -> LogFile:
        """The output of a worker; raises NotFound."""
        ...


class ReportTranslator:
    """Turns reports into events."""

    def __init__(self, logs: LogSource, secrets: Callable[[JobId], Iterable[str]]) -> None:
        self._logs = logs
        self._secrets = secrets
        self._suspicions = Suspicions()

    def events(
        self, core: Core, records: Mapping[JobId, JobRecord], report: Report, now: float
    ) -> list[Event]:
        """The events that a report stands for; none if it is old news."""
        match report:
            case Ended():
                return self._ended(core, records, report, now)
            case ProgressReport():
                return _told(core, records.get(report.run.job), report, now)
            case Delayed() | LaunchTrouble():  # of no concern to the core: see the driver
                return []
            case Stuck():
                _log.warning("processes %s of %s do not die", report.processes, report.run)
                return []
            case NodeJoined():
                return _joined(core, report, now, frozenset())
            case Suspended():
                return _suspended(core, records.get(report.run.job), report, now)
            case Started():
                return _started(core, records.get(report.run.job), report, now)
            case _:
                return [replace(report, time=now)]

    def arrivals(
        self,
        core: Core,
        records: Mapping[JobId, JobRecord],
        reports: Sequence[Report],
        now: float,
    ) -> list[Event]:
        """The events of an engine that has just started: first what ended while no server ran."""
        ended = sorted((r for r in reports if isinstance(r, Ended)), key=attrgetter("time"))
        gone = frozenset(report.run for report in ended)
        events: list[Event] = []
        for told in (report for report in reports if isinstance(report, ProgressReport)):
            self.understood(core, records, told, now)  # for what was saved
        for end in ended:
            events += self.understood(core, records, end, now)
        for report in reports:
            if isinstance(report, NodeJoined):
                events += _joined(core, report, now, gone)
            elif not isinstance(report, Ended | ProgressReport):
                events += self.understood(core, records, report, now)
        return [*events, Woke(now)]

    def understood(
        self, core: Core, records: Mapping[JobId, JobRecord], report: Report, now: float
    ) -> list[Event]:
        """The same as ``events``; a report that makes no sense is left out, and logged."""
        try:
            return self.events(core, records, report, now)
        except Exception:  # noqa: BLE001 - one odd report must not take everything down
            _log.exception("%s makes no sense and is left out", report)
            return []

    def _ended(
        self, core: Core, records: Mapping[JobId, JobRecord], ended: Ended, now: float
    ) -> list[Event]:
        run, record = core.runs.get(ended.run), records.get(ended.run.job)
        if run is None or record is None:
            return []
        record.delay = record.restraint = ""
        # It may have ended while no server ran: then its own time is the true one.
        at = min(max(ended.time, core.now), now)
        saved_s = _saved_s(run, record)
        if run.started_at is not None:
            record.ran_s += at - run.started_at
        asked = run.phase is RunPhase.STOPPING
        if asked and not _succeeded(ended):  # one that got there before its stop did succeed
            return [Exited(at, run.id, Outcome.STOPPED, saved_s)]
        found = self._verdict(ended, record)
        record.exit_code = _exit_code(ended)
        if found is None:
            record.verdict, record.progress = None, 1.0
            self._suspicions.observe(_devices(core, run), run.job.id, record.user, None, now)
            return [Exited(at, run.id, Outcome.SUCCEEDED, run.done(at))]
        return [
            self._failed(run, record, found, at, saved_s),
            *self._blame(core, run, record, found, at),
        ]

    def _verdict(self, ended: Ended, record: JobRecord) -> Verdict | None:
        """Why a run ended; whatever its log says, it must have an end."""
        told = ended.cause in ("exit", "never-started")
        try:
            return classify(
                ended,
                self._tails(ended.run) if told else {},
                record.loss,
                record.program.max_duration_s,
                self._secrets(ended.run.job),
            )
        except Exception:  # noqa: BLE001 - a log is any text
            _log.exception("the end of %s is not understood", ended.run)
            return None if _succeeded(ended) else verdict("signature-unknown")

    def _failed(
        self, run: Run, record: JobRecord, found: Verdict, at: float, saved_s: float
    ) -> Exited:
        follows = decide(found, record.retry, run.job.failures, record.platform_failures)
        record.verdict = {**found.document(), "sentence": sentence(found, follows.phrase())}
        if follows.charged or follows.final:
            outcome = Outcome.FAILED
        else:
            record.platform_failures += 1
            outcome = Outcome.LOST
        return Exited(at, run.id, outcome, saved_s, follows.final, follows.delay_s)

    def _blame(
        self, core: Core, run: Run, record: JobRecord, found: Verdict, at: float
    ) -> list[Event]:
        """Devices that are not to be used any more after this failure."""
        devices, ledger = _devices(core, run, found.worker), core.ledger
        healthy = sum(node.healthy.bit_count() for node in ledger.select(ledger.up))
        suspects = self._suspicions.observe(
            devices, run.job.id, record.user, found, at, healthy=healthy
        )
        events: list[Event] = []
        for suspect in suspects:
            what = "the node" if suspect.gpu is None else f"GPU {suspect.gpu}"
            _log.warning("%s: %s is suspect: %s", suspect.node, what, suspect.why)
            if suspect.avoid and suspect.gpu is not None:
                events.append(GpuFailed(at, suspect.node, suspect.gpu, suspect.why))
        return events

    def trust(self, node: NodeId, gpu: int) -> None:
        """A user says that a device works again."""
        self._suspicions.forget(DeviceKey(node, gpu))

    def _tails(self, run: RunId) -> dict[str, bytes]:
        """The ends of the logs of a run's workers."""
        tails: dict[str, bytes] = {}
        with suppress(RoostError, OSError):
            for worker in self._logs.workers(run)[:TAILS]:
                with self._logs.logs(run, worker) as log:
                    tails[worker] = log.read(max(0, log.size() - TAIL_BYTES), TAIL_BYTES)
        return tails


def _joined(core: Core, report: NodeJoined, now: float, gone: Collection[RunId]) -> list[Event]:
    """A node is back: nothing new if it was never gone, and other hardware replaces the old.

    While runs are on it (but for those that are ``gone``), it stays what it was.
    """
    joined = replace(report, time=now)
    node = core.ledger.nodes.get(report.node.id)
    if node is None or not node.here:
        return [joined]
    if node.spec == report.node:
        return []
    if any(run.id not in gone for run in node.runs):
        _log.warning("node %s has other hardware; it counts once no run is on it", node.id)
        return []
    return [NodeLost(now, report.node.id), joined]


def _told(core: Core, record: JobRecord | None, told: ProgressReport, now: float) -> list[Event]:
    """Remember what a job says of itself; now and then it is worth an entry in the journal."""
    run = core.runs.get(told.run)
    if run is None or record is None:
        return []
    if told.loss is not None:
        record.loss = told.loss
    if told.step is not None:
        record.step = told.step
    saved, done = _fraction(told.saved), _fraction(told.done)
    if saved is not None:
        record.saved = saved
    observed(record, told)
    events: list[Event] = [*measured(core, run, record, told, now)]
    if done is not None:
        events += _progressed(run, record, done, now)
    return events


def _progressed(run: Run, record: JobRecord, done: float, now: float) -> list[Event]:
    before, record.progress = record.progress, done
    total, started_at = _total(run, record), run.started_at
    passed = now - record.told_at
    if total is None or started_at is None or before is None or now - started_at <= 0:
        record.told_at = record.told_at or now
        return []
    if passed < _PROGRESS_EVERY_S:
        return []
    record.told_at = now
    # The pace since the run began, in work per second.
    done_s = done * total
    rate = max(done_s - run.job.saved_s, 0.0) / (now - started_at)
    return [Progressed(now, run.id, done_s, rate)] if rate > 0 else []


def _total(run: Run, record: JobRecord) -> float | None:
    """All the work of a job: in seconds or, of one that says how it learns, in steps.

    Steps count as those of the batch for which it was tuned; how many there are follows from the
    part that is done.
    """
    training = run.job.spec.training
    if training is None or not record.step or not record.progress:
        return run.job.run_time_s
    batch = training.batch if record.batch is None else record.batch
    total = record.step * batch / training.batch / record.progress
    return total if total <= _MOST_STEPS else run.job.run_time_s


def _fraction(told: float | None) -> float | None:
    """What a job says is done, if it can be true."""
    return told if told is not None and 0.0 <= told <= 1.0 else None


def _saved_s(run: Run, record: JobRecord) -> float:
    """Work that the job's last checkpoint keeps, as far as it told."""
    total = _total(run, record)
    if record.saved is not None and total is not None:
        return max(run.job.saved_s, record.saved * total)
    return run.job.saved_s


def _suspended(core: Core, record: JobRecord | None, report: Suspended, now: float) -> list[Event]:
    run = core.runs.get(report.run)
    if run is None or record is None or not accepts(run, Trigger.SUSPENDED):
        return []
    if run.started_at is not None:
        record.ran_s += now - run.started_at
    nodes = core.ledger.nodes
    slots = all(nodes[part.node].spec.kind == CPU_SLOT for part in run.allocation.parts)
    freezes = slots and record.program.suspend == "freeze"
    kept = (
        freezes or run.phase is not RunPhase.SUSPENDING or math.isinf(report.done_s)
    )  # else back to its checkpoint
    return [replace(report, time=now, done_s=run.done(now) if kept else _saved_s(run, record))]


def _started(core: Core, record: JobRecord | None, report: Started, now: float) -> list[Event]:
    if record is not None and report.run in core.runs:
        record.restored = True  # whatever it begins with is in its folder now
        record.note = record.delay = ""
    return [replace(report, time=now)]


def _succeeded(ended: Ended) -> bool:
    workers = [one for one in ended.exits if one.role == WORKER]
    return ended.cause == "exit" and bool(workers) and all(one.code == 0 for one in workers)


def _exit_code(ended: Ended) -> int | None:
    """The status of a job as a shell would tell it: of the first worker that failed."""
    if _succeeded(ended):
        return 0  # other roles are stopped at the end
    for exit_ in ended.exits:
        if exit_.code or exit_.signal:
            return exit_.code if exit_.signal is None else 128 + exit_.signal
    return 0 if any(exit_.role == WORKER for exit_ in ended.exits) else None


def _devices(core: Core, run: Run, worker: str = "") -> list[tuple[str, int]]:
    """The GPUs of a run, or of one worker of it; slots that stand in for GPUs cannot break."""
    nodes = core.ledger.nodes
    return [
        (seat.node, gpu)
        for seat in seats(run.allocation)
        for gpu in seat.gpus
        if worker in ("", seat.name) and nodes[seat.node].spec.kind != CPU_SLOT
    ]
