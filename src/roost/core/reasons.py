"""Why a job is where it is: one cause token, and a sentence that a person can act on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from roost.core.extras import Extras, extra_shortage, extra_text, is_of_every_node
from roost.core.node import Node, Notice, is_other_use, taken
from roost.core.spec import WHOLE, JobId, Resources, Shape

if TYPE_CHECKING:
    from roost.core.ledger import Ledger

#: How many nodes are named in a reason.
_NAMED = 3


class Cause(IntEnum):
    """What a waiting job lacks. The order is that of ``waits`` in a job's record."""

    QUOTA = 0  # its queue is at its limit
    FRAGMENTATION = 1  # enough is free, but in the wrong places
    CAPACITY = 2  # not enough is free
    TURN = 3  # it would fit, but others go first

    @property
    def token(self) -> str:
        """The word users see."""
        return _TOKENS[self]


_TOKENS = {
    Cause.QUOTA: "over-quota",
    Cause.FRAGMENTATION: "fragmentation",
    Cause.CAPACITY: "no-capacity",
    Cause.TURN: "not-its-turn",
}


#: What is said of a line when the policy has nothing to add; ``are`` fits the number of GPUs.
_LACK = {
    Cause.QUOTA: "its queue is at its limit; it asks for {gpus} more",
    Cause.FRAGMENTATION: "{gpus} {are} free, but not where such a gang fits with all it needs",
    Cause.CAPACITY: "{fewer} than {gpus} {are} free",
    Cause.TURN: "{gpus} would be free for it, but others go first",
}
#: The same of jobs that ask for nodes of a pool in which there is none.
NO_MATCH = "no node matches what it asks for"
#: The same of jobs that ask for no GPU.
_LACK_OTHER = {
    Cause.FRAGMENTATION: "no node has free what it needs beside GPUs",
    Cause.TURN: "there would be room for it, but others go first",
}


def gpus(milli: int, kinds: tuple[str, ...] = ()) -> str:
    """An amount of GPUs as people write it: 1 GPU, 0.5 GPU, 2 GPUs of kind A100."""
    of = f" of kind {'|'.join(kinds)}" if kinds else ""
    return f"{milli / WHOLE:g} GPU{'' if 0 < milli <= WHOLE else 's'}{of}"


def are(milli: int) -> str:
    """The verb that goes with so many GPUs."""
    return "is" if 0 < milli <= WHOLE else "are"


def lack(cause: Cause, milli: int, kinds: tuple[str, ...] = (), *, pool: bool = False) -> str:
    """What jobs lack that ask for so much, of one of these kinds if any are named.

    ``pool``: only the nodes of a pool will do for them.
    """
    if pool and cause is Cause.CAPACITY:
        return f"{lack(cause, milli, kinds)} on the nodes that match what it asks for"
    if not milli and cause in _LACK_OTHER:
        return _LACK_OTHER[cause]
    of = kinds if cause is Cause.CAPACITY else ()
    if cause is Cause.CAPACITY and milli == WHOLE:
        return f"no {gpus(milli, of).removeprefix('1 ')} is free"
    fewer = "less" if milli < WHOLE else "fewer"
    return _LACK[cause].format(gpus=gpus(milli, of), are=are(milli), fewer=fewer)


def other_way(ledger: Ledger, need: Resources) -> str:
    """Where a share would fit were it not for the way in which others share there; or nothing."""
    if need.share_milli == WHOLE:
        return ""
    for node in ledger.select(ledger.sharing & ledger.up):
        for gpu, device in node.shared.items():
            if device.way is not need.way and device.left_milli >= need.share_milli:
                room = f"GPU {gpu} of node {node.id} has {gpus(device.left_milli)} to spare"
                return f"{room}, but is shared the {device.way} way"
    return ""


def other_use(ledger: Ledger, need: Resources) -> str:
    """A node with GPUs that are free, and given out only whole or only shared; or nothing."""
    if not need.gpus:
        return ""
    for node in ledger.select(ledger.eligible(need)):
        if not node.spec.mixed and is_other_use(node, need) and node.shown_milli >= need.gpu_milli:
            whole = need.share_milli == WHOLE
            used = "a share of one is" if whole else "a whole one is"
            serves = "shares of GPUs" if whole else "whole GPUs"
            return f"node {node.id} serves {serves} while {used} in use there"
    return ""


def short_of(ledger: Ledger, shape: Shape) -> str:
    """What beside GPUs, CPUs and memory nodes are short of that would do for a gang; or nothing."""
    told: dict[str, None] = {}
    for need in (shape.resources, *(role.resources for role in shape.roles)):
        if need.extras:
            told.update(dict.fromkeys(_shortages(ledger, need)))
    return "; ".join(islice(told, _NAMED))


def _shortages(ledger: Ledger, need: Resources) -> Iterator[str]:
    """The most frequent shortages first."""
    counts: Counter[tuple[str, bool]] = Counter()
    for node in ledger.select(ledger.eligible(need)):
        extras: Extras = node.spec.extras
        if name := extra_shortage(extras, node.extras_used, need.extras):
            counts[name, is_of_every_node(extras, name)] += 1
    for (name, exclusive), count in counts.most_common():
        nodes = "1 node" if count == 1 else f"{count} nodes"
        if exclusive:
            yield f"{name} is taken on {nodes}"
        else:
            amount = dict(need.extras)[name]
            has = "has" if count == 1 else "have"
            if amount == 1:
                yield f"{nodes} {has} no {name} free"
            else:
                fewer = "less" if amount >= 1 << 20 else "fewer"
                yield f"{nodes} {has} {fewer} than {extra_text(name, amount)} free"


def kept_back(ledger: Ledger, shape: Shape) -> str:
    """Nodes that would suit a gang and take nothing new, and why; or nothing."""
    wanted = (shape.resources, *(role.resources for role in shape.roles))
    found = [
        node
        for node in ledger.cordoned.values()
        if node.here and any(ledger.suits(node, need) for need in wanted)
    ]
    told = [_notice(node) for node in found[:_NAMED]]
    if more := len(found) - len(told):
        told.append(f"{more} more nodes take nothing new")
    return "; ".join(told)


def too_late(ledger: Ledger, shape: Shape, now: float, lasts_s: float) -> str:
    """Maintenance that a gang which lasts so long would run into; or nothing."""
    for window in ledger.windows:
        node = ledger.nodes[window.node]
        if (
            node.up
            and window.starts_at < now + taken(lasts_s)
            and ledger.suits(node, shape.resources)
        ):
            known = "it is expected to last longer" if lasts_s < math.inf else "how long is unknown"
            begins = f"node {node.id} has maintenance in {window.starts_at - now:.0f} s"
            return f"{begins}{f' ({window.reason})' if window.reason else ''}, and {known}"
    return ""


def _notice(node: Node) -> str:
    notice = node.cordon or Notice(0.0)
    doing = "is being drained" if node.draining else "is cordoned"
    by = f" by {notice.user}" if notice.user else ""
    return f"node {node.id} {doing}{by}{f': {notice.reason}' if notice.reason else ''}"


class Reason(NamedTuple):
    """Why a job waits; ``starts_at`` is until when at the latest, where that was promised."""

    cause: Cause
    text: str
    starts_at: float | None = None


class Explanation(NamedTuple):
    """A reason with the first of the jobs that go before it, and how many there are."""

    reason: Reason
    ahead: tuple[JobId, ...]
    ahead_count: int
