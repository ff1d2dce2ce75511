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
from tests.support.podman import APART, RUN, busybox_image, podman
from tests.support.trial import SubmittedJob, Trial

from roost.engines.local.shim import slot_file

IMAGE = "localhost/roost-test:1"
COMMANDS = ("sh", "sleep", "echo", "cat", "id", "env", "touch", "true", "kill", "grep")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with a shell; where that cannot be made or run, the test is skipped."""
    if os.geteuid() or not shutil.which("podman") or not shutil.which("busybox"):
        pytest.skip("needs root, podman and busybox")
    try:
        busybox_image(IMAGE, tmp_path_factory.mktemp("image"), COMMANDS)
        subprocess.run([*RUN, IMAGE, "true"], check=True, capture_output=True, timeout=60)  # noqa: S603
    except subprocess.SubprocessError as error:
        pytest.skip(f"podman does not work here: {getattr(error, 'stderr', error)}")
    return IMAGE


@pytest.fixture
def one(tmp_path: Path, image: str) -> Iterator[Trial]:
    del image
    options = []
    for name in ("birds", "out"):
        (tmp_path / f"data/{name}").mkdir(parents=True)
        mode = ":ro" if name == "birds" else ""
        options += ["--mount", f"{name}={tmp_path / 'data' / name}{mode}"]
    with trial(tmp_path, slots=2) as found:
        found.server.start(before=APART, options=options)
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


def test_a_job_finds_its_mounts_in_its_image_and_no_others(one: Trial, tmp_path: Path) -> None:
    (tmp_path / "data/birds/names.txt").write_text("robin")
    (tmp_path / "data/secret.txt").write_text("hush")
    script = (
        'cat "$ROOST_MOUNT_BIRDS/names.txt"; echo wren > "$ROOST_MOUNT_OUT/new.txt"; '
        'if touch "$ROOST_MOUNT_BIRDS/mine"; then echo written; fi; '
        f'if cat "{tmp_path}/data/secret.txt"; then echo read; fi'
    )
    job = boxed(one, script, mounts=["birds", "out"])
    view = one.until(job, "succeeded", "failed")
    said = log(one, job)
    assert (view["state"], "robin" in said) == ("succeeded", True), (view, said)
    assert "Read-only file system" in said
    assert not any(word in said for word in ("written", "read\n", "hush"))
    assert (tmp_path / "data/out/new.txt").read_text() == "wren\n"

    # A mount may be the folder that the job works or saves in.
    own = str(tmp_path / "data/out")
    script = 'cat new.txt; touch "$ROOST_CHECKPOINT_DIR/saved"'
    inside = {"workdir": own, "checkpoint": {"path": own}, "mounts": ["out"]}
    both = one.submit({"image": IMAGE, "run": script, "retry": 0, **inside})
    assert one.until(both, "succeeded", "failed")["state"] == "succeeded", log(one, both)
    assert (tmp_path / "data/out/saved").exists()

    # A mount that the job does not name is not there.
    alone = one.until(boxed(one, f'cat "{tmp_path}/data/birds/names.txt"'), "succeeded", "failed")
    assert alone["state"] == "failed"


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
