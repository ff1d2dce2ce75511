"""The rules of alerts: what is looked for, how long it has to last, and what is done then.

They are in a file of the home that people may edit. It is read again when it has changed; one that
is wrong is not taken over, and says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from roost import files
from roost.errors import InvalidSpec, RoostError
from roost.jobfile import fields, yaml
from roost.jobfile.errors import Fault
from roost.jobfile.notify import check_target

Condition = Literal[
    "idle-gpu", "low-use", "stuck", "node-lost", "gpu-failed", "queue-wait", "disk", "intake"
]
AlertAction = Literal["tell", "suspend", "drain"]

CONDITIONS: tuple[Condition, ...] = get_args(Condition)
#: Conditions of a job that runs, and of a machine.
OF_JOBS = frozenset({"idle-gpu", "low-use", "stuck"})
OF_NODES = frozenset({"node-lost", "gpu-failed"})
#: Conditions with a bound, and the bound where none is given.
BOUNDS: dict[str, float] = {"idle-gpu": 0.05, "low-use": 0.2, "disk": 0.05}
#: Stands for those whom the owner of a job wants told of alerts.
OWNER = "owner"
_MOST = 100


class AlertRule(BaseModel):
    """A rule: its name, the condition, how long it lasts before it fires, what is done then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    when: Condition
    below: float | None = Field(default=None, gt=0, le=1)
    lasts: fields.Duration = 0.0
    severity: Literal["warning", "critical"] = "warning"
    do: tuple[AlertAction, ...] = Field(default=("tell",), max_length=3)
    to: tuple[str, ...] = Field(default=(OWNER,), max_length=20)
    on: bool = True

    @field_validator("to")
    @classmethod
    def _reachable(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        for target in targets:
            if target != OWNER:
                try:
                    check_target(target)
                except InvalidSpec as error:
                    raise ValueError(str(error)) from None
        return targets

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.below is not None and self.when not in BOUNDS:
            raise ValueError(f"{self.when} has no bound: leave out below")
        if "suspend" in self.do and self.when not in OF_JOBS:
            raise ValueError(f"{self.when} is about no job that could be suspended")
        if "drain" in self.do and self.when not in OF_NODES:
            raise ValueError(f"{self.when} is about no machine that could be drained")
        return self

    @property
    def bound(self) -> float:
        """Below what it fires."""
        return BOUNDS.get(self.when, 0.0) if self.below is None else self.below


class AlertRules(BaseModel):
    """All rules; no two have the same name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[AlertRule, ...] = Field(max_length=_MOST)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [rule.name for rule in self.rules]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two rules are named {twice!r}")
        return self


DEFAULTS = AlertRules(
    rules=(
        AlertRule(name="idle-gpu", when="idle-gpu", lasts=1800.0),
        AlertRule(name="low-use", when="low-use", lasts=3600.0),
        AlertRule(name="stuck", when="stuck", lasts=1800.0),
        AlertRule(name="node-lost", when="node-lost", lasts=60.0, severity="critical"),
        AlertRule(name="gpu-failed", when="gpu-failed", severity="critical"),
        AlertRule(name="queue-wait", when="queue-wait", lasts=86400.0),
        AlertRule(name="disk", when="disk", lasts=60.0, severity="critical"),
        AlertRule(name="intake", when="intake", lasts=30.0, severity="critical"),
    )
)


class RuleFile:
    """The rules as they are kept; the ones that are shipped where there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: int | None = None
        self.rules: tuple[AlertRule, ...] = DEFAULTS.rules
        #: What is wrong with the file; the rules are those from before.
        self.problem = ""

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            changed_at: int | None = os.stat(self._path).st_mtime_ns  # noqa: PTH116 - one call
        except OSError:
            changed_at = None
        if changed_at == self._read_at:
            return
        self._read_at = changed_at
        try:
            text = "" if changed_at is None else files.load(self._path).text
            self.rules = DEFAULTS.rules if changed_at is None else read_rules(_document(text)).rules
            self.problem = ""
        except RoostError as error:
            self.problem = f"{self._path.name}: {error}; the rules from before count"

    def change(self, told: dict[str, Any]) -> None:
        """Take over and keep other rules; raises InvalidSpec."""
        found = read_rules(told)
        text = yaml.dump({"rules": [shown(rule) for rule in found.rules]})
        files.save(self._path, text, 0o600)
        self._read_at = None
        self.refresh()


def shown(rule: AlertRule) -> dict[str, Any]:
    """A rule as people write it: without what is as by default."""
    told = rule.model_dump(mode="json", exclude_defaults=True)
    return {"name": rule.name, "when": rule.when, **told}


def read_rules(told: Any) -> AlertRules:
    """The rules that are told; raises InvalidSpec with the first fault."""
    try:
        return AlertRules.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidSpec(f"alerts: {where}: {first['msg']}") from None


def _document(text: str) -> Any:
    try:
        return yaml.plain(yaml.load(text))
    except Fault as fault:
        raise InvalidSpec(f"line {fault.error.line}: {fault}") from None
