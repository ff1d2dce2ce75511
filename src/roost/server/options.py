"""What can be set about a server, with the bounds that keep one client from hurting the others."""

from __future__ import annotations

from dataclasses import dataclass

from roost.engines.mounts import HostMount

MIB = 1 << 20

#: Names under which a server that listens on loopback may be called.
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Bounds and times of a server, in bytes and seconds.

    ``hosts`` are the names that a request may carry in its Host and Origin headers.
    ``probe`` is a file that tells this machine from others, and what stands in it.
    ``mounts`` are folders that jobs may use by name.
    A revoked token is noticed after at most ``token_cache_s`` plus ``token_check_s``.
    """

    hosts: tuple[str, ...] = LOOPBACK
    probe: tuple[str, str] = ("", "")
    mounts: tuple[HostMount, ...] = ()
    body_bytes: int = 16 * MIB
    small_body_bytes: int = MIB
    bodies_bytes: int = 256 * MIB
    bodies_bytes_per_user: int = 64 * MIB
    body_s: float = 60.0
    header_bytes: int = 32 * 1024
    header_s: float = 10.0
    stalled_s: float = 60.0
    handshake_s: float = 5.0
    handshakes: int = 512
    handshakes_per_peer: int = 256
    json_depth: int = 64
    json_parts: int = 200_000
    readers: int = 8
    token_cache_s: float = 2.0
    token_check_s: float = 2.0
    session_s: float = 7 * 86400.0
    streams_per_token: int = 512
    streams: int = 1500
    connections: int = 2000
    silent_per_peer: int = 500
    tick_s: float = 0.1
    heartbeat_s: float = 10.0
    ring: int = 256
    ring_bytes: int = 4 * MIB
    linger_s: float = 60.0
    poll_s: float = 0.2
    log_bytes: int = 8 * MIB
    log_lines: int = 10_000
    log_chunk: int = 64 * 1024
    piece_bytes: int = 64 * 1024
    large: int = 256
    large_per_user: int = 32
    questions_per_user: int = 16
    looks_per_user: int = 4
    refresh_s: float = 5.0
    stream_jobs: int = 200
    stop_s: float = 3.0
