"""How fast applications go beside each other on one GPU, as it was measured for pairs of them.

A table by kind of GPU, application and neighbour says which part of its speed alone an application
keeps: at most 1, and 0 where the two do not fit into the memory of the GPU together. Of several
neighbours each takes its part of the speed that the others leave: their factors are multiplied.

Here is the truth of a simulated world; what policies believe of pairs is in ``interference``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from roost.errors import Fatal, InvalidSpec

#: By application and neighbour, the part of its speed that the application keeps.
PairSpeeds: TypeAlias = Mapping[str, Mapping[str, float]]
#: The kind whose table serves for kinds that were not measured, if it was.
_REFERENCE = "v100"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Speeds beside one neighbour, by kind of GPU.

    Kinds are compared without regard to case. A kind that was not measured goes by the table of
    V100 or, where there is none, by the first.
    """

    kinds: Mapping[str, PairSpeeds]

    def __post_init__(self) -> None:
        """Refuse tables of nothing, and speeds that are none."""
        if not any(self.kinds.values()):
            raise InvalidSpec("a table of pairs needs at least one pair")
        for kind in self.kinds:
            for one, other, speed in self.of(kind):
                if not 0 <= speed <= 1:
                    where = f" on {kind}" if kind else ""
                    raise InvalidSpec(
                        f"the speed of {one!r} beside {other!r}{where} must be from 0 to 1 of its "
                        f"speed alone, got {speed}"
                    )

    def table(self, kind: str) -> PairSpeeds:
        """The table that goes for a kind of GPU."""
        found = {name.casefold(): table for name, table in self.kinds.items()}
        own = found.get(kind.casefold(), found.get(_REFERENCE))
        return next(iter(found.values())) if own is None else own

    def of(self, kind: str) -> Iterator[tuple[str, str, float]]:
        """The application, its neighbour and its speed, of all pairs on a kind."""
        for one, row in self.table(kind).items():
            for other, speed in row.items():
                yield one, other, speed

    def factor(
        self, kind: str, application: str, beside: Sequence[str], unknown: float = 1.0
    ) -> float:
        """The part of its speed that an application keeps beside these neighbours.

        ``unknown`` is what it keeps beside one that it was not measured with. Raises Fatal for
        those that do not fit together: they should never have been.
        """
        row = self.table(kind).get(application, {})
        found = math.prod(row.get(other, unknown) for other in beside)
        if not found:
            unfit = next(other for other in beside if not row.get(other, unknown))
            raise Fatal(f"{application!r} and {unfit!r} do not fit on one GPU: give their memory")
        return found
