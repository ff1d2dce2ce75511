"""One change of members: new workers first, then who trains, then who leaves; or not at all.

The engine writes down who is wanted (``wanted.json``) and sends SIGHUP. Newcomers start and get
ready while the others train. The members are published, all at once, and change at a step of their
own choosing; where some come and some go, first with both and then without those that go. The
change is done when the first member trains with it and nobody is left who was to leave.

What fails, or takes too long, ends this generation as an order to stop does: the engine starts the
next one with what it wanted. Nothing here waits: ``advance`` is called whenever something happened.
"""

from __future__ import annotations

import time

from .hints import hit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .gang import Gang
    from .worker import Worker

#: What tells a worker of its place in a cluster of a fixed size.
_FIXED = ("TF_CONFIG", "PAI_")


#: How long after the first has ended in peace the others, and who just joined, may take.
_OVER_S = 5.0


class Failed(Exception):
    """The members cannot be changed; says why."""


class Over(Exception):
    """There is nothing left to join: the training has ended."""


class Change:
    """A change under way. ``due`` is when it has taken too long, or wants to be looked at."""

    def __init__(self, gang: Gang, wanted: dict[str, Any]) -> None:
        self._gang, self._members = gang, gang.members
        self.number = int(wanted["number"])
        self._begun = time.monotonic()
        self._pause_s = 0.0
        self.due = self._begun + gang.patience["ready_s"]
        self._why = "the new workers were not ready in time"
        self._published = self._counted = 0
        self._kill_at = float("inf")
        self._over = False
        now = {worker.member: worker for worker in gang.workers if worker.member}
        kept = [str(seat["member"]) for seat in wanted["seats"] if seat["member"]]
        if len(set(kept)) < len(kept) or not set(kept) <= set(now):
            raise Failed("a worker that was to stay is gone")
        self.leavers = [worker for worker in now.values() if worker.member not in kept]
        self.joiners: list[Worker] = []
        self._target: list[Worker] = []
        for rank, seat in enumerate(wanted["seats"]):
            worker = now.get(str(seat["member"])) if seat["member"] else None
            if worker is None:
                worker = gang.newcomer(_what(gang.pattern, seat, rank, self._members.new()))
                self.joiners.append(worker)
            self._target.append(worker)
        #: The members to come, one version after the other.
        self._to_publish: list[list[str]] = []
        if self.joiners and self.leavers:
            self._to_publish.append([*self._members.ids, *(one.member for one in self.joiners)])
        if self.joiners or self.leavers:
            self._to_publish.append([one.member for one in self._target])

    def begin(self) -> None:
        """Start those who are new; raises Failed."""
        hit("shim.before-change")
        if self._to_publish and not self._members.elastic:
            raise Failed("")
        if why := self._gang.start(self.joiners):
            raise Failed(why)
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
            raise Failed(f"the members cannot be written down: {error.strerror}") from None

    def takes(self, worker: Worker, status: int, how: str) -> bool:
        """Whether the end of a worker belongs to it; raises Failed if it makes it impossible."""
        if worker in self.leavers and worker.member not in self._members.ids:
            if status and not self._members.together:
                raise Failed(how)
            return True
        if worker in self.joiners and not self._published:
            raise Failed(f"the new {how} before it was ready")
        if status:
            raise Failed(how)
        if self._published and not self._members.together and not self._over:
            self._over = True
            self.due = min(self.due, time.monotonic() + _OVER_S)
        return False

    @property
    def is_open(self) -> bool:
        """Whether nobody has been told of it but those who are to join."""
        return not self._published

    def answer(self) -> dict[str, object]:
        """What to tell of it when it is done."""
        return {
            "number": self.number,
            "members": list(self._members.ids),
            "took_s": time.monotonic() - self._begun,
            "pause_s": self._pause_s,
        }

    @property
    def target(self) -> list[Worker]:
        """The workers that are wanted, by rank."""
        return self._target

    def _advance(self) -> bool:
        if self._members.over and (self.is_open or not self._members.together):
            raise Over
        if not self._published and self._to_publish:
            self._expire()
            if all(worker.member in self._members.ready for worker in self.joiners):
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
        hit("shim.before-publish")
        self._members.change(self._to_publish[0], [])
        hit("shim.after-publish")
        del self._to_publish[0]
        self._published = self._members.version
        self.due = time.monotonic() + self._gang.patience["join_s"]
        self._why = "the workers did not go on with the new members in time"

    def _see_off(self) -> bool:
        """Whether all who were to leave have left; who takes too long is killed."""
        left = [worker for worker in self.leavers if worker.running]
        if not left:
            return True
        now = time.monotonic()
        if self._kill_at == float("inf"):
            self._kill_at = now + self._gang.grace_s
        if now >= self._kill_at:
            for worker in left:
                self._gang.end(worker)
            self._kill_at = now + 1.0
        self.due = self._kill_at
        return False

    def _expire(self) -> None:
        if time.monotonic() < self.due:
            return
        if self._over:
            raise Over
        raise Failed(self._why)


def _what(pattern: dict[str, Any], seat: dict[str, Any], rank: int, member: str) -> dict[str, Any]:
    """What a new worker runs: what the first one did, at its own place."""
    env = {name: value for name, value in pattern["env"].items() if not name.startswith(_FIXED)}
    name = f"{pattern['role']}-{rank}"
    return {
        **pattern,
        "name": name,
        "leaf": f"{name}.{member}",
        "index": rank,
        "member": member,
        "env": {**env, **seat["env"], "ROOST_MEMBER": member},
        "cpus": seat["cpus"],
    }
