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
from roost.errors import RoostError
from roost.jobs.clock import WallClock
from roost.jobs.fresh_start import prepare
from roost.kubernetes.client.api import Api, Object
from roost.kubernetes.client.api_thread import ApiThread
from roost.kubernetes.client.kinds import JOBS, KUEUE_GROUP, NODES, PODS, ResourceKind
from roost.kubernetes.client.lease import Deposed, LeaseCandidate
from roost.kubernetes.client.mirror import Mirror
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
from roost.kubernetes.operator.workload import SourceFactory

_log = logging.getLogger(__name__)

#: How long to wait before leading again after something went wrong that must not, in seconds.
_PAUSE_S = 1.0
#: How often mirrors are looked at before the first time.
_LOOK_S = 0.02
#: How the trouble of a mirror begins that lacks a permission.
_UNPERMITTED = "no permission to"


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
        self.mirrors: dict[ResourceKind, Mirror] = {
            kind: self._mirror(kind) for kind in dict.fromkeys((NODES, PODS, *wanted))
        }
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
        self.leader.metadata = Announcement(options.policy, options.placer).metadata()
        self.label = LeaderLabel(api, options.namespace, options.pod)
        self.binder = Binder(api, self.leader.check, max(1, options.connections * 3 // 4))
        self.leadership: Leadership | None = None
        self.health = HealthServer(self)

    def _mirror(self, kind: ResourceKind) -> Mirror:
        def changed(old: Object | None, new: Object | None) -> None:
            if self.leadership is not None:
                self.leadership.observe(kind, old, new)

        return Mirror(self.api, kind, changed, trim=trimmer(kind))

    @property
    def synced(self) -> bool:
        """Whether all objects were read once, of those kinds that may be read at all."""
        return not self.late

    @property
    def late(self) -> list[ResourceKind]:
        """Kinds of which nothing was read yet. One without permission is not waited for.

        The rest is served without it; but nothing can be without nodes and pods, and without Jobs
        their pods would look like orphans. Of Kueue's objects one version may be out of reach:
        while its conversion webhook is.
        """
        return [
            kind
            for kind, mirror in self.mirrors.items()
            if not mirror.synced.is_set()
            and (kind in (NODES, PODS, JOBS) or not mirror.trouble.startswith(_UNPERMITTED))
            and not (kind.group == KUEUE_GROUP and mirror.trouble)
        ]

    def objects(self, kind: ResourceKind) -> Mapping[tuple[str, str], Object]:
        """Mirrored objects of a kind; none, if no source asked for it."""
        mirror = self.mirrors.get(kind)
        return {} if mirror is None else mirror.objects

    async def run(self) -> None:
        """Run until cancelled."""
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
            )
            prepare(self.leadership.reconciler.policy)
            try:
                await self.leadership.run()
            except Deposed:
                raise
            except Exception:  # noqa: BLE001 - the objects are all there is: begin with them
                _log.exception("everything is folded anew")
                await asyncio.sleep(_PAUSE_S)
            finally:
                self.leadership = None
