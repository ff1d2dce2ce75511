"""The kit: the tools of which policies are made.

The names in ``__all__`` are public; a policy of yours can rely on them. They are of three sorts:

- an *order* of jobs, and the road between an order and a policy of your own: ``fill``, ``Order``,
  ``Key``, ``displace``, ``may_disturb``;
- a whole *assignment*, for policies that decide about all jobs at once: ``Wish``, ``assign``,
  ``arrange``, ``carry_on``, ``standing``, ``capacity``, ``movable``, ``fits``, ``round_begins``,
  ``skip_rounds``;
- what a policy says and asks: ``resizing``, ``restart_s``, ``switch_s``.

The other modules serve Roost's own policies and may change: ``sizes``, ``speeds``, ``prospects``,
``contenders``, ``reservations``, ``levels``, ``leftovers``, ``solvers``, ``parameter_servers``.
"""

from __future__ import annotations

from typing import TypeVar

from roost.core.controller import Policy
from roost.core.waiting import Key
from roost.policies.kit.assignment import arrange, assign
from roost.policies.kit.costs import restart_s, switch_s
from roost.policies.kit.moves import Wish, capacity, carry_on, movable, standing
from roost.policies.kit.order import Order, displace, fill, may_disturb
from roost.policies.kit.packing import fits
from roost.policies.kit.rounds import round_begins, skip_rounds

__all__ = [
    "Key",
    "Order",
    "Wish",
    "arrange",
    "assign",
    "capacity",
    "carry_on",
    "displace",
    "fill",
    "fits",
    "may_disturb",
    "movable",
    "resizing",
    "restart_s",
    "round_begins",
    "skip_rounds",
    "standing",
    "switch_s",
]

_Policy = TypeVar("_Policy", bound=Policy)


def resizing(policy: _Policy) -> _Policy:
    """Mark a function as a policy that changes the number of workers of running jobs.

    A class says so by ``resizes: ClassVar[bool] = True``.
    """
    policy.resizes = True  # type: ignore[attr-defined]
    return policy
