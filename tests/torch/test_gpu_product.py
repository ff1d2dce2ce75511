"""The whole product on a real GPU: shares, suspension, limits, elastic training, faults."""

from __future__ import annotations

import importlib.util
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.server_process import ServerProcess

import roost

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

#: Keeps a GPU busy for some seconds, holds some memory, and says how many products it made.
BUSY = """
import sys, time, torch
seconds, gib = float(sys.argv[1]), float(sys.argv[2])
held = torch.full((int(gib * 2**30),), 7, dtype=torch.uint8, device="cuda")
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
b, done = a.clone(), 0
for _ in range(10):
    a @ b
torch.cuda.synchronize()
print("up", flush=True)
end = time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(50):
        a @ b
    torch.cuda.synchronize()
    done += 50
print("products", done, flush=True)
assert bool((held[::4099] == 7).all()), "memory changed"
"""
#: Asks for more memory at once than a share may have.
GREEDY = "import torch; torch.empty(int({gib} * 2**30), dtype=torch.uint8, device='cuda')"
OVER = ("succeeded", "failed", "cancelled")


def has_gpu() -> bool:
    """Whether there is a GPU that torch can use."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415 - it may not be here

    return bool(torch.cuda.is_available())


if not has_gpu():
    pytest.skip("no torch with a GPU here", allow_module_level=True)


def used_mib() -> int:
    """Memory of the GPU that is in use."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout.split()[0])


class World:
    """A server that offers the GPU, and what people do with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "busy.py").write_text(BUSY)
        self.server = ServerProcess(folder / "home", None)
        self.begin()

    def begin(self) -> None:
        """Start a server."""
        self.server.start()
        assert self.server.ready(), self.server.said()

    def submit(self, command: list[str], **more: Any) -> str:
        """Hand in a job; its id."""
        job = {"name": "gpu", "command": command, "retry": {"max": 0}, **more}
        answer = self.server.ask("POST", "/api/v1/jobs", {"job": job})
        assert answer is not None
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def busy(self, seconds: float, gib: float = 0.5, **more: Any) -> str:
        """A job that keeps its part of the GPU busy."""
        program = str(self.folder / "busy.py")
        return self.submit([sys.executable, program, str(seconds), str(gib)], **more)

    def do(self, job: str, verb: str, body: Any = None) -> dict[str, Any]:
        """Give a command."""
        answer = self.server.ask("POST", f"/api/v1/jobs/{job}/{verb}", body)
        assert answer is not None
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def view(self, job: str) -> dict[str, Any]:
        """A job as it is now."""
        found: dict[str, Any] = self.server.get(f"/jobs/{job}")
        return found

    def until(self, job: str, *states: str, within_s: float = 60.0) -> dict[str, Any]:
        """Wait for a state."""
        deadline = time.monotonic() + within_s
        while (view := self.view(job))["state"] not in states:
            told = f"{job} is {view['state']}: {view} {self.logs(job)} {self.server.said()[-3000:]}"
            assert view["state"] not in OVER, told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)
        return view

    def logs(self, job: str) -> str:
        """What a job printed."""
        answer = self.server.ask("GET", f"/api/v1/jobs/{job}/logs")
        return answer.text if answer is not None else ""

    def says(self, job: str, text: str, within_s: float = 60.0) -> None:
        """Wait until a job has printed something."""
        deadline = time.monotonic() + within_s
        while text not in self.logs(job):
            assert time.monotonic() < deadline, f"{self.view(job)} {self.logs(job)}"
            time.sleep(0.05)

    def products(self, job: str) -> int:
        """What a busy job did in all."""
        self.until(job, "succeeded")
        found = re.search(r"products (\d+)", self.logs(job))
        assert found is not None
        return int(found[1])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    here = World(tmp_path)
    try:
        yield here
    finally:
        if not here.server.alive:
            here.begin()
        for job in here.server.get("/jobs")["items"]:
            if job["state"] not in OVER:
                here.do(job["id"], "cancel")
        deadline = time.monotonic() + 60
        while any(job["state"] not in OVER for job in here.server.get("/jobs")["items"]):
            assert time.monotonic() < deadline, here.server.said()
            time.sleep(0.1)
        time.sleep(3.0)  # what served shares is not kept for the next
        here.server.stop()
        here.server.close()
        deadline = time.monotonic() + 60
        while used_mib() > 200 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert used_mib() <= 200, "memory of the GPU is left behind"


@pytest.mark.parametrize("way", ["temporal", "spatial"])
def test_two_fixed_halves_are_halves(world: World, way: str) -> None:
    alone = world.products(world.busy(5.0))
    sharing = {"way": way, "policy": "fixed"}
    # The first one is up before the second: both run longer than what is compared.
    pair = [world.busy(10.0, gpus=0.5, sharing=sharing) for _ in range(2)]
    rates = [world.products(job) / 10.0 for job in pair]

    assert statistics.mean(rates) == pytest.approx(alone / 5.0 / 2, rel=0.12)
    assert rates[0] == pytest.approx(rates[1], rel=0.12)


def test_an_unmodified_process_leaves_the_gpu_and_comes_back(world: World) -> None:
    first = world.busy(8.0, gib=4.0)
    world.until(first, "running")
    world.says(first, "up")
    world.do(first, "suspend")
    world.until(first, "suspended")
    assert used_mib() < 700  # all of it has left
    world.products(world.busy(1.0, gib=2.0))  # another has the whole GPU meanwhile
    world.do(first, "resume")

    assert world.products(first) > 0  # and its memory is what it was
    assert world.view(first)["attempt"] == 1


@pytest.mark.parametrize("way", ["temporal", "spatial"])
def test_the_memory_limit_of_a_share_holds(world: World, way: str) -> None:
    sharing = {"way": way, "mem": "4Gi"}
    fits = world.submit(
        [sys.executable, "-c", GREEDY.format(gib=2)], gpus=0.25, sharing=sharing, name="fits"
    )
    greedy = world.submit(
        [sys.executable, "-c", GREEDY.format(gib=8)], gpus=0.25, sharing=sharing, name="greedy"
    )
    world.until(fits, "succeeded")
    view = world.until(greedy, "failed")

    assert view["verdict"]["kind"] == "gpu-out-of-memory"


def test_shares_go_on_while_no_server_is_there(world: World) -> None:
    pair = [world.busy(8.0, gpus=0.5) for _ in range(2)]
    for job in pair:
        world.says(job, "up")
    world.server.kill()
    time.sleep(2.0)
    world.begin()
    done = [world.products(job) for job in pair]

    assert min(done) > 0.6 * max(done)


def test_a_spatial_share_that_is_suspended_keeps_its_memory(world: World) -> None:
    job = world.busy(6.0, gib=3.0, gpus=0.5, sharing={"way": "spatial"})
    world.says(job, "up")
    world.do(job, "suspend")
    world.until(job, "suspended")
    assert used_mib() > 3000
    world.do(job, "resume")

    assert world.products(job) > 0


def test_an_elastic_training_leaves_the_gpu_and_goes_on(world: World) -> None:
    command = [sys.executable, "-m", "roost.train.example_torch", "--seconds", "12"]
    job = world.submit(command, env={"PYTHONPATH": str(Path(roost.__file__).parents[1])})
    world.until(job, "running")
    deadline = time.monotonic() + 60
    while not (world.view(job).get("progress") or 0) > 0:
        assert time.monotonic() < deadline, world.logs(job)
        time.sleep(0.1)
    world.do(job, "suspend")
    before = world.until(job, "suspended")
    assert used_mib() < 700
    world.do(job, "resume")
    after = world.until(job, "succeeded")

    assert after["attempt"] == before["attempt"] == 1
    assert "begins at step 0" in world.logs(job)
    assert world.logs(job).count("begins at step") == 1
