"""The folders of runs: ``<home>/runs/<job>/<attempt>``, what is in them and which account sees it.

    lock           held by the shim as long as anything of the run may be alive
    run.json       what the engine wants of the run (RunRecord)
    wanted.json    the members that are wanted, for the shim to bring about
    start.json, exit.json, progress.json   what the shim says of it
    logs/          one file for each worker
    work/, io/     the job's own: its working folder; progress pipe, members, result
    payload.pkl    a submitted function, readable by the job alone

Everything is opened relative to a folder that is already open, follows no link and must be what it
is expected to be: a job may put anything it likes into its own folders.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self
from uuid import uuid4

from roost.core.spec import JobId, RunId
from roost.engines.local import file_reader
from roost.engines.local.accounts import Account
from roost.engines.local.shim import slot_file
from roost.errors import InvalidSpec, NotFound, Retryable
from roost.files import tree_bytes

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}-[0-9]{1,6}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Errors that tell nothing about whether a file is there.
_NOT_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})
_GONE = ".gone-"
_DEEP = 50  # folders that are entered at a time to remove them: each is an open file
#: What only a live run needs, or the server that adopts it.
_OF_LIVE_RUNS = ("start.json", "wanted.json", "progress.json", "hostfile", "payload.pkl")
#: Others may pass through to the folders that are theirs, and see nothing on the way.
_PASS, _OWN = 0o711, 0o700


class OutputFile:
    """The output of one worker, or a job's result, open for reading."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # The request may be gone before it is handed over.
        self._end = weakref.finalize(self, os.close, fd)

    def size(self) -> int:
        """Bytes there are by now."""
        return os.fstat(self._fd).st_size

    def version(self) -> str:
        """What tells this content from another one."""
        return file_reader.version(os.fstat(self._fd))

    def read(self, offset: int, n: int) -> bytes:
        """At most ``n`` bytes from there; empty at the end."""
        return os.pread(self._fd, n, offset)

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        self._fd = -1
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunFolder:
    """The folder of one run, open."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd, self.path = fd, path

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has(self, name: str) -> bool:
        """Whether there is something of that name."""
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> dict[str, object] | None:
        """The newest whole record in a file; None if there is none."""
        try:
            fd = os.open(name, _FILE, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        try:
            found = slot_file.read(fd)
        except (ValueError, RecursionError):  # not written by a shim
            return None
        finally:
            os.close(fd)
        return found if isinstance(found, dict) else None

    def words(self, name: str) -> str:
        """The beginning of a file as text; empty if there is none."""
        try:
            fd = os.open(name, _FILE, dir_fd=self.fd)
        except FileNotFoundError:
            return ""
        try:
            return os.pread(fd, 1 << 16, 0).decode(errors="replace")
        finally:
            os.close(fd)

    def save(self, name: str, body: dict[str, object]) -> None:
        """Write a record in place."""
        fd = slot_file.create(name, self.fd)
        try:
            slot_file.write(fd, body)
        finally:
            os.close(fd)

    def reserve(self, name: str, slot: int) -> None:
        """Set space aside for a record of that size, if there is not enough; what it says stays."""
        if self.has(name) and os.stat(name, dir_fd=self.fd).st_size >= 2 * slot:
            return
        # A larger file beside it, then a rename: a reader finds the old record or the new file, and
        # a disk that is full leaves the old one.
        body = self.read(name)
        draft = f".{name}"
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=self.fd)
        fd = slot_file.create(draft, self.fd, slot)
        try:
            if body is not None:
                slot_file.write(fd, body)
        finally:
            os.close(fd)
        os.replace(draft, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def shrink(self, name: str) -> None:
        """Give back the space of a record that will not be written again; what it says stays."""
        body = self.read(name)
        if body is None or os.stat(name, dir_fd=self.fd).st_size <= slot_file.PAGE:
            return
        draft = f".{name}"
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=self.fd)
        # Half a page for each slot: one block of the disk, where that is enough.
        for slot in (slot_file.PAGE // 2, slot_file.PAGE):
            fd = slot_file.create(draft, self.fd, slot)
            try:
                slot_file.write(fd, body)
            except ValueError:
                os.unlink(draft, dir_fd=self.fd)
                continue
            finally:
                os.close(fd)
            os.replace(draft, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            return

    def compact(self) -> None:
        """Keep of a run that is over what people look at: records, output, result, own files."""
        for name in _OF_LIVE_RUNS:
            with suppress(OSError):
                os.unlink(name, dir_fd=self.fd)
        for name in ("run.json", "exit.json"):
            with suppress(OSError):
                self.shrink(name)
        with suppress(OSError), _opened("io", self.fd) as io:
            for name in ("progress", "members.json"):
                with suppress(OSError):
                    os.unlink(name, dir_fd=io)
            os.rmdir("io", dir_fd=self.fd)  # unless there is a result in it

    def lock(self) -> int | None:
        """The run's lock, taken; None while a shim holds it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open("lock", flags, 0o600, dir_fd=self.fd)
        # flock belongs to the open file, not to the process: the shim inherits it, and it is free
        # when the last copy is closed, also by SIGKILL.
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def make_logs(self, names: Iterator[str]) -> None:
        """Create the log of each worker, so that it can be followed from the start."""
        with suppress(FileExistsError):
            os.mkdir("logs", _OWN, dir_fd=self.fd)
        with _opened("logs", self.fd) as logs:
            for name in names:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                os.close(os.open(f"{name}.log", flags, 0o600, dir_fd=logs))

    def logs(self) -> tuple[str, ...]:
        """The workers that have a log: main ones first, by index."""
        try:
            with _opened("logs", self.fd) as logs:
                names = [name.removesuffix(".log") for name in os.listdir(logs)]  # noqa: PTH208
        except FileNotFoundError:
            return ()
        known = [name for name in names if _WORKER.fullmatch(name)]
        return tuple(sorted(known, key=_by_role))

    def log(self, worker: str) -> OutputFile:
        """The log of one worker; raises NotFound."""
        if _WORKER.fullmatch(worker):
            with _absent("the log"), _opened("logs", self.fd) as logs:
                return OutputFile(_regular(f"{worker}.log", logs))
        raise NotFound(f"no worker {worker!r} with a log")

    def result(self, limit: int) -> OutputFile | None:
        """What the job left as its result, unread; raises InvalidSpec when it is too large."""
        with _absent("the result"), _opened("io", self.fd) as io:
            found = OutputFile(_regular("result.pkl", io, owner=os.fstat(io).st_uid))
            if found.size() > limit:
                found.close()
                raise InvalidSpec(f"the result is larger than {limit >> 20} MiB")
            return found
        return None


class HomeFence(NamedTuple):
    """The home that runs have to be of: its id, and whether it is a copy that was not settled yet.

    An empty id lets every run through. A run of an older Roost does not say where it is at home:
    in a copy it is the original's.
    """

    id: str = ""
    copied: bool = False

    def admits(self, home: str) -> bool:
        """Whether a run that was started in a home is one of ours."""
        return not self.id or home == self.id or (not home and not self.copied)


OPEN = HomeFence()


class RunFolders:
    """All folders of runs under one home."""

    def __init__(self, home: Path, fence: HomeFence = OPEN) -> None:
        self.home, self.fence = home, fence
        self.path = home / "runs"
        self._marks = home / "running"
        for folder in (self.path, self._marks):
            folder.mkdir(mode=_OWN, parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of them."""
        os.close(self._fd)

    def open(self, run: RunId) -> RunFolder:
        """The folder of a run; raises NotFound.

        Any other error is let through: a folder that cannot be opened now may well be there.
        """
        _check(run.job)
        try:
            with _opened(run.job, self._fd) as job:
                fd = os.open(str(run.attempt), _FOLDER, dir_fd=job)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"nothing is kept of run {run}") from None
        return RunFolder(fd, self.path / run.job / str(run.attempt))

    def make(self, run: RunId, account: Account | None) -> RunFolder:
        """The folder of a run, created if need be, with what belongs to the job."""
        _check(run.job)
        mode = _PASS if account else _OWN
        if account:
            self.path.chmod(_PASS)
        with suppress(FileExistsError):
            os.mkdir(run.job, mode, dir_fd=self._fd)
        with _opened(run.job, self._fd) as job:
            os.fchmod(job, mode)
            with suppress(FileExistsError):
                os.mkdir(str(run.attempt), mode, dir_fd=job)
            _make_own("checkpoints", job, account)
            folder = self.open(run)
        try:
            os.fchmod(folder.fd, mode)
            _make_own("work", folder.fd, account)
            _make_own("io", folder.fd, account, pipe="progress")
        except BaseException:
            folder.close()
            raise
        return folder

    def give(self, folder: RunFolder, name: str, content: bytes, account: Account | None) -> None:
        """Write a file that only the job can read."""
        draft = f".{name}.{uuid4().hex}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400, dir_fd=folder.fd)
        try:
            # It is the job's before it has content, and has its name once it is whole.
            with os.fdopen(fd, "wb") as file:
                if account:
                    os.fchown(fd, account.uid, account.gid)
                file.write(content)
            os.replace(draft, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        except BaseException:
            os.unlink(draft, dir_fd=folder.fd)
            raise

    def mark(self, run: RunId) -> None:
        """Remember that a run may be alive; cheaper to look through than all folders."""
        _check(run.job)
        (self._marks / f"{run.job}#{run.attempt}").touch(0o600)

    def unmark(self, run: RunId) -> None:
        """A run is over; a mark that stays only makes the next server look once more."""
        with suppress(OSError):
            (self._marks / f"{run.job}#{run.attempt}").unlink(missing_ok=True)

    def marked(self) -> list[RunId]:
        """All runs that may be alive."""
        names = [path.name.rpartition("#") for path in self._marks.iterdir()]
        return [RunId(JobId(job), int(attempt)) for job, _, attempt in names if attempt.isdigit()]

    def jobs(self) -> list[JobId]:
        """All jobs of which something is kept."""
        return [JobId(name) for name in os.listdir(self._fd) if _JOB.fullmatch(name)]  # noqa: PTH208

    def compact(self, job: JobId) -> None:
        """Make what is kept of the runs of a job small; the job is over."""
        _check(job)
        for attempt in self._attempts(job):
            with suppress(OSError, NotFound), self.open(RunId(job, attempt)) as run:
                run.compact()

    def is_compact(self, job: JobId) -> bool:
        """Whether there is nothing left to make small."""
        runs = (self.path / job / str(attempt) for attempt in self._attempts(job))
        return not any((run / _OF_LIVE_RUNS[0]).exists() for run in runs)

    def size_bytes(self, job: JobId, least: int = 0) -> int:
        """The space on the disk that a job's folder takes; each file at least so many bytes."""
        _check(job)
        return tree_bytes(self.path / job, least)

    def _attempts(self, job: JobId) -> list[int]:
        try:
            return [int(path.name) for path in (self.path / job).iterdir() if path.name.isdigit()]
        except OSError:
            return []

    def forget(self, job: JobId) -> str | None:
        """Move all that is kept of a job out of sight; the name of what is to be removed."""
        _check(job)
        # One rename: the job is gone at once, and its files are removed later, on another thread.
        gone = f"{_GONE}{uuid4().hex}"
        try:
            os.rename(job, gone, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except FileNotFoundError:
            return None
        return gone

    def remove(self, gone: str) -> None:
        """Remove what was moved out of sight, as far as that is possible.

        However deep it is: folders far down are moved up before they are entered.
        """
        with suppress(OSError), _opened(gone, self._fd) as top:
            found = _empty(top, top)
            while found:
                name = found.pop()
                with suppress(OSError):
                    with _opened(name, top) as fd:
                        found += _empty(fd, top)
                    os.rmdir(name, dir_fd=top)
        with suppress(OSError):
            os.rmdir(gone, dir_fd=self._fd)

    @contextmanager
    def scratch(self) -> Iterator[tuple[int, Path]]:
        """A folder that is open, and a mark to be made, as for a run; both are gone afterwards."""
        # Should the server die meanwhile, the next one removes it with what was moved out of sight.
        name, mark = f"{_GONE}scratch", self._marks / f"{_GONE}scratch"
        self.remove(name)
        os.mkdir(name, _OWN, dir_fd=self._fd)
        try:
            with _opened(name, self._fd) as folder:
                yield folder, mark
        finally:
            with suppress(OSError):
                mark.unlink(missing_ok=True)
            self.remove(name)

    def clean(self) -> None:
        """Remove what servers before this one moved out of sight."""
        for name in os.listdir(self._fd):  # noqa: PTH208
            if name.startswith(_GONE):
                self.remove(name)


def _check(job: str) -> None:
    if not _JOB.fullmatch(job):
        raise InvalidSpec(f"{job!r} is no job id")


def _by_role(name: str) -> tuple[bool, str, int]:
    role, _, index = name.rpartition("-")
    return role != "worker", role, int(index)


@contextmanager
def _absent(what: str) -> Iterator[None]:
    """Pass over what is not there, or is not what it should be; raises Retryable for the rest."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_NOW:
            raise Retryable(f"{what} cannot be read now: {error.strerror}", after=1.0) from None


@contextmanager
def _opened(name: str, parent: int) -> Iterator[int]:
    fd = os.open(name, _FOLDER, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def _empty(folder: int, top: int, depth: int = 0) -> list[str]:
    """Remove what is in a folder; the new names of folders that were too deep and moved up."""
    os.fchmod(folder, _OWN)
    moved = []
    for name in os.listdir(folder):
        with suppress(OSError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                os.unlink(name, dir_fd=folder)
                continue
            if os.geteuid():  # root needs no leave, and must not be led elsewhere by a link
                os.chmod(name, _OWN, dir_fd=folder)
            if depth == _DEEP:
                new = uuid4().hex
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(new)
                continue
            with _opened(name, folder) as fd:
                moved += _empty(fd, top, depth + 1)
            os.rmdir(name, dir_fd=folder)
    return moved


def _regular(name: str, parent: int, owner: int | None = None) -> int:
    """Open a plain file; one with an expected owner must be theirs, and have no second name."""
    fd = os.open(name, _FILE, dir_fd=parent)  # returns at once, even if a job put a pipe there
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and (
        owner is None or (status.st_uid == owner and status.st_nlink == 1)
    ):
        return fd
    os.close(fd)
    raise FileNotFoundError(name)


def _make_own(name: str, parent: int, account: Account | None, pipe: str = "") -> None:
    """Create a folder that is the job's; its parent is not, so the job cannot swap it.

    What is put into it is there before it changes hands: nothing is touched in it afterwards.
    """
    with suppress(FileExistsError):
        os.mkdir(name, _OWN, dir_fd=parent)
    with _opened(name, parent) as fd:
        if os.fstat(fd).st_uid != os.geteuid():
            return
        if pipe:
            with suppress(FileExistsError):
                os.mkfifo(pipe, 0o600, dir_fd=fd)
        if account and pipe:
            os.chown(pipe, account.uid, account.gid, dir_fd=fd, follow_symlinks=False)
        if account:
            os.fchown(fd, account.uid, account.gid)
