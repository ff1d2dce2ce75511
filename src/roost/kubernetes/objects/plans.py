"""What Roost writes on the pods that it binds, and how it is read back.

    roost.dev/gpus      "0,3"        the devices of this pod on its node
    roost.dev/seat      "worker-3"   its place in the gang
    roost.dev/attempt   "2"          the run that it belongs to
    roost.dev/plan      JSON         where the whole gang goes

Whoever finds one bound pod of a gang knows from the plan where all others belong, and can complete
what another began. A plan is a list of parts, ``[node, devices, workers, role, share]``, where the
end of a part is left out as long as it says nothing: one worker, main role, whole devices.

Whoever may change a pod may write these, too: what is read is bounded, and believed only as far as
it fits the pods that there are.
"""

from __future__ import annotations

import json
from typing import Any

from roost.core.allocation import WORKER, Allocation, Part
from roost.core.spec import WHOLE, NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.objects.nodes import MOST_DEVICES

GPUS = "roost.dev/gpus"
SEAT = "roost.dev/seat"
ATTEMPT = "roost.dev/attempt"
PLAN = "roost.dev/plan"

_DEFAULTS = (1, WORKER, WHOLE)
#: The longest text that annotations can be, and more workers than it could name nodes for.
_LONGEST = 262_144
_MOST_WORKERS = 100_000


def encode_plan(allocation: Allocation) -> str:
    """An allocation as the text of an annotation."""
    return json.dumps([_encoded(part) for part in allocation.parts], separators=(",", ":"))


def decode_plan(text: str) -> Allocation:
    """The allocation that an annotation tells of; raises InvalidSpec where it is none of ours."""
    if len(text) > _LONGEST:
        raise InvalidSpec(f"annotation {PLAN} is too long")
    try:
        parts = tuple(_decoded(data) for data in json.loads(text))
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise InvalidSpec(f"annotation {PLAN} cannot be read: {error}") from None
    if not 0 < sum(part.workers for part in parts) <= _MOST_WORKERS:
        raise InvalidSpec(f"annotation {PLAN} is of no workers, or of too many")
    return Allocation(parts)


def encode_gpus(gpus: tuple[int, ...]) -> str:
    """Devices as the text of an annotation."""
    return ",".join(map(str, gpus))


def _encoded(part: Part) -> list[Any]:
    tail: list[Any] = [part.workers, part.role, part.share_milli]
    for default in reversed(_DEFAULTS):
        if tail[-1] != default:
            break
        tail.pop()
    return [part.node, list(part.gpus), *tail]


def _decoded(data: list[Any]) -> Part:
    node, gpus, *tail = data
    workers, role, share_milli = tail + list(_DEFAULTS[len(tail) :])
    if not isinstance(node, str) or not isinstance(role, str):
        raise TypeError("senseless names")
    if not all(_within(gpu, 0, MOST_DEVICES - 1) for gpu in gpus) or not (
        _within(workers, 1, _MOST_WORKERS) and _within(share_milli, 0, WHOLE)
    ):
        raise ValueError("senseless amounts")
    return Part(NodeId(node), tuple(gpus), share_milli, workers, role)


def _within(number: object, least: int, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most
