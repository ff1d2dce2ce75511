"""Folders go along to a cluster: kept by the API server, unpacked in pods that are processes."""

from __future__ import annotations

import asyncio
import os
import sys
import zlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tests.kubernetes.jobbing import SPACE, define, jobbing
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.kubelet import Kubelet

from roost.client import Client
from roost.client.machine import POD
from roost.errors import InvalidSpec, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, JOBS, Object
from roost.kubernetes.gateway.local import Gateway

_TRAIN = """
import os, subprocess, zlib
print("lr", open("conf/lr.txt").read())
print("here", sorted(os.listdir(".")))
print("large", zlib.crc32(open("large.bin", "rb").read()))
print("link", os.readlink("latest"), subprocess.check_output(["./tool.sh"], text=True))
open("written", "w").close()
"""


def context(plane: ControlPlane) -> str:
    return str(yaml.safe_load(Path(plane.kubeconfig).read_text())["current-context"])


@contextmanager
def client(plane: ControlPlane) -> Iterator[Client]:
    """What a command line has while it runs; it blocks, and so belongs into a thread."""
    gateway = Gateway(context(plane), str(plane.kubeconfig))
    url, token = gateway.open()
    try:
        with Client(url, token) as found:
            found.machine = POD
            yield found
    finally:
        gateway.close()


async def typed(plane: ControlPlane, folder: Path, *args: str) -> tuple[int, str]:
    """A command line as people type it, in a folder of theirs."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("roost"),
        *("--context", context(plane), *args),
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig), "COLUMNS": "200"},
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as people have them: code, a larger file, a link, and what is not to go."""
    folder = tmp_path / "project"
    (folder / "conf").mkdir(parents=True)
    (folder / "train.py").write_text(_TRAIN)
    (folder / "conf" / "lr.txt").write_text("0.1")
    (folder / "other").mkdir()
    (folder / "other" / "train.py").write_text("print('other')")
    (folder / "large.bin").write_bytes(os.urandom(1_500_000))
    (folder / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (folder / "tool.sh").chmod(0o755)
    (folder / "latest").symlink_to("conf/lr.txt")
    (folder / ".gitignore").write_text("*.ckpt\n/other\n")
    (folder / "old.ckpt").write_text("not sent")
    return folder


async def parcels(api: Api) -> list[Object]:
    return await api.list_metadata(CONFIG_MAPS, SPACE, labels="roost.dev/folder=parcel")


def test_a_folder_goes_along_and_only_what_changed(
    cluster: ControlPlane, api: Api, runner: asyncio.Runner, tmp_path: Path, project: Path
) -> None:
    submit = ("submit", "--image", "python", "--gpus", "1", "--workers", "2", "-y", "-f")
    large = zlib.crc32((project / "large.bin").read_bytes())

    async def go() -> None:
        await define(api)
        async with Kubelet(api, "node-a", tmp_path / "node", gpus=2), jobbing(cluster):
            code, said = await typed(cluster, project, *submit, "--", "python", "train.py")
            assert code == 0, said
            assert "sends: " in said
            assert "(5 files, 1.4 MiB; 5 new, 1.4 MiB to go)" in said
            assert "lr 0.1" in said
            assert (
                "here ['.gitignore', 'conf', 'large.bin', 'latest', 'tool.sh', 'train.py']" in said
            )
            assert f"large {large}" in said
            assert "link conf/lr.txt tool" in said
            first = await parcels(api)

            (project / "conf" / "lr.txt").write_text("0.2")
            code, said = await typed(cluster, project, *submit, "--", "python", "train.py")
            assert code == 0, said
            assert "1 new, 3 B to go" in said
            assert "lr 0.2" in said
            second = await parcels(api)
            assert len(second) == len(first) + 1
            owners = [len(one["metadata"]["ownerReferences"]) for one in second]
            assert sorted(owners) == [1, *(2 for _ in first)]

            code, said = await typed(cluster, project, "rerun", "train", "-y")
            assert code == 0, said
            code, said = await typed(cluster, project, "logs", "-f", "train")
            assert "lr 0.2" in said, said
            assert len(await parcels(api)) == len(second)
            code, said = await typed(cluster, project, "get", "train", "--spec")
            assert "sent: " in said
            assert "parcels" not in said
            code, said = await typed(cluster, project, *submit, "--dry-run", "--", "true")
            assert "nothing new" in said

    runner.run(go())


def test_what_is_wrong_with_a_folder_is_said(
    cluster: ControlPlane,
    api: Api,
    runner: asyncio.Runner,
    tmp_path: Path,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    job = {"image": "python", "command": ["python", "train.py"], "resources": {"gpu": 1}}

    def talk() -> None:
        with client(cluster) as here:
            blind = here.submit({**job, "name": "blind", "python": "/no/python"})
            said = blind.wait(timeout=60).verdict
            assert said is not None
            assert "the image has no python3" in str(said)
            assert "--no-send" in str(said)

            # Others may write to the namespace, too: what is not what was sent is not run.
            first = here.submit({**job, "name": "first", "command": ["sleep", "60"]}, send=False)
            altered = here.submit({**job, "name": "altered", "workdir": "other"})
            gone = here.submit({**job, "name": "gone"})
            asyncio.run_coroutine_threadsafe(alter(altered.id), loop).result()
            asyncio.run_coroutine_threadsafe(remove(gone.id), loop).result()
            first.cancel()
            assert "is not what was sent" in str(altered.wait(timeout=60).verdict)
            assert "the folder that was sent is gone" in str(gone.wait(timeout=60).verdict)
            with client(cluster) as other, pytest.raises(NotFound, match="from your folder again"):
                other.job(gone.id).rerun()

            (project / "data").mkdir()
            (project / "data" / "images.bin").write_bytes(bytes(17 << 20))
            with pytest.raises(InvalidSpec, match=r"data/ has 17 MiB.*volume.*git"):
                here.submit({**job, "name": "large"})
            empty = here.submit({**job, "name": "empty", "command": ["true"]}, send=False)
            assert "workdir" not in empty.document()

    async def parcels_of(job_id: str) -> list[str]:
        found = await api.get(JOBS, job_id.partition(".")[2], SPACE)
        names: list[str] = found["spec"]["workdir"]["parcels"]
        return names

    async def remove(job_id: str) -> None:
        for name in await parcels_of(job_id):
            await api.delete(CONFIG_MAPS, name, SPACE)

    async def alter(job_id: str) -> None:
        (name,) = await parcels_of(job_id)
        found = await api.get(CONFIG_MAPS, name, SPACE)
        await api.delete(CONFIG_MAPS, name, SPACE)
        other = b64encode(zlib.compress(b"something else")).decode()
        found["binaryData"] = dict.fromkeys(found["binaryData"], other)
        found["metadata"] = {"name": name, "namespace": SPACE}
        await api.create(CONFIG_MAPS, found)

    async def go() -> None:
        await define(api)
        async with Kubelet(api, "node-a", tmp_path / "node", gpus=1), jobbing(cluster):
            await asyncio.to_thread(talk)

    loop = runner.get_loop()
    runner.run(go())
