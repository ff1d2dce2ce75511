"""The formats that Roost reads, how it tells them apart, and the one door to all of them.

To add one: a module with a reader (``rows`` has the machinery), and a line in ``FORMATS``.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, resources
from types import MappingProxyType

from roost.core.spec import NodeSpec
from roost.errors import InvalidSpec, unknown
from roost.files import Source, TextFile, load
from roost.traces.workload import Workload

Reader = Callable[..., Workload]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: what it is in a line, where its reader is, and the columns that give it away."""

    summary: str
    module: str
    function: str
    columns: frozenset[str] = frozenset()

    @property
    def reader(self) -> Reader:
        """The function that reads it; imported when first asked for."""
        reader: Reader = getattr(import_module(self.module), self.function)
        return reader

    @property
    def options(self) -> tuple[str, ...]:
        """What its reader can be told beside the file and whether to skip bad rows."""
        names = inspect.signature(self.reader).parameters
        return tuple(name for name in names if name not in ("source", "skip_bad_rows"))


def _format(summary: str, module: str, columns: str = "") -> Format:
    function = f"read_{module}"
    return Format(summary, f"roost.traces.{module}", function, frozenset(columns.split()))


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "roost": _format(
            "Roost's own table of jobs (csv)",
            "table",
            "id submitted_at work_s",
        ),
        "philly-json": _format(
            "cluster_job_log of Microsoft's Philly trace (JSON)",
            "philly_json",
        ),
        "philly-csv": _format(
            "the Philly trace as the Sia artifact flattened it (csv)",
            "philly_csv",
            "timestamp duration num_gpus cluster",
        ),
        "helios": _format(
            "SenseTime's Helios traces, Venus and others (csv)",
            "helios",
            "job_id user vc gpu_num state submit_time duration",
        ),
        "openb": _format(
            "pods of Alibaba's openb cluster, gpu-v2023 (csv; its nodes are a cluster)",
            "openb",
            "name cpu_milli memory_mib num_gpu gpu_milli",
        ),
        "gavel": _format(
            "Gavel's traces in steps (tabs; needs --throughputs)",
            "gavel",
        ),
        "sia": _format(
            "Sia's workloads of adaptive jobs (csv)",
            "sia",
            "name time application num_replicas batch_size",
        ),
    }
)
#: Columns of Gavel's older and newer form, which have no header to go by.
_GAVEL_WIDTHS = (7, 10)
#: Characters that tell the format; a trace may have hundreds of megabytes.
_ENOUGH = 4096


def read(
    source: Source,
    *,
    format: str = "auto",  # noqa: A002 - the word for it everywhere else
    skip_bad_rows: bool = False,
    **options: object,
) -> Workload:
    """Read a trace in one of ``FORMATS``, or in whichever it looks like.

    Options go to the reader of the format. Raises NotFound for a file or format that is not
    there, and InvalidSpec for a file, row or option that is wrong.
    """
    if format != "auto" and format not in FORMATS:
        raise unknown("trace format", format, ("auto", *FORMATS))
    # Loaded once for recognise and the reader: a pipe cannot be read a second time.
    text = load(source)
    name = recognise(text) if format == "auto" else format
    known = FORMATS[name].options
    for option in options:
        if option not in known:
            takes = ", ".join(known) or "none"
            msg = f"traces of format {name!r} have no option {option!r}; they have: {takes}"
            raise InvalidSpec(msg)
    return FORMATS[name].reader(text, skip_bad_rows=skip_bad_rows, **options)


def recognise(source: Source) -> str:
    """Name the format that a file looks like; raises InvalidSpec if it is none."""
    text = load(source)
    start = text.text.lstrip()[:_ENOUGH]
    if not start:
        msg = f"{text.file}: the trace is empty"
        raise InvalidSpec(msg)
    first = start.splitlines()[0]
    if first.startswith("["):
        return "philly-json"
    if first.count("\t") + 1 in _GAVEL_WIDTHS:
        return "gavel"
    header = {name.strip() for name in next(csv.reader([first]))}
    shared = {name: len(known.columns & header) for name, known in FORMATS.items()}
    best = max(shared, key=lambda name: shared[name])
    # More than half will do, so that its reader can say which column is missing.
    if shared[best] * 2 > len(FORMATS[best].columns):
        return best
    msg = f"cannot tell the format of {text.file}; give one of: {', '.join(FORMATS)}"
    raise InvalidSpec(msg)


def read_cluster(source: Source) -> tuple[NodeSpec, ...]:
    """Read a table of nodes: Roost's own, or that of Alibaba's openb."""
    from roost.traces.openb import read_openb_nodes  # noqa: PLC0415 - as for all formats
    from roost.traces.table import read_nodes  # noqa: PLC0415

    text = load(source)
    header = text.text.partition("\n")[0].split(",")
    # Of the two tables of nodes only Alibaba's has serial numbers (sn).
    return read_openb_nodes(text) if "sn" in header else read_nodes(text)


def bundled(name: str) -> Workload:
    """Read a workload that comes with Roost; ``demo`` is made for 8 nodes with 8 GPUs each."""
    folder = resources.files("roost.traces").joinpath("bundled")
    files = {entry.name.removesuffix(".csv"): entry for entry in folder.iterdir()}
    if name not in files:
        raise unknown("bundled workload", name, files)
    return read(TextFile(f"{name}.csv", files[name].read_text("utf-8")), format="roost")
