"""The server as people run it: ``roost up`` in a process of its own, real jobs, real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.commands import ROOST, one_error, run

from roost.cli import main

OPEN = ("queued", "starting", "running", "suspended", "resizing")


class Served:
    """A server that runs, and how to talk to it."""

    def __init__(self, home: Path, process: subprocess.Popen[str] | None = None) -> None:
        self.home, self.process = home, process
        self.note: dict[str, Any] = json.loads((home / "server.json").read_text())
        self.token = Path(self.note["token_file"]).read_text().strip()

    @property
    def url(self) -> str:
        return str(self.note["url"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=60)

    def submit(self, script: str, name: str = "job", **more: Any) -> str:
        secrets = more.pop("secrets", {})
        job = {"name": name, "run": script, "secrets": sorted(secrets), **more}
        with self.client() as client:
            answer = client.post("/jobs", json={"job": job, "secrets": secrets})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def until(self, job: str, *states: str) -> dict[str, Any]:
        end = time.monotonic() + 60
        with self.client() as client:
            while time.monotonic() < end:
                view: dict[str, Any] = client.get(f"/jobs/{job}").json()
                if view["state"] in states:
                    return view
                time.sleep(0.02)
        raise AssertionError(f"{job} is {view['state']}, not {states}: {view}")


@contextmanager
def served(home: Path, *args: str, before: Sequence[str] = ()) -> Iterator[Served]:
    """A server in the foreground, stopped at the end with all its jobs.

    ``before`` are words before its command.
    """
    command = [*before, ROOST, "up", "--home", str(home), "--port", "0", "--slots", "2", *args]
    with subprocess.Popen(  # noqa: S603 - our own
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            told = []
            for line in process.stdout:
                told.append(line)
                if "jobs go on" in line:
                    break
            else:
                raise AssertionError("".join(told))
            here = Served(home, process)
            yield here
            if process.poll() is None:
                run(ROOST, "down", "--home", home, "--stop-jobs", cwd=home)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("server") / "home"
    with served(home) as here:
        yield here


def test_the_first_start_is_closed_to_others(server: Served) -> None:
    home = server.home
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "server.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "roost.db").stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(home.stat().st_mode) & 0o066 == 0
    assert server.note["pid"] == server.process.pid if server.process else False
    listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ports = {line.split()[1] for line in listening if line.split()[3] == "0A"}
    assert f"0100007F:{server.port:04X}" in ports
    assert f"00000000:{server.port:04X}" not in ports


def test_a_job_runs_and_its_log_is_followed(server: Served) -> None:
    job = server.submit(
        'for i in 1 2 3; do echo "line $i"; sleep 0.1; done; exit 3', retry={"max": 0}
    )
    text, events = "", []
    with server.client() as client, client.stream("GET", f"/jobs/{job}/logs/stream") as answer:
        for line in answer.iter_lines():
            key, _, value = line.partition(": ")
            if key == "event":
                events.append(value)
            elif key == "data" and value.startswith('"'):
                text += json.loads(value)
    assert text == "line 1\nline 2\nline 3\n"
    assert events == ["attempt", "end"]
    view = server.until(job, "failed")
    assert view["exit_code"] == 3


def test_secrets_stay_secret(server: Served) -> None:
    canary, mark = "canary-9f3b2c71", "marker-plain-value"
    script = 'test "${#KEY}" = 15 && echo got it && sleep 1.5'
    with server.client() as client, client.stream("GET", "/stream") as stream:
        lines = stream.iter_lines()
        next(lines)
        job = server.submit(script, "secretive", secrets={"KEY": canary}, env={"PLAIN": mark})
        wrong = [
            client.post("/jobs", json={"job": {"run": "x"}, "secrets": {"KEY": canary}}),
            client.post("/jobs", json={"job": {"run": 5}, "secrets": {"KEY": canary}}),
            client.post("/jobs", json={"job": {}, "secrets": {"KEY": [canary]}}),
            client.post("/jobs", json={"job": {"run": "x", "env": {"A": [canary]}}, "secrets": {}}),
            client.post("/jobs/plan", json={"job": {"run": "x"}, "secrets": {"KEY": canary}}),
        ]
        server.until(job, "running")
        told = [
            client.get(path).text
            for path in (
                f"/jobs/{job}",
                f"/jobs/{job}/file",
                f"/jobs/{job}/events",
                f"/jobs/{job}/explain",
                "/jobs",
                "/events?limit=200",
                "/state",
                "/top",
            )
        ]
        told += [answer.text for answer in wrong]
        assert [answer.status_code for answer in wrong] == [422, 422, 422, 422, 422]
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = command.read_bytes()
            except OSError:
                continue
            assert canary.encode() not in text, command
            assert server.token.encode() not in text, command
        server.until(job, "succeeded")
        stop = server.submit("true", "the-last-one")
        for line in lines:
            told.append(line)
            if stop in line:
                break
    assert any(mark in text for text in told)  # the search finds what is there
    assert not [text for text in told if canary in text or server.token in text]
    found = [path for path in server.home.rglob("*") if _holds(path, canary.encode())]
    assert found == []
    tokens = [path for path in server.home.rglob("*") if _holds(path, server.token.encode())]
    assert tokens == [server.home / "token"]


def _holds(path: Path, text: bytes) -> bool:
    try:
        return path.is_file() and text in path.read_bytes()
    except OSError:
        return False


def test_hostile_bytes_on_the_wire(server: Served) -> None:
    auth = f"Host: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
    long, length = "x" * 40_000, "Content-Length: "
    upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n"
    cases = {
        "nonsense": (b"\x00\xff\x16\x03\x01\r\n\r\n", b"400"),
        "no host": (b"GET /metrics HTTP/1.0\r\n\r\n", b"421"),
        "long header": (f"GET /healthz HTTP/1.1\r\n{auth}X: {long}\r\n\r\n".encode(), b"431"),
        "long target": (f"GET /{long} HTTP/1.1\r\n{auth}\r\n".encode(), b"431"),
        "two lengths": (
            f"POST /api/v1/jobs HTTP/1.1\r\n{auth}{length}1\r\n{length}2\r\n\r\nx".encode(),
            b"400",
        ),
        "100 MB": (
            f"POST /api/v1/jobs HTTP/1.1\r\n{auth}Content-Length: 100000000\r\n\r\n".encode(),
            b"413",
        ),
        "100 MB, no token": (
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000000\r\n\r\n",
            b"401",
        ),
        "chunks without end": (
            f"POST /api/v1/jobs HTTP/1.1\r\n{auth}Transfer-Encoding: chunked\r\n\r\n".encode()
            + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 20,
            b"413",
        ),
        "upgrade": (
            f"GET /healthz HTTP/1.1\r\n{auth}{upgrade}\r\n".encode(),
            b"200",
        ),
    }
    for name, (request, status) in cases.items():
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
            with suppress(OSError):  # it is cut off, as it should be
                sock.sendall(request)
            try:
                answer = sock.recv(64)
            except ConnectionResetError:
                answer = b""  # the answer was lost with the rest of what we sent
            assert status in answer or (name.startswith("chunks") and not answer), (name, answer)
    with server.client() as client:
        assert client.get("/whoami").status_code == 200


def test_two_hundred_follow_one_log(server: Served) -> None:
    job = server.submit("sleep 1.5; echo now; sleep 0.5", "followed")

    async def follow(client: httpx.AsyncClient) -> str:
        text = ""
        async with client.stream("GET", f"{server.url}/api/v1/jobs/{job}/logs/stream") as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith('data: "'):
                    text += json.loads(line[6:])
        return text

    async def everybody() -> list[str]:
        headers = {"Authorization": f"Bearer {server.token}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(headers=headers, limits=limits, timeout=60) as client:
            return await asyncio.gather(*(follow(client) for _ in range(200)))

    assert set(asyncio.run(everybody())) == {"now\n"}


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The error of a command that must fail."""
    assert main([str(arg) for arg in args]) == 2
    return one_error(capsys.readouterr().err)


def test_a_second_server_is_refused(
    server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pid, other = str(server.note["pid"]), tmp_path / "other"
    assert pid in refused(capsys, "up", "--home", server.home, "--port", "0")
    store = f"sqlite://{server.home}/roost.db"
    shared = ("--port", "0", "--store", store)
    assert pid in refused(capsys, "up", "--home", other, *shared)
    taken = refused(capsys, "up", "--home", other, "--port", server.port)
    assert f"port {server.port}" in taken
    with server.client() as client:
        assert client.get("/whoami").status_code == 200


def test_what_roost_up_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    up = ("up", "--home", home, "--port", "0")
    assert "can be reached by others" in refused(capsys, *up, "--host", "0.0.0.0")  # noqa: S104
    assert "go together" in refused(capsys, *up, "--tls-cert", __file__)
    assert "did you mean 'fifo'" in refused(capsys, *up, "--policy", "fif")
    (home / "token").write_text("secret")
    (home / "token").chmod(0o644)
    wide = refused(capsys, *up)
    assert "others can read" in wide
    assert "secret" not in wide
    assert "no server runs" in refused(capsys, "down", "--home", home)


def test_a_stop_is_quick_and_polite_and_jobs_go_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    up = run(ROOST, "up", "-d", "--home", home, "--port", "0", "--slots", "2", cwd=tmp_path)
    assert up.returncode == 0, up.stderr
    assert "2 CPU slots instead of GPUs, as asked" in up.stdout
    here = Served(home)
    assert here.token not in up.stdout + up.stderr
    goes_on = tmp_path / "go-on"
    # Half way it waits until the test has seen it run under the second server.
    wait = f"if [ $i = 30 ]; then until [ -e {goes_on} ]; do sleep 0.02; done; fi"
    job = here.submit(f"for i in $(seq 60); do echo $i; sleep 0.03; {wait}; done", "counter")
    here.until(job, "running")
    paths = ("/stream", f"/jobs/{job}/logs/stream")
    with here.client() as client, ExitStack() as stack:
        streams = [stack.enter_context(client.stream("GET", path)) for path in paths]
        lines = [stream.iter_lines() for stream in streams]
        for one in lines:
            next(one)
        down = run(ROOST, "down", "--home", home, cwd=tmp_path)
        assert "1 job goes on running" in down.stdout, down.stdout + down.stderr
        for one in lines:
            assert "event: bye" in list(one)
    assert not (home / "server.json").exists()
    again = run(ROOST, "up", "-d", "--home", home, "--port", "0", "--slots", "2", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "1 running" in again.stdout
    here = Served(home)
    goes_on.touch()
    here.until(job, "succeeded")
    with here.client() as client:
        text = client.get(f"/jobs/{job}/logs").text
    assert text == "".join(f"{number}\n" for number in range(1, 61))
    os.kill(here.note["pid"], signal.SIGINT)
    end = time.monotonic() + 60
    while (home / "server.json").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-made certificate for localhost, which does not name 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("pair")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert),
        *("-addext", "subjectAltName=DNS:localhost"),
        cwd=folder,
    )
    if made.returncode:
        pytest.skip("no openssl here")
    return cert, key


def test_log_in_to_a_server_with_a_certificate_of_its_own(
    tmp_path: Path,
    pair: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cert, key = (str(file) for file in pair)
    home, token = tmp_path / "home", tmp_path / "token of mine"
    tls = ("--tls-cert", cert, "--tls-key", key)

    def told(*args: str) -> str:
        assert not main(list(args)), capsys.readouterr().err
        return capsys.readouterr().out

    with served(home, *tls, "--token-file", str(token), "--host", "0.0.0.0") as here:  # noqa: S104
        by_name = f"https://localhost:{here.port}"
        by_number = f"https://127.0.0.1:{here.port}"
        assert here.url == by_number

        # The command line of the home knows certificate and token by the server's note.
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("ROOST_HOME", str(home))
        assert f" at {by_number}\n" in told("whoami")

        # Elsewhere nothing is known yet.
        monkeypatch.setenv("ROOST_HOME", str(tmp_path / "elsewhere"))
        login = ("login", "--token-file", str(token))
        error = refused(capsys, *login, by_name)
        assert "the certificate of" in error
        assert "--ca FILE" in error
        error = refused(capsys, *login, by_number, "--ca", cert)
        assert "not valid for '127.0.0.1'" in error
        error = refused(capsys, *login, by_name.replace("https", "http"))
        assert "its address begins with https" in error
        wrong = tmp_path / "wrong"
        wrong.write_text("roost_nonsense")
        lab = ("login", by_name, "--name", "lab", "--ca", cert, "--token-file")
        assert "no valid token" in refused(capsys, *lab, str(wrong))
        assert not (tmp_path / "config" / "roost" / "servers.json").exists()
        assert told(*lab, str(token)).startswith(f"logged in to lab ({by_name}) as ")
        assert f" at {by_name}\n" in told("whoami")
        assert f" at {by_name}\n" in told("whoami", "--on", "lab")
        with monkeypatch.context() as environment:
            environment.setenv("ROOST_URL", by_name)
            environment.setenv("ROOST_TOKEN", token.read_text().strip())
            assert "the certificate of" in refused(capsys, "whoami")
            environment.setenv("ROOST_CA", cert)
            assert f" at {by_name}\n" in told("whoami")
        assert "logged out of lab" in told("logout", "--revoke")
        monkeypatch.setenv("ROOST_HOME", str(home))
        assert "no valid token" in refused(capsys, "whoami")


def test_every_mistake_with_a_certificate_has_a_sentence(
    tmp_path: Path, pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key = pair
    up = ("up", "--home", str(tmp_path / "home"), "--port", "0")
    told = refused(capsys, *up, "--tls-cert", str(key), "--tls-key", str(cert))
    assert "swap them" in told
    other, open_key, locked = (tmp_path / name for name in ("other.pem", "open.pem", "locked.pem"))
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", other, cwd=tmp_path)
    other.chmod(0o600)
    assert "is not that of" in refused(
        capsys, *up, "--tls-cert", str(cert), "--tls-key", str(other)
    )
    open_key.write_text(key.read_text())
    open_key.chmod(0o644)
    told = refused(capsys, *up, "--tls-cert", str(cert), "--tls-key", str(open_key))
    assert "everybody can read" in told
    locked.touch(0o600)
    run(
        *("openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked),
        cwd=tmp_path,
    )
    locked.chmod(0o600)
    told = refused(capsys, *up, "--tls-cert", str(cert), "--tls-key", str(locked))
    assert "asks for a passphrase" in told
    told = refused(capsys, *up, "--tls-cert", __file__, "--tls-key", str(key))
    assert "holds no certificate" in told
    told = refused(capsys, *up, "--tls-cert", str(cert), "--tls-key", __file__)
    assert "holds no private key" in told
    assert "no such file" in refused(capsys, *up, "--tls-cert", "/nowhere", "--tls-key", str(key))
    assert not (tmp_path / "home").exists()


def test_strangers_who_say_nothing_end_no_server_and_stop_no_job(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    """Silent connections before the TLS handshake, several times as many as there may be files."""
    cert, key = pair
    few = ("prlimit", "--nofile=256:256")
    if run(*few, "true", cwd=tmp_path).returncode:
        pytest.skip("no prlimit here")
    home = tmp_path / "home"
    tls = ("--tls-cert", str(cert), "--tls-key", str(key))
    with served(home, *tls, before=few) as here, ExitStack() as opened:
        context = ssl.create_default_context(cafile=str(cert))
        headers = {"Authorization": f"Bearer {here.token}"}
        url = f"https://localhost:{here.port}/api/v1"
        jobs = []
        for number in range(800):
            stranger = opened.enter_context(socket.socket())
            stranger.setblocking(False)  # noqa: FBT003 - the name of the standard library
            with suppress(BlockingIOError):
                stranger.connect(("127.0.0.1", here.port))
            if number % 200 == 199:  # a connection of its own each time
                answer = httpx.post(
                    f"{url}/jobs",
                    json={"job": {"name": "job", "run": "echo fine"}},
                    headers=headers,
                    verify=context,
                    timeout=60,
                )
                assert answer.status_code == 201, answer.text
                jobs.append(answer.json()["id"])
                files = list(Path(f"/proc/{here.note['pid']}/fd").iterdir())
                assert len(files) < 256 - 32
        with httpx.Client(verify=context, headers=headers, timeout=60) as client:
            end = time.monotonic() + 60
            while {state := client.get(f"{url}/jobs/{job}").json()["state"] for job in jobs} != {
                "succeeded"
            }:
                assert state in {*OPEN, "succeeded"}
                assert time.monotonic() < end
        assert here.process is not None
        assert here.process.poll() is None
