"""Stands by a training in a pod: ``python -m roost.train.pod -- COMMAND``, as its first process.

It brings what Roost says to where ``roost.train`` looks, and what the training tells to Roost:

    members.json    kept fresh by a question to the operator that waits for an answer (long poll)
    progress pipe   read at once, and passed on in small batches, twice a second at most

Training never waits for any of it. While the operator is away it goes on with the members it has,
and ``calling`` keeps asking.

A pod that is to go, alone of its run, is given a moment to be left out by the others: they go on
without it at their next step, and it ends in peace. Only if that does not happen, or all of the run
is to end, is the training asked to stop.

As the first process of a container it also passes signals on, takes leave of orphans, and ends as
the command does: with its exit code, or 128 plus the signal that killed it. The standard library is
all it needs. Outside of Roost (no ROOST_MEETING) it just runs the command.

    ROOST_MEETING                     where the operator listens, such as http://roost-meeting:8090
    ROOST_JOB, ROOST_ATTEMPT          the run
    ROOST_MEMBER, ROOST_RUN_TOKEN     which member this is, and its proof; the training is not told
    ROOST_MEMBERS, ROOST_PROGRESS     where the file and the pipe shall lie; a new folder if unset

``--install FOLDER`` copies the library there, for images that have a Python but no Roost.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from roost.train.operator_client import MembersPoller, Outbox, PodIdentity, ReportSender, say

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Signals that Python ignores, and programs expect to be as usual.
_USUAL = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_FOUND, _NOT_RUN, _MISUSED = 127, 126, 2

_LINE = 4096
_TAIL = 64 * 1024
#: The pipe is emptied so often at most, however much is told.
_READ_EVERY_S = 0.02
#: How long what was told last may take to be passed on when all is over.
_LAST_S = 3.0
_PATIENT_S = 10.0
#: How long a training that is asked to stop may be left out by the others in place of that, how
#: long it may take to leave then, and how often that is looked at.
_SPARE_S, _LEAVE_S, _LOOK_S = 5.0, 15.0, 0.05


class ReportPipe:
    """The pipe of the training's reports: emptied often, but not all the time."""

    def __init__(self, path: str, outbox: Outbox) -> None:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open for both, so that it never ends while processes come and go.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._outbox, self._rest = outbox, b""
        self.rests_until = 0.0

    def read(self) -> bool:
        """Take what is there; False if there is nothing."""
        self.rests_until = time.monotonic() + _READ_EVERY_S
        try:
            text = self._rest + os.read(self.fd, _TAIL)
        except OSError:
            return False
        *lines, rest = text.split(b"\n")
        self._rest = rest if len(rest) <= _LINE else b""
        for line in lines:
            if line and len(line) <= _LINE:
                self._outbox.put(line.decode(errors="replace"))
        return True


class PodSupervisor:
    """The command, and what stands by it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command, self._environ = list(command), dict(environ)
        self._place = PodIdentity.here(environ)
        self._child = 0
        self._status: int | None = None
        self._pipe: ReportPipe | None = None
        self._viewer: MembersPoller | None = None
        self._teller: ReportSender | None = None
        self._outbox = Outbox()
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._begun = time.monotonic()
        #: When a signal to stop came that was not passed on.
        self._spared_at = 0.0

    def run(self) -> int:
        """See the command through; its exit code."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        if self._place:
            self._attend(self._place)
        else:
            self._start()
        while self._status is None:
            self._turn()
        self._part()
        return self._status

    def _attend(self, place: PodIdentity) -> None:
        environ = self._environ
        environ.pop("ROOST_RUN_TOKEN", None)
        if not environ.get("ROOST_MEMBERS") or not environ.get("ROOST_PROGRESS"):
            folder = tempfile.mkdtemp(prefix="roost-")
            environ["ROOST_MEMBERS"] = f"{folder}/members.json"
            environ["ROOST_PROGRESS"] = f"{folder}/progress"
        for path in (environ["ROOST_MEMBERS"], environ["ROOST_PROGRESS"]):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._pipe = ReportPipe(environ["ROOST_PROGRESS"], self._outbox)
        self._viewer = MembersPoller(
            place, Path(environ["ROOST_MEMBERS"]), self._outbox, self._waker
        )
        self._viewer.start()
        self._teller = ReportSender(place, self._outbox)
        self._teller.start()

    def _start(self) -> None:
        if self._viewer:
            for name, value in _position(self._viewer.view, self._environ["ROOST_MEMBER"]).items():
                self._environ.setdefault(name, value)
        try:
            self._child = os.posix_spawnp(
                self._command[0],
                self._command,
                self._environ,
                setpgroup=0,
                setsigmask=(),
                setsigdef=(*FORWARDED, signal.SIGCHLD, *_USUAL),
            )
        except OSError as error:
            say(f"{self._command[0]} cannot be run: {error.strerror}")
            self._status = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN

    def _turn(self) -> None:
        """Wait for a signal, the first view or a line, and see to it."""
        poll, wait_s = select.poll(), 3600.0
        poll.register(self._wake, select.POLLIN)
        if self._pipe:
            rests_s = self._pipe.rests_until - time.monotonic()
            if rests_s > 0:
                wait_s = rests_s
            else:
                poll.register(self._pipe.fd, select.POLLIN)
        if not self._child:
            wait_s = min(wait_s, _PATIENT_S)
        if self._spared_at:
            wait_s = min(wait_s, _LOOK_S)
        found = {fd for fd, _ in poll.poll(wait_s * 1000 + 1)}
        if self._wake in found:
            self._answer(os.read(self._wake, 512))
        if self._pipe and self._pipe.fd in found:
            self._pipe.read()
        if not self._child and self._status is None:
            self._begin(waited=not found)
        if self._spared_at and self._status is None and not self._is_spared():
            self._pass_on(signal.SIGTERM)

    def _begin(self, *, waited: bool) -> None:
        if self._viewer and self._viewer.view:
            self._start()
        elif waited:
            say(f"waits for its members, for {time.monotonic() - self._begun:.0f} s now")

    def _answer(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGTERM and self._child and not self._spared_at:
                self._spared_at = time.monotonic()
            elif number in FORWARDED and self._child:
                self._pass_on(number)
            elif number in _ENDING:
                self._status = 128 + number
        self._reap()

    def _pass_on(self, number: int) -> None:
        self._spared_at = 0.0 if number == signal.SIGTERM else self._spared_at
        with suppress(ProcessLookupError):
            os.killpg(self._child, number)

    def _is_spared(self) -> bool:
        """Whether a training that is to stop may yet leave the others to go on without it."""
        viewer, place = self._viewer, self._place
        if viewer is None or place is None or not self._outbox.is_elastic:
            return False
        members, past_s = viewer.view["members"], time.monotonic() - self._spared_at
        if place.member in members:
            return len(members) > 1 and not viewer.is_ending and past_s < _SPARE_S
        return past_s < _LEAVE_S

    def _reap(self) -> None:
        """Take leave of whatever has ended, orphans too."""
        with suppress(ChildProcessError):
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                if ended.si_pid == self._child:
                    # As when a container ends: nothing of the command outlives it. Its number is
                    # taken until it is reaped.
                    with suppress(ProcessLookupError):
                        os.killpg(self._child, signal.SIGKILL)
                _, status = os.waitpid(ended.si_pid, 0)
                if ended.si_pid == self._child:
                    code = os.waitstatus_to_exitcode(status)
                    self._status = code if code >= 0 else 128 - code

    def _part(self) -> None:
        """Pass on what was told last, if that is possible soon."""
        if not self._pipe or not self._teller:
            return
        while self._pipe.read():
            pass
        self._teller.hurry.set()
        ends = time.monotonic() + _LAST_S
        while not self._outbox.is_empty and time.monotonic() < ends:
            time.sleep(0.02)


def _position(view: Mapping[str, Any], member: str) -> dict[str, str]:
    """What frameworks want to know; nothing for one that is yet to join."""
    ids = view["members"]
    if member not in ids:
        return {}
    host, _, port = str(view["address"]).rpartition(":")
    return {
        "RANK": str(ids.index(member)),
        "WORLD_SIZE": str(len(ids)),
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
    }


def install(folder: Path) -> None:
    """Copy what a training may import to a folder, to be found by PYTHONPATH."""
    here = Path(__file__).parent.parent
    ours = shutil.ignore_patterns("__pycache__")
    for package in ("elastic", "train"):
        shutil.copytree(here / package, folder / "roost" / package, ignore=ours, dirs_exist_ok=True)
    shutil.copy(here / "__init__.py", folder / "roost")


def main(arguments: Sequence[str]) -> int:
    """Run the command behind ``--``."""
    match list(arguments):
        case ["--install", folder]:
            install(Path(folder))
            return 0
        case ["--", *command] if command:
            return PodSupervisor(command, os.environ).run()
        case _:
            say("usage: python -m roost.train.pod -- COMMAND [ARGUMENT...]")
            return _MISUSED


if __name__ == "__main__":
    # At once: an interpreter that winds up while its threads still speak may abort instead.
    os._exit(main(sys.argv[1:]))
