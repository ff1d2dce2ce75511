"""HiveD's configuration file as it is written: the physical cluster and the virtual ones, in YAML.

The fields are those of HiveD (``pkg/api/config.go`` of microsoft/hivedscheduler). What is about
its own server is passed over; a field that is misspelled inside of what is read is refused. What
the cells mean is for ``cells``.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roost.errors import InvalidSpec
from roost.files import Source
from roost.files import load as load_text
from roost.jobfile import yaml
from roost.jobfile.errors import Fault
from roost.jobfile.yaml import YamlNode

#: Below these keys ``0.10`` is a name, and stays as it was written.
_TEXTS = frozenset({"cellAddress", "pinnedCellId", "cellType", "childCellType"})
_MOST = 1_000_000


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CellTypeSection(_Section):
    """What a cell is made of; a type that is none of these is a device."""

    child: str = Field(alias="childCellType", min_length=1)
    number: int = Field(alias="childCellNumber", ge=1, le=_MOST)
    is_node: bool = Field(default=False, alias="isNodeLevel")


class PhysicalCellSection(_Section):
    """A cell that is there; what is not said of its children is as its type says."""

    type: str = Field(default="", alias="cellType")
    address: str | None = Field(default=None, alias="cellAddress")
    pinned: str | None = Field(default=None, alias="pinnedCellId")
    children: tuple[PhysicalCellSection, ...] | None = Field(default=None, alias="cellChildren")


class VirtualCellSection(_Section):
    """So many cells of a type, which is written with all types above it: ``RACK.NODE.SOCKET``."""

    type: str = Field(alias="cellType", min_length=1)
    number: int = Field(alias="cellNumber", ge=0, le=_MOST)


class PinnedCellSection(_Section):
    """One particular cell."""

    id: str = Field(alias="pinnedCellId", min_length=1)


class VirtualClusterSection(_Section):
    """What a tenant was promised."""

    cells: tuple[VirtualCellSection, ...] | None = Field(default=None, alias="virtualCells")
    pinned: tuple[PinnedCellSection, ...] | None = Field(default=None, alias="pinnedCells")


class PhysicalClusterSection(_Section):
    """All that there is. OpenPAI adds fields of its own."""

    model_config = ConfigDict(extra="ignore")

    types: dict[str, CellTypeSection] = Field(default={}, alias="cellTypes")
    cells: tuple[PhysicalCellSection, ...] = Field(default=(), alias="physicalCells")


class HivedConfig(_Section):
    """The parts of the file that say what there is, and who was promised what."""

    model_config = ConfigDict(extra="ignore")

    physical: PhysicalClusterSection = Field(alias="physicalCluster")
    virtual: dict[str, VirtualClusterSection] = Field(default={}, alias="virtualClusters")


def read_config(source: Source) -> HivedConfig:
    """The configuration in a file; raises InvalidSpec with the line and the field."""
    text = load_text(source)
    try:
        root = yaml.load(text.text)
        document = yaml.plain(root, _TEXTS)
    except Fault as fault:
        line = f", line {fault.error.line}" if fault.error.line else ""
        raise InvalidSpec(f"{text.file}{line}: {fault.error.message}") from None
    if not isinstance(document, dict) or "physicalCluster" not in document:
        raise InvalidSpec(
            f"{text.file} is not a configuration of HiveD: it has no field 'physicalCluster'"
        )
    try:
        return HivedConfig.model_validate(document)
    except ValidationError as error:
        raise InvalidSpec(_first(text.file, root, error.errors())) from None


def looks_like_hived(text: str) -> bool:
    """Whether a text may be such a file, rather than a table of nodes."""
    return any(line.startswith("physicalCluster:") for line in text.splitlines())


def _first(file: str, root: YamlNode, faults: list[Any]) -> str:
    # A field that is not known is often the one that is missing, misspelled.
    fault = min(faults, key=lambda one: one["type"] != "extra_forbidden")
    where = tuple(fault["loc"])
    path = ".".join(map(str, where))
    what = "there is no such field" if fault["type"] == "extra_forbidden" else fault["msg"]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{file}, line {root.line_of(where)}: {path}: {what}{more}"
