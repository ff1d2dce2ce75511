"""The objects of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.core.allocation import Allocation, Part, seats
from roost.core.spec import JobId, NodeId, RunId
from roost.errors import InvalidSpec
from roost.jobfile import JobFile
from roost.kubernetes.jobs.blueprint import (
    Blueprint,
    JobOwner,
    RunSeats,
    Site,
    digest_of,
    short,
)
from roost.kubernetes.jobs.containers import literal
from roost.kubernetes.jobs.pod_overrides import pod_overrides
from roost.kubernetes.objects.pods import PLAN, decode_plan

A, B = NodeId("node-a"), NodeId("node-b")
OWNER = JobOwner("team", "train", "uid-1")


def plan(*parts: Part, pod: dict[str, Any] | None = None, **file: Any) -> Blueprint:
    allocation = Allocation(parts or (Part(A, (0, 1), workers=2),))
    found = tuple(seats(allocation))
    members = tuple(str(seat.index) for seat in found if seat.role == "worker")
    given = {"image": "pytorch", "command": ["python", "train.py"], "name": "train", **file}
    made = JobFile.from_document(given)
    run = RunId(JobId("team.train"), 2)
    site = Site("roost-train:1", "http://roost-operator.roost-system:8611")
    return Blueprint(
        *(OWNER, made, made.spec("ada"), run, allocation, RunSeats(found, members), site),
        pod_overrides(pod or {}),
        "ada",
    )


def env(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}


def test_names_follow_from_the_job_the_attempt_and_the_seat() -> None:
    made = plan()
    names = [pod["metadata"]["name"] for pod in made.pods()]

    assert names == ["train-2-worker-0", "train-2-worker-1"]
    again = replace(made, generation=3)
    assert again.pods()[0]["metadata"]["name"] == "train-2r3-worker-0"
    assert made.pods() == made.pods()


def test_everything_is_owned_by_the_job_in_its_namespace() -> None:
    made = plan()
    for one in (made.service(), made.config_map(), made.secret("token"), *made.pods()):
        meta = one["metadata"]
        assert meta["namespace"] == "team"
        assert [owner["uid"] for owner in meta["ownerReferences"]] == ["uid-1"]
        assert OWNER.owns(one)
        assert not replace(OWNER, uid="uid-2").owns(one)


def test_workers_are_told_where_the_others_are() -> None:
    made = plan(Part(A, (0, 1), workers=2), Part(B, (), role="ps"), roles={"ps": {}})
    first, second, ps = map(env, made.pods())

    assert (first["RANK"], second["RANK"], second["WORLD_SIZE"]) == ("0", "1", "2")
    assert second["MASTER_ADDR"] == "train-2-worker-0.roost-train.team.svc"
    assert second["MASTER_PORT"] == "29500"
    cluster = json.loads(ps["TF_CONFIG"])["cluster"]
    assert cluster["ps"] == ["train-2-ps-0.roost-train.team.svc:2222"]
    assert len(cluster["worker"]) == 2
    assert (ps["ROOST_ROLE"], ps["ROOST_GPUS"]) == ("ps", "0")
    assert (second["ROOST_JOB"], second["ROOST_ATTEMPT"]) == ("team.train", "2")
    assert made.config_map()["data"]["hostfile"] == (
        "train-2-worker-0.roost-train.team.svc slots=1\n"
        "train-2-worker-1.roost-train.team.svc slots=1\n"
    )
    pod = made.pods()[1]["spec"]
    assert (pod["hostname"], pod["subdomain"]) == ("train-2-worker-1", "roost-train")


def test_a_worker_that_is_alone_needs_its_pod_and_nothing_else() -> None:
    made = plan(Part(A, (0,)))
    [pod] = made.pods()
    config = next(one for one in pod["spec"]["volumes"] if one["name"] == "roost-config")
    [file] = config["downwardAPI"]["items"]

    assert made.is_alone
    assert not made.has_config_map
    assert "subdomain" not in pod["spec"]
    assert env(pod)["MASTER_ADDR"] == "localhost"
    assert file["path"] == "hostfile"
    assert file["fieldRef"] == {"fieldPath": "metadata.annotations['roost.dev/hostfile']"}
    assert pod["metadata"]["annotations"]["roost.dev/hostfile"] == "localhost slots=1\n"


def test_a_worker_that_may_get_company_is_not_alone() -> None:
    made = plan(Part(A, (0,)), workers="1..4")
    [pod] = made.pods()

    assert not made.is_alone
    assert made.has_config_map
    assert pod["spec"]["subdomain"] == "roost-train"


def test_the_allocation_can_be_read_back_from_any_pod() -> None:
    made = plan(Part(A, (3,)), Part(B, (0,)))
    for pod in made.pods():
        assert decode_plan(pod["metadata"]["annotations"][PLAN]) == made.allocation
    assert made.pods()[0]["metadata"]["annotations"]["roost.dev/gpus"] == "3"
    assert made.pods()[1]["metadata"]["annotations"]["roost.dev/seat"] == "worker-1"


def test_whole_gpus_are_the_device_plugins_and_shares_are_annotations() -> None:
    whole = plan(Part(A, (0, 1)), gpus=2, resources={"cpu": 4, "memory": "8Gi"}).pods()[0]
    share = plan(Part(A, (1,), 500), gpus=0.5, sharing={"mem": "4Gi"}).pods()[0]

    asked = whole["spec"]["containers"][0]["resources"]
    assert asked["requests"] == {"cpu": "4000m", "memory": "8192Mi", "nvidia.com/gpu": "2"}
    assert asked["limits"] == {"memory": "8192Mi", "nvidia.com/gpu": "2"}
    assert "nvidia.com/gpu" not in str(share["spec"])
    notes = share["metadata"]["annotations"]
    assert (notes["roost.dev/gpu-share"], notes["roost.dev/gpu-memory"]) == ("0.5", "4096Mi")
    assert env(share)["NVIDIA_VISIBLE_DEVICES"] == "1"


def test_where_there_is_an_agent_it_gives_out_shares() -> None:
    made = plan(Part(A, (1,), 500), gpus=0.5)
    held = replace(made, site=replace(made.site, agents={A})).pods()[0]

    assert held["spec"]["containers"][0]["resources"]["limits"] == {"roost.dev/shared-gpu": "1"}
    assert "NVIDIA_VISIBLE_DEVICES" not in env(held)
    assert held["metadata"]["annotations"]["roost.dev/gpus"] == "1"


def test_the_device_of_another_maker_is_asked_for_by_its_name() -> None:
    made = plan(Part(A, (0,)))
    amd = replace(made, site=replace(made.site, vendors={A: "amd.com/gpu"}))

    assert amd.pods()[0]["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "1"}


def test_a_folder_that_was_sent_is_unpacked_before_anything_else() -> None:
    file: dict[str, Any] = {"workdir": {"sent": "a" * 64}, "resources": {"cpu": 2, "memory": "1Gi"}}
    made = replace(plan(**file, workers="1..4"), parcels=("roost-folder-1", "roost-folder-2"))
    for pod in made.pods():
        first, second = pod["spec"]["initContainers"]
        worker = pod["spec"]["containers"][0]
        assert (first["image"], second["name"]) == (worker["image"], "roost-train")
        assert first["command"][0] == "python3"
        assert first["command"][-1] == "a" * 64
        assert "nvidia.com/gpu" in worker["resources"]["limits"]
        assert first["resources"]["limits"] == {"memory": "1024Mi"}
        (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "roost-folder"]
        names = [one["configMap"]["name"] for one in volume["projected"]["sources"]]
        assert names == ["roost-folder-1", "roost-folder-2"]
        assert worker["workingDir"] == "/roost/work"
    assert "def unpack" in made.config_map()["data"]["unpack.py"]
    assert "unpack.py" not in plan().config_map()["data"]
    own = replace(plan(**file, python="/opt/python"), parcels=("roost-folder-1",))
    assert own.pods()[0]["spec"]["initContainers"][0]["command"][0] == "/opt/python"


def test_a_mount_by_name_is_a_claim() -> None:
    pod = plan(mounts=["birds", "models-2"]).pods()[0]
    claims = [one for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one]
    assert [one["persistentVolumeClaim"]["claimName"] for one in claims] == ["birds", "models-2"]
    places = {one["name"]: one["mountPath"] for one in pod["spec"]["containers"][0]["volumeMounts"]}
    assert [places[one["name"]] for one in claims] == ["/mnt/birds", "/mnt/models-2"]
    assert env(pod)["ROOST_MOUNT_MODELS_2"] == "/mnt/models-2"


def test_elastic_workers_are_wrapped_and_know_their_member() -> None:
    made = replace(plan(workers="1..4"), digest=digest_of("hush-hush"))
    pod = made.pods()[1]
    container = pod["spec"]["containers"][0]

    assert container["command"][:4] == ["python3", "-m", "roost.train.pod", "--"]
    assert pod["spec"]["initContainers"][0]["image"] == "roost-train:1"
    told = env(pod)
    assert (told["ROOST_MEMBER"], told["ROOST_MEMBERS"]) == ("1", "/roost/io/members.json")
    assert told["PYTHONPATH"] == "/roost/lib"
    token = next(one for one in container["env"] if one["name"] == "ROOST_RUN_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "roost-train-2-token", "key": "token"}
    assert "hush-hush" not in json.dumps(made.pods())
    assert pod["metadata"]["annotations"]["roost.dev/token"] == digest_of("hush-hush")
    assert "initContainers" not in plan().pods()[0]["spec"]
    own = replace(made, site=replace(made.site, train_image=""))
    assert "initContainers" not in own.pods()[1]["spec"]


def test_where_there_is_nobody_to_call_nobody_waits_for_an_answer() -> None:
    made = plan(workers="1..4")
    made = replace(made, site=replace(made.site, meeting=""))
    pod = made.pods()[0]

    assert pod["spec"]["containers"][0]["command"] == ["python", "train.py"]
    assert "initContainers" not in pod["spec"]
    assert not [name for name in env(pod) if name.startswith("ROOST_MEM")]


def test_a_worker_without_devices_sees_none() -> None:
    made = plan(Part(A, ()), gpus=0)

    assert env(made.pods()[0])["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in env(plan(Part(A, (0,))).pods()[0])


@pytest.mark.parametrize(("workers", "carry"), [(64, 64), (65, 3)])
def test_of_many_pods_a_few_carry_the_plan(workers: int, carry: int) -> None:
    made = plan(Part(A, (), workers=workers), gpus=0, workers=workers)
    carried = [PLAN in pod["metadata"]["annotations"] for pod in made.pods()]

    assert carried == [True] * carry + [False] * (workers - carry)


def test_newcomers_keep_their_own_numbers() -> None:
    made = plan(workers="1..4")
    grown = replace(made, crew=replace(made.crew, members=("1", "7")))

    assert [pod["metadata"]["name"] for pod in grown.pods()] == [
        "train-2-worker-1",
        "train-2-worker-7",
    ]
    assert [env(pod)["RANK"] for pod in grown.pods()] == ["0", "1"]


def test_secrets_come_by_name() -> None:
    made = plan(secrets=["TOKEN"])
    (secret,) = [e for e in made.pods()[0]["spec"]["containers"][0]["env"] if "valueFrom" in e]

    assert secret["valueFrom"]["secretKeyRef"] == {"name": "train-secrets", "key": "TOKEN"}
    other = replace(made, secrets_from="mine").pods()[0]
    assert "'name': 'mine', 'key': 'TOKEN'" in str(other)


def test_a_job_needs_an_image() -> None:
    made = plan()
    with pytest.raises(InvalidSpec, match="image"):
        replace(made, file=made.file.model_copy(update={"image": ""})).pods()


def test_nothing_of_the_user_is_expanded_by_kubernetes() -> None:
    pod = plan(command=["echo", "$$ $(RANK)"], env={"COST": "$(HOME)"}).pods()[0]

    assert pod["spec"]["containers"][0]["command"] == ["echo", "$$$$ $$(RANK)"]
    assert env(pod)["COST"] == "$$(HOME)"


@given(st.text(alphabet="$(A)x", max_size=12))
def test_literal_texts_survive_expansion(text: str) -> None:
    assert _expanded(literal(text), {"A": "no"}) == text


def _expanded(text: str, values: dict[str, str]) -> str:
    """What Kubernetes makes of a text: $$ is $, $(NAME) a value, everything else stays."""
    found, at = "", 0
    while at < len(text):
        if text.startswith("$$", at):
            found, at = found + "$", at + 2
        elif text.startswith("$(", at) and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            found, at = found + values.get(name, text[at : end + 1]), end + 1
        else:
            found, at = found + text[at], at + 1
    return found


def test_what_users_set_of_a_pod_comes_through_and_no_more() -> None:
    given: dict[str, Any] = {
        "labels": {"team": "vision"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "securityContext": {"runAsUser": 1000},
    }
    pod = plan(pod=given).pods()[0]

    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["labels"]["roost.dev/job"] == "train"
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert given["volumes"][0] in pod["spec"]["volumes"]
    assert given["volumeMounts"][0] in pod["spec"]["containers"][0]["volumeMounts"]
    assert pod["spec"]["securityContext"] == {"runAsUser": 1000}
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_shared_memory_and_checkpoints_have_a_place() -> None:
    pod = plan(resources={"shm_size": "1Gi"}, checkpoint={"path": "/data/ckpt"}).pods()[0]

    mounts = {m["mountPath"]: m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["/dev/shm"] == "roost-shm"  # noqa: S108 - of the pod
    assert env(pod)["ROOST_CHECKPOINT_DIR"] == "/data/ckpt"
    assert "/roost/checkpoints" not in mounts


def test_a_probe_asks_for_all_but_the_devices() -> None:
    pod = plan(resources={"cpu": 2}, gpus=8, pod={"nodeSelector": {"a": "b"}}).probe("worker")

    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2000m"}}
    assert pod["spec"]["nodeSelector"] == {"a": "b"}


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,120}[a-z0-9])?", fullmatch=True))
def test_long_names_are_cut_and_stay_apart(name: str) -> None:
    assert len(short(name)) <= 63
    assert short(name) == name or short(name) != short(name + "x")
    assert not short(name).endswith("-")
