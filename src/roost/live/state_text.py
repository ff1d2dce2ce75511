"""A core as text, for the store: a head, and a line for each job that is kept while it holds.

With a hundred thousand jobs in line it takes seconds to write all of them, and nothing else happens
meanwhile. So each line is kept, and only those of jobs that changed are written anew: the driver
says which those are (``touch``). What changes without being told is looked at every time: what runs
hold, and whether a job that was set back stands in line again. How long jobs have waited is as old
as their line.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from roost.core import Core, Job, JobId, Placer, Policy
from roost.core.snapshot import head_line, job_line, load_lines
from roost.core.wire import canonical
from roost.errors import InvalidSpec

#: What such a text begins with; one in plain JSON begins with a brace.
_MARK = "roost-lines-1:"
#: Lines that are at most left to be written at once.
_BEHIND = 50
#: Lines that are packed at once.
_PACKED = 500
#: Jobs in one piece of an answer.
_PIECE = 200
_NO_JOBS, _NO_SPEC = '"jobs":[]', '"spec":null'
#: What is told of a job, without what is changed in place: that comes with an event of its own.
_facts = attrgetter(
    *("state", "spec", "run_time_s", "attempts", "failures", "saved_s", "attained_gpu_s"),
    *("started_at", "finished_at", "queued_at", "not_before", "preemptions", "resizes"),
    *("held", "cancelling", "protected", "waiting"),
)


class StateText:
    """The lines of one core."""

    def __init__(self, core: Core, lines: Iterable[tuple[JobId, str]] = ()) -> None:
        self._core = core
        self._lines = dict(lines)
        #: Jobs that may change without being touched, as they were when their line was written:
        #: they run, or are to be tried again later.
        self._restless: dict[JobId, Any] = {}
        for name in self._lines:
            job = core.jobs[name]
            if not job.waiting or job.run is not None:  # most only wait
                self._note(name, job)
        #: Jobs with other lines than they had.
        self._touched: set[JobId] = set()
        self.touch(name for name in core.jobs if name not in self._lines)

    def touch(self, jobs: Iterable[JobId]) -> None:
        """Note that jobs have changed, came or went."""
        self._touched.update(jobs)
        if len(self._touched) > _BEHIND:
            self._write_touched()

    def lines(self) -> list[str]:
        """The head, and the line of each job, all as they are now."""
        self._write_touched()
        self.touch([name for name, seen in self._restless.items() if self._seen(name) != seen])
        self._write_touched()
        return [head_line(self._core), *map(self._lines.__getitem__, self._core.jobs)]

    def _seen(self, name: JobId) -> Any:
        job = self._core.jobs.get(name)
        return None if job is None else _facts(job)

    def _write_touched(self) -> None:
        for name in self._touched:
            job = self._core.jobs.get(name)
            if job is None:
                self._lines.pop(name, None)
                self._restless.pop(name, None)
            else:
                self._lines[name] = job_line(self._core, job)
                self._note(name, job)
        self._touched.clear()

    def _note(self, name: JobId, job: Job) -> None:
        if job.state.over or (job.waiting and job.run is None):
            self._restless.pop(name, None)
        else:
            self._restless[name] = _facts(job)


def packed(lines: Iterable[str]) -> str:
    """Lines as the store keeps them. It takes a while, most of it without Python's lock."""
    left, squeeze, squeezed, between = iter(lines), zlib.compressobj(level=1), list[bytes](), ""
    while some := list(islice(left, _PACKED)):
        # Some at a time: to join all of them would keep the lock for long.
        squeezed.append(squeeze.compress((between + "\n".join(some)).encode()))
        between = "\n"
    squeezed.append(squeeze.flush())
    return _MARK + b64encode(b"".join(squeezed)).decode("ascii")


def is_packed(text: str) -> bool:
    """Whether a text of the store is one in lines; an older Roost wrote plain JSON."""
    return text.startswith(_MARK)


def unpacked(text: str, policy: Policy, placer: Placer) -> tuple[Core, StateText]:
    """The core that a text tells of, and its lines; raises InvalidSpec."""
    try:
        head, *jobs = zlib.decompress(b64decode(text.removeprefix(_MARK))).decode().split("\n")
    except (ValueError, zlib.error) as error:
        raise InvalidSpec(f"a snapshot cannot be unpacked: {error}") from None
    core = load_lines(head, jobs, policy, placer)
    # Jobs are in the order of their lines.
    return core, StateText(core, zip(core.jobs, jobs, strict=True))


def state_pieces(lines: Sequence[str], about: Mapping[str, object]) -> Iterator[str]:
    """The answer to a question for the whole state (``StateView``) as JSON, piece by piece.

    The digest comes last: it is made of the pieces (see ``roost.core.snapshot.digest``).
    """
    head = json.loads(lines[0])
    before, _, after = lines[0].partition(_NO_JOBS)
    head.get("out_of_range", []).sort()
    first, _, last = canonical(head).partition(_NO_JOBS)
    digest = hashlib.sha256(f'{first}"jobs":['.encode())
    yield f'{canonical(about)[:-1]},"core":{before}"jobs":['
    for start in range(1, len(lines), _PIECE):
        some = [_whole(line) for line in lines[start : start + _PIECE]]
        comma = "," if start > 1 else ""
        digest.update((comma + ",".join(plain for _, plain in some)).encode())
        yield comma + ",".join(whole for whole, _ in some)
    digest.update(f"]{last}".encode())
    yield f']{after},"digest":"{digest.hexdigest()}"}}'


def _whole(line: str) -> tuple[str, str]:
    """A job as one object, and the same without how long it waited for what."""
    told, _, asked = line.partition("\t")
    data = {**json.loads(told), "spec": None}  # quotes inside of texts are escaped: it is unique
    whole = canonical(data)
    data.pop("waits", None)
    return tuple(text.replace(_NO_SPEC, f'"spec":{asked}', 1) for text in (whole, canonical(data)))  # type: ignore[return-value]
