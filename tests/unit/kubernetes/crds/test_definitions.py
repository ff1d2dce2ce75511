"""The definitions of Roost's objects, and Jobs from and to job files; no server is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.docs.pages import page
from tests.support.effort import examples
from tests.unit.jobfile.test_model import SCRIPTS, VALUES

from roost.core import QueueId, QueueSpec
from roost.core.cells import parse_promises
from roost.errors import InvalidSpec
from roost.jobfile import JobFile, JobFileErrors, parse
from roost.jobfile.sections import (
    CheckpointSection,
    ResourcesSection,
    RetrySection,
    RoleSection,
    SharingSection,
    TrainingSection,
    WorkdirSection,
)
from roost.kubernetes.client.kinds import Object
from roost.kubernetes.crds import (
    MAX_NAME,
    cluster_queue_object,
    definitions,
    is_suspended,
    job_file,
    job_object,
    parcels_of,
    pod_of,
    queue_spec,
    secrets_name,
    ttl_s,
    wanted_replicas,
)
from roost.kubernetes.crds.rules import CHANGEABLE
from roost.kubernetes.crds.schema import BEYOND, IN_METADATA, RENAMED
from roost.kubernetes.jobs.pod_overrides import pod_overrides

JOB, QUEUE, CLUSTER_QUEUE = definitions()
EXAMPLES = [
    parse(block.text, f"example{number}.yaml").job
    for number, block in enumerate(page("docs/jobs.md").blocks)
    if block.language in ("yaml", "bash")
]


def schema_of(definition: Object) -> Any:
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def spec_of(definition: Object) -> Any:
    return schema_of(definition)["properties"]["spec"]


def names_of(kind: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in kind.model_fields.items()}


def parts(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every schema inside a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from parts(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key], f"{path}.*")


def test_every_field_of_a_job_file_is_in_the_definition() -> None:
    wanted = {RENAMED.get(name, name) for name in names_of(JobFile) - IN_METADATA}
    properties = spec_of(JOB)["properties"]
    assert set(properties) == wanted | set(BEYOND) | {"gpus", "pod"}
    for name, kind in (
        ("resources", ResourcesSection),
        ("sharing", SharingSection),
        ("retry", RetrySection),
        ("checkpoint", CheckpointSection),
        ("training", TrainingSection),
        ("workdir", WorkdirSection),
    ):
        assert names_of(kind) <= set(properties[name]["properties"]), name
    role = properties["roles"]["additionalProperties"]["properties"]
    assert set(role) == names_of(RoleSection) | {"gpus"}


def test_defaults_are_those_of_the_job_file() -> None:
    usual = JobFile(run="true")
    written = {
        RENAMED.get(name, name): value
        for name, value in usual.model_dump(mode="json", by_alias=True).items()
    }
    for name, schema in spec_of(JOB)["properties"].items():
        if "default" in schema and name not in BEYOND:
            assert schema["default"] == written[name], name


@pytest.mark.parametrize(
    "definition", [JOB, QUEUE, CLUSTER_QUEUE], ids=lambda d: str(d["metadata"]["name"])
)
def test_a_schema_has_one_type_a_sentence_and_bounds_everywhere(definition: Object) -> None:
    for path, schema in parts(schema_of(definition)):
        if path in (".apiVersion", ".kind", ".metadata"):
            continue
        if path.startswith(".status.view."):  # only the operator writes it
            continue
        assert ("type" in schema) != ("x-kubernetes-int-or-string" in schema), path
        assert schema.get("description"), path
        match schema.get("type"):
            case "string":
                assert {"maxLength", "enum", "format"} & set(schema), path
            case "array":
                assert "maxItems" in schema, path
            case "object":
                assert {"properties", "maxProperties"} & set(schema) or path == ".status.view", path


def test_everything_but_a_few_fields_is_frozen() -> None:
    rules = [rule for rule in spec_of(JOB)["x-kubernetes-validations"] if "oldSelf" in rule["rule"]]
    frozen = {rule["fieldPath"].removeprefix(".") for rule in rules}
    assert frozen == set(spec_of(JOB)["properties"]) - CHANGEABLE
    assert {"suspend", "replicas", "ttl", "labels"} == CHANGEABLE


def test_what_kubectl_shows() -> None:
    version = JOB["spec"]["versions"][0]
    names = [column["name"] for column in version["additionalPrinterColumns"]]
    assert names == ["State", "Workers", "GPUs", "Queue", "Reason", "Age"]
    assert JOB["spec"]["names"]["shortNames"] == ["rj"]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert [d["spec"]["scope"] for d in definitions()] == ["Namespaced", "Namespaced", "Cluster"]
    assert not any(d["spec"]["preserveUnknownFields"] for d in definitions())


def test_nothing_of_the_host_can_be_asked_for() -> None:
    paths = {path.rpartition(".")[2] for path, _ in parts(spec_of(JOB)["properties"]["pod"])}
    assert not {"hostPath", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "privileged"} & paths
    assert not {"containers", "initContainers", "nodeName", "schedulerName"} & paths


POD: dict[str, Any] = {
    "labels": {"team": "a"},
    "annotations": {"note": "b"},
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "b", "configMap": {"name": "b"}},
        {"name": "c", "secret": {"secretName": "c"}},
        {"name": "d", "emptyDir": {}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
    ],
    "volumeMounts": [{"name": "a", "mountPath": "/data", "subPath": "x", "readOnly": True}],
    "imagePullSecrets": [{"name": "a"}],
    "imagePullPolicy": "Always",
    "serviceAccountName": "trainer",
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "securityContext": {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "Always",
        "supplementalGroups": [1000],
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}


def test_whatever_the_schema_lets_through_reaches_a_pod() -> None:
    properties = spec_of(JOB)["properties"]["pod"]["properties"]
    assert set(POD) == set(properties)
    assert set(POD["securityContext"]) == set(properties["securityContext"]["properties"])
    sources = {source for volume in POD["volumes"] for source in volume}
    assert sources == set(properties["volumes"]["items"]["properties"])
    assert set(POD["volumeMounts"][0]) == set(properties["volumeMounts"]["items"]["properties"])
    pod_overrides(POD)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_of_the_documentation_survive(file: JobFile) -> None:
    made = job_object(file, "vision")
    assert made["metadata"] == {"name": file.name, "namespace": "vision"}
    assert set(made["spec"]) <= set(spec_of(JOB)["properties"])
    assert job_file(made) == file


@settings(max_examples=examples(150))
@given(st.fixed_dictionaries({"run": SCRIPTS}, optional=VALUES))
def test_any_job_survives(fields: dict[str, Any]) -> None:
    file = JobFile.from_document(fields)
    assert job_file(job_object(file, "default")) == file


def test_an_object_spells_amounts_in_one_way() -> None:
    file = JobFile.from_document(
        {
            "run": "true",
            "gpus": 0.5,
            "resources": {"cpu": 0.5},
            "workdir": "/data",
            "suspend": "stop",
            "retry": 2,
            "roles": {"ps": {"gpus": ["A100:1", "H100:1"]}},
        }
    )
    assert job_object(file, "default")["spec"] == {
        "run": "true",
        "gpus": 0.5,
        "resources": {"cpu": "0.5"},
        "workdir": {"path": "/data"},
        "when_suspended": "stop",
        "retry": {"max": 2},
        "roles": {"ps": {"resources": {"any_of": ["A100:1", "H100:1"]}}},
    }


def test_what_only_a_cluster_knows_is_apart_from_the_job_file() -> None:
    pod = {"nodeSelector": {"zone": "a"}}
    made = job_object(JobFile(run="true"), "default", pod=pod)
    assert (is_suspended(made), wanted_replicas(made), ttl_s(made)) == (False, None, None)
    assert secrets_name(made) == "job-secrets"
    made["spec"] |= {"suspend": True, "replicas": 3, "ttl": "1h30m", "secrets_from": "keys"}
    assert (is_suspended(made), wanted_replicas(made), ttl_s(made)) == (True, 3, 5400.0)
    assert secrets_name(made) == "keys"
    assert pod_of(made) == pod
    pod_of(made)["nodeSelector"]["zone"] = "b"
    assert pod_of(made) == pod
    assert job_file(made) == JobFile(run="true")


def test_a_folder_that_was_sent_is_named_with_its_parcels() -> None:
    file = JobFile.from_document({"run": "true", "workdir": {"sent": "a" * 64}})
    with pytest.raises(InvalidSpec, match="roost --context"):
        job_object(file, "default")
    made = job_object(file, "default", parcels=["roost-folder-1"])
    assert made["spec"]["workdir"] == {"sent": "a" * 64, "parcels": ["roost-folder-1"]}
    assert job_file(made) == file
    assert parcels_of(made) == ("roost-folder-1",)
    del made["spec"]["workdir"]["parcels"]
    with pytest.raises(InvalidSpec, match="nowhere"):
        parcels_of(made)


def test_a_long_name_is_refused_and_told() -> None:
    job_object(JobFile(name="a" * MAX_NAME, run="true"), "default")
    with pytest.raises(InvalidSpec, match="at most 40 characters"):
        job_object(JobFile(name="a" * (MAX_NAME + 1), run="true"), "default")


def test_an_object_with_nonsense_names_all_of_it() -> None:
    made = job_object(JobFile(run="true"), "default")
    made["spec"] |= {"workers": "4..1", "nonsense": 1}
    with pytest.raises(JobFileErrors) as caught:
        job_file(made)
    assert {error.field for error in caught.value.errors} == {"workers", "nonsense"}
    assert str(caught.value).startswith("job job: ")


@pytest.mark.parametrize(
    "queue",
    [
        QueueSpec(QueueId("vision"), quota_milli=8000, limit_milli=16500, weight=2.0, priority=-1),
        QueueSpec(QueueId("default")),
        QueueSpec(QueueId("none"), quota_milli=0, limit_milli=0),
        QueueSpec(
            QueueId("cells"),
            cells=parse_promises("2xnode:A100*8,1xpair@dgx,3xgpu,pin:node-7"),
            overflows=False,
        ),
    ],
    ids=lambda queue: str(queue.id),
)
def test_a_cluster_queue_is_read_as_it_was_written(queue: QueueSpec) -> None:
    made = cluster_queue_object(queue)
    assert queue_spec(made) == queue
    assert set(made["spec"]) <= set(spec_of(CLUSTER_QUEUE)["properties"])


def test_a_queue_that_promises_more_than_it_may_have_is_refused() -> None:
    made = {"metadata": {"name": "vision"}, "spec": {"quota": 2, "limit": 1}}
    with pytest.raises(InvalidSpec, match="above the limit"):
        queue_spec(made)
