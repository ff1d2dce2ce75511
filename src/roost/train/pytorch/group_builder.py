"""Watches the members of the job, and forms the next group while training goes on.

One thread does both: it notices a new version, meets the others of it, and has the group ready for
the loop to take at a step boundary. When a worker of the group in use is lost, it breaks that
group, so that a loop that waits in it wakes up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from roost.train.lines import say
from roost.train.members import Members, Misuse, View
from roost.train.pytorch.groups import Abandoned, Group, Hello, form, warm_up

_POLL_S = 0.02
#: Long enough for imports that are under way.
_LEAVE_S = 10.0


class GroupBuilder:
    """Where the next group comes from."""

    def __init__(self, members: Members, hello: Hello) -> None:
        self._members, self._hello = members, hello
        self._news = threading.Condition()
        self._next: Group | None = None
        #: The newest version that this worker is no member of.
        self._without = 0
        self._refused: Misuse | None = None
        self._busy_with = 0
        self._using: Group | None = None
        self._closed = False
        self._said = ""
        self._thread = threading.Thread(target=self._watch, name="roost-meeting", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def end(self) -> None:
        """Build no more groups."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def close(self) -> None:
        """Build no more groups, and wait for the thread."""
        self.end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_LEAVE_S)

    def use(self, group: Group) -> None:
        """From now on the loop is in this group."""
        with self._news:
            self._using = group
            if self._next is not None and self._next.version <= group.version:
                self._next = None

    @property
    def next(self) -> Group | None:
        """A group that is ready to be taken."""
        return self._next

    @property
    def without(self) -> int:
        """The newest version that is without this worker; 0 if there is none."""
        return self._without

    def wait(
        self, beyond: int, patience_s: float | None, stopping: Callable[[], bool]
    ) -> Group | None:
        """The group of a version after ``beyond``; None when it is one without this worker.

        Raises TimeoutError, Abandoned when the process shall stop, and Misuse when the others
        train something else. Being frozen uses up no patience.
        """
        left = None if patience_s is None else round(patience_s / _POLL_S)
        with self._news:
            while True:
                if self._next is not None and self._next.version > beyond:
                    return self._next
                if self._without > beyond:
                    return None
                if self._refused is not None:
                    raise self._refused
                if stopping():
                    raise Abandoned
                # While others are being met, it is up to Roost to lose patience.
                if left is not None and self._busy_with <= beyond:
                    left -= 1
                    if left < 0:
                        raise TimeoutError
                self._news.wait(_POLL_S)

    def _watch(self) -> None:
        warm = False
        tried = 0
        while not self._closed:
            view = self._members.look()
            if view.version > tried:
                # First: a loop that waits for a dead worker never comes to the boundary where it
                # would take the new group.
                self._free_the_loop(view)
                if self._prepare(view):
                    tried = view.version
            if not warm and self._using is not None and self._members.changeable:
                warm_up()
                warm = True
            time.sleep(_POLL_S)

    def _free_the_loop(self, view: View) -> None:
        """Do not wait for a dead worker."""
        using = self._using
        if using is not None and view.lost.intersection(using.view.members):
            using.abort()

    def _prepare(self, view: View) -> bool:
        """Form the group of a version; False if it should be tried again."""
        rank = view.rank(self._members.me)
        if rank is None:
            with self._news:
                self._without = view.version
                self._news.notify_all()
            return True
        self._busy_with = view.version
        try:
            group = form(view, rank, self._hello, lambda: self._outdated(view))
        except Abandoned:
            return True
        except Misuse as error:
            self._refuse(error)
            return True
        except (RuntimeError, OSError) as error:  # a worker was lost meanwhile, for instance
            self._complain(f"the workers of version {view.version} could not meet: {error}")
            return False
        with self._news:
            self._next = group
            self._news.notify_all()
        return True

    def _refuse(self, error: Misuse) -> None:
        """Workers that already train go on without the stranger."""
        with self._news:
            if self._using is None:
                self._refused = error
            self._news.notify_all()
        if self._using is not None:
            say(f"the members stay as they are: {error}")

    def _complain(self, line: str) -> None:
        """Say it once, however often it is tried."""
        if line != self._said:
            self._said = line
            say(line)

    def _outdated(self, view: View) -> bool:
        return self._closed or self._members.look().version > view.version
