"""One user cannot fill the disk for all: a real server, and jobs that try to."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from tests.support.server_process import ServerProcess

MIB = 1 << 20
#: Each writes on and on, in a way of its own.
FLOOD = "while :; do head -c 4000000 /dev/zero | tr '\\0' x; echo; sleep 0.3; done"
WRITERS = {
    "files": "cd $ROOST_CHECKPOINT_DIR; i=0; while :; do i=$((i+1)); "
    "head -c 4000000 /dev/zero > f$i; sleep 0.2; done",
    "small": "python3 -c 'import itertools, pathlib, time\n"
    "for i in itertools.count():\n"
    '  pathlib.Path(f"f{i}").touch()\n'
    "  i % 500 or time.sleep(0.1)'",
    "nameless": "python3 -c 'import os, time\n"
    'f = open("f", "wb", 0)\n'
    'os.unlink("f")\n'
    "while True:\n"
    '  f.write(b"x" * 4000000)\n'
    "  time.sleep(0.2)'",
}
#: They look large, and are not.
HARMLESS = {
    "sparse": "truncate -s 1T large; i=0; while [ $i -lt 300 ]; do i=$((i+1)); "
    'ln large "l$i"; done; exec sleep 600',
    "links": "head -c 1000000 /dev/zero > f; i=0; while [ $i -lt 300 ]; do i=$((i+1)); "
    'ln f "l$i"; done; exec sleep 600',
}


class Person:
    """A user of the server, with a token of its own."""

    def __init__(self, server: ServerProcess, name: str, **bounds: int) -> None:
        self.name = name
        body = {"name": name, "unix": getpass.getuser(), **bounds}
        made = server.ask("POST", "/api/v1/users", body)
        assert made is not None
        assert made.status_code == 201, made.text
        told = server.ask("POST", "/api/v1/tokens", {"user": name})
        assert told is not None
        self._token = str(told.json()["secret"])
        self.move(server)

    def move(self, server: ServerProcess) -> None:
        """Find the server, which may have been started anew."""
        answer = server.ask("GET", "/readyz")
        assert answer is not None
        self._base = str(answer.url.copy_with(path="/api/v1"))

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request."""
        headers = {"Authorization": f"Bearer {self._token}"}
        return httpx.request(method, self._base + path, json=body, headers=headers, timeout=60)

    def submit(self, name: str, script: str) -> httpx.Response:
        """Ask for a job."""
        job = {"name": name, "run": script}
        return self.ask("POST", "/jobs", {"job": job})

    def begin(self, name: str, script: str) -> str:
        """A job that is taken."""
        answer = self.submit(name, script)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def view(self, job: str) -> dict[str, Any]:
        """A job as it is."""
        return dict(self.ask("GET", f"/jobs/{job}").json())

    def use(self) -> int:
        """What is taken of the disk."""
        return int(self.ask("GET", "/whoami").json()["use"]["disk_bytes"])


def wait(until: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_floods_are_cut_or_stopped_and_others_go_on(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "home", 8)
    try:
        server.start(options=("--user-disk", "200Gi"))
        assert server.ready(), server.said()
        bob = Person(server, "bob")
        calm = Person(server, "calm", disk_bytes=20 * MIB, disk_max_bytes=30 * MIB)
        ada = Person(server, "ada", disk_bytes=20 * MIB)
        others = bob.begin("others", "while :; do echo here; sleep 0.2; done")
        harmless = [calm.begin(name, script) for name, script in HARMLESS.items()]
        flood = ada.begin("flood", FLOOD)
        wait(lambda: ada.view(flood).get("restraint"), "the flood is restrained")
        refused = ada.submit("more", "true")
        assert refused.status_code == 507, refused.text
        assert f"most of it {flood}" in refused.json()["error"]["message"]
        assert ada.view(flood)["state"] == "running"
        ways = {}
        for name, script in WRITERS.items():
            user = Person(server, name, disk_bytes=20 * MIB, disk_max_bytes=30 * MIB)
            ways[user] = user.begin(name, script)

        # Bounds, and what there is, are known to the next server at once.
        server.kill()
        server.start(options=("--user-disk", "200Gi"))
        assert server.ready(), server.said()
        for user in (ada, bob, calm, *ways):
            user.move(server)
        log = server.home / "runs" / flood / "1" / "logs" / "worker-0.log"
        before = log.stat().st_size
        for user, job in ways.items():
            wait(lambda u=user, j=job: u.view(j)["state"] == "failed", f"{job} is stopped")  # type: ignore[misc]
            verdict = user.view(job)["verdict"]
            assert (verdict["kind"], verdict["whose"]) == ("disk-bound", "user"), verdict
            assert user.view(job)["attempt"] == 1
        wait(lambda: ada.use() > 20 * MIB, "the flood is measured")
        assert ada.submit("more", "true").status_code == 507
        assert before <= log.stat().st_size < before + 4 * MIB
        assert b"[roost: ada has " in log.read_bytes()

        assert [calm.view(job)["state"] for job in harmless] == ["running", "running"]
        assert bob.view(others)["state"] == "running"
        assert calm.use() < 20 * MIB
        done = bob.begin("new", "true")
        wait(lambda: bob.view(done)["state"] == "succeeded", "others go on")

        # Whoever frees space may go on.
        ada.ask("POST", f"/jobs/{flood}/cancel")
        wait(lambda: ada.view(flood)["state"] == "cancelled", "the flood is over")
        assert ada.ask("DELETE", f"/jobs/{flood}").status_code == 200
        ada.begin("more", "true")
    finally:
        for job in server.get("/jobs?state=running")["items"] if server.alive else ():
            server.ask("POST", f"/api/v1/jobs/{job['id']}/cancel")
        wait(lambda: not server.get("/jobs?state=running")["items"], "nothing is left")
        server.close()
