"""One case in a process of its own: predicted, then run on the GPU if there is one.

    python -m roost_bench.memory.trial NAME FOLDER [--look]

The result is one line of JSON; ``--look`` also writes what operators took and what the allocator
was asked for into the folder.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from roost.train.pytorch.replay.steps import Call, replay
from roost_bench.memory.cases import Case, find
from roost_bench.memory.probe import Probe
from roost_bench.memory.report import CONTEXT_MIB, MIB
from torch import nn

__all__ = ["predicted", "trial"]

_STEPS = 6


def trial(name: str, folder: Path, *, look: bool) -> dict[str, Any]:
    """What was foretold of a case and what it took."""
    case = find(name)
    row: dict[str, Any] = {"name": name, "gpu": torch.cuda.is_available()}
    try:
        row |= predicted(case)
    except Exception as error:  # noqa: BLE001 - what it took is worth knowing all the same
        row["error"] = f"cannot be foretold: {error!r}"[-600:]
    if torch.cuda.is_available():
        row |= _run(case, folder, row.get("predicted_held", 0), look=look)
    return row


def predicted(case: Case) -> dict[str, Any]:
    """What is foretold of a case, with its own loss and with one that stands in."""
    with torch.device("meta"):
        model = case.model()
    optimizer, batch = case.make_optimizer(model), case.batch()
    began = time.process_time()
    found = replay(model, optimizer, Call(batch=batch, loss=case.loss))
    row = {
        "predicted": found.allocated,
        "predicted_reserved": found.reserved,
        "predicted_held": found.held,
        "kept": found.kept,
        "cpu_s": round(time.process_time() - began, 2),
    }
    if case.precision == "fp32":
        other = replay(model, optimizer, Call((batch[0],), batch=batch))
        row["stand_in"] = other.allocated
    return row


def _run(case: Case, folder: Path, share: int, *, look: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = case.model()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    optimizer = case.make_optimizer(model)
    scaler = torch.amp.GradScaler(enabled=case.precision == "fp16")
    data = case.batch()
    rest = (optimizer, scaler, data)
    if look:
        torch.cuda.memory._record_memory_history(  # noqa: SLF001 - there is no other way
            context=None, stacks="python", max_entries=400_000
        )
    early, trace = (0, 0), []
    for number in range(_STEPS):
        _step(case, model, *rest)
        if number == 1:
            early = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            trace = _trace() if look else []
    torch.cuda.synchronize()
    row = {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "early": early,
        "kept_reserved": torch.cuda.memory_reserved(),
        "used_mib": _used_mib(),
    }
    if look:
        seen = {"trace": trace, **_looked(case, model, rest)}
        with gzip.open(folder / f"{case.name}.json.gz", "wt") as file:
            json.dump(seen, file)
    return row | ({"fits": _fits(case, model, rest, share)} if share else {})


def _fits(case: Case, model: nn.Module, rest: tuple[Any, ...], share: int) -> bool:
    """Whether it goes on when it may hold no more than was foretold."""
    torch.cuda.empty_cache()
    left = share - CONTEXT_MIB * MIB
    torch.cuda.set_per_process_memory_fraction(left / torch.cuda.mem_get_info()[1])
    try:
        for _ in range(3):
            _step(case, model, *rest)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        return False
    return True


def _step(
    case: Case, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any, data: Any
) -> None:
    batch = tuple(one.to("cuda") for one in data)
    loss = case.loss(model, batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)


def _trace() -> list[list[Any]]:
    """What the allocator was asked for in the first steps."""
    history = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001 - as above
    torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001 - as above
    return [[one["action"], one["addr"], one["size"]] for one in history]


def _looked(case: Case, model: nn.Module, rest: tuple[Any, ...]) -> dict[str, Any]:
    """What operators took beside their results in one more step."""
    probe = Probe()
    with probe:
        _step(case, model, *rest)
    return {"seen": probe.seen, "results": probe.results}


def _used_mib() -> int | None:
    """What the driver says that this process holds of the device."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        out = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout  # noqa: S603
        rows = [line.split(",") for line in out.splitlines()]
        return next((int(mib) for pid, mib in rows if int(pid) == os.getpid()), None)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


if __name__ == "__main__":
    found = trial(sys.argv[1], Path(sys.argv[2]), look="--look" in sys.argv)
    sys.stdout.write(json.dumps(found) + "\n")
