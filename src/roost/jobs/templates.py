"""Templates: job files with blanks, which are filled in and submitted.

A template is a text in any format that job files may have, also of another system. A blank is
``{{name}}``; its value is a plain word or a few, so that what fills it cannot become other fields.
Keeping the templates of a team is for others; some are shipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.errors import InvalidSpec, unknown
from roost.jobfile import ParsedJob, parse

#: The label that a job made from a template carries.
LABEL = "template"
NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"

_BLANK = re.compile(r"\{\{\s*([a-z][a-z0-9_]{0,40})\s*\}\}")
#: Words of letters, digits and some marks, one space apart; no colon ends a word, as a key would.
_VALUE = re.compile(r"(?:[\w./@+=,~-]+(?::[\w./@+=,~-]+)*(?: (?=\S))?)*\Z")
_LONGEST, _MOST_BLANKS = 200, 50


@dataclass(frozen=True, slots=True)
class TemplateBlank:
    """A blank: what to ask for, and what it is if nothing is given."""

    name: str
    label: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """A job file with blanks. ``author`` is empty for those that are shipped."""

    name: str
    text: str
    title: str = ""
    description: str = ""
    blanks: tuple[TemplateBlank, ...] = ()
    author: str = ""
    changed_at: float = 0.0

    def checked(self) -> JobTemplate:
        """The same, if it makes a job with its defaults; raises InvalidSpec."""
        if not re.fullmatch(NAME, self.name):
            raise InvalidSpec(f"{self.name[:80]!r} cannot be a template's name")
        if len(self.blanks) > _MOST_BLANKS:
            raise InvalidSpec(f"a template has at most {_MOST_BLANKS} blanks")
        named = [blank.name for blank in self.blanks]
        for name in dict.fromkeys(_BLANK.findall(self.text)):
            if name not in named:
                raise InvalidSpec(f"the text has a blank {name!r}, and nothing says what it is")
        for name in named:
            if name not in _BLANK.findall(self.text):
                raise InvalidSpec(f"the text has no blank {{{{{name}}}}}")
        filled(self, {})
        return self


def filled(template: JobTemplate, values: Mapping[str, Any]) -> ParsedJob:
    """The job of a template; raises InvalidSpec, with the lines of its text."""
    known = {blank.name: blank.default for blank in template.blanks}
    for name in values:
        if name not in known:
            raise InvalidSpec(str(unknown("blank", str(name)[:80], known)))
    told = {**known, **{name: str(value).strip() for name, value in values.items()}}
    for name, value in told.items():
        if len(value) > _LONGEST or not _VALUE.match(value):
            raise InvalidSpec(
                f"{name}: letters, digits, spaces and . / : @ + = , ~ _ - make a value, "
                f"{_LONGEST} at most; for more, write a job file"
            )
    text = _BLANK.sub(lambda found: told[found[1]], template.text)
    found = parse(text, template.name)
    job = found.job.model_copy(update={"labels": {**found.job.labels, LABEL: template.name}})
    return ParsedJob(job, found.notes)


_HELLO = """\
# Says hello, counts to ten and ends: to see that everything works.
name: hello
run: |
  for i in $(seq 1 {{steps}}); do echo "step $i of {{steps}}"; sleep 1; done
gpus: 0
"""
_PYTORCH = """\
# One process for each worker; torchrun finds the others by what Roost sets.
name: {{name}}
kind: pytorch
run: python {{script}}
workers: {{workers}}
gpus: {{gpus}}
max_duration: {{max_duration}}
retry: 2
"""
_ELASTIC = """\
# Grows and shrinks while it trains; the script uses roost.train.
name: {{name}}
kind: pytorch
run: python {{script}}
workers: 1..{{most}}
gpus: 1
checkpoint: {every: 10m}
"""
_SHARED = """\
# A part of a GPU, for what keeps it busy only now and then.
name: {{name}}
run: python {{script}}
gpus: {{share}}
"""
_SCRIPT = TemplateBlank("script", "Script", "train.py")

#: Templates that are shipped.
BUILT_IN = (
    JobTemplate(
        "hello",
        _HELLO,
        "Hello",
        "Counts to ten. No GPU.",
        (TemplateBlank("steps", "How far to count", "10"),),
    ),
    JobTemplate(
        "pytorch",
        _PYTORCH,
        "PyTorch, distributed",
        "A training with a fixed number of workers.",
        (
            TemplateBlank("name", "Name", "train"),
            _SCRIPT,
            TemplateBlank("workers", "Workers", "1"),
            TemplateBlank("gpus", "GPUs of a worker", "1"),
            TemplateBlank("max_duration", "Longest time", "1d"),
        ),
    ),
    JobTemplate(
        "elastic",
        _ELASTIC,
        "PyTorch, elastic",
        "A training that takes the GPUs that are free and gives them back.",
        (
            TemplateBlank("name", "Name", "train"),
            _SCRIPT,
            TemplateBlank("most", "Most workers", "4"),
        ),
    ),
    JobTemplate(
        "shared",
        _SHARED,
        "Part of a GPU",
        "For small models and notebooks.",
        (
            TemplateBlank("name", "Name", "small"),
            _SCRIPT,
            TemplateBlank("share", "Part of a GPU", "0.5"),
        ),
    ),
)
