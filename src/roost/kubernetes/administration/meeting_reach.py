"""Whether NetworkPolicies let workers of elastic jobs reach the meeting of the operator.

Two ends must agree: what the operator's pods take in, and what pods of Jobs may send out. Policies
add up: a pod that any of them selects may only what one of them allows. Read as Kubernetes reads
them; what a plug-in enforces beyond that is not seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NAMESPACES, Object, ResourceKind
from roost.kubernetes.objects.gang_refs import JOB

NETWORK_POLICIES = ResourceKind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PORT, PORT_NAME = 8611, "meeting"
_MANY = 3


class NetworkPod(NamedTuple):
    """A pod as policies see it: its namespace with its labels, and its own."""

    namespace: str
    of_namespace: Mapping[str, str]
    labels: Mapping[str, str]


async def unreachable(api: Api, namespace: str) -> AsyncIterator[tuple[str, str]]:
    """Policies that keep workers from the meeting, each with what to do."""
    policies, _ = await api.list(NETWORK_POLICIES)
    if not policies:
        return
    spaces = {one["metadata"]["name"]: one for one in (await api.list(NAMESPACES))[0]}
    jobs, _ = await api.list(JOBS)
    where = sorted({one["metadata"]["namespace"] for one in jobs}) or ["default"]
    server = NetworkPod(
        namespace,
        _labels(spaces.get(namespace)),
        {
            "app.kubernetes.io/name": "roost",
            "app.kubernetes.io/component": "operator",
            "app.kubernetes.io/part-of": "roost",
            "roost.dev/leader": "true",
        },
    )
    workers = [NetworkPod(name, _labels(spaces.get(name)), {JOB: "any"}) for name in where]
    taking = _applied(policies, server, "Ingress")
    shut = [one for one in workers if taking and not _allowed(taking, "ingress", "from", one)]
    if shut:
        yield (
            f"networkpolicy {_names(taking)}",
            (
                f"keeps workers of {_spaces(shut)} from the meeting (port {PORT}), so that elastic "
                "jobs cannot meet: apply deploy/components/network-policy, or allow it there"
            ),
        )
    for worker in workers:
        sending = _applied(policies, worker, "Egress")
        if sending and not _allowed(sending, "egress", "to", server):
            yield (
                f"networkpolicy {_names(sending)}",
                (
                    f"lets no pod of namespace {worker.namespace} call {namespace}, port {PORT}, "
                    "where workers of elastic jobs meet: allow that"
                ),
            )


def _applied(policies: Iterable[Object], pod: NetworkPod, way: str) -> list[Object]:
    """The policies that decide about a pod in one direction."""
    found = []
    for one in policies:
        spec = one.get("spec") or {}
        types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
        here = one["metadata"]["namespace"] == pod.namespace
        if here and way in types and _selects(spec.get("podSelector") or {}, pod.labels):
            found.append(one)
    return found


def _allowed(policies: Sequence[Object], rules: str, peers: str, other: NetworkPod) -> bool:
    return any(
        _fits_port(rule) and _fits_peer(rule.get(peers), policy["metadata"]["namespace"], other)
        for policy in policies
        for rule in policy["spec"].get(rules) or ()
    )


def _fits_port(rule: Object) -> bool:
    ports = rule.get("ports")
    if not ports:
        return True
    for one in ports:
        port = one.get("port")
        if one.get("protocol", "TCP") != "TCP":
            continue
        if port is None or port in (PORT, PORT_NAME):
            return True
        if isinstance(port, int) and port <= PORT <= int(one.get("endPort") or port):
            return True
    return False


def _fits_peer(peers: Sequence[Object] | None, own: str, other: NetworkPod) -> bool:
    if not peers:
        return True
    for one in peers:
        if "ipBlock" in one:
            return True  # whose addresses these are is not seen: taken to be meant for this
        spaces = one.get("namespaceSelector")
        near = own == other.namespace if spaces is None else _selects(spaces, other.of_namespace)
        if near and _selects(one.get("podSelector") or {}, other.labels):
            return True
    return False


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or ())


def _holds(one: Object, labels: Mapping[str, str]) -> bool:
    key, values = one["key"], one.get("values") or ()
    match one.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def _labels(namespace: Object | None) -> Mapping[str, str]:
    found: Mapping[str, str] = (namespace or {"metadata": {}})["metadata"].get("labels") or {}
    return found


def _names(policies: Sequence[Object]) -> str:
    return ", ".join(f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in policies)


def _spaces(shut: Sequence[NetworkPod]) -> str:
    names = [one.namespace for one in shut]
    more = f" and {len(names) - _MANY} more namespaces" if len(names) > _MANY else ""
    return f"namespace {', '.join(names[:_MANY])}{more}"
