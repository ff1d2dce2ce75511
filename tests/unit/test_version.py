"""``roost --version`` says which core this is."""

from __future__ import annotations

import subprocess
import sys

import roost.core.controller


def test_the_version_says_whether_the_core_is_compiled() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "from roost.cli import main; main()", "--version"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    kind = "plain Python" if roost.core.controller.__file__.endswith(".py") else "compiled"
    assert said.strip() == f"roost, version {roost.__version__}, {kind} core"
