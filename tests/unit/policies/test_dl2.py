"""DL2: weights that fit are used, others refused; a new network with estimates is lookahead."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from roost.core import (
    Core,
    Costs,
    JobSpec,
    Launch,
    Measured,
    NodeJoined,
    Policy,
    Progressed,
    Range,
    Resized,
    Resources,
    Role,
    Started,
    Submitted,
    Woke,
)
from roost.core.spec import Training
from roost.errors import InvalidSpec
from roost.placement import placer
from roost.policies import policy as by_name
from roost.policies.dl2 import SHIPPED, Dl2
from roost.policies.kit.networks import Network
from roost.policies.kit.parameter_servers.gains import Size
from roost.policies.kit.parameter_servers.learned import NAMES, Inputs
from roost.policies.kit.parameter_servers.slots import held
from roost.policies.lookahead import Lookahead
from roost.testing.builders import job, node, run
from roost.testing.checks import validate
from roost.testing.conformance import PolicyConformance

WORKER = Resources(gpus=1, cpu_milli=2000)
SERVER = Resources(gpus=0, cpu_milli=2000)
BATCH = 64
JOBS = {"short": 20.0, "long": 200.0}


class TestConformance(PolicyConformance):
    @pytest.fixture(params=[Dl2(), Dl2(inputs="own")])
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        found: Policy = request.param
        return found


def trained(epochs: float, application: str = "net") -> JobSpec:
    return JobSpec(
        workers=Range(1, 8),
        resources=WORKER,
        roles=(Role("ps", 1, SERVER, most=8),),
        application=application,
        training=Training(batch=BATCH, epochs=epochs),
        costs=Costs(resize_s=20.0),
    )


def sizes(policy: Policy, gpus: int, slots: int = 2) -> dict[str, Size]:
    """What two jobs of one application have after so many slots, their speed measured."""
    core = Core(policy, placer("even"))
    core.handle(NodeJoined(0.0, node("n0", gpus, cpu_milli=4000 * gpus)))
    asked = (Submitted(1.0, job(name), trained(epochs)) for name, epochs in JOBS.items())
    for action in core.handle(*asked):
        assert isinstance(action, Launch)
        core.handle(Started(1.0, action.run))
    for p, w in ((1, 1), (1, 4), (4, 4), (2, 8), (8, 8), (4, 2), (2, 2)):
        step_s = 0.95 / w + 0.05 + 0.01 * w / p + 0.001 * (w + p)
        told = Measured(2.0, run("short"), w, step_s, servers=p, local_batch=BATCH // w, epochs=5.0)
        core.handle(told)
    core.handle(Measured(2.0, run("long"), 1, 1.0, servers=1, local_batch=BATCH, epochs=5.0))
    core.handle(*(Progressed(3.0, run(name), 300.0, 1.0) for name in JOBS))
    for _ in range(slots):
        core.handle(Woke(core.wake_at))
        core.handle(*(Resized(core.now, one.id) for one in core.runs.values() if one.target))
    validate(core)
    return {name: held(core.runs[run(name)]) for name in JOBS}


def own(path: Path, scores: dict[str, float]) -> str:
    """Weights that score every step by what its inputs are worth."""
    names = (*NAMES[Inputs.OWN], "net")
    hidden = np.array([[scores.get(name, 0.0) / 100] for name in names])
    network = Network(
        "own", NAMES[Inputs.OWN], ("net",), hidden, np.zeros(1), np.array([100.0]), 0.0
    )
    path.write_text(json.dumps(network.data()))
    return str(path)


def test_a_network_that_corrects_nothing_is_lookahead(tmp_path: Path) -> None:
    names = NAMES[Inputs.ESTIMATES]
    path = tmp_path / "weights.json"
    begun = Network.begin("estimates", names, (), np.ones((len(names), 4)))
    path.write_text(json.dumps(begun.data()))

    for gpus in (3, 6, 12):
        mine = sizes(Dl2(weights=str(path), probe_s=0), gpus)
        assert mine == sizes(Lookahead(probe_s=0), gpus)


def test_without_a_model_a_job_walks_as_long_as_a_step_scores_above_0(tmp_path: Path) -> None:
    # One more of both scores 2 - what there is already / 4: three more at most.
    wish = {"a worker more": 1.0, "a server more": 1.0, "workers": -4.0}
    found = sizes(Dl2(inputs="own", weights=own(tmp_path / "w.json", wish)), 32, 4)

    assert found == {"short": Size(8, 8), "long": Size(8, 8)}
    wish["workers"] = -16.0 * 2.0 / 3.5
    found = sizes(Dl2(inputs="own", weights=own(tmp_path / "w.json", wish)), 32, 4)
    assert found == {"short": Size(4, 4), "long": Size(4, 4)}


def test_a_sort_is_known_by_its_application(tmp_path: Path) -> None:
    wish = {"net": 1.0, "a worker more": -2.0, "workers": -1.0}
    found = sizes(Dl2(inputs="own", weights=own(tmp_path / "w.json", wish)), 16, 4)

    assert found == {"short": Size(8, 1), "long": Size(8, 1)}


def test_where_there_is_no_room_for_all_the_best_steps_come_first(tmp_path: Path) -> None:
    wish = {"part left": 1.0, "a worker more": 1.0, "a server more": -2.0}
    found = sizes(Dl2(inputs="own", weights=own(tmp_path / "w.json", wish)), 6, 4)

    assert found["long"].workers > found["short"].workers
    assert sum(size.workers for size in found.values()) == 6


@pytest.mark.parametrize("inputs", list(Inputs))
def test_the_weights_that_ship_fit(inputs: Inputs) -> None:
    found = by_name(f"dl2:inputs={inputs}")

    assert found == Dl2(inputs=inputs)
    assert (SHIPPED / f"dl2-{inputs}.json").stat().st_size < 60_000


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("inputs=all", "inputs must be estimates or own"),
        ("weights=nowhere.json", "cannot read weights nowhere.json"),
        ("slot_s=0", "a second at least"),
        ("speed_error=2", "parts of 1"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: str, says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        by_name(f"dl2:{settings}")


def test_weights_of_the_other_inputs_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="made for inputs=own, not for inputs=estimates"):
        Dl2(weights=str(SHIPPED / "dl2-own.json"))
