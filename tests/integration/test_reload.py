"""A server with a config file: systemd is told, and a reload touches no job."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.faults.faults import cancel_all, running, trial
from tests.unit.cli.told import roost


def test_a_reload_changes_what_it_can_and_says_what_it_cannot(tmp_path: Path) -> None:
    config, ear = tmp_path / "roost.yaml", tmp_path / "ear"
    config.write_text("keep: 30d\n")
    with trial(tmp_path, seed=45) as one, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(ear))
        sock.settimeout(60)
        one.server.start(env={"NOTIFY_SOCKET": str(ear)}, options=("--config", str(config)))
        assert one.server.ready(), one.server.said()
        assert sock.recv(100).startswith(b"READY=1\n")
        job = running(one)
        home = ("--home", str(one.server.home))

        config.write_text("keep: 1d\npolicy: fifo\nlog-level: debug\nallow-host: [lab]\n")
        told = roost("reload", *home)
        assert told.out.splitlines() == [
            "changed: log-level, policy, keep",
            "needs a restart (roost down, roost up; jobs go on): allow-host",
        ]
        assert roost("reload", *home).out.splitlines()[0] == "changed: nothing"
        config.write_text("kep: 1d\n")
        assert "did you mean 'keep'" in roost("reload", *home).error
        view = one.view(job)
        assert (view["state"], view["attempt"]) == ("running", 1)
        cancel_all(one)
