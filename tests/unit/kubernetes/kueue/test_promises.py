"""What a tree of Kueue's queues is to the core."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubernetes.kube_objects import ANYTHING
from tests.unit.kubernetes.kueue.kueue_objects import (
    ANY,
    GPUS,
    cluster_queue,
    cohort,
    flavour,
    group,
    promise,
)

from roost.core import QueueId, QueueSpec
from roost.core.quota import Quota
from roost.core.quota_tree import faults_of
from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.kueue import objects
from roost.kubernetes.kueue.promises import queue_specs


def read(
    *queues: Object,
    cohorts: tuple[Object, ...] = (),
    flavours: tuple[Object, ...] = (),
    kinds: dict[str, frozenset[str]] | None = None,
) -> dict[QueueId, QueueSpec]:
    """What the core is told of these."""
    return queue_specs(
        [objects.cluster_queue(one) for one in queues],
        {one["metadata"]["name"]: objects.cohort(one) for one in cohorts},
        {one["metadata"]["name"]: objects.flavour(one) for one in flavours},
        kinds or {},
    )


def test_a_queue_of_no_cohort_has_what_it_was_promised_and_no_more() -> None:
    plain = group(default={"cpu": promise("9"), "memory": promise("36Gi"), GPUS: promise(4)})
    found = read(cluster_queue("team", plain))
    (spec,) = found.values()
    assert (spec.id, spec.quota_milli, spec.limit_milli, spec.parent) == (
        *("kueue:team", 4_000, 4_000),
        None,
    )
    assert spec.quotas == (Quota("cpu", 9_000, 0), Quota("memory", 36 * 1024, 0))


def test_a_cohort_needs_no_object_and_limits_are_kept() -> None:
    lends = group(default={GPUS: promise(8, 4, 2), "cpu": promise("500m", lending="100m")})
    found = read(cluster_queue("a", lends, cohort="all"), cluster_queue("b", cohort="all"))
    a, b = found[QueueId("kueue:a")], found[QueueId("kueue:b")]
    assert (a.parent, a.quota_milli, a.limit_milli, a.lending_milli) == (
        *("kueue-cohort:all", 8_000, 12_000),
        2_000,
    )
    assert a.quotas == (Quota("cpu", 500, None, 100),)
    assert (b.quota_milli, b.limit_milli) == (0, 0)  # what a queue does not cover it cannot have
    assert found[QueueId("kueue-cohort:all")] == QueueSpec(QueueId("kueue-cohort:all"))


def test_the_older_version_names_cohort_and_parent_otherwise() -> None:
    older = cluster_queue("a", cohort="")
    older["spec"]["cohort"] = "small"
    found = read(older, cohorts=(cohort("small", parent="large"),))
    assert found[QueueId("kueue:a")].parent == "kueue-cohort:small"
    assert found[QueueId("kueue-cohort:small")].parent == "kueue-cohort:large"
    assert QueueId("kueue-cohort:large") in found


def test_flavours_are_the_kinds_of_their_nodes() -> None:
    many = group(h100={GPUS: promise(8)}, spot={GPUS: promise(4, 2)}, t4={GPUS: promise(2)}, any={})
    flavours = (
        flavour("h100", pool="h"),
        flavour("spot", pool="s"),
        flavour("t4", None, **{"nvidia.com/gpu.product": "T4"}),
        flavour("any"),
    )
    kinds = {"h100": frozenset({"H100"}), "spot": frozenset({"H100"})}
    spec = read(cluster_queue("a", many, cohort="c"), flavours=flavours, kinds=kinds)[
        QueueId("kueue:a")
    ]
    assert spec.quota_milli == 14_000
    assert spec.quotas == (Quota("gpu:H100", 12_000), Quota("gpu:T4", 2_000))


def test_a_flavour_of_several_kinds_or_of_all_nodes_counts_in_the_sum_alone() -> None:
    both = group(mixed={GPUS: promise(8)}, all={GPUS: promise(1)})
    flavours = (flavour("mixed", pool="m"), flavour("all"))
    kinds = {"mixed": frozenset({"H100", "T4"}), "all": frozenset({"T4"})}
    (spec,) = read(cluster_queue("a", both), flavours=flavours, kinds=kinds).values()
    assert (spec.quota_milli, spec.quotas) == (9_000, ())


def test_parents_in_a_circle_are_told_by_the_core() -> None:
    around = (cohort("x", parentName="y"), cohort("y", parentName="x"), cohort("z", parentName="z"))
    found = read(cluster_queue("a", cohort="x"), cohorts=around)
    assert set(faults_of(found)) == {"kueue-cohort:x", "kueue-cohort:y"}


def test_one_that_is_stopped_has_nothing_and_lends_nothing() -> None:
    plain = group(default={GPUS: promise(4)})
    found = read(cluster_queue("a", plain, cohort="c", stopPolicy="Hold"))
    assert found[QueueId("kueue:a")] == QueueSpec(QueueId("kueue:a"), quota_milli=0, limit_milli=0)


@pytest.mark.parametrize(
    ("settings", "preempts", "words"),
    [
        ({}, False, []),
        ({**ANY, "borrowWithinCohort": {"policy": "LowerPriority"}}, True, []),
        ({"withinClusterQueue": "LowerPriority"}, True, ["reclaimWithinCohort Never"]),
        ({"reclaimWithinCohort": "Any"}, True, ["withinClusterQueue Never"]),
        (
            {**ANY, "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5}},
            True,
            ["maxPriorityThreshold"],
        ),
    ],
)
def test_preemption_as_far_as_it_goes(settings: Object, preempts: object, words: list[str]) -> None:
    found = objects.cluster_queue(cluster_queue("a", preemption=settings))
    assert found.preempts is preempts
    for word in words:
        assert any(word in note for note in found.notes), found.notes
    if not words:
        assert found.notes == ()


def test_what_is_not_honoured_is_said() -> None:
    odd = cluster_queue(
        *("a", group(default={"pods": promise(5), GPUS: promise(1)})),
        queueingStrategy="StrictFIFO",
        admissionChecks=["provision"],
        fairSharing={"weight": "0"},
        flavorFungibility={"whenCanBorrow": "TryNextFlavor"},
    )
    told = " ".join(objects.cluster_queue(odd).notes)
    for word in ("StrictFIFO", "admission checks", "weight 0", "flavorFungibility", "pods"):
        assert word in told


def test_a_lending_limit_above_the_quota_lends_the_quota() -> None:
    found = read(cluster_queue("a", group(default={GPUS: promise(2, 0, 5)}), cohort="c"))
    assert found[QueueId("kueue:a")].lending_milli == 2_000


_PARTS = st.dictionaries(
    st.sampled_from(
        [
            *("resourceGroups", "cohort", "cohortName", "parent", "parentName", "preemption"),
            *("fairSharing", "stopPolicy", "namespaceSelector", "nodeLabels", "tolerations"),
            *("flavorFungibility", "admissionChecks", "queueingStrategy", "clusterQueue"),
        ]
    ),
    ANYTHING
    | st.lists(st.dictionaries(st.sampled_from(["coveredResources", "flavors", "name"]), ANYTHING)),
)


@given(spec=_PARTS)
def test_whatever_an_object_says_is_read_or_refused_in_a_sentence(spec: Object) -> None:
    found = {"metadata": {"name": "odd"}, "spec": spec}
    for reading in (objects.cluster_queue, objects.cohort, objects.flavour, objects.local_queue):
        with suppress(InvalidSpec):
            made = reading(found)
            if isinstance(made, objects.KueueQueue):
                queue_specs([made], {}, {}, {})
            if isinstance(made, objects.KueueCohort):
                queue_specs([], {made.name: made}, {}, {})
