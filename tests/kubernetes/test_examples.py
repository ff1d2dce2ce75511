"""The examples of Roost's own kinds on a real API server; pods and batch Jobs, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from tests.kubernetes.test_manifests import CRDS, Kubectl
from tests.support.kubernetes.control_plane import ControlPlane
from tests.unit.kubernetes.objects.test_examples import FILES, documents

from roost.kubernetes.client.api import Api
from roost.kubernetes.crds import definitions

SERVED = ("roost.dev/v1alpha1", "v1", "batch/v1")


@pytest.fixture
def kubectl(cluster: ControlPlane) -> Kubectl:
    made = Kubectl(cluster)
    made.does("apply", "--server-side", "--force-conflicts", "-f", "-", given=CRDS)
    names = [f"crd/{one['metadata']['name']}" for one in definitions()]
    made.does("wait", "--for=condition=Established", *names)
    made.does("create", "namespace", "team")
    return made


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_can_be_applied(kubectl: Kubectl, path: Path) -> None:
    known = [one for one in documents(path) if one["apiVersion"] in SERVED]
    if not known:
        pytest.skip("of other controllers alone")
    given = yaml.safe_dump_all(known)
    kubectl.does("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=given)


def test_all_that_a_server_knows_are_looked_at(api: Api, runner: asyncio.Runner) -> None:
    assert runner.run(api.version())["major"] == "1"
    assert sum(any(one["apiVersion"] in SERVED for one in documents(path)) for path in FILES) >= 8
