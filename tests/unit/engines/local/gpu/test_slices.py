"""Who has a shared device when, in made-up time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.engines.local.gpu.slices import (
    BASE_S,
    BEST_EFFORT,
    EQUAL,
    FIXED,
    LONGEST_S,
    Claim,
    Slices,
    entitled,
)


def slices(**claims: Claim) -> Slices:
    found = Slices()
    for name, claim in claims.items():
        found.join(name, claim)
    return found


def shares(found: Slices, late: Sequence[float] = (0.0,), turns: int = 400) -> dict[str, float]:
    """The part of the time that each tenant held the device; turns end so late, in turn."""
    had: dict[str, float] = defaultdict(float)
    total = 0.0
    for number in range(turns):
        turn = found.turn()
        length = turn.length_s + late[number % len(late)]
        found.passed(turn.holders, length)
        total += length
        for name in turn.holders:
            had[name] += length
    return {name: spent / total for name, spent in had.items()}


def test_fixed_shares_hold() -> None:
    found = shares(slices(a=Claim(750), b=Claim(250)))
    assert found["a"] == pytest.approx(0.75, rel=0.01)
    assert found["b"] == pytest.approx(0.25, rel=0.02)


def test_a_fixed_share_beside_an_idle_neighbour_leaves_the_rest_idle() -> None:
    device = slices(a=Claim(500), b=Claim(500))
    device.found("b", active=False)
    assert shares(device)["a"] == pytest.approx(0.5, rel=0.01)


def test_a_fixed_share_alone_is_still_a_share() -> None:
    assert shares(slices(a=Claim(300)))["a"] == pytest.approx(0.3, rel=0.01)


def test_equal_tenants_divide_among_those_that_run() -> None:
    device = slices(a=Claim(250, EQUAL), b=Claim(250, EQUAL), c=Claim(250, EQUAL))
    assert shares(device)["b"] == pytest.approx(1 / 3, rel=0.02)
    device.found("c", active=False)
    assert shares(device)["b"] == pytest.approx(1 / 2, rel=0.02)
    device.found("a", active=False)
    assert shares(device)["b"] == 1.0


def test_best_effort_gets_the_slot_of_an_idle_owner() -> None:
    device = slices(owner=Claim(500), guest=Claim(500, BEST_EFFORT))
    assert shares(device)["guest"] == pytest.approx(0.5, rel=0.01)
    device.found("owner", active=False)
    assert device.part("guest") == 1.0
    device.found("owner", active=True)
    assert shares(device)["owner"] == pytest.approx(0.5, rel=0.01)


def test_best_effort_tenants_have_their_turn_together() -> None:
    turn = slices(a=Claim(500, BEST_EFFORT), b=Claim(300, BEST_EFFORT)).turn()
    assert turn.holders == {"a", "b"}


def test_best_effort_does_not_starve_beside_equal() -> None:
    device = slices(a=Claim(500, EQUAL), b=Claim(500, BEST_EFFORT))
    assert device.part("b") == pytest.approx(0.5)


def test_idle_tenants_stay_unlocked() -> None:
    device = slices(a=Claim(500), b=Claim(500))
    device.found("b", active=False)
    assert all("b" in device.turn().free for _ in range(5))


def test_one_alone_is_never_locked() -> None:
    device = slices(a=Claim(500, EQUAL))
    assert device.turn().free == {"a"}
    assert device.part("a") == 1.0


def test_nobody_there() -> None:
    assert slices().turn().holders == frozenset()


def test_turns_are_neither_too_short_nor_too_long() -> None:
    device = slices(a=Claim(980), b=Claim(20))
    lengths = []
    for _ in range(50):
        turn = device.turn()
        device.passed(turn.holders, turn.length_s)
        lengths.append(turn.length_s)
    assert min(lengths) >= BASE_S
    assert max(lengths) <= LONGEST_S


def test_a_tenant_that_overstays_pays_for_it() -> None:
    """One takes half a second to come to a stop, every time."""
    device = slices(slow=Claim(500), quick=Claim(500))
    had = {"slow": 0.0, "quick": 0.0}
    for _ in range(400):
        (name,) = (turn := device.turn()).holders
        length = turn.length_s + (0.5 if name == "slow" else 0.0)
        device.passed(turn.holders, length)
        had[name] += length
    assert had["slow"] / sum(had.values()) == pytest.approx(0.5, rel=0.05)


def test_who_leaves_is_forgotten() -> None:
    device = slices(a=Claim(500), b=Claim(500))
    device.leave("a")
    assert device.tenants == {"b"}
    assert device.turn().free <= {"b"}


CLAIMS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(Claim, st.integers(1, 1000), st.sampled_from([FIXED, EQUAL, BEST_EFFORT])),
    min_size=1,
)


@given(CLAIMS, st.frozensets(st.sampled_from("abcdef")))
def test_parts_add_up_to_the_whole(claims: dict[str, Claim], active: frozenset[str]) -> None:
    parts = entitled(claims, active & set(claims))
    assert sum(parts.values()) == pytest.approx(1.0 if parts else 0.0)
    assert all(part > 0 for part in parts.values())
    for name in active & set(claims):
        part = sum(part for party, part in parts.items() if name in party)
        if claims[name].qos == FIXED:
            assert part <= claims[name].share_milli / 1000 + 1e-9


@given(
    st.lists(st.integers(50, 500), min_size=2, max_size=5),
    st.lists(st.floats(0.0, 0.05), min_size=1, max_size=10),
)
def test_shares_hold_within_five_percent_however_late_turns_end(
    asked: list[int], late: list[float]
) -> None:
    scale = max(sum(asked) / 1000, 1.0)
    claims = {f"t{n}": Claim(max(int(share / scale), 1)) for n, share in enumerate(asked)}
    found = shares(slices(**claims), late, turns=2000)
    for name, claim in claims.items():
        assert found[name] == pytest.approx(claim.share_milli / 1000, rel=0.05)


@given(CLAIMS, st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("jlai")), max_size=40))
def test_debts_stay_bounded_whatever_comes_and_goes(
    claims: dict[str, Claim], happens: list[tuple[str, str]]
) -> None:
    device = slices(**claims)
    for name, what in happens:
        match what:
            case "j":
                device.join(name, claims.get(name, Claim(100)))
            case "l":
                device.leave(name)
            case _:
                device.found(name, active=what == "a")
        turn = device.turn()
        assert turn.holders <= turn.free <= device.tenants
        device.passed(turn.holders, turn.length_s)
        assert device.debt_s <= 4 * LONGEST_S
