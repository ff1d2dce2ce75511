"""Offers: what others sell a GPU hour for, from the list that ships or from others' catalogues.

Three forms are read, told apart by their columns: our own (``kind``, ``price``, ``currency``,
``spot``, ``dated``, ``source``), SkyPilot's catalogues (``InstanceType``, ``AcceleratorName``,
``AcceleratorCount``, ``Price``, ``SpotPrice``, ``Region``) and gpuhunt's (``instance_name``,
``location``, ``price``, ``gpu_count``, ``gpu_name``, ``spot``). Prices of whole instances are
divided by their GPUs. An offer without a price is left out and counted; it is never free.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from typing import Final

from roost.errors import InvalidSpec, unknown
from roost.usage.prices import MICRO, OLD_DAYS, day, money

_OURS: Final = ("kind", "price", "currency", "spot", "dated")
_SKYPILOT: Final = ("AcceleratorName", "AcceleratorCount", "Price")
_GPUHUNT: Final = ("gpu_name", "gpu_count", "price", "spot")
_MOST = 1_000_000
_TRUE = ("yes", "true", "1")


@dataclass(frozen=True, slots=True)
class Offer:
    """A GPU hour of a kind that somebody sells; ``micro`` are millionths of the currency."""

    kind: str
    micro: int
    currency: str
    spot: bool
    dated: date
    source: str


@dataclass(frozen=True, slots=True)
class OfferList:
    """Offers of one currency, and how many rows had no price."""

    offers: tuple[Offer, ...]
    unpriced: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidSpec where there are several currencies."""
        if len(found := sorted({offer.currency for offer in self.offers})) > 1:
            raise InvalidSpec(
                f"offers in {' and '.join(found)} cannot be compared: use one currency"
            )

    def middle(self, kind: str, *, spot: bool) -> Offer | None:
        """The median offer of a kind, of two the cheaper; None: nobody has a price."""
        found = sorted(
            (offer for offer in self.offers if (offer.kind, offer.spot) == (kind, spot)),
            key=lambda offer: offer.micro,
        )
        if not found:
            return None
        micro = statistics.median_low([offer.micro for offer in found])
        return next(offer for offer in found if offer.micro == micro)

    def check_kind(self, kind: str) -> None:
        """Raise NotFound, with what is meant, for a kind that nobody offers."""
        known = sorted({offer.kind for offer in self.offers})
        if kind not in known:
            raise unknown("offer of", kind, known or ["(none)"])


def shipped() -> OfferList:
    """The list that ships."""
    text = files("roost.usage").joinpath("offers.csv").read_text(encoding="utf-8")
    return read_offers(text.splitlines(), "the offers that ship", date(1970, 1, 1))


def is_old(offer: Offer, today: date) -> bool:
    """Whether people should be told that an offer is old."""
    return (today - offer.dated).days > OLD_DAYS


def read_offers(lines: Iterable[str], what: str, today: date) -> OfferList:
    """Read a table of any of the three forms; raises InvalidSpec. Undated rows are of ``today``."""
    rows = csv.DictReader(lines)
    names = set(rows.fieldnames or ())
    forms = ((_OURS, _own), (_SKYPILOT, _of_skypilot), (_GPUHUNT, _of_gpuhunt))
    read = next((read for columns, read in forms if names.issuperset(columns)), None)
    if read is None:
        raise InvalidSpec(
            f"{what}: neither our columns ({', '.join(_OURS)}), nor those of SkyPilot "
            f"({', '.join(_SKYPILOT)}) or gpuhunt ({', '.join(_GPUHUNT)})"
        )
    found, unpriced = list[Offer](), 0
    for number, row in enumerate(rows, 2):
        if number > _MOST:
            raise InvalidSpec(f"{what}: more than {_MOST} rows")
        told = list(read(row, f"{what}, line {number}", today))
        found += told
        unpriced += not told
    return OfferList(tuple(found), unpriced)


def _own(row: Mapping[str, str], where: str, _today: date) -> Iterable[Offer]:
    if not (row["price"] or "").strip():
        return
    spot = row["spot"].strip().lower() in _TRUE
    micro, dated = money(row["price"], where), day(row["dated"], where)
    yield Offer(
        row["kind"],
        micro,
        row["currency"].upper(),
        spot,
        dated,
        row.get("source") or _file_of(where),
    )


def what_of(where: str) -> str:
    """The file of a place in it."""
    return where.rsplit(",", 1)[0]


def _of_skypilot(row: Mapping[str, str], where: str, today: date) -> Iterable[Offer]:
    kind, count = (row["AcceleratorName"] or "").strip(), _count(row["AcceleratorCount"])
    if not kind or not count:
        return
    for column, spot in (("Price", False), ("SpotPrice", True)):
        if text := (row.get(column) or "").strip():
            micro = round(money(text, where) / count)
            if micro:
                yield Offer(
                    kind, micro, "USD", spot, today, f"SkyPilot, {row.get('Region') or '-'}"
                )


def _of_gpuhunt(row: Mapping[str, str], where: str, today: date) -> Iterable[Offer]:
    kind, count = (row["gpu_name"] or "").strip(), _count(row["gpu_count"])
    if not kind or not count or not (row["price"] or "").strip():
        return
    micro = round(money(row["price"], where) / count)
    if micro:
        spot = row["spot"].strip().lower() in _TRUE
        yield Offer(kind, micro, "USD", spot, today, f"gpuhunt, {row.get('location') or '-'}")


def _file_of(where: str) -> str:
    """The file of a place in it."""
    return where.rsplit(",", 1)[0]


def _count(text: str | None) -> float:
    """How many GPUs an instance has; 0: none, or nobody knows."""
    try:
        count = float(text or 0)
    except ValueError:
        return 0.0
    return count if 0 < count <= MICRO else 0.0
