"""The images that ``make image`` builds, with the real buildah, podman and API server.

Where no registry answers, the images that they begin with are stand-ins, made of Debian's packages.
pip asks the index that this machine's asks.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from tests.docs.pages import ROOT
from tests.kubernetes.jobbing import define, job, pods
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import nodes, until
from tests.support.kubernetes.processes import Process, free_ports
from tests.support.podman import RUN, busybox_image, podman, python_image

from roost import __version__
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import JOBS, Object

PROGRAMS = ("apt-get", "buildah", "busybox", "dpkg-deb", "make", "podman", "unshare")
REGISTRY = "localhost/roost-image-test"
PYTHON, TINY = f"{REGISTRY}/python:1", f"{REGISTRY}/busybox:1"
#: What pip inside needs of this machine, where it is there: its settings, and whom to trust.
SETTINGS = ("/etc/pip.conf", "/etc/ssl/certs")
#: As the operator's Deployment runs it.
CONFINED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
OPERATOR = "roost-image-test-operator"
_BUILD_S = 600


class BuiltImages(NamedTuple):
    """The names of both images."""

    operator: str
    train: str


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImages]:
    if missing := [one for one in PROGRAMS if shutil.which(one) is None]:
        pytest.skip(f"images cannot be built here: {', '.join(missing)} missing")
    try:
        busybox_image(TINY, tmp_path_factory.mktemp("tiny"), ["cp", "true"])
        ran(*RUN, TINY, "true")
        python_image(PYTHON, tmp_path_factory.mktemp("python"))
    except (subprocess.SubprocessError, AssertionError) as error:
        pytest.skip(f"podman or apt-get does not work here: {getattr(error, 'stderr', error)}")
    arguments = [f"--build-arg=BASE={PYTHON}", f"--build-arg=TINY={TINY}"]
    arguments += [f"--volume={path}:{path}:ro" for path in SETTINGS if Path(path).exists()]
    ran("make", "-C", str(ROOT), "image", f"REGISTRY={REGISTRY}", f"ARGS={' '.join(arguments)}")
    made = BuiltImages(*(f"{REGISTRY}/{name}:{__version__}" for name in ("roost", "roost-train")))
    yield made
    podman("rmi", "--force", *made, PYTHON, TINY)


def ran(*words: str) -> str:
    done = subprocess.run(  # noqa: S603 - programs of this machine
        words, capture_output=True, text=True, check=False, timeout=_BUILD_S
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def size_of(image: str) -> int:
    return int(json.loads(podman("image", "inspect", image))[0]["Size"])


@pytest.mark.timeout(1200)
def test_the_images_are_small_and_run_without_rights(images: BuiltImages, tmp_path: Path) -> None:
    assert __version__ in ran(*RUN, *CONFINED, images.operator, "--version")
    assert "--train-image" in ran(*RUN, *CONFINED, images.operator, "operator", "--help")
    assert ran(*RUN, *CONFINED, "--entrypoint=id", images.operator, "-u") == "65532\n"
    assert size_of(images.train) - size_of(TINY) < 1 << 20

    # The library is where the operator looks for it in the large image, too.
    for image in images:
        folder = tmp_path / image.rpartition("/")[2].partition(":")[0]
        folder.mkdir()
        folder.chmod(0o777)
        install(image, ["cp", "-R", "/opt/roost-train/.", "/roost/lib"], folder)
        assert (folder / "roost/train/pod.py").is_file()


@pytest.mark.timeout(1200)
def test_the_operator_runs_in_its_image_and_its_jobs_get_their_library(
    images: BuiltImages,
    cluster: ControlPlane,
    api: Api,
    runner: asyncio.Runner,
    tmp_path: Path,
) -> None:
    pod = runner.run(_elastic_pod(images, cluster, api, tmp_path))
    (first,) = pod["spec"]["initContainers"]
    (worker,) = pod["spec"]["containers"]
    library = tmp_path / "lib"
    library.mkdir()
    library.chmod(0o777)
    install(first["image"], first["command"], library)

    # The worker's image has a Python and no Roost.
    where = "from roost import train; train.report(1, 2, 0.5); print(train.__file__)"
    wrapper = worker["command"][: worker["command"].index("--") + 1]
    (path,) = (one["value"] for one in worker["env"] if one["name"] == "PYTHONPATH")
    told = ran(
        *(*RUN, *CONFINED, "--user=1000:1000", f"--volume={library}:/roost/lib:ro"),
        *(f"--env=PYTHONPATH={path}", PYTHON, *wrapper, "python3", "-c", where),
    )
    assert told.strip() == "/roost/lib/roost/train/__init__.py"


def install(image: str, command: list[str], library: Path) -> None:
    """Run an init container: as some user, its root read-only, its volume at /roost/lib."""
    (entry, *words) = command
    user = ("--user=1000:1000", f"--volume={library}:/roost/lib", f"--entrypoint={entry}")
    ran(*RUN, *CONFINED, *user, image, *words)


async def _elastic_pod(
    images: BuiltImages, cluster: ControlPlane, api: Api, folder: Path
) -> Object:
    """A pod that the operator in its image makes for an elastic job."""
    await define(api)
    await nodes(api, 1)
    health, meeting = free_ports(2)
    config = folder / "kubeconfig"
    shutil.copy(cluster.kubeconfig, config)
    config.chmod(0o644)
    operator = Process("operator-in-image", folder)
    operator.start(
        (
            *(*RUN, *CONFINED, f"--name={OPERATOR}", f"--volume={config}:/kubeconfig:ro"),
            *(f"--volume={cluster.authority}:{cluster.authority}:ro", images.operator),
            *("operator", "--kubeconfig=/kubeconfig", f"--metrics-port={health}"),
            *(f"--meeting-port={meeting}", "--meeting-address=http://127.0.0.1:1"),
            f"--train-image={images.train}",
        )
    )

    async def ready() -> bool:
        assert operator.runs, operator.log.read_text()
        async with httpx.AsyncClient() as client:
            try:
                answer = await client.get(f"http://127.0.0.1:{health}/readyz")
            except httpx.TransportError:
                return False
        return answer.is_success

    async def made() -> list[Object]:
        return await pods(api, "grows")

    try:
        await until(ready, 60)
        await api.create(JOBS, job("grows", workers="1..2"))
        return (await until(made, 60))[0]
    finally:
        podman("rm", "--force", "--ignore", OPERATOR)
        operator.kill()
