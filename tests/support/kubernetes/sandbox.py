"""Runs one program in a file tree of its own.

``pod_processes`` starts it as a script: it imports little.

    python -I -S sandbox.py SPECIFICATION

The specification is a file of JSON: ``command``, ``env``, ``cwd``, the folder ``root``, and
``mounts``: pairs of a path in the program's eyes and the folder or file that is there, and whether
it may be written. With mounts, the program gets a mount namespace whose root has everything that
this machine's has, and the mounts; the machine's own tree is left alone. That needs root, or a
kernel that gives users namespaces. The program dies with whoever started it.

Exit codes of its own, as container engines have them: 126 cannot be run, 127 not found, 128 no
room could be made.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

_PDEATHSIG = 1
_NEWNS, _NEWUSER = 0x20000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_CANNOT_RUN, _NOT_FOUND, _NO_ROOM = 126, 127, 128

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become the program."""
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123 - pathlib would be no shorter
        given = json.load(file)
    _check(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if given["mounts"]:
        try:
            _make_room(Path(given["root"]), given["mounts"])
        except OSError as error:
            _refuse(f"no room for it: {error}", _NO_ROOM)
    try:
        os.chdir(given["cwd"])
        os.execvpe(given["command"][0], given["command"], given["env"])  # noqa: S606 - ours
    except FileNotFoundError as error:
        _refuse(str(error), _NOT_FOUND)
    except OSError as error:
        _refuse(str(error), _CANNOT_RUN)


def _make_room(root: Path, mounts: list[tuple[str, str, bool]]) -> None:
    _enter_namespace()
    _mount("none", "/", flags=_REC | _PRIVATE)
    # Held open, for a mount may hide the folder that the next one comes from.
    held = [(path, _held(source), writable) for path, source, writable in sorted(mounts)]
    _shadow("/", root)
    os.chroot(root)
    shadows, own = {Path("/")}, set[Path]()
    for path, source, writable in held:
        target = Path(path).resolve()
        _ensure(target, shadows, own, is_folder=Path(source).is_dir())
        _mount(source, target, flags=_BIND | _REC)
        own.add(target)
        if not writable:
            _mount("none", target, flags=_BIND | _REMOUNT | _RDONLY)


def _held(path: str | Path) -> str:
    return f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_CLOEXEC)}"


def _enter_namespace() -> None:
    if os.geteuid() == 0:
        _check(_libc.unshare(_NEWNS))
        return
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEWNS | _NEWUSER))
    maps = (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1"))
    for name, text in maps:
        Path("/proc/self", name).write_text(text, encoding="ascii")


def _shadow(real: str, at: Path) -> None:
    """Make ``at`` a folder with the same entries as ``real``, where more can be added."""
    entries = [Path(entry.path) for entry in os.scandir(real)]
    _mount("tmpfs", at, kind="tmpfs")
    for entry in entries:
        place = at / entry.name
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
        elif entry.is_dir():
            place.mkdir()
            _mount(entry, place, flags=_BIND | _REC)
        else:
            place.touch()
            _mount(entry, place, flags=_BIND)


def _ensure(path: Path, shadows: set[Path], own: set[Path], *, is_folder: bool) -> None:
    """Make a path to mount on, if there is none, without touching the machine's own folders.

    ``shadows`` are folders that have the machine's entries but are the room's; all of what is in
    ``own`` is the room's.
    """
    for part in (*reversed(path.parents), path):
        if part.exists():
            continue
        folder = part.parent
        if folder not in shadows and own.isdisjoint((folder, *folder.parents)):
            _shadow(_held(folder), folder)
            shadows.add(folder)
        if is_folder or part != path:
            part.mkdir()
        else:
            part.touch()
        own.add(part)


def _mount(source: Path | str, target: Path | str, *, flags: int = 0, kind: str = "") -> None:
    words = (os.fsencode(source), os.fsencode(target), kind.encode() or None)
    _check(_libc.mount(*words, ctypes.c_ulong(flags), None), f"mounting {source} at {target}")


def _check(answer: int, what: str = "") -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}" if what else os.strerror(number))


def _refuse(sentence: str, code: int) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 - into the container's log
    sys.exit(code)


if __name__ == "__main__":
    main()
