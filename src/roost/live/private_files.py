"""Files with what must not be in the journal: secrets of jobs, and pickled functions.

One file for each job, readable by its owner only, written before the job is accepted. Secrets are
removed when the job is over, functions when it is deleted: until then it can be run again. A pickle
is never opened here: it is bytes for the job's own process.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from roost import files
from roost.core import JobId
from roost.errors import Retryable
from roost.store import StoreFull

#: When a submission whose files cannot be kept may be tried again, in seconds.
_AGAIN_S = 5.0


class PrivateFiles:
    """Files of jobs: secrets of those that are not over, functions of all."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._secrets = home / "secrets"
        self._payloads = home / "payloads"
        for folder in (self._secrets, self._payloads):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A folder that was there keeps its mode in mkdir: an older one may be open to others.
            folder.chmod(0o700)

    def keep(self, job: JobId, secrets: Mapping[str, str], payload: bytes | None) -> None:
        """Write a job's files so that they survive a crash; raises Retryable if that fails."""
        try:
            if secrets:
                files.create(self._secrets / job, json.dumps(dict(secrets)).encode())
            if payload is not None:
                files.create(self._payloads / job, payload)
        except OSError as error:
            # The submission is refused: one of two files must not stay behind.
            self.drop(job)
            why = f"the job's files cannot be kept: {error.strerror}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(f"{why}; make room on the server's disk") from None
            raise Retryable(why, after=_AGAIN_S) from None

    def secrets(self, job: JobId) -> dict[str, str]:
        """The secrets of a job."""
        found = _read(self._secrets / job)
        return {} if found is None else json.loads(found)

    def payload(self, job: JobId) -> bytes | None:
        """The pickled function of a job."""
        return _read(self._payloads / job)

    def size_bytes(self, job: JobId) -> int:
        """The bytes of a job's function."""
        try:
            return (self._payloads / job).stat().st_size
        except OSError:
            return 0

    def finish(self, job: JobId) -> None:
        """Remove what a job that is over needs no more."""
        with suppress(OSError):
            (self._secrets / job).unlink()

    def drop(self, job: JobId) -> None:
        """Remove all that was kept of a job."""
        self.finish(job)
        with suppress(OSError):
            (self._payloads / job).unlink()

    # The sweeps are called before requests are served: no file belongs to a submission under way.

    def sweep_secrets(self, keep: Collection[JobId]) -> None:
        """Remove the secrets of all other jobs."""
        for path in self._secrets.iterdir():
            if path.name not in keep:
                self.finish(JobId(path.name))

    def sweep_payloads(self, is_known: Callable[[JobId], bool]) -> None:
        """Remove the functions of jobs that are not there any more."""
        for path in self._payloads.iterdir():
            if not is_known(JobId(path.name)):
                self.drop(JobId(path.name))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
