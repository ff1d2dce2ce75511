"""Jobs in containers, with the real podman: files, limits, signals, ends, and nothing left behind.

The image is made here, of this machine's busybox: no registry is needed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.faults.faults import trial, until
from tests.support.trial import SubmittedJob, Trial

from roost.engines.local.shim import slot_file

IMAGE = "localhost/roost-test:1"
#: Older crun cannot work where both versions of cgroups are mounted: there one is hidden from it.
APART = ("unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh")
COMMANDS = ("sh", "sleep", "echo", "cat", "id", "env", "touch", "true", "kill", "grep")


def podman(*words: str) -> str:
    done = subprocess.run(["podman", *words], check=True, capture_output=True, text=True)  # noqa: S603, S607
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with a shell; where that cannot be made or run, the test is skipped."""
    busybox = shutil.which("busybox")
    if os.geteuid() or not shutil.which("podman") or not busybox:
        pytest.skip("needs root, podman and busybox")
    folder = tmp_path_factory.mktemp("image")
    for name in ("bin", "tmp", "etc", "proc", "dev"):
        (folder / "root" / name).mkdir(parents=True)
    shutil.copy(busybox, folder / "root/bin/busybox")
    for name in COMMANDS:
        (folder / f"root/bin/{name}").symlink_to("busybox")
    tar = folder / "image.tar"
    subprocess.run(["tar", "-C", folder / "root", "-cf", tar, "."], check=True)  # noqa: S603, S607
    try:
        podman("import", str(tar), IMAGE)
        limits = ("--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
        tried = (*APART, "podman", "run", "--rm", "--network=host", *limits, IMAGE, "true")
        subprocess.run(tried, check=True, capture_output=True, timeout=60)  # noqa: S603
    except subprocess.SubprocessError as error:
        pytest.skip(f"podman does not work here: {getattr(error, 'stderr', error)}")
    return IMAGE


@pytest.fixture
def one(tmp_path: Path, image: str) -> Iterator[Trial]:
    del image
    with trial(tmp_path, slots=2) as found:
        found.server.start(before=APART)
        assert found.server.ready(), found.server.said()
        yield found


def boxed(one: Trial, script: str, **more: Any) -> SubmittedJob:
    document = {"name": "box", "image": IMAGE, "run": script, "retry": 0, **more}
    return one.submit({**document, "checkpoint": {"grace": 5}})


def log(one: Trial, job: SubmittedJob) -> str:
    answer = one.server.ask("GET", f"/api/v1/jobs/{job.id}/logs")
    assert answer is not None
    return answer.text


def record(one: Trial, job: SubmittedJob, name: str) -> dict[str, Any]:
    with (one.server.home / f"runs/{job.id}/1/{name}").open("rb") as file:
        found = slot_file.read(file.fileno())
    assert found is not None
    return found


def containers_of(one: Trial, job: SubmittedJob) -> list[str]:
    """What podman still knows of the containers of a job."""
    token = record(one, job, "run.json")["token"]
    return podman("ps", "-aq", "--filter", f"label=roost.run={token}").split()


def inside(job: SubmittedJob) -> list[int]:
    """The processes of a job, wherever they are."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError):
            if f"ROOST_JOB={job.id}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
    return found


def test_a_job_runs_in_its_image_as_its_user(one: Trial) -> None:
    script = (
        "id -u; echo $ROOST_JOB $WORD $KEY; "
        'touch here "$ROOST_CHECKPOINT_DIR/saved"; '
        'echo \'{"done": 1.0}\' > "$ROOST_PROGRESS"; exit 3'
    )
    body = {"name": "box", "image": IMAGE, "run": script, "retry": 0, "setup": "WORD=$WORD-set"}
    body |= {"env": {"WORD": "a b"}, "secrets": ["KEY"]}
    answer = one.server.ask("POST", "/api/v1/jobs", {"job": body, "secrets": {"KEY": "hush"}})
    assert answer is not None
    assert answer.is_success, answer.text
    job = SubmittedJob("key", body, answer.json()["id"])
    view = one.until(job, "failed", "succeeded")
    said = log(one, job)
    assert (view["exit_code"], view["attempt"]) == (3, 1), (view, said)
    assert f"0\n{job.id} a b-set hush\n" in said
    run = one.server.home / "runs" / job.id
    assert (run / "1/work/here").exists()
    assert (run / "checkpoints/saved").exists()
    assert containers_of(one, job) == []


def test_an_image_that_is_not_there_is_said_to_be(one: Trial) -> None:
    job = one.submit({"name": "box", "image": "Not/An Image", "run": "true", "retry": 0})
    view = one.until(job, "failed")
    assert view["verdict"]["kind"] == "image-missing", (view, log(one, job))
    wrong = one.until(boxed(one, "", command=["/no/such/program"], run=None), "failed")
    assert wrong["verdict"]["whose"] == "user", wrong


def test_containers_freeze_stop_and_leave_nothing(one: Trial) -> None:
    trap = "trap 'echo asked; exit 0' TERM; echo up; while true; do sleep 0.1; done"
    job = boxed(one, trap)
    one.until(job, "running")
    assert until(lambda: "up" in log(one, job))
    one.command(job, "suspend")
    one.until(job, "suspended")
    states = {
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in inside(job)
    }
    assert states <= {"T", "t"}, states
    one.command(job, "resume")
    one.until(job, "running")
    one.command(job, "cancel")
    one.until(job, "cancelled")
    assert "asked" in log(one, job)
    assert until(lambda: not inside(job))
    assert containers_of(one, job) == []


def test_nothing_is_left_when_shim_and_server_are_killed(one: Trial) -> None:
    job = boxed(one, "trap '' TERM; echo up; while true; do sleep 0.1; done")
    one.until(job, "running")
    assert until(lambda: "up" in log(one, job))
    first = inside(job)
    assert first
    assert containers_of(one, job)
    shim = int(record(one, job, "start.json")["pid"])
    one.server.kill()
    os.kill(shim, signal.SIGKILL)
    one.server.start(before=APART)
    assert one.server.ready(), one.server.said()
    assert until(lambda: not set(first) & set(inside(job)))
    one.command(job, "cancel")
    one.until(job, "cancelled")
    assert until(lambda: not inside(job))
    assert containers_of(one, job) == []


def test_without_a_runtime_an_image_is_refused_before_it_is_submitted(tmp_path: Path) -> None:
    with trial(tmp_path, slots=1) as found:
        nowhere = str(Path(sys.executable).parent)
        found.server.start(env={"PATH": nowhere})
        assert found.server.ready(), found.server.said()
        body = {"job": {"name": "box", "image": IMAGE, "run": "true"}}
        for path in ("/api/v1/jobs", "/api/v1/jobs/plan"):
            answer = found.server.ask("POST", path, body)
            assert answer is not None
            assert "install podman" in answer.text, answer.text
