"""A pool holds exactly the nodes that meet its constraints."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.unit.kubernetes.kube_objects import Object, node, pod

from roost.core.spec import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.objects.constraints import Constraints, Pools, constraints_of
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.objects.nodes import node_spec

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affine(*terms: Object) -> Object:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def label(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def admits(spec: Object, on: Object) -> bool:
    """Whether a pod with such a spec may go to a node."""
    pools = Pools()
    pools.see(on)
    return bool(pools[pools.add(constraints_of(spec))])


@pytest.mark.parametrize(
    ("selector", "labels", "fits"),
    [
        ({}, {}, True),
        ({"a": "1"}, {"a": "1", "b": "2"}, True),
        ({"a": "1"}, {"a": "2"}, False),
        ({"a": "1"}, {}, False),
        ({"a": "1", "b": "2"}, {"a": "1"}, False),
        ({"a": ""}, {"a": ""}, True),
    ],
)
def test_every_pair_of_the_selector_must_be_a_label(
    selector: dict[str, str],
    labels: dict[str, str],
    fits: bool,  # noqa: FBT001
) -> None:
    assert admits({"nodeSelector": selector}, node(labels=labels)) is fits


@pytest.mark.parametrize(
    ("term", "labels", "fits"),
    [
        (label("a", "In", "1", "2"), {"a": "2"}, True),
        (label("a", "In", "1", "2"), {"a": "3"}, False),
        (label("a", "In", "1"), {}, False),
        (label("a", "NotIn", "1"), {"a": "2"}, True),
        (label("a", "NotIn", "1"), {"a": "1"}, False),
        (label("a", "NotIn", "1"), {}, True),
        (label("a", "Exists"), {"a": ""}, True),
        (label("a", "Exists"), {}, False),
        (label("a", "DoesNotExist"), {}, True),
        (label("a", "DoesNotExist"), {"a": ""}, False),
        (label("a", "Gt", "10"), {"a": "11"}, True),
        (label("a", "Gt", "10"), {"a": "10"}, False),
        (label("a", "Gt", "10"), {"a": "9"}, False),
        (label("a", "Gt", "10"), {"a": "many"}, False),
        (label("a", "Gt", "10"), {"a": "٩٩"}, False),
        (label("a", "Gt", "10"), {}, False),
        (label("a", "Gt", "-5"), {"a": "-4"}, True),
        (label("a", "Lt", "10"), {"a": "9"}, True),
        (label("a", "Lt", "10"), {"a": "10"}, False),
        ({"matchFields": label("metadata.name", "In", "n0")["matchExpressions"]}, {}, True),
        ({"matchFields": label("metadata.name", "In", "n1")["matchExpressions"]}, {}, False),
        ({"matchFields": label("metadata.name", "NotIn", "n0")["matchExpressions"]}, {}, False),
        ({}, {}, False),
        ({"matchExpressions": []}, {}, False),
    ],
)
def test_the_operators_of_node_affinity(
    term: Object,
    labels: dict[str, str],
    fits: bool,  # noqa: FBT001
) -> None:
    assert admits(affine(term), node(labels=labels)) is fits


def test_one_term_is_enough_but_all_of_it() -> None:
    both = {
        "matchExpressions": [
            *label("a", "Exists")["matchExpressions"],
            *label("b", "Exists")["matchExpressions"],
        ]
    }

    assert admits(affine(both, label("c", "Exists")), node(labels={"c": ""}))
    assert admits(affine(both, label("c", "Exists")), node(labels={"a": "", "b": ""}))
    assert not admits(affine(both, label("c", "Exists")), node(labels={"a": ""}))
    assert not admits(affine(), node())
    assert admits({"affinity": {"nodeAffinity": {}}}, node())


def test_a_selector_and_an_affinity_must_both_hold() -> None:
    spec = {"nodeSelector": {"b": "2"}, **affine(label("a", "Exists"))}

    assert admits(spec, node(labels={"a": "", "b": "2"}))
    assert not admits(spec, node(labels={"a": ""}))
    assert not admits(spec, node(labels={"b": "2"}))


def test_preferences_are_no_constraints() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}

    assert constraints_of({"affinity": {"nodeAffinity": preferred}}) == Constraints()


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        ([], False),
        ([{"key": "gpu", "operator": "Exists"}], True),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "gpu", "value": "yes"}], True),
        ([{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}], True),
        ([{"key": "gpu", "value": "no"}], False),
        ([{"key": "gpu"}], False),
        ([{"operator": "Exists"}], True),
        ([{"operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"key": "other", "operator": "Exists"}], False),
        ([{"key": "other", "operator": "Exists"}, {"operator": "Exists"}], True),
    ],
)
def test_tolerations(
    tolerations: list[Object],
    fits: bool,  # noqa: FBT001
) -> None:
    tainted = node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])

    assert admits({"tolerations": tolerations}, tainted) is fits


def test_every_taint_must_be_tolerated_and_discouraging_ones_need_not() -> None:
    taints = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "effect": "NoExecute"},
        {"key": "c", "effect": "PreferNoSchedule"},
    ]
    first = {"key": "a", "operator": "Exists"}

    assert not admits({"tolerations": [first]}, node(taints=taints))
    assert admits({"tolerations": [first, {"key": "b", "operator": "Exists"}]}, node(taints=taints))


@pytest.mark.parametrize("given", [{"ready": "Unknown"}, {"spec": {"unschedulable": True}}])
def test_closed_and_lost_nodes_are_in_no_pool_whatever_is_tolerated(given: Object) -> None:
    assert not admits({"tolerations": [{"operator": "Exists"}]}, node(**given))


@pytest.mark.parametrize(
    ("wanted", "offered", "fits"),
    [
        ((("rdma/hca", 2),), {"rdma/hca": "2"}, True),
        ((("rdma/hca", 2),), {"rdma/hca": "1"}, False),
        ((("rdma/hca", 2),), {}, False),
        ((("hugepages-2Mi", 4 << 20),), {"hugepages-2Mi": "1Gi"}, True),
    ],
)
def test_a_node_must_offer_what_the_core_does_not_count(
    wanted: tuple[tuple[str, int], ...],
    offered: dict[str, str],
    fits: bool,  # noqa: FBT001
) -> None:
    pools = Pools()
    pools.see(node(allocatable=offered))

    assert bool(pools[pools.add(constraints_of({}, wanted))]) is fits


def test_parts_of_devices_go_where_devices_can_be_parted() -> None:
    pools = Pools()
    pools.see(node("plain"))
    pools.see(node("sized", labels={"nvidia.com/gpu.memory": "81559"}))
    pools.see(node("turns", allocatable={"nvidia.com/gpu.shared": "80"}))

    assert pools[pools.add(constraints_of({}))] == {"plain", "sized", "turns"}
    assert pools[pools.add(constraints_of({}, devices="split"))] == {"plain", "sized"}
    assert pools[pools.add(constraints_of({}, devices="sized"))] == {"sized"}


@pytest.mark.parametrize(
    "spec",
    [
        affine(label("a", "Near", "1")),
        affine(label("a", "In")),
        affine(label("a", "Exists", "1")),
        affine(label("a", "Gt", "1", "2")),
        affine(label("a", "Gt", "1.5")),
        affine(label("a", "Lt", "1e400")),
        affine(label("a", "Lt", "99999999999999999999")),
        affine({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["x"]}]}),
        affine({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}),
        affine({"matchExpressions": {"key": "a"}}),
        {"affinity": []},
        {"affinity": {"nodeAffinity": {REQUIRED: []}}},
        {"nodeSelector": ["a"]},
        {"nodeSelector": {"a": 1}},
        {"tolerations": {}},
        {"tolerations": ["a"]},
        {"tolerations": [{"key": "a", "operator": "Near"}]},
        {"tolerations": [{"value": "x"}]},
        {"tolerations": [{"key": 1}]},
    ],
)
def test_senseless_constraints_are_refused(spec: Object) -> None:
    with pytest.raises(InvalidSpec):
        constraints_of(spec)


def test_the_name_does_not_depend_on_the_order_of_things() -> None:
    terms = [label("a", "In", "1", "2"), label("b", "Exists")]
    seconds = {"operator": "Exists", "tolerationSeconds": 300}
    one = {
        "nodeSelector": {"x": "1", "y": "2"},
        "tolerations": [{"key": "t", **seconds}, {"key": "u", "value": "v"}],
        **affine(*terms),
    }
    other = {
        "nodeSelector": {"y": "2", "x": "1"},
        "tolerations": [
            {"key": "u", "operator": "Equal", "value": "v"},
            {"key": "t", "operator": "Exists"},
        ],
        **affine(label("b", "Exists"), label("a", "In", "2", "1")),
    }

    assert constraints_of(one) == constraints_of(other)
    assert constraints_of(one).name == constraints_of(other).name
    assert constraints_of(one).name != constraints_of({}).name


def test_the_name_is_the_same_in_another_process() -> None:
    assert constraints_of({"nodeSelector": {"a": "1"}}).name == "pool-81a16e6e759c1aec"


def test_a_pod_names_the_pool_that_its_constraints_make() -> None:
    need = needs(pod(requests={"nvidia.com/gpu": "1"}))
    pools = Pools()

    assert pools.add(need.constraints) == need.pool == need.resources.pool
    assert need.pool in pools
    assert len(pools) == 1


def test_changes_are_told_once_and_only_what_is_new() -> None:
    pools = Pools()
    red, rest = constraints_of({"nodeSelector": {"c": "red"}}), constraints_of({})
    first, second = pools.add(red), pools.add(rest)
    assert dict(pools.changes()) == {first: frozenset(), second: frozenset()}
    assert dict(pools.changes()) == {}

    pools.see(node("a", labels={"c": "red"}))
    pools.see(node("b", labels={"c": "red"}))
    assert dict(pools.changes()) == {first: {"a", "b"}, second: {"a", "b"}}

    pools.see(node("b", labels={"c": "blue"}))
    assert dict(pools.changes()) == {first: {"a"}}

    pools.see(node("b", labels={"c": "blue", "d": "new"}))
    assert dict(pools.changes()) == {}

    pools.see(node("a", labels={"c": "red"}, ready="False"))
    assert dict(pools.changes()) == {first: frozenset(), second: {"b"}}

    pools.forget(NodeId("b"))
    pools.forget(NodeId("never"))
    assert dict(pools.changes()) == {second: frozenset()}


def test_a_pool_that_comes_late_knows_the_nodes_that_are_there() -> None:
    pools = Pools()
    pools.see(node("a"))

    name = pools.add(constraints_of({}))
    assert dict(pools.changes()) == {name: {"a"}}
    assert pools.add(constraints_of({})) == name
    assert dict(pools.changes()) == {}


def test_a_barred_node_is_out_of_pools_old_and_new_until_it_is_not() -> None:
    pools = Pools()
    name = pools.add(constraints_of({}))
    pools.bar(NodeId("a"))
    pools.see(node("a"))
    pools.see(node("a", labels={"b": "1"}))
    assert pools[name] == pools[pools.add(constraints_of({"nodeSelector": {"b": "1"}}))] == set()

    pools.unbar(NodeId("a"))
    assert pools[name] == {"a"}


def test_a_dropped_pool_is_forgotten() -> None:
    pools = Pools()
    name = pools.add(constraints_of({}))
    pools.drop(name)
    pools.see(node("a"))

    assert name not in pools
    assert dict(pools.changes()) == {}


def reference(spec: Object, on: Object) -> bool:
    """The rules once more, slowly and word for word."""
    labels = on["metadata"]["labels"]
    if on["spec"].get("unschedulable"):
        return False
    if [c["status"] for c in on["status"]["conditions"] if c["type"] == "Ready"] != ["True"]:
        return False
    for key in spec["nodeSelector"]:
        if key not in labels or labels[key] != spec["nodeSelector"][key]:
            return False
    for taint in on["spec"]["taints"]:
        tolerated = [one for one in spec["tolerations"] if tolerates(one, taint)]
        if taint["effect"] != "PreferNoSchedule" and not tolerated:
            return False
    terms = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return any(term_holds(term, labels, on["metadata"]["name"]) for term in terms)


def tolerates(toleration: Object, taint: Object) -> bool:
    if toleration["effect"] != "" and toleration["effect"] != taint["effect"]:
        return False
    if toleration["operator"] == "Exists":
        return toleration["key"] == "" or bool(toleration["key"] == taint["key"])
    return bool(toleration["key"] == taint["key"] and toleration["value"] == taint["value"])


def term_holds(term: Object, labels: dict[str, str], name: str) -> bool:
    tests = [holds(one, labels) for one in term["matchExpressions"]]
    tests += [holds(one, {"metadata.name": name}) for one in term["matchFields"]]
    return bool(tests) and all(tests)


def holds(one: Object, labels: dict[str, str]) -> bool:
    there, value = one["key"] in labels, labels.get(one["key"], "")
    if one["operator"] == "In":
        return there and value in one["values"]
    if one["operator"] == "NotIn":
        return not there or value not in one["values"]
    if one["operator"] == "Exists":
        return there
    if one["operator"] == "DoesNotExist":
        return not there
    if not there or not value.lstrip("-").isdigit():
        return False
    if one["operator"] == "Gt":
        return int(value) > int(one["values"][0])
    return int(value) < int(one["values"][0])


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["1", "2", "-3", "x", ""])
NAMES = st.sampled_from(["n0", "n1", "n2"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
NODES = st.builds(
    lambda labels, taints, unschedulable, ready: {
        "labels": labels,
        "taints": taints,
        "spec": {"unschedulable": unschedulable},
        "ready": ready,
    },
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.lists(st.fixed_dictionaries({"key": KEYS, "value": VALUES, "effect": EFFECTS}), max_size=2),
    st.sampled_from([False, False, False, True]),
    st.sampled_from(["True", "True", "True", "Unknown"]),
)


def expressions(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> Any:
    def made(key: str, operator: str) -> Any:
        lists: Any = st.just([])
        if operator in {"In", "NotIn"}:
            lists = st.lists(values, min_size=1, max_size=3)
        elif operator in {"Gt", "Lt"}:
            lists = st.lists(st.sampled_from(["0", "1", "-3"]), min_size=1, max_size=1)
        return lists.map(lambda found: {"key": key, "operator": operator, "values": found})

    operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    return st.lists(st.tuples(keys, operators).flatmap(lambda pair: made(*pair)), max_size=2)


TOLERATIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.one_of(KEYS, st.just("")),
            "operator": st.just("Exists"),
            "effect": st.one_of(EFFECTS, st.just("")),
        }
    ),
    st.fixed_dictionaries(
        {
            "key": KEYS,
            "operator": st.just("Equal"),
            "value": VALUES,
            "effect": st.one_of(EFFECTS, st.just("")),
        }
    ),
)
SPECS = st.builds(
    lambda selector, terms, tolerations: {
        "nodeSelector": selector,
        "tolerations": tolerations,
        **affine(*terms),
    },
    st.dictionaries(KEYS, VALUES, max_size=1),
    st.lists(
        st.fixed_dictionaries(
            {
                "matchExpressions": expressions(KEYS, VALUES),
                "matchFields": expressions(st.just("metadata.name"), NAMES),
            }
        ),
        max_size=3,
    ),
    st.lists(TOLERATIONS, max_size=3),
)


@settings(max_examples=examples(200))
@given(
    st.lists(SPECS, min_size=1, max_size=4),
    st.lists(st.tuples(NAMES, st.none() | NODES), max_size=12),
)
def test_pools_agree_with_the_slow_and_obvious(
    specs: list[Object], history: list[tuple[str, Object | None]]
) -> None:
    pools, there, told = Pools(), dict[str, Object](), dict[str, frozenset[NodeId]]()
    names = [pools.add(constraints_of(spec)) for spec in specs[::2]]
    for name, given_node in history:
        if given_node is None:
            there.pop(name, None)
            pools.forget(NodeId(name))
        else:
            there[name] = node(name, **given_node)
            pools.see(there[name])
        told.update(pools.changes())
    names += [pools.add(constraints_of(spec)) for spec in specs[1::2]]
    told.update(pools.changes())

    for name, spec in zip(names, specs[::2] + specs[1::2], strict=True):
        expected = {one for one, on in there.items() if reference(spec, on)}
        assert pools[name] == told[name] == expected


def test_a_node_is_placed_in_microseconds() -> None:
    """Measured 0.9 us per pool; 50 is the promise."""
    pools = Pools()
    for number in range(10):
        spec = {"nodeSelector": {"pool": str(number)}, **affine(label("zone", "In", "a", "b"))}
        pools.add(constraints_of(spec))
    labels = {f"key-{number}": "value" for number in range(30)} | {"pool": "3", "zone": "b"}
    nodes = [node(f"n{number}", labels=labels) for number in range(1000)]

    started = time.process_time()
    for one in nodes:
        pools.see(one)
    assert (time.process_time() - started) / 10_000 < 50e-6
    assert sum(len(nodes) for _, nodes in pools.changes()) == 1000


@pytest.mark.parametrize(
    ("given_as", "whole", "share"),
    [("", True, True), ("whole", True, False), ("shares", False, True), ("both", True, True)],
)
def test_a_label_says_whether_devices_are_given_out_whole(
    given_as: str,
    whole: bool,  # noqa: FBT001
    share: bool,  # noqa: FBT001
) -> None:
    on = node(labels={"roost.dev/gpus-as": given_as} if given_as else {})
    pools = Pools()
    pools.see(on)
    asking = {
        "whole": pod(requests={"nvidia.com/gpu": "1"}),
        "share": pod(annotations={"roost.dev/gpu-share": "0.5"}),
        "none": pod(),
    }

    found = {name: pools.add(needs(one).constraints) for name, one in asking.items()}

    admitted = {name: bool(pools[pool]) for name, pool in found.items()}
    assert admitted == {"whole": whole, "share": share, "none": True}
    assert node_spec(on).mixed is (given_as == "both")


def test_a_term_that_makes_no_sense_matters_only_where_no_other_is_left() -> None:
    def spec(*tests: object) -> Object:
        terms = [{"matchExpressions": [test]} for test in tests]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"affinity": {"nodeAffinity": required}}

    odd = {"key": "rank", "operator": "Gt", "values": ["x"]}
    good = {"key": "rank", "operator": "Exists"}
    assert constraints_of(spec(odd, good)) == constraints_of(spec(good))
    with pytest.raises(InvalidSpec, match="Gt needs one whole number"):
        constraints_of(spec(odd))
