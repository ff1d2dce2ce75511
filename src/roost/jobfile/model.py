"""The job file: what people write, and what the core and the engines make of it.

Every field is optional except something to run. A JobFile that exists can be turned into a spec;
it can be turned into a program once the caller has filled in what only the caller knows
(``filled``). Notes say what is accepted and not honoured. Reading text is in ``parse``.
"""

from __future__ import annotations

import math
import os
import posixpath
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from roost import core
from roost.core import WHOLE, Costs, JobSpec, Level, QueueId, Range
from roost.errors import InvalidSpec
from roost.jobfile import fields, yaml
from roost.jobfile.errors import JobFileErrors
from roost.jobfile.faults import check_document, explained
from roost.jobfile.fields import wrong
from roost.jobfile.notify import as_lines, read_rule
from roost.jobfile.program import Program, RetryRule, Suspend, Task
from roost.jobfile.sections import (
    ONE_GPU,
    CheckpointSection,
    ResourcesSection,
    RetrySection,
    RoleSection,
    Section,
    SharingSection,
    TrainingSection,
    WorkdirSection,
    with_gpus,
)

WORKER = core.WORKER
_ONE_WORKER = Range(1, 1)
_MOST = {"env": 1_000, "labels": 100, "roles": 20}
_PYTHONS = ("python", "python3")
#: To the core, a guest is a job with a negative priority.
_GUEST = -1


class JobFile(Section):
    """A job as people write it; immutable, and equal when it means the same."""

    name: fields.Name = "job"
    kind: Literal["task", "pytorch", "tensorflow", "mpi"] = "task"
    python: fields.Line = ""
    image: fields.Line = ""
    workdir: WorkdirSection | None = None
    setup: fields.Script = ""
    run: fields.Script = ""
    command: fields.Command = ()
    env: dict[fields.Variable, fields.Written | None] = Field(default={})
    secrets: fields.Secrets = ()
    mounts: fields.Mounts = ()
    workers: fields.Workers = _ONE_WORKER
    resources: ResourcesSection = ResourcesSection()
    sharing: SharingSection = SharingSection()
    roles: dict[fields.RoleName, RoleSection] = Field(default={})
    training: TrainingSection | None = None
    rates: fields.AmountByKind = ()
    within: Literal["socket", "node", "switch", "block", "zone"] | None = None
    queue: fields.QueueName = "default"
    cell: fields.Line | None = None
    guest: fields.Truth = False
    priority: fields.Priority = 0
    max_duration: fields.Duration | None = None
    run_time: fields.Duration | None = None
    min_run: fields.Duration = 0.0
    preemptible: fields.Truth = True
    retrying: RetrySection | None = Field(default=None, alias="retry")
    checkpoint: CheckpointSection | None = None
    suspend: Suspend = "freeze"
    labels: dict[fields.LabelKey, fields.Written] = Field(default={})
    application: fields.Line | None = None
    ports: fields.Lines = ()
    notify: fields.Lines = ()
    keep: fields.Duration | None = None

    @model_validator(mode="before")
    @classmethod
    def _shortcuts(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        data = {key: item for key, item in given.items() if item is not None}
        for field, most in _MOST.items():
            if isinstance(data.get(field), dict) and len(data[field]) > most:
                raise wrong(field, f"'{field}' has more than {most} entries")
        for short in ("nodes", "elastic"):
            if short in data:
                if "workers" in data:
                    raise wrong(short, f"'{short}' and 'workers' say the same; give one of them")
                data["workers"] = data.pop(short)
        if isinstance(data.get("notify"), dict):
            data["notify"] = as_lines(data["notify"])
        return with_gpus(data)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if bool(self.run.strip()) == bool(self.command):
            raise wrong(
                "command" if self.command else "run",
                "'run' and 'command' exclude each other"
                if self.command
                else "nothing to run: give 'run' (a script) or 'command' (a list)",
            )
        if both := sorted(set(self.env) & set(self.secrets)):
            raise wrong(f"env.{both[0]}", f"{both[0]} is both in 'env' and in 'secrets'")
        if WORKER in self.roles:
            raise wrong(f"roles.{WORKER}", f"the role {WORKER!r} is the job itself")
        if self.guest:
            self._check_guest()
        try:
            self.spec("")
        except InvalidSpec as error:
            raise wrong("resources", str(error)) from None
        return self

    def _check_guest(self) -> None:
        """A guest comes after all others, has no right to a place, and leaves when asked."""
        if self.priority:
            raise wrong(
                "priority",
                f"a guest comes after all jobs that are none: leave out 'priority: {self.priority}'"
                " or 'guest'",
            )
        if self.cell:
            raise wrong(
                "cell",
                f"a guest uses no promise to its queue, so not cell {self.cell!r} either: leave out"
                " 'cell' or 'guest'",
            )
        if not self.preemptible:
            raise wrong(
                "preemptible",
                "a guest makes room for all jobs that are none: leave out 'preemptible: false' or"
                " 'guest'",
            )

    @classmethod
    def from_document(cls, document: Mapping[str, Any], name: str = "job file") -> JobFile:
        """The inverse of ``document``; raises JobFileErrors with all that is wrong."""
        check_document(name, document)
        try:
            return cls.model_validate(dict(document))
        except ValidationError as error:
            raise JobFileErrors(name, explained(cls, error)) from None

    @property
    def retry(self) -> RetryRule:
        """When the job is tried again; ``retrying`` is None where the file does not say."""
        rule = self.retrying or RetrySection()
        return RetryRule(rule.max, rule.on_exit_codes, rule.delay)

    def document(self) -> dict[str, Any]:
        """The job as JSON, without what is left at its default; no secret is in it."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def filled(self, environ: Mapping[str, str], folder: Path) -> JobFile:
        """The job with what its caller knows: values of ``env`` left open, and the folder.

        Raises InvalidSpec for a variable that the caller does not have.
        """
        open_names = [name for name, value in self.env.items() if value is None]
        if missing := [name for name in open_names if name not in environ]:
            raise InvalidSpec(f"env: {missing[0]} has no value, and it is not set here")
        data = self.document()
        if open_names:
            data["env"] = self.env | {name: environ[name] for name in open_names}
        if self.workdir and self.workdir.path:
            home = environ.get("HOME", "~")
            data["workdir"] = _absolute(self.workdir.path, folder, home)
        if self.checkpoint and self.checkpoint.path:
            path = _absolute(self.checkpoint.path, folder, environ.get("HOME", "~"))
            data["checkpoint"] = {**data["checkpoint"], "path": path}
        return JobFile.from_document(data)

    def spec(self, user: str) -> JobSpec:
        """The spec of the job, for the core."""
        return JobSpec(
            workers=self.workers,
            resources=self.resources.needs(ONE_GPU, self.sharing),
            roles=tuple(role.named(name) for name, role in self.roles.items()),
            queue=QueueId(self.queue),
            priority=_GUEST if self.guest else self.priority,
            user=user,
            application=self.application or self.name,
            run_time_s=self._work(),
            costs=self._costs(),
            min_run_s=self.min_run,
            max_retries=self.retry.max,
            preemptible=self.preemptible,
            within=Level[self.within.upper()] if self.within else None,
            training=None if self.training is None else self.training.known(),
            rates=self.rates,
            cell=self.cell or "",
        )

    def program(self) -> Program:
        """The program of the job, for an engine; raises InvalidSpec where ``filled`` is missing."""
        if unset := [name for name, value in self.env.items() if value is None]:
            raise InvalidSpec(f"env: {unset[0]} has no value")
        saving = self.checkpoint or CheckpointSection()
        path, git, ref = self._folder()
        return Program(
            tasks=self._tasks(),
            setup=self._prepared(self.setup),
            workdir=_checked("workdir", path),
            git=(git, ref),
            env={name: value for name, value in self.env.items() if value is not None},
            secret_names=self.secrets,
            max_duration_s=math.inf if self.max_duration is None else self.max_duration,
            grace_s=saving.grace,
            stop_signal=saving.signal,
            checkpoint_dir=_checked("checkpoint.path", saving.path or ""),
            suspend=self.suspend,
            sent=(self.workdir and self.workdir.sent) or "",
            image=self.image,
            mounts=self.mounts,
        )

    def notes(self) -> tuple[str, ...]:
        """Fields that are accepted and that the engine of this machine ignores."""
        found = []
        if self.ports:
            found.append("ports: ignored; the job opens ports of this machine by itself")
        for line in self.notify:
            try:
                read_rule(line)
            except InvalidSpec as error:
                found.append(f"notify: {error}: ignored")
        if self._shares_nothing():
            found.append(
                "sharing: way and policy matter to a part of a GPU only; ask for one with gpus: 0.5"
            )
        if self.training is not None and self.run_time is not None:
            found.append(
                "run_time: ignored; the work of a job with 'training' is counted in steps, which"
                " training.steps says"
            )
        found += self.resources.notes("resources")
        for name, role in self.roles.items():
            found += role.resources.notes(f"roles.{name}.resources")
        return tuple(found)

    def _shares_nothing(self) -> bool:
        """Whether it says how to share a GPU, and then takes whole ones."""
        said = (self.sharing.way, self.sharing.policy) != (
            SharingSection().way,
            SharingSection().policy,
        )
        return said and self.spec("").resources.share_milli == WHOLE

    def _work(self) -> float | None:
        """All the work that there is: in seconds or, of one that says how it learns, in steps."""
        if self.training is not None:
            return None if self.training.steps is None else float(self.training.steps)
        # A limit is an estimate, too: it takes no longer than that.
        return self.max_duration if self.run_time is None else self.run_time

    def _costs(self) -> Costs:
        if self.checkpoint is None:
            return Costs(checkpoint_every_s=math.inf)
        again = self.checkpoint.restart
        return Costs(checkpoint_every_s=self.checkpoint.every, restart_s=again, resize_s=again)

    def _folder(self) -> tuple[str, str, str]:
        if self.workdir is None:
            return "", "", ""
        return self.workdir.path or "", self.workdir.git or "", self.workdir.ref or ""

    def _tasks(self) -> dict[str, Task]:
        main = self._task(self.run, self.command)
        others = {
            name: self._task(role.run, role.command) if role.run or role.command else main
            for name, role in self.roles.items()
        }
        return {WORKER: main, **others}

    def _task(self, script: str, command: tuple[str, ...]) -> Task:
        if not command:
            return Task(script=self._prepared(script))
        first = self.python if self.python and command[0] in _PYTHONS else command[0]
        return Task(command=(first, *command[1:]))

    def _prepared(self, script: str) -> str:
        """The script with the chosen interpreter, and what lies beside it, found first."""
        folder = os.path.dirname(self.python)  # noqa: PTH120 - a path of another machine
        if not script or not folder:
            return script
        return f'export PATH={shlex.quote(folder)}:"$PATH"\n{script}'


def to_yaml(job: JobFile) -> str:
    """A job as a job file that a person would have written.

    It has its name even where that is the default: a file that names none is named like itself.
    """
    return yaml.dump({"name": job.name, **job.document()})


def _absolute(path: str, folder: Path, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.normpath(posixpath.join(str(folder), path))


def _checked(field: str, path: str) -> str:
    if path and not posixpath.isabs(path):
        raise InvalidSpec(f"{field}: expected an absolute path, found {path!r}")
    return posixpath.normpath(path) if path else ""
