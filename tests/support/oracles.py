"""What must hold of a live cluster after any fault, checked by code: O1 to O7.

Each oracle takes what was recorded (the journal, what users were told, the ledger that the jobs
themselves keep) and returns what is wrong, in words; nothing means all is well.

    O1  accounted      every acknowledged command is in the journal, every job once
    O2  overlaps       never two live process trees for one job and rank
    O3  Folding        no device held twice, in any prefix of the journal
    O4  leftovers      no process with a token of a run that is not alive
    O5  same_state     fold(journal) == live state == snapshot + tail, by digest
    O6  unfinished     every job has come to an end
    O7  Folding        what is over stays as it is

How faults are made is in ``chaos``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from roost.core import Core, JobId, Ledger, Plan, Shape, snapshot
from roost.errors import RoostError
from roost.live.recovery import fold, read_snapshot
from roost.store.rows import JobRow, JournalEntry
from roost.testing.checks import validate

#: The commands that a user may be told have been accepted, and their events; deletions have notes.
COMMANDS = {
    "submit": "Submitted",
    "cancel": "CancelRequested",
    "suspend": "SuspendRequested",
    "resume": "ResumeRequested",
    "scale": "ScaleRequested",
    "migrate": "MigrateRequested",
}


class Told(NamedTuple):
    """A command that the server said it accepted; ``key`` is the request's own, if it had one.

    ``over``: the job was over already, so there was nothing to write down.
    """

    command: str
    job: str
    key: str = ""
    over: bool = False


def accounted(
    entries: Sequence[JournalEntry], told: Iterable[Told], rows: Mapping[str, JobRow]
) -> list[str]:
    """O1: what was acknowledged is in the journal, jobs exactly once; the views have each job."""
    written, answers, deleted = _written(entries), _answers(entries), _deleted(entries)
    found = [
        f"job {job} was submitted {count} times"
        for (kind, job), count in written.items()
        if kind == "Submitted" and count != 1
    ]
    found += [
        f"job {job} is in the journal and in no list"
        for kind, job in written
        if kind == "Submitted" and job not in deleted and job not in rows
    ]
    found += [f"job {job} was deleted and is listed" for job in sorted(deleted & rows.keys())]
    found += [
        f"request {key} made {len(jobs)} jobs: {sorted(jobs)}"
        for key, jobs in answers.items()
        if len(jobs) != 1
    ]
    for item in told:
        if item.command == "delete":
            kept = item.job in deleted
        else:
            kept = item.over or bool(written[COMMANDS[item.command], item.job])
        if not kept:
            found.append(f"{item.command} of {item.job} was acknowledged and is not in the journal")
        if item.key and answers.get(item.key) != {item.job}:
            found.append(
                f"request {item.key} was answered with {item.job}: {answers.get(item.key)}"
            )
    return found


def _written(entries: Iterable[JournalEntry]) -> Counter[tuple[str, str]]:
    """How often each kind of event about each job is in the journal."""
    return Counter(
        (event["type"], event.get("job", "")) for entry in entries for event in entry.body["events"]
    )


def _deleted(entries: Iterable[JournalEntry]) -> set[str]:
    """The jobs that somebody deleted; others are only forgotten by the core, and stay listed."""
    return {entry.body["notes"]["deleted"] for entry in entries if "deleted" in entry.body["notes"]}


def _answers(entries: Iterable[JournalEntry]) -> dict[str, set[str]]:
    """The jobs that each request made."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        key = entry.body["notes"].get("request")
        for event in entry.body["events"]:
            if key and event["type"] == "Submitted":
                found.setdefault(key, set()).add(event["job"])
    return found


class Line(NamedTuple):
    """One line of the ledger that jobs keep: what happened to which process tree."""

    what: str
    job: str
    rank: str
    attempt: str
    pid: int


def read_ledger(path: Path) -> list[Line]:
    """The ledger so far."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for line in lines:
        what, job, rank, attempt, pid = line.split()
        found.append(Line(what, job, rank, attempt, int(pid)))
    return found


def overlaps(ledger: Iterable[Line]) -> list[str]:
    """O2: no tree found the lock of its job and rank taken, and attempts only ever go up."""
    found, last = [], dict[tuple[str, str], int]()
    for line in ledger:
        place = line.job, line.rank
        if line.what == "clash":
            found.append(f"two live trees of {line.job}, rank {line.rank}: {line}")
        if line.what == "start":
            if int(line.attempt) < last.get(place, 0):
                found.append(f"{line.job} started attempt {line.attempt} after {last[place]}")
            last[place] = int(line.attempt)
    return found


def doubles(ledger: Iterable[Line]) -> list[str]:
    """O2 for jobs that change: no member of a generation is ever started twice."""
    starts = Counter(
        (line.job, line.rank, line.attempt)
        for line in ledger
        if line.what == "start" and "." in line.rank
    )
    return [
        f"{job}#{attempt}: member {rank} was started {count} times"
        for (job, rank, attempt), count in starts.items()
        if count > 1
    ]


def miscounted(job: str, counted: Sequence[int], total: int) -> list[str]:
    """A job that counts its steps, and goes on where it was saved, leaves none out."""
    if not counted or max(counted) != total:
        return [f"{job} counted to {max(counted, default=0)} in place of {total}"]
    furthest, found = counted[0], list[str]()
    for step in counted:
        if step > furthest + 1:
            found.append(f"{job} went from step {furthest} to {step}")
        furthest = max(furthest, step)
    return found


@dataclass(slots=True)
class Folding:
    """O3 and O7: a journal folded entry by entry, every prefix checked.

    Looking at a whole core takes time in proportion to its jobs: with thousands of them it is
    looked at after every ``every`` entries only.
    """

    every: int = 1
    core: Core = field(default_factory=lambda: Core(_not_asked, _not_asked))
    problems: list[str] = field(default_factory=list)
    #: How the jobs ended that are over.
    over: dict[str, str] = field(default_factory=dict)

    def take(self, entry: JournalEntry) -> None:
        """Fold one more entry, and look at the whole core."""
        try:
            fold(self.core, entry)
            if entry.seq % self.every == 0:
                validate(self.core, limits=False)
        except (RoostError, AssertionError) as error:
            self.problems.append(f"entry {entry.seq}: {error}")
        for job in self.core.jobs.values():
            before = self.over.get(job.id)
            if before is not None and job.state != before:
                self.problems.append(f"entry {entry.seq}: {job.id} was {before}, is {job.state}")
            if job.state.over:
                self.over[job.id] = job.state


def folded(entries: Iterable[JournalEntry]) -> Folding:
    """A whole journal, folded and checked."""
    folding = Folding()
    for entry in entries:
        folding.take(entry)
    return folding


def same_state(
    core: Core, live: str, entries: Sequence[JournalEntry], snapshots: Iterable[tuple[int, str]]
) -> list[str]:
    """O5: the state by three ways; ``core`` is folded from ``entries``, ``live`` a digest."""
    found = []
    expected = snapshot.digest(core)
    if live != expected:
        found.append(f"the live state is {live[:12]}, folding the journal gives {expected[:12]}")
    for seq, body in snapshots:
        try:
            again, _ = read_snapshot(body, _not_asked, _not_asked)
            for entry in entries:
                if entry.seq > seq:
                    fold(again, entry)
            digest = snapshot.digest(again)
        except RoostError as error:
            digest = f"nothing: {error}"
        if digest != expected:
            found.append(f"snapshot {seq} and what follows give {digest[:64]}: {expected[:12]}")
    return found


def unfinished(core: Core) -> list[str]:
    """O6: jobs that have not come to an end."""
    return [f"{job.id} is still {job.state}" for job in core.jobs.values() if not job.state.over]


def agree(folding: Folding, rows: Mapping[str, JobRow]) -> list[str]:
    """The views say of each job what the journal says, also of those that the core forgot."""
    found = []
    for row in rows.values():
        job = folding.core.jobs.get(JobId(row.id))
        state = folding.over.get(row.id) if job is None else job.state
        if state is None:
            found.append(f"{row.id} is listed and the journal does not know it")
        elif state != row.state:
            found.append(f"{row.id} is listed as {row.state}, the journal says {state}")
    return found


class Process(NamedTuple):
    """A live process that carries a run's token."""

    pid: int
    job: str
    attempt: str
    rank: str


def carrying(mark: str) -> Iterator[Process]:
    """Live processes with a token of a run and ``mark`` (``NAME=value``) in their environment."""
    wanted = mark.encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - by far the fastest
        if not name.isdigit():
            continue
        try:
            content = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue  # gone, or not ours
        items = content.split(b"\0")
        if wanted not in items or b"ROOST_RUN_TOKEN=" not in content:
            continue
        pairs = (item.decode("utf-8", "replace").partition("=") for item in items)
        env = {key: value for key, _, value in pairs}
        yield Process(
            int(name), env.get("ROOST_JOB", ""), env.get("ROOST_ATTEMPT", ""), env.get("RANK", "")
        )


def leftovers(mark: str, alive: Collection[tuple[str, int]]) -> list[str]:
    """O4: processes of runs that are not alive."""
    return [
        f"process {process.pid} of {process.job}#{process.attempt} is left over"
        for process in carrying(mark)
        if (process.job, int(process.attempt or 0)) not in alive
    ]


def _not_asked(*about: Plan | Ledger | Shape) -> NoReturn:
    msg = f"a policy or a placer was asked while a journal was folded: {about}"
    raise AssertionError(msg)


def save_journal(path: Path, entries: Iterable[JournalEntry], about: Mapping[str, Any]) -> None:
    """Write a journal as lines of JSON, the first of which says where it comes from."""
    with path.open("w", encoding="utf-8") as out:
        out.write(json.dumps(about) + "\n")
        for entry in entries:
            out.write(json.dumps(entry._asdict(), separators=(",", ":")) + "\n")


def load_journal(path: Path) -> tuple[dict[str, Any], list[JournalEntry]]:
    """What ``save_journal`` wrote."""
    with path.open(encoding="utf-8") as file:
        about = json.loads(file.readline())
        return about, [JournalEntry(**json.loads(line)) for line in file]
