"""The operator: mirrors what the API server has, and leads when it is its turn.

Every replica mirrors and serves its health; one of them leads (``term``). A replica that follows is
ready to take over with what it has mirrored by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from roost import placement, policies
from roost.errors import Retryable, RoostError
from roost.jobs.clock import WallClock
from roost.jobs.fresh_start import prepare
from roost.kubernetes.client.api import Api, Object, Unpermitted
from roost.kubernetes.client.api_thread import ApiThread
from roost.kubernetes.client.kinds import (
    JOBS,
    KUEUE_GROUP,
    NAMESPACES,
    NODES,
    PODS,
    ResourceKind,
)
from roost.kubernetes.client.lease import Deposed, LeaseCandidate
from roost.kubernetes.client.mirror import Mirror
from roost.kubernetes.client.namespaced_mirror import NamespacedMirror, is_unpermitted
from roost.kubernetes.filters import NODE_FILTERS
from roost.kubernetes.filters.turns import FilterFactory
from roost.kubernetes.gangs.discovery import SCHEDULER, GangSource
from roost.kubernetes.gangs.foreign_pods import ForeignPods
from roost.kubernetes.kueue.source import KueueQueues
from roost.kubernetes.objects.trimming import trimmer
from roost.kubernetes.operator.announcement import (
    DEFAULT_PLACER,
    DEFAULT_POLICY,
    Announcement,
)
from roost.kubernetes.operator.binding import Binder
from roost.kubernetes.operator.health import HealthServer
from roost.kubernetes.operator.leader_label import LeaderLabel
from roost.kubernetes.operator.leadership import Leadership
from roost.kubernetes.operator.nodes import LOST_S
from roost.kubernetes.operator.scope import COUNTED_EVERYWHERE, NamespaceScope
from roost.kubernetes.operator.workload import SourceFactory

_log = logging.getLogger(__name__)

#: How long to wait before leading again after something went wrong that must not, in seconds.
_PAUSE_S = 1.0
#: How often mirrors are looked at before the first time.
_LOOK_S = 0.02
#: How often it is looked at whether a namespace that was left alone may be read by now, in seconds.
_SCOPE_S = 1.0
#: Kinds without which a namespace is not served: pods without their Jobs would look like orphans.
_NEEDED = (NODES, PODS, JOBS)


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """How an operator runs."""

    policy: str = DEFAULT_POLICY
    placer: str = DEFAULT_PLACER
    namespace: str = "default"
    identity: str = "roost"
    #: The pod that it runs in; empty: none, or one that nobody looks for.
    pod: str = ""
    lease_name: str = "roost-operator"
    lease_s: float = 15.0
    scheduler: str = SCHEDULER
    connections: int = 64
    lost_s: float = LOST_S
    #: The namespaces that are served; none: all.
    namespaces: tuple[str, ...] = ()
    #: Where health and figures are served; None: nowhere.
    metrics_port: int | None = 8612


def pod_sources(scheduler: str = SCHEDULER) -> list[SourceFactory]:
    """What is scheduled without being Roost's own: gangs, what others placed; queues of Kueue."""
    return [
        SourceFactory(GangSource.kinds, lambda context: GangSource(context, scheduler)),
        SourceFactory(ForeignPods.kinds, lambda context: ForeignPods(context, scheduler)),
        SourceFactory(KueueQueues.kinds, KueueQueues),
    ]


class Operator:
    """Mirrors, leads when it can, and serves its health."""

    def __init__(
        self,
        api: Api,
        options: OperatorOptions,
        sources: Sequence[SourceFactory] = (),
        beside: ApiThread | None = None,
        filters: Sequence[FilterFactory] = NODE_FILTERS,
    ) -> None:
        self.api, self.options = api, options
        self.policy = policies.policy(options.policy)
        self.placer = placement.placer(options.placer)
        self.clock = WallClock()
        self.sources = [*sources, *pod_sources(options.scheduler)]
        self.filters = filters
        asked_for = [*(one.kinds for one in self.sources), *(one.kinds for one in filters)]
        wanted = dict.fromkeys(kind for kinds in asked_for for kind in kinds)
        self.mirrors: dict[ResourceKind, Mirror | NamespacedMirror] = {
            kind: self._mirror(kind) for kind in dict.fromkeys((NODES, PODS, *wanted))
        }
        #: Whether pods of other namespaces cannot be seen.
        self.is_blind = False
        self.leader = LeaseCandidate(
            api,
            options.lease_name,
            options.namespace,
            options.identity,
            lease_s=options.lease_s,
            renew_s=options.lease_s * 2 / 3,
            retry_s=options.lease_s * 2 / 15,
            beside=beside,
        )
        self.leader.metadata = Announcement(
            options.policy,
            options.placer,
            scheduler=options.scheduler,
            namespaces=options.namespaces,
        ).metadata()
        self.label = LeaderLabel(api, options.namespace, options.pod)
        self.binder = Binder(api, self.leader.check, max(1, options.connections * 3 // 4))
        self.leadership: Leadership | None = None
        self.health = HealthServer(self)

    def _mirror(self, kind: ResourceKind, *, everywhere: bool = True) -> Mirror | NamespacedMirror:
        def changed(old: Object | None, new: Object | None) -> None:
            if self.leadership is not None:
                self.leadership.observe(kind, old, new)

        counted = everywhere and kind.resource in COUNTED_EVERYWHERE
        if not self.options.namespaces or not kind.namespaced or counted:
            return Mirror(self.api, kind, changed, trim=trimmer(kind))
        return NamespacedMirror(
            self.api, kind, changed, self.options.namespaces, trim=trimmer(kind)
        )

    @property
    def synced(self) -> bool:
        """Whether all objects were read once, of those kinds that may be read at all."""
        return not self.late

    @property
    def late(self) -> list[ResourceKind]:
        """Kinds of which nothing was read yet. One without permission is not waited for.

        The rest is served without it; but nothing can be without nodes and pods, and without Jobs
        their pods would look like orphans. Of several namespaces those that may not be read are
        left alone. Of Kueue's objects one version may be out of reach: while its conversion
        webhook is.
        """
        return [
            kind
            for kind, mirror in self.mirrors.items()
            if any(
                not part.synced.is_set()
                and ((is_needed and not is_part) or not is_unpermitted(part))
                for is_needed, is_part, part in _parts(kind, mirror)
            )
            and not (kind.group == KUEUE_GROUP and mirror.trouble)
        ]

    @property
    def served(self) -> tuple[str, ...]:
        """The namespaces that are served now: of those asked for, the ones that may be read."""
        return tuple(name for name in self.options.namespaces if not self.left_alone(name))

    def left_alone(self, namespace: str) -> str:
        """Why a namespace is not served although it was asked for; empty: it is."""
        for kind in _NEEDED:
            mirror = self.mirrors.get(kind)
            part = mirror.parts.get(namespace) if isinstance(mirror, NamespacedMirror) else None
            if part is not None and not part.synced.is_set():
                return part.trouble or f"its {kind.plural} were not read yet"
        return ""

    def objects(self, kind: ResourceKind) -> Mapping[tuple[str, str], Object]:
        """Mirrored objects of a kind; none, if no source asked for it."""
        mirror = self.mirrors.get(kind)
        return {} if mirror is None else mirror.objects

    async def run(self) -> None:
        """Run until cancelled."""
        await self._look_around()
        tasks = [
            asyncio.create_task(mirror.run(), name=f"mirror {kind.plural}")
            for kind, mirror in self.mirrors.items()
        ]
        if self.options.metrics_port is not None:
            await self.health.start(self.options.metrics_port)
        await self.label.take_off()
        leading = asyncio.create_task(self.leader.run(self._lead_marked), name="leader")
        try:
            await asyncio.wait([*tasks, leading], return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, leading):
                if task.done():
                    await task
        finally:
            for task in (leading, *tasks):
                task.cancel()
                with suppress(asyncio.CancelledError, RoostError):
                    await task
            await self.health.stop()

    async def _look_around(self) -> None:
        """See which kinds that take room everywhere may be read in the served namespaces only."""
        if not self.options.namespaces:
            return
        for kind in [kind for kind in self.mirrors if kind.resource in COUNTED_EVERYWHERE]:
            if await self._may_list(kind):
                continue
            self.mirrors[kind] = self._mirror(kind, everywhere=False)
            self.is_blind = self.is_blind or kind is PODS
            _log.warning(
                "%s of other namespaces cannot be listed: what they take is not known", kind.plural
            )

    async def _may_list(self, kind: ResourceKind) -> bool:
        while True:
            try:
                async for _ in self.api.pages(kind, page=1):
                    break
            except Unpermitted:
                return False
            except Retryable as error:
                await asyncio.sleep(max(error.after, _PAUSE_S))
            except RoostError:
                return True  # whatever it is, its mirror will say so
            else:
                return True

    async def _lead_marked(self) -> None:
        marking = asyncio.create_task(self.label.put_on(), name="label")
        try:
            await self._lead()
        finally:
            marking.cancel()
            with suppress(asyncio.CancelledError):
                await marking
            await self.label.take_off()

    async def _lead(self) -> None:
        while self.late:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_LOOK_S)
        # What the last leader did until now may be news to us: a Job that it ended ends here, too.
        await asyncio.gather(*(mirror.refresh() for mirror in self.mirrors.values()))
        while True:
            scope = await self._scope()
            self.leadership = Leadership(
                self.policy,
                self.placer,
                self.objects,
                self.clock.now,
                self.sources,
                api=self.api,
                binder=self.binder,
                identity=self.leader.identity,
                lost_s=self.options.lost_s,
                filters=self.filters,
                scope=scope,
            )
            prepare(self.leadership.reconciler.policy)
            try:
                await self._lead_within(scope)
            except Deposed:
                raise
            except Exception:  # noqa: BLE001 - the objects are all there is: begin with them
                _log.exception("everything is folded anew")
                await asyncio.sleep(_PAUSE_S)
            finally:
                self.leadership = None

    async def _scope(self) -> NamespaceScope:
        """What can be served, as soon as there is anything; what cannot is told once."""
        told = ""
        while True:
            alone = [name for name in self.options.namespaces if self.left_alone(name)]
            for name in alone:
                if told != ",".join(alone):
                    _log.warning("namespace %s is left alone: %s", name, self.left_alone(name))
            told = ",".join(alone)
            if not self.options.namespaces or self.served:
                return NamespaceScope(self.served, self.is_blind)
            await asyncio.sleep(_SCOPE_S)

    async def _lead_within(self, scope: NamespaceScope) -> None:
        """Lead until another namespace of those asked for can be served, too."""
        assert self.leadership is not None  # noqa: S101 - for mypy
        work = asyncio.create_task(self.leadership.run(), name="leadership")
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=_SCOPE_S if scope.namespaces else None)
                self._forget_namespaces()
                if not work.done() and self.served != scope.namespaces:
                    _log.info("serving the namespaces %s from now on", ", ".join(self.served))
                    return
            await work
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work

    def _forget_namespaces(self) -> None:
        """Know nothing of a namespace that is gone: with it went the right to hear of its end."""
        there = self.mirrors.get(NAMESPACES)
        if there is None or not there.synced.is_set():
            return
        for mirror in self.mirrors.values():
            for name, part in getattr(mirror, "parts", {}).items():
                if part.objects and ("", name) not in there.objects:
                    part.clear()


def _parts(
    kind: ResourceKind, mirror: Mirror | NamespacedMirror
) -> list[tuple[bool, bool, Mirror]]:
    """The mirrors of a kind: whether nothing can be without it, whether it is of one namespace."""
    if isinstance(mirror, NamespacedMirror):
        return [(kind in _NEEDED, True, part) for part in mirror.parts.values()]
    return [(kind in _NEEDED, False, mirror)]
