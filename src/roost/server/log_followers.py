"""Following logs: one reader per file, however many follow it.

All files with a follower are looked at in one go, five times a second, and at once when a
job changes state. What is new is read and encoded once and kept for a while; followers send these
bytes. A follower that is further back reads the file by itself until it has caught up, so a slow
one needs no memory and holds no other up.

An event's id is ``<attempt>-<offset>``, with the offset in the file after its text. The text is a
JSON string: bytes that are no UTF-8 are replaced, and a character is never cut in two.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.core.spec import JobId, RunId
from roost.errors import NotFound, RoostError
from roost.server.options import ServerOptions
from roost.server.streams import OpenStream, beats, message
from roost.store.rows import OPEN_STATES, JobRow

if TYPE_CHECKING:
    from roost.engines import LogFile
    from roost.jobs.change_feed import ClusterChange
    from roost.server.backend import OutputBackend

log = logging.getLogger("roost.server")

_OPEN = frozenset(OPEN_STATES)
_KEPT = 32
#: The longest part of a UTF-8 character that can be missing its end.
_PARTIAL = 3
#: Length of a UTF-8 character → how its first byte begins.
_LEADS = {2: (5, 0b110), 3: (4, 0b1110), 4: (3, 0b11110)}


class _Chunk(NamedTuple):
    """A piece of a log as it is sent, and where it ends."""

    end: int
    encoded: bytes


class FollowedLog:
    """The end of one log file."""

    def __init__(self, file: LogFile, chunk: int, attempt: int = 1) -> None:
        self._file, self._chunk, self._attempt = file, chunk, attempt
        self._lock, self._closed = threading.Lock(), False
        self.streams: set[OpenStream] = set()
        self.size = 0
        #: Where the next new chunk begins; ``None`` until the file was first looked at.
        self.end: int | None = None
        self._chunks: dict[int, _Chunk] = {}
        self._starts: deque[int] = deque()

    def look(self) -> list[tuple[int, _Chunk]]:
        """Read what is new; blocking, for a thread."""
        # The lock is for close(): other threads may be in the file. There is one look at a time
        # (keep_looking), and what it found is taken in on the loop, so the rest needs no lock.
        with self._lock:
            if self._closed:
                return []
            self.size = self._file.size()
        if self.end is None:
            self.end = self.size
        found: list[tuple[int, _Chunk]] = []
        start = self.end
        while start < self.size and len(found) < _KEPT:
            chunk = self.read(start)
            if chunk.end == start:
                break
            found.append((start, chunk))
            start = chunk.end
        return found

    def take(self, found: list[tuple[int, _Chunk]]) -> bool:
        """Keep what was read; whether there was anything."""
        for start, chunk in found:
            self._chunks[start] = chunk
            self._starts.append(start)
            self.end = chunk.end
            while len(self._starts) > _KEPT:
                del self._chunks[self._starts.popleft()]
        return bool(found)

    def kept(self, offset: int) -> _Chunk | None:
        """The chunk that begins there, if it is still here."""
        return self._chunks.get(offset)

    def read(self, offset: int, *, whole: bool = False) -> _Chunk:
        """The chunk that begins there; ``whole``: nothing more will come. Blocking."""
        with self._lock:
            data = b"" if self._closed else self._file.read(offset, self._chunk)
        if not whole or len(data) == self._chunk:
            data = data[: len(data) - _cut(data)]
        end = offset + len(data)
        if not data:
            return _Chunk(end, b"")
        return _Chunk(end, message(data.decode("utf-8", "replace"), "", f"{self._attempt}-{end}"))

    def close(self) -> None:
        """Let go of the file, once no thread is reading it; blocking, for a thread."""
        with self._lock:
            self._closed = True
            self._file.close()


class LogPosition(NamedTuple):
    """Where a follower begins to read: attempt 0 is the newest."""

    job: JobRow
    worker: str = "worker-0"
    attempt: int = 0
    offset: int = 0


class _Followed:
    """A job with followers: how it is now."""

    def __init__(self, row: JobRow) -> None:
        self.row = row
        self.streams: set[OpenStream] = set()
        self.gone = False

    @property
    def over(self) -> bool:
        return self.gone or self.row.state not in _OPEN

    @property
    def attempt(self) -> int:
        return int(self.row.view.get("attempt") or 0)


class LogFollowers:
    """All logs that are followed."""

    def __init__(
        self,
        engine: OutputBackend,
        read: Callable[[Callable[[], Any]], Awaitable[Any]],
        options: ServerOptions,
    ) -> None:
        self._engine, self._read, self._options = engine, read, options
        self._tails: dict[tuple[RunId, str], FollowedLog] = {}
        self._jobs: dict[str, _Followed] = {}
        self._hint = asyncio.Event()
        self._left: list[FollowedLog] = []

    def changed(self, change: ClusterChange) -> None:
        """Take in a change: jobs that are followed may be over, or in their next attempt."""
        for row in change.jobs:
            if row.id in self._jobs:
                self._jobs[row.id].row = row
                self._wake(self._jobs[row.id])
        for job in change.deleted:
            if job in self._jobs:
                self._jobs[job].gone = True
                self._wake(self._jobs[job])

    def _wake(self, followed: _Followed) -> None:
        self._hint.set()
        for stream in followed.streams:
            stream.wake()

    async def keep_looking(self) -> None:
        """Look at all files again and again, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.poll_s if self._tails else None):
                    await self._hint.wait()
            # Before the look: a hint that comes during it brings another one.
            self._hint.clear()
            await self._look()

    async def _look(self) -> None:
        tails, left = list(self._tails.values()), self._left
        self._left = []
        if not tails and not left:
            return
        found = await self._read(lambda: [_try(tail) for tail in tails])
        # On a thread: close() waits for readers, which would hold up all streams here.
        for tail in left:
            await self._read(tail.close)
        for tail, news in zip(tails, found, strict=True):
            if tail.take(news):
                for stream in tail.streams:
                    stream.wake()

    async def follow(self, stream: OpenStream, place: LogPosition) -> AsyncGenerator[bytes]:
        """The stream of one follower: all attempts from the first one asked for, to the end."""
        followed = self._jobs.setdefault(place.job.id, _Followed(place.job))
        if place.job.rev > followed.row.rev:
            followed.row = place.job
        followed.streams.add(stream)
        attempt, offset = place.attempt or max(followed.attempt, 1), place.offset
        try:
            while True:
                async for chunk in self._wait_for(stream, followed, attempt):
                    yield chunk
                if stream.closing:
                    return
                if followed.attempt < attempt:
                    break
                async for chunk in self._attempt(stream, place, attempt, offset):
                    yield chunk
                if stream.closing:
                    return
                attempt, offset = attempt + 1, 0
            view = followed.row.view
            yield message({"state": followed.row.state, "exit_code": view.get("exit_code")}, "end")
        finally:
            followed.streams.discard(stream)
            if not followed.streams:
                self._jobs.pop(place.job.id, None)

    async def _wait_for(
        self, stream: OpenStream, followed: _Followed, attempt: int
    ) -> AsyncGenerator[bytes]:
        """Heartbeats until that attempt is there, or never will be."""
        if followed.attempt >= attempt or followed.over:
            return
        async for beat in beats(stream, self._options.heartbeat_s):
            if beat is not None:
                yield beat
            elif followed.attempt >= attempt or followed.over:
                return

    async def _attempt(
        self, stream: OpenStream, place: LogPosition, attempt: int, offset: int
    ) -> AsyncGenerator[bytes]:
        """One attempt, from an offset to where its log ends."""
        run = RunId(JobId(place.job.id), attempt)
        begins = {"attempt": attempt, "worker": place.worker}
        yield message(begins, "attempt", f"{attempt}-{offset}")
        followed = self._jobs[place.job.id]
        with ExitStack() as stack:
            while (tail := await self._tail(run, place.worker, stream, stack)) is None:
                # An attempt that has not come far enough to write anything.
                if followed.over or followed.attempt > attempt or stream.closing:
                    return
                await stream.wait(self._options.poll_s)
            stream.wake()
            async for beat in beats(stream, self._options.heartbeat_s):
                if beat is not None:
                    yield beat
                    continue
                # Asked before the file is read: what a job wrote before its end is then in it.
                ended = followed.over or followed.attempt > attempt
                while (chunk := await self._next(tail, offset, whole=ended)).encoded:
                    yield chunk.encoded
                    offset = chunk.end
                    if stream.closing:
                        break
                if ended and not stream.closing:
                    return

    async def _next(self, tail: FollowedLog, offset: int, *, whole: bool) -> _Chunk:
        """The chunk at an offset: one that is kept, or what the file says."""
        kept = tail.kept(offset)
        if kept is not None:
            return kept
        if not whole and tail.end is not None and offset >= tail.end:
            return _Chunk(offset, b"")
        chunk: _Chunk = await self._read(lambda: tail.read(offset, whole=whole))
        return chunk

    async def _tail(
        self, run: RunId, worker: str, stream: OpenStream, stack: ExitStack
    ) -> FollowedLog | None:
        """The tail of a file, shared by all its followers; given back with the stack."""
        key = (run, worker)
        if key not in self._tails:
            try:
                file: LogFile = await self._read(lambda: self._engine.logs(run, worker))
            except NotFound:
                return None
            if key in self._tails:  # another follower was faster
                self._left.append(FollowedLog(file, self._options.log_chunk, run.attempt))
            else:
                self._tails[key] = FollowedLog(file, self._options.log_chunk, run.attempt)
        tail = self._tails[key]
        tail.streams.add(stream)
        stack.callback(self._leave, key, tail, stream)
        self._hint.set()
        return tail

    def _leave(self, key: tuple[RunId, str], tail: FollowedLog, stream: OpenStream) -> None:
        tail.streams.discard(stream)
        if not tail.streams and self._tails.get(key) is tail:
            del self._tails[key]
            self._left.append(tail)
            self._hint.set()


def _try(tail: FollowedLog) -> list[tuple[int, _Chunk]]:
    """What is new in a file; nothing if it cannot be read now."""
    try:
        return tail.look()
    except (OSError, RoostError) as error:
        log.warning("a log cannot be read: %s", error)
        return []


def _cut(data: bytes) -> int:
    """How many bytes at the end belong to a character that is not complete."""
    for back in range(1, min(_PARTIAL, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:  # a continuation: look further back  # noqa: PLR2004
            continue
        need = next((n for n, (shift, lead) in _LEADS.items() if byte >> shift == lead), 0)
        return back if back < need else 0
    return 0
