"""This worker among the others: which of them train together, and what they do at a step boundary.

A crew is in one group at a time. At a boundary all of it agree on what Roost asks for and follow:
train with other members, write a checkpoint, leave the GPU for a while, stop. When a worker is lost
the group waits for Roost to name the members left, and goes on from the state of the furthest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from roost.train.members import Left, Members, Misuse, number_of
from roost.train.pytorch.checkpoints import Checkpoints
from roost.train.pytorch.control import Control, Wishes
from roost.train.pytorch.group_builder import GroupBuilder
from roost.train.pytorch.groups import Abandoned, Group, Hello, looks_lost, warm_up
from roost.train.pytorch.offload import Pool
from roost.train.pytorch.reporter import Reporter
from roost.train.pytorch.state import TrainingState, split, spread
from torch import nn

_STOPPED = 143
#: How long a worker that lost another one waits to hear which are left.
_PATIENCE_S = 120.0
_POLL_S = 0.01
_RANKS = 1 << 16


class ModelFront:
    """What the script calls as its model: the one behind it changes with the members."""

    def __init__(self, model: nn.Module) -> None:
        self.raw = model
        self.behind = model
        #: Whether it was called since the last batch was handed out.
        self.called = False
        #: What says that a worker was lost meanwhile; the step then comes to nothing.
        self.failed: RuntimeError | None = None
        #: Is told the arguments of the first call that computes gradients, before it.
        self.before: Callable[[tuple[Any, ...], dict[str, Any]], None] | None = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model; DDP talks to the others in the first few passes."""
        self.called = True
        if self.before is not None and torch.is_grad_enabled():
            before, self.before = self.before, None
            before(args, named)
        if self.failed is None:
            try:
                return self.behind(*args, **named)
            except RuntimeError as error:
                if self.behind is self.raw or not looks_lost(error):
                    raise
                self.failed = error
        return self.raw(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class TrainingMember:
    """The workers that train together, seen from one of them."""

    def __init__(
        self,
        training: TrainingState,
        front: ModelFront,
        hello: Hello,
        *,
        unused: bool,
        every_s: float | None = None,
    ) -> None:
        self._training, self._front, self._unused = training, front, unused
        self._members = Members.here()
        self._wanted_at_start = self._members.look()
        self._meeting = GroupBuilder(self._members, hello)
        self._control = Control()
        self._pool = Pool(pin=True) if hello.device.type == "cuda" else None
        self._retired: list[threading.Thread] = []
        self.checkpoints = Checkpoints(training, every_s, hello.loop)
        self.reporter = Reporter(training, hello.device)
        self.group = Group(self._wanted_at_start, 0, device=hello.device)
        #: When the last step ended, or training could last have gone on.
        self.boundary_at = time.perf_counter()

    def join(self) -> None:
        """Meet the others for the first time, and get the state of those that train."""
        stopping()  # from now on SIGTERM is noticed
        view, me = self._wanted_at_start, self._members.me
        joins_later = view.rank(me) is None
        to_come = number_of("WORLD_SIZE", 1) if joins_later else view.size
        self._check_size(to_come)
        if joins_later:
            warm_up()
        elif view.rank(me) == 0 and not self.checkpoints.load():
            self._training.step = 0
        self._meeting.start()
        if self._members.changeable:
            self._control.tell_elastic(me, ready=joins_later)
        self._meet(view.version if joins_later else 0, None)

    def boundary(self) -> None:
        """Follow what is asked for; in a new group all begin with a round."""
        group = None
        while group is not self.group:
            group = self.group
            if group.size > 1 and not self._control.due(self._training.step):
                return
            began = time.perf_counter()
            wishes: Wishes | None = self._wishes()
            if group.size > 1 and wishes is not None:
                try:
                    wishes = self._control.agree(group, self._training.step, wishes, began)
                except RuntimeError as error:
                    self.check_lost(error)
                    self.recover(error)
                    continue
            if wishes is not None:
                self._follow(wishes)

    def stepped(self) -> None:
        """A step was taken."""
        self.boundary_at = time.perf_counter()
        self.reporter.stepped(self.boundary_at, self.group, self.checkpoints.saved)
        if self._pool is not None and self._members.changeable:
            self._pool.make(lambda: split(self._training.content())[1])

    def check_lost(self, error: RuntimeError) -> None:
        """Raise the error, unless it says that a worker is lost and the others can go on."""
        if self.group.size == 1 or not self._members.changeable or not looks_lost(error):
            raise error

    def recover(self, error: RuntimeError) -> None:
        """Go on with those that are left; raises the error if they are not named."""
        self.group.abort()
        try:
            self._meet(self.group.version, _PATIENCE_S)
        except TimeoutError:
            said = "a worker is gone, and nobody said who goes on: all must leave a loop together"
            raise RuntimeError(f"{said} ({error})") from error

    def finish(self) -> None:
        """The last step was taken: no worker leaves before all are done."""
        self._meeting.end()
        if self.group.size > 1:
            try:
                self._control.settle()
                self.group.start_round(torch.zeros(1, dtype=torch.int64)).wait()
            except RuntimeError as error:
                if not looks_lost(error):
                    raise
        if self.group.rank == 0:
            self.checkpoints.finish()
            self.reporter.tell(self.group, self.checkpoints.saved)
            if self._members.changeable:
                self._control.tell_over(self._members.me)

    def close(self) -> None:
        """Let go of the others."""
        self._meeting.close()
        self.reporter.waiting.skip()
        self._front.behind = self._front.raw  # the wrapper goes with the group
        self.group.close()
        for thread in self._retired:
            thread.join(1.0)

    def _check_size(self, workers: int) -> None:
        batch = self._training.sampler.batch
        if workers > batch:
            raise Misuse(
                f"a batch_size of {batch} samples cannot be shared by {workers} workers: "
                "use at least as many samples, or fewer workers"
            )

    def _wishes(self) -> Wishes:
        view, ready, version = self._members.look(), self._meeting.next, self.group.version
        offer: Group | None = None
        if view.version > version:
            if self._meeting.without == view.version:
                version = view.version
            elif ready is not None and ready.version == view.version:
                version, offer = ready.version, ready
        return Wishes(version, stopping(), view.save, view.offload, offer)

    def _follow(self, wishes: Wishes) -> None:
        if wishes.stop:
            self._stop()
        if wishes.save > self._control.saved_for:
            self._save_for(wishes.save)
        elif self.group.rank == 0 and self.checkpoints.due:
            self.checkpoints.begin()
        if wishes.offload > self._control.offloaded:
            self._offload(wishes.offload)
        if wishes.version > self.group.version:
            self._switch(wishes)

    def _switch(self, wishes: Wishes) -> None:
        if wishes.offer is None:
            self._leave()
        else:
            try:
                self._adopt(wishes.offer)
            except RuntimeError as error:
                self._check_failed(wishes.offer, error)
                self.recover(error)

    def _leave(self) -> None:
        self.checkpoints.wait()
        self.close()
        raise Left

    def _stop(self) -> None:
        if self.group.rank == 0 and self._training.step >= 0:
            self.checkpoints.finish()
            self.reporter.tell(self.group, self.checkpoints.saved)
        self.close()
        raise SystemExit(_STOPPED)

    def _save_for(self, counter: int) -> None:
        self._control.saved_for = counter
        if self.group.rank == 0:
            self.checkpoints.wait()
            self.checkpoints.begin(lambda: self._control.tell_saved(counter))

    def _offload(self, counter: int) -> None:
        """Leave the GPU until asked to come back."""
        control, me = self._control, self._members.me
        control.offloaded = counter
        if counter % 2:
            self._front.behind = self._front.raw  # DDP holds memory
            self._training.optimizer.zero_grad(set_to_none=True)
            if self._pool is not None:
                self._pool.leave(split(self._training.content())[1])
            control.tell_offloaded(me, counter)
            while self._members.look().offload <= counter and not stopping():
                time.sleep(_POLL_S)
            if self._pool is not None:
                self._pool.come_back()
            self._front.behind = self.group.wrap(self._front.raw, unused=self._unused)
            self.boundary_at = time.perf_counter()
            # Not what is wanted by now: each would see that at a moment of its own.
            control.offloaded = counter + 1
        control.tell_offloaded(me, control.offloaded)

    def _meet(self, beyond: int, patience_s: float | None) -> None:
        """Get into the next group that there is, whatever happens to others meanwhile."""
        while True:
            try:
                group = self._meeting.wait(beyond, patience_s, stopping)
            except Abandoned:
                self._stop()
                return
            if group is None:
                self._leave()
                return
            try:
                self._adopt(group)
            except RuntimeError as error:
                self._check_failed(group, error)
                beyond, patience_s = group.version, _PATIENCE_S
            else:
                return

    def _check_failed(self, group: Group, error: RuntimeError) -> None:
        """A group that broke while it was entered is left at once; anything else is raised."""
        if not self._members.changeable or not looks_lost(error):
            raise error
        group.abort()
        self.group = group

    def _adopt(self, group: Group) -> None:
        """Train in this group from now on; the state of the furthest becomes that of all."""
        training, old = self._training, self.group
        self._front.behind = self._front.raw  # the old wrapper goes
        training.optimizer.zero_grad(set_to_none=True)
        if group.size > 1:
            self._even_out(group)
        training.step = max(0, training.step)
        self._front.behind = group.wrap(self._front.raw, unused=self._unused)
        self.group = group
        self._members.settle(group.view)
        self._meeting.use(group)
        self._control.reset()
        self.reporter.joined(group, self._members.me, time.perf_counter() - self.boundary_at)
        self._retired = [thread for thread in self._retired if thread.is_alive()]
        self._retired.append(threading.Thread(target=old.close, daemon=True))
        self._retired[-1].start()

    def _even_out(self, group: Group) -> None:
        step = self._training.step
        ahead = torch.tensor([step * _RANKS + _RANKS - 1 - group.rank, -step])
        group.start_round(ahead).wait()
        (furthest, place), least = divmod(int(ahead[0]), _RANKS), -int(ahead[1])
        if furthest != least:
            spread(self._training, group, _RANKS - 1 - place, behind=step != furthest)


def stopping() -> bool:
    """Whether SIGTERM came."""
    from roost import train  # noqa: PLC0415 - the package imports this module when asked

    return train.should_stop()
