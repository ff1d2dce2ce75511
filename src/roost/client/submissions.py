"""From what people hand in to what the server takes: a document, secrets, and maybe a function.

A path is a job file of any format, a mapping its fields, a list of words a command. What only the
caller knows is filled in here: values of variables left open, secrets, relative folders and, where
the server runs on the same machine, the present folder and where programs are found; where it runs
on another one, what is in the folder (``folder_scan``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from roost.errors import InvalidSpec

if TYPE_CHECKING:
    from roost.api.manifests import FolderBound
    from roost.client.folder_scan import FolderScan
    from roost.client.machine import ServerMachine
    from roost.jobfile import JobFile


@dataclass(frozen=True, slots=True)
class PreparedSubmission:
    """Everything that goes to the server; secrets are in no text that this makes."""

    document: Mapping[str, Any]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    payload: bytes | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    #: The folder to send first: the document names it.
    folder: FolderScan | None = field(default=None, repr=False)


@runtime_checkable
class Submittable(Protocol):
    """Something that knows how it is submitted, such as a function with its arguments."""

    def submission(self, *, local: bool) -> PreparedSubmission:
        """What goes to a server, on this machine or another."""


#: What can be submitted.
What: TypeAlias = (
    "PreparedSubmission | Submittable | JobFile"
    " | Mapping[str, Any] | Sequence[str] | os.PathLike[str]"
)


def prepare(what: What, to: ServerMachine, *, send: bool = True) -> PreparedSubmission:
    """What goes to the server; raises InvalidSpec naming what is wrong.

    ``send``: with the present folder, if the server is on another machine and the job names none.
    """
    from roost.jobfile import JobFile  # noqa: PLC0415 - costs as much as all the rest
    from roost.jobfile.parse import parse  # noqa: PLC0415 - as above

    match what:
        case PreparedSubmission():
            return what
        case Submittable():
            return what.submission(local=to.same)
        case JobFile():
            return finish(what, to, send=send)
        case str() | os.PathLike():
            from roost.files import load  # noqa: PLC0415 - as above
            from roost.jobfile.yaml import MAX_TEXT  # noqa: PLC0415 - as above

            read = load(what, 4 * MAX_TEXT)
            parsed = parse(read.text, read.file)
            return finish(parsed.job, to, send=send, notes=parsed.notes)
        case Mapping():
            return finish(JobFile.from_document(what), to, send=send)
        case Sequence():
            return finish(of_command(what), to, send=send)
        case _:
            raise InvalidSpec(
                f"{type(what).__name__!r} cannot be submitted: give the path of a job file, its "
                "fields as a mapping, a command as a list, or train.bind(...)"
            )


def of_command(command: Sequence[str]) -> JobFile:
    """A command as a job, named like its script, or else its program."""
    from roost.jobfile import JobFile  # noqa: PLC0415 - as above

    words = [str(word) for word in command]
    if not words or not words[0].strip():
        raise InvalidSpec("the command is empty: it begins with a program, such as python")
    scripts = [word for word in words if re.search(r"\.(py|sh)\Z", word)]
    name = Path((scripts or words or [""])[0]).stem
    short = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    return JobFile.from_document({"name": short or "job", "command": list(command)})


def finish(
    job: JobFile, to: ServerMachine, *, send: bool = True, notes: tuple[str, ...] = ()
) -> PreparedSubmission:
    """A job file with what its caller knows; paths in it are relative to the present folder.

    For a server on another machine, a folder of this one is looked through, to be sent.
    """
    if missing := [name for name in job.secrets if name not in os.environ]:
        raise InvalidSpec(f"the secret {missing[0]} is not set in your environment")
    folder = None if to.same or not to.takes_folders else _to_send(job, to.bound, send=send)
    if not (to.same or to.takes_folders):
        notes = (*notes, *_left_behind(job))
    job = job.filled(os.environ, Path.cwd())
    document = (_as_here(job) if to.same else job).document()
    if folder is not None:
        document["workdir"] = {"sent": folder.id}
    secrets = {name: os.environ[name] for name in job.secrets}
    return PreparedSubmission(document, secrets, notes=notes, folder=folder)


def _to_send(job: JobFile, bound: FolderBound, *, send: bool) -> FolderScan | None:
    """The folder of this machine that a job is to run in; an absolute one is the server's."""
    from roost.client.folder_scan import scan  # noqa: PLC0415 - for other machines alone

    if job.workdir is None:
        return scan(Path.cwd(), bound) if send else None
    path = job.workdir.path
    if path is None or path.startswith("/"):
        return None
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InvalidSpec(f"workdir: {path} is no folder here, and none is sent")
    return scan(folder.absolute(), bound)


def _left_behind(job: JobFile) -> Iterator[str]:
    """What the command names and is only here, where no folder can be sent."""
    words = job.command if job.workdir is None else ()
    for word in words:
        # Of an endless word, or a folder that is closed, nothing is said.
        with suppress(OSError):
            if not word.startswith("/") and Path(word).is_file():
                yield (
                    f"{word} of this folder is not sent: the image, a volume or "
                    "`workdir: {git: ...}` has to bring it"
                )


def _as_here(job: JobFile) -> JobFile:
    """The job as its caller would run it: in the present folder, with the programs found here."""
    from roost.jobfile import JobFile  # noqa: PLC0415 - as above

    data = job.document()
    if job.workdir is None:
        data["workdir"] = str(Path.cwd())
    elif job.workdir.path and _is_missing(Path(job.workdir.path)):
        raise InvalidSpec(f"workdir: there is no folder {job.workdir.path!r} on this machine")
    if job.image:  # programs are those of the image
        return JobFile.from_document(data)
    if not job.python and (python := _found("python") or _found("python3")):
        data["python"] = python
    if job.command and job.command[0] not in ("python", "python3"):
        program = job.command[0]
        data["command"] = [_found(program) or program, *job.command[1:]]
    return JobFile.from_document(data)


def _found(program: str) -> str:
    """Where a program is, as the shell would find it."""
    path = shutil.which(program)
    return "" if path is None else str(Path(path).absolute())


def _is_missing(folder: Path) -> bool:
    try:
        return not folder.is_dir()
    except PermissionError:  # its account may see what this one cannot
        return False
