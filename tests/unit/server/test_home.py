"""The folder of a server: a token for its owner alone, and a note that names the right process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.client import endpoints
from roost.client.errors import NoServer
from roost.errors import Conflict, InvalidSpec
from roost.server.home import Home, RunningServer, ticks_of


def test_a_token_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    assert home.path.stat().st_mode & 0o066 == 0
    assert home.token() is None
    home.keep_token("secret")
    assert home.token_file.stat().st_mode & 0o777 == 0o600
    assert home.token() == "secret"
    home.keep_token("another")
    assert home.token() == "another"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_token_that_others_could_read_is_refused(tmp_path: Path, mode: int) -> None:
    home = Home(tmp_path)
    home.keep_token("secret")
    home.token_file.chmod(mode)
    with pytest.raises(InvalidSpec, match="others can read") as refused:
        home.token()
    assert "secret" not in str(refused.value)


def test_a_link_is_no_token(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "elsewhere").write_text("secret")
    (tmp_path / "elsewhere").chmod(0o600)
    home.token_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidSpec, match="cannot read"):
        home.token()


def test_a_home_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(InvalidSpec, match="others can write"):
        Home(tmp_path).prepare()


def test_the_note_names_this_process(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.running() is None
    home.note("http://127.0.0.1:1", "0")
    found = home.running()
    assert found is not None
    assert (found.pid, found.ticks) == (os.getpid(), ticks_of(os.getpid()))
    home.refuse_second()  # that is us
    home.forget()
    assert home.running() is None


def test_nobody_else_can_lead_clients_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROOST_URL", "ROOST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    home, url = Home(tmp_path / "home"), "http://127.0.0.1:1"
    before = os.umask(0)  # as daemons and containers often have it
    try:
        home.prepare()
        home.keep_token("secret")
        home.note(url, "0")
    finally:
        os.umask(before)
    note = home.path / "server.json"
    assert note.stat().st_mode & 0o777 == 0o644
    assert [path.stat().st_mode & 0o022 for path in home.path.iterdir()] == [0, 0]
    assert endpoints.find(folder=home.path)[:3] == (url, "secret", True)
    for mode in (0o666, 0o664, 0o646):
        note.chmod(mode)
        with pytest.raises(InvalidSpec, match="others can write") as refused:
            endpoints.find(folder=home.path)
        assert "secret" not in str(refused.value)
        elsewhere = endpoints.find("http://127.0.0.1:2", folder=home.path)
        assert elsewhere.token == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_note_of_somebody_else_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROOST_URL", raising=False)
    home = Home(tmp_path)
    home.note("http://127.0.0.1:1", "0")
    os.chown(tmp_path / "server.json", 4242, 4242)
    with pytest.raises(InvalidSpec, match="belongs to somebody else"):
        endpoints.find(folder=tmp_path)


def test_a_number_used_again_is_not_the_server(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with _sleeper() as other:
        note = {"url": "http://x", "pid": other.pid, "ticks": 1, "started_at": 0.0}
        (tmp_path / "server.json").write_text(json.dumps(note))
        assert home.running() is None
        home.refuse_second()
        stale = RunningServer("http://x", other.pid, 1, 0.0)
        assert stale.send(signal.SIGTERM, 0.1)
        assert other.poll() is None


def test_the_server_is_signalled_and_awaited(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with _sleeper() as other:
        note = {"url": "http://x", "pid": other.pid, "ticks": ticks_of(other.pid)}
        (tmp_path / "server.json").write_text(json.dumps({**note, "started_at": 0.0}))
        with pytest.raises(Conflict, match=f"pid {other.pid}"):
            home.refuse_second()
        running = home.running()
        assert running is not None
        assert running.send(signal.SIGTERM, 10)
    assert home.running() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x"}', "\x00"])
def test_a_damaged_note_is_no_server(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.json").write_text(text)
    assert Home(tmp_path).running() is None


def _sleeper() -> subprocess.Popen[bytes]:
    class Sleeper(subprocess.Popen[bytes]):
        def __exit__(self, *args: object) -> None:
            self.kill()
            self.wait()

    return Sleeper([sys.executable, "-c", "import time; time.sleep(60)"])


def test_only_the_own_note_is_taken_away(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.note("http://127.0.0.1:1", "0")
    with _sleeper() as successor:
        note = {"url": "http://x", "pid": successor.pid, "ticks": ticks_of(successor.pid)}
        (tmp_path / "server.json").write_text(json.dumps({**note, "started_at": 0.0}))
        home.forget()
        found = home.running()
        assert found is not None
        assert found.pid == successor.pid


def test_the_note_in_a_copy_of_a_home_names_no_server(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    home.note("http://127.0.0.1:1", "1")
    shutil.copytree(home.path, tmp_path / "copy")
    assert home.running() is not None
    assert Home(tmp_path / "copy").running() is None
    with pytest.raises(NoServer):
        endpoints.find(folder=tmp_path / "copy", token="")
    home.path.rename(tmp_path / "renamed")
    assert Home(tmp_path / "renamed").running() is not None
