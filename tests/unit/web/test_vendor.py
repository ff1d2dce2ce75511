"""The libraries of the portal: fetched from a registry, checked, put in their place as a whole."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from roost.web import vendor


def archive(files: dict[str, bytes]) -> bytes:
    """A package as npm makes it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as box:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            box.addfile(entry, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture
def packages() -> dict[str, bytes]:
    """What a registry sends, by its path."""
    return {
        f"/{name}/-/{name}-{version}.tgz": archive(
            {
                file: f"// {name}\n//# sourceMappingURL=x.map\n".encode()
                for file in vendor.FILES[name]
            }
        )
        for name, version in vendor.versions().items()
    }


@pytest.fixture
def registry(packages: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A registry on loopback, and a lock file that knows its packages."""

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = packages.get(self.path)
            self.send_response(200 if content else 404)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    lock = json.loads(vendor.LOCK.read_text())["packages"]

    def locked(name: str) -> dict[str, Any]:
        found = dict(lock[f"node_modules/{name}"])
        content = first[f"/{name}/-/{name}-{found['version']}.tgz"]
        found["integrity"] = f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
        return found

    first = dict(packages)
    monkeypatch.setattr(vendor, "_locked", locked)
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{address}/")
        yield address
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("registry")
def test_files_are_fetched_once(tmp_path: Path) -> None:
    folder = tmp_path / "static" / "vendor"
    assert not vendor.complete(folder)
    assert vendor.fetch(folder)
    assert vendor.complete(folder)
    assert (folder / "lit-html.js").read_text() == "// lit-html\n"
    assert (folder / "uplot.LICENSE").is_file()
    assert (folder / "directives" / "repeat.js").is_file()
    assert not vendor.fetch(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["vendor"]
    (folder / "uplot.css").unlink()
    assert vendor.fetch(folder), "what lacks a file is fetched again"


def test_something_else_than_was_locked_is_refused(
    registry: str, packages: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "vendor"
    for path in packages:
        packages[path] = archive({"lit-html.js": b"steal()"})
    with pytest.raises(vendor.UnexpectedPackage, match=f"what {registry} sent is not lit-html"):
        vendor.fetch(folder)
    assert not folder.exists()


def test_without_a_registry_one_sentence_says_what_to_do(
    registry: str,
    packages: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    packages.clear()
    with pytest.raises(
        vendor.PackageError, match=f"npm registry {registry}: Not Found; NPM_CONFIG"
    ):
        vendor.fetch(tmp_path / "vendor")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "ftp://127.0.0.1")
    with pytest.raises(vendor.PackageError, match="no address of http or https"):
        vendor.fetch(tmp_path / "vendor")
    monkeypatch.setattr(vendor, "FOLDER", tmp_path / "vendor")
    monkeypatch.setattr(vendor.fetch, "__defaults__", (tmp_path / "vendor",))
    assert vendor.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_lock_file_names_versions_and_hashes() -> None:
    for name in vendor.FILES:
        locked = vendor._locked(name)
        assert locked["integrity"].startswith("sha512-")
        assert "resolved" not in locked, "the registry is the one that npm is set to"
    asked = json.loads((vendor.HERE / "package.json").read_text())["dependencies"]
    assert asked == vendor.versions()
