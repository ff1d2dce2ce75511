"""What-ifs of people: simulations beside the server, few at a time, kept with their results.

Each runs in a process of its own (``roost.sim.lab``) that bounds its CPU time and memory and has
the lowest rank on the machine. What is asked and what came out of it is a file in the home, by an
id that cannot be guessed, so that a link can be given to others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from roost import files
from roost.api.lab import LabView
from roost.api.schema import decode, encode
from roost.errors import Conflict, Forbidden, NotFound, RoostError
from roost.sim.lab import LabBounds, LabQuestion, question_line

_log = logging.getLogger(__name__)

#: How many run at once, wait in all, wait or run for one user, and are kept.
AT_ONCE, WAITING, PER_USER, KEPT = 1, 20, 3, 200
#: How long one may take by the clock, in seconds: others may leave it little of the machine.
_PATIENCE_S = 1800.0
#: Threads of numpy, one for each core, would take memory for nothing.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_ID = re.compile(r"[0-9a-f]{16}\Z")


class LabService:
    """The what-ifs of one server."""

    def __init__(
        self, home: Path, clock: Callable[[], float], bounds: LabBounds | None = None
    ) -> None:
        self._folder, self._clock = home / "lab", clock
        self._bounds = bounds or LabBounds()
        self._alive: dict[str, LabView] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        """End what runs."""
        for name in list(self._tasks):
            await self._stop(name, "the server was stopped")

    async def ask(self, question: LabQuestion, ask: dict[str, Any], user: str) -> LabView:
        """Take a question; raises Conflict where too many wait."""
        own = sum(view.user == user for view in self._alive.values())
        if own >= PER_USER:
            raise Conflict(f"{user} has {own} what-ifs under way already; wait, or cancel one")
        if len(self._alive) >= WAITING:
            raise Conflict(f"{len(self._alive)} what-ifs wait already; try again later")
        question.scenario.check_names(question.policies[0], question.placer)
        for policy in question.policies:
            question.scenario.check_names(policy, question.placer)
        view = LabView(secrets.token_hex(8), user, "queued", self._clock(), ask=ask)
        self._alive[view.id] = view
        await asyncio.to_thread(self._save, view)
        task = asyncio.create_task(self._run(view.id, question), name=f"lab {view.id}")
        self._tasks[view.id] = task
        return view

    async def get(self, name: str) -> LabView:
        """One of them; raises NotFound."""
        if name in self._alive:
            return self._alive[name]
        return await asyncio.to_thread(self._load, name)

    async def all(self) -> list[LabView]:
        """All of them without their results, the newest first."""
        kept = await asyncio.to_thread(self._kept)
        known = {view.id: view for view in kept} | self._alive
        found = [replace(view, result=None) for view in known.values()]
        return sorted(found, key=lambda view: view.made_at, reverse=True)

    async def cancel(self, name: str, user: str, *, anyones: bool) -> LabView:
        """End one; raises Forbidden for somebody else's, unless it may be ``anyones``."""
        view = await self.get(name)
        if view.user != user and not anyones:
            raise Forbidden(f"what-if {name} is {view.user}'s", "ask them")
        if name in self._tasks:
            await self._stop(name, f"cancelled by {user}")
        return await self.get(name)

    # -- running -------------------------------------------------------------------------------

    async def _stop(self, name: str, why: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self._end(name, "cancelled", why)

    async def _run(self, name: str, question: LabQuestion) -> None:
        try:
            async with self._turn:
                self._alive[name] = replace(
                    self._alive[name], state="running", started_at=self._clock()
                )
                told = await self._told(question)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must have an end
            _log.warning("what-if %s: %r", name, error)
            told = {"problem": str(error) or "it took too long: fewer jobs, or fewer policies"}
        self._tasks.pop(name, None)
        state: Any = "failed" if "problem" in told else "done"
        await self._end(name, state, str(told.get("problem", "")), told.get("result"))

    async def _told(self, question: LabQuestion) -> dict[str, Any]:
        """What the process of a question answers."""
        line = await asyncio.to_thread(question_line, question, self._bounds)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "roost.sim.lab"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            limit=64 << 20,
        )
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            async with asyncio.timeout(_PATIENCE_S):
                process.stdin.write(line)
                await process.stdin.drain()
                answered = await process.stdout.readline()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if not answered:
            return {"problem": "it took too much time or memory: fewer jobs, or fewer policies"}
        found: dict[str, Any] = json.loads(answered)
        return found

    async def _end(self, name: str, state: Any, problem: str, result: Any = None) -> None:
        alive = self._alive.pop(name, None)
        if alive is None:
            return  # it ended while it was being stopped
        view = replace(
            alive,
            state=state,
            ended_at=self._clock(),
            problem=problem,
            result=result,
        )
        await asyncio.to_thread(self._save, view)

    # -- the files -----------------------------------------------------------------------------

    def _save(self, view: LabView) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            files.save(self._folder / f"{view.id}.json", json.dumps(encode(view)), 0o600)
            for path in self._newest()[KEPT:]:
                path.unlink(missing_ok=True)
        except (RoostError, OSError) as error:
            _log.warning("what-if %s is not kept: %s", view.id, error)

    def _newest(self) -> list[Path]:
        paths = list(self._folder.glob("*.json")) if self._folder.is_dir() else []
        return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)

    def _load(self, name: str) -> LabView:
        if not _ID.match(name):
            raise NotFound(f"no what-if {name[:80]!r}")
        try:
            told = json.loads(files.load(self._folder / f"{name}.json").text)
            view = decode(LabView, told)
        except (NotFound, ValueError, TypeError):
            raise NotFound(f"no what-if {name!r}") from None
        if view.state in ("queued", "running"):
            return replace(view, state="failed", problem="the server was started anew meanwhile")
        return view

    def _kept(self) -> list[LabView]:
        found = []
        for path in self._newest():
            with suppress(NotFound):
                found.append(self._load(path.stem))
        return found
