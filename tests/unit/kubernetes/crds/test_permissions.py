"""The table of permissions and the requests in the source are the same, in both directions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

from roost.kubernetes.client import kinds
from roost.kubernetes.client.kinds import ResourceKind
from roost.kubernetes.crds.permissions import (
    AGENT,
    CLUSTER,
    NAMESPACED,
    UNCONFINED,
    ClusterGrant,
    needed,
)
from roost.kubernetes.filters import NODE_FILTERS
from roost.kubernetes.gangs.discovery import GangSource
from roost.kubernetes.jobs.controller import JobController

SOURCE = ROOT / "src" / "roost" / "kubernetes"
#: What users, administrators and agents run; the requests are made with their rights.
OTHERS = ("gateway", "administration", "crds", "client", "agent")
#: What a call of a client needs.
VERBS = {
    **{name: (name,) for name in ("get", "create", "patch", "delete", "list")},
    "replace": ("update",),
    "get_metadata": ("get",),
    "pages": ("list",),
}
#: Calls about pods that name no kind.
OF_PODS = {
    "bind": "create pods/binding",
    "evict": "create pods/eviction",
    "log": "get pods/log",
    "follow": "get pods/log",
}
#: Where the kind is a variable: by module, what it can be.
VARIABLES = {"queue_status": ("QUEUES", "CLUSTER_QUEUES"), "pods": (), "loop": ()}
#: Checked by the API server itself: Jobs own their pods, and block their own deletion; to write an
#: allocation takes a right of its own since Kubernetes 1.36.
UNSENT = {"update jobs.roost.dev/finalizers", "patch resourceclaims.resource.k8s.io/binding"}


def calls(path: Path) -> Iterator[str]:
    """The permissions that the requests in a module need."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(node.func, ast.Name) and node.func.id == "ensure":
            for kind in _kinds(path, node.args[2]):
                yield from (f"{verb} {kind.resource}" for verb in ("create", "get", "delete"))
        if not _of_client(node.func):
            continue
        if name in OF_PODS:
            yield OF_PODS[name]
        elif name in VERBS:
            sub = next((f"/{_text(k.value)}" for k in node.keywords if k.arg == "sub"), "")
            for kind in _kinds(path, node.args[0]):
                yield from (f"{verb} {kind.resource}{sub}" for verb in VERBS[name])


def _of_client(called: ast.expr) -> bool:
    """Whether a method of a client is called: ``api``, ``context.api``, ``self._api``."""
    if not isinstance(called, ast.Attribute):
        return False
    on = called.value
    return (isinstance(on, ast.Name) and on.id in ("api", "mine")) or (
        isinstance(on, ast.Attribute) and on.attr in ("api", "_api")
    )


def _kinds(path: Path, given: ast.expr) -> tuple[ResourceKind, ...]:
    name = given.id if isinstance(given, ast.Name) else ""
    names = (name,) if name.isupper() else VARIABLES.get(path.stem, ("?",))
    return tuple(getattr(kinds, one) for one in names)


def _text(given: ast.expr) -> str:
    assert isinstance(given, ast.Constant), "a subresource is written as it is"
    return str(given.value)


def requests() -> set[str]:
    """All that the operator asks for."""
    paths = [
        path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in OTHERS
    ]
    # Readers of leases, in the operator's own package.
    found = {one for path in paths if path.stem != "announcement" for one in calls(path)}
    lease = set(calls(SOURCE / "client" / "lease.py"))
    followed = (
        *(GangSource.kinds, JobController.kinds, JobController.asking_kinds),
        (kinds.NODES, kinds.PODS),
        *(one.kinds for one in NODE_FILTERS),
    )
    mirrored = {
        f"{verb} {kind.resource}"
        for some in followed
        for kind in some
        for verb in ("list", "watch")
    }
    return found | lease | mirrored


def test_nothing_is_lacking_and_nothing_is_superfluous() -> None:
    granted = {str(one) for one in needed()}
    asked = requests()
    assert asked - granted == set(), "requests without a permission"
    assert granted - asked == UNSENT, "permissions without a request"


def test_agents_may_do_what_they_do() -> None:
    asked = {one for path in (SOURCE / "agent").glob("*.py") for one in calls(path)}
    followed = {f"{verb} pods" for verb in ("list", "watch")}
    granted = {f"{verb} {name}" for _, names, verbs in AGENT for name in names for verb in verbs}
    assert asked | followed == granted


def test_the_check_would_notice() -> None:
    asked = requests()
    assert {"get jobs.roost.dev", "create pods/binding", "patch pods/status"} <= asked
    assert {"delete secrets", "patch queues.roost.dev/status", "get services"} <= asked
    assert "get secrets" not in asked


def spread(grants: tuple[ClusterGrant, ...]) -> set[tuple[str, str, str]]:
    return {
        (grant.group, resource, verb)
        for grant in grants
        for resource in grant.resources
        for verb in grant.verbs
    }


def test_a_confined_operator_has_the_same_in_two_parts() -> None:
    whole, apart, near = spread(CLUSTER), spread(UNCONFINED), spread(NAMESPACED)
    assert apart | near == whole
    # Pods of all namespaces are on the nodes, and hold devices that are claimed.
    everywhere = (("", "pods"), ("resource.k8s.io", "resourceclaims"))
    assert apart & near == {(*kind, verb) for kind in everywhere for verb in ("list", "watch")}
    assert not any(verb in ("create", "delete", "update") for _, _, verb in apart)
    served = [one for one in needed(("a", "b")) if one.namespace]
    assert {one.namespace for one in served} == {"a", "b"}
    assert len(served) == 2 * len(near)
