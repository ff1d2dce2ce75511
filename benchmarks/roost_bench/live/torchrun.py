"""The rival: a plain DDP training under ``torchrun`` elastic, when a third agent joins two.

torchrun then stops all workers and starts them again, and the script goes on from its checkpoint.
It is written as torch's own documentation does it, and knows nothing of Roost; network and batch
are those of ``roost.train.example_torch``. A checkpoint every few steps keeps what is lost small.
torchrun's waits are as short as its options allow.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from roost_bench.live.gangs import environ_of, free_port, gap, last, popen, read, wait_until

#: As in ``example_torch``: inputs, kinds of pictures, samples.
_INPUTS, _KINDS, _SAMPLES = 256, 10, 4096
_SETTLE_S = 1.5
#: Without it an agent hands on the store of the round before, and waits in vain after a change of
#: members (seen with torch 2.13). With it the workers make one of their own in each round.
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": 1}
_SAVE_EVERY = 50


def pause(size: int, depth: int, batch: int) -> float:
    """Seconds that a training stands still when a third worker joins two."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as name:
        return _pause(Path(name), [str(size), str(depth), str(batch)])


def _pause(folder: Path, training: list[str]) -> float:
    times = folder / "times"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3", "--nproc-per-node=1"]
    command += [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-backend=c10d"]
    command += ["--rdzv-id=bench", "--rdzv-conf=last_call_timeout=1", "--monitor-interval=0.1"]
    command += ["-m", "roost_bench.live.torchrun", str(folder), *training]
    agents: list[subprocess.Popen[bytes]] = []
    try:
        for workers in (2, 3):
            while len(agents) < workers:
                with (folder / f"agent-{len(agents)}.log").open("wb") as log:
                    agents.append(popen(command, environ_of(**_OWN_STORE), log))
            wait_until(partial(last, times, workers), f"{workers} train under torchrun")
            time.sleep(_SETTLE_S)
        return gap(read(times), 2, 3)
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait()


def worker(folder: Path, size: int, depth: int, batch: int) -> None:
    """Train until the process is ended."""
    import torch.distributed
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    import torch
    from torch import nn

    torch.manual_seed(1)
    inner = [layer for _ in range(depth) for layer in (nn.Linear(size, size), nn.ReLU())]
    network = nn.Sequential(nn.Linear(_INPUTS, size), nn.ReLU(), *inner, nn.Linear(size, _KINDS))
    pictures, kinds = torch.randn(_SAMPLES, _INPUTS), torch.randint(_KINDS, (_SAMPLES,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    file, step = folder / "checkpoint.pt", 0
    if file.exists():
        kept = torch.load(file, weights_only=True)
        network.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        step = kept["step"]
    dist: Any = torch.distributed
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(network)
    share = batch // workers
    with (folder / "times").open("a", buffering=1) as times:
        while True:
            chosen = torch.randperm(_SAMPLES)[rank * share :][:share]
            loss = cross_entropy(model(pictures[chosen]), kinds[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            times.write(f"{step} {workers} {time.monotonic()}\n")
            if rank == 0 and step % _SAVE_EVERY == 0:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state | {"step": step}, file.with_suffix(".new"))
                file.with_suffix(".new").replace(file)


if __name__ == "__main__":
    worker(Path(sys.argv[1]), *(int(text) for text in sys.argv[2:]))
