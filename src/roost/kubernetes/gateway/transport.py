"""The way of a command line to a cluster of Kubernetes: what ``roost --context`` talks by."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from roost.kubernetes.client.api import Api
from roost.kubernetes.gateway.reader import ClusterReader

if TYPE_CHECKING:
    from roost.kubernetes.gateway.local import Gateway

_PREFIX = "/api/v1"


class GatewayAddress(NamedTuple):
    """Where a gateway is, and the token that opens it."""

    url: str
    token: str


class ClusterTransport(httpx.BaseTransport):
    """How a command line talks to a cluster: reads it itself, or opens a gateway for the rest.

    A question that a few objects answer is answered here (``ClusterReader``). The first request
    that needs more (a forecast, a wish, a stream) opens a gateway, which gets all that follow.
    """

    def __init__(self, context: str, kubeconfig: str = "") -> None:
        self._context, self._kubeconfig = context, kubeconfig
        self._gateway: Gateway | None = None
        self._address = GatewayAddress("", "")
        self._http = httpx.HTTPTransport()
        self._runner: asyncio.Runner | None = None
        self._api: Api | None = None
        # Verbs that watch ask from two threads, and one event loop serves one of them at a time.
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request; raises what is wrong with the way to the cluster."""
        with self._lock:
            if self._gateway is None and request.method == "GET":
                found = self._read(request)
                if found is not None:
                    return httpx.Response(200, json=found, request=request)
            self._open()
        # Outside of the lock: a stream lasts for hours, and other threads ask meanwhile.
        url = httpx.URL(self._address.url)
        request.url = request.url.copy_with(host=url.host, port=url.port)
        request.headers["Host"] = url.netloc.decode()
        request.headers["Authorization"] = f"Bearer {self._address.token}"
        return self._http.handle_request(request)

    def close(self) -> None:
        """Let go of everything; a second time changes nothing."""
        with self._lock:
            self._http.close()
            if self._runner is not None:
                if self._api is not None:
                    self._runner.run(self._api.close())
                self._runner.close()
                self._runner = self._api = None
            if self._gateway is not None:
                self._gateway.close()
                self._gateway = None

    def _read(self, request: httpx.Request) -> Any:
        query = request.url.params
        params = {name: query.get_list(name) for name in query}
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(self._answer(request.url.path.removeprefix(_PREFIX), params))

    async def _answer(self, path: str, params: dict[str, list[str]]) -> Any:
        if self._api is None:
            self._api = await Api.connect(context=self._context, kubeconfig=self._kubeconfig)
        return await ClusterReader(self._api).answer(path, params)

    def _open(self) -> None:
        # The web server and all it needs take a second to load: only requests that need them pay.
        from roost.kubernetes.gateway.local import Gateway  # noqa: PLC0415

        if self._gateway is None:
            gateway = Gateway(self._context, self._kubeconfig)
            self._address = gateway.open()
            self._gateway = gateway
