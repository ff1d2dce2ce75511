"""The helm program: found, or built from source into the cache of the other programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kubernetes.binaries import cache

VERSION = "v3.20.2"
_BUILD_S = 1500


def helm() -> Path:
    """Helm; the first build takes minutes, and a machine without Go skips the test."""
    if found := shutil.which("helm"):
        return Path(found)
    folder = cache() / f"helm-{VERSION}"
    if not os.access(folder / "helm", os.X_OK):
        go = shutil.which("go")
        if go is None:
            pytest.skip("neither helm nor go is installed")
        print(f"building helm {VERSION}, which takes minutes", file=sys.stderr)  # noqa: T201
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(  # noqa: S603 - the go of this machine
            [go, "install", f"helm.sh/helm/v3/cmd/helm@{VERSION}"],
            check=True,
            timeout=_BUILD_S,
            env={**os.environ, "GOBIN": str(folder)},
        )
    return folder / "helm"
