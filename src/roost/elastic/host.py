"""What the protocol needs of a host that can start and end workers, wherever they run.

``change`` and ``turnover`` know members by their ids and ask no clock. On one machine the host is
the supervisor of a shim, and workers are processes; on Kubernetes it is the operator, and workers
are pods. Read by type checkers alone: a shim has no time for ``typing``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from roost.elastic.members import MemberList

#: A member to start: its id, its rank, and what the order says of its place.
NewMember = tuple[str, int, Any]


class WorkerHost(Protocol):
    """Starts and ends the workers of a generation."""

    @property
    def members(self) -> MemberList:
        """The members that train together."""

    @property
    def now(self) -> float:
        """Seconds on a clock that only its host has to understand."""

    @property
    def is_running(self) -> bool:
        """Whether all workers are up, and neither frozen nor asked to stop."""

    @property
    def present(self) -> Sequence[str]:
        """Members that were started and not removed, by rank."""

    @property
    def running(self) -> Collection[str]:
        """Those of them whose process has not ended."""

    @property
    def patience(self) -> Mapping[str, float]:
        """Seconds until new members are ready (``ready_s``), and all train again (``join_s``)."""

    @property
    def grace_s(self) -> float:
        """Seconds that a member which is asked to leave may take."""

    def add(self, members: Sequence[NewMember]) -> str:
        """Start new members; why one could not be started, or nothing."""

    def remove(self, member: str) -> None:
        """Forget a member, and end what is left of it."""

    def kill(self, member: str) -> None:
        """Kill a member that does not leave."""

    def assign_ranks(self, ranked: Sequence[str]) -> None:
        """These members have the ranks now, in this order."""

    def stop(self, cause: str, detail: str) -> None:
        """Ask all workers to end."""

    def note(self, text: str) -> None:
        """Write a line into the log of the first worker."""

    def report(self, fields: dict[str, object]) -> None:
        """Say something in the name of the job."""


class Publisher(Protocol):
    """Makes versions of the members known to the workers."""

    def can_meet(self, ids: Sequence[str]) -> bool:
        """Whether it is known by now where these members would meet."""

    def address(self, ids: Sequence[str], current: str) -> str:
        """Where these members meet; ``current`` if they meet there already. Raises OSError."""

    def publish(self, view: dict[str, Any]) -> None:
        """Make a version known, all at once; raises OSError."""


class NewsChannel(Protocol):
    """Takes what became of changes and losses to the server or the operator."""

    #: What its successor has to know as well; written with the next announcement.
    facts: dict[str, object]

    def announce(self, message: dict[str, object]) -> None:
        """Write down the facts, then tell."""
