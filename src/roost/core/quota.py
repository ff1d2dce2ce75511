"""What a queue was promised of one resource, and how much of it may change hands.

Resources are named as users name them: ``gpu`` is all GPUs, ``gpu:H100`` those of one kind,
``gpu:*`` those of all kinds that no queue of the tree names, ``cpu``, ``memory``, and extras by
their own names. Amounts are in the core's units: thousandths of GPUs and CPUs, MiB of memory,
pieces of everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from roost.errors import InvalidSpec

GPU: Final = "gpu"
CPU: Final = "cpu"
MEMORY: Final = "memory"
#: What the name of a kind of GPU begins with.
KIND: Final = "gpu:"
OTHER_KINDS: Final = "gpu:*"


class Quota(NamedTuple):
    """A promise of one resource.

    ``borrowing`` is the most that a queue may have above ``nominal``, ``lending`` the most that
    others may have of it; None: no bound but what there is.
    """

    resource: str
    nominal: int
    borrowing: int | None = None
    lending: int | None = None


def check_quotas(quotas: Iterable[Quota], whose: str) -> None:
    """Refuse promises that contradict themselves; raises InvalidSpec."""
    seen: set[str] = set()
    for quota in quotas:
        name = quota.resource
        if not name or name in seen:
            raise InvalidSpec(f"{whose}: quotas name each resource once, got {name!r} again")
        seen.add(name)
        if name == GPU:
            raise InvalidSpec(f"{whose}: what it is promised of all GPUs is its quota and limit")
        if name == KIND:
            raise InvalidSpec(f"{whose}: a kind of GPU is missing after {KIND!r}")
        for amount in quota[1:]:
            if isinstance(amount, int) and amount < 0:
                raise InvalidSpec(f"{whose}: amounts of {name} must not be negative, got {amount}")
        if quota.lending is not None and quota.lending > quota.nominal:
            raise InvalidSpec(
                f"{whose}: it cannot lend {quota.lending} of {name}, it has {quota.nominal}"
            )
