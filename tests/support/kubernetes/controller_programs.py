"""Controllers of other projects: one program, and the definitions of their kinds.

    python -m tests.support.kubernetes.controller_programs

Kubeflow's training operator and Trainer, JobSet, KubeRay, LeaderWorkerSet and Karpenter are linked
into one program (``controllers/``), of one version of Kubernetes' libraries: so most of what it
needs is compiled once, and one link is paid for. Their kinds and webhooks are copied out of the
modules that it was built of. Running them is left to ``real_controllers``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from tests.support.kubernetes.binaries import (
    Progress,
    Unbuilt,
    build_program,
    cache,
    fingerprint,
    source,
)

from roost.errors import NotFound, RoostError

_PROGRAM = "controllers"
#: Where each module keeps what an API server has to know: folders and files of YAML.
_MANIFESTS = {
    "kubeflow": ("github.com/kubeflow/training-operator", ("manifests/base/crds",)),
    "trainer": ("github.com/kubeflow/trainer/v2", ("manifests/base/crds",)),
    "jobset": (
        "sigs.k8s.io/jobset",
        ("config/components/crd/bases", "config/components/webhook/manifests.yaml"),
    ),
    "ray": ("github.com/ray-project/kuberay/ray-operator", ("config/crd/bases",)),
    "lws": ("sigs.k8s.io/lws", ("config/crd/bases", "config/webhook/manifests.yaml")),
    "karpenter": ("sigs.k8s.io/karpenter", ("pkg/apis/crds", "kwok/apis/crds")),
    # Cluster Autoscaler itself is not to be had as a module; what it is asked by is.
    "provisioning": (
        "k8s.io/autoscaler/cluster-autoscaler/apis@v0.0.0-20240830133931-adfbe7e45277",
        ("config/crd",),
    ),
}


@dataclass(frozen=True, slots=True)
class ControllerPrograms:
    """Where they lie; ``manifests`` has a folder of YAML files for each project."""

    controllers: Path
    karpenter: Path
    manifests: Path


def build_controllers(progress: Progress | None = None) -> ControllerPrograms:
    """The programs; what is missing is built first. Raises NotFound without Go, or Unbuilt."""
    what = "controllers of other projects"
    program = build_program(_PROGRAM, what, progress)
    version = hashlib.sha256(f"{fingerprint(_PROGRAM)} {_MANIFESTS}".encode()).hexdigest()
    manifests = cache() / f"manifests-{version[:16]}"
    if not manifests.is_dir():
        _gather(manifests)
    return ControllerPrograms(program, program.with_name("karpenter"), manifests)


def _gather(manifests: Path) -> None:
    """Copy the manifests of the very versions that were built; all of them or none."""
    made = Path(mkdtemp(dir=cache(), prefix="building-"))
    try:
        for name, (module, paths) in _MANIFESTS.items():
            (made / name).mkdir()
            folder = _folder_of(module)
            for path in paths:
                found = folder / path
                for each in sorted(found.glob("*.yaml")) if found.is_dir() else [found]:
                    if each.name != "kustomization.yaml":
                        shutil.copyfile(each, made / name / each.name)
        try:
            made.rename(manifests)
        except OSError:
            if not manifests.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _folder_of(module: str) -> Path:
    """Where the sources of a module are: of the version that is built, or of one that is named."""
    go = shutil.which("go")
    if go is None:
        raise NotFound("Go is missing, which knows where the sources of controllers are")
    command = [go, "mod", "download", "-json", module]
    if "@" not in module:
        command = [go, "list", "-C", str(source(_PROGRAM)), "-m", "-json", module]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cache())  # noqa: S603 - ours
    folder = json.loads(asked.stdout or "{}").get("Dir", "")
    if asked.returncode or not folder:
        said = (asked.stderr + asked.stdout).strip()[-1000:]
        raise Unbuilt(f"the sources of {module} are not there: {said}")
    return Path(folder)


def main() -> None:
    """Build what is missing; where that cannot be done, say so: their tests are skipped then."""
    try:
        found = build_controllers()
    except RoostError as error:
        sys.stderr.write(f"{error}\nTests with controllers of other projects will be skipped.\n")
    else:
        for field in ControllerPrograms.__slots__:
            print(f"{field:20}{getattr(found, field)}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
