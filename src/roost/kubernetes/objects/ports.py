"""Ports of nodes that pods ask for, as amounts that the core counts.

A port of a node has one user per protocol and address, and ``0.0.0.0`` is every address. To the
core all of a port is so much, and each node has that much of every port (``EVERY_PORT``). Who
listens on every address takes all of it. Who listens on one address takes one piece of the port,
and all of the port at that address: two addresses go together, one address twice does not.

Where a pod uses the network of its node, the API server makes the ports of its containers ports of
the node; a pod that the server has not seen yet is read in the same way.
"""

from __future__ import annotations

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.values import integer, quoted, sections, text

#: How much of a port there is.
_ALL = 1000
_PROTOCOLS = ("SCTP", "TCP", "UDP")
#: What each node has: all of every port. No resource that pods can name has a blank in its name.
EVERY_PORT = {f"host port {protocol}/*": _ALL for protocol in _PROTOCOLS}

_ANY = "0.0.0.0"  # noqa: S104 - read, not listened on
_HIGHEST = 65_535


def host_ports(spec: Object) -> dict[str, int]:
    """What a pod takes of its node's ports, by the name of the port."""
    listening: dict[str, set[str]] = {}
    for container in _lasting(spec):
        for port in sections(container, "ports") if container.get("ports") else ():
            number = integer(port, "hostPort")
            if not number and spec.get("hostNetwork") is True:
                number = integer(port, "containerPort")
            if not 0 <= number <= _HIGHEST:
                raise InvalidSpec(f"hostPort must be in 1..{_HIGHEST}, got {number}")
            if number:
                name = f"host port {_protocol(port)}/{number}"
                listening.setdefault(name, set()).add(text(port, "hostIP") or _ANY)
    taken: dict[str, int] = {}
    for name, addresses in listening.items():
        if _ANY in addresses:
            taken[name] = _ALL
        else:
            taken[name] = min(len(addresses), _ALL)
            taken.update({f"{name}/{address}": _ALL for address in addresses})
    return taken


def _protocol(port: Object) -> str:
    found = text(port, "protocol") or "TCP"
    if found not in _PROTOCOLS:
        raise InvalidSpec(f"protocol must be one of {', '.join(_PROTOCOLS)}, got {quoted(found)}")
    return found


def _lasting(spec: Object) -> list[Object]:
    """Containers that run as long as the pod: a plain init container keeps no port."""
    started = sections(spec, "initContainers") if spec.get("initContainers") else []
    stay = [each for each in started if each.get("restartPolicy") == "Always"]
    return [*sections(spec, "containers"), *stay]
