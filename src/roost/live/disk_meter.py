"""How much of the disk the jobs of each user take, as far as it was measured.

Walking through folders lasts, so it is done elsewhere, on a thread; here are the figures: one for
each job, and their sums. They are kept in a file, so that a server that starts knows them at once;
what was measured long ago, or never, is measured first.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from roost import files
from roost.core import JobId
from roost.errors import RoostError


class DiskMeter:
    """The bytes of each job, and of all jobs of each user; for one thread."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._user: dict[JobId, str] = {}
        self._size: dict[JobId, int] = {}
        #: What is in the database: the job file, which is written once.
        self._document: dict[JobId, int] = {}
        self._grown: dict[JobId, int] = {}
        self._sums: Counter[str] = Counter()
        #: What is left of a round through all jobs; some may be gone.
        self._round: deque[JobId] = deque()
        self._next: deque[JobId] = deque()

    def begin(self, users: Mapping[JobId, str]) -> None:
        """Take up the jobs that there are, with what the last server knew of them."""
        sizes, documents = self._load()
        self._user = dict(users)
        self._size = {job: sizes.get(job, 0) for job in users}
        self._document = {job: size for job, size in documents.items() if job in users}
        for known in (self._size, self._document):
            for job, size in known.items():
                if size:  # most only wait and have nothing
                    self._sums[users[job]] += size
        first = [job for job in users if job not in sizes]
        self._round = deque([*first, *(job for job in users if job in sizes)])

    def add(self, job: JobId, user: str, document: int = 0) -> None:
        """Take up a job; ``document`` are the bytes that the database keeps of it."""
        if job in self._user:
            return
        self._user[job] = user
        self._size[job] = 0
        if document:
            self._document[job] = document
            self._sums[user] += document

    def measured(self, job: JobId, size: int) -> None:
        """Note how large a job is now."""
        if job in self._user:
            self._grown[job] = size - self._size[job]
            self._set(job, size)

    def drop(self, job: JobId) -> None:
        """Forget a job that is gone with its files."""
        user = self._user.pop(job, None)
        if user is None:
            return
        self._sums[user] -= self._size.pop(job) + self._document.pop(job, 0)
        self._grown.pop(job, None)
        if not self._sums[user]:
            del self._sums[user]

    def soon(self, job: JobId) -> None:
        """Let a job be the next of the round."""
        if job in self._user:
            self._next.append(job)

    def renew(self) -> None:
        """Begin another round, behind what is left of the last."""
        left = set(self._round)
        self._round.extend(job for job in self._user if job not in left)

    def take_next(self) -> JobId | None:
        """The next job that is to be measured; None if all were."""
        for line in (self._next, self._round):
            while line:
                job = line.popleft()
                if job in self._user:
                    return job
        return None

    def of(self, user: str) -> int:
        """What all jobs of a user take."""
        return self._sums[user]

    def grown(self, job: JobId) -> int:
        """How much a job had grown when it was last measured."""
        return self._grown.get(job, 0)

    def largest(self, user: str, most: int) -> list[tuple[JobId, int]]:
        """The jobs of a user that take the most."""
        own = ((job, size) for job, size in self._size.items() if self._user[job] == user and size)
        return heapq.nlargest(most, own, key=lambda one: one[1])

    def figures(self) -> str:
        """All figures, ready for the file."""
        return json.dumps({"sizes": self._size, "documents": self._document})

    def save(self, figures: str) -> None:
        """Write figures to the file; without room for it, the next server measures anew."""
        with suppress(RoostError):
            files.save(self._file, figures, 0o600)

    def _set(self, job: JobId, size: int) -> None:
        self._sums[self._user[job]] += size - self._size[job]
        self._size[job] = size

    def _load(self) -> tuple[dict[JobId, int], dict[JobId, int]]:
        try:
            found = json.loads(files.load(self._file).text)
            told = [
                {JobId(job): int(size) for job, size in found[name].items()}
                for name in ("sizes", "documents")
            ]
        except (RoostError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}, {}  # there is none, or it was damaged: all is measured
        return told[0], told[1]
