"""Slices of time: which tenant may use a shared device, and for how long, without a clock.

A tenant that uses less than its part is *light*: it is never locked, so its answers are as quick
as the plain driver makes them. The others have turns, one at a time. Each is entitled to a part of
the time, which follows from its share, its policy and what the light ones use:

    fixed        its share, whether the others are busy or idle; never more
    equal        what fixed tenants left, divided among those that run
    best-effort  the same, and what fixed tenants do not use

Parts that no tenant is entitled to stay idle. A tenant with a part ``p`` is owed ``p * t`` of the
time ``t`` that passes, and pays for the time that it had; the one that is owed most is next. So
whatever a turn really took, the error stays within one turn and does not grow. Who had the time:

    a turn                the one that has it, less what light tenants used meanwhile
    a change of turns     those that run, in equal parts: the one that is being stopped still works,
                          and the driver divides the device evenly
    a light tenant        what it used, by a meter

A light tenant that has used up what it is owed, or that takes all that a crowded device leaves it,
gets turns like the others. One whose turns stay half empty becomes light: where several leave gaps,
the driver lets them fill each other's. A fixed tenant whose turns are full is *tried* as a light
one now and then: what comes to a service while it is locked waits, and fills turns that it would
not need otherwise. A trial ends as soon as its tenant is seen to take all that it can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

#: The shortest turn. Changing turns costs 2 ms or so, and while a step of the last one is still
#: under way the driver divides the device, which costs some percent. Who needs to answer at once is
#: light, and does not wait for turns.
BASE_S = 0.2
#: The longest turn: what an unlucky tenant waits for another.
LONGEST_S = 1.0
#: How long nothing is looked at while one tenant has the device to itself.
ALONE_S = 0.25
_WHOLE = 1000
_LEAST, _LITTLE = 1e-9, 1e-6
#: Parts count as no smaller when the length of turns is worked out.
_SMALLEST = 0.1

#: A tenant that has turns is idle, or light, if it works less than this part of them.
_IDLE = 0.05
_LIGHT = 0.75
#: A light tenant has turns when it is so far over what it is owed; it saves up no more than this.
_OVER_S = 0.25
_SAVED_S = 0.5
#: From which use on a device is crowded, and how much of what it could have there a tenant must
#: take for how long to be thought kept from more: services have ups and downs.
_CROWDED, _NEARLY, _KEPT_S = 0.85, 0.85, 4.0
#: What had to wait for a turn may drain before a trial counts: for this part of the time since the
#: last one, because a service that was tried in vain may only have had too much of it.
_DRAIN, _LONGEST_DRAIN_S = 0.1, 3.0
#: From when on a trial may end, and when it does; what a tenant may save up meanwhile, which had
#: less than its part before.
_SHORTEST_TRIAL_S, _TRIAL_S = 0.5, 2.0
_SAVED_IN_TRIAL_S = 2.0
#: Over how long use is averaged, for how long a tenant with half-empty turns may be crowded, and
#: how long one stays in turns that was over its part or tried in vain: so much longer each time.
_MEAN_S = 1.0
_CALM_S = 30.0
_PATIENCE_S, _LONGER = 5.0, 4.0
_LONGEST_PATIENCE_S = 80.0

FIXED, EQUAL, BEST_EFFORT = "fixed", "equal", "best-effort"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a tenant of a device may ask for."""

    share_milli: int
    qos: str = FIXED


class Turn(NamedTuple):
    """The holder of the device now, and for how long; None while it must stay idle.

    ``free``: all that are unlocked meanwhile, the holder and those that are never locked.
    """

    holder: str | None
    length_s: float
    free: frozenset[str]


@dataclass(slots=True)
class _Window:
    """What a light tenant used of the device lately, and what it could have used."""

    seen_s: float = 0.0
    used_s: float = 0.0
    could_s: float = 0.0

    def add(self, length_s: float, used_s: float, could_s: float) -> None:
        """Count so much time."""
        self.seen_s += length_s
        self.used_s += used_s
        self.could_s += could_s

    @property
    def is_full(self) -> bool:
        """Whether it took all that there was for it."""
        return self.used_s >= _NEARLY * self.could_s > 0


@dataclass(slots=True)
class _Account:
    """What a tenant is owed, and what is known of its work; times are of the device's own."""

    claim: Claim
    owed_s: float = 0.0
    light: bool = False
    rate: float = 0.0
    absent: bool = False
    on_trial: bool = False
    window: _Window = field(default_factory=_Window)
    trial_at_s: float = 0.0
    light_since_s: float = 0.0
    turns_until_s: float = 0.0
    calm_until_s: float = 0.0
    patience_s: float = _PATIENCE_S


class Slices:
    """The turns of one device."""

    def __init__(self, base_s: float = BASE_S) -> None:
        self._base_s = base_s
        self._accounts: dict[str, _Account] = {}
        self._parts: dict[str | None, float] = {}
        self._idle_owed_s = 0.0
        self._load = 0.0
        self._now_s = 0.0

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that share the device."""
        return frozenset(self._accounts)

    @property
    def light(self) -> frozenset[str]:
        """The tenants that are never locked now."""
        return frozenset(name for name, one in self._accounts.items() if one.light)

    def part(self, tenant: str) -> float:
        """The part of the time that a tenant may use the device now."""
        account = self._accounts.get(tenant)
        if account is None:
            return 0.0
        return self._level(tenant) if account.light else self._parts.get(tenant, 0.0)

    @property
    def debt_s(self) -> float:
        """How far the turns are from what each tenant is entitled to, at most."""
        return max((abs(self._owed(party)) for party in self._parts), default=0.0)

    def join(self, tenant: str, claim: Claim) -> None:
        """A tenant comes, or asks for something else; it has turns until it is seen to be light."""
        account = self._accounts.get(tenant)
        if account is None:
            self._accounts[tenant] = _Account(claim, trial_at_s=self._now_s + _PATIENCE_S)
        elif account.claim != claim:
            account.claim = claim
        else:
            return
        self._settle()

    def leave(self, tenant: str) -> None:
        """A tenant is gone."""
        if self._accounts.pop(tenant, None) is not None:
            self._settle()

    def absent(self, tenant: str) -> None:
        """A tenant has nothing on the device that could use it."""
        account = self._accounts.get(tenant)
        if account is not None and not account.light:
            account.absent = True
            self._lighten(account, 0.0)

    def present(self, tenant: str) -> None:
        """A tenant has something on the device now: it begins with turns, as others do."""
        account = self._accounts.get(tenant)
        if account is not None and account.absent:
            account.absent = account.light = False
            account.trial_at_s = self._now_s + account.patience_s
            self._settle()

    def judged(self, tenant: str, used_s: float, free_s: float) -> None:
        """How much a tenant that has turns used of so much time of its own."""
        account, part = self._accounts.get(tenant), self._parts.get(tenant)
        if account is None or account.light or part is None:
            return
        rate = part * used_s / free_s
        if used_s < _IDLE * free_s:
            self._lighten(account, rate)
        elif used_s < _LIGHT * free_s and self._now_s >= account.turns_until_s:
            # Its turns are half empty: a crowded device alone is no reason to give it some again.
            account.calm_until_s = self._now_s + _CALM_S
            self._lighten(account, rate)
        elif self._may_be_tried(account):
            self._lighten(account, rate)
            account.on_trial = True

    def _may_be_tried(self, account: _Account) -> bool:
        if account.claim.qos != FIXED or self._now_s < account.trial_at_s:
            return False
        # One at a time: two that are tried together would keep each other from their parts.
        return not any(one.on_trial for one in self._accounts.values())

    def turn(self, stopping: AbstractSet[str] = frozenset()) -> Turn:
        """The next turn: of the one that is owed most; none that is ``stopping`` has one."""
        parties = [party for party in self._parts if party is None or party not in stopping]
        if not parties:
            return Turn(None, self._base_s if self._parts else ALONE_S, self.light)
        party = max(parties, key=lambda one: (self._owed(one), one or ""))
        length_s = ALONE_S if len(self._parts) == 1 else self._length(party)
        return Turn(party, length_s, self.light | ({party} if party is not None else set()))

    def passed(
        self, length_s: float, ran: Mapping[str, float], used: Mapping[str, float] | None = None
    ) -> None:
        """So much time has passed; ``ran``: the part of it for which each that has turns ran.

        ``used``: what light tenants used of the device meanwhile.
        """
        if length_s <= 0:
            return
        self._now_s += length_s
        used = used or {}
        others_s = sum(used.values())
        self._credit(length_s, others_s)
        had_s = 0.0
        for name in ran.keys() & self._parts.keys():
            had_s += ran[name]
            self._accounts[name].owed_s -= ran[name] * (1 - others_s / length_s)
        self._idle_owed_s -= (length_s - had_s) * (1 - others_s / length_s)
        weight = min(length_s / _MEAN_S, 1.0)
        busy = max(had_s, others_s) / length_s
        self._load += (busy - self._load) * min(length_s / _KEPT_S, 1.0)
        # The driver divides the device evenly between a light tenant and the one that has a turn.
        open_s = length_s - min(had_s, length_s) / 2 - others_s
        for name in self.light:
            used_s = used.get(name, 0.0)
            self._use(name, length_s, used_s, weight)
            if self._is_kept(name, length_s, used_s, open_s + used_s):
                self._end_light(self._accounts[name])
        self._bound(2 * max(LONGEST_S, length_s))
        self._parts = self._entitled()

    def _credit(self, length_s: float, others_s: float) -> None:
        """Give each its part: fixed ones of all time, the others of what is left of it."""
        kept = {
            party
            for party in self._parts
            if party is not None and self._accounts[party].claim.qos == FIXED
        }
        others = sum(part for party, part in self._parts.items() if party not in kept)
        left_s = length_s * (1 - sum(self._parts[party] for party in kept)) - others_s
        for party, part in self._parts.items():
            self._pay(party, part * length_s if party in kept else left_s * part / others)

    def _use(self, name: str, length_s: float, used_s: float, weight: float) -> None:
        """A light tenant used the device for so long, and pays for it."""
        account = self._accounts[name]
        level = self._level(name)
        account.rate += (used_s / length_s - account.rate) * weight
        saved_s = _SAVED_IN_TRIAL_S if account.on_trial else _SAVED_S
        account.owed_s = min(account.owed_s + level * length_s - used_s, saved_s)

    def _is_kept(self, name: str, length_s: float, used_s: float, could_s: float) -> bool:
        """Whether a light tenant has to take turns: it is over its part, or kept from it."""
        account = self._accounts[name]
        window = account.window
        drain_s = min(_DRAIN * account.patience_s, _LONGEST_DRAIN_S) if account.on_trial else 0.0
        if self._now_s - account.light_since_s > drain_s:
            window.add(length_s, used_s, could_s)
        kept = False
        if account.on_trial:
            kept = window.is_full and window.seen_s >= _SHORTEST_TRIAL_S
            over = window.seen_s >= _TRIAL_S
        else:
            over = window.seen_s >= _KEPT_S
            kept = over and window.is_full and self._load > _CROWDED
            kept = kept and self._now_s >= account.calm_until_s
        if over:
            account.window, account.on_trial = _Window(), False
        return kept or account.owed_s < -_OVER_S

    def _end_light(self, account: _Account) -> None:
        """A tenant has turns again; one that was light for a moment only, for longer."""
        long = self._now_s - account.light_since_s > _CALM_S
        patience_s = _PATIENCE_S if long else _LONGER * account.patience_s
        account.patience_s = min(patience_s, _LONGEST_PATIENCE_S)
        account.turns_until_s = account.trial_at_s = self._now_s + account.patience_s
        account.light = account.on_trial = False
        self._settle()

    def _lighten(self, account: _Account, rate: float) -> None:
        account.light, account.rate, account.light_since_s = True, rate, self._now_s
        account.window, account.on_trial = _Window(), False
        self._settle()

    def _level(self, tenant: str) -> float:
        """The part of a light tenant: the one that it had if it took turns with the others."""
        rates = {name: one.rate for name, one in self._accounts.items() if one.light}
        rates.pop(tenant, None)
        # Others that are light because nobody is in turn divide the device with it.
        mine = self._accounts[tenant].claim
        if mine.qos != FIXED:
            alike = [
                name
                for name, one in self._accounts.items()
                if one.light and one.claim.qos != FIXED and name != tenant
            ]
            for name in alike:
                if self._accounts[name].rate >= _CROWDED / (len(alike) + 1):
                    del rates[name]
        claims = {name: one.claim for name, one in self._accounts.items()}
        return entitled(claims, rates).get(tenant, 0.0)

    def _entitled(self) -> dict[str | None, float]:
        claims = {name: one.claim for name, one in self._accounts.items()}
        return entitled(claims, {name: self._accounts[name].rate for name in self.light})

    def _length(self, party: str | None) -> float:
        least = min((part for part in self._parts.values() if part > _LITTLE), default=1.0)
        least = max(least, _SMALLEST)
        return min(max(self._base_s * self._parts[party] / least, self._base_s), LONGEST_S)

    def _owed(self, party: str | None) -> float:
        return self._idle_owed_s if party is None else self._accounts[party].owed_s

    def _pay(self, party: str | None, owed_s: float) -> None:
        if party is None:
            self._idle_owed_s += owed_s
        else:
            self._accounts[party].owed_s += owed_s

    def _bound(self, bound_s: float) -> None:
        """Debts of a tenant that was away are not paid for ever."""
        self._idle_owed_s = min(max(self._idle_owed_s, -bound_s), bound_s)
        for account in self._accounts.values():
            account.owed_s = min(max(account.owed_s, -bound_s), bound_s)

    def _settle(self) -> None:
        """Work out the parts again; debts stay, but the sum of those in turns is 0 again."""
        self._parts = self._entitled()
        if None not in self._parts:
            self._idle_owed_s = 0.0
        mean = sum(map(self._owed, self._parts)) / len(self._parts) if self._parts else 0.0
        for party in self._parts:
            self._pay(party, -mean)


def entitled(claims: Mapping[str, Claim], light: Mapping[str, float]) -> dict[str | None, float]:
    """The part of the time of each tenant that has turns, and of nobody (None).

    ``light``: what the tenants use that are never locked. With that, the parts add up to 1. Equal
    tenants divide what is not kept for fixed ones with the best-effort ones; these get what is left
    then. Where more was promised than there is, all fixed ones give way alike.
    """
    running = {name: claim for name, claim in claims.items() if name not in light}
    if not running:
        return {}
    fixed = {n: c.share_milli / _WHOLE for n, c in running.items() if c.qos == FIXED}
    equal = [name for name, claim in running.items() if claim.qos == EQUAL]
    eager = [name for name, claim in running.items() if claim.qos == BEST_EFFORT]
    promised = sum(c.share_milli for c in claims.values() if c.qos == FIXED) / _WHOLE
    loose = sum(rate for name, rate in light.items() if claims[name].qos != FIXED)
    crowd = max(sum(fixed.values()), 1.0)
    parts: dict[str | None, float] = {name: part / crowd for name, part in fixed.items()}
    each = max(1.0 - promised - loose, 0.0) / max(len(equal) + len(eager), 1)
    parts |= dict.fromkeys([*equal, *eager], each)
    left = max(1.0 - sum(parts.values()) - sum(light.values()), 0.0)
    if eager:
        parts |= {name: each + left / len(eager) for name in eager}
    elif fixed or left > _LEAST:
        # It is there for fixed ones in any case: one that is over its share pauses for light ones.
        parts[None] = max(left, _LITTLE)
    return {party: part for party, part in parts.items() if part > _LEAST}
