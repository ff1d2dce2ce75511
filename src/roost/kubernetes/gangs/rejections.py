"""Owners whose pods a kubelet rejected: they wait, longer each time, and shun the node meanwhile.

A kubelet looks at a pod once more before it runs it, and fails it if the node does not have what
was promised. Its owner makes another at once, which would go to the same node and be rejected as
fast as requests go. So the next pods of that owner are placed after a pause, which doubles with
every round of rejections; the node that rejected them is shunned for twice as long. A pod that runs
there ends it.

All is in memory, and bounded: a new leader learns it anew.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from roost.core import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.pods import created_at, is_rejected, node_of, phase_of
from roost.kubernetes.objects.values import text

#: The first pause and the longest one, in seconds. Rejections longer ago than that are forgotten.
_FIRST_S, _LONGEST_S = 2.0, 300.0
_FORGET_S = 2 * _LONGEST_S
#: So many owners are remembered, and so many nodes of each.
_OWNERS, _NODES = 4096, 64
#: How much is repeated of what a kubelet said.
_TOLD = 200


class Pause(NamedTuple):
    """Until when pods of an owner wait, why, and the nodes that they shun."""

    until: float = 0.0
    why: str = ""
    shunned: tuple[NodeId, ...] = ()
    #: When they shun one node less; 0: never.
    changes_at: float = 0.0


@dataclass(slots=True)
class _Rejected:
    """What became of an owner's pods. ``nodes`` tells until when each node is shunned."""

    rounds: int = 0
    until: float = 0.0
    why: str = ""
    nodes: dict[NodeId, float] = field(default_factory=dict)


class Rejections:
    """Owners whose pods were rejected."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, _Rejected] = OrderedDict()

    def __len__(self) -> int:
        return len(self._owners)

    def observe(self, old: Object | None, new: Object | None, now: float) -> bool:
        """A pod came, or changed: perhaps it runs, or was rejected. Whether a pause begins."""
        if new is None or (old is not None and phase_of(old) == phase_of(new)):
            return False
        owner, node = _owner_of(new), node_of(new)
        if owner is None or node is None:
            return False
        if is_rejected(new):
            return (old is not None or _is_recent(new, now)) and self._rejected(
                owner, node, new, now
            )
        if self._owners and phase_of(new) in ("Running", "Succeeded"):
            self._ran(text(owner, "uid"), node, now)
        return False

    def pause(self, pod: Object, now: float) -> Pause:
        """What a pod that waits has to respect."""
        if not self._owners:
            return NO_PAUSE
        owner = _owner_of(pod)
        found = self._owners.get(text(owner, "uid")) if owner is not None else None
        if found is None:
            return NO_PAUSE
        shunned = tuple(sorted(node for node, until in found.nodes.items() if until > now))
        if now >= found.until and not shunned:
            return NO_PAUSE
        changes_at = min((found.nodes[node] for node in shunned), default=0.0)
        return Pause(found.until, found.why, shunned, changes_at)

    def _rejected(self, owner: Object, node: NodeId, pod: Object, now: float) -> bool:
        uid = text(owner, "uid")
        found = self._owners.setdefault(uid, _Rejected())
        self._owners.move_to_end(uid)
        if now > found.until + _FORGET_S:
            found.rounds = 0
        begins = now >= found.until
        if begins:  # all that are rejected in one pause are one round
            found.rounds += 1
            found.until = now + _pause_s(found.rounds)
        pause_s = _pause_s(found.rounds)
        found.nodes[node] = now + 2 * pause_s
        status = pod["status"]
        said = text(status, "message") or text(status, "reason")
        found.why = (
            f"node {node} rejected a pod of {text(owner, 'kind')} {text(owner, 'name')}"
            f" ({said[:_TOLD]}); the next are placed after a pause of {pause_s:.0f} s"
        )
        if len(found.nodes) > _NODES:
            del found.nodes[next(iter(found.nodes))]
        if len(self._owners) > _OWNERS:
            self._owners.popitem(last=False)
        return begins

    def _ran(self, uid: str, node: NodeId, now: float) -> None:
        found = self._owners.get(uid)
        if found is None:
            return
        found.nodes.pop(node, None)
        found.until = min(found.until, now)
        if not any(until > now for until in found.nodes.values()):
            del self._owners[uid]


#: Nothing was rejected.
NO_PAUSE = Pause()


def _pause_s(rounds: int) -> float:
    return min(_FIRST_S * 2.0 ** min(rounds - 1, 32), _LONGEST_S)


def _is_recent(pod: Object, now: float) -> bool:
    """Whether a pod that was found rejected was made of late; nonsense is not."""
    try:
        made = created_at(pod)
    except InvalidSpec:
        return False
    return made is not None and now - made < _LONGEST_S


def _owner_of(pod: Object) -> Object | None:
    """What makes another pod in place of one that failed; None: nothing does."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller") is True and isinstance(owner.get("uid"), str):
            return dict(owner)
    return None
