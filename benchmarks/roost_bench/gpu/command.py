"""``roost bench gpu``: what sharing a GPU gives on this machine, measured with real jobs.

The measuring is done by ``roost_bench.gpu`` in a process of its own, which needs
PyTorch and nothing of Roost's dependencies; here its figures are shown.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from roost.cli.output import number, print_json, print_table
from roost.cli.parameter_types import Verb
from roost.errors import Conflict
from roost_bench.live.command import chosen, measuring

#: The folder as a program: it then needs none of Roost's dependencies.
_PROGRAM = Path(__file__).resolve().parent
#: The measures, in the order in which they run.
MEASURES = (
    *("lock", "turns", "shares", "mixed", "latency"),
    *("spatial", "packing", "limits", "offload", "suspend", "kinds", "ipc", "leftovers"),
)


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench gpu
  roost bench gpu --only lock,turns -o json""",
)
@measuring
def gpu(only: str, output: str, *, quick: bool) -> None:
    """Measure shares of this machine's first GPU; exit status 1 if a goal is missed.

    Measures: lock, turns, shares, mixed, latency, spatial, packing, limits, offload, suspend,
    kinds, ipc, leftovers. They need PyTorch (kinds and mixed JAX and CuPy, too) and a quarter of an
    hour, in which nothing else may use the GPU. Nothing is left behind.
    """
    report = _measured(chosen(only, MEASURES), quick=quick)
    measures: dict[str, dict[str, Any]] = report["measures"]
    if output == "json":
        print_json(report)
    else:
        print_table([_row(figure) for one in measures.values() for figure in one["figures"]])
    failed = {name: one["error"] for name, one in measures.items() if one["error"]}
    for name, error in failed.items():
        click.echo(f"{name} failed: {error}", err=True)
    if failed or not all(f["passed"] for one in measures.values() for f in one["figures"]):
        click.get_current_context().exit(1)


def _measured(names: list[str], *, quick: bool) -> dict[str, Any]:
    """Run the measures; their progress goes to standard error."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-gpu-") as folder:
        target = Path(folder) / "figures.json"
        command = [sys.executable, str(_PROGRAM), "--json", str(target)]
        command += ["--only", ",".join(names), *(["--quick"] if quick else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603 - our own
            for line in child.stdout or ():
                click.echo(line, err=True, nl=False)
        if child.returncode or not target.exists():
            raise Conflict(f"the measures ended with {child.returncode}")
        report: dict[str, Any] = json.loads(target.read_text())
        return report


def _row(figure: dict[str, Any]) -> dict[str, str]:
    goal, unit = figure["goal"], figure["unit"]
    sign = ">=" if figure["least"] else "<"
    return {
        "measure": figure["name"],
        "value": f"{number(figure['value'])} {unit}".strip(),
        "goal": "" if goal is None else f"{sign} {number(goal)} {unit}".strip(),
        "passed": "" if goal is None else "yes" if figure["passed"] else "no",
    }
