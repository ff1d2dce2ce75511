"""What the routes share: the cluster, and the parts of the server around it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request

from roost.api.jobs import CHANGING_KEYS
from roost.core.spec import JobId, NodeId
from roost.errors import Conflict, NotFound
from roost.server.auth import Caller, Tokens
from roost.server.backend import ClusterBackend
from roost.server.concurrency import RequestLimiter
from roost.server.errors import HttpError
from roost.server.file_responses import FileResponses
from roost.server.hub import StreamHub, ViewSources
from roost.server.log_followers import LogFollowers
from roost.server.login_links import LoginLinks
from roost.server.metrics import Metrics
from roost.server.options import ServerOptions
from roost.server.permissions import visible
from roost.server.streams import OpenStreams
from roost.server.visibility import Visibility, visibility_of
from roost.store import Fenced, StoreBroken
from roost.store.rows import MOST, JobQuery, JobRow
from roost.web.assets import Assets

T = TypeVar("T")

_NAMED = 5
_PAGES = 20


class Context:
    """The server around one cluster."""

    def __init__(self, cluster: ClusterBackend, options: ServerOptions) -> None:
        self.cluster, self.options = cluster, options
        self._threads = ThreadPoolExecutor(options.readers, thread_name_prefix="roost-read")
        # What looks into the folders of jobs may be held up by them, and nothing else with it.
        self._looks = ThreadPoolExecutor(options.readers, thread_name_prefix="roost-look")
        self._looking: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        self._stops: list[Callable[[], None]] = []
        self.tokens = Tokens(cluster.store.accounts.find_token, self.read, options.token_cache_s)
        self.streams = OpenStreams(self.tokens, options)
        #: Whether there are more connections than there may be; the listener knows.
        self.crowded: Callable[[], bool] = lambda: False
        self.limiter = RequestLimiter(options.questions_per_user)
        self.file_responses = FileResponses(self.read, options)
        self.assets = Assets(reload=bool(os.environ.get("ROOST_PORTAL_RELOAD")))
        sources = ViewSources(
            cluster.nodes,
            cluster.queues,
            cluster.view,
            self._rows,
            cluster.now,
            lambda: self.assets.digest,
        )
        self.hub = StreamHub(sources, cluster.epoch, options)
        self.followers = LogFollowers(cluster.engine, self.read, options)
        self.metrics = Metrics(cluster, self.streams)
        self.links = LoginLinks()

    def is_crowded(self) -> bool:
        """Whether new requests have to wait until others are over."""
        return self.crowded()

    async def read(self, call: Callable[[], T]) -> T:
        """Run a blocking call in one of a bounded number of threads.

        A store that turns out to be broken ends the server.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (StoreBroken, Fenced) as error:
            self.cluster.halt(error)
            raise

    async def look(self, user: str, call: Callable[[], T]) -> T:
        """Run a call that looks into the folders of a user's job; raises Refused for too many."""
        most = self.options.looks_per_user
        if self._looking[user] >= most:
            raise HttpError(429, "retry", f"{user} looks at files {most} times at once already")
        self._looking[user] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._looks, call)
        finally:
            self._looking -= Counter({user: 1})

    async def start(self) -> None:
        """Begin to listen to the cluster; a second time changes nothing."""
        if self._tasks:
            return
        for listener in (self.hub.changed, self.followers.changed):
            self._stops.append(self.cluster.feed.subscribe(listener))
        self.hub.load(await self.read(self.cluster.store.jobs.open), self.cluster.seq)
        for work in (
            self.streams.keep_checking(),
            self.followers.keep_looking(),
            self.hub.keep_fresh(),
        ):
            self._tasks.append(asyncio.create_task(work))

    async def close(self) -> None:
        """End all streams and stop listening."""
        self.streams.stop()
        stops, tasks = self._stops, self._tasks
        self._stops, self._tasks = [], []
        for stop in stops:
            stop()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.hub.close()
        for threads in (self._threads, self._looks):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _rows(self, names: Sequence[str]) -> list[JobRow]:
        return await self.read(lambda: self.cluster.store.jobs.some(names))

    def owner(self, job: str) -> str | None:
        """The user of a job: empty if it is a node, ``None`` where that is not known."""
        found = self.cluster.core.jobs.get(JobId(job))
        if found is not None:
            return found.spec.user
        return "" if NodeId(job) in self.cluster.core.ledger.nodes else None

    def visibility(self, caller: Caller) -> Visibility:
        """How a caller sees."""
        return visibility_of(caller, self.owner)

    def view(self, caller: Caller, row: JobRow) -> Mapping[str, Any]:
        """A job as a caller sees it: what is durable, and what it says of itself just now."""
        view, now = row.view, self.cluster.view(row)
        if now["state"] == row.state:  # else it is about to change, and that is not durable yet
            view = {**view, **{key: now[key] for key in CHANGING_KEYS if key in now}}
        return self.visibility(caller).view(view)

    async def find(self, caller: Caller, name: str) -> JobRow:
        """The job that a caller means by an id or a name; raises NotFound or Conflict."""
        row = await self.read(lambda: self.cluster.store.jobs.get(name))
        if row is not None and visible(caller, row.user):
            return row
        visibility = self.visibility(caller)
        named = [job for job in self.hub.open_jobs(visibility) if job.name == name]
        if len(named) > 1:
            ids = ", ".join(sorted(job.id for job in named)[:_NAMED])
            more = ", ..." if len(named) > _NAMED else ""
            raise Conflict(f"{len(named)} jobs are named {name!r}: {ids}{more}")
        if named:
            found = await self.read(lambda: self.cluster.store.jobs.get(named[0].id))
        else:
            found = await self.read(lambda: self._newest(visibility, name))
        if found is None:
            raise NotFound(f"no job {name!r}")
        return found

    def _newest(self, visibility: Visibility, name: str) -> JobRow | None:
        """The newest of the jobs that carry exactly that name; the store looks for parts of it."""
        users = () if visibility.all else (visibility.user,)
        for number in range(_PAGES):
            query = JobQuery(users=users, name=name, offset=number * MOST, limit=MOST)
            page = self.cluster.store.jobs.find(query)
            for row in page.items:
                if row.name == name:
                    return row
            if (number + 1) * MOST >= page.total:
                break
        return None


async def context(request: Request) -> Context:
    """The context of a request's app."""
    found: Context = request.app.state.roost
    return found
