"""Harmony: who is put beside whom, what is undone, who moves, and that it learns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from roost.core import Action, Decision, Event, Evict, Place, Policy, Reshape, SetAside
from roost.errors import InvalidSpec
from roost.perf.pairs import Pairs
from roost.perf.speed import Speed
from roost.placement import placer
from roost.policies import policy
from roost.policies.harmony import Harmony
from roost.sim.pairs import holding_memory, packable, with_memory
from roost.sim.results import JobResult
from roost.sim.simulation import Setup, Simulation
from roost.sim.worlds.sharing import SharingWorld
from roost.testing.builders import job, node, spec
from roost.traces.workload import TraceJob, Workload

#: "lm" and "gan" go well together, two of a kind do not, and "huge" fits beside nobody but "gan".
TABLE = Pairs(
    {
        "gpu": {
            "lm": {"gan": 0.85, "lm": 0.4, "huge": 0.0},
            "gan": {"lm": 0.9, "gan": 0.3, "huge": 0.9},
            "huge": {"lm": 0.0, "gan": 0.9, "huge": 0.0},
        }
    }
)


class Played:
    """Jobs ``(name, application, at, work)`` on so many GPUs of one node each, under harmony."""

    def __init__(
        self, *jobs: tuple[str, str, float, float], gpus: int = 1, chosen: Policy | None = None
    ) -> None:
        traced = [
            TraceJob(job(name), at, spec(1, work_s, application=application), work_s)
            for name, application, at, work_s in jobs
        ]
        nodes = with_memory([node(f"n{number}", 1) for number in range(gpus)])
        setup = Setup(
            workload=holding_memory(packable(Workload("w", traced)), nodes, TABLE),
            nodes=nodes,
            policy=chosen or Harmony(),
            placer=placer("first-fit"),
            speed=Speed(pairs=TABLE),
            world=SharingWorld,
        )
        self.simulation = Simulation(setup)
        self.decided: list[tuple[float, Decision]] = []
        self.rows: dict[str, JobResult] = {
            row.id: row for row in self.simulation.run(observer=self.note).jobs
        }

    def note(
        self, events: Sequence[Event], decisions: Sequence[Decision], actions: Sequence[Action]
    ) -> None:
        del events, actions
        self.decided += [(self.simulation.now, decision) for decision in decisions]

    def of(self, *kinds: type) -> list[tuple[float, str]]:
        return [(at, one.job) for at, one in self.decided if isinstance(one, kinds)]

    def start(self, name: str) -> float | None:
        return self.rows[name].started_at


def test_an_empty_gpu_goes_before_any_partner() -> None:
    played = Played(("a", "lm", 0, 500), ("b", "gan", 10, 500), gpus=2)

    places = [one.allocation for _, one in played.decided if isinstance(one, Place)]
    assert {place.parts[0].node for place in places} == {"n0", "n1"}
    assert [row.finished_at for row in played.rows.values()] == [500, 510]


def test_a_good_pair_is_kept() -> None:
    played = Played(("a", "lm", 0, 500), ("b", "gan", 10, 500))

    assert played.start("b") == 10
    assert played.of(SetAside, Evict, Reshape) == []


def test_a_bad_pair_parts_after_its_trial_and_is_remembered() -> None:
    played = Played(("a", "lm", 0, 2000), ("b", "lm", 200, 300))

    assert played.start("b") == 200
    # The second runs alone after a has ended, as its application failed beside itself.
    assert played.of(SetAside) == [(260, "b")]
    assert played.rows["a"].finished_at == pytest.approx(2036)


def test_the_one_that_was_there_first_does_not_pay() -> None:
    strict = Played(("a", "lm", 0, 800), ("b", "gan", 200, 300), chosen=Harmony(most_loss=0.05))

    assert strict.of(SetAside) == [(260, "b")]


def test_two_that_do_not_fit_wait_for_each_other() -> None:
    played = Played(("a", "lm", 0, 300), ("b", "huge", 10, 300))

    assert (played.start("a"), played.start("b")) == (0, 300)


def test_who_lost_most_has_a_gpu_to_itself_once_one_is_empty() -> None:
    played = Played(
        *(("a", "lm", 0, 1000), ("b", "lm", 0, 300), ("c", "gan", 10, 1000)),
        gpus=2,
    )

    (moved,) = played.of(Reshape)
    assert moved[0] == pytest.approx(300, abs=60)
    assert played.rows["c"].finished_at == pytest.approx(1010, abs=60)


def test_partners_are_chosen_by_what_earlier_jobs_have_shown() -> None:
    # First a pair of lm shows that it does badly. Then a gan has the choice of an lm and a gan.
    played = Played(
        *(("a", "lm", 0, 400), ("b", "gan", 0, 400), ("c", "gan", 100, 100), ("d", "gan", 600, 9)),
        *(("e", "lm", 1000, 900), ("f", "gan", 1000, 900), ("g", "gan", 1300, 300)),
        gpus=2,
    )
    places = {one.job: one.allocation for _, one in played.decided if isinstance(one, Place)}

    assert places[job("g")].parts[0].node == places[job("e")].parts[0].node


def test_whole_gpus_and_gangs_are_served_too() -> None:
    whole = spec(1, 100, workers=2)
    setup = Setup(
        workload=Workload("w", [TraceJob(job("gang"), 0, whole, 100.0)]),
        nodes=[node("n0", 2)],
        policy=policy("harmony"),
        placer=placer("first-fit"),
    )

    (row,) = Simulation(setup).run().jobs

    assert row.finished_at == 100


@pytest.mark.parametrize(
    "settings", ["trial_s=0", "trial_s=nan", "gain=-1", "most_loss=2", "most_loss=nan"]
)
def test_parameters_that_make_no_sense_are_refused(settings: str) -> None:
    with pytest.raises(InvalidSpec, match="must be"):
        policy(f"harmony:{settings}")
