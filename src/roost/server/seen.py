"""What a caller gets to see of jobs, events, nodes and queues.

Who reads everything sees things as they are. A user sees the own jobs only: texts that name another
user's job say *another job*, devices are taken without telling by whom, and counts of a queue are
those of the own jobs. How full the machine is, is no secret: who shares a machine can measure it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roost.server.auth import Caller
from roost.store.rows import EventRow, JobRow

#: What the id of a job looks like inside a text: a name, a dash, five letters or digits.
_ID = re.compile(r"\b[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?-[a-z0-9]{5}\b")

#: Keys under which nodes, plans and explanations name jobs, and keys that tell whose they are.
_NAMING = frozenset({"id", "job", "name", "user", "run"})


@dataclass(frozen=True, slots=True)
class Eyes:
    """A way of seeing: all jobs, or those of ``user``; ``owner`` knows whose a job is."""

    user: str
    all: bool
    owner: Callable[[str], str | None]

    @property
    def name(self) -> str:
        """Who sees the same has the same name."""
        return "*" if self.all else f"user {self.user}"

    def sees(self, user: str) -> bool:
        """Whether the jobs of that user are seen."""
        return self.all or user == self.user

    def text(self, text: str) -> str:
        """A sentence without the names of jobs that are not seen."""
        return text if self.all or not text else _ID.sub(self._masked, text)

    def _masked(self, found: re.Match[str]) -> str:
        owner = self.owner(found[0])
        return found[0] if owner is None or self.sees(owner) else "another job"

    def job(self, row: JobRow) -> Mapping[str, Any]:
        """A job as it was when it last changed."""
        return self.view(row.view)

    def view(self, view: Mapping[str, Any]) -> Mapping[str, Any]:
        """A job as the API shows it."""
        reason = str(view.get("reason") or "")
        told = self.text(reason)
        return view if told == reason else {**view, "reason": told}

    def event(self, row: EventRow) -> dict[str, Any]:
        """An event as the API shows it."""
        view = asdict(row)
        view["text"] = self.text(row.text)
        if not self.sees(row.actor):
            view["actor"] = ""
        return view

    def node(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """A node, without the jobs on it that are not seen."""
        return dict(node) if self.all else self.without_others(node)

    def without_others(self, value: Any) -> Any:
        """A value in which whatever names a job that is not seen is left out or blank."""
        if self.all:
            return value
        if isinstance(value, Mapping):
            if self._other(value):
                value = {key: item for key, item in value.items() if key not in _NAMING}
            return {key: self.without_others(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            kept = [item for item in value if not (isinstance(item, str) and self._foreign(item))]
            return [self.without_others(item) for item in kept]
        return self.text(value) if isinstance(value, str) else value

    def _foreign(self, name: str) -> bool:
        owner = self.owner(name)
        return owner is not None and not self.sees(owner)

    def _other(self, value: Mapping[str, Any]) -> bool:
        names = (str(value.get(key) or "") for key in ("id", "job", "run"))
        if any(self._foreign(name.partition("#")[0]) for name in names if name):
            return True
        user = value.get("user")
        return isinstance(user, str) and bool(user) and not self.sees(user)

    def may_use(self, queue: Mapping[str, Any]) -> bool:
        """Whether a queue is one of theirs."""
        return self.all or may_submit(self.user, queue.get("submitters", ("*",)))

    def queue(
        self, queue: Mapping[str, Any], waiting: Mapping[str, Collection[float]]
    ) -> dict[str, Any]:
        """A queue; ``waiting`` are the times at which the jobs that are seen were submitted."""
        if self.all:
            return dict(queue)
        told = dict(queue)
        since = waiting.get(str(queue.get("id")), ())
        own = {"waiting": len(since), "oldest_at": min(since, default=None), "running": None}
        told.update({key: value for key, value in own.items() if key in told})
        told["submitters"] = ["*"] if "*" in queue.get("submitters", ()) else [self.user]
        return told


def may_submit(user: str, submitters: Collection[str]) -> bool:
    """Whether a user is among those who may submit to a queue."""
    return "*" in submitters or user in submitters


def eyes_of(caller: Caller, owner: Callable[[str], str | None]) -> Eyes:
    """How a caller sees."""
    return Eyes(caller.user, caller.role != "user", owner)
