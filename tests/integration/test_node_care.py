"""Taking machines and devices out of service, and putting them back: as an administrator does."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.commands import ROOST, run
from tests.integration.test_server import Served, served


def told(home: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return run(ROOST, *args, cwd=home, ROOST_HOME=str(home))


def test_a_node_is_drained_stays_so_and_is_used_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with served(home) as here:
        with here.client() as client:
            name = client.get("/nodes").json()["items"][0]["id"]
        job = here.submit("sleep 1000", "long")
        here.until(job, "running")

        gone = told(home, "nodes", "drain", name, "--reason", "new memory", "--wait")
        assert gone.stdout == f"{name}  drained\n", gone.stderr
        waits = here.until(job, "queued")
        assert waits["failures"] == 0
        assert "is being drained by " in waits["reason"]
        shown = told(home, "nodes").stdout
        assert "drained by " in shown
        assert shown.rstrip().endswith("0/2 (0 %)")
        for verb in ("nodes", "top"):
            assert ": new memory" in told(home, verb).stdout
        assert "new memory" in told(home, "explain", job).stdout
        assert "its node" in told(home, "events").stdout
        _only_admins(here, name)
        assert "no node 'n7'" in told(home, "nodes", "drain", "n7").stderr
        assert here.process is not None
        here.process.kill()

    with served(home) as here:
        with here.client() as client:
            (node,) = client.get("/nodes").json()["items"]
            assert (node["state"], node["notice"]["reason"]) == ("drained", "new memory")
        here.until(job, "queued")
        assert told(home, "nodes", "undrain", name).stdout == f"{name}  in use again\n"
        here.until(job, "running")

        assert told(home, "nodes", "disable", name, 1, "--reason", "noisy").returncode == 0
        shown = told(home, "nodes").stdout
        assert f"{name}:1 disabled by " in shown
        assert ": noisy" in shown
        assert told(home, "nodes", "restore", name, 1).stdout == f"{name}:1  in use again\n"
        assert "noisy" not in told(home, "nodes").stdout

        planned = told(home, "nodes", "maintenance", name, "--for", "1h", "--reason", "dust")
        assert planned.stdout.startswith(f"{name}  maintenance from "), planned.stderr
        here.until(job, "queued")
        assert "is being drained by " in told(home, "explain", job).stdout
        assert ": dust" in told(home, "nodes").stdout
        assert "cancelled" in told(home, "nodes", "maintenance", name, "--cancel").stdout
        here.until(job, "running")

        assert told(home, "nodes", "cordon", name).returncode == 0
        other = here.submit("true", "other")
        assert "is cordoned by " in here.until(other, "queued")["reason"]
        here.until(job, "running")
        assert told(home, "nodes", "uncordon", name).returncode == 0
        here.until(other, "succeeded")


def _only_admins(here: Served, name: str) -> None:
    with here.client() as client:
        client.post("/users", json={"name": "bob", "role": "user", "unix": ""})
        made = client.post("/tokens", json={"user": "bob", "label": "t"})
    with here.client(str(made.json()["secret"])) as bob:
        assert bob.put(f"/nodes/{name}/cordon", json={"drain": True}).status_code == 403
        assert bob.delete(f"/nodes/{name}/cordon").status_code == 403
