"""Who submits what, and when: one hour by hand, or one by chance."""

from __future__ import annotations

import random
from dataclasses import dataclass

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Team:
    """A ClusterQueue of the tree: what it was promised, what it may borrow and lends, in GPUs."""

    name: str
    quota: int
    borrowing: int
    lending: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job: when it comes, whose it is, how large and how long."""

    at: float
    team: str
    name: str
    workers: int
    gpus: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Script:
    """An hour: teams, jobs, and when a machine fails."""

    teams: tuple[Team, ...]
    arrivals: tuple[Arrival, ...]
    fails_at: float
    most_nodes: int = 4


def by_hand() -> Script:
    """One team comes first and borrows; the other comes back for what it was promised."""
    vision, speech = Team("vision", 16, 16, 8), Team("speech", 16, 4, 8)
    early = [Arrival(30.0, "vision", f"vision-{n}", 1, 8, 1500.0) for n in range(2)]
    more = [Arrival(240.0, "vision", f"vision-{n}", 2, 2, 1800.0) for n in range(2, 6)]
    back = [Arrival(1200.0, "speech", f"speech-{n}", 1, 4, 900.0) for n in range(4)]
    late = [Arrival(2400.0, "speech", "speech-wide", 2, 6, 300.0)]
    return Script((vision, speech), tuple(early + more + back + late), 2100.0)


def by_chance(seed: int) -> Script:
    """Other promises, other jobs and another failure for each seed."""
    chance = random.Random(seed)  # noqa: S311 - nothing is kept secret
    teams = []
    for name in ("vision", "speech"):
        quota = chance.choice((8, 12, 16))
        teams.append(Team(name, quota, chance.choice((0, 4, 8, 16)), chance.choice((0, 4, quota))))
    arrivals = []
    for number in range(chance.randint(12, 24)):
        team = chance.choice(("vision", "speech"))
        # The second team sleeps for the first third of the hour.
        first = 0.0 if team == "vision" else HOUR_S / 3
        workers, gpus = chance.choice(((1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (3, 2)))
        at = chance.uniform(first, 0.8 * HOUR_S)
        arrivals.append(
            Arrival(at, team, f"{team}-{number}", workers, gpus, chance.uniform(120.0, 1500.0))
        )
    arrivals.sort(key=lambda one: one.at)
    return Script(tuple(teams), tuple(arrivals), chance.uniform(0.3, 0.7) * HOUR_S)
