"""Marks by which autoscalers know what they must leave alone, and what they are about to remove."""

from __future__ import annotations

from roost.kubernetes.client.kinds import Object
from roost.kubernetes.objects.values import section, sections, text

#: On worker pods: a node is not emptied for tidiness while a gang trains there, for all of the
#: gang would begin again. Users may say otherwise.
STAY = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
#: On worker pods, where Jobs ask by ProvisioningRequests: whose nodes they use.
_CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
_OF_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
#: On nodes: it is about to be removed, whatever a pod tolerates.
_DOOMED = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})


def provisioning_class(name: str) -> str:
    """The whole name of a class of ProvisioningRequests; Cluster Autoscaler's have short ones."""
    return name if "." in name else f"{name}.autoscaling.x-k8s.io"


def consuming(request: str, name: str) -> dict[str, str]:
    """What a pod says that uses the nodes of a ProvisioningRequest of that class."""
    return {_CONSUMES: request, _OF_CLASS: provisioning_class(name)}


def is_doomed(node: Object) -> bool:
    """Whether an autoscaler has begun to remove a node."""
    return any(text(taint, "key") in _DOOMED for taint in sections(section(node, "spec"), "taints"))
