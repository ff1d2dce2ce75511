"""Lays out a folder that was sent, in the container of a job: its work folder begins like this.

    python3 -I unpack.py PARCELS FOLDER NAME

It runs with the Python of the job's image (3.7 or later) and by itself: it imports nothing of
Roost. PARCELS has a file for each content, or piece of one, as ``folder_parcels`` makes them; NAME
is the SHA-256 of the folder's manifest. Everything is checked against its SHA-256. Begun anew, it
makes the same again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path


def main(argv: list[str]) -> int:
    """Unpack; the exit status."""
    parcels, folder, name = argv[1:]
    try:
        unpack(Path(parcels), Path(folder), name)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        reason = str(error)
    else:
        return 0
    sys.stderr.write(f"the folder that was sent cannot be unpacked: {reason}\n")
    return 1


def unpack(parcels: Path, folder: Path, name: str) -> None:
    """Make all files, empty folders and links of a manifest; raises ValueError or OSError."""
    manifest = json.loads(b"".join(pieces_of(parcels, name)).decode("utf-8"))
    for path in manifest["folders"]:
        inside(folder, path).mkdir(parents=True, exist_ok=True)
    for path, (sha256, _, executable) in manifest["files"].items():
        place = inside(folder, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            file.writelines(pieces_of(parcels, sha256))
        place.chmod(0o755 if executable else 0o644)
    # Last: no file is written through one.
    for path, target in manifest["links"].items():
        place = inside(folder, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        place.symlink_to(target)


def pieces_of(parcels: Path, sha256: str) -> Iterator[bytes]:
    """The pieces of a content in order; raises ValueError after the last if they are not it."""
    digest = hashlib.sha256()
    for place in places_of(parcels, sha256):
        piece = zlib.decompress(place.read_bytes())
        digest.update(piece)
        yield piece
    if digest.hexdigest() != sha256:
        raise ValueError(f"{sha256[:12]} is not what was sent; submit it again")


def places_of(parcels: Path, sha256: str) -> list[Path]:
    """The files that a content is in."""
    whole = parcels / sha256
    if whole.exists():
        return [whole]
    pieces = sorted(parcels.glob(f"{sha256}.*"), key=lambda place: int(place.name.split(".")[1]))
    if not pieces or len(pieces) != int(pieces[0].name.split(".")[2]):
        raise ValueError(f"{sha256[:12]} is not there; submit it again")
    return pieces


def inside(folder: Path, path: str) -> Path:
    """A path below the folder; raises ValueError for any other."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} is no path within a folder")
    return folder / path


if __name__ == "__main__":
    sys.exit(main(sys.argv))
