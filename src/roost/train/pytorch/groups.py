"""Groups of workers that train together with PyTorch: how one is formed, used and left.

A group is made beside the one that is in use, so that training goes on while the workers meet: the
first one listens at the address of the version, all say hello and compare what they train, and only
then connect. torch's global default group is not touched. Gradients go by NCCL where every worker
has a GPU of its own, by gloo otherwise; control always goes by gloo. Nothing here times out because
a worker is slow or frozen: a worker that is lost closes its connections, and ``abort`` is for when
Roost says that it is gone.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import torch.distributed
from torch.nn.parallel import DistributedDataParallel

import torch
from roost.train.members import Misuse, View
from torch import nn

#: Much of it is not in its type stubs.
dist: Any = torch.distributed

_FOREVER = timedelta(days=20)
_MEET = timedelta(seconds=300)
#: How long workers that have met may take to connect before they meet anew: one of them may die.
_CONNECT = timedelta(seconds=20)
_POLL_S = 0.004
#: How long the host of a meeting that failed waits until all know why.
_READ_S = 5.0
_INET, _INET6 = socket.AF_INET, socket.AF_INET6
_TYPE = dist.ProcessGroup.BackendType


class Abandoned(Exception):
    """The meeting was given up: there is a newer version, or the process shall stop."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a worker says about itself when it meets the others."""

    #: What must be the same everywhere, by name.
    same: dict[str, str]
    device: torch.device
    #: Which training of the script it is, from 1.
    loop: int = 1

    def line(self) -> str:
        """As it travels."""
        return json.dumps({"same": self.same, "seat": _seat(self.device)})


@dataclass(slots=True)
class Group:
    """Workers that are connected; of one alone when ``gloo`` is None."""

    view: View
    rank: int
    gloo: Any = None
    #: What DDP uses.
    process_group: Any = None
    #: The backend that carries the gradients.
    carrier: Any = None
    store: Any = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    wires: list[socket.socket] = field(default_factory=list)
    broken: bool = False
    #: The version of the members that it was formed for, and how many they are: asked at each step.
    version: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Look once at the members."""
        self.version, self.size = self.view.version, self.view.size

    def start_round(self, values: torch.Tensor) -> Any:
        """Begin to agree on the largest of each value; wait for what is returned."""
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        return self.gloo.allreduce([values], options)

    def add(self, tensor: torch.Tensor) -> None:
        """Make it the sum over the workers, in place, wherever it lies."""
        self.carrier.allreduce([tensor]).wait()

    def give(self, tensor: torch.Tensor, source: int) -> None:
        """Make it what the source has, in place."""
        options = dist.BroadcastOptions()
        options.rootRank = source
        self.carrier.broadcast([tensor], options).wait()

    def wrap(self, module: nn.Module, *, unused: bool) -> nn.Module:
        """The module with its gradients averaged; the state must be the same already."""
        if self.gloo is None:
            return module
        on_gpu = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(
            module,
            device_ids=on_gpu,
            process_group=self.process_group,
            init_sync=False,
            find_unused_parameters=unused,
            **_no_buffers(),
        )

    def abort(self) -> None:
        """Break it, so that a worker that waits in it gives up; from any thread."""
        self.broken = True
        for wire in self.wires:
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
        if self.carrier is not self.gloo:
            with suppress(Exception):
                self.carrier.abort()

    def close(self) -> None:
        """Let go of it; may take a moment."""
        while self.wires:
            self.wires.pop().close()
        self.process_group = self.carrier = self.gloo = self.store = None


def form(view: View, rank: int, hello: Hello, given_up: Callable[[], bool]) -> Group:
    """Meet the others of a version; raises Misuse when they train something else, Abandoned."""
    if view.size == 1:
        return Group(view, rank, device=hello.device)
    try:
        store = _store(view, rank, given_up)
        seats = _greet(store, view, rank, hello, given_up)
        store = dist.PrefixStore(str(hello.loop), store)
        gloo, wires = _gloo(store, view, rank)
    except BaseException:
        _Hosted.last = None  # what was said there is void
        raise
    carrier = gloo
    group = dist.ProcessGroup(store, rank, view.size)
    group._register_backend(torch.device("cpu"), _TYPE.GLOO, gloo)  # noqa: SLF001 - no other way
    kind = _TYPE.GLOO
    if hello.device.type == "cuda":
        if len(set(seats)) == len(seats) and dist.is_nccl_available():
            kind = _TYPE.NCCL
            carrier = _nccl(store, view, rank)
        group._register_backend(torch.device("cuda"), kind, carrier)  # noqa: SLF001 - as above
    group._set_default_backend(kind)  # noqa: SLF001 - as above
    return Group(view, rank, gloo, group, carrier, store, hello.device, wires)


def warm_up() -> None:
    """Let torch import what it imports at the first group, which takes a second or two."""
    alone = dist.ProcessGroup(dist.HashStore(), 0, 1)
    alone._register_backend(  # noqa: SLF001 - as above
        torch.device("cpu"), _TYPE.GLOO, dist.ProcessGroupGloo(dist.HashStore(), 0, 1, _MEET)
    )
    alone._set_default_backend(_TYPE.GLOO)  # noqa: SLF001 - as above
    module = nn.Linear(1, 1)
    DistributedDataParallel(module, process_group=alone, init_sync=False, **_no_buffers())


def looks_lost(error: BaseException) -> bool:
    """Whether an error says that a connection to another worker broke."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    words = ("gloo", "nccl", "connection", "socket", "broken pipe", "process group", "aborted")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def _no_buffers() -> dict[str, Any]:
    """Buffers are given around by the loop; the name of the option changed."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    new = "forward_sync_buffers"
    return {new if new in known else "broadcast_buffers": False}


def _store(view: View, rank: int, given_up: Callable[[], bool]) -> Any:
    host, port = view.address
    # torchrun's own agent listens at MASTER_PORT already.
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosting = rank == 0 and not ("ROOST_MEMBERS" not in os.environ and agent)
    while not hosting and not _listens(host, port):
        _pause(given_up)
    store = _Hosted.at(view.address) if hosting else None
    while store is None:
        try:
            store = dist.TCPStore(host, port, None, hosting, _MEET, wait_for_workers=False)
        except dist.DistNetworkError:  # the port is not free yet, or the first one left again
            _pause(given_up)
    if hosting:
        _Hosted.last = (view.address, store)
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"roost/{again}/{view.version}", store)


class _Hosted:
    """The store that this process hosts: a script's next training meets there, too."""

    last: ClassVar[tuple[tuple[str, int], Any] | None] = None

    @classmethod
    def at(cls, address: tuple[str, int]) -> Any:
        """The one at an address; None if there is none."""
        return cls.last[1] if cls.last is not None and cls.last[0] == address else None


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


def _greet(
    store: Any, view: View, rank: int, hello: Hello, given_up: Callable[[], bool]
) -> list[str]:
    """Exchange hellos; the seats of all."""
    store.set(f"loop/{rank}", str(hello.loop))
    store.set(f"hello/{hello.loop}/{rank}", hello.line())
    keys = [f"hello/{hello.loop}/{other}" for other in range(view.size)]
    while not store.check(keys):
        _check_loops(store, view, hello.loop)
        _pause(given_up)
    said = [json.loads(store.get(key)) for key in keys]
    store.set(f"read/{hello.loop}/{rank}", "")
    try:
        for other, theirs in enumerate(said):
            _compare(said[0]["same"], theirs["same"], other)
    except Misuse:
        if rank == 0:  # the store goes with it: the others shall know why
            _until_read(store, [f"read/{hello.loop}/{other}" for other in range(view.size)])
        raise
    return [theirs["seat"] for theirs in said]


def _until_read(store: Any, keys: list[str]) -> None:
    deadline = time.monotonic() + _READ_S
    while time.monotonic() < deadline and not store.check(keys):
        time.sleep(_POLL_S)


def _check_loops(store: Any, view: View, mine: int) -> None:
    """Refuse a worker that comes after others ended a training: it cannot join their next one."""
    for other in range(view.size):
        theirs = int(store.get(f"loop/{other}")) if store.check([f"loop/{other}"]) else 0
        if theirs > mine:
            raise Misuse(
                f"the others are in training {theirs} of the script, and this worker in {mine}: "
                "workers cannot join a later training while it runs"
            )


def _compare(first: dict[str, str], theirs: dict[str, str], rank: int) -> None:
    for name in [*first, *(name for name in theirs if name not in first)]:
        one, other = first.get(name, "missing"), theirs.get(name, "missing")
        if one != other:
            raise Misuse(
                f"the workers do not train the same: {name} is {one} in worker 0 "
                f"and {other} in worker {rank}; every worker must build the same model and data"
            )


def _gloo(store: Any, view: View, rank: int) -> tuple[Any, list[socket.socket]]:
    """The backend, and the connections that it made.

    gloo's own ``abort`` does not wake a thread that waits for a silent peer; closing its
    connections does. They are held by descriptors of our own, which are not reused.
    """
    options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - no other way
    options._timeout = _CONNECT  # noqa: SLF001 - as above
    options._threads = 2  # noqa: SLF001 - as above
    here = _address_towards(*view.address)
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=here)]  # noqa: SLF001
    before = _connections()
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, view.size, options)
    gloo._set_default_timeout(_FOREVER)  # noqa: SLF001 - as above
    wires = []
    for number in _connections() - before:
        with suppress(OSError):
            wires.append(socket.socket(fileno=os.dup(number)))
    return gloo, wires


def _nccl(store: Any, view: View, rank: int) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = _FOREVER  # noqa: SLF001 - as above
    return dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), rank, view.size, options)


def _connections() -> set[int]:
    """The descriptors that are connections over TCP."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(link.name))) as wire:
                if wire.type == socket.SOCK_STREAM and wire.family in (_INET, _INET6):
                    wire.getpeername()
                    found.add(int(link.name))
    return found


def _address_towards(host: str, port: int) -> str:
    """Under which address the others reach this process."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


def _seat(device: torch.device) -> str:
    if device.type != "cuda":
        return f"{socket.gethostname()}/{os.getpid()}"
    return f"{socket.gethostname()}/{torch.cuda.get_device_properties(device).uuid}"


def _pause(given_up: Callable[[], bool]) -> None:
    if given_up():
        raise Abandoned
    time.sleep(_POLL_S)


def shape_of(model: nn.Module) -> dict[str, str]:
    """What the model is made of, by name; a digest stands for the middle of very long lists."""
    found = {name: _words(tensor) for name, tensor in model.state_dict().items()}
    most = 2000
    if len(found) <= most:
        return found
    digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()
    return {"parameters and buffers": f"{len(found)} ({digest[:16]})"}


def _words(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
