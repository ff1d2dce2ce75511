"""How the members of a generation come and go: by order, or by loss.

An order is given with a number; given twice it is carried out once. A member that dies is left out,
and the others go on without it, if the job can do that and enough are left. So is one that ends in
peace, although most likely all are about to. What became of any of this is written down before it
is told: a host that was not there reads it later.
"""

from __future__ import annotations

from roost.elastic.change import ChangeFailed, MemberChange, TrainingOver
from roost.failpoints import hit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from roost.elastic.host import NewsChannel, WorkerHost

#: What a successor has to know, besides the change that is under way, and the names under which it
#: is kept; an operator may find what an older version of Roost kept.
_KEPT = {
    **{name: name for name in ("_number", "_losses", "_departed", "_postponed")},
    **{name: name for name in ("_saved", "_offloaded", "_elastic")},
    "_losses_due": "_mourn_until",
}
#: How a worker ended, for the record, and in words.
WorkerLoss = tuple[list[object], str]


class Turnover:
    """Decides how members change; ``host`` starts and ends workers, ``news`` takes the outcome.

    1. ``look`` reads what is wanted. A higher number begins a change; wishes to save or to leave
       the GPU are passed on to the members.
    2. ``hear`` takes in what members say, ``takes`` how one of them ended.
    3. ``go_on`` does what has become possible, or is overdue. The host calls it after each of the
       above and at ``due``, from one thread.
    4. Members that end are left out of the next version. Until the others say that they train with
       it, the loss is pending: if they never do, it is the end of the generation, and the first
       loss is its cause.
    """

    def __init__(self, host: WorkerHost, news: NewsChannel, least: int) -> None:
        self._host, self._members, self._news, self._least = host, host.members, news, least
        self._change: MemberChange | None = None
        self._number = 0
        #: Losses after which the others do not train again yet, and until when they may.
        self._losses: list[WorkerLoss] = []
        self._losses_due = float("inf")
        #: Members that ended in peace since the others last said that they go on.
        self._departed: list[str] = []
        self._postponed = False
        self._saved = self._offloaded = 0
        self._elastic = False
        news.facts["members"] = list(self._members.ids)

    @property
    def due(self) -> float:
        """When there is something to do, whatever happens."""
        return min(self._change.due if self._change else float("inf"), self._losses_due)

    def look(self, wanted: dict[str, Any]) -> None:
        """See what is wanted; the same order again is answered again."""
        try:
            self._ask(int(wanted["save"]), int(wanted["offload"]))
            number = int(wanted["number"])
            if number > self._number:
                self._number = number
                self._begin(wanted)
            elif number and self._change is None and "change" in self._news.facts:
                self._news.announce({"change": self._news.facts["change"]})
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
            self._elastic = self._news.facts["elastic"] = True
            self._news.announce({"elastic": True})
            self._host.report({"elastic": True})

    def go_on(self) -> None:
        """Do what has become possible, or is overdue."""
        members = self._members
        if members.saved > self._saved:
            self._saved = members.saved
            self._news.announce({"saved_for": self._saved})
        if self._offloaded != members.offload and members.offloaded:
            self._offloaded = members.offload
            self._news.announce({"offloaded": self._offloaded})
        if (self._losses or self._departed) and members.together:
            self._tell_loss()
        elif self._host.now >= self._losses_due:
            self._losses_due = float("inf")
            if not members.over:
                self._host.stop("exit", "")
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
            self._leave_behind(loss[1])
        if taken:
            self._members.forget(member)
            self._host.remove(member)
        return taken

    def pending_losses(self) -> list[WorkerLoss]:
        """Losses that the others did not get over; they come before what followed from them."""
        found, self._losses = self._losses, []
        return found

    def over(self) -> None:
        """The generation ends: nothing is waited for any more."""
        self._change, self._losses_due = None, float("inf")

    def later(self, seconds: float) -> None:
        """The workers were frozen for so long: nothing is overdue because of it."""
        self._losses_due += seconds
        if self._change:
            self._change.later(seconds)

    def dump(self) -> dict[str, Any]:
        """What is under way, for ``load``."""
        found = {kept: getattr(self, name) for name, kept in _KEPT.items()}
        return found | {"change": self._change.dump() if self._change else None}

    def load(self, kept: dict[str, Any]) -> None:
        """Go on with what was under way."""
        for name, key in _KEPT.items():
            setattr(self, name, kept[key])
        if kept["change"]:
            self._change = MemberChange.load(self._host, kept["change"])

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
        if self._change or self._losses or not self._host.is_running:
            self._give_up("")
            return
        try:
            self._change = MemberChange(self._host, wanted)
            self._change.begin()
        except ChangeFailed as failure:
            self._give_up(str(failure))

    def _advance(self, change: MemberChange) -> None:
        try:
            if not change.advance():
                return
        except TrainingOver:
            self._call_off(change)
            if self._host.running:
                self._leave_behind("a worker was done")
            else:
                self._host.stop("exit", "")
            return
        except ChangeFailed as failure:
            self._give_up(str(failure))
            return
        self._change = None
        self._host.assign_ranks(change.target)
        answer = change.answer()
        self._news.facts |= {"members": answer["members"], "change": answer}
        # The record first, then the message: a server that dies on the message finds the record.
        hit("shim.before-change-record")
        self._news.announce({"change": answer})
        hit("shim.after-change-record")
        self._host.report({"world": len(self._members.ids)})

    def _call_off(self, change: MemberChange) -> None:
        """The training is over, most likely: no member is to join it any more."""
        self._change, self._postponed = None, True
        for member in change.joiners:
            self._host.remove(member)

    def _give_up(self, why: str) -> None:
        """End this generation; the host starts the next with what it wanted."""
        self._change = None
        if why:
            self._host.note(f"its size cannot be changed while it runs: {why}; it starts again")
        self._host.stop("stopped", why)

    def _leave_behind(self, how: str) -> None:
        """A member is done: the others must not wait for it."""
        if self._leave_out():
            self._departed.append(how)

    def _lose(self, loss: WorkerLoss) -> bool:
        if not self._leave_out():
            return False
        hit("shim.after-loss")
        self._losses.append(loss)
        self._losses_due = self._host.now + self._host.patience["join_s"]
        return True

    def _leave_out(self) -> bool:
        """Publish the members that are left; False if they cannot go on."""
        members = self._members
        left = self._host.running
        ids = [one for one in members.ids if one in left]
        gone = [one for one in members.ids if one not in left]
        enough = 0 < self._least <= len(ids)
        if not enough or not members.elastic or not self._host.is_running:
            return False
        try:
            members.change(ids, [*members.lost, *gone])
        except OSError:
            return False
        return True

    def _tell_loss(self) -> None:
        """The others have gone on."""
        why = "; ".join([*self._departed, *(how for _, how in self._losses)])
        self._losses, self._departed, self._losses_due = [], [], float("inf")
        present = self._host.present
        self._host.assign_ranks([one for one in self._members.ids if one in present])
        lost = {"members": list(self._members.ids), "why": why[:500]}
        self._news.facts |= {"members": lost["members"], "lost": lost}
        self._news.announce({"lost": lost})
        self._host.report({"world": len(self._members.ids)})
        if self._postponed:
            self._give_up("")
