"""``roost partition``: divide the GPUs of this machine (MIG)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.cli.parameter_types import Verb, option

if TYPE_CHECKING:
    from roost.engines.local.partitions import GpuDivision

#: A GPU that is reset takes some seconds.
_WITHIN_S = 120.0


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  roost partition
  roost partition layout.yaml --dry-run
  roost partition layout.yaml

\b
A layout:
  all: {1g.18gb: 7}
  3: {3g.71gb: 2}
  4-7: {}""",
)
@click.argument("layout", required=False, type=click.Path(dir_okay=False, path_type=Path))
@option("--dry-run", section="Run", is_flag=True, help="Only show what nvidia-smi would be told.")
def partition(layout: Path | None, *, dry_run: bool) -> None:
    """Divide the GPUs of this machine into partitions (MIG), or show how they are divided.

    A layout says how many partitions of which profile each GPU is to have; an empty one makes a
    GPU whole again. GPUs in use are left alone, and one that cannot be divided as asked gets back
    what it had. It takes root. Start the server, or the agent, anew afterwards.
    """
    from roost.engines.local.devices import found_gpus
    from roost.engines.local.partitions import divide, plan, read_layout
    from roost.errors import InvalidSpec, NotFound

    gpus = asyncio.run(found_gpus(sys.executable))
    if not gpus:
        raise NotFound("no NVIDIA GPU is found on this machine")
    if layout is None:
        _show(gpus)
        return
    try:
        text = layout.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{layout} cannot be read: {error}") from None
    divisions = plan(read_layout(text), gpus)
    changes = [one for one in divisions if one.commands]
    if not dry_run:
        divide(changes, _run)
    _tell(changes, dry_run=dry_run)


def _show(gpus: Sequence[dict[str, Any]]) -> None:
    for number, gpu in enumerate(gpus):
        parts = gpu.get("partitions")
        click.echo(f"{number}  {gpu['name']}  {'whole' if parts is None else 'divided'}")
        for part in parts or ():
            click.echo(f"   {part['uuid']}  {part['name']}  {part['memory_mib']} MiB")


def _tell(changes: Sequence[GpuDivision], *, dry_run: bool) -> None:
    from roost.engines.local.partitions import shown

    if not changes:
        click.echo("every GPU is as it is to be")
    for one in changes:
        now, wanted = shown(one.now, mode=one.mode), shown(one.wanted, mode=False)
        click.echo(f"GPU {one.gpu}: {now} -> {wanted}")
        for command in one.commands if dry_run else ():
            click.echo(f"   nvidia-smi {' '.join(command)}")


def _run(command: Sequence[str]) -> None:
    from roost.errors import Conflict

    program = shutil.which("nvidia-smi")
    if program is None:
        raise Conflict("nvidia-smi is not found")
    try:
        done = subprocess.run(  # noqa: S603 - its words are ours
            [program, *command], capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Conflict(f"nvidia-smi does not end within {_WITHIN_S:g} s") from None
    # It says "pending" where a GPU has to be reset first, and ends with 0.
    said = " ".join((done.stdout + done.stderr).split())
    if done.returncode or "pending" in said.lower():
        raise Conflict(f"nvidia-smi {' '.join(command)}: {said[-300:] or done.returncode}")
