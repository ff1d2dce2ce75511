"""What a queue is promised of the topology: so many cells of a level, or one cell by its name.

As text a promise is ``COUNTxLEVEL[@TREE][:KIND][*GPUS]``, or ``pin:CELL`` for a cell by its name:

    2xnode:A100         two nodes of A100
    1xnode:A100*8       a node with eight A100, where nodes of that kind differ
    1xswitch            all nodes of a switch, where there is one kind of GPU
    3xpair@dgx:V100     three cells of a level that the tree ``dgx`` declares
    pin:node-7          this node, and no other

Several are separated by commas. Whether there are such cells, and enough of them, is not known
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from roost.errors import InvalidSpec

#: The levels that every node has or says, from the inside out; declared trees name more.
LEVELS: Final = ("gpu", "socket", "node", "switch", "block", "zone")
#: What the text of a promise of one cell by its name begins with.
PIN: Final = "pin:"

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_TEXT = re.compile(
    rf"(?P<count>\d+)\s*[x×]\s*(?P<level>{_NAME})(?:@(?P<tree>{_NAME}))?"
    r"(?::(?P<kind>[^:*,@]+))?(?:\*(?P<gpus>\d+))?"
)
_HOW = "write it like 2xnode:A100, 1xswitch, 1xnode:A100*8 or pin:node-7"


@dataclass(frozen=True, slots=True)
class CellPromise:
    """So many cells that a queue is promised.

    ``level`` is one of ``LEVELS``, or a level of a declared tree. ``kind`` is the kind of their
    GPUs and ``gpus`` how many each of them has; both may be left out where no two sorts of cells
    would do. ``tree`` is the declared tree that they have to be of. A promise with ``pinned`` is
    of the one cell with that name, and has no level.
    """

    count: int = 1
    level: str = ""
    kind: str = ""
    gpus: int = 0
    tree: str = ""
    pinned: str = ""

    def __post_init__(self) -> None:
        """Refuse promises of nothing, and those that contradict themselves."""
        if bool(self.level) == bool(self.pinned):
            raise InvalidSpec(f"a promise of cells says either a level or a cell's name: {_HOW}")
        if self.pinned and (self.count != 1 or self.kind or self.gpus or self.tree):
            raise InvalidSpec(f"cell {self.pinned!r} is one cell: a promise says its name alone")
        if self.count < 1:
            raise InvalidSpec(f"a promise is of at least one {self.level}, got {self.count}")
        if self.gpus < 0:
            raise InvalidSpec(f"a {self.level} cannot have {self.gpus} GPUs")

    def __str__(self) -> str:
        """The text that ``parse_promise`` reads."""
        if self.pinned:
            return f"{PIN}{self.pinned}"
        tree = f"@{self.tree}" if self.tree else ""
        kind = f":{self.kind}" if self.kind else ""
        gpus = f"*{self.gpus}" if self.gpus else ""
        return f"{self.count}x{self.level}{tree}{kind}{gpus}"

    @property
    def title(self) -> str:
        """The promise as people say it: 2 × node of A100."""
        if self.pinned:
            return f"cell {self.pinned}"
        sort = " ".join((*([str(self.gpus)] if self.gpus else []), self.kind or "GPUs"))
        of = f" of {sort}" if self.kind or self.gpus else ""
        tree = f" in {self.tree}" if self.tree else ""
        return f"{self.count} × {self.level}{of}{tree}"


def parse_promise(text: str) -> CellPromise:
    """The promise that a text tells; raises InvalidSpec with a sentence that says how to write."""
    said = text.strip()
    if said.startswith(PIN):
        if name := said[len(PIN) :].strip():
            return CellPromise(pinned=name)
        raise InvalidSpec(f"the name of a cell is missing after {PIN!r}: {_HOW}")
    if (found := _TEXT.fullmatch(said)) is None:
        raise InvalidSpec(f"{text!r} is no promise of cells: {_HOW}")
    gpus = found["gpus"]
    if gpus is not None and not int(gpus):
        raise InvalidSpec(f"{text!r}: cells have at least one GPU after the *")
    return CellPromise(
        int(found["count"]),
        found["level"],
        (found["kind"] or "").strip(),
        int(gpus or 0),
        found["tree"] or "",
    )


def parse_promises(text: str) -> tuple[CellPromise, ...]:
    """The promises in a text, separated by commas; none in an empty one."""
    return tuple(parse_promise(part) for part in text.split(",")) if text.strip() else ()


def format_promises(promises: Iterable[CellPromise]) -> str:
    """The text that ``parse_promises`` reads."""
    return ",".join(map(str, promises))


def check_promises(promises: Iterable[CellPromise], whose: str) -> None:
    """Refuse promises of one queue that name a cell twice; raises InvalidSpec."""
    seen: set[str] = set()
    for promise in promises:
        if promise.pinned and promise.pinned in seen:
            raise InvalidSpec(f"{whose}: cell {promise.pinned!r} is promised to it twice")
        seen.add(promise.pinned)
