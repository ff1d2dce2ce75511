"""Ports of nodes: who may share a node with whom."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubernetes.kube_objects import Object, node, pod

from roost.core.allocation import Part
from roost.core.ledger import Ledger
from roost.core.spec import NodeId
from roost.errors import InvalidSpec
from roost.kubernetes.objects.needs import needs
from roost.kubernetes.objects.nodes import node_spec
from roost.kubernetes.objects.trimming import Shared


def listening(*ports: Object, **spec: Any) -> Object:
    return pod(spec={"containers": [{"name": "c", "ports": list(ports)}], **spec})


def port(number: int, ip: str = "", protocol: str = "TCP") -> Object:
    return {"hostPort": number, "containerPort": number, "hostIP": ip, "protocol": protocol}


def extras(found: Object) -> dict[str, int]:
    return dict(needs(found).resources.extras)


def go_together(one: Object, other: Object) -> bool:
    """Whether a node holds both, as the books have it."""
    ledger = Ledger()
    ledger.join(node_spec(node()))
    needed = [needs(each).resources for each in (one, other)]
    return not ledger.claim([(Part(NodeId("n0"), ()), need) for need in needed])


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (port(80), port(80), False),
        (port(80), port(81), True),
        (port(80), port(80, protocol="UDP"), True),
        (port(80, "10.0.0.1"), port(80, "10.0.0.1"), False),
        (port(80, "10.0.0.1"), port(80, "10.0.0.2"), True),
        (port(80, "10.0.0.1"), port(80), False),
        (port(80, "0.0.0.0"), port(80), False),  # noqa: S104
        (port(0), port(0), True),
    ],
)
def test_a_port_has_one_user_per_protocol_and_address(
    one: Object,
    other: Object,
    together: bool,  # noqa: FBT001
) -> None:
    assert go_together(listening(one), listening(other)) is together
    assert go_together(listening(other), listening(one)) is together


PORTS = st.lists(
    st.builds(
        port,
        st.sampled_from((80, 81)),
        st.sampled_from(("", "10.0.0.1", "10.0.0.2", "0.0.0.0")),  # noqa: S104
        st.sampled_from(("TCP", "UDP")),
    ),
    max_size=4,
)


@given(PORTS, PORTS)
def test_the_books_say_what_the_rule_says(one: list[Object], other: list[Object]) -> None:
    def clash(a: Object, b: Object) -> bool:
        addresses = {a["hostIP"] or "0.0.0.0", b["hostIP"] or "0.0.0.0"}  # noqa: S104
        same = all(a[name] == b[name] for name in ("hostPort", "protocol"))
        return same and ("0.0.0.0" in addresses or len(addresses) == 1)  # noqa: S104

    clashes = any(clash(a, b) for a, b in itertools.product(one, other))
    assert go_together(listening(*one), listening(*other)) is not clashes


def test_one_pod_may_name_a_port_twice() -> None:
    assert extras(listening(port(80), port(80, "10.0.0.1"))) == {"host port TCP/80": 1000}


def test_on_the_network_of_its_node_every_port_of_a_container_is_one_of_the_node() -> None:
    named = {"containerPort": 23456}

    assert extras(listening(named, hostNetwork=True)) == {"host port TCP/23456": 1000}
    assert extras(listening(named)) == {}


def test_sidecars_keep_their_ports_and_plain_init_containers_do_not() -> None:
    first = [
        {"name": "side", "restartPolicy": "Always", "ports": [port(1)]},
        {"name": "plain", "ports": [port(2)]},
    ]

    assert extras(listening(port(3), initContainers=first)) == {
        "host port TCP/1": 1000,
        "host port TCP/3": 1000,
    }


@pytest.mark.parametrize("odd", [port(70_000), port(-1), port(1, protocol="X"), {"hostPort": "1"}])
def test_ports_that_cannot_be_are_refused(odd: Object) -> None:
    with pytest.raises(InvalidSpec):
        needs(listening(odd))


def test_mirrors_keep_ports_of_nodes_and_no_others() -> None:
    found = listening(port(80, "10.0.0.1"), {"containerPort": 8080})

    kept = Shared().pod(found)

    assert kept["spec"]["containers"] == [
        {"name": "c", "ports": [{"hostPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}]}
    ]
    assert extras(kept) == extras(found)
