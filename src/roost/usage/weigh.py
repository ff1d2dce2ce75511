"""One workflow on several targets: how long it takes, what it costs whom, from when owning pays.

What ran is measured. Elsewhere it is forecast: the same GPUs for the time that the measured run
took, by how much faster or slower a kind of GPU is. What is not known is left out and said; a
target without a price is not ranked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from roost.errors import InvalidSpec
from roost.usage.offers import OfferList
from roost.usage.ownership import Ownership
from roost.usage.prices import MICRO

#: What makes two runs the same workflow: code, image and data of the job file.
_WORKFLOW: Final = ("command", "run", "image", "workdir", "sent", "env", "mounts", "volumes")
#: Watts of a GPU at most, by its maker's data sheet.
WATTS: Final = {
    "K80": 150,
    "T4": 70,
    "P100": 250,
    "V100": 300,
    "A100": 400,
    "A100-80GB": 400,
    "L4": 72,
    "H100": 700,
    "H200": 700,
}
#: The world's mean, in g/kWh, where no other is given.
CARBON_G: Final = 475.0
_SPREAD = 0.3


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What a run took where it was: seconds, GPUs held, how busy they and the CPUs were."""

    kind: str
    run_s: float
    gpus: float
    wait_s: float | None = None
    busy: float | None = None
    measured: bool = True


@dataclass(frozen=True, slots=True)
class ComparisonSetting:
    """What a comparison takes for granted."""

    own: Ownership
    offers: OfferList
    speeds: Mapping[str, float]
    use: float = 0.0
    egress_gb: float = 0.0
    egress_price: float = 0.09
    carbon_g: float = CARBON_G
    reference: str = "A100"


@dataclass(frozen=True, slots=True)
class WeighedRun:
    """What a workflow takes on a target; ``None``: not known, or not that target's."""

    target: str
    measured: bool
    wait_s: float | None
    run_s: float
    busy: float | None
    units: float | None
    tco: float | None
    tcs: float | None
    carbon_kg: float | None
    why: str


def digest(document: Mapping[str, Any]) -> str:
    """What tells workflows apart: code, image and data, not names, queues and sizes."""
    kept = {name: document[name] for name in _WORKFLOW if document.get(name)}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def check_same(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> None:
    """Raise InvalidSpec where two job files are not the same workflow, with what differs."""
    differs = [part for part in _WORKFLOW if (one.get(part) or None) != (other.get(part) or None)]
    if differs:
        raise InvalidSpec(f"{name} is not the same workflow: {', '.join(differs)} of it differ")


def weigh(run: MeasuredRun, targets: list[str], given: ComparisonSetting) -> list[WeighedRun]:
    """Each target in the order asked for; raises InvalidSpec for what is no target."""
    return [
        _here(run, given) if target == "here" else _cloud(run, target, given) for target in targets
    ]


def ranked(found: list[WeighedRun]) -> list[WeighedRun]:
    """Targets with a price, the cheapest first."""
    priced = [one for one in found if _cost(one) is not None]
    return sorted(priced, key=lambda one: _cost(one) or 0.0)


def break_even(given: ComparisonSetting, kind: str) -> float | None:
    """From which use on it is cheaper to own than to take the median offer of a kind."""
    offer = given.offers.middle(kind, spot=False)
    return None if offer is None else given.own.break_even(offer.micro / MICRO)


def sensitivity(given: ComparisonSetting) -> dict[str, tuple[float, float]]:
    """What a useful GPU hour costs if an input is 30 % lower, and 30 % higher."""
    use = given.use or 1.0

    def cost(**changed: float) -> float:
        return replace(given.own, **changed).per_hour(use) or 0.0  # type: ignore[arg-type]

    found = {}
    for name in ("price", "life_years", "kwh", "salary", "pue"):
        value = getattr(given.own, name)
        found[name] = (cost(**{name: value * (1 - _SPREAD)}), cost(**{name: value * (1 + _SPREAD)}))
    low, high = use * (1 - _SPREAD), min(1.0, use * (1 + _SPREAD))
    found["use"] = (given.own.per_hour(low) or 0.0, given.own.per_hour(high) or 0.0)
    return found


def _here(run: MeasuredRun, given: ComparisonSetting) -> WeighedRun:
    hours = run.run_s * run.gpus / 3600
    price = given.own.per_hour(given.use) if given.use else None
    why = f"{run.gpus:g} GPUs held" if run.measured else "the time that its job file says"
    if run.busy is not None:
        why += f", {run.gpus * run.busy:.2g} used"
    if price is None:
        why += "; no useful hour yet: it is not known how much the cluster is used"
    return WeighedRun(
        *("here", run.measured, run.wait_s, run.run_s, run.busy),
        _units(run.kind, hours, given),
        None if price is None else price * hours,
        0.0,
        _carbon(run.kind, hours, run.busy, given),
        why,
    )


def _cloud(run: MeasuredRun, target: str, given: ComparisonSetting) -> WeighedRun:
    place, colon, name = target.partition(":")
    if place != "cloud" or not colon:
        raise InvalidSpec(f"target {target!r}: say here, cloud:KIND or cloud:KIND-spot")
    kind, spot = name.removesuffix("-spot"), name.endswith("-spot")
    given.offers.check_kind(kind)
    factor = _speed(kind, given) / _speed(run.kind, given)
    run_s = run.run_s / factor
    hours = run_s * run.gpus / 3600
    offer = given.offers.middle(kind, spot=spot)
    egress = given.egress_gb * given.egress_price
    why = f"forecast: {factor:.3g} times as fast as {run.kind}"
    if offer is None:
        why += "; no price: not ranked"
    else:
        why += f", {offer.micro / MICRO:.2f} {offer.currency} a GPU hour of {offer.dated}"
    if egress:
        why += f"; {egress:.2f} of it egress"
    return WeighedRun(
        *(target, False, None, run_s, None),
        _units(kind, hours, given),
        None,
        None if offer is None else offer.micro / MICRO * hours + egress,
        _carbon(kind, hours, run.busy, given),
        why,
    )


def _speed(kind: str, given: ComparisonSetting) -> float:
    if kind not in given.speeds:
        raise InvalidSpec(f"how fast {kind} is, is not known: say --speed {kind}=FACTOR, V100 is 1")
    return given.speeds[kind]


def _units(kind: str, hours: float, given: ComparisonSetting) -> float | None:
    """The same work in hours of the reference GPU."""
    if kind not in given.speeds or given.reference not in given.speeds:
        return None
    return hours * given.speeds[kind] / given.speeds[given.reference]


def _carbon(kind: str, hours: float, busy: float | None, given: ComparisonSetting) -> float | None:
    """Of the GPUs alone, at their highest draw for the part of the time in which they work."""
    if kind not in WATTS:
        return None
    load = given.own.load if busy is None else busy
    return WATTS[kind] / 1000 * hours * load * given.own.pue * given.carbon_g / 1000


def _cost(one: WeighedRun) -> float | None:
    return one.tco if one.target == "here" else one.tcs
