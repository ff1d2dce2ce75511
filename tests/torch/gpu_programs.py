"""Programs that fail on a real GPU. Run as a script, it writes down what they print."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

_PAIR = """
import os, sys, datetime, torch, torch.distributed as d, torch.multiprocessing as mp
def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    torch.cuda.set_device(0)
    d.init_process_group("{0}", timeout=datetime.timedelta(seconds=8))
    {1}
    x = torch.ones(4, device="{2}")
    d.all_reduce(x)
    torch.cuda.synchronize()
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""

#: What fails, and how that is called; several kinds where versions of the libraries differ.
PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "memory": (
        "import torch\nx = [torch.empty(9 << 30, device='cuda') for _ in range(9)]",
        ("gpu-out-of-memory",),
    ),
    "index": (
        (
            "import torch\na = torch.zeros(9, device='cuda')\n"
            "print(a[torch.tensor([99], device='cuda')].cpu())"
        ),
        ("device-assert",),
    ),
    "ordinal": (
        "import torch\ntorch.zeros(1, device='cuda:99')",
        ("cuda-init", "cuda-failure", "bad-arguments"),
    ),
    "hidden": (
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\nimport torch\ntorch.zeros(1).cuda()",
        ("cuda-init",),
    ),
    "shape": (
        "import torch\ntorch.nn.Linear(3, 4).cuda()(torch.zeros(2, 5).cuda())",
        ("shape-mismatch",),
    ),
    "checkpoint": (
        "import torch\nopen('junk.pt', 'wb').write(b'junk')\ntorch.load('junk.pt')",
        ("checkpoint-error", "python-error"),
    ),
    "host memory": ("import numpy as np\nnp.ones(1 << 45)", ("host-out-of-memory",)),
    "same GPU twice": (_PAIR.format("nccl", "pass", "cuda"), ("nccl-failure",)),
    "lost peer": (
        _PAIR.format("gloo", "os._exit(3) if rank else None", "cpu"),
        ("gloo-failure", "connection-lost", "python-error", "signature-unknown"),
    ),
    "nobody comes": (
        (
            "import os, datetime, torch.distributed as d\n"
            "os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29999')\n"
            "os.environ.update(RANK='1', WORLD_SIZE='2')\n"
            "d.init_process_group('gloo', timeout=datetime.timedelta(seconds=4))"
        ),
        ("connection-lost", "gloo-failure"),
    ),
    "data worker killed": (
        (
            "import os, signal, torch\nfrom torch.utils.data import DataLoader, Dataset\n"
            "class D(Dataset):\n    def __len__(self): return 9\n"
            "    def __getitem__(self, i):\n"
            "        if i == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
            "        return torch.zeros(1)\n"
            "for _ in DataLoader(D(), num_workers=2): pass"
        ),
        ("killed", "host-out-of-memory", "data-error"),
    ),
}


def told(name: str, folder: Path) -> tuple[int, bytes]:
    """Run one of them; its status and what it printed."""
    (folder / "fails.py").write_text(PROGRAMS[name][0], encoding="utf-8")
    port = str(29500 + list(PROGRAMS).index(name))
    done = subprocess.run(  # noqa: S603 - our own programs
        [sys.executable, "fails.py", port],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    out = Path(sys.argv[1])
    for one in PROGRAMS:
        with tempfile.TemporaryDirectory() as place:
            status, text = told(one, Path(place))
        note = {"code": status, "text": text.decode(errors="replace")}
        (out / f"{one.replace(' ', '-')}.json").write_text(json.dumps(note), encoding="utf-8")
