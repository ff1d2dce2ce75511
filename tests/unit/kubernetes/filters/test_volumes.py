"""Pods go where their volumes are or can be made, and not more of them than can be attached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kubernetes.storage import (
    NOBODY,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    mounting,
    storage_class,
    volume,
)
from tests.unit.kubernetes.filters.test_neighbours import places
from tests.unit.kubernetes.kube_objects import some
from tests.unit.kubernetes.operator.objects import SPACE, Cluster, gang, node, pod
from tests.unit.kubernetes.operator.small_cluster import SmallCluster, merged

from roost.core import JobId, NodeId
from roost.errors import Conflict, InvalidSpec, Retryable
from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import (
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Object,
    ResourceKind,
)
from roost.kubernetes.filters import NODE_FILTERS
from roost.kubernetes.filters.node_filter import NotReady
from roost.kubernetes.filters.volumes import VolumeFilter
from roost.kubernetes.objects.storage import SELECTED_NODE
from roost.kubernetes.objects.trimming import trimmer

KINDS = {kind.kind: kind for kind in VolumeFilter.kinds} | {"Node": NODES, "Pod": PODS}
WFFC, LOCAL, NOW = (
    storage_class("wffc"),
    storage_class("local", NOBODY),
    storage_class("now", waits=False),
)


def zoned(name: str, zone: str, **labels: str) -> Object:
    made = node(name)
    made["metadata"]["labels"] |= {"zone": zone, **labels}
    return made


A1, A2, B1 = zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b")


class Storage:
    """A filter with what the server has, and a server that takes patches."""

    def __init__(self, *given: Object, bind_s: float = 600.0) -> None:
        self.objects: dict[Any, dict[tuple[str, str], Object]] = {}
        self.patches: list[tuple[str, Object]] = []
        self.told: list[str] = []
        self.version = 0
        context = SimpleNamespace(
            api=self,
            binder=self,
            write_event=self._tell,
            objects=lambda kind: self.objects.get(kind, {}),
        )
        self.filter = VolumeFilter(context, bind_s)
        for one in (A1, A2, B1, *given):
            self.put(one)

    def put(self, one: Object) -> bool:
        kind = KINDS[one.get("kind") or ("Node" if "allocatable" in one["status"] else "Pod")]
        self.version += 1
        meta = {"uid": one["metadata"]["name"], **one["metadata"]}
        if kind is VOLUME_CLAIMS:
            meta["namespace"] = SPACE
        meta["resourceVersion"] = str(self.version)
        made = {**one, "metadata": meta}
        key = (meta.get("namespace") or "", meta["name"])
        trim = trimmer(kind)
        made = trim(made) if trim and kind not in (NODES, PODS) else made
        known = self.objects.setdefault(kind, {})
        old, known[key] = known.get(key), made
        return self.filter.object_changed(kind, old, made)

    def remove(self, kind: Any, name: str, namespace: str = "") -> None:
        self.filter.object_changed(kind, self.objects[kind].pop((namespace, name)), None)

    def refused(self, asks: Object) -> dict[NodeId, str]:
        found = [self.objects[NODES]["", name] for name in ("a1", "a2", "b1")]
        return self.filter.refusals(asks, found)

    # -- what an operator offers

    async def write(self, request: Callable[[], Awaitable[Object]]) -> Object:
        return await request()

    def _tell(self, about: Object, reason: str, text: str, **_: Any) -> None:
        del about, text
        self.told.append(reason)

    async def patch(self, kind: Any, name: str, body: Object, namespace: str = "") -> Object:
        found = self.objects[kind][namespace, name]
        meta = body["metadata"]
        if found["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict("it was changed")
        self.patches.append((name, body))
        self.version += 1
        notes = {**(found["metadata"].get("annotations") or {}), **meta["annotations"]}
        made = {
            **found,
            "metadata": {
                **found["metadata"],
                "annotations": notes,
                "resourceVersion": str(self.version),
            },
            "spec": {**found["spec"], **body.get("spec", {})},
        }
        self.objects[kind][namespace, name] = made
        self.filter.object_changed(kind, found, made)
        return made

    def change(self, kind: Any, name: str, **notes: str | None) -> None:
        """What a controller writes: annotations (None: taken off), ``volume`` into the spec."""
        key = (SPACE if kind is VOLUME_CLAIMS else "", name)
        found = self.objects[kind][key]
        spec = dict(found["spec"])
        if "volume" in notes:
            spec["volumeName"] = notes.pop("volume")
        kept = {**(found["metadata"].get("annotations") or {}), **notes}
        meta = {key: text for key, text in kept.items() if text is not None}
        self.put({**found, "metadata": {**found["metadata"], "annotations": meta}, "spec": spec})

    def bind(self, name: str, to: str) -> None:
        """What the controller of volumes does."""
        self.change(VOLUME_CLAIMS, name, volume=to, **{"pv.kubernetes.io/bind-completed": "yes"})


def wants(*claims: str, name: str = "p", **given: Any) -> Object:
    return pod(name, spec=mounting(*claims), **given)


def bound(name: str, at: str = "", **spec: Any) -> tuple[Object, Object]:
    """A claim and its volume, in a zone if that is said."""
    asks = claim(name, volume=f"v-{name}", **spec)
    return asks, volume(f"v-{name}", at={"zone": at} if at else None, claimed_by=asks)


def one_local() -> tuple[Object, Object]:
    """A claim and a volume for it that are not bound yet."""
    return claim("x", storage_class="local"), volume("v", storage_class="local")


@pytest.mark.parametrize(
    ("there", "mounted", "refused"),
    [
        (bound("data"), ["data"], ""),
        (bound("data", "a"), ["data"], "b1"),
        ([*bound("data", "a"), *bound("more", "b")], ["data", "more"], "a1 a2 b1"),
        ([LOCAL, claim("x", storage_class="local")], ["x"], "a1 a2 b1"),
        (
            [
                LOCAL,
                claim("x", storage_class="local"),
                volume("v", at={"zone": "b"}, storage_class="local"),
            ],
            ["x"],
            "a1 a2",
        ),
        (  # too small, of another class, for another claim, about to go
            [
                LOCAL,
                claim("x", storage_class="local", size="5Gi"),
                volume("small", storage_class="local"),
                volume("other", size="9Gi"),
                volume("taken", size="9Gi", storage_class="local", claimed_by=claim("y")),
            ],
            ["x"],
            "a1 a2 b1",
        ),
        (  # only read, raw, or without the label that is asked for
            [
                LOCAL,
                claim("x", storage_class="local", selector={"matchLabels": {"fast": "yes"}}),
                volume("r", storage_class="local", accessModes=["ReadOnlyMany"]),
                volume("raw", storage_class="local", volumeMode="Block"),
                volume("slow", storage_class="local", labels={"fast": "no"}),
            ],
            ["x"],
            "a1 a2 b1",
        ),
        (  # one volume does not do for two claims
            [
                LOCAL,
                claim("x", storage_class="local"),
                claim("y", storage_class="local"),
                volume("v", storage_class="local"),
            ],
            ["x", "y"],
            "a1 a2 b1",
        ),
        (  # the small claim leaves the large volume to the large one
            [
                LOCAL,
                claim("x", storage_class="local", size="8Gi"),
                claim("y", storage_class="local"),
                volume("v", storage_class="local", size="9Gi"),
                volume("w", storage_class="local", size="2Gi"),
            ],
            ["x", "y"],
            "",
        ),
        ([WFFC, claim("x", storage_class="wffc")], ["x"], ""),
        (
            [storage_class("wffc", zones=["b", "c"]), claim("x", storage_class="wffc")],
            ["x"],
            "a1 a2",
        ),
        (
            [
                WFFC,
                claim("x", storage_class="wffc"),
                csi_driver(counts=True),
                capacity("a", "wffc", "500Mi", {"zone": "a"}),
                capacity("b", "wffc", "5Gi", {"zone": "b"}),
            ],
            ["x"],
            "a1 a2",
        ),
        (
            [
                WFFC,
                claim(
                    "x",
                    storage_class="wffc",
                    annotations={"volume.kubernetes.io/selected-node": "a2"},
                ),
            ],
            ["x"],
            "a1 b1",
        ),
    ],
)
def test_a_pod_goes_where_its_volumes_are(
    there: list[Object], mounted: list[str], refused: str
) -> None:
    storage = Storage(*there)
    assert " ".join(sorted(storage.refused(wants(*mounted)))) == refused


def test_labels_of_zones_count_where_nodes_have_some() -> None:
    key = "failure-domain.beta.kubernetes.io/zone"
    asks, made = bound("data")
    made["metadata"]["labels"] = {key: "a__c"}
    storage = Storage(asks, made, zoned("a1", "a", **{"topology.kubernetes.io/zone": "a"}))
    assert not storage.refused(wants("data"))
    storage.put(zoned("b1", "b", **{"topology.kubernetes.io/zone": "b"}))
    assert list(storage.refused(wants("data"))) == ["b1"]


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ([], "'data' is not there"),
        ([claim("data")], "not bound yet"),
        ([NOW, claim("data", storage_class="now")], "not bound yet"),
        ([claim("data", storage_class="none")], "no StorageClass 'none'"),
        ([claim("data", volume="gone")], "a volume that is not there"),
        ([claim("data") | {"status": {"phase": "Lost"}}], "lost its volume"),
    ],
)
def test_a_claim_that_cannot_be_had_is_named(there: list[Object], why: str) -> None:
    storage = Storage(*there)
    assert storage.filter.concerns(wants("data"))
    with pytest.raises(NotReady, match=why):
        storage.refused(wants("data"))


def test_a_claim_that_is_being_deleted_takes_no_new_pod() -> None:
    asks, made = bound("data")
    asks["metadata"]["deletionTimestamp"] = "now"
    with pytest.raises(NotReady, match="being deleted"):
        Storage(asks, made).refused(wants("data"))


def test_pods_without_volumes_are_no_concern_nor_are_those_that_go_anywhere() -> None:
    storage = Storage(*bound("data"))
    assert not storage.filter.concerns(pod("p"))
    assert not storage.filter.concerns(pod("p", spec={"volumes": [{"name": "x", "emptyDir": {}}]}))
    assert not storage.filter.concerns(wants("data"))
    storage.put(csi_node("a1", count=3))
    assert storage.filter.concerns(wants("data"))


def test_one_pod_at_a_time() -> None:
    storage = Storage(*bound("data", accessModes=["ReadWriteOncePod"]))
    assert not storage.refused(wants("data"))
    there = wants("data", name="first", node="a1")
    storage.put(there)
    with pytest.raises(NotReady, match="first has it"):
        storage.refused(wants("data"))
    storage.put(there | {"status": {"phase": "Succeeded"}})
    assert not storage.refused(wants("data"))
    storage.filter.reserve(wants("data", name="next"), NodeId("a2"))
    with pytest.raises(NotReady, match="next has it"):
        storage.refused(wants("data"))


def test_no_more_volumes_are_attached_than_a_node_takes() -> None:
    storage = Storage(*bound("one"), *bound("two"), *bound("three"), csi_node("a1", count=2))
    storage.put(wants("one", name="p1", node="a1"))
    assert not storage.refused(wants("two"))
    storage.filter.reserve(wants("two", name="p2"), NodeId("a1"))
    assert list(storage.refused(wants("three"))) == ["a1"]
    assert not storage.refused(wants("one"))  # it is there already
    storage.filter.release(wants("two", name="p2"))
    assert not storage.refused(wants("three"))
    storage.put(attachment("at", "a1", "v-two"))
    assert list(storage.refused(wants("three"))) == ["a1"]
    assert not storage.refused(wants("two"))
    storage.remove(kinds.VOLUME_ATTACHMENTS, "at")
    assert not storage.refused(wants("three"))


def test_volumes_that_are_to_be_made_count_too() -> None:
    storage = Storage(WFFC, claim("x", storage_class="wffc"), csi_node("a1", count=1), *bound("y"))
    storage.put(wants("y", name="p1", node="a1"))
    assert list(storage.refused(wants("x"))) == ["a1"]


def test_a_plug_in_counts_as_the_driver_that_took_its_place() -> None:
    asks, made = bound("disk")
    del made["spec"]["csi"]
    made["spec"]["awsElasticBlockStore"] = {"volumeID": "vol-1"}
    limits = csi_node("a1", driver="ebs.csi.aws.com", count=0)
    storage = Storage(asks, made, limits)
    assert not storage.refused(wants("disk"))
    limits["metadata"]["annotations"] = {
        "storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"
    }
    storage.put(limits)
    assert list(storage.refused(wants("disk"))) == ["a1"]


@pytest.mark.parametrize(
    ("disk", "shared"),
    [
        ({"gcePersistentDisk": {"pdName": "d"}}, True),
        ({"awsElasticBlockStore": {"volumeID": "d"}}, False),
        ({"iscsi": {"iqn": "d"}}, True),
        ({"rbd": {"monitors": ["m"], "image": "d"}}, True),
    ],
)
def test_a_disk_is_for_one_pod_of_a_node(disk: Object, shared: bool) -> None:  # noqa: FBT001
    def using(name: str, **given: Any) -> Object:
        return pod(name, spec={"volumes": [{"name": "d", **disk}]}, **given)

    storage = Storage(using("there", node="a1"))
    assert list(storage.refused(using("p"))) == ["a1"]
    ((source, given),) = disk.items()
    disk = {source: {**given, "readOnly": True}}
    storage.put(using("there", node="a1"))
    assert list(storage.refused(using("p"))) == ([] if shared else ["a1"])


def ephemeral(name: str, uid: str) -> Object:
    template = {"spec": {"storageClassName": "wffc", "accessModes": ["ReadWriteOnce"]}}
    made = pod(
        name,
        spec={"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]},
    )
    made["metadata"]["uid"] = uid
    return made


def test_the_claim_of_an_ephemeral_volume_is_its_pods() -> None:
    storage = Storage(storage_class("wffc", zones=["a"]))
    assert list(storage.refused(ephemeral("p", ""))) == ["b1"]  # it has no pod yet
    with pytest.raises(NotReady, match="not made yet"):
        storage.refused(ephemeral("p", "u1"))
    made = claim("p-scratch", storage_class="wffc")
    made["metadata"]["ownerReferences"] = [{"uid": "u1", "controller": True}]
    storage.put(made)
    assert list(storage.refused(ephemeral("p", "u1"))) == ["b1"]
    with pytest.raises(NotReady, match="and is not"):
        storage.refused(ephemeral("p", "u2"))


def test_what_is_decided_about_a_claim_counts_for_others() -> None:
    storage = Storage(
        *(LOCAL, WFFC, claim("x", storage_class="local"), claim("y", storage_class="local")),
        *(claim("z", storage_class="wffc"), volume("v", at={"zone": "a"}, storage_class="local")),
    )
    first = wants("x", "z", name="first")
    storage.filter.reserve(first, NodeId("a1"))
    assert set(storage.refused(wants("y"))) == {"a1", "a2", "b1"}
    assert set(storage.refused(wants("x"))) == {"b1"}
    assert set(storage.refused(wants("z"))) == {"a2", "b1"}
    storage.filter.release(first)
    assert set(storage.refused(wants("y"))) == {"b1"}
    assert not storage.refused(wants("z"))


@given(
    kind=st.sampled_from(VolumeFilter.kinds),
    found=some(
        "spec",
        "status",
        "provisioner",
        "nodeTopology",
        "capacity",
        "allowedTopologies",
        "storageClassName",
    ),
)
def test_whatever_stands_in_an_object_is_borne(kind: ResourceKind, found: Object) -> None:
    filter_ = VolumeFilter(SimpleNamespace())
    made = {**found, "metadata": {"name": "x", "namespace": SPACE}, "kind": kind.kind}
    filter_.object_changed(kind, None, made)
    filter_.object_changed(kind, made, None)


def test_nonsense_is_left_out_or_told() -> None:
    storage = Storage(LOCAL, claim("x", storage_class="local"))
    odd = volume("v", storage_class="local")
    odd["spec"]["capacity"] = {"storage": "much"}
    storage.put(odd)
    assert len(storage.refused(wants("x"))) == 3
    for volumes in ([7], {"a": 1}, [{"persistentVolumeClaim": 3}]):
        senseless = pod("p", spec={"volumes": volumes})
        assert storage.filter.concerns(senseless)
        with pytest.raises(InvalidSpec):
            storage.refused(senseless)
        storage.put(senseless)
        storage.filter.reserve(senseless, NodeId("a1"))
        storage.filter.release(senseless)


# -- before a pod is bound -------------------------------------------------------------------------


async def begun(storage: Storage, asks: Object, at: str) -> asyncio.Task[None]:
    """A preparation that waits for the server."""
    storage.filter.reserve(asks, NodeId(at))
    task = asyncio.create_task(storage.filter.prepare(asks, NodeId(at)))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def test_a_volume_that_is_there_is_given_to_the_claim() -> None:
    async def story() -> None:
        storage = Storage(LOCAL, *one_local())
        task = await begun(storage, wants("x"), "a1")
        ((name, body),) = storage.patches
        assert name == "v"
        assert body["spec"]["claimRef"] | {"uid": "x", "name": "x"} == body["spec"]["claimRef"]
        assert body["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        assert not task.done()
        storage.bind("x", "v")
        await task

    asyncio.run(story())


def test_a_provisioner_is_told_the_node_and_waited_for() -> None:
    async def story() -> None:
        storage = Storage(WFFC, claim("x", storage_class="wffc"))
        task = await begun(storage, wants("x"), "b1")
        ((name, body),) = storage.patches
        assert (name, body["metadata"]["annotations"]) == (
            "x",
            {"volume.kubernetes.io/selected-node": "b1"},
        )
        storage.bind("x", "v")
        await asyncio.sleep(0)
        assert not task.done()  # nothing is known of the volume yet
        storage.put(volume("v", at={"zone": "b"}, claimed_by=claim("x")))
        await task

    asyncio.run(story())


def test_pods_of_several_nodes_share_a_claim_that_is_made_for_one() -> None:
    async def story() -> None:
        shared = claim("x", storage_class="wffc", accessModes=["ReadWriteMany"])
        storage = Storage(WFFC, shared)
        assert not storage.refused(wants("x"))
        first = await begun(storage, wants("x", name="p1"), "a1")
        assert not storage.refused(wants("x"))
        second = await begun(storage, wants("x", name="p2"), "a2")
        third = await begun(storage, wants("x", name="p3"), "b1")
        assert len(storage.patches) == 1
        storage.bind("x", "v")
        storage.put(volume("v", at={"zone": "a"}, claimed_by=shared))
        await first
        await second
        with pytest.raises(Retryable, match="made where b1 is not"):
            await third

    asyncio.run(story())


def test_a_provisioner_that_gives_up_is_tried_elsewhere_first() -> None:
    async def story() -> None:
        storage = Storage(WFFC, claim("x", storage_class="wffc"))
        asks = wants("x")
        task = await begun(storage, asks, "a1")
        storage.change(VOLUME_CLAIMS, "x", **{"volume.kubernetes.io/selected-node": None})
        with pytest.raises(Retryable, match="no volume could be made"):
            await task
        storage.filter.release(asks)
        assert set(storage.refused(asks)) == {"a1"}
        for at in ("a2", "b1"):
            task = await begun(storage, asks, at)
            storage.change(VOLUME_CLAIMS, "x", **{"volume.kubernetes.io/selected-node": None})
            with pytest.raises(Retryable):
                await task
            storage.filter.release(asks)
        assert not storage.refused(asks)  # all have failed: from the beginning

    asyncio.run(story())


def test_a_volume_that_is_made_elsewhere_is_of_no_use() -> None:
    async def story() -> None:
        storage = Storage(WFFC, claim("x", storage_class="wffc"))
        task = await begun(storage, wants("x"), "b1")
        storage.put(volume("v", at={"zone": "a"}, claimed_by=claim("x")))
        storage.bind("x", "v")
        with pytest.raises(Retryable, match="made where b1 is not"):
            await task

    asyncio.run(story())


def test_what_takes_too_long_is_given_up() -> None:
    async def story() -> None:
        storage = Storage(WFFC, claim("x", storage_class="wffc"), bind_s=0.0)
        storage.filter.reserve(wants("x"), NodeId("a1"))
        with pytest.raises(Retryable, match="no volume was bound to x"):
            await storage.filter.prepare(wants("x"), NodeId("a1"))
        assert "VolumesNotBound" in storage.told

    asyncio.run(story())


def test_nobody_waits_for_a_pod_that_is_gone() -> None:
    async def story() -> None:
        storage = Storage(WFFC, claim("x", storage_class="wffc"))
        asks = wants("x")
        task = await begun(storage, asks, "a1")
        storage.filter.release(asks)
        with pytest.raises(Retryable, match="not to go there"):
            await task

    asyncio.run(story())


def test_a_claim_that_changed_meanwhile_is_looked_at_anew() -> None:
    async def story() -> None:
        storage = Storage(WFFC, claim("x", storage_class="wffc"))
        storage.filter.reserve(wants("x"), NodeId("a1"))
        claims = storage.objects[VOLUME_CLAIMS]
        meta = claims[SPACE, "x"]["metadata"]
        claims[SPACE, "x"] = {**claims[SPACE, "x"], "metadata": {**meta, "resourceVersion": "99"}}
        with pytest.raises(Retryable, match="changed meanwhile"):
            await storage.filter.prepare(wants("x"), NodeId("a1"))

    asyncio.run(story())


def test_a_volume_that_was_given_to_another_claim_is_not_waited_for() -> None:
    async def story() -> None:
        storage = Storage(LOCAL, *one_local())
        task = await begun(storage, wants("x"), "a1")
        storage.put(volume("v", storage_class="local", claimed_by=claim("y")))
        with pytest.raises(Retryable, match="another claim"):
            await task

    asyncio.run(story())


# -- with the core ---------------------------------------------------------------------------------


def cluster_of(*given: Object) -> Cluster:
    """Nodes and pods, and storage in the namespace of the pods."""
    stored: dict[ResourceKind, dict[tuple[str, str], Object]] = {}
    others = []
    for one in given:
        kind = KINDS.get(one.get("kind", ""))
        if kind is None:
            others.append(one)
            continue
        meta = {"uid": one["metadata"]["name"], **one["metadata"]}
        meta |= {"namespace": SPACE} if kind.namespaced else {}
        stored.setdefault(kind, {})[meta.get("namespace", ""), meta["name"]] = {
            **one,
            "metadata": meta,
        }
    return Cluster(*others, objects=stored)


def test_a_gang_goes_to_the_zone_of_its_volume() -> None:
    pods = gang("g", 2, gpus=5, spec=mounting("data"))
    zones = (A1, zoned("b1", "b"), zoned("b2", "b"))
    found = places(cluster_of(*zones, *pods, *bound("data", "b")))
    assert list(found.values()) == ["b1 b2"]


def test_pods_of_a_gang_go_to_the_zones_of_their_volumes() -> None:
    pods = gang("g", 2)
    for one, name in zip(pods, ("x", "y"), strict=True):
        one["spec"] |= mounting(name)
    found = places(cluster_of(A1, A2, B1, *pods, *bound("x", "a"), *bound("y", "b")))
    assert [where.split()[1] for where in found.values()] == ["b1"]


def test_a_pod_waits_for_its_claim_and_is_told() -> None:
    cluster = cluster_of(A1, pod("p", spec=mounting("data")))
    assert not places(cluster)
    workload = cluster.reconciler.workloads[JobId(f"{SPACE}.pod.p")]
    assert workload.problem == "claim 'data' is not there"  # type: ignore[attr-defined]
    for one in bound("data", "a"):
        kind = KINDS[one["kind"]]
        one["metadata"] |= {"namespace": SPACE, "uid": one["metadata"]["name"]}
        cluster.reconciler.observe(kind, None, one)
    assert places(cluster) == {f"{SPACE}.pod.p": "a1"}


def test_a_volume_goes_to_one_of_two_pods() -> None:
    pods = [pod(f"p{n}", spec=mounting(f"c{n}")) for n in range(2)]
    claims = [claim(f"c{n}", storage_class="local") for n in range(2)]
    one = volume("v", at={"zone": "b"}, storage_class="local")
    found = places(cluster_of(A1, B1, *pods, LOCAL, *claims, one))
    assert list(found.values()) == ["b1"]


def test_a_gang_with_a_volume_on_each_node_is_spread() -> None:
    pods = gang("g", 3)
    for number, one in enumerate(pods):
        one["spec"] |= mounting(f"c{number}")
    claims = [claim(f"c{n}", storage_class="local") for n in range(3)]
    host = "kubernetes.io/hostname"
    local = [volume(f"v-{at}", at={host: at}, storage_class="local") for at in ("a1", "a2", "b1")]
    found = places(cluster_of(A1, A2, B1, *pods, LOCAL, *claims, *local))
    assert list(found.values()) == ["a1 a2 b1"]


# -- with Jobs -------------------------------------------------------------------------------------


class Provisioner:
    """Makes volumes for claims that name a node; of the nodes in ``broken`` it takes them off."""

    def __init__(self, cluster: SmallCluster, broken: set[str]) -> None:
        self._cluster, self._broken = cluster, broken
        self.asked: list[str] = []

    async def run(self) -> None:
        """Look for claims until cancelled."""
        while True:
            for key, found in list(self._cluster.objects(VOLUME_CLAIMS).items()):
                notes = found["metadata"].get("annotations") or {}
                at = notes.get(SELECTED_NODE)
                if at and not found["spec"].get("volumeName"):
                    self.asked.append(at)
                    self._answer(key, found, at)
            await asyncio.sleep(0.001)

    def _answer(self, key: tuple[str, str], found: Object, at: str) -> None:
        if at in self._broken:
            patch: Object = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        else:
            made = volume(f"v-{key[1]}", at={"kubernetes.io/hostname": at}, claimed_by=found)
            made["metadata"]["uid"] = made["metadata"]["name"]
            self._cluster.put(VOLUMES, ("", made["metadata"]["name"]), made)
            notes = {"pv.kubernetes.io/bind-completed": "yes"}
            patch = {
                "metadata": {"annotations": notes},
                "spec": {"volumeName": made["metadata"]["name"]},
            }
        self._cluster.put(VOLUME_CLAIMS, key, merged(found, patch))


async def with_provisioner(
    cluster: SmallCluster, broken: set[str], story: Callable[[Provisioner], Awaitable[None]]
) -> None:
    """Let Jobs run whose claims are provisioned."""
    cluster.filters = NODE_FILTERS
    cluster.put(STORAGE_CLASSES, ("", "wffc"), {**WFFC})
    provisioner = Provisioner(cluster, broken)
    task = asyncio.create_task(provisioner.run())
    try:
        async with asyncio.timeout(60), cluster.led():
            await story(provisioner)
    finally:
        task.cancel()


def put_claim(cluster: SmallCluster, name: str, **given: Any) -> None:
    made = claim(name, storage_class="wffc", **given)
    made["metadata"]["uid"] = name
    cluster.put(VOLUME_CLAIMS, ("default", name), made)


def test_a_job_has_its_claim_provisioned_and_runs() -> None:
    cluster = SmallCluster()
    cluster.node("a")

    async def story(provisioner: Provisioner) -> None:
        put_claim(cluster, "data")
        await cluster.submit("train", workers=2, pod=mounting("data"))
        await cluster.reaches("train", "running")
        assert provisioner.asked == ["a"]
        found = cluster.objects(VOLUME_CLAIMS)["default", "data"]
        assert found["spec"]["volumeName"] == "v-data"

    asyncio.run(with_provisioner(cluster, set(), story))


def test_a_job_waits_for_its_claim_to_be_made() -> None:
    cluster = SmallCluster()
    cluster.node("a")

    async def story(provisioner: Provisioner) -> None:
        await cluster.submit("train", pod=mounting("data"))
        await cluster.until(lambda: cluster.status("train").get("cause") == "not-ready")
        assert cluster.status("train")["reason"] == "claim 'data' is not there"
        assert cluster.status("train")["state"] == "queued"
        put_claim(cluster, "data")
        await cluster.reaches("train", "running")
        assert provisioner.asked == ["a"]

    asyncio.run(with_provisioner(cluster, set(), story))


def test_a_job_goes_elsewhere_when_a_provisioner_fails() -> None:
    cluster = SmallCluster()
    cluster.node("a")
    cluster.node("b")

    async def story(provisioner: Provisioner) -> None:
        put_claim(cluster, "data")
        retry = {"max": 3, "delay": 1.0}  # in which it is asked anew where it may go
        await cluster.submit("train", pod=mounting("data"), retry=retry)
        found = await cluster.reaches("train", "running")
        assert provisioner.asked == ["a", "b"]
        assert found["nodes"] == ["b"]
        assert found["attempt"] == 2

    asyncio.run(with_provisioner(cluster, {"a"}, story))


def test_a_job_that_is_cancelled_does_not_wait_for_its_volume() -> None:
    cluster = SmallCluster()
    cluster.node("a")

    async def story(provisioner: Provisioner) -> None:
        del provisioner
        put_claim(cluster, "data", annotations={SELECTED_NODE: "a"})
        await cluster.submit("train", pod=mounting("data"))
        await cluster.until(cluster.alive)
        await cluster.change("train", metadata={"annotations": {"roost.dev/cancel": "me"}})
        await cluster.reaches("train", "cancelled")

    async def all_of_it() -> None:
        cluster.filters = NODE_FILTERS
        cluster.put(STORAGE_CLASSES, ("", "wffc"), {**WFFC})
        async with asyncio.timeout(60), cluster.led():
            await story(Provisioner(cluster, set()))

    asyncio.run(all_of_it())
