"""What the SDK loads: a notebook that submits jobs needs no scheduler and no web server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_PRINT = "; import sys, json; print(json.dumps(sorted(sys.modules)))"

#: Packages and modules that only servers, simulations and workers need.
HEAVY = (
    *("numpy", "scipy", "highspy", "fastapi", "starlette", "uvicorn", "sqlite3"),
    *("roost.core.ledger", "roost.core.plan", "roost.core.controller", "roost.core.state"),
    *("roost.policies", "roost.placement", "roost.perf", "roost.sim", "roost.store"),
    *("roost.engines", "roost.jobs", "roost.live", "roost.server", "roost.kubernetes"),
)


def loaded(statement: str) -> set[str]:
    code = [sys.executable, "-c", statement + _PRINT]
    done = subprocess.run(code, check=True, capture_output=True, text=True)  # noqa: S603 - own text
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "statement",
    [
        "import roost; roost.Client, roost.AsyncClient, roost.job, roost.submit",
        "from roost.client import *",
        "import roost.client.submissions; from roost.jobfile import JobFile, parse",
    ],
)
def test_the_sdk_loads_no_scheduler_and_no_server(statement: str) -> None:
    found = loaded(statement)
    assert "roost.client" in found or "roost.jobfile" in found
    assert not found.intersection(HEAVY)


def test_a_name_of_the_core_loads_what_it_needs_and_no_more() -> None:
    assert "roost.core.state" not in loaded("from roost.core import Range")
    assert "roost.core.controller" in loaded("from roost.core import Core")
