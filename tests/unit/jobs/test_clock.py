"""The time of the journal, where the machine's clock is another."""

from __future__ import annotations

import pytest

from roost.jobs.clock import WallClock

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("ahead_s", "told"),
    [
        (0.0, ""),
        (-1e9, ""),
        (299.0, ""),
        (600.0, "10 minutes"),
        (7200.0, "2 hours"),
        (30 * 3600.0, "30 hours"),
        (30 * 365 * 86400.0, "10950 days"),
    ],
)
def test_a_journal_that_is_ahead_is_told_of(ahead_s: float, told: str) -> None:
    clock = WallClock(lambda: NOW, lambda: 5.0)
    clock.not_before(NOW + ahead_s)
    assert clock.now() == NOW + max(0.0, ahead_s)
    assert clock.trouble.startswith(f"times here are {told} ahead of" if told else "")
    assert bool(clock.trouble) is bool(told)


def test_it_is_over_when_the_machine_has_caught_up() -> None:
    wall, uptime = [NOW], [5.0]
    clock = WallClock(lambda: wall[0], lambda: uptime[0])
    wall[0] -= 3600.0  # put back while it runs
    assert "60 minutes" in clock.trouble
    before = clock.now()
    uptime[0] += 60.0
    assert clock.now() == before + 60.0
    wall[0] += 3600.0 + 60.0
    assert clock.trouble == ""
