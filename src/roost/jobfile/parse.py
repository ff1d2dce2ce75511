"""From text to a job: our own job file, or one of the formats that are converted.

What a text is shows in itself: a script by its first line or its ``#SBATCH`` headers, the others by
their keys. Notes list what is accepted and not honoured, and what could not be converted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import ValidationError

from roost.jobfile import yaml
from roost.jobfile.errors import Fault, JobFileErrors, kind_of
from roost.jobfile.faults import explained
from roost.jobfile.foreign import Conversion, alnair, kubeflow, openpai, sbatch
from roost.jobfile.foreign.conversion import named
from roost.jobfile.model import JobFile
from roost.jobfile.yaml import YamlNode

#: Below these keys people write numbers and mean what they wrote: ``0.10`` stays ``0.10``.
_TEXTS = frozenset({"env", "command", "labels"})


class ParsedJob(NamedTuple):
    """A job, and what there is to say about it."""

    job: JobFile
    notes: tuple[str, ...] = ()


def parse(text: str, name: str) -> ParsedJob:
    """The job in a text; ``name`` is the file that errors name. Raises JobFileErrors."""
    try:
        if _is_script(text):
            return _build(name, sbatch.convert(text))
        root = yaml.load(text)
        converter = _converter(root)
        return _build(name, converter(root)) if converter else _own(root, name)
    except Fault as fault:
        raise JobFileErrors(name, [fault.error]) from None


def _own(root: YamlNode, name: str) -> ParsedJob:
    data = yaml.plain(root, _TEXTS)
    if not isinstance(data, dict):
        raise Fault(root.line, f"expected a mapping of fields, found {kind_of(data)}")
    data.setdefault("name", _named(name))
    try:
        job = JobFile.model_validate(data)
    except ValidationError as error:
        raise JobFileErrors(name, explained(JobFile, error, root)) from None
    return ParsedJob(job, job.notes())


def _build(name: str, converted: Conversion) -> ParsedJob:
    converted.job.setdefault("name", _named(name))
    try:
        job = JobFile.model_validate(converted.job)
    except ValidationError as error:
        errors = [
            fault._replace(line=converted.line_of(fault.field))
            for fault in explained(JobFile, error)
        ]
        raise JobFileErrors(name, errors) from None
    return ParsedJob(job, (*converted.notes, *job.notes()))


def _named(file: str) -> str:
    return named(posixpath.basename(file).partition(".")[0])


def _is_script(text: str) -> bool:
    return text.startswith("#!") or any(
        line.startswith("#SBATCH") for line in text[:65536].splitlines()
    )


def _converter(root: YamlNode) -> Callable[[YamlNode], Conversion] | None:
    keys: Any = root.value if isinstance(root.value, dict) else {}
    if "protocolVersion" in keys or "taskRoles" in keys:
        return openpai.convert
    if "apiVersion" not in keys:
        return None
    kind = str(keys["kind"].value) if "kind" in keys else ""
    if kind in kubeflow.KINDS:
        return kubeflow.convert
    if kind == alnair.KIND:
        return alnair.convert
    known = ", ".join((*kubeflow.KINDS, alnair.KIND))
    raise Fault(
        root.line_of(["kind"]), f"kind {kind[:60]!r} is not converted; one of: {known}", "kind"
    )
