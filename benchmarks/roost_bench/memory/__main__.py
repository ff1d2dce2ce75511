"""Run all cases, several at once; needs PyTorch and nothing of Roost's dependencies.

PYTHONPATH=src:benchmarks python -m roost_bench.memory --folder OUT --within 200
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from roost_bench.memory.report import figures, table


def main() -> int:
    """Measure, write each result as it comes, show the figures."""
    options = _options()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.within
    rows: dict[str, dict[str, Any]] = {}
    from roost_bench.memory.cases import CASES, OTHERS  # PyTorch, two seconds

    names = options.only.split(",") if options.only else [one.name for one in (*CASES, *OTHERS)]
    work = [(name, gpu) for name in names for gpu in ((True, False) if options.gpu else (False,))]
    with ThreadPoolExecutor(options.at_once) as pool:
        asked = [pool.submit(_trial, name, gpu, folder, ends) for name, gpu in work]
        for done in as_completed(asked):
            row = done.result()
            with (folder / "rows.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            kept = rows.setdefault(row["name"], {})
            if row.get("gpu") or not options.gpu:
                kept |= row
            else:
                kept["without_gpu"] = row.get("predicted")
                kept["without_gpu_reserved"] = row.get("predicted_reserved")
                kept.setdefault("name", row["name"])
    ordered = [rows[name] for name in names if name in rows]
    sys.stdout.write(table(ordered) + "\n")
    lines = "".join(json.dumps(figure) + "\n" for figure in figures(ordered))
    (folder / "figures.jsonl").write_text(lines, encoding="utf-8")
    sys.stdout.write(lines)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="roost_bench.memory")
    parser.add_argument("--folder", type=Path, required=True, help="where results go")
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--within", type=float, default=220.0, help="seconds; the rest is left out")
    parser.add_argument("--no-gpu", dest="gpu", action="store_false", help="only predict")
    return parser.parse_args()


def _trial(name: str, gpu: bool, folder: Path, ends: float) -> dict[str, Any]:  # noqa: FBT001
    """One case in a process of its own, with the GPU or as if there were none."""
    left = ends - time.monotonic()
    if left < 1.0:
        return {"name": name, "gpu": gpu, "error": "no time left"}
    program = [sys.executable, "-W", "ignore", "-m", "roost_bench.memory.trial", name, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    if not gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    else:
        program.append("--look")
    try:
        done = subprocess.run(  # noqa: S603 - this program
            program, capture_output=True, text=True, timeout=left, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"name": name, "gpu": gpu, "error": "no time left"}
    if done.returncode:
        return {"name": name, "gpu": gpu, "error": done.stderr[-600:]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    sys.exit(main())
