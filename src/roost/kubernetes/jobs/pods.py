"""Making objects that may be there already: a second request finds what the first one made.

Names are the same whoever makes an object, so that it is there is as good as having made it, if it
is this very Job's. What an earlier Job of the same name left behind is removed; what is anybody
else's stays, and the job is told what is in its way.
"""

from __future__ import annotations

import asyncio
import random

from roost.errors import Conflict, NotFound, Retryable
from roost.kubernetes.client.kinds import JOBS, Object, ResourceKind
from roost.kubernetes.client.lease import Deposed
from roost.kubernetes.jobs.blueprint import JobOwner
from roost.kubernetes.operator.workload import OperatorContext

_PAUSE_S = (0.2, 5.0)


async def ensure(
    context: OperatorContext, owner: JobOwner, kind: ResourceKind, body: Object
) -> Object:
    """The object, made now or before.

    Raises Conflict where somebody else's is in the way, Retryable where the outcome is not known,
    or what is in the way is about to go.
    """
    name = body["metadata"]["name"]
    try:
        return await context.binder.write(lambda: context.api.create(kind, body, owner.namespace))
    except Deposed:
        raise
    except Conflict:
        pass
    try:
        found = await context.api.get(kind, name, owner.namespace)
    except NotFound:
        raise Retryable(f"{kind.kind} {name} has just gone", _PAUSE_S[0]) from None
    if owner.owns(found):
        if found["metadata"].get("deletionTimestamp"):
            raise Retryable(f"{kind.kind} {name} is about to go", 1.0)
        return found
    if not _left_behind(owner, found):
        raise Conflict(f"a {kind.kind} named {name} is there that is not this job's")
    uid = found["metadata"]["uid"]
    await context.binder.write(lambda: context.api.delete(kind, name, owner.namespace, uid=uid))
    raise Retryable(f"{kind.kind} {name} of an earlier job is about to go", _PAUSE_S[0])


async def pause(error: Retryable, tried: int) -> None:
    """Wait before the next try: what the server says, or longer each time."""
    longest = min(_PAUSE_S[0] * 2.0 ** min(tried, 10), _PAUSE_S[1])
    await asyncio.sleep(max(min(error.after, _PAUSE_S[1]), longest) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def _left_behind(owner: JobOwner, found: Object) -> bool:
    """Whether an object belonged to an earlier Job of the same name."""
    return any(
        one.get("apiVersion") == JOBS.api_version
        and one.get("kind") == JOBS.kind
        and one.get("name") == owner.name
        for one in found["metadata"].get("ownerReferences") or ()
    )
