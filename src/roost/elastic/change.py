"""One change of members: new workers first, then who trains, then who leaves; or not at all.

The engine says who is wanted, on one machine by ``wanted.json`` and SIGHUP. Newcomers start and get
ready while the others train. The members are published, all at once, and change at a step of their
own choosing; where some come and some go, first with both and then without those that go. The
change is done when the first member trains with it and nobody is left who was to leave.

What fails, or takes too long, ends this generation as an order to stop does: the engine starts the
next one with what it wanted. Nothing here waits: ``advance`` is called whenever something happened.
Workers are known by their ids alone, so a change is the same for processes and for pods.
"""

from __future__ import annotations

from roost.failpoints import hit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from roost.elastic.host import WorkerHost

#: What the next one has to know of a change.
_KEPT = (
    *("number", "due", "joiners", "leavers", "target", "_begun", "_pause_s", "_published"),
    *("_counted", "_kill_at", "_over", "_why", "_seats", "_to_publish"),
)
#: How long after the first has ended in peace the others, and who just joined, may take.
_OVER_S = 5.0


class ChangeFailed(Exception):
    """The members cannot be changed; says why."""


class TrainingOver(Exception):
    """There is nothing left to join: the training has ended."""


class MemberChange:
    """A change under way. ``due`` is when it has taken too long, or wants to be looked at."""

    def __init__(self, gang: WorkerHost, wanted: dict[str, Any]) -> None:
        self._gang, self._members = gang, gang.members
        self.number = int(wanted["number"])
        self._begun = self._gang.now
        self._pause_s = 0.0
        self.due = self._begun + gang.patience["ready_s"]
        self._why = "the new workers were not ready in time"
        self._published = self._counted = 0
        self._kill_at = float("inf")
        self._over = False
        now = list(gang.present)
        kept = [str(seat["member"]) for seat in wanted["seats"] if seat["member"]]
        if len(set(kept)) < len(kept) or not set(kept) <= set(now):
            raise ChangeFailed("a worker that was to stay is gone")
        self.leavers = [one for one in now if one not in kept]
        self._seats: list[tuple[str, int, Any]] = []
        #: The members that are wanted, by rank.
        self.target: list[str] = []
        for rank, seat in enumerate(wanted["seats"]):
            member = str(seat["member"] or "") or self._members.new()
            if not seat["member"]:
                self._seats.append((member, rank, seat))
            self.target.append(member)
        self.joiners = [member for member, _, _ in self._seats]
        #: The members to come, one version after the other.
        self._to_publish: list[list[str]] = []
        if self.joiners and self.leavers:
            self._to_publish.append([*self._members.ids, *self.joiners])
        if self.joiners or self.leavers:
            self._to_publish.append(list(self.target))

    def begin(self) -> None:
        """Start those who are new; raises Failed."""
        hit("shim.before-change")
        if self._to_publish and not self._members.elastic:
            raise ChangeFailed("")
        if why := self._gang.hire(self._seats):
            raise ChangeFailed(why)
        hit("shim.after-joiners")
        self.advance()

    def later(self, seconds: float) -> None:
        """Time stood still for so long."""
        self.due += seconds
        self._kill_at += seconds

    def advance(self) -> bool:
        """Go on as far as possible; True when it is done. Raises Failed, Over."""
        try:
            return self._advance()
        except OSError as error:
            raise ChangeFailed(f"the members cannot be written down: {error.strerror}") from None

    def takes(self, member: str, status: int, how: str) -> bool:
        """Whether the end of a worker belongs to it; raises Failed if it makes it impossible."""
        if member in self.leavers and member not in self._members.ids:
            if status and not self._members.together:
                raise ChangeFailed(how)
            return True
        if member in self.joiners and not self._published:
            raise ChangeFailed(f"the new {how} before it was ready")
        if status:
            raise ChangeFailed(how)
        if self._published and not self._members.together and not self._over:
            self._over = True
            self.due = min(self.due, self._gang.now + _OVER_S)
        return False

    def kept(self) -> dict[str, Any]:
        """All of it, for ``recall``."""
        return {name: getattr(self, name) for name in _KEPT}

    @classmethod
    def recall(cls, gang: WorkerHost, kept: dict[str, Any]) -> MemberChange:
        """A change that was under way; those who were not started yet are."""
        self = cls(gang, {"number": 0, "seats": []})
        for name in _KEPT:
            setattr(self, name, kept[name])
        present = gang.present
        gang.hire([seat for seat in self._seats if seat[0] not in present])
        return self

    @property
    def is_open(self) -> bool:
        """Whether nobody has been told of it but those who are to join."""
        return not self._published

    def answer(self) -> dict[str, object]:
        """What to tell of it when it is done."""
        return {
            "number": self.number,
            "members": list(self._members.ids),
            "took_s": self._gang.now - self._begun,
            "pause_s": self._pause_s,
        }

    def _advance(self) -> bool:
        if self._members.over and (self.is_open or not self._members.together):
            raise TrainingOver
        if not self._published and self._to_publish:
            self._expire()
            if self._members.ready.issuperset(self.joiners):
                self._publish()
            return False
        if self._published and not self._members.together:
            self._expire()
            return False
        if self._counted < self._published:
            self._counted = self._published
            self._pause_s += self._members.pause_s
        if self._to_publish:
            self._publish()
            return False
        return self._see_off()

    def _publish(self) -> None:
        if not self._members.can_meet(self._to_publish[0]):
            self._expire()
            return
        hit("shim.before-publish")
        self._members.change(self._to_publish[0], [])
        hit("shim.after-publish")
        del self._to_publish[0]
        self._published = self._members.version
        self.due = self._gang.now + self._gang.patience["join_s"]
        self._why = "the workers did not go on with the new members in time"

    def _see_off(self) -> bool:
        """Whether all who were to leave have left; who takes too long is killed."""
        running = self._gang.running
        left = [one for one in self.leavers if one in running]
        if not left:
            return True
        now = self._gang.now
        if self._kill_at == float("inf"):
            self._kill_at = now + self._gang.grace_s
        if now >= self._kill_at:
            for one in left:
                self._gang.end(one)
            self._kill_at = now + 1.0
        self.due = self._kill_at
        return False

    def _expire(self) -> None:
        if self._gang.now < self.due:
            return
        if self._over:
            raise TrainingOver
        raise ChangeFailed(self._why)
