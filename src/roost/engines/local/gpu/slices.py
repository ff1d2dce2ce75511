"""Slices of time: which tenant may use a shared device, and for how long, without a clock.

Each tenant is entitled to a part of the time, which follows from its share, its policy and which
others are active:

    fixed        its share, whether the others are busy or idle; never more
    equal        what fixed tenants left, divided among those that run
    best-effort  what is left, the parts of idle owners included

Parts that no tenant is entitled to stay idle. A tenant with a part ``p`` is owed ``p * t`` of the
time ``t`` that passes, and pays for the time that it had; the one that is owed most is next. So
whatever a turn really took, the error stays within one turn and does not grow.

Best-effort tenants are promised nothing against each other and have their turn together: two that
leave gaps fill each other's. Idle tenants need no turn: they are left unlocked, which costs
nothing and lets them show that they are back.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

#: The shortest turn. Changing turns costs 2 ms or so.
BASE_S = 0.1
#: The longest turn: what an unlucky tenant waits for another.
LONGEST_S = 1.0
#: How long nothing is looked at while one tenant has the device to itself.
ALONE_S = 0.25
_WHOLE = 1000
_LEAST = 1e-9

FIXED, EQUAL, BEST_EFFORT = "fixed", "equal", "best-effort"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a tenant of a device may ask for."""

    share_milli: int
    qos: str = FIXED


class Turn(NamedTuple):
    """The holders of the device now, and for how long; none while it must stay idle.

    ``free``: all that are unlocked meanwhile, the holders and those that are idle anyway.
    """

    holders: frozenset[str]
    length_s: float
    free: frozenset[str]


#: Has a turn: a tenant alone, all best-effort ones together, or none.
_Party = frozenset[str]
_NONE: _Party = frozenset()


class Slices:
    """The turns of one device."""

    def __init__(self, base_s: float = BASE_S) -> None:
        self._base_s = base_s
        self._claims: dict[str, Claim] = {}
        self._active: dict[str, bool] = {}
        self._owed: dict[_Party, float] = {}
        self._parts: dict[_Party, float] = {}

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that share the device."""
        return frozenset(self._claims)

    def part(self, tenant: str) -> float:
        """The part of the time that a tenant may use the device now."""
        return sum(part for party, part in self._parts.items() if tenant in party)

    @property
    def debt_s(self) -> float:
        """How far the turns are from what each tenant is entitled to, at most."""
        return max(map(abs, self._owed.values()), default=0.0)

    def join(self, tenant: str, claim: Claim) -> None:
        """A tenant comes, or asks for something else; it counts as active until seen idle."""
        if self._claims.get(tenant) != claim:
            self._claims[tenant] = claim
            self._active.setdefault(tenant, True)
            self._settle()

    def leave(self, tenant: str) -> None:
        """A tenant is gone."""
        if self._claims.pop(tenant, None) is not None:
            del self._active[tenant]
            self._settle()

    def found(self, tenant: str, *, active: bool) -> None:
        """A tenant was seen working, or idle."""
        if tenant in self._claims and self._active[tenant] != active:
            self._active[tenant] = active
            self._settle()

    def turn(self) -> Turn:
        """The next turn: of the party that is owed most."""
        idle = frozenset(name for name, active in self._active.items() if not active)
        if not self._parts:
            return Turn(_NONE, ALONE_S, idle)
        party = max(self._parts, key=lambda one: (self._owed[one], sorted(one)))
        length = ALONE_S if len(self._parts) == 1 else self._length(party)
        return Turn(party, length, idle | party)

    def passed(self, holders: frozenset[str], had_s: float) -> None:
        """A turn is over: its holders had the device for so long."""
        if holders not in self._parts:
            return  # a tenant came or went meanwhile
        bound = 2 * max(LONGEST_S, had_s)  # debts of a tenant that was away are not paid for ever
        for party, part in self._parts.items():
            self._owed[party] += part * had_s
        self._owed[holders] -= had_s
        for party, owed in self._owed.items():
            self._owed[party] = min(max(owed, -bound), bound)

    def _length(self, party: _Party) -> float:
        least = min(self._parts.values())
        return min(max(self._base_s * self._parts[party] / least, self._base_s), LONGEST_S)

    def _settle(self) -> None:
        """Work out the parts again; debts stay, but their sum is 0 again."""
        active = {name for name, active in self._active.items() if active}
        self._parts = entitled(self._claims, active)
        owed = {party: self._owed.get(party, 0.0) for party in self._parts}
        mean = sum(owed.values()) / len(owed) if owed else 0.0
        self._owed = {party: value - mean for party, value in owed.items()}


def entitled(claims: Mapping[str, Claim], active: AbstractSet[str]) -> dict[frozenset[str], float]:
    """The part of the time of each party that runs; with what stays idle they add up to 1.

    Equal tenants divide what is not kept for fixed ones with the best-effort ones that run; these
    get all that is left then. Where more was promised than there is, all fixed ones give way alike.
    """
    running = {name: claim for name, claim in claims.items() if name in active}
    if not running:
        return {}
    promised = sum(c.share_milli for c in claims.values() if c.qos == FIXED) / _WHOLE
    fixed = {n: c.share_milli / _WHOLE for n, c in running.items() if c.qos == FIXED}
    equal = [name for name, claim in running.items() if claim.qos == EQUAL]
    eager = frozenset(name for name, claim in running.items() if claim.qos == BEST_EFFORT)
    crowd = max(sum(fixed.values()), 1.0)
    parts = {frozenset({name}): part / crowd for name, part in fixed.items()}
    each = max(1.0 - promised, 0.0) / max(len(equal) + len(eager), 1)
    parts |= {frozenset({name}): each for name in equal}
    parts[eager] = 1.0 - sum(parts.values())
    return {party: part for party, part in parts.items() if part > _LEAST}
