"""``roost bench memory``: what trainings take of a GPU, foretold and measured.

The measuring is done by ``python -m roost_bench.memory`` and its trials, in processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from roost.cli.options import output_option
from roost.cli.output import number, print_csv, print_json, print_table
from roost.cli.parameter_types import Verb
from roost.errors import Conflict


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost bench memory
  roost bench memory --no-gpu --only gpt-8x1024-bf16,wide-256 -o json""",
)
@click.option("--only", default="", metavar="NAMES", help="Cases, separated by commas.")
@click.option("--no-gpu", is_flag=True, help="Foretell only.")
@click.option("--at-once", type=click.IntRange(1), default=4, show_default=True, metavar="N")
@output_option
def memory(only: str, at_once: int, output: str, *, no_gpu: bool) -> None:
    """Foretell the memory of trainings and measure it; exit status 1 if a goal is missed.

    Needs PyTorch, and a GPU that nothing else uses.
    """
    with tempfile.TemporaryDirectory() as folder:
        more = ["--no-gpu"] if no_gpu else []
        program = [sys.executable, "-m", "roost_bench.memory", "--folder", folder, *more]
        program += ["--only", only, "--at-once", str(at_once), "--within", "3600"]
        done = subprocess.run(program, capture_output=True, text=True, check=False)  # noqa: S603
        lines = (Path(folder) / "figures.jsonl").read_text("utf-8") if not done.returncode else ""
    if not lines:
        raise Conflict(f"nothing was measured: {done.stderr[-600:]}")
    _show([json.loads(line) for line in lines.splitlines()], output)


def _show(rows: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        print_json(rows)
    elif output == "csv":
        print_csv(rows)
    else:
        print_table(
            [{**row, "value": number(row["value"]), "goal": number(row["goal"])} for row in rows]
        )
    if not all(row["passed"] for row in rows):
        click.get_current_context().exit(1)
