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
            last = sorted(ms for at, ms in took if at > took[-1][0] - 6)
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
}
