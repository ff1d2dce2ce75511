"""HTTP: uvicorn with bounds, a graceful end, and no patience for silent connections."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import resource
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from roost.errors import InvalidSpec
from roost.server.context import Context
from roost.server.joined_writes import BatchTransport
from roost.server.listener import Listener, WaitingLine, descriptors, peer_of, reserve
from roost.server.options import ServerOptions
from roost.server.tls import Tls

log = logging.getLogger("roost.server")

#: So many connections are served even where descriptors are very few.
_LEAST = 16
#: How long a peer may take to say goodbye over TLS, in seconds.
_FAREWELL_S = 1.0


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; raises InvalidSpec where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio leaves small answers to wait for acknowledgements (Nagle).
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.set_inheritable(False)
    except (OSError, OverflowError) as error:
        sock.close()
        why = getattr(error, "strerror", None) or error
        hint = "; choose another with --port, 0 for any" if port else ""
        raise InvalidSpec(f"cannot listen on {host} port {port}: {why}{hint}") from None
    return sock


async def serve(
    app: FastAPI,
    sock: socket.socket,
    *,
    tls: Tls | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve an app until a signal comes or the cluster cannot go on; that error is raised."""
    here: Context = app.state.roost
    # Few descriptors mean few connections: a limit that is not reached would protect nothing.
    room = max(_LEAST, descriptors() - reserve())
    options = replace(here.options, connections=min(here.options.connections, room))
    server = _Server(_config(app, options), here, ready)
    server.tls = None if tls is None else tls.context()
    connections = server.server_state.connections
    here.crowded = lambda: len(connections) > options.connections
    broken = here.cluster.broken
    broken.add_done_callback(lambda _: server.stop())
    await server.serve(sockets=[sock])
    if broken.done():
        broken.result()


def _config(app: FastAPI, options: ServerOptions) -> uvicorn.Config:
    # A class for each server: uvicorn makes the instances, so bounds are class attributes, and two
    # servers in one process must not close connections of each other.
    protocol = type(
        "_BoundProtocol",
        (_Protocol,),
        {
            "patience_s": options.header_s,
            "stalled_s": options.stalled_s,
            "most": options.connections,
            "silent": WaitingLine[_Protocol](
                max(1, options.connections // 2), options.silent_per_peer, _Protocol.give_way
            ),
        },
    )
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=max(1, round(options.stop_s)),
        h11_max_incomplete_event_size=options.header_bytes,
    )


class _Server(uvicorn.Server):
    """Tells when it is ready, and closes streams before it waits for connections to end."""

    tls: ssl.SSLContext | None = None

    def __init__(self, config: uvicorn.Config, here: Context, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._here, self._ready = here, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # It gets no socket: it would count connections only after their TLS handshake.
        await super().startup([])
        protocol: Any = self.config.http_protocol_class
        make = functools.partial(
            protocol,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        times: dict[str, Any] = {}
        if self.tls is not None:
            times["ssl_handshake_timeout"] = self._here.options.handshake_s
            times["ssl_shutdown_timeout"] = _FAREWELL_S
        welcome = functools.partial(
            asyncio.get_running_loop().connect_accepted_socket, make, ssl=self.tls, **times
        )
        for sock in sockets or ():
            listener: Any = Listener(
                sock,
                welcome,
                self._here.options,
                established=self.server_state.connections,
                silent=protocol.silent,
            )
            self.servers.append(listener)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams end only when told: uvicorn would wait for them for all of its grace.
        self._here.streams.stop()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """End as after a signal."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGTERM and SIGINT; the end is then a normal one, not that of a signal."""
        # Only the main thread may set handlers; a gateway runs in another one.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Protocol(H11Protocol):
    """HTTP with clients that have to send a request soon after they connect.

    Silent connections give way to others where it gets crowded: the oldest first.
    """

    patience_s = 10.0
    stalled_s = 60.0
    most = 2000
    #: Connections without a request under way, shared by all.
    silent: ClassVar[WaitingLine[_Protocol]]
    _impatient: asyncio.TimerHandle | None = None
    _done: object | None = None
    _peer = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        joined: Any = BatchTransport(transport, self.loop)
        self.transport = joined
        _give_up(transport.get_extra_info("socket"), self.stalled_s)
        self._impatient = self.loop.call_later(self.patience_s, self._too_late)
        # Half of all connections may be silent, and a tenth is kept free for new ones.
        while len(self.connections) > self._crowd and self.silent.give_way():
            pass
        self._peer = peer_of(transport.get_extra_info("peername"))
        self.silent.add(self, self._peer)

    @property
    def _crowd(self) -> int:
        return self.most - self.most // 10

    def give_way(self) -> None:
        """Close an idle connection, at once."""
        self.silent.discard(self)
        # At once: connection_lost comes a turn of the loop later, and the count decides above.
        self.connections.discard(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        # A byte now and then keeps no connection open: the time is for the whole request.
        super().data_received(data)
        if self.cycle is not self._done and self._impatient is not None:
            self._impatient.cancel()
            self._impatient = None
            self.silent.discard(self)

    def on_response_complete(self) -> None:
        self._done = self.cycle
        super().on_response_complete()
        if self.cycle is self._done and self._impatient is None:
            self._impatient = self.loop.call_later(self.patience_s, self._too_late)
            if not self.transport.is_closing():
                self.silent.add(self, self._peer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.silent.discard(self)
        if self._impatient is not None:
            self._impatient.cancel()
        super().connection_lost(exc)

    def _too_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def _give_up(sock: socket.socket | None, seconds: float) -> None:
    """Let the kernel end a connection with a peer that has taken nothing for so long."""
    with contextlib.suppress(OSError, AttributeError):
        if sock is not None:
            milliseconds = int(seconds * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def raise_file_limit(options: ServerOptions) -> None:
    """Runs and streams need open files: ask for as many as we may have."""
    wanted = options.connections + options.large + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    best = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < best:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
