"""The demo on this machine: a server, real training jobs, a kill, and what was foreseen."""

from __future__ import annotations

import os
import re
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from roost.demo import jobs
from roost.demo.board import Board, board
from roost.demo.jobs import Paces, TrainingJob
from roost.demo.server import ScratchServer, scratch_server
from roost.errors import Fatal, RoostError

if TYPE_CHECKING:
    from roost.client import Client, JobView

#: Prints rows of cells by column.
PrintTable: TypeAlias = Callable[[Sequence[Mapping[str, str]]], None]

#: With two slots: one that fills what is idle and makes room for others, one that is killed, one
#: that waits for both slots, and some that fit in between.
LESSONS = (
    TrainingJob("elastic", 0.0, 24.0, (1, 2)),
    TrainingJob("short", 3.0, 3.0),
    TrainingJob("long", 14.0, 8.0, killed_at=0.4),
    TrainingJob("pair", 16.0, 3.0, (2, 2)),
    TrainingJob("tiny", 17.0, 1.0),
)
#: Jobs grow into what is idle, and shrink when others come.
POLICY = "alnair:calm_s=1"

_BEGINS = re.compile(r"begins at step (\d+)")
_NEXT = {
    "roost up": "a server of your own",
    "roost submit -- python -m roost.train.example": "a first job for it",
    "roost demo policies": "nine policies, simulated",
}


def run(print_table: PrintTable) -> None:
    """Run all of it; raises RoostError if anything is not as it should be."""
    click.echo("A real server, real processes, real training, all on this machine.\n")
    with scratch_server("demo", jobs.slots(), policy=POLICY) as server:
        try:
            really, foreseen = _play(server)
            # In here, though the sweep would kill it: a server that does not stop is a failure.
            server.stop()
        except RoostError:
            click.echo(f"\nThe server said:\n{server.said()}\n", err=True)
            raise
        if left := server.processes():
            raise Fatal(f"processes {left} of the demo are still there")
    click.echo()
    print_table(_summary(really, foreseen))
    click.echo("\nThe server has stopped; no process and no file of it is left. Next:\n")
    for command, what in _NEXT.items():
        click.echo(f"  {command:<45}  # {what}")


def _play(server: ScratchServer) -> tuple[dict[str, JobView], dict[str, float]]:
    from roost.client import Client

    began = time.monotonic()
    server.start()
    took_s = time.monotonic() - began
    with Client(server.url, server.token) as client:
        _step("server", f"up in {took_s:.1f} s at {server.url}, with {server.slots} CPU slots")
        by = jobs.trainer()
        paces = jobs.measure(client, by=by)
        _step("trainer", f"{by.title}, {_told(paces)}")
        foreseen = jobs.predict(LESSONS, server, client.nodes(), paces, by)
        mean_s = statistics.mean(foreseen.values())
        _step(
            "forecast", f"{len(LESSONS)} jobs, {mean_s:.3g} s each on average, says the simulator"
        )
        click.echo()
        with board() as shown:
            killer = _Killer(server, client, shown)

            def look(views: Mapping[str, JobView]) -> None:
                shown.show(views)
                killer.look(views)

            really = jobs.perform(LESSONS, client, paces, look, by)
    for view in really.values():
        jobs.check(view)
    killer.check(really)
    return really, foreseen


class _Killer:
    """Kills a worker of one job when it has come far enough, and sees it go on."""

    def __init__(self, server: ScratchServer, client: Client, shown: Board) -> None:
        (self._lesson,) = (lesson for lesson in LESSONS if lesson.killed_at is not None)
        self._server, self._client, self._shown = server, client, shown
        self._killed = self._judged = False
        self._went_on_at = 0

    def look(self, views: Mapping[str, JobView]) -> None:
        """See whether it is time."""
        view = views.get(self._lesson.name)
        if view is None or view.state != "running":
            return
        if not self._killed:
            if (view.progress or 0.0) >= (self._lesson.killed_at or 0.0):
                self._kill(view)
        elif view.attempt > 1 and not self._went_on_at:
            self._judge(view)
            self._see_it_go_on(view)

    def _kill(self, view: JobView) -> None:
        pid = int(self._server.started(view.id, view.attempt)["workers"]["worker-0"][0])
        os.kill(pid, signal.SIGKILL)
        self._killed = True
        done = f"{100 * (view.progress or 0.0):.0f} %"
        self._note(f"worker-0, process {pid}, killed on purpose at {done}")

    def _judge(self, view: JobView) -> None:
        if not self._judged and view.verdict is not None:
            self._judged = True
            self._note(f"{view.verdict.phrase}; tried again, attempt {view.attempt}")

    def _see_it_go_on(self, view: JobView) -> None:
        """Let the job's own log tell where it went on."""
        handle = self._client.job(view.id)
        # The new worker may not have printed that line yet: then the next look finds it.
        found = _BEGINS.search("\n".join(handle.logs(attempt=view.attempt)))
        if found is not None:
            self._went_on_at = int(found[1])
            self._note(f"goes on from its checkpoint, at step {self._went_on_at:,}")

    def _note(self, text: str) -> None:
        self._shown.note(f"{self._lesson.name}: {text}")

    def check(self, views: Mapping[str, JobView]) -> None:
        """Raise Fatal unless the job, and no other, needed two attempts, and lost little."""
        attempts = {name: view.attempt for name, view in views.items()}
        wanted = {name: 1 + (name == self._lesson.name) for name in views}
        if not (self._killed and self._judged) or attempts != wanted:
            raise Fatal(f"the jobs needed these attempts: {attempts}, instead of {wanted}")
        if not self._went_on_at:
            raise Fatal(f"{self._lesson.name} did not go on from a checkpoint")


def _told(paces: Paces) -> str:
    alone, pair = paces[1], paces[2]
    return (
        f"{alone.start_s:.2f} s to start; {alone.steps_per_s:,.0f} steps/s, "
        f"{pair.steps_per_s:,.0f} with 2 workers"
    )


def _step(name: str, text: str) -> None:
    click.echo(f"  {name:<10}{text}")


def _summary(really: Mapping[str, JobView], foreseen: Mapping[str, float]) -> list[dict[str, str]]:
    jct_s = {name: (v.finished_at or 0.0) - v.submitted_at for name, v in really.items()}
    rows = [
        {
            "job": lesson.name,
            "workers": _workers(lesson),
            **_compared(foreseen[lesson.name], jct_s[lesson.name]),
            "resized": str(really[lesson.name].resizes),
            "attempts": str(really[lesson.name].attempt),
        }
        for lesson in LESSONS
    ]
    mean = _compared(statistics.mean(foreseen.values()), statistics.mean(jct_s.values()))
    return [*rows, {"job": "mean", "workers": "", **mean, "resized": "", "attempts": ""}]


def _compared(foreseen_s: float, really_s: float) -> dict[str, str]:
    return {
        "predicted jct": f"{foreseen_s:.1f} s",
        "real jct": f"{really_s:.1f} s",
        "difference": f"{100 * (really_s / foreseen_s - 1):+.1f} %",
    }


def _workers(lesson: TrainingJob) -> str:
    low, high = lesson.workers
    return str(low) if low == high else f"{low}..{high}"
