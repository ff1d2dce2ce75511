"""What the driver keeps of a job beside the core.

The core knows what a job needs and where it runs. What it is called, what it executes, how far it
says it is and why it failed stands here.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from roost.core import JobId, Range
from roost.core.spec import ApplicationKey
from roost.errors import Fatal, Retryable
from roost.jobfile import JobFile
from roost.jobfile.program import Program, RetryRule
from roost.store.jobs import StoredJob
from roost.store.rows import JobRow

#: What a view shows and a record remembers under the same name.
_KEPT = (
    *("step_s", "batch", "world", "memory_mib", "predicted_mib", "noise", "resizable"),
    *("note", "busy"),
    *("change", "clone_of", "restored", "rerun_of"),
)


@dataclass(slots=True)
class JobRecord:
    """A job as it was submitted, and what is known of it that does not concern the core."""

    id: str
    #: Its job file, or None until it is needed: see ``file``.
    parsed: JobFile | None
    user: str
    unix: str = ""
    request: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)
    progress: float | None = None
    saved: float | None = None
    step: int | None = None
    loss: float | None = None
    exit_code: int | None = None
    verdict: Mapping[str, Any] | None = None
    #: Seconds that its processes were up, without the run that goes on.
    ran_s: float = 0.0
    cancelled_by: str = ""
    #: Failures that were not the job's fault, and so not charged to its retries.
    platform_failures: int = 0
    #: When its progress was last put into the journal.
    told_at: float = 0.0
    #: What was observed of it: seconds per step, samples in a step, workers that train together.
    step_s: float | None = None
    batch: int | None = None
    world: int | None = None
    #: The most device memory of a worker, seen and predicted, and the gradient noise in samples.
    memory_mib: int | None = None
    predicted_mib: int | None = None
    noise: float | None = None
    #: Whether its processes can change their number without a restart.
    resizable: bool = False
    #: The part of the time in which its devices were at work of late.
    busy: float | None = None
    #: What is wrong with what it holds while it runs.
    note: str = ""
    #: Which bound its user is beyond, and what that means for it.
    restraint: str = ""
    #: Why its run does not begin, if that is for want of something of the machine.
    delay: str = ""
    #: What became of it last: see ``changes.Change``.
    change: Mapping[str, Any] | None = None
    #: When and at which size it was last measured for the journal.
    measured_at: float = 0.0
    measured_workers: int = 0
    #: Which applications were beside it of late on its devices, and since when.
    beside: tuple[ApplicationKey, ...] = ()
    beside_since: float = 0.0
    #: The snapshot that it was made from, as JOB@NAME, and whether its first run has begun.
    clone_of: str = ""
    restored: bool = False
    #: The job that it runs once more.
    rerun_of: str = ""

    @classmethod
    def of(cls, stored: StoredJob | JobRow) -> JobRecord:
        """The record of a job that the store remembers."""
        view, document = stored.view, stored.document
        return cls(
            stored.id,
            None,
            stored.user,
            view.get("unix", ""),
            stored.request,
            document,
            progress=view.get("progress"),
            saved=view.get("saved"),
            step=view.get("step"),
            loss=view.get("loss"),
            exit_code=view.get("exit_code"),
            verdict=view.get("verdict"),
            ran_s=view.get("ran_s", 0.0),
            cancelled_by=view.get("cancelled_by", ""),
            platform_failures=view.get("platform_failures", 0),
            **{name: view[name] for name in _KEPT if view.get(name) is not None},
        )

    @property
    def file(self) -> JobFile:
        """Its job file; parsed when it is first asked for, because most jobs only wait."""
        if self.parsed is None:
            self.parsed = JobFile.from_document(dict(self.document))
        return self.parsed

    @property
    def name(self) -> str:
        """Its name, as users gave it."""
        return str(self.document.get("name", "")) or self.file.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.document.get("labels", {}) if self.parsed is None else self.parsed.labels

    @property
    def program(self) -> Program:
        """What it executes."""
        return self.file.program()

    @property
    def retry(self) -> RetryRule | None:
        """When it is tried again, if its user said something about it."""
        return None if self.file.retrying is None else self.file.retry

    @property
    def workers(self) -> Range:
        """The sizes it was declared for."""
        return self.file.spec(self.user).workers


class OpenRecords(MutableMapping[JobId, JobRecord]):
    """The records of all jobs that are not over, and how many of them each user has.

    A job that the store remembers has its record made when it is first asked for. What the store
    has of it may come later, too (``take``): until then it is asked for each job that is needed.
    """

    def __init__(
        self,
        users: Mapping[JobId, str] = types.MappingProxyType({}),
        read: Callable[[JobId], StoredJob] | None = None,
    ) -> None:
        #: A job of which only the user is known stands for itself.
        self._records: dict[JobId, JobRecord | StoredJob | str] = dict(users)
        self._count = Counter(users.values())
        self._read = read

    def take(self, stored: Iterable[StoredJob]) -> None:
        """Keep what the store has of jobs, except of those that were asked for already."""
        for one in stored:
            if isinstance(self._records.get(JobId(one.id)), str):
                self._records[JobId(one.id)] = one

    def __getitem__(self, job: JobId) -> JobRecord:
        """The record of a job; raises KeyError."""
        record = self._records[job]
        if isinstance(record, JobRecord):
            return record
        if isinstance(record, str):
            record = self._stored(job)
        made = self._records[job] = JobRecord.of(record)
        return made

    def _stored(self, job: JobId) -> StoredJob:
        """What the store has of a job; raises Fatal.

        It had all of it a moment ago: what cannot be read now is no passing trouble of a user.
        """
        if self._read is None:
            raise Fatal(f"nothing is known of job {job}")
        try:
            return self._read(job)
        except Retryable as error:
            raise Fatal(f"what the store has of job {job} cannot be read: {error}") from error

    def __setitem__(self, job: JobId, record: JobRecord) -> None:
        """Keep the record of a job."""
        self.drop(job)
        self._records[job] = record
        self._count[record.user] += 1

    def __delitem__(self, job: JobId) -> None:
        """Forget a job; raises KeyError."""
        self._count[_user(self._records.pop(job))] -= 1

    def __iter__(self) -> Iterator[JobId]:
        """All jobs."""
        return iter(self._records)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._records)

    def __contains__(self, job: object) -> bool:
        """Whether a job is not over."""
        return job in self._records

    def drop(self, job: JobId) -> bool:
        """Forget a job; whether it was known."""
        known = job in self._records
        if known:
            del self[job]
        return known

    def rest(self, job: JobId) -> None:
        """Keep less of a job that only waits: its job file is parsed again when it is needed."""
        record = self._records.get(job)
        if isinstance(record, JobRecord):
            record.parsed = None

    def of(self, user: str) -> int:
        """How many jobs of a user are not over."""
        return self._count[user]

    def owned(self, user: str) -> list[JobId]:
        """The jobs of a user."""
        return [job for job, record in self._records.items() if _user(record) == user]


def _user(record: JobRecord | StoredJob | str) -> str:
    return record if isinstance(record, str) else record.user
