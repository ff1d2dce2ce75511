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
    Turn,
    entitled,
)


def slices(**claims: Claim) -> Slices:
    found = Slices()
    for name, claim in claims.items():
        found.join(name, claim)
    return found


def went(device: Slices, length_s: float = 0.0) -> Turn:
    """One turn goes by, as it was meant to or as long as that."""
    turn = device.turn()
    length_s = length_s or turn.length_s
    device.passed(length_s, {turn.holder: length_s} if turn.holder else {})
    return turn


def idles(device: Slices, tenant: str) -> None:
    """A tenant did nothing in its turns."""
    device.judged(tenant, 0.0, 1.0)


def shares(found: Slices, late: Sequence[float] = (0.0,), turns: int = 400) -> dict[str, float]:
    """The part of the time that each tenant held the device; turns end so late, in turn."""
    had: dict[str, float] = defaultdict(float)
    total = 0.0
    for number in range(turns):
        length = found.turn().length_s + late[number % len(late)]
        holder = went(found, length).holder
        total += length
        had[holder or ""] += length
    return {name: spent / total for name, spent in had.items()}


def test_fixed_shares_hold() -> None:
    found = shares(slices(a=Claim(750), b=Claim(250)))
    assert found["a"] == pytest.approx(0.75, rel=0.01)
    assert found["b"] == pytest.approx(0.25, rel=0.02)


def test_a_fixed_share_beside_an_idle_neighbour_leaves_the_rest_idle() -> None:
    device = slices(a=Claim(500), b=Claim(500))
    idles(device, "b")
    assert shares(device)["a"] == pytest.approx(0.5, rel=0.01)


def test_a_fixed_share_alone_is_still_a_share() -> None:
    assert shares(slices(a=Claim(300)))["a"] == pytest.approx(0.3, rel=0.01)


def test_equal_tenants_divide_among_those_that_run() -> None:
    device = slices(a=Claim(250, EQUAL), b=Claim(250, EQUAL), c=Claim(250, EQUAL))
    assert shares(device)["b"] == pytest.approx(1 / 3, rel=0.02)
    idles(device, "c")
    assert shares(device)["b"] == pytest.approx(1 / 2, rel=0.02)
    idles(device, "a")
    assert shares(device)["b"] == 1.0


def test_best_effort_gets_the_slot_of_an_idle_owner() -> None:
    device = slices(owner=Claim(500), guest=Claim(500, BEST_EFFORT))
    assert shares(device)["guest"] == pytest.approx(0.5, rel=0.01)
    idles(device, "owner")
    assert device.part("guest") == 1.0


def test_busy_best_effort_tenants_divide_what_is_left() -> None:
    device = slices(a=Claim(500, BEST_EFFORT), b=Claim(300, BEST_EFFORT), c=Claim(400))
    found = shares(device)
    assert found["a"] == pytest.approx(0.3, rel=0.02)
    assert found["b"] == pytest.approx(0.3, rel=0.02)


def test_best_effort_does_not_starve_beside_equal() -> None:
    device = slices(a=Claim(500, EQUAL), b=Claim(500, BEST_EFFORT))
    assert device.part("b") == pytest.approx(0.5)


def test_light_tenants_stay_unlocked_and_what_they_leave_is_used() -> None:
    device = slices(service=Claim(300), trainer=Claim(700, BEST_EFFORT))
    device.judged("service", 0.4, 1.0)
    assert device.light == {"service"}
    assert device.part("trainer") == pytest.approx(1 - 0.4 * 0.3)
    for _ in range(500):
        turn = device.turn()
        assert turn.free == {"service", "trainer"}
        device.passed(turn.length_s, {"trainer": turn.length_s}, {"service": 0.2 * turn.length_s})


def test_full_turns_are_no_light_work() -> None:
    device = slices(a=Claim(300), b=Claim(700))
    device.judged("a", 0.9, 1.0)
    assert device.light == set()


def test_a_light_tenant_that_wants_more_than_its_part_has_turns_again() -> None:
    device = slices(a=Claim(250), b=Claim(750))
    idles(device, "a")
    passed_s = 0.0
    while "a" in device.light:
        turn = device.turn()
        assert turn.holder == "b" or turn.holder is None
        used = {"a": 0.5 * turn.length_s}
        device.passed(turn.length_s, {"b": turn.length_s} if turn.holder else {}, used)
        passed_s += turn.length_s
    assert 0.5 < passed_s < 5.0
    assert device.turn().holder == "b"  # it pays for what it had beyond its part


def test_one_that_was_over_its_part_is_tried_less_and_less_often() -> None:
    device = slices(a=Claim(250), b=Claim(750))
    waits = []
    for _ in range(3):
        waited_s = 0.0
        while "a" not in device.light:
            waited_s += went(device).length_s
            device.judged("a", 0.5, 1.0)
        waits.append(waited_s)
        while "a" in device.light:
            device.passed(0.1, {"b": 0.1}, {"a": 0.05})
    assert waits[0] < waits[1] < waits[2]


def tried(device: Slices, busy: float) -> float:
    """How long a tenant stays unlocked whose turns are full, and which uses so much then."""
    while "a" not in device.light:
        went(device)
        device.judged("a", 1.0, 1.0)
    light_s = 0.0
    while "a" in device.light and light_s < 60:
        device.passed(0.1, {"b": 0.1}, {"a": 0.1 * busy})
        light_s += 0.1
    return light_s


def test_a_fixed_tenant_with_full_turns_is_tried_and_stays_unlocked_if_it_needs_less() -> None:
    assert tried(slices(a=Claim(300), b=Claim(700, BEST_EFFORT)), busy=0.28) > 59


def test_a_trial_ends_at_once_for_who_takes_all_that_there_is() -> None:
    assert tried(slices(a=Claim(500), b=Claim(500)), busy=0.47) < 1.5


def test_who_takes_what_is_left_is_not_tried() -> None:
    device = slices(a=Claim(300, BEST_EFFORT), b=Claim(700, BEST_EFFORT))
    for _ in range(200):
        went(device)
        device.judged("a", 1.0, 1.0)
    assert device.light == set()


def test_two_are_not_tried_at_the_same_time() -> None:
    device = slices(a=Claim(500), b=Claim(500))
    while not device.light:
        went(device)
        device.judged("a", 1.0, 1.0)
        device.judged("b", 1.0, 1.0)
    assert len(device.light) == 1


def test_crowded_ones_take_turns_and_half_idle_ones_do_not() -> None:
    device = slices(a=Claim(500, BEST_EFFORT), b=Claim(500, BEST_EFFORT))
    device.absent("a")
    device.absent("b")
    for _ in range(100):
        device.passed(0.1, {}, {"a": 0.04, "b": 0.04})
    assert device.light == {"a", "b"}
    for _ in range(100):
        device.passed(0.1, {}, {"a": 0.047, "b": 0.047})
    assert device.light == set()


def test_one_alone_is_never_locked() -> None:
    device = slices(a=Claim(500, EQUAL))
    assert device.turn().free == {"a"}
    assert device.part("a") == 1.0


def test_nobody_there() -> None:
    assert slices().turn().holder is None


def test_one_that_does_not_come_to_a_stop_has_no_turn() -> None:
    device = slices(a=Claim(500), b=Claim(500))
    assert {device.turn({"a"}).holder for _ in range(3)} == {"b"}
    assert device.turn({"a", "b"}).holder is None


def test_turns_are_neither_too_short_nor_too_long() -> None:
    device = slices(a=Claim(980), b=Claim(20))
    lengths = [went(device).length_s for _ in range(50)]
    assert min(lengths) >= BASE_S
    assert max(lengths) <= LONGEST_S


def test_a_tenant_that_overstays_pays_for_it() -> None:
    """One takes half a second to come to a stop, every time."""
    device = slices(slow=Claim(500), quick=Claim(500))
    had = {"slow": 0.0, "quick": 0.0}
    for _ in range(400):
        turn = device.turn()
        length = turn.length_s + (0.5 if turn.holder == "slow" else 0.0)
        if holder := went(device, length).holder:
            had[holder] += length
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


@given(CLAIMS, st.dictionaries(st.sampled_from("abcdef"), st.floats(0.0, 0.2)))
def test_parts_and_what_light_tenants_use_add_up_to_the_whole(
    claims: dict[str, Claim], rates: dict[str, float]
) -> None:
    light = {name: rate for name, rate in rates.items() if name in claims}
    parts = entitled(claims, light)
    assert all(part > 0 for part in parts.values())
    if parts:
        assert sum(parts.values()) <= 1.0 + 1e-5
        assert sum(parts.values()) + sum(light.values()) >= 1.0 - 1e-5
    for name, claim in claims.items():
        if claim.qos == FIXED and name not in light:
            assert parts.get(name, 0.0) <= claim.share_milli / 1000 + 1e-9


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


@given(
    CLAIMS, st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("jlaiu")), max_size=40)
)
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
            case "a":
                device.absent(name)
            case "i":
                device.judged(name, 0.5, 1.0)
            case _:
                device.passed(0.3, {}, dict.fromkeys(device.light, 0.2))
        turn = device.turn()
        assert {turn.holder} - {None} <= turn.free <= device.tenants
        went(device)
        assert device.debt_s <= 4 * LONGEST_S
