"""What an own node costs: total cost of ownership, by formulas whose every default has a source.

For a node and a year:

    capital      price · (1 + fabric) · (1 - rest) / life
    interest     price · rate / 2
    maintenance  price · share
    electricity  kW · load · 8760 · PUE · price of a kWh
    space        kW · rate · 12
    staff        salary · people / nodes, people = nodes / nodes per person, at least some
    software, other

A *useful* GPU hour is one of a node that is there and in use:

    TCO / (GPUs · 8760 · availability · use)

and from the use ``TCO / (GPUs · 8760 · availability · offer)`` on, owning is cheaper than an offer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from roost.errors import InvalidSpec

HOURS: Final = 8760

#: Where the defaults come from; web pages are indicative only.
SOURCES: Final = {
    "fabric": "cables and fabric are 10 to 15 % of a purchase (vendors' guides)",
    "rest": "nothing is left at the end",
    "life_years": "mean of a survey of e-infrastructures; the three largest clouds book 6",
    "interest": "none",
    "maintenance": "4 to 8 % of the purchase a year (CTWatch)",
    "kw": "an 8-GPU H100 or H200 node draws 10.2 kW at most, 6.5 to 8.5 typically",
    "load": "taken, where the mean draw is not measured",
    "pue": "Uptime Institute's survey of 2025",
    "kwh": "NAG's TCO calculator",
    "space": "NAG: 30 000 a rack and year, at 50 kW a rack; colocation with power is 150 to 250: "
    "then set kwh=0",
    "salary": "NAG's TCO calculator",
    "nodes_per_person": "one for 50 to 100 servers",
    "least_people": "a quarter of a person, however few nodes",
    "availability": "NAG's TCO calculator",
}


@dataclass(frozen=True, slots=True)
class Ownership:
    """What a node costs its owner, in the currency of ``price``, and what it offers."""

    price: float = 320_000.0
    gpus: int = 8
    nodes: int = 64
    fabric: float = 0.12
    rest: float = 0.0
    life_years: float = 5.0
    interest: float = 0.0
    maintenance: float = 0.05
    kw: float = 10.2
    load: float = 0.7
    pue: float = 1.54
    kwh: float = 0.10
    space: float = 50.0
    salary: float = 250_000.0
    nodes_per_person: float = 64.0
    least_people: float = 0.25
    software: float = 0.0
    other: float = 0.0
    availability: float = 0.95

    def __post_init__(self) -> None:
        """Raise InvalidSpec for what cannot be."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidSpec(f"{field.name} must be 0 or more, got {value}")
        for name in ("life_years", "gpus", "nodes", "nodes_per_person", "availability"):
            if not getattr(self, name):
                raise InvalidSpec(f"{name} must be more than 0")
        for name in ("rest", "load", "availability"):
            if getattr(self, name) > 1:
                raise InvalidSpec(f"{name} is a part of one, got {getattr(self, name)}")

    def items(self) -> dict[str, float]:
        """What a node costs a year, by item."""
        people = max(self.nodes / self.nodes_per_person, self.least_people)
        return {
            "capital": self.price * (1 + self.fabric) * (1 - self.rest) / self.life_years,
            "interest": self.price * self.interest / 2,
            "maintenance": self.price * self.maintenance,
            "electricity": self.kw * self.load * HOURS * self.pue * self.kwh,
            "space": self.kw * self.space * 12,
            "staff": self.salary * people / self.nodes,
            "software": self.software,
            "other": self.other,
        }

    @property
    def total(self) -> float:
        """What a node costs a year."""
        return sum(self.items().values())

    def per_hour(self, use: float = 1.0) -> float | None:
        """What a useful GPU hour costs at some use; None: there is no useful hour yet."""
        useful = self.gpus * HOURS * self.availability * use
        return self.total / useful if useful > 0 else None

    def break_even(self, offer: float) -> float | None:
        """From which use on it is cheaper to own than to take an offer; None: it is free."""
        if offer <= 0:
            return None
        return self.total / (self.gpus * HOURS * self.availability * offer)


#: What the defaults come to, as documented, and with how many digits.
EXAMPLE: Final = {
    "capital": (71_680, 0),
    "maintenance": (16_000, 0),
    "electricity": (9_632, 0),
    "space": (6_120, 0),
    "staff": (3_906, 0),
    "total": (107_338, 0),
    "a GPU": (13_417, 0),
    "an hour at 30 %": (5.37, 2),
    "an hour at 50 %": (3.22, 2),
    "an hour at 70 %": (2.30, 2),
    "an hour at 90 %": (1.79, 2),
    "break-even against 1.87": (86, 0),
    "break-even against 2.89": (56, 0),
    "break-even against 3.85": (42, 0),
    "break-even against 6.98": (23, 0),
    "break-even against 9.80": (16, 0),
}
