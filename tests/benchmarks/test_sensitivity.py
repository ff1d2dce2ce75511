"""Studies: each varies one thing, and pairs what belongs together."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.benchmarks.test_plots import svg
from tests.oracles.profiled import write_profiles

from roost.errors import InvalidSpec, NotFound
from roost.sim.failures import Failures
from roost.sim.metrics import student_t
from roost.traces.generate import Arrivals
from roost.traces.profiles import CONSTANTS
from roost_bench.optimus.benchmark import OptimusBench
from roost_bench.sensitivity.studies import (
    STUDIES,
    Case,
    Figures,
    LearningJobs,
    ParameterServerJobs,
    cases,
    compare,
    find,
    plot,
    run,
)
from roost_bench.sia.conditions import Conditions

SERVERS = ParameterServerJobs(OptimusBench(jobs=4, nodes=4, length_s=300.0))


@pytest.fixture
def learning(tmp_path: Path) -> LearningJobs:
    for name in CONSTANTS:
        write_profiles(tmp_path / "profiles", name)
    lines = [f"bert-{at},{60 * at},bert,2,64\n" for at in range(6)]
    file = tmp_path / "six.csv"
    file.write_text("name,time,application,num_replicas,batch_size\n" + "".join(lines))
    return LearningJobs(tmp_path, (file,), 5)


def changed(what: str, value: str) -> Conditions:
    study = find(what)
    return study.condition(Conditions(), study.read(value))


def test_each_study_changes_its_own_condition() -> None:
    assert changed("speed-error", "30") == Conditions(speed_error=0.3)
    assert changed("epochs-error", "10%") == Conditions(epochs_error=0.1)
    assert changed("load", "1.5") == Conditions(load=1.5)
    assert changed("restart-cost", "2m") == Conditions(restart_s=120.0)
    assert changed("rigid", "100") == Conditions(rigid=1.0)
    assert changed("arrivals", "bursty") == Conditions(arrivals=Arrivals.BURSTY)
    assert changed("arrivals", "trace") == Conditions()
    assert changed("failures", "6h") == Conditions(failures=Failures(node_mtbf_s=21600.0))
    assert changed("failures", "never") == Conditions()
    assert find("mode").bench(OptimusBench(), "async").mode == "async"
    assert find("epochs-error").bench(OptimusBench(), 0.0).told


def test_the_usual_values_are_what_they_should_cover() -> None:
    for what, study in STUDIES.items():
        for value in study.values:
            changed(what, value)
    for what in ("speed-error", "epochs-error"):
        assert [find(what).read(value) for value in find(what).values] == [
            *(0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
        ]
    assert changed("restart-cost", STUDIES["restart-cost"].values[-1]).restart_s == 600.0


@pytest.mark.parametrize("what", STUDIES)
def test_parameter_server_jobs_take_part_in_every_study(what: str) -> None:
    last = cases(what, SERVERS, ["fifo"], 1)[-1]
    figures = run(last)
    assert figures.jobs == 4
    assert 0 < figures.mean_jct_h <= figures.p99_jct_h <= figures.makespan_h


@pytest.mark.parametrize("what", sorted(set(STUDIES) - {"mode"}))
def test_adaptive_jobs_take_part_in_every_study_but_one(what: str, learning: LearningJobs) -> None:
    last = cases(what, learning, ["fifo"], 1)[-1]
    figures = run(last)
    assert figures.jobs == 5
    assert 0 < figures.mean_jct_h <= figures.p99_jct_h <= figures.makespan_h


def test_values_meet_the_same_jobs_and_seeds_others(learning: LearningJobs) -> None:
    def found(seed: int, value: str) -> Figures:
        return run(Case("restart-cost", value, "fifo", seed, learning))

    assert found(0, "0s") == found(0, "0s")
    assert found(0, "0s").makespan_h != found(1, "0s").makespan_h
    assert found(0, "10m").mean_jct_h > found(0, "0s").mean_jct_h


def test_cases_go_seed_by_seed() -> None:
    found = cases("load", SERVERS, ["fifo", "drf"], 2, ["1", "2", "1"])
    assert [(case.seed, case.value, case.policy) for case in found] == [
        *((0, "1", "fifo"), (0, "1", "drf"), (0, "2", "fifo"), (0, "2", "drf")),
        *((1, "1", "fifo"), (1, "1", "drf"), (1, "2", "fifo"), (1, "2", "drf")),
    ]
    assert str(found[-1]) == "load 2 under drf with seed 1"


@pytest.mark.parametrize(
    ("what", "value", "says"),
    [
        ("speed-error", "100", "below 100 %"),
        ("rigid", "120", "more than 100 %"),
        ("load", "much", "not a number"),
        ("load", "0", "load must be positive"),
        ("restart-cost", "soon", "not a duration"),
        ("failures", "0s", "must be a positive"),
        ("arrivals", "trace", "need a workload"),
    ],
)
def test_values_that_cannot_be_are_refused(what: str, value: str, says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        cases(what, SERVERS, ["fifo"], 1, [value])


def test_unknown_names_are_told_with_the_nearest(learning: LearningJobs) -> None:
    with pytest.raises(NotFound, match="speed-error"):
        find("speed-eror")
    with pytest.raises(NotFound, match="poisson"):
        cases("arrivals", SERVERS, ["fifo"], 1, ["poison"])
    with pytest.raises(InvalidSpec, match="study of servers"):
        cases("mode", learning, ["fifo"], 1)


def figures(mean: float) -> Figures:
    return Figures(4, mean, 2 * mean, 3 * mean, 1.0)


def test_changes_and_ratios_are_told_from_pairs() -> None:
    found = cases("load", SERVERS, ["a", "b"], 2, ["1", "2"])
    jcts = [1.0, 2.0, 1.5, 2.2, 10.0, 30.0, 15.0, 33.0]
    rows = compare((case, figures(jct)) for case, jct in zip(found, jcts, strict=True))
    assert [(row.value, row.policy, row.seeds) for row in rows] == [
        *(("1", "a", 2), ("1", "b", 2), ("2", "a", 2), ("2", "b", 2)),
    ]
    first, _, a, b = rows
    assert first.mean_jct_h.mean == pytest.approx(5.5)
    assert first.mean_jct_h.half_width == pytest.approx(student_t(1) * 4.5)
    assert a.change.mean == pytest.approx(0.5)
    assert a.change.half_width == pytest.approx(0.0)
    assert b.change.mean == pytest.approx(0.1)
    assert b.ratio.mean == pytest.approx((2.2 / 1.5 + 33 / 15) / 2)
    assert a.ratio.mean == 1.0


def test_what_is_over_can_be_compared_though_runs_are_missing() -> None:
    found = cases("load", SERVERS, ["a", "b"], 2, ["1", "2"])
    rows = compare([(found[3], figures(2.0)), (found[4], figures(1.0))])
    assert [(row.value, row.policy) for row in rows] == [("2", "b"), ("1", "a")]
    assert rows[1].change.mean is None
    assert compare([]) == []


def test_the_plot_has_a_bar_for_each_policy_at_each_value() -> None:
    found = cases("rigid", SERVERS, ["a", "b"], 2, ["0", "50"])
    drawn = svg(plot(compare((case, figures(1.0 + case.seed)) for case in found)))
    titles = [element.text or "" for element in drawn.iter() if element.tag.endswith("title")]
    for name in ("0, a", "0, b", "50, a", "50, b"):
        assert any(title.startswith(name) for title in titles)
