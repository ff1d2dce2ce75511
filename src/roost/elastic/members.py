"""The members of one generation: their versions, and what is believed of what they say.

Any process of a job may speak, so only what fits is believed, and nothing that is kept can grow:
ids are those that were given out here. A ``Publisher`` makes versions known to the workers: by a
file on one machine, by the answer to a request on Kubernetes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from roost.elastic.host import Publisher

#: What a successor has to know, by the names under which it is kept.
_PLAIN = (
    *("ids", "address", "version", "lost", "save", "offload", "joined", "saved", "pause_s"),
    "over",
)
#: No pause is longer.
_LONG_S = 1e9
#: Digits of the longest id.
_DIGITS = 9


class MemberList:
    """The members of one generation, in the order of their ranks.

    ``lost`` are members that died since the others last trained together. ``save`` and ``offload``
    are the numbers of the last wishes to the workers. ``ready`` are new members that wait to join.
    ``joined`` is the version that the members said they train with, after ``pause_s`` seconds
    without training; ``saved`` the last wish for a checkpoint that was fulfilled. ``over``: the
    members said that the training has ended, and have not begun another.
    """

    def __init__(self, ids: list[str], address: str, publisher: Publisher) -> None:
        self._given, self._publisher = len(ids), publisher
        self.ids, self.address, self.version = ids, address, 1
        self.lost: list[str] = []
        self.save = self.offload = 0
        self.ready: set[str] = set()
        self.joined, self.pause_s = 0, 0.0
        self.saved = 0
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

    def new_id(self) -> str:
        """An id that was never given out."""
        self._given += 1
        return str(self._given - 1)

    def can_meet(self, ids: list[str]) -> bool:
        """Whether it is known by now where these would meet."""
        return self._publisher.can_meet(ids)

    def change(self, ids: list[str], lost: list[str]) -> None:
        """Let these be the members from now on; raises OSError, and then nothing has changed."""
        address = self._publisher.address(ids, self.address if ids == self.ids else "")
        # Published before it is believed here: if that fails, workers and host still agree.
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
        # The first member speaks for all, and for the current version alone: a line about an older
        # one may still be under way.
        if self.ids and member == self.ids[0] and _number(said.get("joined")) == self.version:
            self.joined, self.pause_s = self.version, _seconds(said.get("pause_s"))
            self._elastic.update(self.ids)
            self.lost, self.over = [], False
        saved = _number(said.get("saved_for"))
        if self.saved < saved <= self.save:
            self.saved = saved
        if known and self.offload and _number(said.get("offloaded")) == self.offload:
            self._offloaded[str(member)] = self.offload

    def dump(self) -> dict[str, Any]:
        """All of it, for ``load``, as JSON has it."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "given": self._given,
            "ready": sorted(self.ready),
            "elastic": sorted(self._elastic),
            "offloaded": dict(self._offloaded),
        }

    def load(self, kept: dict[str, Any]) -> None:
        """Be as it was."""
        for name in _PLAIN:
            setattr(self, name, kept[name])
        self._given = kept["given"]
        self.ready, self._elastic = set(kept["ready"]), set(kept["elastic"])
        self._offloaded = dict(kept["offloaded"])

    def is_known(self, member: str) -> bool:
        """Whether an id was given out; as text, so that there is one way to write each."""
        if len(member) > _DIGITS or not member.isdecimal():
            return False
        return str(int(member)) == member and int(member) < self._given

    def _publish(self, version: int, address: str, ids: list[str], lost: list[str]) -> None:
        self._publisher.publish(
            {
                "version": version,
                "address": address,
                "members": list(ids),
                "lost": list(lost),
                "save": self.save,
                "offload": self.offload,
            }
        )


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if 0 <= value < _LONG_S else 0.0
