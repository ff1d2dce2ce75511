"""Roles, and what each may do: a table that needs no web framework to be read."""

from __future__ import annotations

from enum import StrEnum


class RoutePermission(StrEnum):
    """What a route can ask of its caller."""

    OPEN = "open"
    SELF = "self"
    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    CLUSTER_READ = "cluster:read"
    CLUSTER_WRITE = "cluster:write"
    STATE_READ = "state:read"
    METRICS_READ = "metrics:read"
    ACCOUNTS_READ = "accounts:read"
    ACCOUNTS_WRITE = "accounts:write"


_READ = frozenset(
    {
        RoutePermission.SELF,
        RoutePermission.JOBS_READ,
        RoutePermission.CLUSTER_READ,
        RoutePermission.METRICS_READ,
    }
)

#: Role → what it may do.
ROLES: dict[str, frozenset[RoutePermission]] = {
    "viewer": _READ | {RoutePermission.STATE_READ},
    "user": _READ | {RoutePermission.JOBS_WRITE},
    "admin": frozenset(RoutePermission),
}
