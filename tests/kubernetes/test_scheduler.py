"""Pods of others, placed by Roost on a real API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import httpx
from tests.kubernetes.jobbing import define, jobbing
from tests.kubernetes.operating import (
    GROUP,
    SIZE,
    Play,
    bound,
    by_gang,
    gang,
    operating,
    over_committed,
    pods,
)
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import create, node, nodes, pod, until

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import (
    BATCH_JOBS,
    CLUSTER_QUEUES,
    EVENTS,
    JOB_SETS,
    LEADER_WORKER_SETS,
    NODES,
    PODS,
    PYTORCH_JOBS,
    QUEUES,
    RAY_CLUSTERS,
    Object,
    ResourceKind,
)
from roost.kubernetes.objects.pods import GPUS, PLAN, SEAT, is_bound

DEFINITIONS = ResourceKind(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    namespaced=False,
)


def test_a_hundred_gangs_on_two_hundred_nodes(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 200, gpus=4)
        made = [one for n in range(100) for one in gang(f"gang-{n}", 8)]
        await create(api, PODS, made)
        found = await until(lambda: bound(api, 800), 60)
        assert set(by_gang(found).values()) == {(8, 8)}
        assert await over_committed(api) == []

    play(scenario)


def test_a_gang_that_half_fits_binds_nothing_and_says_why(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 1, gpus=8)
        await create(api, PODS, gang("large", 8, gpus=2))
        found = await until(lambda: told(api, "large-0"))
        assert found["reason"] == "Unschedulable"
        assert "16 GPUs" in found["message"]
        assert not any(map(is_bound, await pods(api)))
        event = await until(lambda: event_on(api, "large-0"))
        assert (event["reason"], event["note"]) == ("FailedScheduling", found["message"])
        await create(api, NODES, [node("more", gpus=8)])
        await until(lambda: bound(api, 8))

    play(scenario)


def test_a_gang_waits_until_all_its_pods_are_there(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 2)
        made = gang("slow", 4)
        await create(api, PODS, made[:3])
        found = await until(lambda: told(api, "slow-0"))
        assert found["message"] == "waits for the whole gang: 3 of 4 pods can be placed"
        assert not any(map(is_bound, await pods(api)))
        await create(api, PODS, made[3:])
        await until(lambda: bound(api, 4))

    play(scenario)


def test_pods_of_a_pytorch_job_are_a_gang(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await api.create(DEFINITIONS, defined("kubeflow.org", "v1", "PyTorchJob"))
        await until(lambda: api.discover(PYTORCH_JOBS))
        await nodes(api, 1, gpus=3)
        spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}
        made = await api.create(
            PYTORCH_JOBS, {"metadata": {"name": "bert", "namespace": "default"}, "spec": spec}
        )
        members = [("master", 0), ("worker", 0), ("worker", 1), ("worker", 2)]
        await create(api, PODS, [of_training_operator(made, *member) for member in members])
        await asyncio.sleep(1)
        assert not any(map(is_bound, await pods(api)))
        await create(api, NODES, [node("more", gpus=3)])
        found = await until(lambda: bound(api, 4), 60)  # a new kind is looked for now and then
        seats = {one["metadata"]["name"]: one["metadata"]["annotations"][SEAT] for one in found}
        assert seats == {
            "bert-master-0": "worker-0",
            "bert-worker-0": "worker-1",
            "bert-worker-1": "worker-2",
            "bert-worker-2": "worker-3",
        }
        assert len({one["metadata"]["annotations"][PLAN] for one in found}) == 1

    play(scenario)


def test_a_pod_that_its_queue_holds_does_not_ask_for_nodes(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner
) -> None:
    """Autoscalers buy nodes for what is Unschedulable; more nodes do not help a queue's limit."""

    async def scenario() -> None:
        await define(api)
        await nodes(api, 1, gpus=8)
        await api.create(CLUSTER_QUEUES, {"metadata": {"name": "small"}, "spec": {"limit": 1}})
        await api.create(QUEUES, in_default("small", {"clusterQueue": "small"}), "default")
        async with jobbing(cluster):
            await create(api, PODS, gang("held", 2, labels={"roost.dev/queue": "small"}))
            found = await until(lambda: told(api, "held-0"))
            assert (found["reason"], "at its limit" in found["message"]) == ("OverQuota", True)
            await create(api, PODS, gang("half", 2)[:1])
            assert (await until(lambda: told(api, "half-0")))["reason"] == "Blocked"

    runner.run(scenario())


def test_gangs_of_ray_and_of_leader_worker_sets_are_placed_whole(play: Play) -> None:
    """Of two RayClusters, and of three groups, only as many as fit hold anything."""

    async def scenario(api: Api) -> None:
        for kind in (RAY_CLUSTERS, LEADER_WORKER_SETS):
            await api.create(DEFINITIONS, defined(kind.group, kind.version, kind.kind))
            await until(partial(api.discover, kind))
        await nodes(api, 1, gpus=6)
        for name in ("ray-a", "ray-b"):
            spec = {"workerGroupSpecs": [{"replicas": 3}]}
            made = await api.create(RAY_CLUSTERS, in_default(name, spec))
            await create(api, PODS, [of_ray(made, n) for n in range(4)])
        found = await until(lambda: bound(api, 4), 60)  # a new kind is looked for now and then
        await asyncio.sleep(1)
        assert by_prefix(await pods(api), 5) in ({"ray-a": 4}, {"ray-b": 4})
        for one in filter(is_bound, found):
            await api.delete(PODS, one["metadata"]["name"], "default", grace_s=0)
        await until(lambda: bound(api, 4))

        await create(api, NODES, [node("more", gpus=5)])
        set_spec = {"replicas": 3, "leaderWorkerTemplate": {"size": 3}}
        await api.create(LEADER_WORKER_SETS, in_default("lws", set_spec))
        members = [(group, worker) for group in range(3) for worker in range(3)]
        await create(api, PODS, [of_leader_worker_set(*member) for member in members])
        await until(lambda: bound(api, 4 + 6))
        await asyncio.sleep(1)
        held = by_prefix(await pods(api), 5)
        assert sorted(held[group] for group in held if group.startswith("lws")) == [3, 3]

    play(scenario)


def test_pods_of_a_batch_job(play: Play) -> None:
    """Those of an indexed Job are a gang; those of another are placed one by one."""

    async def scenario(api: Api) -> None:
        await nodes(api, 1, gpus=3)
        for name, mode in (("gang", "Indexed"), ("each", "NonIndexed")):
            made = await api.create(BATCH_JOBS, batch_job(name, mode, 4))
            await create(api, PODS, [of_job_controller(made, n) for n in range(4)])
        found = await until(lambda: bound(api, 3))
        names = sorted(one["metadata"]["name"][:4] for one in found if is_bound(one))
        assert names == ["each", "each", "each"]

    play(scenario)


def test_selectors_affinity_and_taints(play: Play) -> None:
    async def scenario(api: Api) -> None:
        taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
        await create(
            api,
            NODES,
            [
                node("plain", labels={"zone": "east"}),
                node("west", labels={"zone": "west", "size": "4"}),
                node("tainted", taints=[taint]),
            ],
        )
        west = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]}
        required = {"nodeSelectorTerms": [west]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        toleration = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
        await create(
            api,
            PODS,
            [
                pod("selects", nodeSelector={"zone": "east"}),
                pod("prefers", affinity=affinity),
                pod(
                    "tolerates",
                    tolerations=[toleration],
                    nodeSelector={"kubernetes.io/hostname": "tainted"},
                ),
                pod("nowhere", nodeSelector={"zone": "north"}),
                pod("untolerated", nodeSelector={"kubernetes.io/hostname": "tainted"}),
            ],
        )
        found = {p["metadata"]["name"]: p for p in await until(lambda: bound(api, 3))}
        assert found["selects"]["spec"]["nodeName"] == "plain"
        assert found["prefers"]["spec"]["nodeName"] == "west"
        assert found["tolerates"]["spec"]["nodeName"] == "tainted"
        assert "no node matches" in (await until(lambda: told(api, "nowhere")))["message"]
        assert "no node matches" in (await until(lambda: told(api, "untolerated")))["message"]
        # What keeps a pod away can go away.
        await api.patch(NODES, "tainted", {"spec": {"taints": None}})
        await until(lambda: bound(api, 4))

    play(scenario)


def test_pods_that_keep_apart_go_to_nodes_of_their_own(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 2)
        apart = {
            "labelSelector": {"matchLabels": {"app": "x"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
        shy = [pod(f"shy-{n}", labels={"app": "x"}, affinity=anti) for n in range(3)]
        await create(api, PODS, shy)
        found = await until(lambda: bound(api, 2))
        there = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in found if is_bound(one)}
        assert len(set(there.values())) == len(there) == 2
        (left,) = {f"shy-{n}" for n in range(3)} - there.keys()
        condition = await until(lambda: told(api, left))
        assert "a pod there keeps it away" in condition["message"]
        await api.delete(PODS, next(iter(there)), "default", grace_s=0)
        await until(lambda: bound(api, 2))

    play(scenario)


def test_fractions_share_devices_and_never_exceed_one(play: Play) -> None:
    async def scenario(api: Api) -> None:
        labels = {"nvidia.com/gpu.memory": "40960"}
        await create(api, NODES, [node("one", gpus=2, labels=labels)])
        shares = [("0.5", 3), ("0.25", 4), ("0.3", 1)]
        made = [
            pod(f"part-{share[2:]}-{n}", gpus=0, annotations={"roost.dev/gpu-share": share})
            for share, count in shares
            for n in range(count)
        ]
        for one in made:
            await api.create(PODS, one)
        await until(lambda: bound(api, 5))
        await asyncio.sleep(0.5)
        used = {"0": 0.0, "1": 0.0}
        for one in await pods(api):
            if is_bound(one):
                notes = one["metadata"]["annotations"]
                used[notes[GPUS]] += float(notes["roost.dev/gpu-share"])
        assert all(0.75 < part <= 1.0 for part in used.values()), used

    play(scenario)


def test_one_that_ends_makes_room(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 1, gpus=1)
        await create(api, PODS, [pod("first")])
        await until(lambda: bound(api, 1))
        await create(api, PODS, [pod("second")])
        await until(lambda: told(api, "second"))
        await api.patch(
            PODS,
            "first",
            {"metadata": {"annotations": {"roost.dev/pretend": "succeeds"}}},
            "default",
        )
        await until(lambda: bound(api, 2))

    play(scenario)


def test_a_new_pod_of_a_running_gang_takes_the_vacant_seat(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 2, gpus=2)
        made = gang("team", 4)
        await create(api, PODS, made)
        before = {p["metadata"]["name"]: p for p in await until(lambda: bound(api, 4))}
        await api.delete(PODS, "team-2", "default", grace_s=0)
        await create(api, PODS, [made[2]])
        after = await until(lambda: bound(api, 4))
        again = next(p for p in after if p["metadata"]["name"] == "team-2")
        for name in (SEAT, GPUS, PLAN):
            notes = before["team-2"]["metadata"]["annotations"]
            assert again["metadata"]["annotations"][name] == notes[name]
        assert again["spec"]["nodeName"] == before["team-2"]["spec"]["nodeName"]

    play(scenario)


def test_those_who_are_done_make_room_while_the_rest_of_their_gang_goes_on(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 1, gpus=4)
        members = gang("uneven", 4)
        for one in members[1:]:
            one["metadata"]["annotations"]["roost.dev/pretend"] = "succeeds"
        await create(api, PODS, members)
        await until(lambda: bound(api, 4))
        await create(api, PODS, [pod("next"), *gang("pair", 2)])
        await until(lambda: bound(api, 7))
        assert await over_committed(api) == []

    play(scenario)


def test_a_node_takes_as_many_pods_as_it_says(play: Play) -> None:
    async def scenario(api: Api) -> None:
        small = node("small", gpus=0)
        for amounts in (small["status"]["allocatable"], small["status"]["capacity"]):
            amounts["pods"] = "4"
        await create(api, NODES, [small])
        await create(api, PODS, [pod("agent", gpus=0, scheduler="other", nodeName="small")])
        await create(api, PODS, [pod(f"p-{n}", gpus=0) for n in range(5)])
        await until(lambda: bound(api, 4))
        await asyncio.sleep(1.5)
        assert sum(map(is_bound, await pods(api))) == 4

    play(scenario)


def test_a_gang_that_grows_gets_room_for_those_that_came_late(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await nodes(api, 2, gpus=2)
        notes = {GROUP: "team", SIZE: "2"}
        await create(api, PODS, [pod(f"team-{n}", annotations=notes) for n in range(2)])
        await until(lambda: bound(api, 2))
        await create(api, PODS, [pod("team-2", annotations=notes)])
        await until(lambda: bound(api, 3))
        assert await over_committed(api) == []

    play(scenario)


def test_parts_of_a_job_set_that_start_in_order_are_gangs_of_their_own(play: Play) -> None:
    async def scenario(api: Api) -> None:
        await api.create(DEFINITIONS, defined("jobset.x-k8s.io", "v1alpha2", "JobSet"))
        await until(lambda: api.discover(JOB_SETS))
        await nodes(api, 1)
        part = {"replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2}}}
        spec = {
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": [{"name": "driver", **part}, {"name": "workers", **part}],
        }
        metadata = {"name": "steps", "namespace": "default"}
        made = await api.create(JOB_SETS, {"metadata": metadata, "spec": spec})
        await create(api, PODS, [of_job_set(made, "driver", n) for n in range(2)])
        await until(lambda: bound(api, 2), 60)
        await create(api, PODS, [of_job_set(made, "workers", 0)])
        await asyncio.sleep(0.5)
        assert sum(map(is_bound, await pods(api))) == 2
        await create(api, PODS, [of_job_set(made, "workers", 1)])
        await until(lambda: bound(api, 4))

    play(scenario)


def test_figures_and_health_are_served(cluster: ControlPlane, runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        async with (
            operating(cluster, metrics_port=0) as operator,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{operator.health.port}") as client,
        ):
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).text == "leads\n"
            figures = (await client.get("/metrics")).text
            assert "roost_leading 1.0" in figures
            assert 'roost_mirror_objects{kind="pods"} 0.0' in figures
            assert "roost_decision_seconds_count" in figures

    runner.run(scenario())


# -- what is asked of a cluster --------------------------------------------------------------------


async def told(api: Api, name: str) -> Object:
    """Why a pod is not scheduled, as its condition says."""
    found = await api.get(PODS, name, "default")
    for one in found["status"].get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return dict(one)
    return {}


async def event_on(api: Api, name: str) -> Object:
    """An Event about a pod."""
    found, _ = await api.list(EVENTS, "default")
    return next((one for one in found if one["regarding"]["name"] == name), {})


# -- as other controllers make them ----------------------------------------------------------------


def defined(group: str, version: str, kind: str) -> Object:
    """The definition of a kind that may have any fields."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{**served, "schema": {"openAPIV3Schema": anything}}],
        },
    }


def of_job_set(owner: Object, part: str, index: int) -> Object:
    """A pod as the Jobs of a JobSet make it."""
    name = owner["metadata"]["name"]
    completion = {"batch.kubernetes.io/job-completion-index": str(index)}
    made = pod(
        f"{name}-{part}-0-{index}",
        labels={
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": part,
            "jobset.sigs.k8s.io/job-index": "0",
            **completion,
        },
        annotations=completion,
    )
    job = {"metadata": {"name": f"{name}-{part}-0", "uid": owner["metadata"]["uid"]}}
    return owned(made, job, "batch/v1", "Job")


def of_training_operator(owner: Object, role: str, index: int) -> Object:
    """A pod as the training operator makes it."""
    name = owner["metadata"]["name"]
    made = pod(
        f"{name}-{role}-{index}",
        labels={
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": str(index),
        },
    )
    return owned(made, owner, "kubeflow.org/v1", "PyTorchJob")


def in_default(name: str, spec: Object) -> Object:
    """An object of that name."""
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def of_ray(owner: Object, index: int) -> Object:
    """A pod as KubeRay makes it: the first is the head."""
    name = owner["metadata"]["name"]
    group = "workers" if index else "headgroup"
    made = pod(f"{name}-{index}", labels={"ray.io/cluster": name, "ray.io/group": group})
    return owned(made, owner, "ray.io/v1", "RayCluster")


def of_leader_worker_set(group: int, worker: int) -> Object:
    """A pod as a LeaderWorkerSet's StatefulSets make it."""
    key = "leaderworkerset.sigs.k8s.io"
    labels = {
        f"{key}/name": "lws",
        f"{key}/group-index": f"{group}",
        f"{key}/worker-index": f"{worker}",
    }
    return pod(f"lws-{group}-{worker}", labels=labels)


def by_prefix(found: list[Object], length: int) -> Counter[str]:
    """How many pods are bound of those with the same beginning of their names."""
    return Counter(one["metadata"]["name"][:length] for one in found if is_bound(one))


def batch_job(name: str, mode: str, parallelism: int) -> Object:
    """A batch Job whose pods somebody else makes: there is no controller here."""
    template = pod("template")
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completionMode": mode,
            "completions": parallelism,
            "parallelism": parallelism,
            "template": {"spec": template["spec"]},
        },
    }


def of_job_controller(owner: Object, index: int) -> Object:
    """A pod as the Job controller makes it."""
    name = owner["metadata"]["name"]
    completion = "batch.kubernetes.io/job-completion-index"
    indexed = {completion: str(index)} if owner["spec"]["completionMode"] == "Indexed" else {}
    made = pod(
        f"{name}-{index}",
        labels={"batch.kubernetes.io/job-name": name, **indexed},
        annotations=indexed,
    )
    return owned(made, owner, "batch/v1", "Job")


def owned(made: Object, owner: Object, version: str, kind: str) -> Object:
    """A pod that a controller owns."""
    meta = owner["metadata"]
    reference = {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return made
