"""Who trains together, and what is believed of what workers say about it: no file, no clock.

Any process of a job may speak, so only what fits is believed, and nothing that is kept can grow:
ids are those that were given out here. How a version becomes known to the workers is for those who
inherit: a file of this machine (``members``), or an answer that pods wait for (the operator).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: What the next one has to know of it.
_PLAIN = ("ids", "address", "version", "lost", "save", "offload", "joined", "saved", "pause_s")
_LONG_S = 1e9  # no pause is longer
_DIGITS = 9


class MemberList(ABC):
    """The members of one generation, in the order of their ranks."""

    def __init__(self, ids: list[str], address: str) -> None:
        self._given = len(ids)
        self.ids, self.address, self.version = ids, address, 1
        #: Those that died since the members last trained together.
        self.lost: list[str] = []
        self.save = self.offload = 0
        #: What was said: who waits to join, what was trained with and after how long a pause.
        self.ready: set[str] = set()
        self.joined, self.pause_s = 0, 0.0
        self.saved = 0
        #: Whether they said that the training is over, and have not begun another.
        self.over = False
        self._elastic: set[str] = set()
        self._offloaded: dict[str, int] = {}

    @property
    def elastic(self) -> bool:
        """Whether every member said that it can change its members."""
        return bool(self.ids) and self._elastic.issuperset(self.ids)

    @property
    def together(self) -> bool:
        """Whether the members of this version train."""
        return self.joined == self.version

    @property
    def offloaded(self) -> bool:
        """Whether every member did what ``offload`` last asked for."""
        return all(self._offloaded.get(one) == self.offload for one in self.ids)

    def new(self) -> str:
        """An id that was never given out."""
        self._given += 1
        return str(self._given - 1)

    def can_meet(self, ids: list[str]) -> bool:  # noqa: ARG002 - on one machine they always can
        """Whether it is known by now where these would meet."""
        return True

    def change(self, ids: list[str], lost: list[str]) -> None:
        """Let these be the members from now on; raises OSError, and then nothing has changed."""
        address = self._place(ids)
        self._publish(self.version + 1, address, ids, lost)
        self.version, self.address, self.ids, self.lost = self.version + 1, address, ids, lost

    def publish(self) -> None:
        """Make known how it is; raises OSError."""
        self._publish(self.version, self.address, self.ids, self.lost)

    def forget(self, member: str) -> None:
        """A member is gone for good."""
        self._elastic.discard(member)
        self.ready.discard(member)
        self._offloaded.pop(member, None)

    def hear(self, said: dict[str, Any]) -> None:
        """Take in what a worker says, as far as it makes sense."""
        member = said.get("member")
        known = isinstance(member, str) and self.is_known(member)
        if known and said.get("elastic") is True:
            self._elastic.add(str(member))
        if known and said.get("over") is True:
            self.over = True
        ready = said.get("ready")
        if isinstance(ready, str) and self.is_known(ready):
            self.ready.add(ready)
        if self.ids and member == self.ids[0] and _number(said.get("joined")) == self.version:
            self.joined, self.pause_s = self.version, _seconds(said.get("pause_s"))
            self._elastic.update(self.ids)
            self.lost, self.over = [], False
        saved = _number(said.get("saved_for"))
        if self.saved < saved <= self.save:
            self.saved = saved
        if known and self.offload and _number(said.get("offloaded")) == self.offload:
            self._offloaded[str(member)] = self.offload

    def kept(self) -> dict[str, Any]:
        """All of it, for ``recall``, as JSON has it."""
        return {
            **{name: getattr(self, name) for name in (*_PLAIN, "over")},
            "given": self._given,
            "ready": sorted(self.ready),
            "elastic": sorted(self._elastic),
            "offloaded": dict(self._offloaded),
        }

    def recall(self, kept: dict[str, Any]) -> None:
        """Be as it was."""
        for name in (*_PLAIN, "over"):
            setattr(self, name, kept[name])
        self._given = kept["given"]
        self.ready, self._elastic = set(kept["ready"]), set(kept["elastic"])
        self._offloaded = dict(kept["offloaded"])

    def is_known(self, member: str) -> bool:
        """Whether an id was given out; as text, so that there is one way to write each."""
        if len(member) > _DIGITS or not member.isdecimal():
            return False
        return str(int(member)) == member and int(member) < self._given

    @abstractmethod
    def _place(self, ids: list[str]) -> str:
        """Where these meet; raises OSError."""

    @abstractmethod
    def _publish(self, version: int, address: str, ids: list[str], lost: list[str]) -> None:
        """Make a version known; raises OSError."""

    def _body(self, version: int, address: str, ids: list[str], lost: list[str]) -> dict[str, Any]:
        """What the workers are to read."""
        return {
            "version": version,
            "address": address,
            "members": ids,
            "lost": lost,
            "save": self.save,
            "offload": self.offload,
        }


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if 0 <= value < _LONG_S else 0.0
