"""The templates of a team: one file for each, in the home."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from roost import files
from roost.errors import Conflict, Forbidden, NotFound, RoostError
from roost.jobs.templates import BUILT_IN, JobTemplate, TemplateBlank

#: A home keeps so many.
MOST = 500


class TemplateFiles:
    """Templates that are shipped, and those that people made."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "templates"

    def all(self) -> list[JobTemplate]:
        """All templates by their names; one that cannot be read is left out."""
        found = {template.name: template for template in BUILT_IN}
        if self._folder.is_dir():
            for path in sorted(self._folder.glob("*.json")):
                with suppress(RoostError, ValueError, TypeError, KeyError):
                    template = _read(json.loads(files.load(path).text))
                    found[template.name] = template
        return sorted(found.values(), key=lambda template: template.name)

    def get(self, name: str) -> JobTemplate:
        """One template; raises NotFound."""
        for template in self.all():
            if template.name == name:
                return template
        raise NotFound(f"no template {name[:80]!r}")

    def set(self, template: JobTemplate, *, anyones: bool) -> JobTemplate:
        """Keep a template; raises Forbidden for somebody else's, unless it may be ``anyones``."""
        template.checked()
        known = {one.name: one for one in self.all()}
        before = known.get(template.name)
        if before is not None:
            _check_author(before, template.author, anyones=anyones)
            if before.author:
                template = replace(template, author=before.author)
        elif len(known) >= MOST:
            raise Conflict(f"there are {MOST} templates already; delete some")
        self._folder.mkdir(mode=0o700, exist_ok=True)
        files.save(self._folder / f"{template.name}.json", json.dumps(asdict(template)), 0o600)
        return template

    def delete(self, name: str, user: str, *, anyones: bool) -> None:
        """Forget a template; one that is shipped cannot be, only what replaced it."""
        template = self.get(name)
        _check_author(template, user, anyones=anyones)
        if not template.author:
            raise Conflict(f"template {name!r} is shipped with Roost and stays")
        (self._folder / f"{name}.json").unlink(missing_ok=True)


def _check_author(template: JobTemplate, user: str, *, anyones: bool) -> None:
    if not anyones and template.author != user:
        whose = f"{template.author}'s" if template.author else "shipped with Roost"
        raise Forbidden(f"template {template.name!r} is {whose}", "keep yours under another name")


def _read(told: dict[str, Any]) -> JobTemplate:
    blanks = tuple(TemplateBlank(**blank) for blank in told.pop("blanks", ()))
    return JobTemplate(**told, blanks=blanks)
