"""Roost Jobs whose pods are real processes: exit codes, logs, signals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.kubernetes.jobbing import (
    SPACE,
    condition,
    define,
    job,
    jobbing,
    patched,
    pods,
    reaches,
    status,
)
from tests.kubernetes.volumes import store
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.kubelet import Kubelet
from tests.support.kubernetes.nodes import until
from tests.support.kubernetes.storage import claim, volume

from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, Object

_ENVIRONMENT = """
import os, sys
for name in ("RANK", "WORLD_SIZE", "ROOST_JOB", "ROOST_ATTEMPT", "ROOST_INDEX", "ROOST_ROLE"):
    print(name, os.environ[name])
print("hosts", open(os.environ["ROOST_HOSTFILE"]).read().count("slots=1"))
"""


def script(name: str, text: str, **spec: Any) -> Object:
    """A Job that runs a script."""
    made = job(name, run=text, checkpoint={"grace": "5s"}, **spec)
    del made["spec"]["command"]
    return made


def test_processes_of_a_gang(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, tmp_path: Path
) -> None:
    async def scenario() -> None:
        await define(api)
        async with Kubelet(api, "node-a", tmp_path, gpus=4), jobbing(cluster):
            await api.create(
                JOBS, job("told", workers=2, command=["python3", "-c", _ENVIRONMENT]), SPACE
            )
            await reaches(api, "told", "succeeded", 30)
            said = (await api.log(SPACE, "told-1-worker-1")).decode().split("\n")
            assert said[:6] == [
                *("RANK 1", "WORLD_SIZE 2", "ROOST_JOB default.told", "ROOST_ATTEMPT 1"),
                *("ROOST_INDEX 1", "ROOST_ROLE worker"),
            ]
            assert said[6] == "hosts 2"

    runner.run(scenario())


def test_failures_are_understood(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, tmp_path: Path
) -> None:
    async def scenario() -> None:
        await define(api)
        async with Kubelet(api, "node-a", tmp_path, gpus=8), jobbing(cluster):
            oom = "raise RuntimeError('CUDA error: out of memory')"
            await api.create(JOBS, job("oom", command=["python3", "-c", oom]), SPACE)
            await api.create(JOBS, script("seven", "exit 7"), SPACE)
            await api.create(JOBS, script("crash", "kill -SEGV $$"), SPACE)
            await api.create(JOBS, script("unset", "true", setup="false"), SPACE)
            await api.create(
                JOBS, script("gang", "[ $RANK = 0 ] && sleep 60; exit 3", workers=2), SPACE
            )
            await api.create(JOBS, script("long", "sleep 60", max_duration="2s"), SPACE)
            verdicts = {}
            for name in ("oom", "seven", "crash", "unset", "gang", "long"):
                found = await reaches(api, name, "failed", 60)
                verdict = found["view"]["verdict"]
                verdicts[name] = (verdict["kind"], found["view"]["exit_code"])
                assert condition(found, "Failed")["message"] == verdict["sentence"]
            assert verdicts["oom"] == ("gpu-out-of-memory", 1)
            assert verdicts["seven"][1] == 7
            assert verdicts["crash"] == ("segfault", 139)
            assert verdicts["unset"][1] == 1
            assert verdicts["gang"][1] == 3
            assert verdicts["long"][0] == "timeout"

    runner.run(scenario())


def test_a_suspended_script_hears_of_it_and_goes_on_from_its_checkpoint(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, tmp_path: Path
) -> None:
    saved = tmp_path / "claims" / SPACE / "state"
    mounts = {
        "volumes": [{"name": "keep", "persistentVolumeClaim": {"claimName": "state"}}],
        "volumeMounts": [{"name": "keep", "mountPath": "/state"}],
    }
    text = """
    echo start >> /state/log
    trap 'echo saved >> /state/log; exit 143' TERM
    while true; do sleep 0.1; done
    """

    async def scenario() -> None:
        await define(api)
        held = claim("state", namespace=SPACE, volume="kept")
        await store(api, [held, volume("kept", claimed_by=held)])
        async with Kubelet(api, "node-a", tmp_path, gpus=1), jobbing(cluster):
            await api.create(JOBS, script("train", text, pod=mounts), SPACE)
            await reaches(api, "train", "running", 30)
            await until(lambda: _has(saved, ["start"]))
            await patched(api, "train", spec={"suspend": True})
            await reaches(api, "train", "suspended", 30)
            assert await _has(saved, ["start", "saved"])
            assert not await pods(api, "train")
            await patched(api, "train", spec={"suspend": False})
            await reaches(api, "train", "running", 30)
            await until(lambda: _has(saved, ["start", "saved", "start"]))
            assert (await status(api, "train"))["failures"] == 0

    runner.run(scenario())


async def _has(folder: Path, lines: list[str]) -> bool:
    log = folder / "log"
    return log.exists() and log.read_text().split() == lines
