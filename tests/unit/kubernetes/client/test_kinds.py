"""Where objects of a kind lie, whatever they are called."""

from __future__ import annotations

import pytest

from roost.errors import InvalidSpec
from roost.kubernetes.client.kinds import BATCH_JOBS, JOBS, NODES, PODS


def test_paths() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("lab", "a", "binding") == "/api/v1/namespaces/lab/pods/a/binding"
    assert NODES.path("ignored", "n") == "/api/v1/nodes/n"
    assert BATCH_JOBS.path("lab") == "/apis/batch/v1/namespaces/lab/jobs"
    assert (JOBS.api_version, JOBS.resource) == ("roost.dev/v1alpha1", "jobs.roost.dev")


def test_no_name_leads_elsewhere() -> None:
    assert PODS.path("lab", "a/../../secrets") == (
        "/api/v1/namespaces/lab/pods/a%2F..%2F..%2Fsecrets"
    )
    assert PODS.path("lab", "a?x=1").endswith("/pods/a%3Fx%3D1")
    assert PODS.path("a/b").startswith("/api/v1/namespaces/a%2Fb/")
    for name in (".", ".."):
        with pytest.raises(InvalidSpec):
            PODS.path("lab", name)
