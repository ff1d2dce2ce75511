"""A gateway for one command line: in a thread, on a port of loopback, gone when it ends.

The command line and everything it is made of talk to it as to any server: with an address and a
token of its own. It has the rights of its user, by the kubeconfig.
"""

from __future__ import annotations

import asyncio
import getpass
import tempfile
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path

from roost.kubernetes.client.api import Api
from roost.kubernetes.gateway.backend import KubernetesCluster
from roost.kubernetes.gateway.transport import GatewayAddress
from roost.server.app import create_app
from roost.server.http import listen, serve
from roost.store import User, open_store


class Gateway:
    """A gateway to the cluster of a kubeconfig's context, while it is open."""

    def __init__(self, context: str, kubeconfig: str = "") -> None:
        self._context, self._kubeconfig = context, kubeconfig
        # How the thread hands over to the caller of open(): the address, or what went wrong.
        self._ready: Future[GatewayAddress] = Future()
        self._cluster: KubernetesCluster | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def open(self) -> GatewayAddress:
        """Begin to serve; raises what is wrong with the way to the cluster."""
        self._thread.start()
        return self._ready.result()

    def close(self) -> None:
        """Stop serving."""
        if self._loop is not None and self._cluster is not None:
            # stop() resolves a future of the gateway's loop, which only that loop's thread may do.
            self._loop.call_soon_threadsafe(self._cluster.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - for whoever opens it
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-")))
            api = await Api.connect(context=self._context, kubeconfig=self._kubeconfig)
            stack.push_async_callback(api.close)
            store = stack.enter_context(open_store(f"sqlite://{folder / 'views.db'}"))
            cluster = KubernetesCluster(api, store, folder)
            await cluster.start()
            stack.push_async_callback(cluster.close)
            name = getpass.getuser()
            store.accounts.add_user(User(name, "admin", unix=name), actor="gateway")
            _, token = store.accounts.add_token(name, "gateway", actor="gateway")
            sock = stack.enter_context(listen("127.0.0.1", 0))
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            # Set before open() returns, so close() finds both. Signals stay with the main thread.
            self._loop, self._cluster = asyncio.get_running_loop(), cluster
            await serve(
                create_app(cluster),
                sock,
                ready=lambda: self._ready.set_result(GatewayAddress(url, token)),
            )
