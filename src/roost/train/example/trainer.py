"""The loop of the example trainer: takes steps with the members of the job at the moment.

With every step the workers sum their slopes, and in the same vector agree on what else is to be
done: stop, meet as others, give way. The batch of a step is the same however many share it. After
every meeting all take the state of the worker that is furthest; only when no worker has one, at the
very beginning, is a checkpoint read.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple, TextIO

import numpy as np

from roost import train
from roost.train.example.exchange import PeerLost
from roost.train.example.group import ExampleGroup, Stopped
from roost.train.example.learner import BATCH, Lessons, TwoLayerNetwork
from roost.train.members import Left, Members, tell
from roost.train.saver import Saver

_FILE = "example.npz"
_TELL_EVERY_S = 0.2
_PRINT_EVERY_S = 1.0
_CALIBRATE_S = 0.25
_LOOK_EVERY_S = 0.02
_LEAVE_S = 10.0
_STOPPED = 143


class TrainingFailed(Exception):
    """The training cannot go on; says why."""


class Agreement(NamedTuple):
    """What the vector of a step carries besides slopes, summed over all workers."""

    missed: float
    #: Of any worker; what follows is said by worker 0 alone.
    stop: float
    total: float = 0.0
    version: float = 0.0
    offload: float = 0.0
    answered: float = 0.0


class ExampleTraining:
    """The loop, and what it needs to remember."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.share = options.workers or train.world_size()
        self.gang = ExampleGroup(Members.here(), train.should_stop)
        self.lessons = Lessons(options.seed)
        self.network = TwoLayerNetwork.new(options.size, options.seed)
        self.saver = Saver(_FILE, bounds_s=(options.save_every, options.save_every))
        #: Whether the network is that of the training, not one that knows nothing.
        self.begun = False
        #: The step of the last checkpoint, of any worker.
        self.saved = 0
        #: The last wishes for a checkpoint that were answered, and tried.
        self.answered, self.tried = 0, 0
        self.offload = 0
        self.introduced = False
        self.untold: dict[str, dict[str, object]] = {}
        self.due = dict.fromkeys(("tell", "print"), time.monotonic())
        self.costs: list[float] = []
        self.durations: deque[float] = deque(maxlen=50)
        #: Of these, what was spent on summing slopes, the wait for others included.
        self.waits: deque[float] = deque(maxlen=50)
        self.last_step_at = time.perf_counter()

    def run(self) -> int:
        """Take all steps; returns the exit status."""
        try:
            self._enter()
            while not self._over() and not self._turn():
                pass
        except Stopped:
            if not self.begun:
                return _STOPPED
        except Left:
            self.saver.abandon()
            self.saver.wait(_LEAVE_S)
            say(f"leaves at step {self.network.step}")
            raise
        return self._finish()

    def _finish(self) -> int:
        net = self.network
        self._save_now()
        self.gang.close()
        if not self._over():
            say(f"stopped at step {net.step}")
            return _STOPPED
        train.report(net.step, net.total, net.loss, self._last_saved())
        say(f"done: {net.step} steps, loss {net.loss:.6f}")
        return 0

    def _over(self) -> bool:
        return 0 < self.network.total <= self.network.step

    def _turn(self) -> bool:
        """A step and what was agreed with it; True if all shall stop."""
        try:
            agreed = self._step()
        except PeerLost as lost:
            say(f"{lost} at step {self.network.step}")
            self.gang.await_next(lost)
            self._enter()
            return False
        if agreed.stop:
            return True
        if agreed.version > self.gang.view.version:
            self._enter()
        elif agreed.offload != self.offload:
            self._give_way(int(agreed.offload))
        self._report()
        return False

    # Who trains together.

    def _enter(self) -> None:
        """Meet the others of now, and go on from where the furthest of them is."""
        was_first = self.begun and self.gang.rank == 0
        while True:
            try:
                self.gang.meet()
                pause_s = self._share_state()
                break
            except PeerLost as lost:
                say(f"{lost} at step {self.network.step}")
                self.gang.await_next(lost)
        gang = self.gang
        if was_first and gang.rank != 0:
            self.saver.abandon()
        self._introduce(pause_s)
        self.offload = 0
        self.costs.clear()
        self.durations.clear()
        self.waits.clear()
        self.last_step_at = time.perf_counter()

    def _introduce(self, pause_s: float) -> None:
        gang, step = self.gang, self.network.step
        does = "goes on" if self.introduced else "begins"
        say(f"worker {gang.rank} of {gang.size} {does} at step {step}")
        if gang.changeable and not self.introduced:
            self.untold["elastic"] = {"elastic": True, "member": gang.me}
        self.introduced = True
        if gang.changeable and gang.rank == 0:
            joined = {"joined": gang.view.version, "member": gang.me, "world": gang.size}
            self.untold["joined"] = {**joined, "pause_s": round(pause_s, 4)}
        self._tell_again()

    def _share_state(self) -> float:
        """Take the state of the furthest worker; returns how long the training stood still."""
        gang = self.gang
        places = np.zeros((2, gang.size))
        asked_at = time.perf_counter()
        places[:, gang.rank] = -1.0, 0.0
        if self.begun:
            places[:, gang.rank] = self.network.step, asked_at - self.last_step_at
        steps, pauses = gang.total(places.ravel()).reshape(2, gang.size)
        source = int(np.argmax(steps))
        if steps[source] < 0 and gang.rank == source:
            self._resume()
        mine = np.concatenate([self.network.packed(), [self.saved, self.answered]])
        told = gang.total(mine if gang.rank == source else np.zeros_like(mine))
        self.network.unpack(told[:-2])
        self.saved, self.answered = int(told[-2]), int(told[-1])
        self.begun = True
        return float(pauses.max()) + time.perf_counter() - asked_at

    def _resume(self) -> None:
        path = train.latest_checkpoint(_FILE)
        if path is not None:
            try:
                self.network = TwoLayerNetwork.load(path, self.options.size)
                self.saved = self.network.step
            except ValueError as error:
                say(f"starts anew: {error}")
        self.network.total = self.options.steps or self.network.total

    def _give_way(self, number: int) -> None:
        """Stand still as long as asked; there is no memory of a GPU to leave."""
        self.offload = number
        tell(offloaded=number, member=self.gang.me)
        version = self.gang.view.version
        while number % 2 and not train.should_stop():
            wanted = self.gang.wanted
            if wanted.offload != number or wanted.version != version:
                return
            time.sleep(_LOOK_EVERY_S)

    # A step.

    def _step(self) -> Agreement:
        """One step of all workers; raises PeerLost before anything has moved."""
        net, gang = self.network, self.gang
        wild = self._fail()
        began, used = time.perf_counter(), time.thread_time()
        rows = self.lessons.batch(net.step, gang.rank, gang.size)
        with np.errstate(all="ignore"):
            slope, missed = net.slope(*rows)
            computed = time.thread_time() - used
            waits_from = time.perf_counter()
            told = gang.total(np.concatenate([slope, self._wishes(missed)]))
            self.waits.append(time.perf_counter() - waits_from)
            agreed = Agreement(*(float(value) for value in told[len(slope) :]))
            net.move(told[: len(slope)] / BATCH, wild=wild)
        net.loss = agreed.missed / BATCH
        net.total = net.total or int(agreed.total)
        self.answered = max(self.answered, int(agreed.answered))
        if not math.isfinite(net.loss):
            train.report(net.step, net.total, net.loss)
            raise TrainingFailed(f"loss is {net.loss} at step {net.step}: the training diverged")
        self._note(computed, began)
        return agreed

    def _wishes(self, missed: float) -> Agreement:
        stop = float(train.should_stop())
        if self.gang.rank != 0:
            return Agreement(missed, stop)
        wanted = self.gang.wanted
        return Agreement(
            missed, stop, self._planned(), wanted.version, wanted.offload, float(self.answered)
        )

    def _note(self, computed: float, began: float) -> None:
        """Remember how long a step took."""
        self.last_step_at = time.perf_counter()
        self.durations.append(self.last_step_at - began)
        size = self.gang.size
        waited = max(0.0, self.durations[-1] - computed) if size > 1 else 0.0
        if not self.network.total:
            fits = self.share == size
            self.costs.append(computed + waited if fits else computed * size / self.share)

    def _planned(self) -> float:
        """The number of steps, once enough of them were timed; 0 until then."""
        if self.network.total or sum(self.costs) < _CALIBRATE_S:
            return float(self.network.total)
        timed = sorted(self.costs[1:] or self.costs)  # the first one warms up
        middle = timed[: max(1, len(timed) * 3 // 4)]  # the slowest were disturbed
        each = sum(middle) / len(middle)
        return float(max(self.network.step + 1, round(self.options.seconds / each)))

    def _fail(self) -> bool:
        """Fail as asked, when it is time; True if this step shall be too long."""
        net, kind = self.network, self.options.fail
        if not kind or not net.total or net.step < self.options.at * net.total:
            return False
        if kind == "import":
            importlib.import_module("a_module_that_is_not_installed")
        if kind == "oom":
            _ask_for_too_much()
        if kind.startswith("exit:"):
            self.gang.close()
            sys.exit(int(kind.removeprefix("exit:")))
        return True

    # What is told and saved.

    def _report(self) -> None:
        net = self.network
        if self._is_due("tell", _TELL_EVERY_S):
            self._tell_again()
            if net.total:
                self._tell()
        if self._is_due("print", _PRINT_EVERY_S):
            say(f"step {net.step}/{net.total or '?'} loss {net.loss:.6f}")
        self._save()

    def _tell(self) -> None:
        net, size = self.network, self.gang.size
        if self.durations:
            train.report(
                net.step,
                net.total,
                net.loss,
                self._last_saved(),
                step_s=median(self.durations),
                sync_s=median(self.waits) if size > 1 else 0.0,
                batch=BATCH,
                local_batch=-(-BATCH // size),
                epochs=self.lessons.epochs(net.step),
                world=size,
            )

    def _tell_again(self) -> None:
        """What must be known is told until it is: the pipe may be full for a while."""
        for name, line in tuple(self.untold.items()):
            if tell(**line):
                del self.untold[name]

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self.due[what] + every_s:
            return False
        self.due[what] = now
        return True

    def _last_saved(self) -> int:
        self.saved = max(self.saved, self.saver.saved or 0)
        return self.saved

    def _save(self) -> None:
        """Begin a checkpoint, if it is time or one was asked for."""
        if self.gang.rank != 0 or train.checkpoint_dir() is None:
            return
        asked = self.gang.wanted.save
        urgent = asked > max(self.answered, self.tried)
        if urgent or self.saver.due():
            self._complain()
            self._submit(asked)

    def _save_now(self) -> None:
        if self.gang.rank == 0 and train.checkpoint_dir() is not None:
            self.saver.wait()
            self._submit(self.gang.wanted.save)
            self.saver.wait()
            self._complain()

    def _submit(self, asked: int) -> None:
        state = replace(self.network)  # a step makes new arrays and leaves these as they are
        answer = partial(self._answer, asked)
        if self.saver.submit(state.step, state.save, answer):
            self.tried = asked

    def _answer(self, asked: int) -> None:
        if asked > self.answered and tell(saved_for=asked):
            self.answered = asked

    def _complain(self) -> None:
        if self.saver.trouble:
            say(f"not saved: {self.saver.trouble}", sys.stderr)


def say(line: str, out: TextIO | None = None) -> None:
    """A line for the log."""
    out = out or sys.stdout
    with suppress(OSError, ValueError):  # no reader, or the disk is full
        out.write(f"{line}\n")
        out.flush()


def _ask_for_too_much() -> Any:
    return np.ones((1 << 20, 1 << 20, 1 << 10))
