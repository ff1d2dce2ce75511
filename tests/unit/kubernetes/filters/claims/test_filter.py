"""Where pods with claims can go, what their claims are given, and what is written of it."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from tests.unit.kubernetes.filters.claims.things import (
    CLASS,
    DRIVER,
    allocated,
    claim,
    claiming,
    device,
    device_class,
    request,
    selectors,
    slice_of,
)
from tests.unit.kubernetes.operator.objects import SPACE, Cluster, gang, node, pod
from tests.unit.kubernetes.operator.small_cluster import merged

from roost.core import JobId, Launch, NodeId
from roost.errors import Conflict, InvalidSpec, NotFound, Retryable
from roost.kubernetes.client.kinds import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
    ResourceKind,
)
from roost.kubernetes.filters.claims import ClaimsFilter
from roost.kubernetes.filters.claims.writing import FINALIZER

N1, N2 = NodeId("n1"), NodeId("n2")


class Server:
    """An API server with claims alone; what it stores the filter hears of when it is told to."""

    def __init__(self, *there: Object) -> None:
        self.claims = {_key(one): one for one in there}
        # Newer than all that `things` ever makes in one process, random clusters included.
        self._versions = itertools.count(10**9)
        self.writes: list[tuple[str, Object]] = []
        #: Called before a write is looked at.
        self.before: Callable[[], None] = lambda: None
        self.tasks: list[asyncio.Task[None]] = []

    # what a filter asks of its context

    @property
    def api(self) -> Server:
        return self

    @property
    def binder(self) -> Server:
        return self

    async def write(self, request: Callable[[], Awaitable[Object]]) -> Object:
        return await request()

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=what))

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        found = self.claims.get((namespace, name))
        if found is None:
            raise NotFound(f"no {kind.kind} {name}")
        return copy.deepcopy(found)

    async def patch(
        self, kind: ResourceKind, name: str, body: Object, namespace: str = "", *, sub: str = ""
    ) -> Object:
        await asyncio.sleep(0)
        before, self.before = self.before, lambda: None
        before()
        found = await self.get(kind, name, namespace)
        meta = body.pop("metadata")
        if meta.pop("resourceVersion") != found["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        if meta.pop("uid") != found["metadata"]["uid"]:
            raise Conflict("another object")
        if sub and (found["status"].get("allocation") and (body["status"].get("allocation") or {})):
            raise InvalidSpec("status.allocation: field is immutable")
        self.writes.append((sub, body))
        changed = merged(found, {**body, "metadata": meta})
        self.put(changed)
        return copy.deepcopy(changed)

    def put(self, found: Object) -> None:
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        self.claims[_key(found)] = found

    async def settled(self) -> None:
        await asyncio.gather(*self.tasks)
        self.tasks.clear()


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


_KINDS = {"claims": RESOURCE_CLAIMS, "slices": RESOURCE_SLICES, "classes": DEVICE_CLASSES}


def filter_of(*nodes: str, server: Server | None = None, **things: list[Object]) -> ClaimsFilter:
    """A filter that was told of nodes and of other things; by default of one class."""
    server = server or Server(*things.get("claims", ()))
    made = ClaimsFilter(server)  # type: ignore[arg-type]
    for name in nodes:
        made.object_changed(NODES, None, node(name, gpus=0))
    for what, there in {"classes": [device_class()], **things}.items():
        for one in there:
            made.object_changed(_KINDS[what], None, copy.deepcopy(one))
    return made


def refused(found: ClaimsFilter, asks: Object, *nodes: str) -> str:
    return " ".join(
        sorted(found.refusals(asks, [node(name, gpus=0) for name in nodes or (N1, N2)]))
    )


TWO = [slice_of("n1", "a"), slice_of("n2", "b", "c")]


@pytest.mark.parametrize(
    ("asked", "away"),
    [
        (claim("x"), ""),
        (claim("x", request(count=2)), "n1"),
        (claim("x", request(count=3)), "n1 n2"),
        (claim("x", request("p"), request("q")), "n1"),
        (claim("x", request(allocationMode="All")), ""),
        (claim("x", request(selectors=selectors("false"), allocationMode="All")), "n1 n2"),
        (claim("x", request(selectors=selectors("device.driver == 'no'"))), "n1 n2"),
        (
            claim("x", {"name": "r", "firstAvailable": [
                {"name": "two", "deviceClassName": CLASS, "count": 2},
                {"name": "one", "deviceClassName": CLASS},
            ]}),
            "",
        ),
        (allocated(claim("x"), "a", node="n1"), ""),  # nobody has it: it can be given others
        (allocated(claim("x"), "a", node="n1", by=("other",)), "n2"),
        (allocated(claim("x"), "a", node="n1", by=("p",)), ""),
    ],
)  # fmt: skip
def test_a_pod_is_kept_off_nodes_without_its_devices(asked: Object, away: str) -> None:
    found = filter_of(N1, N2, claims=[asked], slices=TWO)
    assert refused(found, claiming("p", "x")) == away


def test_devices_are_given_once() -> None:
    theirs = allocated(claim("theirs"), "b", node="n2", by=("other",))
    found = filter_of(N1, N2, claims=[claim("x"), claim("y"), theirs], slices=TWO)
    found.reserve(claiming("p", "x"), N2)
    assert refused(found, claiming("q", "y")) == "n2"
    found.reserve(claiming("r", "y"), N1)
    assert refused(found, claiming("q", "x")) == "n1"  # it was decided for n2
    found.release(claiming("p", "x"))
    assert refused(found, claiming("q", "x")) == "n1"  # that has none left
    found.object_changed(RESOURCE_CLAIMS, theirs, None)
    found.release(claiming("r", "y"))
    assert refused(found, claiming("q", "x")) == ""


def test_what_an_administrator_looks_at_stays_free() -> None:
    looked = allocated(claim("looked"), "a", node="n1", by=("o",))
    looked["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    seen = claim("seen", request(adminAccess=True))
    taken = allocated(claim("taken"), "b", "c", node="n2", by=("o",))
    found = filter_of(N1, N2, claims=[looked, claim("x"), seen, taken], slices=TWO)
    assert refused(found, claiming("p", "x")) == "n2"
    assert refused(found, claiming("p", "seen")) == ""


@pytest.mark.parametrize(
    ("slices", "away"),
    [
        ([slice_of("p", "a", allNodes=True)], ""),
        ([slice_of("p", "a", nodeName="n1")], "n2"),
        (
            [slice_of("p", "a", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]})],
            "n1",
        ),
        (
            [slice_of("p", {**device("a"), "nodeName": "n1"}, {**device("b"), "allNodes": True},
                      perDeviceNodeSelection=True)],
            "",
        ),
        ([slice_of("p", {**device("a"), "nodeName": "n1"}, perDeviceNodeSelection=True)], "n2"),
        # Half a pool is none, and neither is one that is out of date, or names a device twice.
        ([slice_of("p", "a", allNodes=True, pool={"resourceSliceCount": 2})], "n1 n2"),
        (
            [slice_of("p", "a", allNodes=True, pool={"resourceSliceCount": 2}),
             slice_of("p", "b", allNodes=True, pool={"resourceSliceCount": 2}, called="more")],
            "",
        ),
        (
            [slice_of("p", "a", allNodes=True),
             slice_of("p", allNodes=True, pool={"generation": 2}, called="newer")],
            "n1 n2",
        ),
        ([slice_of("p", "a", "a", allNodes=True)], "n1 n2"),
        ([slice_of("p", "a", pool={"name": "p"}, nodeName="")], "n1 n2"),  # for whom is it?
        ([slice_of("p", "a", allNodes=True, devices="nonsense")], "n1 n2"),
        (
            [slice_of("p", {**device("a"), "taints": [{"key": "k", "effect": "NoSchedule"}]},
                      allNodes=True)],
            "n1 n2",
        ),
        (
            [slice_of("p", {**device("a"), "taints": [{"key": "k", "effect": "None"}]},
                      allNodes=True)],
            "",
        ),
        ([slice_of("p", {**device("a"), "bindingConditions": ["ok"]}, allNodes=True)], "n1 n2"),
        ([slice_of("p", {**device("a"), "allowMultipleAllocations": True}, allNodes=True)],
         "n1 n2"),
    ],
)  # fmt: skip
def test_slices_are_for_some_nodes(slices: list[Object], away: str) -> None:
    found = filter_of(N1, N2, claims=[claim("x")], slices=slices)
    assert refused(found, claiming("p", "x")) == away


def test_taints_are_tolerated() -> None:
    worn = {**device("a"), "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}
    for toleration, away in [
        ({"operator": "Exists"}, ""),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, ""),
        ({"key": "k", "value": "v"}, ""),
        ({"key": "k", "value": "w"}, "n1"),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, "n1"),
    ]:
        asked = claim("x", request(tolerations=[toleration]))
        found = filter_of(N1, claims=[asked], slices=[slice_of("n1", worn)])
        assert refused(found, claiming("p", "x"), N1) == away, toleration


@pytest.mark.parametrize("home", ["the same slice", "another slice"])
def test_parts_of_a_device_share_what_it_has(home: str) -> None:
    def part(name: str, amount: str) -> Object:
        used = [{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}]
        return {**device(name), "consumesCounters": used}

    shared = [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]
    parts = [part("whole", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")]
    if home == "the same slice":
        slices = [slice_of("n1", *parts, sharedCounters=shared)]
    else:
        of_two = {"resourceSliceCount": 2}
        slices = [
            slice_of("n1", *parts, pool=of_two),
            slice_of("n1", sharedCounters=shared, pool=of_two, called="counters"),
        ]
    taken = allocated(claim("taken"), "half-1", node="n1", by=("o",))
    asked = [claim("one"), claim("two", request(count=2)), claim("three", request(count=3))]
    found = filter_of(N1, claims=asked, slices=slices)
    assert [refused(found, claiming("p", one), N1) for one in ("one", "two", "three")] == [
        *("", "", "n1")
    ]
    found.object_changed(RESOURCE_CLAIMS, None, taken)
    assert [refused(found, claiming("p", one), N1) for one in ("one", "two")] == ["", "n1"]


def test_devices_that_must_be_alike() -> None:
    devices = [device(f"{half}{n}", half=half) for n in range(2) for half in "ab"]
    slices = [slice_of("n1", *devices)]

    def asked(count: int, *about: str) -> Object:
        alike = [{"matchAttribute": f"{DRIVER}/half", "requests": list(about)}]
        return claim("x", request("p", count=count), request("q"), constraints=alike)

    for count, about, away in [(1, (), ""), (2, (), "n1"), (2, ("p",), ""), (3, ("q",), "")]:
        found = filter_of(N1, claims=[asked(count, *about)], slices=slices)
        assert refused(found, claiming("p", "x"), N1) == away, (count, about)


def away(asks: Object, **things: list[Object]) -> str:
    found = filter_of(N1, server=None, **{"slices": TWO, **things})
    with pytest.raises(InvalidSpec) as told:
        found.refusals(asks, [node(N1, gpus=0)])
    return str(told.value)


def test_what_can_go_nowhere_says_why() -> None:
    x, p = claim("x"), claiming("p", "x")
    assert "is not seen" in away(p, claims=[])
    assert "no ResourceClaim 'x'" in away(p, claims=[claim("y")])
    assert "no DeviceClass 'gpu'" in away(p, claims=[x], classes=[])
    assert "being deleted" in away(
        p, claims=[{**x, "metadata": {**x["metadata"], "deletionTimestamp": "now"}}]
    )
    full = allocated(claim("x"), "a", node="n1", by=tuple(f"p{n}" for n in range(256)))
    assert "256 pods" in away(p, claims=[full])
    unmade = pod("p", spec={"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]})
    assert "made of template t" in away(unmade, claims=[x])
    assert "of a sort" in away(pod("p", spec={"resourceClaims": [{"name": "c"}]}), claims=[x])
    assert "not made for this pod" in away(claiming("p", "x", own=True), claims=[x])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (claim("x", request(count=33)), "33 devices"),
        (claim("x", request(allocationMode="Some")), "'Some'"),
        (claim("x", {"name": "r"}), "of a sort"),
        (claim("x", request(selectors=[{"js": "1"}])), "of a sort"),
        (claim("x", request(selectors=selectors("device.driver.reverse() == ''"))), "reverse"),
        (claim("x", request(selectors=selectors("device.attributes['a'].b == 1"))), "no such key"),
        (claim("x", request(selectors=selectors("device.driver"))), "neither true nor false"),
        (claim("x", constraints=[{"distinctAttribute": "a/b"}]), "of a sort"),
        (claim("x", request(capacity={"requests": {"memory": "1Gi"}})), "part of a device"),
    ],
)
def test_a_claim_that_cannot_be_had_says_why(asked: Object, why: str) -> None:
    assert why in away(claiming("p", "x"), claims=[asked])


def test_nothing_is_said_of_pods_without_claims() -> None:
    found = filter_of(N1)
    assert not found.concerns(pod("plain"))
    assert found.concerns(claiming("p", "x"))
    found.reserve(pod("plain"), N1)
    found.release(pod("plain"))
    assert not found.object_changed(PODS, None, pod("plain"))
    assert found.together(pod("plain")) == ""


def test_a_search_that_takes_too_long_ends() -> None:
    # All devices but for one are alike in pairs; no three are.
    devices = [device(f"d{n}", half=str(n // 2)) for n in range(60)]
    alike = [{"matchAttribute": f"{DRIVER}/half", "requests": ["r0", "r1", "r2"]}]
    more = [request(f"r{n}", selectors=selectors(f"device.attributes['{DRIVER}'].half != '{n}'"))
            for n in range(8)]  # fmt: skip
    found = filter_of(N1, claims=[claim("x", *more, constraints=alike)],
                      slices=[slice_of("n1", *devices)])  # fmt: skip
    assert refused(found, claiming("p", "x"), N1) == "n1"


# -- what is written -----------------------------------------------------------------------------


def written(scenario: Callable[[Server, ClaimsFilter], Coroutine[Any, Any, None]],
            *there: Object, **things: list[Object]) -> Server:  # fmt: skip
    server = Server(*there)
    things = {"slices": TWO, "claims": list(there), **things}

    async def all_of_it() -> None:
        await scenario(server, filter_of(N1, N2, server=server, **things))
        await server.settled()

    asyncio.run(all_of_it())
    return server


def state(server: Server, name: str) -> tuple[list[str], list[str]]:
    """The devices of a claim, and the pods that it is reserved for."""
    status = server.claims[SPACE, name]["status"]
    results = (status.get("allocation") or {}).get("devices", {}).get("results", [])
    return [r["device"] for r in results], [r["name"] for r in status.get("reservedFor") or ()]


def test_what_was_decided_is_written() -> None:
    config = [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]
    asked = claim("x", request(count=2), config=[{"requests": ["one"], **config[0]}])

    async def scenario(_server: Server, found: ClaimsFilter) -> None:
        p = claiming("p", "x")
        found.reserve(p, N2)
        await found.prepare(p, N2)
        found.object_changed(PODS, p, claiming("p", "x", node="n2"))
        found.release(p)

    server = written(scenario, asked, classes=[device_class(config=config)])
    there = server.claims[SPACE, "x"]
    assert there["metadata"]["finalizers"] == [FINALIZER]
    assert state(server, "x") == (["b", "c"], ["p"])
    assert there["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    ]
    sources = [
        (one["source"], one["requests"])
        for one in there["status"]["allocation"]["devices"]["config"]
    ]
    assert sources == [("FromClass", ["one"]), ("FromClaim", ["one"])]
    assert [sub for sub, _ in server.writes] == ["", "status"]


def test_pods_that_share_a_claim_are_all_noted() -> None:
    async def scenario(_server: Server, found: ClaimsFilter) -> None:
        pods = [claiming(f"p{n}", "x") for n in range(5)]
        for one in pods:
            found.reserve(one, N1)
        await asyncio.gather(*(found.prepare(one, N1) for one in pods))

    server = written(scenario, claim("x"))
    devices, pods = state(server, "x")
    assert devices == ["a"]
    assert sorted(pods) == [f"p{n}" for n in range(5)]


def test_what_was_written_is_taken_back() -> None:
    async def scenario(server: Server, found: ClaimsFilter) -> None:
        p, q = claiming("p", "x", "y"), claiming("q", "y")
        found.reserve(p, N2)
        found.reserve(q, N2)
        await found.prepare(p, N2)
        await found.prepare(q, N2)
        found.release(p)  # it was not bound
        await server.settled()
        assert refused(found, claiming("r", "z")) == ""

    server = written(scenario, claim("x"), claim("y"), claim("z"))
    assert state(server, "x") == ([], [])
    assert state(server, "y") == (["c"], ["q"])


def test_what_a_bound_pod_has_stays() -> None:
    async def scenario(server: Server, found: ClaimsFilter) -> None:
        p = claiming("p", "x")
        found.reserve(p, N1)
        await found.prepare(p, N1)
        found.object_changed(PODS, p, claiming("p", "x", node="n1"))
        found.release(p)
        await server.settled()
        assert refused(found, claiming("q", "y")) == "n1"

    assert state(written(scenario, claim("x"), claim("y")), "x") == (["a"], ["p"])


def test_a_claim_that_is_free_moves_with_its_pod() -> None:
    async def scenario(_server: Server, found: ClaimsFilter) -> None:
        p = claiming("p", "x")
        found.reserve(p, N2)
        await found.prepare(p, N2)

    server = written(scenario, allocated(claim("x"), "a", node="n1", by=("p",)))
    assert state(server, "x") == (["b"], ["p"])


def test_whoever_is_second_starts_anew() -> None:
    async def scenario(server: Server, found: ClaimsFilter) -> None:
        p = claiming("p", "x")
        found.reserve(p, N2)
        other = allocated(copy.deepcopy(server.claims[SPACE, "x"]), "a", node="n1", by=("o",))
        server.before = lambda: server.put(other)
        with pytest.raises(Retryable, match="other devices"):
            await found.prepare(p, N2)
        found.release(p)
        await server.settled()
        assert refused(found, p) == "n2"

    assert state(written(scenario, claim("x")), "x") == (["a"], ["o"])


def test_harmless_changes_of_others_are_borne() -> None:
    async def scenario(server: Server, found: ClaimsFilter) -> None:
        p = claiming("p", "x")
        found.reserve(p, N2)
        other = copy.deepcopy(server.claims[SPACE, "x"])
        other["metadata"]["labels"] = {"a": "b"}
        server.before = lambda: server.put(other)
        await found.prepare(p, N2)

    server = written(scenario, claim("x"))
    assert state(server, "x") == (["b"], ["p"])
    assert server.claims[SPACE, "x"]["metadata"]["labels"] == {"a": "b"}


def test_a_claim_that_is_gone_or_another_is_not_written() -> None:
    async def scenario(server: Server, found: ClaimsFilter) -> None:
        for later in (None, {**claim("x"), "status": {}}):
            p = claiming("p", "x")
            found.reserve(p, N2)
            found.object_changed(RESOURCE_CLAIMS, claim("x"), later)
            if later is not None:
                later["metadata"]["uid"] = "another"
            with pytest.raises(Retryable, match="gone"):
                await found.prepare(p, N2)
            found.release(p)
            found.object_changed(RESOURCE_CLAIMS, None, server.claims[SPACE, "x"])

    assert not written(scenario, claim("x")).writes


def test_without_a_plan_nothing_is_written() -> None:
    async def scenario(_server: Server, found: ClaimsFilter) -> None:
        p = claiming("p", "x")
        found.reserve(p, NodeId("n9"))
        with pytest.raises(Retryable):
            await found.prepare(p, NodeId("n9"))

    assert not written(scenario, claim("x")).writes


def test_late_news_of_the_mirror_changes_nothing() -> None:
    async def scenario(server: Server, found: ClaimsFilter) -> None:
        before = copy.deepcopy(server.claims[SPACE, "x"])
        p = claiming("p", "x")
        found.reserve(p, N1)
        await found.prepare(p, N1)
        found.object_changed(PODS, p, claiming("p", "x", node="n1"))
        found.release(p)
        assert not found.object_changed(RESOURCE_CLAIMS, None, before)
        assert refused(found, claiming("q", "y")) == "n1"

    written(scenario, claim("x"), claim("y"))


# -- with the core -----------------------------------------------------------------------------


def cluster(*there: Object, claims: list[Object], slices: list[Object]) -> Cluster:
    objects = {
        RESOURCE_CLAIMS: {_key(one): one for one in claims},
        RESOURCE_SLICES: {_key(one): one for one in slices},
        DEVICE_CLASSES: {("", CLASS): device_class()},
    }
    return Cluster(*there, objects=objects)


def places(found: Cluster, rounds: int = 12) -> dict[str, list[str]]:
    """The nodes of each gang whose pods would be bound by now."""
    launched: dict[str, list[str]] = {}
    for _ in range(rounds):
        for action in found.decide():
            if isinstance(action, Launch):
                parts = found.core.runs[action.run].allocation.parts
                launched[action.run.job] = sorted(p.node for p in parts for _ in range(p.workers))
        found.time += 1.0
    filters, workloads = found.reconciler.filters, found.reconciler.workloads
    return {
        job: nodes
        for job, nodes in launched.items()
        if all(filters.is_reserved(one) for one in workloads[JobId(job)].pods.values())  # type: ignore[attr-defined]
    }


def claiming_gang(size: int, *shared: str) -> tuple[list[Object], list[Object]]:
    """The pods of a gang, each with a claim of its own, or all with the same; and the claims."""
    pods = gang("g", size, gpus=0)
    claims = [claim(one) for one in shared]
    for each in pods:
        name = each["metadata"]["name"]
        asks = claiming(name, *(shared or (f"of-{name}",)), own=not shared)
        each["spec"]["resourceClaims"] = asks["spec"]["resourceClaims"]
        each["status"] = asks["status"]
        claims += [] if shared else [claim(f"of-{name}", owner=name)]
    return pods, claims


def test_a_pod_goes_where_its_device_is() -> None:
    found = cluster(
        node("n1", 0), node("n2", 0), claiming("p", "x"), claims=[claim("x", request(count=2))],
        slices=TWO,
    )  # fmt: skip
    assert places(found) == {f"{SPACE}.pod.p": ["n2"]}


def test_pods_do_not_get_the_same_device() -> None:
    pods = [claiming(f"p{n}", f"x{n}") for n in range(5)]
    found = cluster(
        *(node("n1", 0), node("n2", 0)), *pods, claims=[claim(f"x{n}") for n in range(5)],
        slices=TWO,
    )  # fmt: skip
    assert sorted(itertools.chain(*places(found, 20).values())) == ["n1", "n2", "n2"]


@pytest.mark.parametrize("rooms", [(1, 5, 2), (4, 4, 0), (8, 0, 0), (3, 3, 2)])
def test_a_gang_is_spread_as_devices_are(rooms: tuple[int, ...]) -> None:
    pods, claims = claiming_gang(8)
    nodes = [node(f"n{n}", 0) for n in range(3)]
    slices = [slice_of(f"n{n}", *(f"d{i}" for i in range(room))) for n, room in enumerate(rooms)]
    found = cluster(*nodes, *pods, claims=claims, slices=slices)
    (nodes_of,) = places(found).values()
    assert [nodes_of.count(f"n{n}") for n in range(3)] == list(rooms)


def test_a_gang_with_too_few_devices_waits_until_there_are_more() -> None:
    pods, claims = claiming_gang(4)
    slices = [slice_of("n1", "a", "b"), slice_of("n2", "c")]
    found = cluster(node("n1", 0), node("n2", 0), *pods, claims=claims, slices=slices)
    assert not places(found)
    (waits,) = found.reconciler.workloads.values()
    assert "devices that are free are enough for 3 pods" in waits.kept_off  # type: ignore[attr-defined]
    more = slice_of("n2", "c", "d")
    found.reconciler.observe(RESOURCE_SLICES, slices[1], more)
    (nodes_of,) = places(found).values()
    assert nodes_of == ["n1", "n1", "n2", "n2"]


def test_a_gang_that_shares_a_claim_goes_to_one_node() -> None:
    pods, claims = claiming_gang(3, "shared")
    found = cluster(
        *(
            node(
                f"n{n}",
                0,
            )
            for n in (1, 2)
        ),
        *pods,
        claims=claims,
        slices=TWO,
    )
    (nodes_of,) = places(found).values()
    assert len(set(nodes_of)) == 1


def test_a_gang_that_shares_what_all_nodes_see_goes_anywhere() -> None:
    pods, claims = claiming_gang(3, "shared")
    for each in pods:
        each["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "40"
    found = cluster(
        *(node(f"n{n}", 0) for n in (1, 2, 3)), *pods, claims=claims,
        slices=[slice_of("net", "a", allNodes=True)],
    )  # fmt: skip
    assert list(places(found).values()) == [["n1", "n2", "n3"]]


def test_what_was_counted_for_a_gang_is_forgotten_with_it() -> None:
    pods, claims = claiming_gang(2)
    found = cluster(node("n1", 0), *pods, claims=claims, slices=[slice_of("n1", "a")])
    assert not places(found)
    assert any("devices claimed" in name for name, _ in found.core.ledger.nodes[N1].spec.extras)
    found.remove(*pods)
    places(found)
    assert not any("devices claimed" in name for name, _ in found.core.ledger.nodes[N1].spec.extras)


def test_a_pod_waits_for_its_claim_and_its_class() -> None:
    p = claiming("p", "x")
    found = cluster(node("n1", 0), p, claims=[], slices=[slice_of("n1", "a")])
    assert not places(found)
    gang_of = found.reconciler.workloads[JobId(f"{SPACE}.pod.p")]
    assert "is not seen" in gang_of.problem  # type: ignore[attr-defined]
    found.reconciler.observe(RESOURCE_CLAIMS, None, claim("x"))
    assert places(found) == {f"{SPACE}.pod.p": ["n1"]}


def test_queues_count_devices_by_class() -> None:
    first = {
        "name": "any",
        "firstAvailable": [
            {"name": "two", "deviceClassName": CLASS, "count": 2},
            {"name": "all", "deviceClassName": "other", "allocationMode": "All"},
        ],
    }
    asked = claim("x", request(count=3), first)
    found = filter_of(N1, claims=[asked, claim("y")], slices=TWO)
    kind = "deviceclass.resource.k8s.io/"
    assert found.amounts(claiming("p", "x", "y", "z")) == ((f"{kind}gpu", 6), (f"{kind}other", 32))
    there = cluster(
        node("n1", 0), claiming("p", "x"), claiming("q", "x", node="n1"), claims=[claim("x")],
        slices=[slice_of("n1", "a")],
    )  # fmt: skip
    assert places(there) == {f"{SPACE}.pod.p": ["n1"]}
    for name in "pq":
        extras = there.core.jobs[JobId(f"{SPACE}.pod.{name}")].spec.resources.extras
        assert dict(extras)[f"{kind}gpu"] == 1
