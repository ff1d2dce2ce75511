"""Which gang a pod belongs to, by the customs of everybody who makes pods."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubernetes.kube_objects import Object, pod, some

from roost.errors import InvalidSpec
from roost.kubernetes.objects.gang_refs import GangOwner, gang_of, index_of, role_of
from roost.kubernetes.objects.gang_sizes import completed, size_of

TRAINING = "training.kubeflow.org/"
JOB_SET = "jobset.sigs.k8s.io/"
INDEX = "batch.kubernetes.io/job-completion-index"
BATCH = ("batch/v1", "Job", "sum")


def test_a_plain_pod_is_a_gang_of_one() -> None:
    ref = gang_of(pod("alone"))

    assert (ref.id, ref.kind, ref.name, ref.namespace) == ("team.pod.alone", "pod", "alone", "team")
    assert (ref.size, ref.owner, ref.alone) == (1, None, True)
    assert (role_of(pod()), index_of(pod())) == ("worker", 0)


def test_the_pod_of_a_deployment_stands_for_itself() -> None:
    ref = gang_of(pod("web-1", owner=("apps/v1", "ReplicaSet", "web")))

    assert (ref.id, ref.size) == ("team.pod.web-1", 1)
    assert ref.owner == GangOwner("apps", "v1", "ReplicaSet", "web", "o1")


def test_the_pod_of_a_roost_job() -> None:
    labels = {
        "roost.dev/job": "bert",
        "roost.dev/attempt": "2",
        "roost.dev/role": "ps",
        "roost.dev/index": "3",
    }
    one = pod("bert-2-ps-3", labels=labels, owner=("roost.dev/v1alpha1", "Job", "bert"))
    ref = gang_of(one)

    assert (ref.id, ref.kind, ref.size, ref.alone) == ("team.bert", "roost", None, False)
    assert (role_of(one), index_of(one)) == ("ps", 3)


def test_nobody_passes_for_a_roost_job_by_a_label() -> None:
    assert gang_of(pod("x", labels={"roost.dev/job": "bert"})).id == "team.pod.x"
    assert gang_of(pod("x", labels={"roost.dev/job": "bert"}, owner=BATCH)).id == "team.pod.x"


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_group_of_its_own(where: str) -> None:
    given = {where: {"roost.dev/group": "ring", "roost.dev/group-size": "4"}}
    ref = gang_of(pod("x", **given))

    assert (ref.id, ref.kind, ref.size, ref.owner) == ("team.group.ring", "group", 4, None)


def test_the_size_of_a_group_may_stand_beside_its_name() -> None:
    ref = gang_of(
        pod(labels={"roost.dev/group": "ring"}, annotations={"roost.dev/group-size": "4"})
    )

    assert ref.size == 4


@pytest.mark.parametrize(
    "labels",
    [
        {"roost.dev/group": "ring"},
        {"roost.dev/group": "ring", "roost.dev/group-size": "0"},
        {"roost.dev/group": "ring", "roost.dev/group-size": "-1"},
        {"roost.dev/group": "ring", "roost.dev/group-size": "1e400"},
        {"roost.dev/group": "ring", "roost.dev/group-size": "NaN"},
        {"roost.dev/group": "ring", "roost.dev/group-size": "\u0663"},
        {"roost.dev/group": "ring", "roost.dev/group-size": "9" * 100_000},
        {"roost.dev/group": "ring", "roost.dev/group-size": "100001"},
        {"roost.dev/group": "ring", "roost.dev/group-size": 4},
        {"roost.dev/group": "", "roost.dev/group-size": "4"},
        {"roost.dev/group": "a/b", "roost.dev/group-size": "4"},
        {"roost.dev/group": "a\n", "roost.dev/group-size": "4"},
        {"roost.dev/group": "r" * 100_000, "roost.dev/group-size": "4"},
        {"roost.dev/group": ["ring"], "roost.dev/group-size": "4"},
        {"scheduling.x-k8s.io/pod-group": "../etc"},
        {f"{TRAINING}job-name": ["x"]},
        {f"{TRAINING}job-name": "x", f"{TRAINING}operator-name": 3},
    ],
)
def test_senseless_groups_are_refused(labels: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as error:
        gang_of(pod(labels=labels))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("where", "key", "group"),
    [
        ("labels", "scheduling.x-k8s.io/pod-group", "scheduling.x-k8s.io"),
        ("labels", "pod-group.scheduling.sigs.k8s.io", "scheduling.x-k8s.io"),
        ("labels", "scheduling.volcano.sh/group-name", "scheduling.volcano.sh"),
        ("annotations", "scheduling.k8s.io/group-name", "scheduling.volcano.sh"),
        ("annotations", "scheduling.volcano.sh/group-name", "scheduling.volcano.sh"),
        ("annotations", "pod-group-name", "scheduling.run.ai"),
    ],
)
def test_pod_groups(where: str, key: str, group: str) -> None:
    given: dict[str, Any] = {where: {key: "pg"}}
    ref = gang_of(pod("x", **given))

    assert (ref.id, ref.kind, ref.size) == ("team.podgroup.pg", "podgroup", None)
    assert ref.owner is not None
    assert (ref.owner.group, ref.owner.kind, ref.owner.name) == (group, "PodGroup", "pg")
    assert completed(ref, {"kind": "PodGroup", "spec": {"minMember": 6}}).size == 6


def test_a_label_of_that_plain_name_is_somebody_elses() -> None:
    assert gang_of(pod("x", labels={"pod-group-name": "pg"})).id == "team.pod.x"


def trained(role: str, index: str, **given: Any) -> Object:
    labels = {
        f"{TRAINING}job-name": "bert",
        f"{TRAINING}replica-type": role,
        f"{TRAINING}replica-index": index,
        f"{TRAINING}operator-name": "pytorchjob-controller",
    }
    if role == "master":
        labels[f"{TRAINING}job-role"] = "master"
    return pod(
        f"bert-{role}-{index}",
        labels=labels,
        owner=("kubeflow.org/v1", "PyTorchJob", "bert"),
        **given,
    )


def test_a_job_of_the_training_operator() -> None:
    master, worker = trained("master", "0"), trained("worker", "2")
    ref = gang_of(worker)

    assert gang_of(master) == ref
    assert (ref.id, ref.kind, ref.size) == ("team.pytorchjob.bert", "pytorchjob", None)
    assert ref.owner == GangOwner("kubeflow.org", "v1", "PyTorchJob", "bert", "o1")
    assert (role_of(master), index_of(master)) == ("master", 0)
    assert (role_of(worker), index_of(worker)) == ("worker", 2)


def test_launcher_and_workers_of_an_mpi_job_v2_are_one_gang() -> None:
    labels = {f"{TRAINING}job-name": "ring", f"{TRAINING}operator-name": "mpi-operator"}
    launcher = pod(
        "ring-launcher-x",
        labels={**labels, f"{TRAINING}job-role": "launcher"},
        owner=("batch/v1", "Job", "ring-launcher"),
    )
    worker = pod(
        "ring-worker-1",
        labels={**labels, f"{TRAINING}job-role": "worker", f"{TRAINING}replica-index": "1"},
        owner=("kubeflow.org/v2beta1", "MPIJob", "ring"),
    )

    assert gang_of(launcher).id == gang_of(worker).id == "team.mpijob.ring"
    owner = gang_of(launcher).owner
    assert owner is not None
    assert owner[:4] == ("kubeflow.org", "v2beta1", "MPIJob", "ring")
    assert (role_of(launcher), index_of(launcher)) == ("launcher", 0)
    assert (role_of(worker), index_of(worker)) == ("worker", 1)


def test_a_kubeflow_label_without_an_owner_is_not_enough() -> None:
    assert gang_of(pod("x", labels={f"{TRAINING}job-name": "bert"})).id == "team.pod.x"


def test_a_pod_group_comes_before_the_job_that_made_it() -> None:
    one = trained("worker", "1")
    one["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "bert"

    assert gang_of(one).id == "team.podgroup.bert"
    assert (role_of(one), index_of(one)) == ("worker", 1)


def replicas(kind: str, field: str, counts: dict[str, int | None], **spec: Any) -> Object:
    specs = {role: {} if count is None else {"replicas": count} for role, count in counts.items()}
    return {"kind": kind, "metadata": {"name": "j"}, "spec": {field: specs, **spec}}


@pytest.mark.parametrize(
    ("owner", "size"),
    [
        (replicas("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 3}), 4),
        (replicas("PyTorchJob", "pytorchReplicaSpecs", {"Master": None, "Worker": 3}), 4),
        (replicas("TFJob", "tfReplicaSpecs", {"Chief": 1, "PS": 2, "Worker": 4}), 7),
        (replicas("MPIJob", "mpiReplicaSpecs", {"Launcher": 1, "Worker": 4}), 5),
        (
            replicas(
                "MPIJob",
                "mpiReplicaSpecs",
                {"Launcher": 1, "Worker": 4},
                launcherCreationPolicy="WaitForWorkersReady",
            ),
            4,
        ),
        (
            replicas(
                "PyTorchJob",
                "pytorchReplicaSpecs",
                {"Master": 1, "Worker": 7},
                runPolicy={"schedulingPolicy": {"minAvailable": 5}},
            ),
            5,
        ),
        ({"kind": "PodGroup", "spec": {"minMember": 3}}, 3),
        ({"kind": "PodGroup", "spec": {}}, 1),
        ({"kind": "Job", "spec": {}}, 1),
        ({"kind": "Job", "spec": {"parallelism": 4, "completions": 4}}, 4),
        ({"kind": "Job", "spec": {"parallelism": 4, "completions": 2}}, 2),
        ({"kind": "Job", "spec": {"parallelism": 4, "completions": 100}}, 4),
        (
            {
                "kind": "Job",
                "spec": {"parallelism": 4, "completions": 10},
                "status": {"succeeded": 8},
            },
            2,
        ),
        (
            {
                "kind": "Job",
                "spec": {"parallelism": 4, "completions": 4},
                "status": {"succeeded": 9},
            },
            1,
        ),
    ],
)
def test_how_many_pods_start_together(owner: Object, size: int) -> None:
    assert size_of(owner) == size


@pytest.mark.parametrize(
    "owner",
    [
        {},
        {"kind": "Deployment", "spec": {"replicas": 3}},
        {"kind": "PodGroup", "spec": {"minMember": -1}},
        {"kind": "PodGroup", "spec": {"minMember": "3"}},
        {"kind": "PodGroup", "spec": {"minMember": 10**9}},
        {"kind": "PodGroup", "spec": []},
        {"kind": ["PodGroup"]},
        {"kind": "JobSet", "spec": {}},
        {"kind": "JobSet", "spec": {"replicatedJobs": {}}},
        {"kind": "PyTorchJob", "spec": {}},
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": []}},
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": []}}},
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1.5}}}},
        {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": -3}}}},
        {"kind": "Job", "spec": {"parallelism": True}},
    ],
)
def test_senseless_sizes_are_refused(owner: Object) -> None:
    with pytest.raises(InvalidSpec):
        size_of(owner)


def member(part: str, job: str = "0", index: str = "0") -> Object:
    labels = {
        f"{JOB_SET}jobset-name": "llm",
        f"{JOB_SET}jobset-uid": "js1",
        f"{JOB_SET}replicatedjob-name": part,
        f"{JOB_SET}job-index": job,
        INDEX: index,
    }
    return pod(f"llm-{part}-{job}-{index}", labels=labels, owner=("batch/v1", "Job", "llm-x-0"))


def job_set(*parts: Object, **spec: Any) -> Object:
    return {
        "kind": "JobSet",
        "metadata": {"name": "llm"},
        "spec": {"replicatedJobs": list(parts), **spec},
    }


def part(name: str, jobs: int, pods: int, *after: str) -> Object:
    spec = {"parallelism": pods, "completions": pods}
    found: Object = {"name": name, "replicas": jobs, "template": {"spec": spec}}
    if after:
        found["dependsOn"] = [{"name": one, "status": "Complete"} for one in after]
    return found


def test_a_job_set_is_one_gang() -> None:
    owner = job_set(part("leader", 1, 1), part("workers", 2, 4))
    refs = {completed(gang_of(member(name)), owner) for name in ("leader", "workers")}

    assert {(ref.id, ref.size) for ref in refs} == {("team.jobset.llm", 9)}
    first = gang_of(member("leader"))
    assert first.owner == GangOwner("jobset.x-k8s.io", "v1alpha2", "JobSet", "llm", "js1")
    assert (role_of(member("workers")), size_of(owner)) == ("workers", 9)


def test_pods_of_a_job_set_are_numbered_in_order() -> None:
    order = [("0", "0"), ("0", "3"), ("1", "0"), ("1", "3")]
    numbers = [index_of(member("workers", job, index)) for job, index in order]

    assert numbers == sorted(set(numbers))
    assert numbers[:2] == [0, 3]


def test_parts_of_a_train_job_that_wait_for_others_are_gangs_of_their_own() -> None:
    before = ("dataset-initializer", "model-initializer")
    owner = job_set(part(before[0], 1, 1), part(before[1], 1, 1), part("node", 1, 8, *before))
    data, model, node = (completed(gang_of(member(name)), owner) for name in (*before, "node"))

    assert data == model._replace(part=data.part)
    assert (data.id, data.size) == ("team.jobset.llm.dataset-initializer", 2)
    assert (node.id, node.size) == ("team.jobset.llm.node", 8)


def test_parts_that_start_in_order_are_gangs_of_their_own() -> None:
    parts = part("driver", 1, 1), part("workers", 1, 4)
    owner = job_set(*parts, startupPolicy={"startupPolicyOrder": "InOrder"})
    refs = [completed(gang_of(member(name)), owner) for name in ("driver", "workers")]

    assert [(ref.id, ref.size) for ref in refs] == [
        ("team.jobset.llm.driver", 1),
        ("team.jobset.llm.workers", 4),
    ]


def test_any_order_and_one_part_make_one_gang() -> None:
    together = job_set(
        part("a", 1, 1), part("b", 1, 1), startupPolicy={"startupPolicyOrder": "AnyOrder"}
    )
    single = job_set(part("a", 1, 4), startupPolicy={"startupPolicyOrder": "InOrder"})

    assert completed(gang_of(member("a")), together).size == 2
    assert completed(gang_of(member("a")), single)[0] == "team.jobset.llm"


def test_a_part_that_the_job_set_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="has no part 'other'"):
        completed(gang_of(member("other")), job_set(part("a", 1, 1)))


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_pods_of_an_indexed_job_work_together(where: str) -> None:
    one = pod("sum-3-x", **{where: {INDEX: "3"}}, owner=BATCH)
    ref = gang_of(one)

    assert (ref.id, ref.kind, ref.size) == ("team.job.sum", "job", None)
    assert completed(ref, {"kind": "Job", "spec": {"parallelism": 4}}).size == 4
    assert index_of(one) == 3


def test_pods_of_another_job_each_stand_for_themselves() -> None:
    ref = gang_of(pod("sum-x", labels={"batch.kubernetes.io/job-name": "sum"}, owner=BATCH))

    assert (ref.id, ref.size, ref.alone) == ("team.pod.sum-x", 1, True)


def test_an_object_from_a_list_does_not_say_its_kind() -> None:
    ref = gang_of(pod("sum-0", labels={INDEX: "0"}, owner=BATCH))

    assert completed(ref, {"spec": {"parallelism": 3}}).size == 3
    assert size_of({"spec": {"minMember": 2}}, "PodGroup") == 2


def test_a_gang_that_knows_its_size_needs_no_owner() -> None:
    ref = gang_of(pod("alone"))

    assert completed(ref, {}) is ref


def test_only_the_owner_that_manages_a_pod_counts() -> None:
    one = pod("x", labels={INDEX: "0"}, owner=BATCH)
    one["metadata"]["ownerReferences"][0]["controller"] = False

    assert gang_of(one).id == "team.pod.x"


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        [],
        {"name": 3},
        {"name": "x", "namespace": ["a"]},
        {"name": "x", "labels": ["a"]},
        {"name": "x", "annotations": "a"},
        {"name": "x", "ownerReferences": {}},
        {"name": "x", "ownerReferences": ["a"]},
        {"name": "x", "ownerReferences": [{"controller": True}]},
        {"name": "x", "ownerReferences": [{"controller": True, "name": "a", "kind": []}]},
    ],
)
def test_what_has_the_wrong_shape_is_refused(metadata: Any) -> None:
    with pytest.raises(InvalidSpec):
        gang_of({"metadata": metadata})


@pytest.mark.parametrize("index", ["-1", "x", "1e400", "\u0663", "9" * 100_000, 3, None, ["1"]])
def test_senseless_numbers_are_refused(index: Any) -> None:
    with pytest.raises(InvalidSpec):
        index_of(pod(labels={"roost.dev/index": index}))


KEYS = [
    *("roost.dev/group", "roost.dev/group-size", "roost.dev/job", "roost.dev/index", INDEX),
    *("scheduling.x-k8s.io/pod-group", "pod-group-name", f"{TRAINING}job-name"),
    *(f"{TRAINING}operator-name", f"{TRAINING}replica-index", f"{JOB_SET}jobset-name"),
    *(f"{JOB_SET}replicatedjob-name", f"{JOB_SET}job-index", "roost.dev/role"),
]
VALUES: st.SearchStrategy[Any] = (
    st.text(max_size=6)
    | st.sampled_from(["a", "0", "7", "mpi-operator"])
    | st.none()
    | st.integers()
    | st.lists(st.text(max_size=2), max_size=1)
)


@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5),
    st.sampled_from(
        [BATCH, ("kubeflow.org/v1", "PyTorchJob", "j"), ("", "", ""), ("a/b/c", "K", "é")]
    ),
)
def test_nothing_but_a_refusal_comes_of_nonsense(
    labels: Object, annotations: Object, owner: tuple[str, str, str]
) -> None:
    one = pod(labels=labels, annotations=annotations, owner=owner)
    for read in (gang_of, role_of, index_of):
        try:
            assert read(one) is not None
        except InvalidSpec as error:
            assert len(str(error)) < 300  # noqa: PT017


OWNER_FIELDS = [
    *("minMember", "replicatedJobs", "parallelism", "completions", "pytorchReplicaSpecs"),
    *("runPolicy", "startupPolicy"),
]


@given(
    st.sampled_from(["PodGroup", "JobSet", "Job", "PyTorchJob", "", "Other"]),
    some(*OWNER_FIELDS),
    some("name", "replicas", "template", "dependsOn"),
)
def test_nothing_but_a_refusal_comes_of_a_senseless_owner(
    kind: str, spec: Object, part: Object
) -> None:
    ref = gang_of(member("a"))
    for parts in ({}, {"replicatedJobs": [part, {"name": "a"}]}):
        owner = {"kind": kind, "spec": {**spec, **parts}}
        with suppress(InvalidSpec):
            assert size_of(owner) >= 1
        with suppress(InvalidSpec):
            assert completed(ref, owner).size
