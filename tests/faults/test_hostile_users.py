"""Hostile and clumsy users on a real server: what they must not read, run, break or take along.

Run by root, jobs run under accounts of the machine that have no business of their own; otherwise
all of them share the account of the server, and what only root can keep apart is skipped.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import resource
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.commands import ROOST, one_error, run

from roost.cli import main
from roost.client import Client
from roost.client.payload import pack
from roost.engines.local.shim import slot_file
from roost.errors import Conflict

ROOT = os.geteuid() == 0
OVER = ("succeeded", "failed", "cancelled")
as_root = pytest.mark.skipif(not ROOT, reason="only root can run jobs under other accounts")


def accounts() -> list[str]:
    """Accounts of this machine, not root's, that jobs can run under."""
    known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    return [name for name in ("nobody", "daemon", "games", "mail") if known.get(name, 0)]


class Server:
    """A server, two users who do not trust each other, and somebody who only looks."""

    def __init__(self, home: Path) -> None:
        self.home = home
        note = json.loads((home / "server.json").read_text())
        self.url, self.pid = str(note["url"]), int(note["pid"])
        self.admin = (home / "token").read_text().strip()
        self.unix = dict(zip(("ada", "bob"), accounts(), strict=False)) if ROOT else {}
        self.ada, self.bob = self.user("ada"), self.user("bob")
        self.viewer = self.user("vic", "viewer")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def user(self, name: str, role: str = "user") -> str:
        with self.client(self.admin) as client:
            body = {"name": name, "role": role, "unix": self.unix.get(name, "")}
            assert client.post("/users", json=body).status_code == 201
        return str(self.token(name)["secret"])

    def token(self, user: str, by: str = "", **more: Any) -> dict[str, Any]:
        with self.client(by or self.admin) as client:
            answer = client.post("/tokens", json={"user": user, **more})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=60)

    def asked(self, token: str, job: dict[str, Any], key: str = "", **more: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        with self.client(token) as client:
            return client.post("/jobs", json={"job": job, **more}, headers=headers)

    def submit(self, token: str, script: str, **more: Any) -> str:
        secrets = more.pop("secrets", {})
        job = {"name": "job", "run": script, "secrets": sorted(secrets), "retry": 0, **more}
        answer = self.asked(token, job, secrets=secrets)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def view(self, token: str, job: str) -> dict[str, Any]:
        with self.client(token) as client:
            found: dict[str, Any] = client.get(f"/jobs/{job}").json()
        return found

    def until(self, token: str, job: str, *states: str) -> dict[str, Any]:
        found: dict[str, Any] = until(
            lambda: self.view(token, job), lambda view: view.get("state") in states
        )
        return found

    def log(self, token: str, job: str) -> str:
        with self.client(token) as client:
            return client.get(f"/jobs/{job}/logs").text

    def done(self, token: str, script: str, **more: Any) -> tuple[str, str]:
        """A job that has run to its end, and its log."""
        job = self.submit(token, script, **more)
        self.until(token, job, *OVER)
        return job, self.log(token, job)

    def clear(self) -> None:
        with self.client(self.admin) as client:
            for state in ("queued", "starting", "running"):
                for job in client.get("/jobs", params={"state": state, "limit": 200}).json()[
                    "items"
                ]:
                    client.post(f"/jobs/{job['id']}/cancel")

    def raw(self, text: str | bytes, wait_s: float = 2.0) -> bytes:
        """The first bytes of what is answered to whatever is sent."""
        place = ("127.0.0.1", self.port)
        with socket.create_connection(place, timeout=wait_s) as sock, suppress(OSError):
            sock.sendall(text.encode("latin-1") if isinstance(text, str) else text)
            return sock.recv(65536)
        return b""

    def status(self, text: str | bytes) -> int:
        found = re.match(rb"HTTP/1\.1 (\d+)", self.raw(text))
        return int(found[1]) if found else 0

    def head(self, token: str, line: str, *more: str) -> str:
        fields = [line, "Host: localhost", f"Authorization: Bearer {token}", *more]
        return "\r\n".join([*fields, "", ""])


def until(
    look: Callable[[], Any], right: Callable[[Any], bool] = bool, within_s: float = 60.0
) -> Any:
    """What is seen once it is right."""
    end = time.monotonic() + within_s
    while not right(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


@contextmanager
def served(*args: str, umask: int = 0o022) -> Iterator[Server]:
    """A server in a home that other accounts can reach, as nobody's own folders are."""
    folder = Path(tempfile.mkdtemp(prefix="roost-hostile-"))
    folder.chmod(0o711)
    home = folder / "home"
    command = [ROOST, "up", "--home", str(home), "--port", "0", *args]
    with subprocess.Popen(  # noqa: S603 - our own
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=umask
    ) as process:
        try:
            assert process.stdout is not None
            told = iter(process.stdout.readline, "")
            assert any("jobs go on" in line for line in told)
            server = Server(home)
            yield server
            if process.poll() is None:
                server.clear()
                run(ROOST, "down", "--home", home, "--stop-jobs", cwd=folder)
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if ROOT and len(accounts()) < 2:
        pytest.skip("this machine has no accounts to run jobs under")
    with served("--slots", "4", umask=0) as here:
        yield here


# -- a fresh install -------------------------------------------------------------------------------


def test_nothing_in_the_home_is_open_whatever_the_umask(server: Server) -> None:
    modes = {
        path.relative_to(server.home).as_posix(): stat.S_IMODE(path.lstat().st_mode)
        for path in server.home.iterdir()
    }
    assert modes.pop("server.json") & 0o133 == 0
    assert modes.pop("probe") & 0o133 == 0  # whoever reads it is on the server's machine
    for passage in ("runs", "gpu"):  # jobs of other accounts go through, to what is theirs
        assert modes.pop(passage) & 0o066 == 0
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert stat.S_IMODE(server.home.stat().st_mode) & 0o066 == 0


def test_it_listens_on_loopback_alone(server: Server) -> None:
    sockets = set()
    for link in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(OSError):
            sockets.update(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            place, state, inode = (line.split()[number] for number in (1, 3, 9))
            if inode in sockets and (state == "0A" or table.startswith("udp")):
                found.append(place)
    assert found == [f"0100007F:{server.port:04X}"]


# -- each other's jobs -----------------------------------------------------------------------------


def test_another_users_job_is_nowhere(server: Server) -> None:
    job = server.submit(server.ada, "sleep 60", name="ab", labels={"team": "red"})
    headers = {"Authorization": f"Bearer {server.bob}"}
    paths = httpx.get(f"{server.url}/openapi.json", headers=headers).json()["paths"]
    tried = 0
    with server.client(server.bob) as client:
        for path, operations in paths.items():
            for method, name in ((m, n) for m in operations for n in (job, "ab", "a")):
                if "{job}" not in path:
                    continue
                verb = path.rpartition("/")[2]
                body = {"scale": {"min": 1, "max": 1}, "snapshots": {"name": "one"}}.get(verb, {})
                place = path.removeprefix("/api/v1").format(
                    job=name, name="one", worker="w", path="p"
                )
                answer = client.request(method.upper(), place, json=body)
                assert answer.status_code == 404, (method, place, answer.text)
                assert job not in answer.text.replace(f"'{name}'", "")
                tried += 1
        assert tried >= 30
        for query in ("name=ab", "name=a%25", "name=_", "user=ada", "label=team%3Dred", "user=*"):
            assert client.get(f"/jobs?{query}").json()["total"] == 0, query
        for place in ("/events?limit=200", "/nodes", "/queues", "/top"):
            assert not re.search(rf"{job}|\bada\b", client.get(place).text), place
    server.until(server.ada, job, "running")
    with server.client(server.ada) as client:
        client.post(f"/jobs/{job}/cancel")


def test_a_queue_of_others_looks_like_none(server: Server) -> None:
    with server.client(server.admin) as client:
        assert client.put("/queues/hers", json={"submitters": ["ada"]}).status_code == 200
    job = {"name": "q", "run": "true"}
    hers = server.asked(server.bob, {**job, "queue": "hers"})
    none = server.asked(server.bob, {**job, "queue": "none"})
    assert hers.status_code == none.status_code == 403
    assert hers.text.replace("hers", "none") == none.text
    assert server.asked(server.ada, {**job, "queue": "hers"}).status_code == 201


def test_nobody_submits_for_another_or_for_another_account(server: Server) -> None:
    for more in ({"user": "bob"}, {"unix": "root"}, {"env": {"ROOST_JOB": "x"}}, {"name": "../x"}):
        answer = server.asked(server.ada, {"name": "as", "run": "true", **more})
        assert answer.status_code == 422, more


def test_a_job_that_is_gone_is_not_named_either() -> None:
    with served("--slots", "1", "--policy", "srtf") as server:
        long = server.submit(
            server.bob, "sleep 60", run_time="1h", checkpoint={"every": "1s", "grace": "1s"}
        )
        server.until(server.bob, long, "running")
        short, _ = server.done(server.ada, "true", name="codename-x", run_time="1s")
        with server.client(server.ada) as client:
            assert client.delete(f"/jobs/{short}").status_code == 200
        with server.client(server.bob) as client:
            told = client.get(f"/jobs/{long}/events").text
        assert "makes room for" in told
        assert "codename" not in told


def test_an_idempotency_key_is_its_users_own(server: Server) -> None:
    job = {"name": "once", "run": "true", "retry": 0}
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: server.asked(server.ada, job, "k-1"), range(40)))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 39}
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = server.asked(server.bob, job, "k-1")
    assert (other.status_code, other.json()["user"]) == (201, "bob")


# -- roles and tokens ------------------------------------------------------------------------------


def test_a_revoked_token_takes_its_streams_and_its_offspring_along(server: Server) -> None:
    first = server.token("ada")
    second = server.token("ada", by=first["secret"])
    ended: set[str] = set()

    def follow(name: str, secret: str) -> None:
        with suppress(httpx.HTTPError), ExitStack() as stack:
            client = stack.enter_context(server.client(secret))
            answer = stack.enter_context(client.stream("GET", "/stream"))
            ready.release()
            for line in answer.iter_lines():
                if line == "event: bye":
                    ended.add(name)

    ready = threading.Semaphore(0)
    threads = [
        threading.Thread(target=follow, args=(name, token["secret"]), daemon=True)
        for name, token in (("first", first), ("second", second))
    ]
    for thread in threads:
        thread.start()
        assert ready.acquire(timeout=60)
    with server.client(server.admin) as client:
        assert client.delete(f"/tokens/{first['id']}").status_code == 200
    for thread in threads:
        thread.join(60)
    assert ended == {"first", "second"}
    for token in (first, second):
        with server.client(token["secret"]) as client:
            assert client.get("/whoami").status_code == 401


def test_nobody_gives_oneself_more(server: Server) -> None:
    tries = [
        ("PATCH", "/users/ada", {"role": "admin"}),
        ("PATCH", "/users/ada", {"unix": "root"}),
        ("POST", "/users", {"name": "eve", "role": "admin"}),
        ("POST", "/tokens", {"user": "vic"}),
        ("GET", "/tokens?user=bob", None),
        ("PUT", "/queues/default", {"submitters": ["ada"]}),
        ("GET", "/state", None),
    ]
    for token in (server.ada, server.viewer):
        with server.client(token) as client:
            for method, path, body in tries:
                if token == server.viewer and path in ("/state", "/tokens"):
                    continue
                assert client.request(method, path, json=body).status_code == 403, path
    assert server.asked(server.viewer, {"run": "true"}).status_code == 403


def test_jobs_of_somebody_who_was_switched_off_do_not_start(server: Server) -> None:
    token = server.user("eve") if not ROOT else ""
    if ROOT:
        server.unix["eve"] = accounts()[0]
        token = server.user("eve")
    block = server.submit(server.bob, "sleep 60", gpus=4)
    server.until(server.bob, block, "running")
    job = server.submit(token, "true", name="late", gpus=4)
    with server.client(server.admin) as client:
        assert client.patch("/users/eve", json={"active": False}).status_code == 200
        client.post(f"/jobs/{block}/cancel")
        server.until(server.admin, block, *OVER)
        again = server.submit(server.bob, "true", gpus=4)
        server.until(server.bob, again, *OVER)
        assert server.view(server.admin, job)["started_at"] is None
        client.post(f"/jobs/{job}/cancel")


# -- secrets ---------------------------------------------------------------------------------------

_SHAPES = {
    "lines": ("first-canary\nsecond-canary", 'echo "$S" >&2; exit 3'),
    "raised": (
        "first-canary\nsecond-canary",
        "python3 -c \"import os;raise OSError(os.environ['S'])\"",
    ),
    "quoted": ("it's\ta-canary", "python3 -c \"import os;{}[os.environ['S']]\""),
    "blanks": (" padded-canary ", 'echo "error: $S" >&2; exit 4'),
    "json": (
        'said"a-canary',
        "python3 -c \"import json,os;raise OSError(json.dumps(os.environ['S']))\"",
    ),
    "long": (
        "x" * 290 + "-canary",
        "python3 -c \"import os;raise OSError('so '+os.environ['S'])\"",
    ),
}


def test_secrets_are_in_logs_of_the_job_alone(server: Server) -> None:
    for name, (secret, script) in _SHAPES.items():
        job, log = server.done(server.ada, script, name=name, secrets={"S": secret})
        assert "canary" in log  # that is the job's own business
        view = json.dumps(server.view(server.viewer, job)["verdict"])
        assert "canary" not in view, name
        assert "x" * 40 not in view, name
    for path in server.home.rglob("*"):
        small = path.is_file() and path.stat().st_size < 1 << 24  # others left sparse giants here
        if small and path.parent.name != "logs":
            assert b"canary" not in path.read_bytes(), path
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert b"-canary" not in cmdline.read_bytes()


# -- what a job can reach --------------------------------------------------------------------------


@as_root
def test_what_a_user_wrote_runs_as_that_user_whoever_asks(server: Server) -> None:
    script = 'id -un; touch "$ROOST_CHECKPOINT_DIR/x"'
    job, log = server.done(server.ada, script)
    assert log.split() == [server.unix["ada"]]
    with server.client(server.admin) as client:
        assert client.post(f"/jobs/{job}/snapshots", json={"name": "one"}).status_code == 201
        for way in ("clone", "rerun"):
            made = client.post(f"/jobs/{job}/{way}", json={})
            assert made.status_code == 201, made.text
            assert made.json()["user"] == "ada"
            again = made.json()["id"]
            server.until(server.ada, again, *OVER)
            assert server.log(server.ada, again).split() == [server.unix["ada"]], way
    with server.client(server.bob) as client:
        assert client.post(f"/jobs/{job}/rerun", json={}).status_code == 404


@as_root
def test_a_job_reaches_nothing_of_the_server_or_of_others(server: Server) -> None:
    first, _ = server.done(server.ada, "echo private > note; echo hers")
    folder = server.home / "runs" / first
    files = ["token", "roost.db", "server.log", "secrets", "payloads", "running", "engine.lock"]
    tries = [f"head -c 9 {server.home / name}" for name in files]
    tries += [f"ls {folder / name}" for name in ("", "1", "1/work", "1/logs", "checkpoints")]
    tries += [f"cat {folder}/1/{name}" for name in ("work/note", "run.json", "logs/worker-0.log")]
    tries += ["kill -9 $PPID", "cat /proc/$PPID/environ", f"echo x > {server.home}/server.json"]
    tries += ["mv ../io ../oi", "rm ../hostfile", "ln -s /etc/passwd ../exit2.json", "touch ../x"]
    script = "\n".join(f"{{ {one}; }} 2>/dev/null && echo GOT {one}" for one in tries)
    _, log = server.done(server.bob, f"set +e\n{script}\nid -un; ls /proc/self/fd | wc -l; true")
    assert "GOT" not in log, log
    assert log.split() == [server.unix["bob"], "4"]  # three, and the folder that is listed


@as_root
def test_what_a_job_sets_reaches_its_own_process_alone(server: Server) -> None:
    folder = Path(tempfile.mkdtemp(prefix="roost-hostile-"))
    folder.chmod(0o777)
    try:
        for name in ("signal.py", "json.py", "os.py", "sitecustomize.py", "shim.py"):
            (folder / name).write_text(f"open({str(folder / 'imported')!r}, 'w')\n")
        env = {"PYTHONPATH": str(folder), "PYTHONSTARTUP": str(folder / "os.py")}
        env |= {"LD_PRELOAD": "/none.so", "BASH_ENV": str(folder / "rc"), "PATH": "/usr/bin:/bin"}
        (folder / "rc").write_text(f"id -u >> {folder}/ran\n")
        server.done(server.ada, "id -u", env=env, workdir=str(folder))
        assert not (folder / "imported").exists()
        assert set((folder / "ran").read_text().split()) == {
            str(pwd.getpwnam(server.unix["ada"]).pw_uid)
        }
    finally:
        shutil.rmtree(folder)


@as_root
def test_a_folder_of_others_or_of_root_is_none(server: Server) -> None:
    canary = Path(tempfile.mkdtemp(prefix="roost-hostile-"))  # 0700, root's
    try:
        for more in (
            {"workdir": str(canary)},
            {"checkpoint": {"path": f"{canary}/made"}},
            {"workdir": f"{canary.parent}/../{canary}"},
            {"checkpoint": {"path": "/etc/roost-made"}},
        ):
            job, _ = server.done(server.ada, "touch made", **more)
            assert server.view(server.ada, job)["state"] == "failed", more
        assert list(canary.iterdir()) == []
        assert not Path("/etc/roost-made").exists()
    finally:
        canary.rmdir()


def test_a_result_is_a_plain_file_of_the_job(server: Server) -> None:
    tricks = {
        "link": "ln -s /etc/passwd $ROOST_RESULT",
        "pipe": "mkfifo $ROOST_RESULT",
        "folder": "mkdir $ROOST_RESULT",
        "second": "echo x > x; ln x $ROOST_RESULT",
        "endless": "ln -s /dev/zero $ROOST_RESULT",
        "huge": "truncate -s 10G $ROOST_RESULT",
        "swapped": "rm -r ../io; ln -s /etc ../io; true",
    }
    for name, trick in tricks.items():
        job, _ = server.done(server.ada, trick, name=name)
        with server.client(server.ada) as client:
            answer = client.get(f"/jobs/{job}/result")
        assert answer.status_code in (404, 422), (name, answer.status_code)


def test_slow_readers_of_large_results_cost_no_memory(server: Server) -> None:
    job, _ = server.done(server.ada, "truncate -s 60M $ROOST_RESULT")

    def used_mib() -> int:
        pages = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize() >> 20

    before, most = used_mib(), 0
    with ExitStack() as stack:
        for _ in range(12):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", server.port))
            sock.sendall(
                server.head(server.ada, f"GET /api/v1/jobs/{job}/result HTTP/1.1").encode()
            )
        end = time.monotonic() + 2
        while time.monotonic() < end:
            most = max(most, used_mib())
            time.sleep(0.05)
    assert most - before < 200


def test_a_client_opens_results_of_its_own_user_alone(server: Server) -> None:
    mark = Path(tempfile.mkdtemp(prefix="roost-hostile-")) / "opened"
    # A pickle that, once loaded, makes a file.
    body = f"cbuiltins\nopen\n(S'{mark}'\nS'w'\ntR.".encode()
    content = pack({"outcome": "returned"}, body).hex()
    job, _ = server.done(
        server.ada, f"python3 -c \"import sys;sys.stdout.buffer.write(bytes.fromhex('{content}'))\""
        " > $ROOST_RESULT"
    )  # fmt: skip
    with Client(server.url, server.admin) as client, pytest.raises(Conflict, match="ada's"):
        client.job(job).result(timeout=60)
    assert not mark.exists()
    mark.parent.rmdir()


# -- processes -------------------------------------------------------------------------------------

_TREE = """
import os, resource, signal, time
for number in (1, 2, 10, 12, 15):
    signal.signal(number, signal.SIG_IGN)
for i in range(60):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        resource.setrlimit(resource.RLIMIT_RTTIME, (10**6 * (i + 1),) * 2)
        os.closerange(0, 64)
        if i % 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600 + i)
        os._exit(0)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_tree_that_does_not_want_to_end_ends(server: Server) -> None:
    mark = f"roost-tree-{os.getpid()}"
    job = server.submit(
        server.ada, f"exec python3 -c '{_TREE}' {mark}", name="tree", checkpoint={"grace": "1s"}
    )

    def left() -> int:
        found = 0
        for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found += mark.encode() in cmdline.read_bytes().split(b"\0")
        return found

    until(lambda: "ready" in server.log(server.ada, job))
    until(left, lambda count: count >= 60)
    with server.client(server.ada) as client:
        client.post(f"/jobs/{job}/cancel")
    server.until(server.ada, job, "cancelled")
    assert left() == 0


def test_nobody_makes_a_job_that_cannot_be_cancelled(server: Server) -> None:
    answer = server.asked(
        server.ada, {"name": "x", "run": "sleep 1", "checkpoint": {"grace": "3650d"}}
    )
    assert answer.status_code == 422
    assert "grace" in answer.text


def test_what_jobs_say_of_themselves_is_not_believed(server: Server) -> None:
    job = server.submit(
        server.ada,
        r"""python3 - <<'END'
import os
with open(os.environ["ROOST_PROGRESS"], "wb", buffering=0) as pipe:
    for line in (b'{"done": NaN, "loss": NaN}', b'{"done": 1e400}', b'{"done": true}', b"null",
                 b'{"loss": 1' + b"0" * 3000 + b"}", b'{"step": -1}', b"[" * 60000, b"\xff", b"",
                 b"x" * 70000, b'{"done": "1"}', b'{"done": 2}', b'{"saved": -1}'):
        pipe.write(line + b"\n")
    pipe.write(b'{"done": 0.25, "loss": 1e308}\n')
END
sleep 60""",
    )
    view = until(lambda: server.view(server.ada, job), lambda seen: seen["progress"] is not None)
    assert (view["progress"], view["state"]) == (0.25, "running")
    with server.client(server.ada) as client:
        client.post(f"/jobs/{job}/cancel")


def forged(job: str, token: object) -> list[object]:
    """What a job could send in the place of its shim where both share an account."""
    sender = {"run": [job, 1], "token": token, "generation": 1}
    told: list[object] = [5, None, [], "x", {"done": "x"}, {"loss": "abc"}, {"loss": [1]}]
    told += [{"step": {}}, {"done": True}, {"done": -1, "saved": 7}, {"step": 10**400}]
    stuck: list[object] = [5, {"a": 1}, ["x"], [[]]]
    words: list[object] = [{**sender, "told": one} for one in [*told, {"loss": 10**400}]]
    words += [{**sender, "stuck": one} for one in stuck]
    words += [{**sender, "phase": one} for one in (5, "none")]
    words += [[], {}, {"run": 1}, {"run": [[], {}]}, {"run": [job, {}]}, {"run": [job, "1"]}]
    return [*words, "[" * 50_000, {**sender, "told": {"done": 0.5, "loss": 2.0}}]


def test_a_forged_word_of_a_shim_harms_nobody() -> None:
    with served("--slots", "2") as server:
        job = server.submit(server.ada, "sleep 60", name="forged")
        server.until(server.ada, job, "running")
        fd = os.open(server.home / "runs" / job / "1" / "run.json", os.O_RDONLY)
        state = slot_file.read(fd) or {}
        os.close(fd)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(60)
            for word in forged(job, state["token"]):
                sock.sendto(json.dumps(word).encode(), str(server.home / "engine.sock"))
        view = until(lambda: server.view(server.ada, job), lambda seen: seen["progress"] == 0.5)
        assert (view["state"], view["loss"]) == ("running", 2.0)
        other, _ = server.done(server.bob, "true")
        assert server.view(server.bob, other)["state"] == "succeeded"
        with server.client(server.ada) as client:
            client.post(f"/jobs/{job}/cancel")
        server.until(server.ada, job, "cancelled")


# -- odd requests ----------------------------------------------------------------------------------


def test_odd_places_to_go_on_from(server: Server) -> None:
    job, _ = server.done(server.ada, "echo hello")
    for last in (
        "\xb2",
        "\xb9\xb2",
        "9" * 19,
        "9" * 40,
        "-1",
        "1e9",
        "0x1",
        "a\x7f",
        "1-\xb2",
        "1-",
    ):
        for path in (f"/api/v1/jobs/{job}/logs/stream", "/api/v1/stream"):
            for id_ in (last, f"1-{last}"):
                text = server.head(server.ada, f"GET {path} HTTP/1.1", f"Last-Event-ID: {id_}")
                assert server.status(text) in (200, 422), (path, last)
    log = (server.home / "server.log").read_text(errors="replace")
    assert "Traceback" not in log


def test_odd_bodies_are_refused(server: Server) -> None:
    hidden = '["\u2200",' + "[" * 900 + "]" * 900 + "]"
    bodies: dict[str, bytes] = {
        "deep": b"[" * 100_000,
        "hidden": hidden.encode("utf-16-le"),
        "utf-16": "{}".encode("utf-16"),
        "mark": b"\xef\xbb\xbf{}",
        "bytes": b'{"job": "\xff"}',
        "zero": b'{"job": {"name": "\\u0000"}}',
        "half": b'{"job": {"name": "\\ud800"}}',
        "nan": b'{"job": NaN}',
        "digits": b'{"min": ' + b"9" * 5000 + b"}",
        "large": b'{"min": 9223372036854775808, "max": 9223372036854775808}',
        "wide": b'{"job": {' + b",".join(b'"k%d":1' % n for n in range(40_000)) + b"}}",
        "nothing": b"",
        "list": b"[]",
    }
    routes = [
        ("POST", "/jobs"),
        ("POST", "/jobs/plan"),
        ("POST", "/jobfiles/parse"),
        ("POST", "/jobs/none/scale"),
        ("POST", "/users"),
        ("PATCH", "/users/vic"),
        ("POST", "/tokens"),
        ("PUT", "/queues/odd"),
    ]
    with server.client(server.admin) as client:
        client.headers["Content-Type"] = "application/json"
        for method, path in routes:
            for name, body in bodies.items():
                answer = client.request(method, path, content=body)
                assert answer.status_code in (404, 422), (method, path, name, answer.text[:200])


def test_odd_fields_are_refused(server: Server) -> None:
    refused: list[dict[str, Any]] = [
        {"workers": 10**30},
        {"gpus": 1e308},
        {"gpus": -1},
        {"gpus": 2**63},
        {"resources": {"memory": "99999999999999Ti"}},
        {"max_duration": 1e308},
        {"name": "a" * 64},
        {"name": "x\n"},
        {"application": "\u202e"},
        {"env": {"RANK": "1"}},
        {"env": {"A=B": "1"}},
        {"workdir": "../.."},
        {"checkpoint": {"path": "../../x"}},
        {"workdir": {"git": "--upload-pack=touch /tmp/x"}},
        {"workdir": {"git": "ext::sh -c id"}},
        {"workdir": {"git": "ssh://-oProxyCommand=id/x"}},
        {"workdir": {"git": "a@-oProxyCommand:x"}},
        {"workdir": {"git": "https://u:p@h/x"}},
        {"workdir": {"git": "file:///x", "ref": "--help"}},
        {"roles": {"../x": {"run": "true"}}},
        {"priority": 101},
        {"priority": -1},
    ]
    for more in refused:
        answer = server.asked(server.ada, {"name": "odd", "run": "true", **more})
        assert answer.status_code == 422, (more, answer.text)


def test_odd_http(server: Server) -> None:
    ada, whoami = server.ada, "GET /api/v1/whoami HTTP/1.1"
    assert server.status(server.head(ada, whoami)) == 200
    token = f"Authorization: Bearer {ada}"
    expected = {
        f"{whoami}\r\nHost: evil.example\r\n{token}\r\n\r\n": 421,
        f"{whoami}\r\nHost: localhost@evil\r\n{token}\r\n\r\n": 421,
        f"{whoami}\r\nHost: 127.0.0.1.evil\r\n{token}\r\n\r\n": 421,
        f"{whoami}\r\n{token}\r\n\r\n": 400,
        server.head(ada, whoami, "Host: localhost"): 400,
        server.head(ada, whoami, token): 401,
        server.head(ada, whoami, "Origin: null"): 421,
        server.head(ada, whoami, "Origin: http://localhost.evil.example"): 421,
        server.head(ada, whoami, "Origin: http://[::1]:5"): 200,
        server.head(ada, whoami, f"X: {'a' * 40_000}"): 431,
        server.head(ada, whoami, "X: a\0b"): 400,
        server.head(ada, "GET /api/v1/jobs?name=%00 HTTP/1.1"): 400,
        server.head(ada, "GET http://evil.example/healthz HTTP/1.1"): 404,
        server.head(ada, "POST /api/v1/whoami HTTP/1.1", "X-HTTP-Method-Override: GET"): 405,
        server.head(ada, "POST /api/v1/jobs HTTP/1.1", "Content-Length: 99999999"): 413,
        server.head(ada, "POST /api/v1/jobs HTTP/1.1", "Content-Length: +2"): 400,
        server.head(ada, "POST /api/v1/jobs HTTP/1.1", "Transfer-Encoding: xchunked"): 400,
    }
    for text, status in expected.items():
        assert server.status(text) == status, text[:200]
    for path in ("//healthz", "/healthz/", "/healthz/../api/v1/jobs", "/healthz%2f..%2fx", "/x"):
        text = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert server.status(text) == 401, path


def test_a_request_makes_up_no_series_of_metrics(server: Server) -> None:
    assert server.status(server.head(server.ada, "MADEUP /api/v1/whoami HTTP/1.1")) == 405
    headers = {"Authorization": f"Bearer {server.viewer}"}
    figures = httpx.get(f"{server.url}/metrics", headers=headers).text
    assert "MADEUP" not in figures
    assert 'status="405"' in figures


def test_a_token_holds_no_more_streams_than_it_may(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1024:
        pytest.skip("not enough files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1024), hard))
    try:
        with ExitStack() as stack:
            socks = []
            for _ in range(530):
                sock = stack.enter_context(socket.socket())
                sock.connect(("127.0.0.1", server.port))
                sock.sendall(server.head(server.bob, "GET /api/v1/stream HTTP/1.1").encode())
                socks.append(sock)
            codes = Counter()  # type: Counter[bytes]
            for sock in socks:
                sock.settimeout(60)
                codes[sock.recv(12)[9:]] += 1
            assert codes == {b"200": 512, b"429": 18}
            assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_questions_of_one_user_leave_the_server_to_others(server: Server) -> None:
    block = server.submit(server.ada, "sleep 60", gpus=4)
    with server.client(server.ada) as client:
        for _ in range(60):
            client.post("/jobs", json={"job": {"name": "many", "run": "true", "gpus": 4}})
        last = client.get("/jobs", params={"name": "many", "limit": 24}).json()["items"]

    def ask(view: dict[str, Any]) -> int:
        with server.client(server.ada) as client:
            return client.get(f"/jobs/{view['id']}/explain").status_code

    waits, begun = [], time.monotonic()
    with ThreadPoolExecutor(24) as pool, httpx.Client() as other:
        asking = [pool.submit(ask, view) for view in last]
        while not all(one.done() for one in asking):
            began = time.monotonic()
            assert other.get(f"{server.url}/healthz", timeout=60).status_code == 200
            waits.append(time.monotonic() - began)
    # Some wait for their turn, and some are told to come back.
    assert {one.result() for one in asking} in ({200, 429}, {200, 503})
    # A server that did nothing else meanwhile would have answered once, at the end.
    assert sorted(waits)[len(waits) // 2] < (time.monotonic() - begun) / 4
    server.clear()
    server.until(server.ada, block, "cancelled")


# -- on the terminal -------------------------------------------------------------------------------


class Terminal:
    """The command line in this process, which is quick."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._set, self._read = monkeypatch.setenv, capsys.readouterr

    def __call__(self, *words: str, **environ: str) -> tuple[int, str, str]:
        for name, value in environ.items():
            self._set(name, value)
        self._read()
        status = main(list(words))
        told = self._read()
        return status or 0, told.out, told.err


@pytest.fixture
def terminal(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Terminal:
    monkeypatch.setenv("ROOST_HOME", str(tmp_path))
    monkeypatch.setenv("ROOST_URL", server.url)
    monkeypatch.setenv("ROOST_TOKEN", server.admin)
    return Terminal(monkeypatch, capsys)


def test_texts_of_others_do_not_act_on_a_terminal(server: Server, terminal: Terminal) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202e\r\n"
    job, _ = server.done(
        server.ada,
        r'printf "\033]0;owned\007ValueError: \033[2Jx\n" >&2; exit 9',
        name="ansi",
        labels={"text": evil},
        env={"E": evil},
    )
    for words in (["get", job], ["list", "-A", "-o", "wide"], ["events", job], ["explain", job]):
        status, out, err = terminal(*words)
        assert status == 0, err
        assert out
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out + err)


def test_clumsy_addresses_and_tokens_are_one_line(server: Server, terminal: Terminal) -> None:
    odd: list[dict[str, str]] = [
        {"ROOST_TOKEN": "roost_nothing"},
        {"ROOST_TOKEN": "a\nb"},
        {"ROOST_TOKEN": "ünïcode"},
        {"ROOST_URL": "http://127.0.0.1:1"},
        {"ROOST_URL": "http://127.0.0.1:1/\x1b[2J"},
        {"ROOST_URL": "http://127.0.0.1:99999"},
        {"ROOST_URL": "file:///etc/passwd"},
        {"ROOST_URL": server.url.replace("//", "//user:xyzzy@")},
        {"ROOST_URL": f"{server.url}/a/b?c=1#d"},
    ]
    for more in odd:
        place = {"ROOST_URL": server.url, "ROOST_TOKEN": server.ada}
        status, _, err = terminal("list", **{**place, **more})
        assert status == 2, (more, err)
        assert not re.search(rf"\x1b|xyzzy|{server.ada}", one_error(err))


def test_an_endless_job_file_is_refused(server: Server, tmp_path: Path) -> None:
    place = {"ROOST_URL": server.url, "ROOST_TOKEN": server.ada, "ROOST_HOME": str(tmp_path)}
    little = ("timeout", "-s", "KILL", "20", "prlimit", "--as=4000000000")
    told = run(*little, ROOST, "submit", "-y", "/dev/zero", cwd=tmp_path, **place)
    assert told.returncode == 2
    assert re.search("longer|larger|not a", one_error(told.stderr))


def test_a_note_that_others_can_write_is_not_trusted(server: Server, tmp_path: Path) -> None:
    note = json.loads((server.home / "server.json").read_text())
    (tmp_path / "server.json").write_text(json.dumps(note))
    (tmp_path / "server.json").chmod(0o666)
    (tmp_path / "token").write_text(server.admin)
    told = run(ROOST, "list", cwd=tmp_path, ROOST_HOME=str(tmp_path))
    assert told.returncode == 2
    assert "others can write" in one_error(told.stderr)
