"""A server with very many GPUs: the real cluster, store and pages, over nodes that run nothing."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from tests.unit.server.worlds import Puppets, world

from roost.core.events import NodeJoined
from roost.core.spec import NodeId, NodeSpec, RunId
from roost.engines import Assigned, Report

_WITHIN_S = 60.0


class ManyNodes(Puppets):
    """An engine of many nodes; runs start at once."""

    def __init__(self, nodes: int, gpus: int = 8) -> None:
        super().__init__(gpus)
        self.nodes = nodes

    async def start(
        self, report: Callable[[Report], None], alive: Mapping[RunId, Assigned]
    ) -> None:
        del alive
        self._report = report
        for number in range(self.nodes):
            kind = "H100" if number % 4 == 0 else "A100"
            spec = NodeSpec(NodeId(f"node-{number:03}"), gpus=self.gpus, kind=kind)
            report(NodeJoined(0.0, spec))
        self.joined.set()


class LargeCluster:
    """Where it is, and the token of its administrator."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token


@contextmanager
def large_cluster(home: Path, nodes: int) -> Iterator[LargeCluster]:
    """A server of so many nodes with 8 GPUs each, in a thread of its own."""
    home.mkdir(parents=True, exist_ok=True)
    up: list[LargeCluster] = []
    loops: list[tuple[asyncio.AbstractEventLoop, uvicorn.Server]] = []
    ready = threading.Event()

    async def serve() -> None:
        async with world(home, engine=ManyNodes(nodes)) as made:
            config = uvicorn.Config(
                made.app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            task = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 - uvicorn tells nobody
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            up.append(LargeCluster(f"http://127.0.0.1:{port}", made.tokens["root"]))
            loops.append((asyncio.get_running_loop(), server))
            ready.set()
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(_WITHIN_S), "the server did not start"
        yield up[0]
    finally:
        for loop, server in loops:
            loop.call_soon_threadsafe(server.handle_exit, signal.SIGTERM, None)
        thread.join(_WITHIN_S)


def main() -> None:
    """Serve one for people to look at."""
    import sys  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    with large_cluster(Path(tempfile.mkdtemp()), int(sys.argv[1])) as made:
        print(made.url, made.token, flush=True)  # noqa: T201
        threading.Event().wait()


if __name__ == "__main__":
    main()
