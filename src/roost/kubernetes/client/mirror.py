"""All objects of one kind as the API server has them, kept up to date by a watch.

List, then watch from the version of the list. Whatever goes wrong ends in one of two ways: the
watch goes on from the last version seen, or, when the server no longer knows that version, the
objects are listed anew and the differences told. Either way ``changed`` is called once for each
change of an object, in the order of its versions, however often and in whatever order the
server or something in between says it. A missing permission is logged by its name and asked for
again from time to time; other mirrors do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable

from roost.errors import Forbidden, NotFound, Retryable, RoostError
from roost.kubernetes.client.api import STALL_S, Api
from roost.kubernetes.client.faults import Expired
from roost.kubernetes.client.kinds import Object, ResourceKind
from roost.kubernetes.objects import trimming

log = logging.getLogger(__name__)

Changed = Callable[[Object | None, Object | None], None]
Key = tuple[str, str]

#: The first and the longest pause after a failure, and the one while something is not permitted.
SOONEST_S, LATEST_S, REFUSED_S = 0.2, 5.0, 30.0
#: So many watches that fail at once ask for a new list; so many lists that go back are believed.
WATCHES, LISTS = 3, 3
#: So many answers "no such kind" end what was known of it: a server that starts says it, too.
ABSENCES = 3
#: A watch that ends sooner, and told nothing, is a failure.
SHORTEST_S = 1.0
#: Deleted objects remembered, so that late news of them bring none back.
GRAVES = 4096


class Mirror:
    """The objects of a kind, by namespace and name, with a callback per change.

    ``changed(old, new)``: no old one is a new object, no new one an object that is gone. It is
    called from ``run``, one at a time; an error in it is logged and the mirror goes on. Objects are
    not to be changed by their readers. ``trim`` makes an object smaller before it is kept.
    """

    def __init__(  # noqa: PLR0913 - what to mirror, and how
        self,
        api: Api,
        kind: ResourceKind,
        changed: Changed,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        trim: Callable[[Object], Object] | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        self.kind = kind
        self.trouble = ""
        self._api, self._changed, self._trim, self._stall_s = api, changed, trim, stall_s
        self._scope = namespace
        self._labels, self._fields = labels, fields
        self._version = ""
        self._heard_at = time.monotonic()
        self._graves: OrderedDict[Key, int] = OrderedDict()
        self._failures = self._absences = self._returns = 0
        #: Watches in a row that expired before they told anything: each costs a list.
        self._expiries = 0

    @property
    def stale_s(self) -> float:
        """Seconds since the server was last heard of."""
        return time.monotonic() - self._heard_at

    @property
    def version(self) -> str:
        """The last version seen; empty if a list is to come."""
        return self._version

    async def run(self) -> None:
        """Keep the objects as the server has them, until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Expired:
                self._version = ""
                await asyncio.sleep(_pause(self._expiries))
                self._expiries += 1
            except Retryable as error:
                await self._failed(error, error.after)
            except NotFound as error:
                self._absent()
                await self._refused(error)
            except Forbidden as error:
                await self._refused(error)
            except RoostError as error:
                await self._failed(error, SOONEST_S)

    def clear(self) -> None:
        """Nothing is left of what was known: the namespace is gone."""
        self._take({})

    async def refresh(self) -> None:
        """Know at least what the server knows now, however far behind the watch may be.

        For a new leader: what it decides must not rest on what was so some time ago.
        A kind that is not served, or not to us, is left as it is.
        """
        tried = 0
        while True:
            try:
                found, version = await self._api.list(
                    self.kind, self._scope, labels=self._labels, fields=self._fields
                )
                break
            except (Retryable, Expired):
                await asyncio.sleep(_pause(tried))
                tried += 1
            except RoostError:
                return
        self._heard()
        self._catch_up({_key(item): self._trimmed(item) for item in found}, _number(version))

    def _catch_up(self, found: dict[Key, Object], version: int) -> None:
        """Take over what a list has that is newer; the watch may have told more meanwhile."""
        for key in [key for key in self.objects if key not in found]:
            if _version(self.objects[key]) <= version:
                self._bury(key, version)
                self._tell(self.objects.pop(key), None)
        for key, new in found.items():
            old = self.objects.get(key)
            known = self._graves.get(key, -1) if old is None else _version(old)
            if _version(new) <= known:
                continue
            if old is not None and _uid(old) != _uid(new):
                self._replaced(key, old, new)
            else:
                self.objects[key] = new
                self._tell(old, new)

    # Listing

    async def _list(self) -> None:
        """Take over what the server has, and tell the differences to what we had."""
        found: dict[Key, Object] = {}
        version = ""
        async for fresh, items, version in self._api.pages(  # noqa: B007 - the last one counts
            self.kind, self._scope, labels=self._labels, fields=self._fields
        ):
            self._heard()
            if fresh:
                found.clear()
            found.update((_key(item), self._trimmed(item)) for item in items)
        self._check_forward(version)
        self._graves.clear()
        self._take(found)
        self._version = version
        self._well()
        self.synced.set()

    def _check_forward(self, version: str) -> None:
        """A list from before what we have seen comes from a server that lags, or was restored."""
        newest = max((_version(item) for item in self.objects.values()), default=-1)
        if _number(version) >= newest or self._returns >= LISTS:
            self._returns = 0
            return
        self._returns += 1
        raise Retryable(f"the list of {self.kind.resource} is older than what is known", SOONEST_S)

    def _take(self, found: dict[Key, Object]) -> None:
        for key in [key for key in self.objects if key not in found]:
            self._tell(self.objects.pop(key), None)
        for key, new in found.items():
            old = self.objects.get(key)
            if old is None:
                self.objects[key] = new
                self._tell(None, new)
            elif _uid(old) != _uid(new):
                self._replaced(key, old, new)
            elif _version(old) != _version(new):
                self.objects[key] = new
                self._tell(old, new)

    def _replaced(self, key: Key, old: Object, new: Object) -> None:
        """Another object of the same name: the first one went unseen."""
        del self.objects[key]
        self._tell(old, None)
        self.objects[key] = new
        self._tell(None, new)

    # Watching

    async def _watch(self) -> None:
        """Follow changes for as long as the server tells them."""
        watch = self._api.watch(
            self.kind,
            self._version,
            self._scope,
            labels=self._labels,
            fields=self._fields,
            stall_s=self._stall_s,
        )
        began, told = time.monotonic(), False
        async with contextlib.aclosing(watch):
            async for what, found in watch:
                self._heard()
                if what != "BOOKMARK":
                    self._see(what, found)
                    self._well()
                    told = True
                    self._expiries = 0
                self._advance(str(found["metadata"]["resourceVersion"]))
        if not told and time.monotonic() - began < min(SHORTEST_S, self._stall_s):
            raise Retryable("the server ends the watch at once", SOONEST_S)
        self._expiries = 0
        self._well()

    def _see(self, what: str, found: Object) -> None:
        key, version = _key(found), _version(found)
        old = self.objects.get(key)
        known = self._graves.get(key, -1) if old is None else _version(old)
        if 0 <= version <= known:
            return
        if what == "DELETED":
            self._bury(key, version)
            if old is not None:
                del self.objects[key]
                self._tell(old, None)
            return
        new = self._trimmed(found)
        if old is not None and _uid(old) != _uid(new):
            self._replaced(key, old, new)
        else:
            self.objects[key] = new
            self._tell(old, new)

    def _bury(self, key: Key, version: int) -> None:
        self._graves[key] = version
        self._graves.move_to_end(key)
        if len(self._graves) > GRAVES:
            self._graves.popitem(last=False)

    def _advance(self, version: str) -> None:
        if _number(version) < 0 or _number(version) > _number(self._version):
            self._version = version

    # Trouble

    async def _failed(self, error: RoostError, after: float) -> None:
        """Wait, ever longer, and list again if watching does not work at all."""
        self._failures += 1
        if self._failures >= WATCHES:
            self._version = ""
        self._ill(str(error), logging.INFO)
        await asyncio.sleep(max(_pause(self._failures), min(after, REFUSED_S) if after > 1 else 0))

    async def _refused(self, error: RoostError) -> None:
        """An administrator has to act first: give a right, install a kind."""
        self._version = ""
        missing = isinstance(error, NotFound)  # which is no trouble where it is not needed
        self._ill(str(error), logging.INFO if missing else logging.WARNING)
        soon = missing and self._absences < ABSENCES
        await asyncio.sleep(_pause(self._absences) if soon else REFUSED_S * _spread())

    def _absent(self) -> None:
        """A kind that is not served has no objects; one that was takes some saying so."""
        self._absences += 1
        if self._absences >= ABSENCES or not self.objects:
            self._take({})
            self.synced.set()

    def _ill(self, trouble: str, level: int) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            log.log(level, "cannot follow %s: %s", self.kind.resource, trouble)

    def _well(self) -> None:
        self._failures = self._absences = 0
        if self.trouble:
            log.info("following %s again", self.kind.resource)
            self.trouble = ""

    def _heard(self) -> None:
        self._heard_at = time.monotonic()

    def _trimmed(self, found: Object) -> Object:
        found = trimming.trim(self.kind, found)
        return self._trim(found) if self._trim else found

    def _tell(self, old: Object | None, new: Object | None) -> None:
        try:
            self._changed(old, new)
        except Exception:
            log.exception("a change of %s %s is lost", self.kind.resource, _key(new or old or {}))


def _key(found: Object) -> Key:
    meta = found["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _uid(found: Object) -> str:
    return str(found["metadata"].get("uid", ""))


def _version(found: Object) -> int:
    return _number(found["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    """A version as a number, to tell old from new; -1 where a server counts otherwise."""
    return int(version) if version.isdecimal() else -1


def _pause(failures: int) -> float:
    return min(LATEST_S, SOONEST_S * 2.0 ** min(failures, 10)) * _spread()


def _spread() -> float:
    """Those that failed together do not come back together."""
    return random.uniform(0.5, 1.0)  # noqa: S311 - no secret
