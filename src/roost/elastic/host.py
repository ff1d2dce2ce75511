"""What a change of members needs of those who can start and end workers, wherever they run.

``change`` and ``turnover`` know members by their ids and ask no clock. On one machine the gang of a
shim does what they want; in a cluster the operator does, and workers are pods. Read by type
checkers alone: the shim has no time for ``typing``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from roost.elastic.members import MemberList

#: A place for somebody new: its id, its rank, and what the order says of it.
NewMember = tuple[str, int, Any]


class WorkerHost(Protocol):
    """The workers of a generation."""

    @property
    def members(self) -> MemberList:
        """Who trains together."""

    @property
    def now(self) -> float:
        """Seconds that have passed, since whenever."""

    @property
    def is_running(self) -> bool:
        """Whether all workers are up, and neither frozen nor asked to stop."""

    @property
    def present(self) -> Sequence[str]:
        """Those who were started and are not parted with, by rank."""

    @property
    def running(self) -> Collection[str]:
        """Those of them whose process has not ended."""

    @property
    def patience(self) -> Mapping[str, float]:
        """How long others may take to get ready (``ready_s``) and to go on (``join_s``)."""

    @property
    def grace_s(self) -> float:
        """How long those who are asked to leave may take."""

    def hire(self, seats: Sequence[NewMember]) -> str:
        """Start new workers; why one could not be, or nothing."""

    def part(self, member: str) -> None:
        """Forget a worker, and end what is left of it."""

    def end(self, member: str) -> None:
        """Kill a worker that does not leave."""

    def settle(self, ranked: Sequence[str]) -> None:
        """These have the ranks now, in this order."""

    def stop(self, cause: str, detail: str) -> None:
        """Ask all workers to end."""

    def note(self, text: str) -> None:
        """Say something to whoever reads the first worker's log."""

    def tell(self, fields: dict[str, object]) -> None:
        """Say something in the name of the job."""


class NewsChannel(Protocol):
    """Whoever is told what became of it."""

    #: What the next one has to know as well.
    more: dict[str, object]

    def news(self, message: dict[str, object]) -> None:
        """Tell, and let the next one know."""
