"""``roost bench deep`` on a queue that is not deep."""

from __future__ import annotations

import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from tests.unit.cli.told import roost

from roost_bench.live import deep
from roost_bench.live.deep_home import documents
from roost_bench.live.silences import listening

SHALLOW = deep.QueueDepth(queued=30, running=2, rate=20, seconds=0.5, policy="backfill", calls=2)


def test_everything_is_measured_on_a_real_server() -> None:
    figures = {one.name: one for one in deep.measured(SHALLOW, list(deep.measures()), print)}

    assert [name for name in deep.measures() if not any(f.startswith(name) for f in figures)] == []
    assert [name for name, one in figures.items() if not one.value > 0] == []
    assert figures["stream-size"].value < 1
    assert figures["submit"].value <= figures["submit-p99"].value <= figures["submit-max"].value


def test_the_same_jobs_every_time_those_that_run_first() -> None:
    jobs = list(documents(3, 200))

    assert jobs == list(documents(3, 200))
    assert [job["name"] for _, job in jobs[:4]] == ["runs", "runs", "runs", "waits"]
    assert max(Counter(user for user, _ in jobs).values()) <= 10
    assert max(job["workers"] for _, job in jobs[3:]) == 3, "none is larger than the machine"


def test_the_help_names_every_measure() -> None:
    told = roost("bench", "deep", "--help").out

    assert [name for name in deep.measures() if name not in told] == []


def test_a_silence_of_the_server_is_noticed() -> None:
    class Slow(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        asked = 0

        def do_GET(self) -> None:
            Slow.asked += 1
            if Slow.asked == 3:
                time.sleep(0.2)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Slow) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with listening(f"http://127.0.0.1:{server.server_port}") as silence:
            deadline = time.monotonic() + 60
            while Slow.asked < 4 and time.monotonic() < deadline:
                time.sleep(0.01)
        server.shutdown()
    assert silence.ms >= 200
