"""What a caller gets to see of jobs, events, nodes and queues.

Administrators and viewers see things as they are. A user sees the own jobs only: texts that name
another user's job say *another job*, devices are taken without a name, and counts of a queue are
those of the own jobs. How full the machine is, is no secret: its users can measure it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from roost.api.alerts import AlertView
from roost.api.events import EventView
from roost.api.jobs import OVER
from roost.api.schema import encode, project
from roost.jobs.backlog import ESTIMATE, NOT_TRIED
from roost.server.auth import Caller
from roost.store.rows import ALL_USERS, EventRow, JobRow, admits

#: What the id of a job looks like inside a text: a name, a dash, and five of the letters and digits
#: that ids are made of (none that look alike).
_ID = re.compile(r"\b[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?-[a-hjkmnp-z2-9]{5}\b")

#: Keys under which nodes, plans and explanations name jobs, and keys that name their users.
_NAMING = frozenset({"id", "job", "name", "user", "run"})

#: What a forecast assumes, without telling how many jobs there are and how long they take.
_ASSUMED = (
    "jobs of unknown length are taken to run as long as is usual here, or twice what was done",
    "jobs past their declared run time are taken to need a tenth more, held ones to stay so",
    "no new jobs come, and nothing fails",
)
#: Nodes are no secret.
_OF_NODES = re.compile(r"[0-9]+ nodes? ")


@dataclass(frozen=True, slots=True)
class Visibility:
    """A way of seeing: all jobs, or those of ``user``.

    ``owner`` gives the user of a job: empty if it is no job, ``None`` where that is not known.
    """

    user: str
    all: bool
    owner: Callable[[str], str | None]

    @property
    def name(self) -> str:
        """The same for all callers that see the same."""
        return "*" if self.all else f"user {self.user}"

    def sees(self, user: str) -> bool:
        """Whether the jobs of that user are seen."""
        return self.all or user == self.user

    def text(self, text: str, *, about: str | None = None) -> str:
        """A sentence without the names of jobs that are not seen.

        What Roost itself wrote ``about`` a job may name jobs that are not known any more: they are
        not seen, either. In what comes from the job itself many a word looks like a name.
        """
        if self.all or not text:
            return text
        return _ID.sub(lambda found: self._masked(found[0], about), text)

    def _masked(self, name: str, about: str | None) -> str:
        unknown = about is not None and name != about and self.owner(name) is None
        return "another job" if unknown or self._foreign(name) else name

    def job(self, row: JobRow) -> Mapping[str, Any]:
        """A job as it was when it last changed."""
        return self.view(row.view)

    def view(self, view: Mapping[str, Any]) -> Mapping[str, Any]:
        """A job as the API shows it."""
        reason = str(view.get("reason") or "")
        own_words = view.get("state") in OVER or view.get("cause") == "back-off"
        told = self.text(reason, about=None if own_words else str(view.get("id")))
        return view if told == reason else {**view, "reason": told}

    def event(self, row: EventRow) -> dict[str, Any]:
        """An event as the API shows it."""
        text = self.text(row.text, about=None if row.kind == "state" else row.job)
        actor = row.actor if self.sees(row.actor) or row.actor == "roost" else ""
        return encode(project(EventView, row, text=text, actor=actor))

    def alert(self, alert: AlertView) -> dict[str, Any] | None:
        """An alert as the API shows it; None: it is about others."""
        about_others = alert.user and not self.sees(alert.user)
        if not self.all and (about_others or alert.when == "queue-wait"):
            return None
        return encode(replace(alert, text=self.text(alert.text)))

    def node(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """A node, without the jobs on it that are not seen."""
        return dict(node) if self.all else self.without_others(node)

    def explanation(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """A plan, or why a job is where it is."""
        if self.all:
            return told
        found: dict[str, Any] = self.without_others(told)
        if told.get("state") not in OVER:
            found["reason"] = self.text(str(told.get("reason") or ""), about=str(told.get("job")))
        if assumed := found.get("assumptions"):
            open_to_all = [
                text for text in assumed if _OF_NODES.match(text) or text in (ESTIMATE, NOT_TRIED)
            ]
            found["assumptions"] = [*open_to_all, *_ASSUMED]
        return found

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
        return bool(owner) and not self.sees(str(owner))

    def _other(self, value: Mapping[str, Any]) -> bool:
        names = (str(value.get(key) or "") for key in ("id", "job", "run"))
        if any(self._foreign(name.partition("#")[0]) for name in names if name):
            return True
        user = value.get("user")
        return isinstance(user, str) and bool(user) and not self.sees(user)

    def may_use(self, queue: Mapping[str, Any]) -> bool:
        """Whether a queue is one of theirs."""
        return self.all or admits(queue.get("submitters", (ALL_USERS,)), self.user)

    def queue(self, queue: Mapping[str, Any], waiting: Mapping[str, int]) -> dict[str, Any]:
        """A queue; ``waiting`` counts the jobs that are seen in each queue."""
        if self.all:
            return dict(queue)
        told = dict(queue)
        own = {"waiting": waiting.get(str(queue.get("id")), 0), "running": None}
        told.update({key: value for key, value in own.items() if key in told})
        told["submitters"] = ["*"] if "*" in queue.get("submitters", ()) else [self.user]
        return told


def visibility_of(caller: Caller, owner: Callable[[str], str | None]) -> Visibility:
    """How a caller sees."""
    return Visibility(caller.user, caller.role != "user", owner)
