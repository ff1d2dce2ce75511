"""NetworkPolicies that let workers of elastic jobs call the operator, and such that do not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from tests.docs.pages import ROOT

from roost.kubernetes.administration.meeting_reach import NETWORK_POLICIES, unreachable
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, NAMESPACES, Object, ResourceKind

OPERATOR = {"app.kubernetes.io/component": "operator"}
POLICY = ROOT / "deploy" / "components" / "network-policy" / "policy.yaml"


def policy(namespace: str, **spec: Any) -> Object:
    return {"metadata": {"namespace": namespace, "name": "p"}, "spec": {"podSelector": {}, **spec}}


def told(*policies: Object, jobs: tuple[str, ...] = ("lab",)) -> list[str]:
    class Played:
        async def list(self, kind: ResourceKind) -> tuple[list[Object], str]:
            names = ("lab", "roost-system", "other")
            there = {
                NETWORK_POLICIES: list(policies),
                NAMESPACES: [{"metadata": {"name": n, "labels": {"name": n}}} for n in names],
                JOBS: [{"metadata": {"namespace": one}} for one in jobs],
            }
            return there[kind], "1"

    async def all_of_it() -> list[str]:
        return [about async for about, _ in unreachable(cast("Api", Played()), "roost-system")]

    return asyncio.run(all_of_it())


def test_the_policy_that_is_shipped_lets_workers_in() -> None:
    shipped = yaml.safe_load(Path(POLICY).read_text(encoding="utf-8"))
    shipped["metadata"]["namespace"] = "roost-system"
    assert told(shipped) == []


FROM_LAB = {"from": [{"namespaceSelector": {"matchLabels": {"name": "lab"}}}]}
OPEN: dict[str, Object] = {
    "all": policy("roost-system", ingress=[{}]),
    "by port": policy("roost-system", ingress=[{"ports": [{"port": 8611}]}]),
    "by a range": policy("roost-system", ingress=[{"ports": [{"port": 8000, "endPort": 9000}]}]),
    "by name": policy("roost-system", ingress=[{"ports": [{"port": "meeting"}]}]),
    "of the namespace": policy("roost-system", ingress=[FROM_LAB]),
    "of other pods": policy("roost-system", podSelector={"matchLabels": {"a": "b"}}),
    "of another way": policy("roost-system", policyTypes=["Egress"]),
    "elsewhere": policy("other"),
    "of workers": policy("lab", policyTypes=["Ingress"]),
    "to the operator": policy(
        "lab", policyTypes=["Egress"], egress=[{"to": [{"namespaceSelector": {}}]}]
    ),
    "to addresses": policy(
        "lab", policyTypes=["Egress"], egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]
    ),
}
SHUT: dict[str, Object] = {
    "nothing": policy("roost-system"),
    "of the operator alone": policy("roost-system", podSelector={"matchLabels": OPERATOR}),
    "another port": policy("roost-system", ingress=[{"ports": [{"port": 8612}]}]),
    "another protocol": policy(
        "roost-system", ingress=[{"ports": [{"port": 8611, "protocol": "UDP"}]}]
    ),
    "its own namespace": policy("roost-system", ingress=[{"from": [{"podSelector": {}}]}]),
    "pods of another kind": policy(
        "roost-system",
        ingress=[
            {
                "from": [
                    {
                        "namespaceSelector": {},
                        "podSelector": {
                            "matchExpressions": [
                                {"key": "roost.dev/job", "operator": "DoesNotExist"}
                            ]
                        },
                    }
                ]
            }
        ],
    ),
    "no way out": policy("lab", policyTypes=["Ingress", "Egress"]),
    "out for names alone": policy(
        "lab", policyTypes=["Egress"], egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}]
    ),
}


@pytest.mark.parametrize("open_", OPEN.values(), ids=OPEN)
def test_open(open_: Object) -> None:
    assert told(open_) == []


@pytest.mark.parametrize("shut", SHUT.values(), ids=SHUT)
def test_shut(shut: Object) -> None:
    assert told(shut) == [f"networkpolicy {shut['metadata']['namespace']}/p"]
    others = [OPEN["all"], OPEN["to the operator"]]
    assert told(shut, *others) == []  # policies add up


def test_without_jobs_the_default_namespace_is_asked_about() -> None:
    assert told(policy("default", policyTypes=["Egress"]), jobs=()) == ["networkpolicy default/p"]
