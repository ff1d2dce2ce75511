"""Notifications to real servers for HTTP and mail: signed, tried again, kept over a restart."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.integration.commands import ROOST, one_error, run
from tests.integration.test_server import served

from roost.live.notifications.senders import signature

SECRET = "the-shared-secret-of-both"  # noqa: S105 - of a test


class Hook(ThreadingHTTPServer):
    """Receives what is posted; answers 503 while it is not ``willing``."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.refused = 0
        self.willing = True
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.willing:
                    hook.got.append((self.path, dict(self.headers), body))
                else:
                    hook.refused += 1
                self.send_response(200 if hook.willing else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class MailServer(socketserver.ThreadingTCPServer):
    """Speaks enough SMTP to take a mail."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        self.mails: list[str] = []
        mails = self.mails

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.say("220 here")
                while line := self.rfile.readline().decode().strip():
                    verb = line.split()[0].upper()
                    if verb == "DATA":
                        self.say("354 go on")
                        text = []
                        while (part := self.rfile.readline().decode()) != ".\r\n":
                            text.append(part)
                        mails.append("".join(text))
                        self.say("250 taken")
                    elif verb == "QUIT":
                        self.say("221 bye")
                        return
                    else:
                        self.say("250 yes")

            def say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def listening(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ends_are_told_by_hook_and_mail_and_survive_a_kill(tmp_path: Path) -> None:
    home, hook, post = tmp_path / "home", Hook(), MailServer()

    def told(*args: object) -> Any:
        return run(ROOST, *args, cwd=tmp_path, ROOST_HOME=str(home))

    settings: dict[str, Any] = {
        "secret": SECRET,
        "mail": {
            "host": "127.0.0.1",
            "port": post.server_address[1],
            "tls": "none",
            "from": "roost@example.com",
            "password": "hunter2hunter2",
        },
        "queues": {"default": [f"started {hook.url}/queue"]},
    }
    file = tmp_path / "notify.json"
    with listening(hook), listening(post):
        with served(home) as here:
            file.write_text(json.dumps(settings))
            assert told("notify", "set", file).returncode == 0
            denied = one_error(told("notify", "test", f"{hook.url}/x").stderr)
            assert "is not a public address" in denied
            for sly in ("http://localhost:1/", "http://[::ffff:127.0.0.1]:1/", "http://0x7f.1:1/"):
                assert "not a public" in told("notify", "test", sly).stderr
            file.write_text(json.dumps({**settings, "allow": ["127.0.0.0/8"]}))
            assert told("notify", "set", file).returncode == 0
            assert told("notify", "test", f"{hook.url}/x").returncode == 0
            assert hook.got.pop()[0] == "/x"
            shown = told("notify").stdout
            assert "127.0.0.0/8" in shown
            assert SECRET not in shown
            assert "hunter2" not in shown

            job = here.submit(
                "exit 3", retry={"max": 0}, notify=[f"failed {hook.url}/j", "ada@example.com"]
            )
            until(lambda: len(hook.got) > 1 and post.mails)
            assert {path for path, _, _ in hook.got} == {"/j", "/queue"}
            ((_, headers, body),) = [one for one in hook.got if one[0] == "/j"]
            moment, _, signed = headers["Roost-Signature"].removeprefix("t=").partition(",v1=")
            assert signed == signature(SECRET, moment, body)
            document = json.loads(body)
            assert document["id"] == headers["Roost-Delivery"]
            assert (document["event"], document["job"]["id"]) == ("failed", job)
            assert document["job"]["exit_code"] == 3
            assert f"To: ada@example.com\r\nSubject: [roost] {job} of" in post.mails[0]

            hook.willing = False
            hook.got.clear()
            last = here.submit("true", notify={"to": f"{hook.url}/late", "on": ["succeeded"]})
            here.until(last, "succeeded")
            until(lambda: hook.refused > 1)
            assert "503" in told("notify").stdout
            assert here.process is not None
            here.process.kill()
        hook.willing = True
        with served(home):
            until(lambda: any(path == "/late" for path, _, _ in hook.got))
            until(lambda: "nothing waits" in told("notify").stdout)
    late = [json.loads(body) for path, _, body in hook.got if path == "/late"]
    assert {one["job"]["id"] for one in late} == {last}
    assert len({one["id"] for one in late}) == 1
