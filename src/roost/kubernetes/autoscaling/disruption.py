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
#: On nodes: it is about to be removed, whatever a pod tolerates.
_DOOMED = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})


def is_doomed(node: Object) -> bool:
    """Whether an autoscaler has begun to remove a node."""
    return any(text(taint, "key") in _DOOMED for taint in sections(section(node, "spec"), "taints"))
