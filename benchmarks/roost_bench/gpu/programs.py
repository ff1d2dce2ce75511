"""The jobs that are measured: small PyTorch scripts that know nothing of Roost.

Each is given a file that both sides map into memory, a *board* of numbers: the measurer writes
GO, the job writes the rest. A job dies with the process that started it.
"""

from __future__ import annotations

#: Numbers on the board, and where they stand.
GO, READY, COUNT, CODE, FIRST, SECOND, THIRD = range(7)
#: Values of GO.
REST, RUN, CHECK, LEAVE, RETURN = 0.0, 1.0, 2.0, 3.0, 4.0
#: Values of CODE.
FINE, OUT_OF_MEMORY, WRONG = 1.0, 2.0, 3.0

_HEAD = """
import ctypes, mmap, struct, sys, time
ctypes.CDLL(None).prctl(1, 9)
mode, path, amount = sys.argv[1], sys.argv[2], float(sys.argv[3])
file = open(path, "r+b")
board = mmap.mmap(file.fileno(), 4096)
def get(i): return struct.unpack_from("d", board, 8 * i)[0]
def put(i, value): struct.pack_into("d", board, 8 * i, float(value))
GO, READY, COUNT, CODE, FIRST, SECOND, THIRD = range(7)
REST, RUN, CHECK, LEAVE, RETURN = 0.0, 1.0, 2.0, 3.0, 4.0
FINE, OUT_OF_MEMORY, WRONG = 1.0, 2.0, 3.0
import torch
size = 4096
a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
b = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
c = torch.empty(size, size, device="cuda", dtype=torch.bfloat16)
torch.matmul(a, b, out=c)
torch.cuda.synchronize()
"""

_BUSY = """
events = [torch.cuda.Event(), torch.cuda.Event()]
for event in events: event.record()
done, turn = 0, 0
put(READY, 1)
while True:
    if get(GO) != RUN:
        torch.cuda.synchronize()
        time.sleep(0.002)
        continue
    events[turn].synchronize()
    put(COUNT, done)
    for _ in range(5): torch.matmul(a, b, out=c)
    events[turn].record()
    done += 5
    turn = 1 - turn
"""

# Reciprocal roots, one after the other, in registers: bound by the number of multiprocessors that
# work on it and not by the power that the device may draw. 60 waves of blocks hide the last one.
_CHAIN = """
code = '''
template <typename T> T chain(T x) {
  for (int i = 0; i < 128; i++) x = rsqrtf(x + T(1));
  return x;
}
'''
chain = torch.cuda.jiterator._create_jit_fn(code)
x = torch.rand(2**26, device="cuda")
y = chain(x)
torch.cuda.synchronize()
events = [torch.cuda.Event(), torch.cuda.Event()]
for event in events: event.record()
done, turn = 0, 0
put(READY, 1)
while True:
    if get(GO) != RUN:
        torch.cuda.synchronize()
        time.sleep(0.002)
        continue
    events[turn].synchronize()
    put(COUNT, done)
    y = chain(x)
    events[turn].record()
    done += 1
    turn = 1 - turn
"""

_HALF_IDLE = """
done = 0
put(READY, 1)
while True:
    if get(GO) != RUN:
        time.sleep(0.002)
        continue
    for _ in range(15): torch.matmul(a, b, out=c)
    torch.cuda.synchronize()
    done += 1
    put(COUNT, done)
    time.sleep(0.003)
"""

# Eight steps are queued before it waits, as most trainers do that print a loss now and then.
_QUEUE = """
done = 0
put(READY, 1)
while True:
    if get(GO) != RUN:
        time.sleep(0.002)
        continue
    for _ in range(8 * 35): torch.matmul(a, b, out=c)
    torch.cuda.synchronize()
    done += 8 * 35
    put(COUNT, done)
"""

_GRAPH = """
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(20): torch.matmul(a, b, out=c)
events = [torch.cuda.Event(), torch.cuda.Event()]
for event in events: event.record()
done, turn = 0, 0
put(READY, 1)
while True:
    if get(GO) != RUN:
        torch.cuda.synchronize()
        time.sleep(0.002)
        continue
    events[turn].synchronize()
    put(COUNT, done)
    graph.replay()
    events[turn].record()
    done += 20
    turn = 1 - turn
"""

# Requests at random, 40 a second; when it is to rest it tells p50 and p99 of the last seconds (ms).
_SERVE = """
import random
chance, took, done = random.Random(7), [], 0
due = time.perf_counter()
put(READY, 1)
while True:
    if get(GO) != RUN:
        if took:
            last = sorted(ms for at, ms in took if at > took[-1][0] - 10)
            put(FIRST, last[len(last) // 2])
            put(SECOND, last[int(0.99 * (len(last) - 1))])
            took = []
        time.sleep(0.002)
        due = time.perf_counter()
        continue
    due += chance.expovariate(40.0)
    while (now := time.perf_counter()) < due: time.sleep(min(0.0005, due - now))
    for _ in range(25): torch.matmul(a, b, out=c)
    torch.cuda.synchronize()
    now = time.perf_counter()
    took.append((now, 1000 * (now - due)))
    done += 1
    put(COUNT, done)
"""

_HOLD = """
blocks = []
for number in range(int(amount * 8)):
    block = torch.empty(2**24, device="cuda", dtype=torch.int64)
    torch.arange(number, number + 2**24, out=block)
    blocks.append(block)
sums = [int(block.sum()) for block in blocks]
torch.cuda.synchronize()
done = 0
put(READY, 1)
while True:
    go = get(GO)
    if go == RUN:
        for _ in range(5): torch.matmul(a, b, out=c)
        torch.cuda.synchronize()
        done += 5
        put(COUNT, done)
    elif go == CHECK and not get(CODE):
        good = all(int(block.sum()) == total for block, total in zip(blocks, sums))
        put(CODE, FINE if good else WRONG)
    else:
        time.sleep(0.002)
"""

_TAKE = """
step = 2**28
held = []
put(READY, 1)
while get(GO) != RUN: time.sleep(0.002)
try:
    while len(held) * 256 < amount:
        held.append(torch.empty(step, device="cuda", dtype=torch.uint8))
        put(FIRST, len(held) * 256)
    put(CODE, FINE)
except torch.OutOfMemoryError as error:
    put(CODE, OUT_OF_MEMORY)
    print(str(error)[:300], flush=True)
while True: time.sleep(0.1)
"""

_TAKE_THREE = """
import subprocess
child = '''
import ctypes, sys, time
ctypes.CDLL(None).prctl(1, 9)
import torch
held = torch.empty(int(float(sys.argv[1])) << 20, device="cuda", dtype=torch.uint8)
time.sleep(600)
'''
put(READY, 1)
while get(GO) != RUN: time.sleep(0.002)
children = [subprocess.Popen([sys.executable, "-c", child, str(amount)]) for _ in range(3)]
while True: time.sleep(0.1)
"""

# Two processes and one piece of GPU memory: the second opens the handle of the first.
_SHARED = """
import subprocess, base64
block = torch.zeros(2**20, device="cuda", dtype=torch.uint8)
torch.cuda.synchronize()
cuda = ctypes.CDLL("libcuda.so.1")
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 64)]
handle = Handle()
base, size = ctypes.c_uint64(), ctypes.c_size_t()
pointer = ctypes.c_uint64(block.data_ptr())
cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), pointer)
code = cuda.cuIpcGetMemHandle(ctypes.byref(handle), base)
child = '''
import base64, ctypes, sys, time
ctypes.CDLL(None).prctl(1, 9)
import torch
torch.zeros(1, device="cuda")
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 64)]
handle = Handle.from_buffer_copy(base64.b64decode(sys.argv[1]))
cuda = ctypes.CDLL("libcuda.so.1")
opened = ctypes.c_uint64()
code = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(opened), handle, 1)
print(code, flush=True)
time.sleep(600)
'''
other = subprocess.Popen(
    [sys.executable, "-c", child, base64.b64encode(bytes(handle)).decode()], stdout=subprocess.PIPE
)
put(FIRST, code)
put(SECOND, int(other.stdout.readline()))
put(READY, 1)
while True: time.sleep(0.1)
"""

_TAKE_RAW = """
cuda = ctypes.CDLL("libcuda.so.1")
held = []
put(READY, 1)
while get(GO) != RUN: time.sleep(0.002)
while len(held) * 256 < amount:
    pointer = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(2**28))
    if code:
        put(CODE, OUT_OF_MEMORY)
        put(SECOND, code)
        break
    held.append(pointer)
    put(FIRST, len(held) * 256)
    time.sleep(0.05)
else:
    put(CODE, FINE)
while True: time.sleep(0.1)
"""

# The one that does use Roost: its library for training takes the state out and brings it back.
_OFFLOAD = """
import os
sys.path.insert(0, os.environ["ROOST_SOURCE"])
from roost.train.pytorch.offload import Pool
block = 2**26
count = int(amount * 16)
state = [torch.full((block,), n % 251, device="cuda", dtype=torch.uint8) for n in range(count)]
torch.cuda.synchronize()
begun = time.perf_counter()
pool = Pool(pin=True)
pool.make(lambda: state)
while pool.size < block * count: time.sleep(0.005)
put(THIRD, time.perf_counter() - begun)
put(READY, 1)
while True:
    go = get(GO)
    if go == LEAVE and not get(FIRST):
        begun = time.perf_counter()
        pool.leave(state)
        put(FIRST, time.perf_counter() - begun)
    elif go == RETURN and not get(SECOND):
        begun = time.perf_counter()
        pool.come_back()
        put(SECOND, time.perf_counter() - begun)
    elif go == CHECK and not get(CODE):
        good = all(bool((one == n % 251).all()) for n, one in enumerate(state))
        put(CODE, FINE if good else WRONG)
    else:
        time.sleep(0.002)
"""

_BOARD = _HEAD[: _HEAD.index("import torch")]

# What a program that computes the same every time begins with; ``step`` and ``result`` are its own.
_SAME = """
import hashlib, os
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
STEPS = 300
def tell(body): put(FIRST, int.from_bytes(hashlib.sha256(body).digest()[:6], "big"))
def work(step, result):
    for number in range(3): step(number)
    put(READY, 1)
    while get(GO) != RUN: time.sleep(0.002)
    for number in range(STEPS):
        step(number)
        put(COUNT, number + 1)
        time.sleep(0.01)
    tell(result())
    put(CODE, FINE)
    while True: time.sleep(0.1)
"""

_TORCH = (
    _BOARD
    + _SAME
    + """
import torch
from torch import nn
torch.manual_seed(7)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
def of(model): return b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
def train(model, batch, loss, make=torch.optim.SGD):
    best = make(model.parameters(), lr=0.01)
    def step(number):
        best.zero_grad(set_to_none=True)
        loss(model, *batch(number)).backward()
        best.step()
        torch.cuda.synchronize()
    return step
"""
)

_TRANSFORMER = """
model = nn.Sequential(
    nn.Embedding(512, 256),
    *(nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True) for _ in range(4)),
    nn.Linear(256, 512),
).cuda()
def batch(n):
    made = torch.Generator().manual_seed(n)
    return (torch.randint(512, (8, 128), generator=made).cuda(),)
def loss(model, words):
    with torch.autocast("cuda", torch.bfloat16):
        said = model(words)
    return nn.functional.cross_entropy(said.float().flatten(0, 1), words.flatten())
work(train(model, batch, loss, torch.optim.AdamW), lambda: of(model))
"""

_CONVOLUTIONS = """
model = nn.Sequential(
    nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
).cuda()
data = torch.randn(8, 16, 3, 64, 64).cuda()
def loss(model, images): return model(images).square().mean()
work(train(model, lambda n: (data[n % 8],), loss), lambda: of(model))
"""

_RECURRENT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.out = nn.LSTM(128, 256, 2), nn.Linear(256, 8)
    def forward(self, x): return self.out(self.cells(x)[0])
model, data = Net().cuda(), torch.randn(32, 16, 128).cuda()
work(train(model, lambda n: (data,), lambda m, x: m(x).square().mean()), lambda: of(model))
"""

# Worker processes, pinned memory, and copies that do not wait.
_LOADER = """
from torch.utils.data import DataLoader, TensorDataset
images = torch.randn(8 * 310, 256)
loader = iter(DataLoader(TensorDataset(images), 8, num_workers=3, pin_memory=True))
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 16)).cuda()
def batch(n): return (next(loader)[0].cuda(non_blocking=True),)
work(train(model, batch, lambda m, x: m(x).square().mean()), lambda: of(model))
"""

_CAPTURED = """
a = torch.randn(1024, 1024, device="cuda") / 32
x = torch.randn(1024, 1024, device="cuda")
other = torch.cuda.Stream()
with torch.cuda.stream(other):
    for _ in range(3): torch.tanh(x @ a)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x
    for _ in range(10): y = torch.tanh(y @ a)
    x.copy_(y)
def step(n):
    graph.replay()
    torch.cuda.synchronize()
work(step, lambda: x.cpu().numpy().tobytes())
"""

_STREAMS = """
streams = [torch.cuda.Stream() for _ in range(4)]
parts = [torch.full((2**22,), n + 1, dtype=torch.int64, device="cuda") for n in range(4)]
def step(n):
    for m, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            stream.wait_stream(streams[m - 1])
            parts[m] = parts[m] * 6364136223846793005 + parts[m - 1] + n
    torch.cuda.synchronize()
work(step, lambda: b"".join(part.cpu().numpy().tobytes() for part in parts))
"""

# Sizes that come and go, in segments that grow: addresses are mapped and unmapped all the time.
_CHURN = """
sums = torch.zeros(1, dtype=torch.int64, device="cuda")
held = {}
def step(n):
    size = (n * 7919 % 48 + 1) << 20
    held[n % 16] = torch.arange(size, device="cuda", dtype=torch.int32)
    sums.add_(sum(int(one[:: 4099].sum()) for one in held.values()))
    if n % 50 == 49: torch.cuda.empty_cache()
work(step, lambda: sums.cpu().numpy().tobytes())
"""

_COMPILED = """
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
data = torch.randn(64, 256).cuda()
fast = torch.compile(model)
work(train(model, lambda n: (data,), lambda m, x: fast(x).square().mean()), lambda: of(model))
"""

_JAX = """
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.03"
import jax, numpy
import jax.numpy as jnp
weights = jax.random.normal(jax.random.PRNGKey(7), (1024, 1024)) / 32
x = jax.random.normal(jax.random.PRNGKey(8), (256, 1024))
grow = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda v: jnp.square(jnp.tanh(x @ v)).mean())(w))
def step(n):
    global weights
    weights = grow(weights, x).block_until_ready()
work(step, lambda: numpy.asarray(weights).tobytes())
"""

_CUPY = """
import cupy
x = cupy.arange(2**22, dtype=cupy.uint64)
mix = cupy.ElementwiseKernel("uint64 a, uint64 n", "uint64 b",
    "b = (a ^ (a >> 29)) * 6364136223846793005ULL + n;", "mix")
def step(n):
    global x
    x = mix(x, cupy.uint64(n))
    cupy.cuda.Device().synchronize()
work(step, lambda: x.get().tobytes())
"""

#: Programs that compute the same every time, of ten kinds; none knows Roost.
KINDS = {
    "transformer": _TORCH + _TRANSFORMER,
    "convolutions": _TORCH + _CONVOLUTIONS,
    "recurrent": _TORCH + _RECURRENT,
    "loader": _TORCH + _LOADER,
    "captured graph": _TORCH + _CAPTURED,
    "streams": _TORCH + _STREAMS,
    "allocator": _BOARD
    + "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'\n"
    + _TORCH.removeprefix(_BOARD)
    + _CHURN,
    "compiled": _TORCH + _COMPILED,
    "jax": _BOARD + _SAME + _JAX,
    "cupy": _BOARD + _SAME + _CUPY,
}

# The driver alone: it begins in a moment, holds some memory, and writes to it.
_RAW = (
    _BOARD
    + """
cuda = ctypes.CDLL("libcuda.so.1")
def check(code):
    if code: raise SystemExit(f"cuda: {code}")
check(cuda.cuInit(0))
context, device, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
size = int(amount) << 20
check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
put(READY, 1)
done = 0
while True:
    if get(GO) != RUN:
        time.sleep(0.002)
        continue
    check(cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(done % 251), ctypes.c_size_t(size)))
    check(cuda.cuCtxSynchronize())
    done += 1
    put(COUNT, done)
    time.sleep(0.001)
"""
)

# XLA takes its part of the memory at once and queues a step behind the other.
_JAX_BUSY = (
    _BOARD
    + """
import os
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")
import jax
a = jax.random.normal(jax.random.PRNGKey(7), (4096, 4096), dtype="bfloat16")
step = jax.jit(lambda b: (a @ b) * 0.01)
x = step(a).block_until_ready()
done = 0
put(READY, 1)
while True:
    if get(GO) != RUN:
        time.sleep(0.002)
        continue
    for _ in range(20): x = step(x)
    x.block_until_ready()
    done += 20
    put(COUNT, done)
"""
)

#: The source of each kind of job.
PROGRAMS = {
    "busy": _HEAD + _BUSY,
    "chain": _HEAD + _CHAIN,
    "half-idle": _HEAD + _HALF_IDLE,
    "queue": _HEAD + _QUEUE,
    "graph": _HEAD + _GRAPH,
    "serve": _HEAD + _SERVE,
    "hold": _HEAD + _HOLD,
    "take": _HEAD + _TAKE,
    "shared": _HEAD + _SHARED,
    "take-three": _HEAD + _TAKE_THREE,
    "take-raw": _HEAD + _TAKE_RAW,
    "offload": _HEAD + _OFFLOAD,
    "raw": _RAW,
    "jax-busy": _JAX_BUSY,
    **KINDS,
}
