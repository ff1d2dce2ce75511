"""Run the measures one after the other, each in a process of its own, and write the figures.

    python -m roost_bench.gpu --json FILE [--only NAME,...] [--quick]

Whatever goes wrong in a measure is written down as its error, with the traceback, and the others
go on. At the end no daemon, no process and no setting of the machine is left as it was not before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from roost.engines.local.gpu import huge_pages
from roost_bench.gpu.figures import GpuBench, Measure
from roost_bench.gpu.memory import set_huge_pages

#: How long each measure may take, in seconds: on an H200 they need about half.
LIMITS = {
    "lock": 90.0,
    "turns": 90.0,
    "shares": 120.0,
    "mixed": 360.0,
    "latency": 120.0,
    "spatial": 120.0,
    "packing": 75.0,
    "limits": 120.0,
    "offload": 60.0,
    "suspend": 200.0,
    "kinds": 240.0,
    "leftovers": 240.0,
}
_PROGRAM = Path(__file__).resolve().parent


def measures() -> dict[str, Measure]:
    """All measures, in the order in which they run."""
    from roost_bench.gpu import (
        kinds,
        leftovers,
        memory,
        mixed,
        spatial,
        turns,
    )

    return {
        "lock": turns.lock,
        "turns": turns.turns,
        "shares": turns.shares,
        "mixed": mixed.mixed,
        "latency": mixed.latency,
        "spatial": spatial.spatial,
        "packing": spatial.packing,
        "limits": memory.limits,
        "offload": memory.offload,
        "suspend": memory.suspend,
        "kinds": kinds.kinds,
        "leftovers": leftovers.leftovers,
    }


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="roost_bench.gpu")
    parser.add_argument("--json", required=True, type=Path, metavar="FILE")
    parser.add_argument("--only", default="", metavar="NAME,...")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--within", type=float, default=0.0, metavar="S", help="stop after so long")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        _one(asked.child, asked.json, asked.within, quick=asked.quick)
        return
    names = [name for name in asked.only.split(",") if name] or list(LIMITS)
    unknown = [name for name in names if name not in LIMITS]
    if unknown:
        sys.exit(f"unknown measure {unknown[0]!r}; one of: {', '.join(LIMITS)}")
    _all(names, asked.json, asked.within, quick=asked.quick)


def _all(names: list[str], target: Path, within_s: float, *, quick: bool) -> None:
    begun, before = time.monotonic(), huge_pages.current()
    report: dict[str, Any] = {"machine": _machine(), "measures": {}}
    for name in names:
        left = within_s - (time.monotonic() - begun) if within_s else LIMITS[name]
        _say(f"{name} ...")
        found = _apart(name, min(left, LIMITS[name]), quick=quick) if left > 1 else _no_time()
        report["measures"][name] = found
        report["took_s"] = round(time.monotonic() - begun, 1)
        target.write_text(json.dumps(report, indent=1))
        for figure in found["figures"]:
            _say("  " + _line(figure))
        if found["error"]:
            _say(f"  FAILED: {found['error']}")
        _say(f"  {name} took {found['took_s']:.1f} s")
        set_huge_pages(before)
    _say(f"all took {report['took_s']} s; figures are in {target}")


def _apart(name: str, limit_s: float, *, quick: bool) -> dict[str, Any]:
    """One measure in a process of its own, cleaned up after whatever became of it."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rgpu") as scratch:
        target = Path(scratch) / "figures.json"
        command = [sys.executable, str(_PROGRAM), "--child", name, "--json", str(target)]
        command += ["--within", f"{limit_s:g}"]
        child = subprocess.Popen(  # noqa: S603 - our own
            [*command, *(["--quick"] if quick else [])], start_new_session=True
        )
        error = ""
        try:
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            error = f"not done within {limit_s:.0f} s"
        finally:
            _kill(child)
            _clean(Path(scratch))
        found: dict[str, Any] = {"figures": [], "notes": {}, "error": "", "traceback": ""}
        with suppress(OSError, ValueError):
            found |= json.loads(target.read_text())
        if child.returncode and not found["error"]:
            found["error"] = error or f"ended with {child.returncode}"
    return {**found, "took_s": round(time.monotonic() - begun, 1)}


def _one(name: str, target: Path, within_s: float, *, quick: bool) -> None:
    """In the process of a measure: what it found so far is always written down."""
    bench = GpuBench(target.parent, quick, {}, within_s)
    found: dict[str, Any] = {"figures": [], "notes": bench.notes, "error": "", "traceback": ""}
    try:
        for figure in measures()[name](bench):
            found["figures"].append(asdict(figure))
            target.write_text(json.dumps(found))
    except BaseException as error:  # noqa: BLE001 - it is told
        found |= {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    target.write_text(json.dumps(found, default=str))


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _clean(scratch: Path) -> None:
    from roost.engines.local.gpu.mps import MpsDaemon

    MpsDaemon(scratch / "mps", "", 0).stop()


def _machine() -> dict[str, Any]:
    found: dict[str, Any] = {"python": platform.python_version(), "kernel": platform.release()}
    with suppress(PackageNotFoundError):
        found["torch"] = version("torch")
    with suppress(OSError, subprocess.SubprocessError):
        query = "--query-gpu=name,driver_version,memory.used"
        told = subprocess.run(  # noqa: S603 - its name is fixed
            ["nvidia-smi", query, "--format=csv,noheader"],  # noqa: S607 - where it is differs
            capture_output=True,
            timeout=20,
            check=False,
        )
        found["gpu"] = told.stdout.decode(errors="replace").strip()
    return found


def _no_time() -> dict[str, Any]:
    return {"figures": [], "notes": {}, "error": "no time left", "traceback": "", "took_s": 0.0}


def _line(figure: dict[str, Any]) -> str:
    goal = figure["goal"]
    sign = ">=" if figure["least"] else "<"
    verdict = (
        "" if goal is None else f"   goal {sign} {goal:g}: {'yes' if figure['passed'] else 'NO'}"
    )
    return f"{figure['name']}: {figure['value']:g} {figure['unit']}{verdict}"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program of its own
