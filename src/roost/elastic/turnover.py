"""How the members of a generation come and go: by order, or by loss.

An order comes in ``wanted.json``, with SIGHUP to look at it; given twice it is carried out once. A
member that dies is left out, and the others go on without it, if the job can do that and enough
are left; so is one that ends in peace, although most likely all are about to. What became of any of
this is in ``start.json`` before the server is told.
"""

from __future__ import annotations

from roost.elastic.change import ChangeFailed, MemberChange, TrainingOver
from roost.failpoints import hit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from roost.elastic.host import NewsChannel, WorkerHost

#: What the next one has to know, besides the change that is under way.
_KEPT = (
    *("_number", "_losses", "_departed", "_mourn_until", "_postponed"),
    *("_saved", "_offloaded", "_elastic"),
)
#: How a worker ended, for the record, and in words.
WorkerLoss = tuple[list[object], str]


class Turnover:
    """Watches over the members; ``gang`` does what is to be done."""

    def __init__(self, gang: WorkerHost, hints: NewsChannel, least: int) -> None:
        self._gang, self._members, self._hints, self._least = gang, gang.members, hints, least
        self._change: MemberChange | None = None
        self._number = 0
        #: Ends of members without whom the others have not gone on yet, and until when they may.
        self._losses: list[WorkerLoss] = []
        self._mourn_until = float("inf")
        #: Members that ended in peace since the others last said that they go on.
        self._departed: list[str] = []
        self._postponed = False
        self._saved = self._offloaded = 0
        self._elastic = False
        hints.more["members"] = list(self._members.ids)

    @property
    def due(self) -> float:
        """When there is something to do, whatever happens."""
        return min(self._change.due if self._change else float("inf"), self._mourn_until)

    def look(self, wanted: dict[str, Any]) -> None:
        """See what the engine wants."""
        try:
            self._ask(int(wanted["save"]), int(wanted["offload"]))
            number = int(wanted["number"])
            if number > self._number:
                self._number = number
                self._begin(wanted)
            elif number and self._change is None and "change" in self._hints.more:
                self._hints.news({"change": self._hints.more["change"]})
        except (KeyError, TypeError, ValueError):
            return  # not written by an engine

    def hear(self, words: list[dict[str, Any]]) -> None:
        """Take in what workers say about members."""
        was_over = self._members.over
        for said in words:
            self._members.hear(said)
        if was_over and not self._members.over and self._postponed and not self._departed:
            self._give_up("")  # another training has begun
        if words and not self._elastic and self._members.elastic:
            self._elastic = self._hints.more["elastic"] = True
            self._hints.news({"elastic": True})
            self._gang.tell({"elastic": True})

    def go_on(self) -> None:
        """Do what has become possible, or is overdue."""
        members = self._members
        if members.saved > self._saved:
            self._saved = members.saved
            self._hints.news({"saved_for": self._saved})
        if self._offloaded != members.offload and members.offloaded:
            self._offloaded = members.offload
            self._hints.news({"offloaded": self._offloaded})
        if (self._losses or self._departed) and members.together:
            self._tell_loss()
        elif self._gang.now >= self._mourn_until:
            self._mourn_until = float("inf")
            if not members.over:
                self._gang.stop("exit", "")
        if self._change:
            self._advance(self._change)

    def takes(self, member: str, status: int, loss: WorkerLoss) -> bool:
        """Whether the others go on after the end of a worker as if it had been meant to end."""
        if not member:
            return False
        if self._change:
            try:
                taken = self._change.takes(member, status, loss[1])
            except ChangeFailed as failure:
                self._give_up(str(failure))
                return False
            if not taken and self._change.is_open:
                self._call_off(self._change)
        else:
            taken = status != 0 and self._lose(loss)
        if not taken and not status and not self._change:
            self._see_go(loss[1])
        if taken:
            self._members.forget(member)
            self._gang.part(member)
        return taken

    def mourned(self) -> list[WorkerLoss]:
        """The losses that nobody got over; they come before what followed from them."""
        found, self._losses = self._losses, []
        return found

    def over(self) -> None:
        """The generation ends: nothing is waited for any more."""
        self._change, self._mourn_until = None, float("inf")

    def later(self, seconds: float) -> None:
        """Time stood still for so long."""
        self._mourn_until += seconds
        if self._change:
            self._change.later(seconds)

    def kept(self) -> dict[str, Any]:
        """What is under way, for ``recall``."""
        found = {name: getattr(self, name) for name in _KEPT}
        return found | {"change": self._change.kept() if self._change else None}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on with what was under way."""
        for name in _KEPT:
            setattr(self, name, kept[name])
        if kept["change"]:
            self._change = MemberChange.recall(self._gang, kept["change"])

    def _ask(self, save: int, offload: int) -> None:
        """Pass on what is asked of the job; a full disk means that it does not hear of it."""
        members = self._members
        if save > members.save or offload > members.offload:
            members.save = max(save, members.save)
            members.offload = max(offload, members.offload)
            try:
                members.publish()
            except OSError:
                return

    def _begin(self, wanted: dict[str, Any]) -> None:
        if self._departed or self._members.over:  # it ends before that matters, or goes on
            self._postponed = True
            return
        if self._change or self._losses or not self._gang.is_running:
            self._give_up("")
            return
        try:
            self._change = MemberChange(self._gang, wanted)
            self._change.begin()
        except ChangeFailed as failure:
            self._give_up(str(failure))

    def _advance(self, change: MemberChange) -> None:
        try:
            if not change.advance():
                return
        except TrainingOver:
            self._call_off(change)
            if self._gang.running:
                self._see_go("a worker was done")
            else:
                self._gang.stop("exit", "")
            return
        except ChangeFailed as failure:
            self._give_up(str(failure))
            return
        self._change = None
        self._gang.settle(change.target)
        answer = change.answer()
        self._hints.more |= {"members": answer["members"], "change": answer}
        hit("shim.before-change-record")
        self._hints.news({"change": answer})
        hit("shim.after-change-record")
        self._gang.tell({"world": len(self._members.ids)})

    def _call_off(self, change: MemberChange) -> None:
        """The training is over, most likely: nobody is to join it any more."""
        self._change, self._postponed = None, True
        for member in change.joiners:
            self._gang.part(member)

    def _give_up(self, why: str) -> None:
        """End this generation; the engine starts the next with what it wanted."""
        self._change = None
        if why:
            self._gang.note(f"its size cannot be changed while it runs: {why}; it starts again")
        self._gang.stop("stopped", why)

    def _see_go(self, how: str) -> None:
        """A member is done: whoever is not must not wait for it."""
        if self._leave_out():
            self._departed.append(how)

    def _lose(self, loss: WorkerLoss) -> bool:
        if not self._leave_out():
            return False
        hit("shim.after-loss")
        self._losses.append(loss)
        self._mourn_until = self._gang.now + self._gang.patience["join_s"]
        return True

    def _leave_out(self) -> bool:
        """Publish the members that are left; False if they cannot go on."""
        members = self._members
        left = self._gang.running
        ids = [one for one in members.ids if one in left]
        gone = [one for one in members.ids if one not in left]
        enough = 0 < self._least <= len(ids)
        if not enough or not members.elastic or not self._gang.is_running:
            return False
        try:
            members.change(ids, [*members.lost, *gone])
        except OSError:
            return False
        return True

    def _tell_loss(self) -> None:
        """The others have gone on."""
        why = "; ".join([*self._departed, *(how for _, how in self._losses)])
        self._losses, self._departed, self._mourn_until = [], [], float("inf")
        present = self._gang.present
        self._gang.settle([one for one in self._members.ids if one in present])
        lost = {"members": list(self._members.ids), "why": why[:500]}
        self._hints.more |= {"members": lost["members"], "lost": lost}
        self._hints.news({"lost": lost})
        self._gang.tell({"world": len(self._members.ids)})
        if self._postponed:
            self._give_up("")
