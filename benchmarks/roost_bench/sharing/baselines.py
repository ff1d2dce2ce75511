"""What sharing is compared with: any partner will do, or all pairs are known beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from roost.core.plan import Plan
from roost.perf.interference import Interference, PairSpeed
from roost.perf.pairs import Pairs
from roost.policies.fifo import arrival
from roost.policies.harmony import Harmony
from roost.policies.kit.sharing import Gpu, rooms, sit

#: How sure one is who knows.
_CERTAIN = 1e-3
#: What it does with what it knows; nobody parts who does more together.
_HARMONY = Harmony(most_loss=1.0)


@dataclass(frozen=True, slots=True)
class AnyPartner:
    """First come, first served; a GPU is shared with anybody.

    ``tight``: GPUs that are shared already first, else empty ones (load balancing).
    """

    tight: bool = False

    def __call__(self, plan: Plan) -> None:
        """Start all that fits, by arrival."""
        for job in sorted(plan.pending, key=arrival):
            found: list[tuple[bool, Gpu]] = [
                (empty == self.tight, gpu) for gpu, empty in rooms(plan, job)
            ]
            if not found:
                plan.hold(plan.waiting.line_of(job))
                return
            sit(plan, job, min(found)[1])


@dataclass(frozen=True, slots=True)
class Informed:
    """Harmony that knows the truth of every pair."""

    pairs: Pairs

    def __call__(self, plan: Plan) -> None:
        """Decide as harmony does."""
        _HARMONY.decide(plan, self._model(plan))

    def _model(self, plan: Plan) -> Interference:
        found: Interference | None = plan.memo.get("truth")
        if found is None:
            kind = plan.ledger.order[0].spec.kind
            found = plan.memo["truth"] = Interference(
                {
                    (("", one), ("", other)): PairSpeed(speed, _CERTAIN)
                    for one, other, speed in self.pairs.of(kind)
                }
            )
        return found
