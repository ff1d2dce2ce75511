"""One change of members, by order: new members first, then a new version, then those that leave.

1. New members are started, and get ready while the others train.
2. Once all are ready, the version is published, as a whole. The members change over at a step of
   their own choosing. Where some come and some go, there are two versions: first one with both, so
   that the new members get the state of the training, then one without those that go.
3. The first member says that it trains with the version.
4. Members that are left out end by themselves; after their grace they are killed. Then the change
   is done.

Whatever fails, or takes too long, ends this generation as an order to stop does: the host starts
the next one with what it wanted. Nothing here waits: ``advance`` is called whenever something
happened. Members are known by their ids alone, so a change is the same for processes and for pods.
"""

from __future__ import annotations

from roost.failpoints import hit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from roost.elastic.host import NewMember, WorkerHost

#: What a successor has to know of a change, and the names under which it is kept; an operator may
#: find what an older version of Roost kept.
_KEPT = {
    **{name: name for name in ("number", "due", "joiners", "leavers", "target", "_begun")},
    **{name: name for name in ("_pause_s", "_published", "_counted", "_kill_at", "_over")},
    "_late": "_why",
    "_new": "_seats",
    "_to_publish": "_to_publish",
}
#: How long after the first member has ended in peace the others may take, new ones included.
_OVER_S = 5.0


class ChangeFailed(Exception):
    """The members cannot be changed; says why."""


class TrainingOver(Exception):
    """There is nothing left to join: the training has ended."""


class MemberChange:
    """A change under way. ``due`` is when it has taken too long, or wants to be looked at."""

    def __init__(self, host: WorkerHost, wanted: dict[str, Any]) -> None:
        self._host, self._members = host, host.members
        self.number = int(wanted["number"])
        self._begun = self._host.now
        self._pause_s = 0.0
        self.due = self._begun + host.patience["ready_s"]
        self._late = "the new workers were not ready in time"
        self._published = self._counted = 0
        self._kill_at = float("inf")
        self._over = False
        now = list(host.present)
        kept = [str(seat["member"]) for seat in wanted["seats"] if seat["member"]]
        if len(set(kept)) < len(kept) or not set(kept) <= set(now):
            raise ChangeFailed("a worker that was to stay is gone")
        self.leavers = [one for one in now if one not in kept]
        self._new: list[NewMember] = []
        #: The members that are wanted, by rank.
        self.target: list[str] = []
        for rank, seat in enumerate(wanted["seats"]):
            member = str(seat["member"] or "") or self._members.new_id()
            if not seat["member"]:
                self._new.append((member, rank, seat))
            self.target.append(member)
        self.joiners = [member for member, _, _ in self._new]
        #: The members to come, one version after the other.
        self._to_publish: list[list[str]] = []
        if self.joiners and self.leavers:
            self._to_publish.append([*self._members.ids, *self.joiners])
        if self.joiners or self.leavers:
            self._to_publish.append(list(self.target))

    def begin(self) -> None:
        """Start the new members; raises ChangeFailed."""
        hit("shim.before-change")
        if self._to_publish and not self._members.elastic:
            raise ChangeFailed("")
        if why := self._host.add(self._new):
            raise ChangeFailed(why)
        hit("shim.after-joiners")
        self.advance()

    def later(self, seconds: float) -> None:
        """The workers were frozen for so long: nothing is overdue because of it."""
        self.due += seconds
        self._kill_at += seconds

    def advance(self) -> bool:
        """Go on as far as possible; True when it is done. Raises ChangeFailed, TrainingOver."""
        try:
            return self._advance()
        except OSError as error:
            raise ChangeFailed(f"the members cannot be written down: {error.strerror}") from None

    def takes(self, member: str, status: int, how: str) -> bool:
        """Whether the end of a worker belongs to it; raises ChangeFailed if it prevents it."""
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
            self.due = min(self.due, self._host.now + _OVER_S)
        return False

    def dump(self) -> dict[str, Any]:
        """All of it, for ``load``."""
        return {kept: getattr(self, name) for name, kept in _KEPT.items()}

    @classmethod
    def load(cls, host: WorkerHost, kept: dict[str, Any]) -> MemberChange:
        """A change that was under way; members that were not started yet are started now."""
        self = cls(host, {"number": 0, "seats": []})
        for name, key in _KEPT.items():
            setattr(self, name, kept[key])
        present = host.present
        host.add([seat for seat in self._new if seat[0] not in present])
        return self

    @property
    def is_open(self) -> bool:
        """Whether no member has been told of it but the new ones."""
        return not self._published

    def answer(self) -> dict[str, object]:
        """What to tell of it when it is done."""
        return {
            "number": self.number,
            "members": list(self._members.ids),
            "took_s": self._host.now - self._begun,
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
        # From here on the old version is gone: a worker that looks sees the new one as a whole.
        hit("shim.before-publish")
        self._members.change(self._to_publish[0], [])
        hit("shim.after-publish")
        del self._to_publish[0]
        self._published = self._members.version
        self.due = self._host.now + self._host.patience["join_s"]
        self._late = "the workers did not go on with the new members in time"

    def _see_off(self) -> bool:
        """Whether all that were to leave have left; one that takes too long is killed."""
        running = self._host.running
        left = [one for one in self.leavers if one in running]
        if not left:
            return True
        now = self._host.now
        if self._kill_at == float("inf"):
            # Its grace begins when the others train without it, not with the order.
            self._kill_at = now + self._host.grace_s
        if now >= self._kill_at:
            for one in left:
                self._host.kill(one)
            self._kill_at = now + 1.0
        self.due = self._kill_at
        return False

    def _expire(self) -> None:
        if self._host.now < self.due:
            return
        if self._over:
            raise TrainingOver
        raise ChangeFailed(self._late)
