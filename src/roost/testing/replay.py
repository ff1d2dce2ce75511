"""The same events give the same actions, bit for bit: here, again, and in another process.

Run as a module it reads a pickled (policy, placer name, situation) and prints its digest, so that
another process, with other hashes of strings, can be asked.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

from roost.core import Action, Decision, Event, Policy
from roost.testing.situations import Situation

__all__ = ["digest", "digest_elsewhere"]


def digest(policy: Policy, placer: str, situation: Situation) -> str:
    """What a simulation reported, decided and did, in short; floats to the last bit."""
    found = hashlib.sha256()

    def note(
        events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        found.update(repr((list(events), list(decisions), list(actions))).encode())

    situation.simulation(policy, placer).run(until=1e7, observer=note)
    return found.hexdigest()


def digest_elsewhere(policy: Policy, placer: str, situation: Situation, hash_seed: int) -> str:
    """The same, from another process. The policy must be importable there."""
    # Two pickles: to read the second one, modules are imported by the path in the first.
    asked = pickle.dumps(sys.path) + pickle.dumps((policy, placer, situation))
    answer = subprocess.run(
        [sys.executable, "-m", "roost.testing.replay"],
        input=asked,
        stdout=subprocess.PIPE,
        check=True,
        # Sets of strings have another order there: a decision that depends on it shows.
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    )
    return answer.stdout.decode().strip()


def _main() -> None:
    sys.path[:] = pickle.load(sys.stdin.buffer)  # noqa: S301 - both ends are this module
    policy, placer, situation = pickle.load(sys.stdin.buffer)  # noqa: S301 - as above
    sys.stdout.write(digest(policy, placer, situation))


if __name__ == "__main__":
    _main()
