"""How a pod talks with the operator: it asks for the members, and passes on what a training tells.

Both go on for ever, in threads of their own, whatever comes between: an operator that is away is
asked again, after a while that grows to seconds. What is to be told is kept meanwhile: of reports
the latest, of what is said about members everything that is not said anew. Lines are numbered, so
that one that is sent twice is heard once; and to an operator that just started all that still holds
is said again. The standard library is all it needs.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from roost.elastic.protocol import ABOUT_MEMBERS

#: Reports that are kept while the operator is away, and words about members.
_REPORTS, _WORDS = 256, 4096
#: Characters and lines that are sent at once; escaped they fit what the operator takes.
_BATCH, _LINES = 32 * 1024, 500
_TELL_EVERY_S = 0.5
_CONNECT_S, _POST_S, _POLL_S = 5.0, 10.0, 45.0
_PAUSES_S = (0.1, 5.0)
_LARGEST = 1 << 20
_OK, _NOTHING_NEW = 200, 204
#: What is answered to lines that would never be taken.
_HOPELESS = (400, 413)
#: What is answered where there is no run any more, or soon none.
_ENDED = (401, 404, 410)
_HEADER = "Roost-Meeting"


class PodIdentity(NamedTuple):
    """The run of this pod, and the address of the operator."""

    meeting: str
    run: str
    member: str
    token: str

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> PodIdentity | None:
        """From the environment; None outside of Roost."""
        meeting, member = environ.get("ROOST_MEETING"), environ.get("ROOST_MEMBER")
        if not meeting or not member:
            return None
        job, attempt = environ.get("ROOST_JOB", ""), environ.get("ROOST_ATTEMPT", "1")
        run = f"/runs/{quote(job, safe='')}/{quote(attempt, safe='')}"
        return cls(meeting.rstrip("/"), run, member, environ.get("ROOST_RUN_TOKEN", ""))


class OperatorRefused(Exception):
    """The operator does not answer as it should; it may do so later."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class Outbox:
    """Lines to be passed on, in order, each with a number; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[int, str] = {}
        self._words: dict[str, int] = {}
        self._reports: dict[int, None] = {}
        self._standing: dict[str, str] = {}
        self._number = 0
        self.filled = threading.Event()

    def put(self, line: str) -> None:
        """Keep a line; a report may push out the oldest one, words about members do not."""
        word = next((name for name in ABOUT_MEMBERS if f'"{name}"' in line), None)
        with self._lock:
            if word is None:
                self._add(line)
                self._reports[self._number] = None
                if len(self._reports) > _REPORTS:
                    self._drop(next(iter(self._reports)))
            else:
                self._standing.pop(word, None)
                self._standing[word] = line
                self._say(line)

    def again(self) -> None:
        """Say everything that holds about members once more: a new operator listens."""
        with self._lock:
            for line in self._standing.values():
                self._say(line)

    def batch(self) -> list[tuple[int, str]]:
        """Lines to send now; they stay until they are ``done``."""
        found: list[tuple[int, str]] = []
        size = 0
        with self._lock:
            for number, line in self._lines.items():
                size += len(line)
                if found and (size > _BATCH or len(found) >= _LINES):
                    break
                found.append((number, line))
            if not found:
                self.filled.clear()
        return found

    def done(self, lines: Sequence[tuple[int, str]]) -> None:
        """These have arrived."""
        with self._lock:
            for number, _ in lines:
                self._drop(number)

    @property
    def is_elastic(self) -> bool:
        """Whether the training said that its members may change."""
        return "elastic" in self._standing

    @property
    def is_empty(self) -> bool:
        """Whether everything was passed on."""
        return not self._lines

    def _say(self, line: str) -> None:
        if line in self._words:  # what is said again is said last
            self._drop(self._words[line])
        self._add(line)
        self._words[line] = self._number
        if len(self._words) > _WORDS:  # no training says so much
            self._drop(next(iter(self._words.values())))

    def _add(self, line: str) -> None:
        self._number += 1
        self._lines[self._number] = line
        self.filled.set()

    def _drop(self, number: int) -> None:
        line = self._lines.pop(number, None)
        self._reports.pop(number, None)
        if line is not None and self._words.get(line) == number:
            del self._words[line]


class OperatorLink:
    """Requests to the operator, over one connection as long as it lasts."""

    def __init__(self, place: PodIdentity, timeout_s: float) -> None:
        self._url, self._place, self._timeout_s = urlsplit(place.meeting), place, timeout_s
        self._connection: http.client.HTTPConnection | None = None
        #: Which operator answered last.
        self.boot = ""

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of an answer; raises OSError, HTTPException, Refused."""
        kept, self._connection = self._connection, None  # until all went well
        if kept is not None:
            with suppress(ConnectionError, http.client.HTTPException):  # the operator had gone
                return self._exchange(kept, method, path, body)
        return self._exchange(self._connect(), method, path, body)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._place.token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, f"{self._url.path}{self._place.run}{path}", body, headers)
        answer = connection.getresponse()
        text = answer.read(_LARGEST)
        if answer.status not in (_OK, _NOTHING_NEW):
            connection.close()
            raise OperatorRefused(f"{answer.status} {answer.reason}", answer.status)
        self.boot = answer.headers.get(_HEADER, "")
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            self._connection = connection
        return answer.status, text

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        found = kind(self._url.hostname or "", self._url.port, timeout=_CONNECT_S)
        found.connect()
        found.sock.settimeout(self._timeout_s)
        return found


class OperatorThread(threading.Thread, ABC):
    """Does something with the operator again and again, whatever comes between."""

    def __init__(self, name: str, link: OperatorLink) -> None:
        super().__init__(name=name, daemon=True)
        self._link = link
        self._trouble_since = 0.0

    def run(self) -> None:
        """Until the process ends."""
        pause_s = _PAUSES_S[0]
        while True:
            try:
                self._once()
                self._calm()
                pause_s = _PAUSES_S[0]
            except Exception as error:  # noqa: BLE001 - nothing may end it
                self._worry(error)
                time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - not all at once
                pause_s = min(2 * pause_s, _PAUSES_S[1])

    @abstractmethod
    def _once(self) -> None:
        """Do it, and raise whatever comes between."""

    def _worry(self, error: Exception) -> None:
        if not self._trouble_since:
            self._trouble_since = time.monotonic()
            say(f"the operator cannot be reached ({error!r}); trying again")

    def _calm(self) -> None:
        if self._trouble_since:
            away_s = time.monotonic() - self._trouble_since
            say(f"the operator is there again, after {away_s:.1f} s")
            self._trouble_since = 0.0


class MembersPoller(OperatorThread):
    """Keeps members.json as the operator has it; ``first`` is written to when it is there."""

    def __init__(self, place: PodIdentity, file: Path, outbox: Outbox, first: int) -> None:
        super().__init__("members", OperatorLink(place, _POLL_S))
        self._member, self._file, self._outbox, self._first = place.member, file, outbox, first
        self._mark = (0, 0, 0)
        self._boot = ""
        self.view: dict[str, Any] = {}
        #: Whether the operator says that all of the run is to end.
        self.is_ending = False

    def _once(self) -> None:
        after = ".".join(map(str, self._mark))
        asked = f"member={quote(self._member)}&after={after}&port={_free_port()}&boot={self._boot}"
        try:
            status, text = self._link.ask("GET", f"/members?{asked}")
        except OperatorRefused as refused:
            self.is_ending = refused.status in _ENDED
            raise
        self.is_ending = False
        if self._link.boot != self._boot:
            if self._boot:
                self._outbox.again()
            self._boot = self._link.boot
        if status == _OK:
            self._take(text)

    def _take(self, text: bytes) -> None:
        view = json.loads(text)
        if not isinstance(view, dict) or not isinstance(view.get("members"), list):
            raise OperatorRefused("an answer that is no view of members")
        mark = (int(view["version"]), int(view.get("save", 0)), int(view.get("offload", 0)))
        if mark[0] < self._mark[0]:
            raise OperatorRefused("it knows less than it did")
        draft = self._file.with_name(f".{self._file.name}")
        draft.write_bytes(text)
        draft.replace(self._file)
        begins, self._mark, self.view = not self.view, mark, view
        if begins:
            os.write(self._first, b"\0")


class ReportSender(OperatorThread):
    """Passes lines on."""

    def __init__(self, place: PodIdentity, outbox: Outbox) -> None:
        super().__init__("progress", OperatorLink(place, _POST_S))
        self._member, self._outbox = place.member, outbox
        self._sender = secrets.token_hex(8)
        #: Set when the pod is to end.
        self.hurry = threading.Event()

    def _once(self) -> None:
        self._outbox.filled.wait()
        lines = self._outbox.batch()
        if not lines:
            return
        said = {"member": self._member, "sender": self._sender, "lines": lines}
        try:
            self._link.ask("POST", "/progress", json.dumps(said).encode())
        except OperatorRefused as refused:
            if refused.status not in _HOPELESS:
                raise
        self._outbox.done(lines)
        self.hurry.wait(_TELL_EVERY_S)


def say(text: str) -> None:
    """Write a line to the log of this pod. Never raises."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"[roost: {text}]\n")
        sys.stderr.flush()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
