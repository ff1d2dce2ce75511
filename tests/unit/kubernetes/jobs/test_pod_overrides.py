"""What users may set of pods: a one-page model of it, against everything that they may write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import InvalidSpec
from roost.kubernetes.jobs.pod_overrides import pod_overrides

#: What must never reach a pod by way of a Job, wherever it stands.
_DANGEROUS: tuple[dict[str, Any], ...] = (
    {"hostNetwork": True},
    {"hostPID": True},
    {"hostIPC": True},
    {"nodeName": "node-a"},
    {"schedulerName": "default-scheduler"},
    {"restartPolicy": "Always"},
    {"containers": [{"name": "mine"}]},
    {"initContainers": [{"name": "mine"}]},
    {"hostUsers": True},
    {"namespace": "kube-system"},
    {"ownerReferences": []},
    {"securityContext": {"privileged": True}},
    {"securityContext": {"sysctls": []}},
    {"securityContext": {"runAsUser": 0}},
    {"securityContext": {"runAsGroup": "0"}},
    {"securityContext": {"fsGroup": 0}},
    {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    {"priorityClassName": "system-node-critical"},
    {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
    {"volumes": [{"name": "nfs", "nfs": {}}]},
    {"volumes": [{"name": "csi", "csi": {"driver": "x"}}]},
    {"volumes": [{"name": "roost-config", "emptyDir": {}}]},
    {"volumes": [{"name": "two", "emptyDir": {}, "hostPath": {"path": "/"}}]},
    {"volumeMounts": [{"name": "a", "mountPath": "/roost/lib"}]},
    {"volumeMounts": [{"name": "a", "mountPath": "/"}]},
    {"volumeMounts": [{"name": "a", "mountPath": "/data/../roost"}]},
    {"volumeMounts": [{"name": "a", "mountPath": "/x", "mountPropagation": "Bidirectional"}]},
    {"labels": {"roost.dev/job": "other"}},
    {"annotations": {"roost.dev/gpus": "0"}},
    {"annotations": {"scheduling.k8s.io/group-name": "x"}},
    {"labels": {"app.kubernetes.io/managed-by": "x"}},
    {"affinity": {"podAntiAffinity": {}}},
    {"imagePullPolicy": "Sometimes"},
)
_HARMLESS: dict[str, Any] = {
    "labels": {"team": "vision"},
    "tolerations": [],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "securityContext": {"runAsUser": 1000, "runAsNonRoot": True},
    "serviceAccountName": "trainer",
}


@pytest.mark.parametrize("given_", _DANGEROUS, ids=str)
def test_what_is_dangerous_is_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=r"pod"):
        pod_overrides({**_HARMLESS, **given_})


def test_what_is_harmless_is_not() -> None:
    found = pod_overrides(_HARMLESS)

    assert found.labels == {"team": "vision"}
    assert found.pod["serviceAccountName"] == "trainer"
    assert [volume["name"] for volume in found.volumes] == ["data"]


_KEYS = st.sampled_from(
    [
        *("hostPID", "hostNetwork", "containers", "nodeName", "volumes", "labels", "tolerations"),
        *("serviceAccountName", "priorityClassName", "securityContext", "affinity", "x"),
    ]
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
_KEYS = st.sampled_from(["name", "hostPath", "emptyDir", "privileged", "mountPath", "a"])
_BRANCHES = _LEAVES | st.lists(_LEAVES, max_size=3) | st.dictionaries(_KEYS, _LEAVES)
_VALUES = _BRANCHES | st.lists(_BRANCHES, max_size=3) | st.dictionaries(_KEYS, _BRANCHES)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_whatever_is_written_no_other_field_of_a_pod_is_set(given_: dict[str, Any]) -> None:
    try:
        found = pod_overrides(given_)
    except (InvalidSpec, TypeError, AttributeError, ValueError):
        return
    known = {"nodeSelector", "tolerations", "affinity", "imagePullSecrets", "runtimeClassName"}
    known |= {"serviceAccountName", "priorityClassName", "securityContext"}
    assert set(found.pod) <= known
    assert not any("hostPath" in volume for volume in found.volumes)
    assert "privileged" not in (found.pod.get("securityContext") or {})
