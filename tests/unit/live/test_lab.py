from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.server.worlds import looped

from roost.api.lab import LabView
from roost.errors import Conflict, Forbidden, NotFound, RoostError
from roost.live.lab import PER_USER, LabService
from roost.sim.lab import LabBounds, LabQuestion
from roost.sim.scenario import Scenario, uniform_cluster
from roost.traces.generate import Synthetic


def question(jobs: int = 20, policy: str = "fifo") -> LabQuestion:
    scenario = Scenario(Synthetic(jobs=jobs, gpus=8), uniform_cluster(2, 4))
    return LabQuestion(scenario, (policy,), "consolidate")


async def over(lab: LabService, name: str) -> LabView:
    async with asyncio.timeout(60):
        while (view := await lab.get(name)).state in ("queued", "running"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return view


@looped
async def test_what_came_out_is_kept_by_its_id(tmp_path: Path) -> None:
    lab = LabService(tmp_path, lambda: 5.0)
    view = await lab.ask(question(), {"policies": ["fifo"]}, "ada")
    done = await over(lab, view.id)
    assert (done.state, done.user, done.problem) == ("done", "ada", "")
    assert done.result is not None
    assert done.result["jobs"] == 20
    again = LabService(tmp_path, lambda: 6.0)
    assert await again.get(view.id) == done
    (listed,) = await again.all()
    assert (listed.id, listed.result) == (view.id, None)
    with pytest.raises(NotFound):
        await again.get("../../etc/passwd")
    with pytest.raises(NotFound):
        await again.get("0" * 16)


@looped
async def test_each_user_has_a_few_at_a_time_and_ends_the_own_alone(tmp_path: Path) -> None:
    lab = LabService(tmp_path, lambda: 5.0)
    views = [await lab.ask(question(20_000), {}, "ada") for _ in range(PER_USER)]
    with pytest.raises(Conflict, match="3 what-ifs under way"):
        await lab.ask(question(), {}, "ada")
    with pytest.raises(Forbidden):
        await lab.cancel(views[0].id, "bob", anyones=False)
    for view in views:
        ended = await lab.cancel(view.id, "root", anyones=True)
        assert (ended.state, ended.problem) == ("cancelled", "cancelled by root")
    assert (await lab.cancel(views[0].id, "ada", anyones=False)).state == "cancelled"
    with pytest.raises(RoostError):
        await lab.ask(question(policy="nonsense"), {}, "ada")


@looped
async def test_one_that_takes_too_much_ends_with_a_sentence(tmp_path: Path) -> None:
    lab = LabService(tmp_path, lambda: 5.0, LabBounds(cpu_s=1))
    view = await lab.ask(question(20_000), {}, "ada")
    ended = await over(lab, view.id)
    assert ended.state == "failed"
    assert "too much" in ended.problem


@looped
async def test_what_was_under_way_when_a_server_was_killed_is_over(tmp_path: Path) -> None:
    lab = LabService(tmp_path, lambda: 5.0)
    view = await lab.ask(question(20_000), {}, "ada")
    again = LabService(tmp_path, lambda: 6.0)
    assert "started anew" in (await again.get(view.id)).problem
    await lab.close()
    assert (await again.get(view.id)).state == "cancelled"
