"""What a leader makes of the objects that it finds, and of what becomes of them."""

from __future__ import annotations

from tests.unit.kubernetes.operator.objects import Cluster, gang, node, pod

from roost import placement, policies
from roost.core import JobId, JobState, Launch, NodeId, RunId, Stop
from roost.core.allocation import seats
from roost.kubernetes.client.kinds import NODES, PODS
from roost.kubernetes.gangs.discovery import GangSource
from roost.kubernetes.operator.loop import pod_sources
from roost.kubernetes.operator.reconciler import fold
from roost.testing.checks import validate

GANG = JobId("lab.group.team")


def test_a_gang_is_submitted_when_it_is_complete_and_launched_as_a_whole() -> None:
    members = gang("team", 4)
    cluster = Cluster(node("n", 4), *members[:3])
    assert cluster.decide() == []
    assert GANG not in cluster.core.jobs

    cluster.put(members[3])
    (launch,) = cluster.decide()
    assert isinstance(launch, Launch)
    assert launch.run == RunId(GANG, 1)
    assert launch.allocation.workers == 4


def test_a_gang_that_is_not_complete_any_more_waits_no_longer() -> None:
    members = gang("team", 4)
    cluster = Cluster(node("n", 2), *members)
    cluster.decide()
    assert cluster.core.jobs[GANG].state is JobState.QUEUED
    cluster.remove(members[0])
    cluster.decide()
    assert GANG not in cluster.core.jobs


def test_a_plan_on_one_bound_pod_keeps_the_seats_of_all() -> None:
    members = gang("team", 4)
    plan = '[["a",[0,1],2],["b",[0,1],2]]'
    first = members[0]
    first["spec"]["nodeName"] = "a"
    first["metadata"]["annotations"] |= {
        "roost.dev/plan": plan,
        "roost.dev/seat": "worker-0",
        "roost.dev/gpus": "0",
        "roost.dev/attempt": "1",
    }
    cluster = Cluster(node("a", 2), node("b", 2), *members)
    run = cluster.core.jobs[GANG].run
    assert run is not None
    assert [(seat.node, seat.gpus) for seat in seats(run.allocation)] == [
        ("a", (0,)),
        ("a", (1,)),
        ("b", (0,)),
        ("b", (1,)),
    ]
    assert run.started_at is None  # three are still to be bound


def test_a_plan_whose_seats_are_taken_is_undone() -> None:
    members = gang("team", 2)
    first = members[0]
    first["spec"]["nodeName"] = "a"
    first["metadata"]["annotations"] |= {
        "roost.dev/plan": '[["a",[0]],["b",[0]]]',
        "roost.dev/seat": "worker-0",
        "roost.dev/gpus": "0",
    }
    rival = pod("rival", scheduler="default-scheduler", node="b")
    cluster = Cluster(node("a", 1), node("b", 1), *members, rival)
    actions = [action for _ in range(4) for action in cluster.decide()]
    assert [type(action) for action in actions] == [Stop]
    cluster.time += 3.0  # it is tried again
    cluster.decide()
    assert cluster.core.jobs[JobId("lab.other.rival")].state is JobState.RUNNING


def test_what_is_over_holds_nothing_and_is_not_submitted() -> None:
    done = [pod(f"done-{n}", node="n", phase="Succeeded") for n in range(5)]
    going = pod("going", deletionTimestamp="2026-01-01T00:00:00Z")
    cluster = Cluster(node("n", 1), *done, going)
    assert cluster.decide() == []
    assert cluster.core.ledger.free_milli == 1000
    assert not cluster.core.jobs


def test_pods_of_others_take_room_and_give_it_back() -> None:
    other = pod("other", 3, scheduler="default-scheduler", node="n")
    cluster = Cluster(node("n", 4), other, pod("mine", 2))
    assert cluster.decide() == []
    assert cluster.core.ledger.free_milli == 1000

    cluster.remove(other)
    (launch,) = cluster.decide()
    assert launch.run.job == "lab.pod.mine"
    assert "lab.other.other" not in cluster.core.jobs


def test_another_pod_of_the_same_name_is_counted_where_it_is() -> None:
    cluster = Cluster(node("a"), node("b"), pod("x", 8, scheduler="s", node="a", uid="1"))
    cluster.remove(cluster.objects[PODS]["lab", "x"])
    cluster.put(pod("x", 8, scheduler="s", node="b", uid="2"))
    cluster.decide()
    cluster.decide()
    run = cluster.core.jobs[JobId("lab.other.x")].run
    assert run is not None
    assert run.allocation.nodes == ("b",)


def test_a_node_without_room_for_what_is_there_is_shunned_until_there_is() -> None:
    ours = pod("ours", 8, node="n", annotations={"roost.dev/gpus": "0,1,2,3,4,5,6,7"})
    theirs = pod("theirs", 1, scheduler="s", node="n")
    cluster = Cluster(node("n"), ours, theirs)
    assert cluster.reconciler.nodes.closed == 1
    cluster.put({**ours, "status": {"phase": "Failed"}})
    cluster.decide()
    cluster.time += 5
    cluster.decide()
    cluster.decide()
    assert cluster.reconciler.nodes.closed == 0
    assert cluster.core.ledger.free_milli == 7000


def test_a_pod_that_cannot_be_understood_has_a_problem_and_no_job() -> None:
    odd = pod("odd", spec={"tolerations": [{"operator": "Sometimes"}]})
    cluster = Cluster(node("n"), odd)
    cluster.decide()
    gang_of_one = cluster.reconciler.workloads[JobId("lab.pod.odd")]
    assert "'Sometimes' is not known" in gang_of_one.problem  # type: ignore[attr-defined]
    assert not cluster.core.jobs


def test_a_seat_is_given_to_the_next_of_its_gang() -> None:
    members = gang("team", 2, node="n")
    for number, one in enumerate(members):
        one["metadata"]["annotations"] |= {
            "roost.dev/plan": '[["n",[0,1],2]]',
            "roost.dev/seat": f"worker-{number}",
            "roost.dev/gpus": str(number),
        }
    cluster = Cluster(node("n", 2), *members)
    cluster.remove(members[1])
    cluster.put(
        pod("team-1", annotations=dict(gang("team", 2)[0]["metadata"]["annotations"]), uid="new")
    )
    cluster.decide()
    found = cluster.reconciler.workloads[GANG]
    assert {uid: seat.name for uid, seat in found._members.seats.items()} == {  # type: ignore[attr-defined]
        "uid-team-0": "worker-0",
        "new": "worker-1",
    }


def test_a_lost_node_ends_what_ran_there() -> None:
    cluster = Cluster(node("n"), pod("mine", node="n", annotations={"roost.dev/gpus": "3"}))
    cluster.remove(cluster.objects[NODES]["", "n"])
    (stop,) = cluster.decide()
    assert isinstance(stop, Stop)
    assert stop.run.job == "lab.pod.mine"


def test_a_reader_folds_without_deciding() -> None:
    core = fold(
        {NODES: [node("n")], PODS: [pod("waits"), pod("runs", node="n", phase="Running")]},
        policies.policy("priority"),
        placement.placer("consolidate"),
        1000.0,
        pod_sources(),
    )
    assert core.jobs[JobId("lab.pod.waits")].state is JobState.QUEUED
    assert core.jobs[JobId("lab.pod.runs")].state is JobState.RUNNING


def test_pools_are_forgotten_with_those_who_asked_for_them() -> None:
    cluster = Cluster(node("n"), pod("stays", 99, spec={"nodeSelector": {"is": "kept"}}))
    incomplete = gang("half", 2, spec={"nodeSelector": {"is": "asked for"}})[0]
    cluster.put(incomplete, pod("alone", spec={"nodeSelector": {"is": "kept"}}))
    reconciler, core = cluster.reconciler, cluster.core
    for number in range(1500):
        one = pod(f"p-{number}", spec={"nodeSelector": {"number": str(number)}})
        cluster.put(one)
        reconciler.settle(100)
        assert core.jobs[JobId(f"lab.pod.p-{number}")].spec.resources.pool in reconciler.pools
        cluster.remove(one)
        reconciler.settle(100)
    most = max(len(reconciler.pools), len(core.ledger.members), len(reconciler._resources))
    assert most < 600
    assert set(core.ledger.members) == reconciler.pools.names()
    assert len(reconciler._asked_for) <= 3
    assert core.jobs[JobId("lab.pod.stays")].spec.resources.pool in reconciler.pools

    labelled = node("m")
    labelled["metadata"]["labels"] |= {"number": "7"}
    cluster.put(labelled, pod("p-7", spec={"nodeSelector": {"number": "7"}}))
    cluster.reconciler.settle(100)
    (launch,) = cluster.decide()
    assert isinstance(launch, Launch)
    assert launch.allocation.nodes == ("m",)


def test_a_node_takes_no_more_pods_than_it_says() -> None:
    small = node("n")
    small["status"]["allocatable"]["pods"] = "3"
    ours = [pod(f"p-{n}", 0) for n in range(4)]
    cluster = Cluster(small, pod("daemon", 0, scheduler="other", node="n"), *ours)
    assert len(cluster.decide()) == 2
    assert cluster.core.ledger.nodes[NodeId("n")].workers_left == 0
    cluster.put(pod("daemon", 0, scheduler="other", node="n", phase="Succeeded"))
    assert len(cluster.decide()) == 1


def test_a_pod_of_an_owner_that_never_comes_is_told_so() -> None:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "set",
        "jobset.sigs.k8s.io/replicatedjob-name": "part",
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    lost = pod("lost", labels=labels, ownerReferences=[job])
    cluster = Cluster(node("n"), lost)
    gangs = cluster.reconciler.sources[0]
    assert isinstance(gangs, GangSource)
    assert gangs.forlorn(cluster.time + 1) == []
    ((told, text),) = gangs.forlorn(cluster.time + 10)
    assert told["metadata"]["name"] == "lost"
    assert text == "there is no JobSet set, of which it says it is"
    cluster.remove(lost)
    assert gangs.forlorn(cluster.time + 10) == []
    assert not gangs._unclaimed


def test_seats_of_those_who_are_done_go_to_others_while_the_rest_goes_on() -> None:
    members = gang("team", 4)
    for number, one in enumerate(members):
        one["spec"]["nodeName"] = "n"
        one["metadata"]["annotations"] |= {
            "roost.dev/plan": '[["n",[0,1,2,3],4]]',
            "roost.dev/seat": f"worker-{number}",
            "roost.dev/gpus": str(number),
        }
    cluster = Cluster(node("n", 4), *members, pod("next", 2))
    cluster.decide()
    assert cluster.core.ledger.free_milli == 0
    cluster.put({**members[1], "status": {"phase": "Failed"}})  # its owner makes another
    cluster.put({**members[0], "status": {"phase": "Succeeded"}})
    assert cluster.decide() == []
    assert cluster.core.ledger.free_milli == 1000
    cluster.put({**members[2], "status": {"phase": "Succeeded"}})
    (launch,) = cluster.decide()
    assert launch.run.job == "lab.pod.next"
    assert isinstance(launch, Launch)
    assert launch.allocation.parts[0].gpus == (0, 2)

    run = cluster.core.jobs[GANG].run
    assert run is not None
    assert [seat.gpus for seat in seats(run.allocation)] == [(1,), (3,)]
    again = pod("team-1", annotations=dict(gang("team", 4)[1]["metadata"]["annotations"]), uid="x")
    cluster.remove(members[1])
    cluster.put(again)
    cluster.decide()
    found = cluster.reconciler.workloads[GANG]
    sits = {uid: seat.gpus for uid, seat in found._members.seats.items()}  # type: ignore[attr-defined]
    assert sits == {"x": (1,), "uid-team-3": (3,)}
    validate(cluster.core)


def test_the_last_of_a_gang_to_be_done_ends_it() -> None:
    members = gang("team", 2, node="n")
    cluster = Cluster(node("n", 2), *members)
    cluster.put(*({**one, "status": {"phase": "Succeeded"}} for one in members))
    cluster.decide()
    assert GANG not in cluster.core.jobs
    assert cluster.core.ledger.free_milli == 2000
