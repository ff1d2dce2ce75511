"""Random histories, one after the other, in which every promise is checked after every step."""

from __future__ import annotations

from roost.placement import placer
from roost.policies import policy
from roost.testing.promises import PromiseWalk
from roost_bench.hived.cases import CaseResult

#: Steps of one history: then another cluster is tried.
_STEPS = 500


def random_histories(steps: int, seed: int, policy_name: str) -> list[CaseResult]:
    """Take so many steps; the first promise that breaks ends it."""
    done = evictions = 0
    while done < steps:
        walk = PromiseWalk.of(seed, policy(policy_name), placer("pack"))
        wrong = walk.walk(min(_STEPS, steps - done))
        done, evictions, seed = done + walk.steps, evictions + walk.evictions, seed + 1
        if wrong:
            return [CaseResult(f"{done:,} random steps", "no promise broken", wrong[0], False)]  # noqa: FBT003 - a field
    got = f"no promise broken, {evictions:,} runs made room"
    return [CaseResult(f"{done:,} random steps", "no promise broken", got, True)]  # noqa: FBT003 - a field
