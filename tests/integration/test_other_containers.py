"""Jobs in containers of the real docker and the real apptainer, where they are installed.

The daemon is the test's own, and so is the image: of this machine's busybox, no registry is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.faults.faults import trial, until
from tests.support.docker import Docker, docker
from tests.support.images import busybox_root
from tests.support.trial import SubmittedJob, Trial

IMAGE = "roost-test:1"
COMMANDS = ("sh", "sleep", "echo", "cat", "id", "env", "touch", "true", "grep", "tail")
LOOP = "trap 'echo asked; exit 0' TERM; echo begun; while true; do sleep 0.1; done"


@dataclass(frozen=True, slots=True)
class ContainerTrial:
    """A server whose only runtime is one, and an image for that."""

    trial: Trial
    image: str

    def run(self, script: str, **more: Any) -> SubmittedJob:
        document = {"name": "box", "image": self.image, "run": script, "retry": 0, **more}
        return self.trial.submit({"checkpoint": {"grace": 2}, **document})

    def over(self, job: SubmittedJob) -> tuple[dict[str, Any], str]:
        """How a job ended, and what it said."""
        return self.trial.until(job, "succeeded", "failed", "cancelled"), self.log(job)

    def log(self, job: SubmittedJob) -> str:
        answer = self.trial.server.ask("GET", f"/api/v1/jobs/{job.id}/logs")
        assert answer is not None
        return answer.text


@dataclass(slots=True)
class OneRuntime:
    """A runtime, with what the server's environment says of it."""

    image: str
    env: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def dockers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    if os.geteuid() or not shutil.which("dockerd") or not shutil.which("busybox"):
        pytest.skip("needs root, dockerd and busybox")
    # Short: the path of a socket has a limit.
    folder = tmp_path_factory.mktemp("d")
    try:
        with docker(folder) as found:
            found.busybox_image(IMAGE, folder / "image", COMMANDS)
            found("run", "--rm", "--network=host", IMAGE, "true")
            yield found
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"docker does not work here: {getattr(error, 'stderr', None) or error}")


@pytest.fixture(scope="module")
def apptainer(tmp_path_factory: pytest.TempPathFactory) -> OneRuntime:
    if os.geteuid() or not shutil.which("apptainer") or not shutil.which("busybox"):
        pytest.skip("needs root, apptainer and busybox")
    folder = tmp_path_factory.mktemp("image")
    root = busybox_root(folder, COMMANDS)
    try:
        command = ["apptainer", "exec", "--no-privs", str(root), "/bin/true"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603
    except subprocess.SubprocessError as error:
        pytest.skip(f"apptainer does not work here: {getattr(error, 'stderr', error)}")
    return OneRuntime(str(root))


@pytest.fixture(params=["docker", "apptainer"])
def one(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ContainerTrial]:
    if request.param == "docker":
        runtime = OneRuntime(IMAGE, request.getfixturevalue("dockers").env)
    else:
        runtime = request.getfixturevalue("apptainer")
    env = {**runtime.env, "PATH": f"{_others(tmp_path, request.param)}:{os.environ['PATH']}"}
    with trial(tmp_path, slots=2) as found:
        found.server.start(env=env)
        assert found.server.ready(), found.server.said()
        yield ContainerTrial(found, runtime.image)


def _others(folder: Path, name: str) -> Path:
    """A folder in which the other runtimes do not work."""
    found = folder / "broken"
    found.mkdir()
    for other in {"podman", "docker"} - {name}:
        (found / other).write_text("#!/bin/sh\nexit 1\n")
        (found / other).chmod(0o755)
    return found


def test_a_job_runs_in_its_image_with_its_files_and_nothing_to_gain(one: ContainerTrial) -> None:
    script = (
        'id -u; echo "$ROOST_JOB $WORD $HOME $PWD"; grep -E "CapEff|NoNewPrivs" /proc/self/status; '
        'touch here "$ROOST_CHECKPOINT_DIR/saved"; '
        'echo \'{"done": 1.0}\' > "$ROOST_PROGRESS"; exit 3'
    )
    job = one.run(script, env={"WORD": "a b"}, setup="WORD=$WORD-set")
    view, said = one.over(job)
    run = one.trial.server.home / "runs" / job.id
    work = run / "1/work"
    assert (view["exit_code"], view["attempt"]) == (3, 1), (view, said)
    assert f"0\n{job.id} a b-set {work} {work}\n" in said
    assert "CapEff:\t0000000000000000" in said
    assert "NoNewPrivs:\t1" in said
    assert (work / "here").exists()
    assert (run / "checkpoints/saved").exists()


def test_containers_are_suspended_go_on_and_end(one: ContainerTrial) -> None:
    job = one.run(LOOP)
    one.trial.until(job, "running")
    assert until(lambda: "begun" in one.log(job))
    one.trial.command(job, "suspend")
    one.trial.until(job, "suspended")
    one.trial.command(job, "resume")
    one.trial.until(job, "running")
    # Docker's was stopped, and begins anew; the other was frozen.
    assert until(lambda: one.log(job).count("begun") == 1 + one.log(job).count("asked"))
    one.trial.command(job, "cancel")
    assert one.over(job)[0]["state"] == "cancelled"
    assert until(lambda: "asked" in one.log(job))
    assert until(lambda: not _inside(job))


def test_an_image_that_is_not_there_is_said_to_be(one: ContainerTrial) -> None:
    missing = "Not/An Image" if one.image == IMAGE else "/no/such.sif"
    job = one.trial.submit({"name": "box", "image": missing, "run": "true", "retry": 0})
    view, said = one.over(job)
    assert view["verdict"]["kind"] == "image-missing", (view, said)


@pytest.mark.parametrize("one", ["docker"], indirect=True)
def test_docker_holds_a_worker_within_its_memory(one: ContainerTrial) -> None:
    # A number of bytes that tail has to keep, for there is no end of a line among them.
    greedy = "tail -n 1 < /dev/zero"
    view, said = one.over(one.run(greedy, resources={"memory": "32Mi"}))
    assert view["exit_code"] == 137, (view, said)


@pytest.mark.parametrize("one", ["docker"], indirect=True)
def test_nothing_of_docker_is_left(one: ContainerTrial, dockers: Docker) -> None:
    job = one.run("trap '' TERM; echo up; while true; do sleep 0.1; done", checkpoint={"grace": 0})
    one.trial.until(job, "running")
    assert until(lambda: "up" in one.log(job))
    one.trial.server.kill()
    one.trial.server.start(env=dockers.env)  # where podman works again, and would be taken
    assert one.trial.server.ready(), one.trial.server.said()
    assert _inside(job)
    one.trial.command(job, "cancel")
    one.trial.until(job, "cancelled", within_s=90)
    assert until(lambda: not _inside(job))
    assert dockers("ps", "-aq").split() == []


def _inside(job: SubmittedJob) -> list[int]:
    """The processes of a job, wherever they are."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError):
            if f"ROOST_JOB={job.id}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
    return found
