"""``roost bench teams``: an hour of two teams, and an oracle that is not easily satisfied."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.cli.told import roost

from roost.kubernetes.client.kinds import JOBS, NODES, PODS, Object
from roost_bench.teams.autoscaler import GPUS, NodePool
from roost_bench.teams.cluster import SPACE, MemoryCluster
from roost_bench.teams.hour import played
from roost_bench.teams.oracle import Look, Oracle, Waiting, could_begin, look
from roost_bench.teams.script import Script, Team, by_chance, by_hand


def test_the_hour_by_hand_keeps_every_promise() -> None:
    hour = played(by_hand())
    assert hour.broken == []
    assert (hour.checks, hour.jobs, hour.ended) == (60, 11, 11)
    by_minute = {row.minute: row for row in hour.rows}
    assert by_minute[15].teams[0].borrowed == 8, "one team borrows what the other lends"
    assert by_minute[15].teams[1].lent == 8
    assert by_minute[30].teams[1].held == 16, "and the other has all of it when it comes back"
    assert hour.restarts >= 2, "for that somebody had to stop, and for the machine that failed"
    assert max(row.nodes for row in hour.rows) == 4
    assert by_minute[60].nodes < 4, "the pool shrinks"


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_by_chance_keeps_every_promise(seed: int) -> None:
    hour = played(by_chance(seed))
    assert hour.broken == []
    assert hour.checks == 60
    assert hour.ended > 0


def test_the_same_seed_is_the_same_hour() -> None:
    assert played(by_chance(3)) == played(by_chance(3))


def test_a_table_and_rows() -> None:
    told = roost("bench", "teams")
    assert told.status == 0
    assert "60 checks, 0 broken" in told.out
    rows = json.loads(roost("bench", "teams", "--seed", "1", "-o", "json").out)
    assert [row["minute"] for row in rows["rows"]] == list(range(5, 61, 5))
    assert {"nodes", "teams", "waiting", "broken"} <= rows["rows"][0].keys()
    assert rows["broken"] == []


# -- the oracle ----------------------------------------------------------------------------------

TEAMS = (Team("vision", 8, 4, 4), Team("speech", 8, 4, 2))


class Clock(MemoryCluster):
    """Objects at a moment that tests choose."""

    time = 0.0

    def now(self) -> float:
        return self.time


def world(nodes: int, jobs: list[tuple[str, str, int, int, dict[str, int]]]) -> Oracle:
    """Nodes of eight GPUs, and jobs: name, team, workers, GPUs of each, and where they are."""
    cluster = Clock()
    for number in range(nodes):
        cluster.put(NODES, ("", f"n{number}"), {"metadata": {"name": f"n{number}"}})
    for name, team, workers, gpus, places in jobs:
        spec: dict[str, Any] = {"queue": team, "workers": workers, "gpus": gpus}
        cluster.put(JOBS, (SPACE, name), {"metadata": {"name": name}, "spec": spec})
        cluster.left_s[name] = 100.0
        for node, count in places.items():
            for number in range(count):
                key = (SPACE, f"{name}-{node}-{number}")
                cluster.put(PODS, key, pod(name, key[1], node, gpus))
    return Oracle(cluster, Script(TEAMS, (), 0.0, nodes), NodePool(cluster, nodes))


def pod(job: str, name: str, node: str, gpus: int) -> Object:
    """A pod that runs."""
    return {
        "metadata": {"name": name, "namespace": SPACE, "labels": {"roost.dev/job": job}},
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"limits": {GPUS: str(gpus)}}}],
        },
        "status": {"phase": "Running"},
    }


def after(oracle: Oracle, seconds: float) -> list[str]:
    """What is broken, and still is after so long."""
    assert isinstance(oracle.cluster, Clock)
    oracle.broken()
    oracle.cluster.time += seconds
    return oracle.broken()


def test_a_team_that_waits_below_its_promise_beside_free_gpus_is_told() -> None:
    oracle = world(1, [("a", "vision", 1, 4, {"n0": 1}), ("b", "vision", 1, 4, {})])
    assert after(oracle, 30.0) == []
    assert after(oracle, 61.0) == ["b is within its team's promise and waits for 91 s"]


def test_a_team_that_waits_for_its_own_while_others_borrow_it_is_told() -> None:
    lent = [(f"a{n}", "vision", 1, 4, {"n0": 1} if n < 2 else {"n1": 1}) for n in range(3)]
    oracle = world(2, [*lent, ("b", "speech", 1, 8, {})])
    assert "b is within its team's promise and waits for 61 s" in after(oracle, 61.0)


def test_a_team_that_wants_more_than_it_was_promised_may_wait() -> None:
    oracle = world(2, [("a", "vision", 1, 8, {"n0": 1}), ("b", "vision", 1, 1, {})])
    assert after(oracle, 9999.0) == []


def test_one_that_fits_nowhere_whatever_borrowers_give_back_may_wait() -> None:
    oracle = world(1, [("a", "vision", 1, 4, {"n0": 1}), ("b", "speech", 1, 8, {})])
    assert after(oracle, 9999.0) == []  # vision is within its promise: nobody has to give


def test_too_much_on_a_node_of_a_team_and_of_what_is_lent_is_told() -> None:
    oracle = world(2, [("a", "vision", 3, 4, {"n0": 3})])
    assert oracle.broken()[0] == "node n0 has 4 GPUs too few"
    oracle = world(2, [("a", "vision", 4, 4, {"n0": 2, "n1": 2})])
    assert oracle.broken() == [
        "vision borrows 8 GPUs, and may borrow 4",
        "8 GPUs are borrowed where 2 are lent",
    ]


def test_half_a_gang_is_told() -> None:
    oracle = world(2, [("a", "vision", 2, 4, {"n0": 1})])
    assert after(oracle, 61.0) == ["a has some of its pods for 61 s"]


def test_every_way_to_give_back_is_tried() -> None:
    jobs = [
        ("small", "vision", 1, 2, {"n0": 1}),
        ("large", "vision", 1, 6, {"n1": 1}),
        ("other", "vision", 1, 4, {"n0": 1}),
    ]
    oracle = world(2, jobs)
    seen: Look = look(oracle.cluster, oracle.script, 8)
    quotas = {"vision": 8, "speech": 8}
    # 12 are held, 4 too many: the large one may go, after which nobody else has to.
    assert could_begin(Waiting("b", "speech", 1, 8), seen, seen.free, quotas)
    assert not could_begin(Waiting("b", "speech", 2, 8), seen, seen.free, quotas)


def test_a_pool_grows_for_placeholders_alone_and_no_further_than_it_may() -> None:
    oracle = world(0, [])
    oracle.pool.most = 2
    waits = pod("a", "a", "", 8)
    del waits["spec"]["nodeName"]
    for number in range(3):
        one = {**waits, "metadata": {"name": f"p{number}", "namespace": SPACE}}
        one["status"] = {"phase": "Pending", "conditions": [{"reason": "Unschedulable"}]}
        oracle.cluster.put(PODS, (SPACE, f"p{number}"), one)
    oracle.pool.look()
    assert len(oracle.pool.coming) == 2
    after(oracle, oracle.pool.boot_s)
    oracle.pool.look()
    assert (oracle.pool.size, oracle.pool.coming) == (2, [])
