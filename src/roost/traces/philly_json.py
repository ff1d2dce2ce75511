"""The public Philly trace: ``cluster_job_log`` of microsoft/philly-traces (ATC'19).

A list of jobs, each with its attempts. How it becomes work:

- Work is the sum of the attempts' durations; every attempt but the last ends in a failure that is
  retried. Attempts without a start, or of no length (clocks went back in November), do not count.
- An attempt without an end stops where the next one starts; the last one was still running, and
  is cut at the last moment that the trace mentions.
- The job runs as workers with one GPU each, as many as its last attempt with GPUs had.
- Jobs that never started, or have no GPUs in any attempt, are not run: see ``Workload.skipped``.

There are no lines to speak of in JSON: errors count jobs instead, from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from sys import intern

from roost.core.events import Outcome
from roost.core.spec import JobId, JobSpec, QueueId
from roost.errors import InvalidSpec, InvalidTrace
from roost.files import Source, TextFile
from roost.traces.rows import NoJob, Reading, TraceLine, rigid, seconds
from roost.traces.workload import TraceJob, Workload

_OUTCOMES = {
    "Pass": Outcome.SUCCEEDED,
    "Killed": Outcome.CANCELLED,
    "Failed": Outcome.FAILED,
}
_MISSING = ("", "None", "NA")
_TIMES = ("start_time", "end_time")


def read_philly_json(source: Source, *, skip_bad_rows: bool = False) -> Workload:
    """Read the public form of the Philly trace."""
    reading = Reading(source, skip_bad_rows=skip_bad_rows)
    entries = _parsed(reading.text)
    end = max(_moments(entries), default=0.0)
    places = (_Entry(reading.text.file, at, entry) for at, entry in enumerate(entries, 1))
    return reading.workload(places, partial(_job, end=end), key="jobid")


class _Entry(TraceLine):
    """A JSON object, with getters that refuse what makes no sense."""

    __slots__ = ("_fields", "_path")

    def __init__(self, file: str, line: int, value: object, path: str = "") -> None:
        super().__init__(file, line)
        self._path = path
        self._fields: dict[str, object] = value if isinstance(value, dict) else {}

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name) or default
        if not isinstance(value, str):
            raise self._wrong(name, "some text")
        return intern(value)

    def outcome(self, name: str) -> Outcome:
        value = self._fields.get(name)
        if not isinstance(value, str) or value not in _OUTCOMES:
            raise self._wrong(name, f"one of {', '.join(_OUTCOMES)}")
        return _OUTCOMES[value]

    def moment(self, name: str) -> float | None:
        value = self._fields.get(name)
        if value is None or value in _MISSING:
            return None
        moment = seconds(value) if isinstance(value, str) else None
        if moment is None:
            raise self._wrong(name, "a date such as 2017-10-09 07:01:55")
        return moment

    def items(self, name: str) -> list[object]:
        value = self._fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def entries(self, name: str) -> list[_Entry]:
        items = self.items(name)
        if not all(isinstance(item, dict) for item in items):
            raise self._wrong(name, "a list of objects")
        return [
            _Entry(self.file, self.line, item, f"{self._path}{name}[{at}].")
            for at, item in enumerate(items)
        ]

    def _wrong(self, name: str, expected: str) -> InvalidTrace:
        found = self._fields.get(name)
        return self.bad(
            self._path + name, expected, found if isinstance(found, str) else json.dumps(found)
        )


def _job(entry: _Entry, end: float) -> TraceJob:
    name, outcome = entry.text("jobid"), entry.outcome("status")
    attempts = entry.entries("attempts")
    starts = [attempt.moment("start_time") for attempt in attempts]
    started = [start for start in starts if start is not None]
    if not started:
        raise NoJob("attempts", "it never started")
    gpus = next(filter(None, map(_gpus, reversed(attempts))), 0)
    if not gpus:
        raise NoJob("attempts", "no attempt says which GPUs it had")
    submitted_at = entry.moment("submitted_time")
    lengths = list(_lengths(attempts, starts, end))
    *fails_at_s, work_s = accumulate(lengths) if lengths else [0.0]
    spec = JobSpec(
        workers=rigid(gpus),
        queue=QueueId(entry.text("vc")),
        user=entry.text("user", ""),
        run_time_s=work_s,
        max_retries=len(fails_at_s),
    )
    at = started[0] if submitted_at is None else submitted_at
    return TraceJob(JobId(name), at, spec, work_s, outcome, tuple(fails_at_s))


def _lengths(attempts: list[_Entry], starts: list[float | None], end: float) -> Iterator[float]:
    """How long each attempt ran that ran at all."""
    for at, (attempt, start) in enumerate(zip(attempts, starts, strict=True)):
        if start is None:
            continue
        after = next((later for later in starts[at + 1 :] if later is not None), end)
        ended_at = attempt.moment("end_time")
        length = (after if ended_at is None else ended_at) - start
        if length > 0:
            yield length


def _gpus(attempt: _Entry) -> int:
    return sum(len(machine.items("gpus")) for machine in attempt.entries("detail"))


def _parsed(text: TextFile) -> list[object]:
    try:
        entries = json.loads(text.text)
    except json.JSONDecodeError as error:
        raise InvalidTrace(text.file, error.lineno, str(error.colno), "JSON", error.msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{text.file} is not JSON that can be read: {error}"
        raise InvalidSpec(msg) from None
    if not isinstance(entries, list):
        found = type(entries).__name__
        raise InvalidTrace(text.file, 1, "1", "a list of jobs", found)
    return entries


def _moments(entries: list[object]) -> Iterator[float]:
    """Every moment the trace mentions, as far as it can be read."""
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        dates = [entry.get("submitted_time")]
        attempts = entry.get("attempts")
        for attempt in attempts if isinstance(attempts, list) else ():
            if isinstance(attempt, dict):
                dates += map(attempt.get, _TIMES)
        for date in dates:
            if isinstance(date, str) and (moment := seconds(date)) is not None:
                yield moment
