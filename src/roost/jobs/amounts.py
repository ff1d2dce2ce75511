"""Amounts in sentences, as people write them: 1 GPU, 2 CPUs, 24 GiB; and what jobs ask for.

Only what was asked for is named, and what there is here instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roost.core.extras import extra_capacity, extra_text
from roost.core.reasons import gpus
from roost.core.spec import WHOLE, JobSpec, NodeSpec, Resources

_STEP = 1024


def size(mib: int) -> str:
    """An amount of memory."""
    return f"{mib / _STEP:.3g} GiB" if mib >= _STEP else f"{mib} MiB"


def shown_bytes(amount: float) -> str:
    """A number of bytes."""
    for unit in ("bytes", "KiB", "MiB"):
        if amount < _STEP:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= _STEP
    return f"{amount:.1f} GiB"


def cpus(milli: int) -> str:
    """An amount of CPUs."""
    return f"{milli / 1000:g} CPU{'' if 0 < milli <= 1000 else 's'}"  # noqa: PLR2004 - of a CPU


def counted(number: int, what: str) -> str:
    """So many of something: 1 node, 2 nodes."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def together(words: Sequence[str], last: str = "and") -> str:
    """Several things in one sentence: a, b and c."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def asked(spec: JobSpec) -> str:
    """What a job asks for at least."""
    count = spec.workers.min
    text = _gang(count, "worker", spec.resources)
    for role in spec.roles:
        text += f", and for {_gang(role.workers, role.name, role.resources, always=True)}"
    text += "" if spec.within is None else f", within one {spec.within.name.lower()}"
    return f"{text}, in cell {spec.cell}" if spec.cell else text


def there(nodes: Sequence[NodeSpec], wanted: Sequence[Resources]) -> str:
    """What the nodes have of what is wanted."""
    total = sum(node.gpus for node in nodes)
    kinds = ", ".join(sorted({node.kind for node in nodes}))
    most = [*_most(nodes, wanted)]
    if len(nodes) == 1:
        return f"{nodes[0].id} has {together([f'{gpus(total * WHOLE)} ({kinds})', *most])}"
    most = [gpus(max(node.gpus for node in nodes) * WHOLE), *most]
    return f"{len(nodes)} nodes have {gpus(total * WHOLE)} ({kinds}), each at most {together(most)}"


def missing(nodes: Iterable[NodeSpec], wanted: Iterable[Resources]) -> str:
    """Which kinds of GPU there are none of, if that is all that is wrong."""
    here = {node.kind for node in nodes}
    for need in wanted:
        if need.kinds and not here.intersection(need.kinds):
            return f"there is no {together(need.kinds, 'or')} here, only {together(sorted(here))}"
    return ""


def _gang(count: int, what: str, need: Resources, *, always: bool = False) -> str:
    each = together([*_each(need)]) or "nothing"
    if count == 1 and not always:
        return each
    return f"{count} {what} with {each}" if count == 1 else f"{_many(count, what)} with {each} each"


def _many(count: int, what: str) -> str:
    return counted(count, what) if what == "worker" else f"{count} x {what}"


def _each(need: Resources) -> Iterable[str]:
    if need.gpu_milli:
        yield gpus(need.gpu_milli, need.kinds)
    if need.gpu_memory_mib:
        yield f"{size(need.gpu_memory_mib)} of GPU memory"
    if need.cpu_milli:
        yield cpus(need.cpu_milli)
    if need.memory_mib:
        yield f"{size(need.memory_mib)} of memory"
    for name, amount in need.extras:
        yield extra_text(name, amount)


def _most(nodes: Sequence[NodeSpec], wanted: Sequence[Resources]) -> Iterable[str]:
    """The most that one node has of what is wanted beside GPUs; 0 stands for any amount."""
    if any(need.gpu_memory_mib for need in wanted) and all(node.gpu_memory_mib for node in nodes):
        yield f"{size(max(node.gpu_memory_mib for node in nodes))} of memory on a GPU"
    if any(need.cpu_milli for need in wanted) and all(node.cpu_milli for node in nodes):
        yield cpus(max(node.cpu_milli for node in nodes))
    if any(need.memory_mib for need in wanted) and all(node.memory_mib for node in nodes):
        yield f"{size(max(node.memory_mib for node in nodes))} of memory"
    for name in sorted({name for need in wanted for name, _ in need.extras}):
        most = max(extra_capacity(node.extras, name) for node in nodes)
        yield extra_text(name, most) if most else f"no {name}"
