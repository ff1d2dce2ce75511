"""The files of the portal, as they are sent: with one digest for all of them, and zipped.

All files are read once and kept: a server goes on with the files that it began with while an
upgrade replaces them on the disk. One digest stands for all of them, so that modules which import
each other by relative paths are always of one version, and may be kept for ever.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from roost.web import vendor

STATIC = Path(__file__).resolve().parent / "static"
INDEX = "index.html"
#: Where files are served, with the digest of all of them in between or without one.
PREFIX = "/assets/"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_PLAIN = "text/plain; charset=utf-8"
_ZIPPED = frozenset({".css", ".html", ".js", ".json", ".mjs", ".svg", ".txt", ".webmanifest"})
_DIGEST = 16

#: What is shown where the libraries are not there.
_LACKING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Roost</title>
<h1>Roost is up, its pages are not installed</h1>
<p>This Roost was installed while no npm registry was in reach, so two libraries of its pages are
missing. The command line, the SDK and the REST API work.</p>
<p>To get them, run this on the server's machine, in the environment of Roost, and restart the
server (<code>roost down</code>, <code>roost up</code>; jobs go on):</p>
<pre>python -m roost.web.vendor</pre>
<p><code>NPM_CONFIG_REGISTRY</code> names another registry.</p>
</html>
"""


@dataclass(slots=True)
class AssetFile:
    """A file as it is sent."""

    content: bytes
    media_type: str
    etag: str
    suffix: str
    _zipped: bytes | None = field(default=None, repr=False)

    def zipped(self) -> bytes | None:
        """The same with gzip, where that is shorter; worked out when it is first asked for."""
        if self.suffix not in _ZIPPED:
            return None
        if self._zipped is None:
            self._zipped = gzip.compress(self.content, 9, mtime=0)
        return self._zipped if len(self._zipped) < len(self.content) else None


class Assets:
    """All files of the portal."""

    def __init__(self, folder: Path = STATIC, *, reload: bool = False) -> None:
        self._folder, self._reload = folder, reload
        self._files: dict[str, AssetFile] | None = None
        self._digest = ""

    @property
    def digest(self) -> str:
        """What stands for the content of all files."""
        self._all()
        return self._digest

    def find(self, path: str) -> tuple[AssetFile, bool] | None:
        """The file at a path below ``/assets/``, and whether it never changes at that path."""
        files = self._all()
        first, _, rest = path.partition("/")
        if first == self._digest and rest in files:
            return files[rest], True
        found = files.get(path)
        return None if found is None else (found, False)

    def page(self) -> AssetFile:
        """The page that all pages begin with; a plain one where something is missing."""
        found = self._all().get(INDEX)
        if found is None or not vendor.complete(self._folder / "vendor"):
            return _file(_LACKING.encode(), ".html")
        return found

    def _all(self) -> dict[str, AssetFile]:
        if self._files is None or self._reload:
            self._files, self._digest = _read(self._folder)
        return self._files


def _read(folder: Path) -> tuple[dict[str, AssetFile], str]:
    """All files by their paths, and the digest of all."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    whole = hashlib.sha256()
    for name, content in contents.items():
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    digest = whole.hexdigest()[:_DIGEST]
    if INDEX in contents:
        own = f'"{PREFIX}'.encode()
        contents[INDEX] = contents[INDEX].replace(own, own + f"{digest}/".encode())
    return {name: _file(content, Path(name).suffix) for name, content in contents.items()}, digest


def _file(content: bytes, suffix: str) -> AssetFile:
    etag = f'"{hashlib.sha256(content).hexdigest()[:_DIGEST]}"'
    return AssetFile(content, _TYPES.get(suffix, _PLAIN), etag, suffix)
