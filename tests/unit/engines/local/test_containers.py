"""The arguments of containers, for each runtime."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.core.spec import Resources
from roost.engines.local import containers
from roost.engines.local.accounts import Account
from roost.engines.local.containers import ContainerMount, ContainerRuntime, ContainerSettings
from roost.errors import InvalidSpec

ADA = Account("ada", 1001, 1002, (1002, 44), "/home/ada")
WORK = ContainerMount("/runs/work", "/runs/work")
DATA = ContainerMount("/srv/data", "/data", readonly=True)
WHAT = ContainerSettings("torch:2", "abc", "/runs/work", (WORK, DATA), ADA, 1 << 30)
ENV = {"RANK": "0", "WORD": "a b"}


def runtime(name: containers.RuntimeName) -> ContainerRuntime:
    return ContainerRuntime(name, f"/usr/bin/{name}", "")


@pytest.mark.parametrize("name", ["podman", "docker"])
def test_the_server_runs_a_container_as_the_account_of_the_job(
    name: containers.RuntimeName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    argv, own, lines = runtime(name).run(WHAT, ["python", "train.py"], ENV, (1, 3))
    assert argv[:3] == [f"/usr/bin/{name}", "run", "--rm"]
    assert argv[-3:] == ["torch:2", "python", "train.py"]
    assert {"--user=1001:1002", "--group-add=44", "--network=host", "--pull=never"} <= set(argv)
    assert {"--cap-drop=all", "--security-opt=no-new-privileges"} <= set(argv)
    assert "--mount=type=bind,source=/srv/data,target=/data,readonly" in argv
    assert "--userns=keep-id" not in argv
    # Nothing of the job is in the environment of what root runs, nor on its command line.
    assert not {"RANK", "WORD", "LD_PRELOAD"} & own.keys()
    assert own["ROOST_RUN_TOKEN"] == WHAT.token
    assert lines == "RANK=0\nWORD=a b\n"
    gpus = {
        "podman": {"--device=nvidia.com/gpu=1", "--device=nvidia.com/gpu=3"},
        "docker": {'--gpus="device=1,3"'},
    }
    assert gpus[name] <= set(argv)


def test_podman_stays_in_the_cgroup_and_limits_of_the_worker() -> None:
    argv, _, _ = runtime("podman").run(WHAT, ["true"], ENV, ())
    assert "--cgroups=disabled" in argv
    assert f"--ulimit=data={1 << 30}:{1 << 30}" in argv


def test_docker_is_told_what_a_worker_may_use_for_its_containers_are_in_no_cgroup_of_ours() -> None:
    need = Resources(memory_mib=512, cpu_milli=1500)
    what = ContainerSettings("torch:2", "abc", "/runs/work", need=need, cores=(2, 3))
    argv, _, _ = runtime("docker").run(what, ["true"], ENV, ())
    assert {"--memory=512m", "--memory-swap=512m", "--cpus=1.5", "--cpuset-cpus=2,3"} <= set(argv)
    free, _, _ = runtime("docker").run(WHAT, ["true"], ENV, ())
    assert not any(word.startswith(("--memory", "--cpu")) for word in free)


def test_a_runtime_is_found_by_its_name_also_where_another_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in ("podman", "docker"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    docker = containers.named("docker")
    assert (docker.path, docker.is_ours) == (str(tmp_path / "docker"), False)
    assert not containers.named("apptainer").path
    assert not containers.named("").path


def test_a_server_without_root_keeps_its_own_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    plain = ContainerSettings("torch:2", "abc", "/runs/work")
    argv, _, _ = runtime("podman").run(plain, ["true"], ENV, ())
    assert "--userns=keep-id" in argv
    assert f"--user=1234:{os.getegid()}" in argv


@pytest.mark.parametrize(
    ("image", "source"),
    [
        ("torch:2", "docker://torch:2"),
        ("/a/b.sif", "/a/b.sif"),
        ("b.sif", "b.sif"),
        ("/a/folder", "/a/folder"),
        ("oras://x", "oras://x"),
    ],
)
def test_apptainer_runs_as_the_account_itself(image: str, source: str) -> None:
    what = ContainerSettings(image, "abc", "/runs/work", (WORK, DATA))
    found = runtime("apptainer")
    argv, own, lines = found.run(what, ["true"], ENV, (0,))
    assert argv[-2:] == [source, "true"]
    assert {"--cleanenv", "--nv", "--pwd=/runs/work", "--bind=/srv/data:/data:ro"} <= set(argv)
    assert {"--no-privs", "--no-mount=home,cwd", "--home=/runs/work"} <= set(argv)
    assert (own["APPTAINERENV_WORD"], lines) == ("a b", "")
    assert (found.as_server, found.pull(image)) == (False, [])


def test_a_variable_of_several_lines_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="TEXT has several lines"):
        runtime("podman").run(WHAT, ["true"], {"TEXT": "a\nb"}, ())


def test_an_image_is_pulled_once() -> None:
    *_, path, image = runtime("podman").pull("torch:2")
    assert (path, image) == ("/usr/bin/podman", "torch:2")
    assert "image exists" in runtime("podman").pull("torch:2")[2]
    assert "image inspect" in runtime("docker").pull("torch:2")[2]


def test_variables_inside_are_those_of_the_job_and_not_of_the_machine() -> None:
    env = {"PATH": "/opt/venv/bin", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "2,5", "RANK": "0"}
    found = containers.variables(env, {}, "/runs/work", 2)
    assert found == {"HOME": "/runs/work", "CUDA_VISIBLE_DEVICES": "0,1", "RANK": "0"}
    assert containers.variables(env, {"PATH": "/x"}, "/w", 0)["PATH"] == "/opt/venv/bin"


def test_setup_comes_first_in_each_container() -> None:
    assert containers.command("", ("python", "x.py"), "") == ["python", "x.py"]
    *_, whole = containers.command("run", (), "prepare")
    assert whole == "prepare\nrun"
    argv = containers.command("", ("python", "x.py"), "prepare")
    assert argv == ["/bin/sh", "-ec", 'prepare\nexec "$@"', "sh", "python", "x.py"]


def test_the_first_runtime_that_works_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install podman" in containers.find().problem
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    assert "docker is there and does not work (try: docker info)" in containers.find().problem
    (tmp_path / "singularity").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "singularity").chmod(0o755)
    found = containers.find()
    assert (found.name, found.problem) == ("apptainer", "")


def test_what_cannot_be_in_a_container_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_CDI", ())
    whole, part = Resources(), Resources(share_milli=500)
    podman, docker = runtime("podman"), runtime("docker")
    assert containers.refusal(podman, [whole], real=False) == ""
    assert "nvidia-ctk cdi generate" in containers.refusal(podman, [whole], real=True)
    assert containers.refusal(docker, [whole], real=True) == ""
    assert "whole GPUs" in containers.refusal(docker, [part], real=True)
    assert "install podman" in containers.refusal(ContainerRuntime(), [whole], real=False)
