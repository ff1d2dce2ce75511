"""Suspending and resuming on GPUs: what is asked of whom, in which order, and what if it fails.

The GPUs are made up and nobody shares them: a stand-in notes what it is asked, and refuses at will.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.integration.local_world import (
    KILLED,
    World,
    apart,
    assigned,
    clear,
    run_id,
    shell,
    world,
)
from tests.integration.test_resize import begin, puppet

from roost.core.actions import Migrate, Resume, Suspend
from roost.core.allocation import Allocation, Part, Seat
from roost.core.events import Resized, Started, Suspended
from roost.core.spec import JobSpec, NodeSpec, Resources, RunId, Way
from roost.engines import NOTHING_SAVED, Assigned, Ended, RunOrder
from roost.engines.local import devices
from roost.engines.local.devices import Machine, node_name
from roost.engines.local.gpu import ParkResult
from roost.errors import Retryable
from roost.jobfile.program import Program

RUN = run_id("job")
LOOP = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"


class StandIn:
    """Takes the place of Sharing."""

    asked: ClassVar[list[Any]] = []
    refuses: ClassVar[dict[str, str]] = {}

    def __init__(self, *_: object) -> None:
        self.how: str = "checkpoint"

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def check(self, need: Resources) -> str:
        del need
        return self.refuses.get("check", "")

    def env(self, seat: Seat, need: Resources) -> dict[str, str]:
        del need
        return {"PYTHONPATH": "/hook", "SHARED": seat.name}

    async def attach(
        self,
        run: RunId,
        seats: Sequence[Seat],
        needs: Mapping[str, Resources],
        workers: Mapping[str, tuple[int, int]],
    ) -> None:
        assert set(workers) == {seat.name for seat in seats}
        assert {seat.role for seat in seats} <= set(needs)
        self.asked.append(("attach", [seat.gpus for seat in seats]))
        if why := self.refuses.get("attach"):
            raise Retryable(f"{why} for {run}", after=1.0)

    async def detach(self, run: RunId) -> None:
        del run
        self.asked.append("detach")

    async def park(self, run: RunId) -> ParkResult:
        del run
        self.asked.append("park")
        return self._answer("park")

    async def unpark(self, run: RunId, seats: Sequence[Seat]) -> ParkResult:
        del run
        self.asked.append(("unpark", [seat.gpus for seat in seats]))
        return self._answer("unpark")

    def problem(self, run: RunId) -> str:
        del run
        return self.refuses.get("problem", "")

    def beside(self, run: RunId) -> str:
        del run
        return self.refuses.get("beside", "")

    def _answer(self, what: str) -> ParkResult:
        why = self.refuses.get(what, "")
        return ParkResult(how="none" if why else "checkpoint", why=why)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    async def find(*_: object) -> Machine:
        node = NodeSpec(node_name(), 2, "H200", 140_000)
        return Machine(node, tuple(sorted(os.sched_getaffinity(0))))

    place = Path(tempfile.mkdtemp(prefix="parking-"))
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setattr(devices, "find", find)
    monkeypatch.setattr("roost.engines.local.engine.GpuSharing", StandIn)
    monkeypatch.setattr(StandIn, "asked", [])
    monkeypatch.setattr(StandIn, "refuses", {})
    yield place
    clear(place)
    shutil.rmtree(place)


def suspend(here: World, program: Program) -> Suspended:
    here.order(Suspend(RUN, "test"), program)
    return here.until(Suspended, RUN)


def resume(here: World, program: Program, *gpus: int) -> Started:
    here.order(Resume(RUN, here.place(*gpus, workers=len(gpus))), program)
    return here.until(Started, RUN)


def test_a_run_leaves_its_gpu_and_goes_on_elsewhere(home: Path) -> None:
    program = shell(LOOP, env={"PYTHONPATH": "/mine"})
    with world(home) as here:
        here.launch("job", program)
        here.until(Started, RUN)
        here.follow(RUN, "up")
        suspended = suspend(here, program)
        assert here.state(RUN).parked
        started = resume(here, program, 1)
        assert not here.state(RUN).parked
        here.end(RUN)

    assert (suspended.took_s or 0) > 0
    assert (started.took_s or 0) > 0
    assert StandIn.asked == [("attach", [(0,)]), "park", ("unpark", [(1,)]), "detach"]


def test_what_a_share_needs_is_in_the_environment(home: Path) -> None:
    program = shell('echo "$SHARED $PYTHONPATH"; exec sleep 600', env={"PYTHONPATH": "/mine"})
    with world(home) as here:
        here.launch("job", program)
        here.follow(RUN, "worker-0 /hook:/mine\n")
        here.end(RUN)


def test_a_job_that_can_leaves_by_itself_before_it_is_parked(home: Path) -> None:
    with world(home) as here:
        begin(here, puppet(), 0, 1)
        suspend(here, puppet())
        assert "offload 1" in here.log(RUN)
        assert "offload 1" in here.log(RUN, "worker-1")
        resume(here, puppet(), 0, 1)
        assert "offload 2" in here.log(RUN)
        suspend(here, puppet())
        assert "offload 3" in here.log(RUN)
        here.end(RUN)


def test_nobody_waits_for_a_job_to_come_back_that_did_not_leave(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.engines.local.keeper._OFFLOAD_S", 1.0)
    with world(home) as here:
        begin(here, puppet("clings"), 0, 1)
        suspended = suspend(here, puppet("clings"))
        monkeypatch.setattr("roost.engines.local.keeper._OFFLOAD_S", 20.0)
        started = resume(here, puppet("clings"), 0, 1)
        here.end(RUN)

    assert (suspended.took_s or 0) >= 1.0
    assert (started.took_s or 0) < 10.0
    assert [what for what in StandIn.asked if what == "park"]  # without its help


def test_who_cannot_leave_its_gpu_is_stopped_and_starts_again(home: Path) -> None:
    StandIn.refuses["park"] = "the driver is too old"
    with world(home) as here:
        here.launch("job", shell(LOOP))
        here.until(Started, RUN)
        here.follow(RUN, "up")
        suspended = suspend(here, shell(LOOP))
        assert "bye" in here.log(RUN)
        started = resume(here, shell(LOOP), 1)
        assert here.state(RUN).generation == 2
        here.end(RUN)

    assert suspended.done_s == 0.0
    assert suspended.why == f"the driver is too old; {NOTHING_SAVED}"
    assert started.why == ""

    assert StandIn.asked == [("attach", [(0,)]), "park", "detach", ("attach", [(1,)]), "detach"]


def saved(here: World) -> None:
    """The job has written a checkpoint."""
    folder = here.home / "runs" / RUN.job / "checkpoints"
    (folder / "step-1").write_text("weights")


def test_who_cannot_return_starts_again_from_its_checkpoint(home: Path) -> None:
    StandIn.refuses["unpark"] = "no room"
    with world(home) as here:
        here.launch("job", shell(LOOP))
        here.until(Started, RUN)
        here.follow(RUN, "up")
        saved(here)
        assert suspend(here, shell(LOOP)).why == ""
        assert resume(here, shell(LOOP), 0).why == "no room"
        assert here.state(RUN).generation == 2
        here.end(RUN)


def test_who_cannot_return_and_saved_nothing_ends_with_the_reason(home: Path) -> None:
    StandIn.refuses["unpark"] = "no room"
    with world(home) as here:
        here.launch("job", shell(LOOP))
        here.until(Started, RUN)
        here.follow(RUN, "up")
        assert suspend(here, shell(LOOP)).why == ""
        here.order(Resume(RUN, here.place(0)), shell(LOOP))
        ended = here.until(Ended, RUN)
        assert ended.problem == "it could not be brought back to its GPU: no room"
        assert here.state(RUN).generation == 1


def test_a_run_that_knows_nothing_of_it_is_moved(home: Path) -> None:
    with world(home) as here:
        here.launch("job", shell(LOOP))
        here.until(Started, RUN)
        here.follow(RUN, "up")
        here.order(Migrate(RUN, here.place(1)), shell(LOOP))
        moved = here.until(Resized, RUN)
        assert [seat.gpus for seat in here.state(RUN).seats] == [(1,)]
        assert (here.state(RUN).generation, here.state(RUN).parked) == (1, False)
        StandIn.refuses["unpark"] = "no room"
        here.order(Migrate(RUN, here.place(0)), shell(LOOP))
        assert here.until(Resized, RUN).why == f"no room; {NOTHING_SAVED}"
        assert here.state(RUN).generation == 2
        here.end(RUN)

    assert 0 <= (moved.pause_s or 0) <= (moved.took_s or 0)
    assert StandIn.asked[1:3] == ["park", ("unpark", [(1,)])]


def test_a_spatial_share_is_only_stopped(home: Path) -> None:
    spec = JobSpec(resources=Resources(share_milli=500, way=Way.SPATIAL))
    with world(home) as here:
        where = Allocation((Part(here.node, (0,), 500),))
        here.launch("job", shell(LOOP), where, spec)
        here.until(Started, RUN)
        suspend(here, shell(LOOP))
        here.order(Resume(RUN, where), shell(LOOP))
        here.until(Started, RUN)
        assert here.state(RUN).generation == 1
        here.end(RUN)

    assert StandIn.asked == [("attach", [(0,)]), ("attach", [(0,)]), "detach"]


def test_what_cannot_be_held_is_not_run(home: Path) -> None:
    with world(home) as here:
        StandIn.refuses["check"] = "there is no MPS here"
        here.launch("job", shell(LOOP))
        refused = here.until(Ended, RUN)
        StandIn.refuses = {"attach": "the warden is gone"}
        other = here.launch("other", shell(LOOP))
        stopped = here.until(Ended, other)

    assert (refused.cause, refused.detail) == ("never-started", "there is no MPS here")
    assert "its share of the GPU cannot be held: the warden is gone" in stopped.detail


def test_what_went_wrong_on_a_device_is_part_of_the_end(home: Path) -> None:
    StandIn.refuses["problem"] = "it used more memory than it may"
    with world(home) as here:
        here.launch("job", shell("sleep 0.1; exit 3"))
        ended = here.until(Ended, RUN)

    assert ended.detail == "it used more memory than it may; worker-0 exited with 3"
    assert ended.problem == "it used more memory than it may"


@pytest.mark.parametrize("dies", ["park", "unpark"])
def test_a_server_killed_at_the_gpu_is_followed_by_one_that_goes_on(
    home: Path, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = shell(LOOP)
    with world(home) as here:
        here.launch("job", program)
        here.until(Started, RUN)
        here.follow(RUN, "up")
        if dies == "unpark":
            suspend(here, program)
    order = Suspend(RUN, "test") if dies == "park" else Resume(RUN, World.place(here, 1))
    known = {RUN: assigned(RunOrder(order, program), parked=dies == "unpark")}
    kind: type[Suspended | Started] = Suspended if dies == "park" else Started
    with monkeypatch.context() as patch:
        patch.setattr(StandIn, dies, lambda *_: os.kill(os.getpid(), 9))
        assert apart(partial(serve, home, known)) == KILLED

    with world(home, alive=known) as here:
        while not isinstance(here.until(kind, RUN).took_s, float):
            pass
        if dies == "park":
            resume(here, program, 0)
        assert not here.state(RUN).parked
        assert here.state(RUN).generation == 1
        here.end(RUN)

    assert [one[0] for one in StandIn.asked if one[0] == "unpark"] == ["unpark"]


def serve(home: Path, known: dict[RunId, Assigned]) -> None:
    with world(home, alive=known) as here:
        here.until(Ended)
