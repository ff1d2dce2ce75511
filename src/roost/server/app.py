"""The app: routes by noun, one gate in front of them, one description of all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from roost import __version__
from roost.errors import Fatal
from roost.server import (
    accounts,
    errors,
    folders,
    health,
    job_files,
    job_lists,
    jobs,
    live_stream,
    logs,
    machine,
    nodes,
    notifications,
    pages,
    profiles,
    queues,
    retention,
    sessions,
    snapshots,
)
from roost.server.backend import ClusterBackend
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.middleware import RequestFilter
from roost.server.options import ServerOptions
from roost.server.permissions import LOGIN_PATH, OPEN_PATHS, PAGE_PATHS, undeclared

_ABOUT = """The REST API of Roost. Every path but /healthz, /readyz and the portal's pages needs a
token in the header `Authorization: Bearer TOKEN`, or a browser's session. Lists are paged,
filtered and sorted by the server. Errors have one shape:
`{"error": {"kind", "message", "hint"}, "errors": []}`."""


def create_app(cluster: ClusterBackend, options: ServerOptions | None = None) -> FastAPI:
    """An app that serves a running cluster; raises Fatal if a route declares no permission."""
    here = Context(cluster, options or ServerOptions())

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await here.start()
        try:
            yield
        finally:
            await here.close()

    app = FastAPI(
        title="Roost",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.roost = here
    for module in (
        job_lists,  # its paths before those with a job's name in them
        jobs,
        job_files,
        folders,
        snapshots,
        profiles,
        logs,
        live_stream,
        nodes,
        notifications,
        queues,
        retention,
        accounts,
        sessions,
        machine,
        health,
        pages,
    ):
        app.router.routes.extend(module.router.routes)  # flat, so that each can be looked at
    if missing := undeclared(app):
        raise Fatal(f"routes without a declared permission: {', '.join(missing)}")
    errors.install(app)
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]
    app.add_middleware(
        RequestFilter,
        options=here.options,
        tokens=here.tokens,
        seen=here.metrics.seen,
        crowded=here.is_crowded,
    )
    return app


def _description(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        routes = [r.described() if isinstance(r, CheckedRoute) else r for r in app.routes]
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=routes
        )
        schemes = found.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["token"] = {"type": "http", "scheme": "bearer"}
        schemes["session"] = {"type": "apiKey", "in": "cookie", "name": "roost_session_PORT"}
        for path, operations in found["paths"].items():
            for method, operation in operations.items():
                free = path in OPEN_PATHS | PAGE_PATHS or (path, method) == (LOGIN_PATH, "post")
                operation["security"] = [] if free else [{"token": []}, {"session": []}]
        app.openapi_schema = found
    return app.openapi_schema
