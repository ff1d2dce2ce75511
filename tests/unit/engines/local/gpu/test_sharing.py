"""What the engine is given for jobs on GPUs, without a GPU: environments, tables, reasons."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.engines.local.gpu.test_mps import CONTROL

from roost.core.allocation import Seat
from roost.core.spec import CPU_SLOT, JobId, NodeId, NodeSpec, Qos, Resources, RunId, Way
from roost.engines.local.devices import Machine
from roost.engines.local.gpu import mps, sharing
from roost.engines.local.gpu.daemon_client import DaemonClient
from roost.engines.local.gpu.driver import CudaDriver, DriverRefused
from roost.engines.local.gpu.sharing import GpuSharing
from roost.errors import Retryable

NODE = NodeId("here")
RUN, OTHER = RunId(JobId("a"), 1), RunId(JobId("b"), 1)
HALF = Seat("worker", 0, (3,), 500, NODE)
WHOLE = Seat("worker", 0, (3,), 1000, NODE)
ME = (os.getpid(), int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]))


class NoNvml:
    """A management library that knows names of devices alone."""

    def uuid(self, index: int) -> str:
        return f"GPU-{index}"

    def close(self) -> None:
        pass


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuSharing]:
    """A machine of eight GPUs, where no daemon is ever started."""
    monkeypatch.setattr(sharing, "Nvml", NoNvml)
    monkeypatch.setattr(CudaDriver, "missing", staticmethod(lambda: ""))
    monkeypatch.setattr(DaemonClient, "ensure", lambda _: None)
    monkeypatch.setattr(DaemonClient, "is_missing", lambda _: False)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-cuda-mps-control").write_text(CONTROL)
    (folder / "nvidia-cuda-mps-control").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}")
    node = NodeSpec(NODE, gpus=8, kind="H200", gpu_memory_mib=100_000)
    found = GpuSharing(tmp_path, Machine(node, (0,)), "")
    yield found
    for daemon in found._daemons.values():
        daemon.stop()


def test_partitions_of_gpus_are_not_shared_any_further(tmp_path: Path) -> None:
    node = NodeSpec(NODE, gpus=2, kind="H200-1g.18gb", gpu_memory_mib=18_000)
    parts = GpuSharing(tmp_path, Machine(node, (0,), ("MIG-a", "MIG-b")), "")
    assert parts.check(Resources(gpus=1)) == parts.check(Resources(gpus=0)) == ""
    assert "ask for a whole one" in parts.check(Resources(gpus=1, share_milli=500))
    assert "more workers" in parts.check(Resources(gpus=2))


def live(shared: GpuSharing, during: Callable[[], Awaitable[None]]) -> None:
    """Start, do something, and close."""

    async def go() -> None:
        await shared.start()
        try:
            await during()
        finally:
            await shared.close()

    asyncio.run(go())


async def attach(shared: GpuSharing, run: RunId, seat: Seat, need: Resources) -> None:
    await shared.attach(run, [seat], {"worker": need}, {"worker-0": ME})


def test_a_share_by_turns_gets_its_part_of_the_memory(shared: GpuSharing) -> None:
    env = shared.env(HALF, Resources(share_milli=500))
    assert env["ROOST_GPU_MEMORY_MIB"] == "50000"
    assert env["PYTHONPATH"].endswith("gpu/hook")
    assert shared.env(HALF, Resources(share_milli=500, gpu_memory_mib=70))[
        "ROOST_GPU_MEMORY_MIB"
    ] == ("70")


def test_a_whole_gpu_has_no_limit_but_its_own(shared: GpuSharing) -> None:
    assert shared.env(WHOLE, Resources()) == {}
    assert shared.env(WHOLE, Resources(gpu_memory_mib=70))["ROOST_GPU_MEMORY_MIB"] == "70"
    assert shared.env(Seat("ps", 0, (), 1000, NODE), Resources(gpus=0)) == {}


def test_on_cpu_slots_a_limit_that_was_asked_for_is_told(tmp_path: Path) -> None:
    slots = GpuSharing(tmp_path, Machine(NodeSpec(NODE, 4, CPU_SLOT), (0,)), "")
    assert slots.env(HALF, Resources(share_milli=500)) == {}
    limited = Resources(share_milli=500, gpu_memory_mib=70)
    assert slots.env(HALF, limited) == {"ROOST_GPU_MEMORY_MIB": "70"}


def test_a_spatial_share_runs_under_the_daemon_of_its_gpu(shared: GpuSharing) -> None:
    env = shared.env(HALF, Resources(share_milli=500, way=Way.SPATIAL))
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=50000M"
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == str(shared._daemon(3).pipe)
    eager = shared.env(HALF, Resources(share_milli=500, way=Way.SPATIAL, qos=Qos.BEST_EFFORT))
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in eager
    assert eager["CUDA_MPS_CLIENT_PRIORITY"] == "1"  # below those with a share of their own
    assert "CUDA_MPS_CLIENT_PRIORITY" not in env


def test_a_daemon_that_does_not_start_is_tried_again_later(
    shared: GpuSharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise DriverRefused("CUDA MPS does not start")

    monkeypatch.setattr(mps.MpsDaemon, "start", refuse)
    with pytest.raises(Retryable, match="does not start"):
        shared.env(HALF, Resources(share_milli=500, way=Way.SPATIAL))


def test_a_lost_daemon_is_told_and_spatial_runs_cannot_be_parked(shared: GpuSharing) -> None:
    async def during() -> None:
        need = Resources(share_milli=500, way=Way.SPATIAL)
        env = shared.env(HALF, need)
        await attach(shared, RUN, HALF, need)
        (request,) = shared._files.wanted()  # to be watched, and no more
        assert (request.means, request.sliced, request.memory_mib) == ("mps", False, 50_000)
        assert shared.problem(RUN) == ""
        assert "spatial way" in (await shared.park(RUN)).why
        os.kill(int((Path(env["CUDA_MPS_PIPE_DIRECTORY"]) / "number").read_text()), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while "MPS daemon of GPU 3 is gone" not in shared.problem(RUN):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    live(shared, during)


def test_a_daemon_that_nobody_needs_ends(
    shared: GpuSharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_DAEMON_S", 0.0)
    monkeypatch.setattr(sharing, "_LOOK_S", 0.01)

    async def during() -> None:
        need = Resources(share_milli=500, way=Way.SPATIAL)
        shared.env(HALF, need)
        await attach(shared, RUN, HALF, need)
        daemon = shared._daemon(3)
        await asyncio.sleep(0.1)
        assert daemon.alive()
        await shared.detach(RUN)
        deadline = time.monotonic() + 60
        while daemon.alive():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    live(shared, during)


def test_no_daemon_is_kept_for_the_next_when_the_server_stops(
    shared: GpuSharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_CLOSING_S", 0.0)
    need = Resources(share_milli=500, way=Way.SPATIAL)

    async def during() -> None:
        shared.env(HALF, need)
        await attach(shared, RUN, HALF, need)
        await shared.close()
        assert shared._daemon(3).alive()  # somebody is on it
        await shared.detach(RUN)
        await shared.close()
        assert not shared._daemon(3).alive()

    live(shared, during)


def test_a_run_that_prepares_itself_keeps_its_daemon(
    shared: GpuSharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_DAEMON_S", 0.0)
    need = Resources(share_milli=500, way=Way.SPATIAL)

    async def during() -> None:
        await shared.attach(RUN, [HALF], {"worker": need}, {})
        shared.env(HALF, need)
        await shared._end_daemons(0.0)
        assert shared._daemon(3).alive()
        await attach(shared, RUN, HALF, need)

    live(shared, during)


def test_workers_without_their_daemon_are_not_let_run(shared: GpuSharing) -> None:
    need = Resources(share_milli=500, way=Way.SPATIAL)

    async def during() -> None:
        with pytest.raises(Retryable, match="MPS daemon of GPU 3 is gone"):
            await attach(shared, RUN, HALF, need)

    live(shared, during)


def test_what_could_not_be_written_down_is_written_the_next_time(
    shared: GpuSharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def during() -> None:
        with monkeypatch.context() as disk:
            disk.setattr(type(shared._files), "want", full)
            with pytest.raises(OSError, match="No space"):
                await attach(shared, RUN, HALF, Resources(share_milli=500))
        await attach(shared, RUN, HALF, Resources(share_milli=500))
        assert len(shared._files.wanted()) == 1

    live(shared, during)


def test_what_the_warden_is_to_do(shared: GpuSharing) -> None:
    async def during() -> None:
        await attach(shared, RUN, HALF, Resources(share_milli=500, qos=Qos.EQUAL))
        await attach(shared, OTHER, WHOLE, Resources())
        (request,) = shared._files.wanted()
        assert (request.key, request.pid, request.ticks) == ("a#1/worker-0", *ME)
        assert (request.devices, request.share_milli, request.qos) == ((3,), 500, "equal")
        assert (request.memory_mib, request.means, request.want) == (50_000, "cuda", "run")
        await shared.detach(RUN)
        assert shared._files.wanted() == []

    live(shared, during)


def answer(shared: GpuSharing, **outcome: object) -> None:
    """What a sharing daemon would write."""
    tenants = {
        request.key: {
            "standing": "parked" if request.want == "park" else "running",
            "problem": "",
            "outcome": {
                "turn": request.turn,
                "took_s": 1.5,
                "freed_mib": 9,
                "stays_mib": 0,
                "how": "checkpoint",
                "why": "",
                **outcome,
            },
        }
        for request in shared._files.wanted()
    }
    shared._files.tell({"pid": 0, "tenants": tenants})


async def answered(shared: GpuSharing, call: Awaitable[sharing.ParkResult]) -> sharing.ParkResult:
    task = asyncio.ensure_future(call)
    while not task.done():
        answer(shared)
        await asyncio.sleep(0.01)
    return task.result()


def test_a_share_that_the_driver_does_not_let_hold_is_told_once(shared: GpuSharing) -> None:
    told: list[tuple[RunId, str]] = []
    shared.on_problem = lambda run, problem: told.append((run, problem))

    async def during() -> None:
        await attach(shared, RUN, HALF, Resources(share_milli=500))
        (request,) = shared._files.wanted()
        why = {request.key: {"standing": "running", "problem": "cannot be locked: 801"}}
        shared._files.tell({"pid": 0, "tenants": why})
        assert shared.problem(RUN) == shared.problem(RUN) == "worker-0 cannot be locked: 801"

    live(shared, during)
    assert told == [(RUN, "worker-0 cannot be locked: 801")]


def test_a_whole_run_is_parked_and_comes_back_elsewhere(shared: GpuSharing) -> None:
    async def during() -> None:
        await attach(shared, RUN, WHOLE, Resources())
        parked = await answered(shared, shared.park(RUN))
        assert (parked.how, parked.took_s, parked.freed_mib) == ("checkpoint", 1.5, 9)
        assert [(e.want, e.turn) for e in shared._files.wanted()] == [("park", 1)]
        seat = Seat("worker", 0, (5,), 1000, NODE)
        seen = []
        task = asyncio.ensure_future(shared.unpark(RUN, [seat]))
        while not task.done():
            seen += [(e.want, e.devices, e.onto) for e in shared._files.wanted()]
            answer(shared)
            await asyncio.sleep(0.01)
        assert seen[-1] == ("run", (3,), (5,))
        assert task.result().how == "checkpoint"
        assert shared._files.wanted() == []

    live(shared, during)


def test_the_next_server_knows_who_is_parked(shared: GpuSharing, tmp_path: Path) -> None:
    async def during() -> None:
        await attach(shared, RUN, WHOLE, Resources())
        await answered(shared, shared.park(RUN))

    live(shared, during)
    again = GpuSharing(tmp_path, shared._machine, "")

    async def later() -> None:
        await attach(again, RUN, WHOLE, Resources())
        assert [(e.want, e.turn) for e in again._files.wanted()] == [("park", 1)]
        assert (await answered(again, again.unpark(RUN, [WHOLE]))).how == "checkpoint"

    live(again, later)


def test_an_answer_of_long_ago_is_none_to_what_is_asked_now(shared: GpuSharing) -> None:
    async def during() -> None:
        await attach(shared, RUN, WHOLE, Resources())
        asked = asyncio.create_task(shared.park(RUN))
        await asyncio.sleep(0.1)
        assert not asked.done()
        (request,) = shared._files.wanted()
        answer_turn(shared, request.turn)
        assert (await asked).how == "checkpoint"

    shared._folder.mkdir()
    answer_turn(shared, 7)
    live(shared, during)


def answer_turn(shared: GpuSharing, turn: int) -> None:
    """What a sharing daemon says that has parked the worker."""
    outcome = {"turn": turn, "took_s": 0.0, "freed_mib": 0, "stays_mib": 0}
    told = {"standing": "parked", "outcome": {**outcome, "how": "checkpoint", "why": ""}}
    shared._files.tell({"pid": 0, "tenants": {f"{RUN}/worker-0": told}})


def test_other_accounts_reach_what_they_need(shared: GpuSharing) -> None:
    async def during() -> None:
        hook = shared._folder / "hook"
        assert shared._folder.stat().st_mode & 0o777 == 0o711
        assert (hook / "sitecustomize.py").stat().st_mode & 0o777 == 0o644
        assert hook.stat().st_mode & 0o777 == 0o755

    before = os.umask(0o077)
    try:
        live(shared, during)
    finally:
        os.umask(before)


def test_processes_that_take_the_places_of_parked_ones_are_not_parked(shared: GpuSharing) -> None:
    async def during() -> None:
        await attach(shared, RUN, HALF, Resources(share_milli=500))
        await answered(shared, shared.park(RUN))
        others = {"worker-0": (os.getppid(), 1)}
        need = {"worker": Resources(share_milli=500)}
        await shared.attach(RUN, [HALF], need, others)
        assert [e.want for e in shared._files.wanted()] == ["run"]

    live(shared, during)


def test_what_cannot_be_parked_is_wanted_to_run_again(shared: GpuSharing) -> None:
    async def during() -> None:
        await attach(shared, RUN, WHOLE, Resources())
        task = asyncio.ensure_future(shared.park(RUN))
        while not task.done():
            answer(shared, how="none", why="not supported")
            await asyncio.sleep(0.01)
        assert task.result().why == "not supported"
        assert [e.want for e in shared._files.wanted()] == ["run"]

    live(shared, during)


def test_workers_that_are_gone_need_no_warden(
    shared: GpuSharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_LOOK_S", 0.01)

    async def during() -> None:
        need = {"worker": Resources(share_milli=500)}
        await shared.attach(RUN, [HALF], need, {"worker-0": (ME[0], ME[1] + 1)})
        assert len(shared._files.wanted()) == 1
        deadline = time.monotonic() + 60
        while shared._files.wanted():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert (await shared.park(OTHER)).how == "none"

    live(shared, during)


def test_an_unknown_run() -> None:
    found = GpuSharing(Path("/nowhere"), Machine(NodeSpec(NODE), ()), "")
    assert asyncio.run(found.park(RUN)).how == "none"
    assert asyncio.run(found.unpark(RUN, [])).how == "none"


def test_who_shared_a_gpu_side_by_side_is_known_a_little_longer(shared: GpuSharing) -> None:
    need = Resources(share_milli=500, way=Way.SPATIAL)

    async def during() -> None:
        shared.env(HALF, need)
        await attach(shared, RUN, HALF, need)
        assert shared.beside(RUN) == ""
        await attach(shared, OTHER, HALF, need)
        assert shared.beside(RUN) == "it shared GPU 3 side by side with another run"
        await shared.detach(OTHER)  # by the same fault, a moment before
        assert shared.beside(RUN) == "it shared GPU 3 side by side with another run"
        await shared.detach(RUN)

    live(shared, during)


def test_what_is_over_is_no_problem_any_more(shared: GpuSharing) -> None:
    told: list[str] = []
    shared.on_problem = lambda _run, problem: told.append(problem)

    async def during() -> None:
        await attach(shared, RUN, HALF, Resources(share_milli=500))
        (request,) = shared._files.wanted()
        for problem in ("cannot be locked: 801", ""):
            row = {"standing": "running", "problem": problem}
            shared._files.tell({"pid": 0, "tenants": {request.key: row}})
            shared._note_problems()
        assert shared.problem(RUN) == ""

    live(shared, during)
    assert told == ["worker-0 cannot be locked: 801", ""]
