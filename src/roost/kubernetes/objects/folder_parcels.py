"""Folders that were sent, as a cluster keeps them: contents by their SHA-256, in ConfigMaps.

A parcel is a ConfigMap that never changes and is named by what is in it. Each key is a content, or
a piece of one that is too long, compressed:

    <sha256>                    a whole content
    <sha256>.<piece>.<pieces>   a piece of one, from 0 on

The manifest of a folder (``roost.api.manifests``) is a content like any other: its SHA-256 is the
folder's name. Which keys a parcel has stands in an annotation, too, so that nobody has to fetch it
for that. Parcels are owned by the Jobs that use them: Kubernetes removes one after the last of its
owners. How a pod reads them is in ``jobs.unpack_folder``.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from roost.kubernetes.client.kinds import CONFIG_MAPS, Object

#: What all parcels have as a label.
LABEL, VALUE = "roost.dev/folder", "parcel"
CONTENTS, SIZE = "roost.dev/contents", "roost.dev/size"
#: An object has at most 1 MiB, also while it is text; two pieces and 1,000 keys always fit.
_PIECE_BYTES, _PARCEL_BYTES, _PARCEL_KEYS = 272 << 10, 560 << 10, 1_000


class FolderParcel(NamedTuple):
    """A parcel without its contents; ``made_at`` is when, as Kubernetes writes it."""

    name: str
    keys: frozenset[str]
    size_bytes: int = 0
    is_owned: bool = True
    made_at: str = ""


def parcel_of(found: Object) -> FolderParcel:
    """The parcel in a ConfigMap, or in its metadata alone."""
    meta = found["metadata"]
    notes: Mapping[str, str] = meta.get("annotations") or {}
    size = notes.get(SIZE, "")
    return FolderParcel(
        meta["name"],
        frozenset(notes.get(CONTENTS, "").split()),
        int(size) if size.isdecimal() else 0,
        bool(meta.get("ownerReferences")),
        str(meta.get("creationTimestamp") or ""),
    )


def parcel_objects(contents: Iterable[tuple[str, bytes]], namespace: str) -> Iterator[Object]:
    """Parcels with contents, each given with its SHA-256."""
    full: dict[str, bytes] = {}
    size = 0
    for sha256, content in contents:
        for key, piece in _pieces(sha256, content):
            if full and (size + len(piece) > _PARCEL_BYTES or len(full) >= _PARCEL_KEYS):
                yield _parcel(full, namespace)
                full, size = {}, 0
            full[key] = piece
            size += len(piece)
    if full:
        yield _parcel(full, namespace)


def covering(
    parcels: Iterable[FolderParcel], contents: Collection[str], most: int | None = None
) -> tuple[list[FolderParcel], set[str]]:
    """Few parcels with these contents, at most so many; and which contents are not in them."""
    left = list(parcels)
    wanted = _keys_of(contents, left)
    lacking = {key for keys in wanted.values() for key in keys}
    chosen: list[FolderParcel] = []
    while lacking and (most is None or len(chosen) < most):
        best = max(left, key=lambda parcel: (len(parcel.keys & lacking), parcel.name))
        chosen.append(best)
        lacking -= best.keys
        left.remove(best)
    return chosen, {one for one in contents if one not in wanted or wanted[one] & lacking}


def content_in(parcel: Object, sha256: str) -> bytes | None:
    """A content that is whole in a ConfigMap; None if it is not, or not what its name says."""
    data = parcel.get("binaryData") or {}
    keys = _keys_of([sha256], [FolderParcel("", frozenset(data))]).get(sha256)
    if keys is None:
        return None
    try:
        pieces = [_piece(base64.b64decode(data[key])) for key in sorted(keys, key=_number)]
    except (ValueError, zlib.error):
        return None
    content = b"".join(pieces)
    return content if hashlib.sha256(content).hexdigest() == sha256 else None


def _pieces(sha256: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    count = max(1, -(-len(content) // _PIECE_BYTES))
    for number in range(count):
        piece = content[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES]
        yield (sha256 if count == 1 else f"{sha256}.{number}.{count}"), zlib.compress(piece)


def _keys_of(
    contents: Collection[str], parcels: Iterable[FolderParcel]
) -> dict[str, frozenset[str]]:
    """The keys of each content of which every piece is there."""
    found: dict[str, set[str]] = {}
    wanted = frozenset(contents)
    for parcel in parcels:
        for key in parcel.keys:
            sha256 = key.partition(".")[0]
            if sha256 in wanted:
                found.setdefault(sha256, set()).add(key)
    return {
        sha256: frozenset({sha256} if sha256 in keys else keys)
        for sha256, keys in found.items()
        if sha256 in keys or len(keys) == _count(next(iter(keys)))
    }


def _piece(packed: bytes) -> bytes:
    """A piece, and no more than one has: others can write to the namespace, too."""
    return zlib.decompressobj().decompress(packed, _PIECE_BYTES)


def _number(key: str) -> int:
    return int(key.split(".")[1]) if "." in key else 0


def _count(key: str) -> int:
    count = key.rpartition(".")[2]
    return int(count) if count.isdecimal() else 0


def _parcel(pieces: Mapping[str, bytes], namespace: str) -> Object:
    keys = " ".join(sorted(pieces))
    size = sum(map(len, pieces.values()))
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": f"roost-folder-{hashlib.sha256(keys.encode()).hexdigest()[:20]}",
            "namespace": namespace,
            "labels": {LABEL: VALUE},
            "annotations": {CONTENTS: keys, SIZE: str(size)},
        },
        "immutable": True,
        "binaryData": {key: base64.b64encode(piece).decode() for key, piece in pieces.items()},
    }
