"""What programs print when they fail, by kind: exit status and the end of a log."""

from __future__ import annotations

from typing import NamedTuple

FRAME = '  File "/home/ada/train.py", line 41, in main\n    step(model, batch)\n'


class Sample(NamedTuple):
    """A failure as it looks: the kind it should be given, the log, and how the process ended."""

    kind: str
    log: str
    code: int | None = 1
    signal: int | None = None


def raised(message: str) -> str:
    return f"epoch 3 step 120 loss 0.31\nTraceback (most recent call last):\n{FRAME}{message}\n"


SAMPLES = (
    # GPU memory: PyTorch old and new, TensorFlow, JAX, the driver itself.
    Sample(
        "gpu-out-of-memory",
        raised(
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB "
            "(GPU 0; 15.78 GiB total capacity; 13.02 GiB already allocated)"
        ),
    ),
    Sample(
        "gpu-out-of-memory",
        raised(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has "
            "a total capacity of 79.15 GiB of which 130.25 MiB is free."
        ),
    ),
    Sample("gpu-out-of-memory", raised("RuntimeError: CUDA error: out of memory")),
    # What roost.train says of a share that is too small, and of a script that uses it wrongly.
    Sample(
        "share-too-small",
        raised(
            "roost.train.pytorch.memory.TooLarge: this training needs at least 9211 MiB of GPU "
            "memory and is expected to reach 9900 MiB where its share holds 8192 MiB. Ask for more"
        ),
    ),
    Sample(
        "library-misuse",
        raised("roost.train.members.Misuse: every batch needs run.step(loss) before the next one"),
    ),
    Sample(
        "gpu-out-of-memory",
        raised(
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating "
            "tensor with shape[64,512,56,56] and type float on /job:localhost/replica:0/task:0/"
            "device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]"
        ),
    ),
    Sample(
        "gpu-out-of-memory",
        raised(
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying "
            "to allocate 7406166528 bytes."
        ),
    ),
    Sample("gpu-out-of-memory", "trainer: cudaMalloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"),
    Sample(
        "gpu-out-of-memory",
        raised(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, "
            "unhandled cuda error, NCCL version 2.20.5\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\n"
            "Last error:\nCuda failure 'out of memory'"
        ),
    ),
    # Host memory.
    Sample("host-out-of-memory", raised("MemoryError")),
    Sample(
        "host-out-of-memory",
        raised(
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array "
            "with shape (1000000, 1000000) and data type float64"
        ),
    ),
    Sample(
        "host-out-of-memory",
        raised(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 400000000000 bytes."
        ),
    ),
    Sample(
        "host-out-of-memory",
        "terminate called after throwing an instance of 'std::bad_alloc'\n"
        "  what():  std::bad_alloc\n",
        None,
        6,
    ),
    Sample(
        "host-out-of-memory",
        raised("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. "),
    ),
    Sample(
        "host-out-of-memory",
        "Memory cgroup out of memory: Killed process 813 (python) total-vm:9437184kB\n"
        "oom-kill:constraint=CONSTRAINT_MEMCG\n",
        None,
        9,
    ),
    Sample(
        "shared-memory",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).\n"
        + raised("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. "),
    ),
    # What the program needs.
    Sample("import-error", raised("ModuleNotFoundError: No module named 'einops'")),
    Sample(
        "import-error",
        raised("ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/x.py)"),
    ),
    Sample("import-error", "/usr/bin/python3: No module named trainer\n"),
    Sample(
        "library-missing",
        raised(
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or "
            "directory"
        ),
    ),
    Sample(
        "library-missing",
        "./solver: error while loading shared libraries: libmkl_rt.so.2: cannot open shared "
        "object file: No such file or directory\n",
        127,
    ),
    Sample(
        "library-missing",
        "./a.out: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by "
        "./a.out)\n",
    ),
    Sample(
        "syntax-error",
        '  File "/home/ada/train.py", line 3\n    x = = 1\n        ^\n'
        "SyntaxError: invalid syntax\n",
    ),
    Sample("syntax-error", raised("IndentationError: unexpected indent")),
    Sample("syntax-error", "bash: -c: line 3: syntax error near unexpected token `done'\n", 2),
    Sample(
        "missing-file", raised("FileNotFoundError: [Errno 2] No such file or directory: 'a.pt'")
    ),
    Sample(
        "missing-file",
        "python: can't open file '/home/ada/trian.py': [Errno 2] No such file or directory\n",
        2,
    ),
    Sample("permission", raised("PermissionError: [Errno 13] Permission denied: '/data/out'")),
    Sample("permission", "mkdir: cannot create directory '/scratch': Permission denied\n"),
    Sample("permission", raised("OSError: [Errno 30] Read-only file system: '/data/x'")),
    Sample(
        "bad-arguments",
        "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --lrr 0.1\n",
        2,
    ),
    Sample(
        "bad-arguments",
        "usage: train.py [-h] --data DATA\n"
        "train.py: error: the following arguments are required: --data\n",
        2,
    ),
    Sample("bad-arguments", "Usage: train [OPTIONS]\n\nError: No such option: --epoch\n", 2),
    Sample(
        "bad-arguments",
        "usage: example.py [-h] [--fail HOW]\n"
        "example.py: error: argument --fail: one of import, oom, kill\n",
        2,
    ),
    Sample(
        "bad-arguments",
        "usage: x [-h] {train,eval}\nx: error: argument mode: invalid choice: 'tain' (choose "
        "from 'train', 'eval')\n",
        2,
    ),
    Sample("bad-arguments", "usage: x [-h]\nx: error: argument --lr: expected one argument\n", 2),
    Sample("bad-arguments", "usage: x [-h]\nx: error: --steps must not be less than 1\n", 2),
    Sample("bad-arguments", "Usage: x [OPTIONS] DATA\n\nError: Missing argument 'DATA'.\n", 2),
    Sample(
        "bad-arguments",
        "Usage: x [OPTIONS]\nTry 'x --help' for help.\n\n"
        "Error: Invalid value for '--lr': 'fast' is not a valid float.\n",
        2,
    ),
    Sample("bad-arguments", "ls: invalid option -- 'y'\nTry 'ls --help' for more.\n", 2),
    Sample("bad-arguments", "FATAL Flags parsing error: Unknown command line flag 'batchsize'\n"),
    Sample("command-not-found", "bash: line 1: pyhton: command not found\n", 127),
    Sample("command-not-found", "", 127),
    Sample("not-executable", "bash: line 1: ./train.sh: Permission denied\n", 126),
    # Files and limits.
    Sample("disk-full", raised("OSError: [Errno 28] No space left on device")),
    Sample(
        "disk-full",
        raised(
            "RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed "
            "writing file data/24: file write failed"
        ),
    ),
    Sample("disk-quota", raised("OSError: [Errno 122] Disk quota exceeded: 'ckpt/9.pt'")),
    Sample("image-missing", "Error: reading manifest 9 in docker.io/x/y: manifest unknown\n", 125),
    Sample("image-missing", "Error: invalid reference format\n", 125),
    Sample(
        "image-missing",
        "FATAL:   While checking container encryption: could not open image /no/such.sif: failed "
        "to retrieve path for /no/such.sif: lstat /no: no such file or directory\n",
        255,
    ),
    Sample(
        "image-missing",
        "Error response from daemon: Head "
        '"https://r.example.org/v2/x/manifests/1": unauthorized: authentication required\n',
        1,
    ),
    Sample("resource-limit", raised("OSError: [Errno 24] Too many open files: 'x.npy'")),
    Sample("resource-limit", raised("RuntimeError: can't start new thread")),
    Sample("resource-limit", "", None, 25),
    Sample("data-error", raised("PIL.UnidentifiedImageError: cannot identify image file '7.jpg'")),
    Sample("data-error", raised("json.decoder.JSONDecodeError: Expecting value: line 1 column 1")),
    Sample(
        "data-error",
        raised("tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 0"),
    ),
    Sample(
        "data-error",
        raised(
            "RuntimeError: Dataset not found or corrupted. You can use download=True to download it"
        ),
    ),
    Sample(
        "checkpoint-error",
        raised(
            "RuntimeError: Error(s) in loading state_dict for ResNet:\n"
            '\tMissing key(s) in state_dict: "fc.weight", "fc.bias".'
        ),
    ),
    Sample(
        "checkpoint-error",
        raised(
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
            "directory"
        ),
    ),
    Sample("checkpoint-error", raised("_pickle.UnpicklingError: invalid load key, 'v'.")),
    Sample(
        "checkpoint-error",
        raised(
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"
        ),
    ),
    Sample(
        "network",
        raised(
            "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
        ),
    ),
    Sample(
        "network",
        raised(
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', "
            "port=443): Max retries exceeded with url: /bert-base (Caused by NewConnectionError("
            "'Failed to establish a new connection'))"
        ),
    ),
    Sample(
        "network",  # of an image's registry
        'Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup '
        "registry-1.docker.io on 10.0.0.1:53: no such host\n",
        1,
    ),
    Sample(
        "network",  # pip without one
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('Failed "
        "to establish a new connection: [Errno -2] Name or service not known')': /simple/einops/\n"
        "ERROR: Could not find a version that satisfies the requirement einops (from versions: "
        "none)\nERROR: No matching distribution found for einops\n",
    ),
    Sample(
        "missing-package",
        "ERROR: Could not find a version that satisfies the requirement nosuchpkg (from versions: "
        "none)\nERROR: No matching distribution found for nosuchpkg\n",
    ),
    Sample("port-in-use", raised("OSError: [Errno 98] Address already in use")),
    Sample(
        "port-in-use",
        raised(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
            "local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, "
            "message: address already in use"
        ),
    ),
    # The model.
    Sample("diverged-loss", "Loss is nan, stopping training\n"),
    Sample(
        "diverged-loss",
        "ERROR:tensorflow:Model diverged with loss = NaN.\n"
        + raised(
            "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: "
            "NaN loss during training."
        ),
    ),
    Sample(
        "diverged-loss",
        raised(
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. "
            "Exiting run."
        ),
    ),
    Sample(
        "shape-mismatch",
        raised("RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 256x10)"),
    ),
    Sample(
        "shape-mismatch",
        raised(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two "
            "devices, cuda:0 and cpu!"
        ),
    ),
    # CUDA.
    Sample(
        "device-assert",
        "Assertion `t >= 0 && t < n_classes` failed.\n"
        + raised("RuntimeError: CUDA error: device-side assert triggered"),
    ),
    Sample(
        "cuda-version-mismatch",
        raised(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 10010). "
            "Please update your GPU driver"
        ),
    ),
    Sample(
        "cuda-version-mismatch",
        raised(
            "RuntimeError: CUDA error: no kernel image is available for execution on the device"
        ),
    ),
    Sample("cuda-version-mismatch", raised("AssertionError: Torch not compiled with CUDA enabled")),
    Sample("cuda-init", raised("RuntimeError: No CUDA GPUs are available")),
    Sample(
        "cuda-init",
        raised(
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have a "
            "NVIDIA GPU"
        ),
    ),
    Sample(
        "cuda-init",
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:265] failed call to cuInit: "
        "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n",
    ),
    Sample(
        "illegal-memory-access",
        raised(
            "RuntimeError: CUDA error: an illegal memory access was encountered\n"
            "CUDA kernel errors might be asynchronously reported at some other API call."
        ),
    ),
    Sample(
        "illegal-memory-access",
        raised(
            "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to launch CUDA kernel: "
            "fusion_1560: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
        ),
    ),
    Sample("cuda-failure", raised("RuntimeError: CUDA error: unspecified launch failure")),
    Sample("cuda-failure", raised("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")),
    # Devices.
    Sample("gpu-ecc", raised("RuntimeError: CUDA error: uncorrectable ECC error encountered")),
    Sample(
        "gpu-ecc",
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=1101, An uncorrectable double bit error (DBE) has "
        "been detected on GPU in the framebuffer at partition 4.\n"
        + raised("RuntimeError: CUDA error: unspecified launch failure"),
    ),
    Sample(
        "gpu-lost",
        "NVRM: Xid (PCI:0000:c6:00): 79, pid=1101234, name=python, GPU has fallen off the bus.\n"
        + raised("RuntimeError: CUDA error: unknown error"),
    ),
    Sample(
        "gpu-lost",
        "Unable to determine the device handle for GPU 0000:C6:00.0: GPU is lost.  Reboot the "
        "system to recover this GPU\n",
        15,
    ),
    # Workers and their connections.
    Sample(
        "nccl-failure",
        "[rank3]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE) ran for 600060 milliseconds "
        "before timing out.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n",
        None,
        6,
    ),
    Sample(
        "nccl-failure",
        raised(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, "
            "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1\n"
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed "
            "or device error."
        ),
    ),
    Sample(
        "gloo-failure",
        raised(
            "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/"
            "tcp/pair.cc:144] no error"
        ),
    ),
    Sample(
        "connection-lost",
        raised(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
            "by peer [127.0.0.1]:10895"
        ),
    ),
    Sample("connection-lost", raised("ConnectionResetError: [Errno 104] Connection reset by peer")),
    Sample(
        "connection-lost",
        raised(
            "torch.distributed.DistNetworkError: The client socket has failed to connect to any "
            "network address of (node7, 29500)."
        ),
    ),
    Sample(
        "mpi-failure",
        "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 5.\n",
        5,
    ),
    Sample(
        "mpi-failure",
        "mpirun noticed that process rank 1 with PID 0 on node n2 exited on signal 9 (Killed).\n",
        137 + 10,
    ),
    # Python at large.
    Sample("assertion", raised("AssertionError: batch is empty")),
    Sample("python-error", raised("KeyError: 'learning_rate'")),
    Sample("python-error", raised("mypackage.errors.BadThing: no")),
    Sample("python-error", raised("ValueError")),
    # Ends without a word.
    Sample(
        "segfault", "Fatal Python error: Segmentation fault\n\nThread 0x7f (most recent\n", None, 11
    ),
    Sample("segfault", "bash: line 1:  4711 Segmentation fault      (core dumped) ./solver\n", 139),
    Sample("core-dump", "free(): invalid pointer\n", None, 6),
    Sample("core-dump", "", None, 4),
    Sample("killed", "epoch 9\n", None, 9),
    Sample("killed", "bash: line 1:   313 Killed                  python train.py\n", 137),
    Sample("terminated", "epoch 9\n", None, 15),
    Sample("interrupted", "epoch 9\n", None, 2),
    Sample("interrupted", raised("KeyboardInterrupt"), 130),
    Sample("signature-unknown", "epoch 9\nbye\n", 3),
    Sample("signature-unknown", "", 1),
)

#: Harmless words, and another end than the one they speak of.
DECOYS = (
    Sample(
        "python-error",
        "step 9: CUDA out of memory. Tried to allocate 2.00 GiB; halving the batch\n"
        + raised("KeyError: 'val'"),
    ),
    Sample(
        "python-error",
        raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        + "caught, going on with batch 16\n"
        + raised("KeyError: 'val'"),
    ),
    Sample(
        "signature-unknown",
        "W tensorflow/core/common_runtime/bfc_allocator.cc:272] Allocator (GPU_0_bfc) ran out of "
        "memory trying to allocate 16.00MiB. The caller indicates that this is not a failure\n",
        3,
    ),
    Sample("signature-unknown", "2026-01-04 INFO resumed after CUDA error: out of memory\n", 3),
    Sample("signature-unknown", "UserWarning: Loss is nan, skipping this batch\n", 3),
    Sample(
        "signature-unknown",
        "cat: notes.txt: No such file or directory\n" + "epoch 1\n" * 300,
        3,
    ),
    Sample(
        "python-error", raised("KeyError: 'x'") + "terminate called without an active\n", None, 6
    ),
    Sample("killed", "rm: x: No such file or directory\nepoch 1\n", None, 9),
    Sample("segfault", raised("KeyError: 'seen and survived'") + "epoch 2\n", None, 11),
)
