"""Fetches the two libraries of the portal from the npm registry: ``lit-html`` and ``uplot``.

The build hook of the wheel calls this, so that users need neither npm nor the network. Versions and
hashes stand in ``package-lock.json`` beside this file, as npm writes them; what does not fit its
hash is refused. ``python -m roost.web.vendor`` does the same for an installation that was made
without a registry in reach.

The build hook loads this file alone, before Roost is installed: it uses the standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOCK = HERE / "package-lock.json"
FOLDER = HERE / "static" / "vendor"

#: The public registry, where neither npm nor the environment names another one.
REGISTRY = "https://registry.npmjs.org"
_LIT = (
    *("lit-html.js", "directive.js", "directive-helpers.js", "async-directive.js"),
    *(
        f"directives/{name}.js"
        for name in ("cache", "class-map", "guard", "keyed", "live", "ref", "repeat", "when")
    ),
)
#: Of each package its files, and what they are called below ``static/vendor``.
FILES = {
    "lit-html": {"LICENSE": "lit-html.LICENSE", **{name: name for name in _LIT}},
    "uplot": {
        "LICENSE": "uplot.LICENSE",
        "dist/uPlot.esm.js": "uplot.js",
        "dist/uPlot.min.css": "uplot.css",
    },
}
_MOST_BYTES = 16 << 20
_TIMEOUT_S = 60.0
_NPM_S = 20.0


class PackageError(Exception):
    """The libraries cannot be had; the message is a sentence for people."""


class UnexpectedPackage(PackageError):
    """A registry sent something else than what was locked."""


def complete(folder: Path = FOLDER) -> bool:
    """Whether all files of the versions in the lock file are there."""
    try:
        noted = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(noted == versions()) and all(path.is_file() for path in _places(folder))


def versions() -> dict[str, str]:
    """The version of each library, by the lock file."""
    return {name: str(_locked(name)["version"]) for name in FILES}


def fetch(folder: Path = FOLDER) -> bool:
    """See that the files are there; whether any had to be fetched. Raises PackageError."""
    if complete(folder):
        return False
    address = registry()
    found = {name: _package(address, name) for name in FILES}
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, then moved: whoever stops this in the middle leaves no half.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".vendor-") as made:
        new = Path(made) / "vendor"
        for name, archive in found.items():
            _unpack(name, archive, new)
        (new / "versions.json").write_text(
            json.dumps(versions(), indent=1) + "\n", encoding="utf-8"
        )
        new.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    return True


def registry() -> str:
    """The address of the registry: by the environment, by npm's own settings, or the public one."""
    for variable in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
        if address := os.environ.get(variable, "").strip():
            return address.rstrip("/")
    return _by_npm() or REGISTRY


def _by_npm() -> str:
    """The registry that npm is set to; empty where there is no npm."""
    npm = shutil.which("npm")
    if npm is None:
        return ""
    try:
        told = subprocess.run(  # noqa: S603 - npm itself
            [npm, "config", "get", "registry"],
            capture_output=True,
            check=True,
            text=True,
            timeout=_NPM_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    address = told.stdout.strip().rstrip("/")
    return address if address.startswith(("https://", "http://")) else ""


def _locked(name: str) -> dict[str, Any]:
    packages = json.loads(LOCK.read_text(encoding="utf-8"))["packages"]
    found: dict[str, Any] = packages[f"node_modules/{name}"]
    return found


def _package(address: str, name: str) -> bytes:
    """The archive of a package, which is what the lock file says it is."""
    locked = _locked(name)
    url = f"{address}/{name}/-/{name}-{locked['version']}.tgz"
    if not url.startswith(("https://", "http://")):
        raise PackageError(f"the npm registry {address!r} is no address of http or https")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked
            archive: bytes = answer.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise PackageError(
            f"{name} {locked['version']} cannot be fetched from the npm registry {address}: {why}; "
            "NPM_CONFIG_REGISTRY names another one"
        ) from None
    method, _, wanted = str(locked["integrity"]).partition("-")
    got = base64.b64encode(hashlib.new(method, archive).digest()).decode()
    if method != "sha512" or got != wanted:
        raise UnexpectedPackage(
            f"what {address} sent is not {name} {locked['version']}: its sha512 is {got}, "
            f"and package-lock.json says {wanted}"
        )
    return archive


def _unpack(name: str, archive: bytes, into: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as box:
        for wanted, called in FILES[name].items():
            file = box.extractfile(f"package/{wanted}")
            if file is None:
                raise UnexpectedPackage(f"{name} has no file {wanted}")
            place = into / called
            place.parent.mkdir(parents=True, exist_ok=True)
            # A map is not shipped: a browser that asks for it would get an error.
            kept = [
                line
                for line in file.read().splitlines(keepends=True)
                if b"sourceMappingURL=" not in line
            ]
            place.write_bytes(b"".join(kept))


def _places(folder: Path) -> list[Path]:
    return [folder / called for files in FILES.values() for called in files.values()]


def main() -> int:
    """Fetch the files, and say what became of it."""
    try:
        new = fetch()
    except (PackageError, OSError) as error:
        print(f"roost: error: {error}", file=sys.stderr)
        return 2
    told = ", ".join(f"{name} {version}" for name, version in versions().items())
    print(f"{told}: {'fetched' if new else 'there already'}; reload the page")
    return 0


if __name__ == "__main__":
    sys.exit(main())
