"""Descriptions of other systems: what is converted, and that nothing is lost in silence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from roost.core import Costs, Qos, Range, Resources, Role
from roost.jobfile import JobFile, JobFileErrors, ParsedJob, Task, parse, to_yaml

OPENPAI = """\
protocolVersion: 2
name: ResNet_Cifar
type: job
version: 1.0
contributor: ada
description: trains a network
jobRetryCount: 2
prerequisites:
  - protocolVersion: 2
    name: image_0
    type: dockerimage
    uri: openpai/standard:python_3.6
  - name: cifar
    type: data
    uri:
      - /data/cifar-10
      - /data/cifar-100
parameters:
  epochs: 010
  rate: 0.10
secrets:
  wandb-key: canary-123
taskRoles:
  ps:
    instances: 2
    dockerImage: image_0
    taskRetryCount: 1
    resourcePerInstance: {cpu: 4, memoryMB: 8192, gpu: 0}
    commands:
      - python ps.py
  worker:
    instances: 4
    completion: {minFailedInstances: 1, minSucceededInstances: -1}
    dockerImage: image_0
    data: cifar
    extraContainerOptions: {shmMB: 512}
    resourcePerInstance:
      cpu: 8
      memoryMB: 16384
      gpu: 1
      ports: {tensorboard: 1}
    commands:
      - export WANDB_API_KEY=<% $secrets.wandb-key %>
      - >-
        python train.py --epochs <% $parameters.epochs %> --rate <% $parameters.rate %>
        --data <% $data.uri[0] %>
deployments:
  - name: prod
    taskRoles:
      worker:
        preCommands: [nvidia-smi]
        postCommands: [echo done]
  - name: test
    taskRoles:
      worker:
        preCommands: [echo test]
defaults:
  virtualCluster: vision
  deployment: prod
extras:
  gangAllocation: true
  hivedScheduler:
    jobPriorityClass: prod
    taskRoles:
      worker: {skuType: V100}
  storages:
    - name: nfs
      mountPath: /nfs
"""

PYTORCH = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: bert
  namespace: nlp
  labels:
    team: nlp
    kueue.x-k8s.io/queue-name: gold
spec:
  nprocPerNode: "1"
  runPolicy:
    activeDeadlineSeconds: 7200
    backoffLimit: 5
    cleanPodPolicy: None
    suspend: true
    schedulingPolicy:
      queue: silver
      minAvailable: 3
  pytorchReplicaSpecs:
    Master: &group
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          nodeSelector: {gpu: a100}
          containers:
            - name: pytorch
              image: pytorch:2.4
              imagePullPolicy: Always
              workingDir: /workspace
              command: [python3, train.py]
              args: ["--rate", "0.10"]
              env:
                - {name: NCCL_DEBUG, value: INFO}
                - {name: MASTER_PORT, value: "29500"}
                - name: HF_TOKEN
                  valueFrom: {secretKeyRef: {name: hf, key: token}}
                - name: POD
                  valueFrom: {fieldRef: {fieldPath: metadata.name}}
              resources:
                limits: {nvidia.com/gpu: 2, cpu: 4500m, memory: 32Gi, rdma/hca: 1}
                requests: {cpu: 1, memory: 16Gi}
              volumeMounts:
                - {name: shm, mountPath: /dev/shm}
          volumes:
            - {name: shm, emptyDir: {medium: Memory}}
    Worker:
      <<: *group
      replicas: 3
"""

ELASTIC = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {generateName: elastic-}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 4, maxRestarts: 100, rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - command: [torchrun, --nproc_per_node, $(GPUS), train.py]
              env: [{name: GPUS, value: "1"}]
              resources: {limits: {nvidia.com/gpu: "1"}}
"""

TENSORFLOW = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist}
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    Chief:
      replicas: 1
      restartPolicy: Never
      template: &pod
        spec:
          containers:
            - {command: [python, t.py], resources: {limits: {nvidia.com/gpu: 1}}}
    PS:
      replicas: 2
      template:
        spec:
          containers:
            - {command: [python, t.py, --ps], resources: {requests: {cpu: 2}}}
    Worker:
      replicas: 3
      template: *pod
    Evaluator:
      template: {spec: {containers: [{command: [python, eval.py]}]}}
"""

MPI = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: horovod}
spec:
  slotsPerWorker: 2
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: mpi-launcher
              image: horovod:0.28
              command: [mpirun, -np, "4", python, train.py]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: mpi-worker
              image: horovod:0.28
              resources: {limits: {nvidia.com/gpu: 2, cpu: 8, memory: 16Gi}}
"""

TRAIN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: llm}
spec:
  runtimeRef: {name: torch-distributed, kind: ClusterTrainingRuntime, apiGroup: trainer}
  activeDeadlineSeconds: 600
  trainer:
    image: llm:1
    command: [python, train.py]
    numNodes: 4
    numProcPerNode: 1
    env: [{name: A, value: b}]
    resourcesPerNode: {limits: {nvidia.com/gpu: 1, memory: 1500M}}
  podTemplateOverrides: []
"""

UNIFIED = """\
apiVersion: ai.centauruscloud.io/v1alpha1
kind: UnifiedJob
metadata: {name: imagenet}
jobType: EPJob
spec:
  jobSpec:
    image: torch:1.9
    unifiedArgs: [main.py, --arch=resnet50, my data]
    reschedulable: true
  replicaSpec: {minReplicas: 1, maxReplicas: 4, targetReplicas: {node-1: 2}}
"""

SBATCH = """\
#!/bin/bash -l
#SBATCH --job-name=Big_Train   # the name
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:a100:4
#SBATCH -c 8
#SBATCH --mem=256G
#SBATCH -t 1-12:30
#SBATCH -p vision,spare
#SBATCH --qos high -A birds
#SBATCH -o logs/%j.out
#SBATCH --exclusive
#SBATCH --requeue --signal=B:USR1@120
#SBATCH --nice=100

module load cuda
export RATE=0.1
srun python train.py --rate $RATE
srun python eval.py
srun --label hostname
echo "$SLURM_JOB_ID"
#SBATCH --mem=1G
"""

FILES = {
    "pai.yaml": OPENPAI,
    "pytorch.yaml": PYTORCH,
    "elastic.yaml": ELASTIC,
    "tf.yaml": TENSORFLOW,
    "mpi.yaml": MPI,
    "train.yaml": TRAIN,
    "unified.yaml": UNIFIED,
    "train.sbatch": SBATCH,
}


def said(parsed: ParsedJob, text: str) -> bool:
    return any(text in note for note in parsed.notes)


def sbatch(*headers: str, script: str = "srun python x.py") -> JobFile:
    lines = ["#!/bin/bash", *(f"#SBATCH {header}" for header in headers), script]
    return parse("\n".join(lines), "x.sh").job


@pytest.mark.parametrize("file", FILES)
def test_each_becomes_a_spec_and_a_program(file: str) -> None:
    job = parse(FILES[file], file).job
    assert job.spec("ada").user == "ada"
    assert set(job.program().tasks) == {"worker", *job.roles}
    assert JobFile.from_document(job.document()) == job
    assert parse(to_yaml(job), "again.yaml").job == job
    assert "canary" not in to_yaml(job)


def test_openpai() -> None:
    parsed = parse(OPENPAI, "pai.yaml")
    job, spec = parsed.job, parsed.job.spec("ada")
    assert (job.name, job.image) == ("resnet-cifar", "openpai/standard:python_3.6")
    assert (spec.queue, spec.priority, spec.max_retries) == ("vision", 50, 2)
    assert spec.workers == Range(4, 4)
    assert spec.resources == Resources(gpus=1, kinds=("V100",), cpu_milli=8000, memory_mib=16384)
    assert spec.roles == (Role("ps", 2, Resources(gpus=0, cpu_milli=4000, memory_mib=8192)),)
    assert job.secrets == ("WANDB_KEY",)
    tasks = job.program().tasks
    assert tasks["ps"] == Task(script="python ps.py")
    assert tasks["worker"].script.splitlines() == [
        "nvidia-smi",
        "export WANDB_API_KEY=${WANDB_KEY}",
        "python train.py --epochs 010 --rate 0.10 --data /data/cifar-10",
        "echo done",
    ]


def test_an_opportunistic_job_of_openpai_is_a_guest() -> None:
    parsed = parse(OPENPAI.replace("jobPriorityClass: prod", "jobPriorityClass: oppo"), "pai.yaml")
    assert (parsed.job.guest, parsed.job.priority, parsed.job.spec("ada").priority) == (True, 0, -1)
    assert not said(parsed, "priority class")


def test_openpai_lists_what_is_left() -> None:
    parsed = parse(OPENPAI, "pai.yaml")
    for text in (
        "line 2: the name 'ResNet_Cifar' becomes 'resnet-cifar'",
        "taskRoles.ps.taskRetryCount is not converted",
        "taskRoles.worker.completion is not converted",
        "taskRoles.worker.resourcePerInstance.ports is not converted",
        "extras.storages is not converted",
        "the skuType 'V100' is taken for a GPU kind",
        "the priority class prod becomes priority 50",
        "the secret 'wandb-key' becomes the variable WANDB_KEY; give its value anew",
    ):
        assert said(parsed, text), text
    assert not said(parsed, "canary")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("protocolVersion: 2\nname", "protocolVersion: 1\nname", "line 1: protocolVersion"),
        ("$parameters.rate", "$parameters.none", "refers to nothing"),
        ("$data.uri[0]", "$data.uri[7]", "refers to nothing"),
        ("<% $parameters.epochs %>", "<% nothing %>", "the template '<% nothing %>"),
        ("instances: 4", "instances: many", "line 32: taskRoles.worker.instances: expected a w"),
        ("virtualCluster: vision", "virtualCluster: a b", "line 58: queue: expected the name"),
        ("      - python ps.py\n", "", "taskRoles.ps.commands: expected a list of commands"),
        ("taskRoles:\n  ps:", "taskRoles: 7\nx:\n  ps:", "taskRoles: expected a mapping, found a"),
    ],
)
def test_faults_of_openpai(old: str, new: str, message: str) -> None:
    assert old in OPENPAI
    with pytest.raises(JobFileErrors) as caught:
        parse(OPENPAI.replace(old, new, 1), "pai.yaml")
    assert message in str(caught.value)
    assert "canary" not in str(caught.value)


def test_pytorchjob() -> None:
    parsed = parse(PYTORCH, "pytorch.yaml")
    job, spec = parsed.job, parsed.job.spec("ada")
    assert (job.name, job.kind, job.labels) == ("bert", "pytorch", {"team": "nlp"})
    assert job.command == ("python3", "train.py", "--rate", "0.10")
    assert job.env == {"NCCL_DEBUG": "INFO"}
    assert job.secrets == ("HF_TOKEN",)
    assert spec.workers == Range(4, 4)
    assert spec.resources == Resources(gpus=2, cpu_milli=4500, memory_mib=32768)
    assert (spec.queue, spec.max_retries) == ("silver", 5)
    program = job.program()
    assert (program.max_duration_s, program.workdir) == (7200.0, "/workspace")
    for text in (
        "metadata.namespace is not converted",
        "spec.nprocPerNode is not converted",
        "spec.runPolicy.cleanPodPolicy is not converted",
        "spec.runPolicy.schedulingPolicy.minAvailable is not converted",
        "suspend: the job is submitted to run",
        "nodeSelector is not converted",
        "volumes is not converted",
        "volumeMounts is not converted",
        "rdma/hca is not converted",
        "the variable 'MASTER_PORT' is not converted; Roost sets it",
        "fieldRef is not converted",
        "the secret HF_TOKEN is not copied",
    ):
        assert said(parsed, text), text


def test_a_master_with_another_command_is_a_role() -> None:
    text = PYTORCH.replace("      replicas: 3\n", "      replicas: 3\n      template: *other\n")
    other = "x: &other {spec: {containers: [{command: [python, worker.py]}]}}\n"
    parsed = parse(other + text, "pytorch.yaml")
    assert parsed.job.workers == Range(3, 3)
    assert parsed.job.program().tasks == {
        "worker": Task(command=("python", "worker.py")),
        "master": Task(command=("python3", "train.py", "--rate", "0.10")),
    }
    assert said(parsed, "the master runs another command")


def test_elastic_pytorchjob() -> None:
    parsed = parse(ELASTIC, "elastic.yaml")
    assert parsed.job.name == "elastic"
    assert parsed.job.workers == Range(1, 4)
    assert parsed.job.retry.max == 100
    assert parsed.job.run == 'exec torchrun --nproc_per_node "${GPUS}" train.py'
    assert said(parsed, "spec.elasticPolicy.rdzvBackend is not converted")


def test_tfjob() -> None:
    parsed = parse(TENSORFLOW, "tf.yaml")
    spec = parsed.job.spec("ada")
    assert (spec.workers, spec.resources) == (Range(3, 3), Resources(gpus=1))
    assert spec.roles == (
        Role("chief", 1, Resources(gpus=1)),
        Role("ps", 2, Resources(gpus=0, cpu_milli=2000)),
        Role("evaluator", 1, Resources(gpus=0)),
    )
    assert spec.max_retries == 0
    assert parsed.job.program().tasks["ps"].command == ("python", "t.py", "--ps")
    assert said(parsed, "spec.successPolicy is not converted")


def test_a_tfjob_with_only_a_chief() -> None:
    text = TENSORFLOW[: TENSORFLOW.index("    PS:")]
    job = parse(text, "tf.yaml").job
    assert (job.workers, job.roles) == (Range(1, 1), {})


def test_mpijob() -> None:
    parsed = parse(MPI, "mpi.yaml")
    spec = parsed.job.spec("ada")
    assert (parsed.job.kind, spec.workers) == ("mpi", Range(1, 1))
    assert spec.resources == Resources(gpus=4, cpu_milli=16000, memory_mib=32768)
    assert parsed.job.command == ("mpirun", "-np", "4", "python", "train.py")
    assert said(parsed, "the devices of all 2 workers on one machine")


def test_trainjob() -> None:
    parsed = parse(TRAIN, "train.yaml")
    spec = parsed.job.spec("ada")
    assert (parsed.job.kind, spec.workers) == ("pytorch", Range(4, 4))
    assert spec.resources == Resources(gpus=1, memory_mib=1431)
    assert parsed.job.program().max_duration_s == 600.0
    assert parsed.job.env == {"A": "b"}
    for text in (
        "the runtime 'torch-distributed'",
        "numProcPerNode is not",
        "podTemplateOverrides",
    ):
        assert said(parsed, text), text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TRAIN.replace("command: [python, train.py]", "args: [x]"),
            "that of the image is not known",
        ),
        (TRAIN.replace("numNodes: 4", "numNodes: 0"), "line 10: spec.trainer.numNodes: expected a"),
        (TRAIN.replace("gpu: 1,", "gpu: one,"), "a quantity such as 2, 500m or 16Gi, found a text"),
        (TRAIN.replace("gpu: 1,", "gpu: 1.5,"), "the nearest valid are 1 or 2"),
        (MPI.replace("Launcher:", "Lancher:"), "mpiReplicaSpecs.Launcher: expected a launcher"),
        (PYTORCH.replace("    Worker:", "    Woker:"), "expected Master and Worker"),
        (TENSORFLOW.replace("Evaluator:", "Valuator:"), "expected Chief, PS, Worker and Evaluator"),
        (TENSORFLOW[: TENSORFLOW.index("    Chief")], "tfReplicaSpecs: expected Chief, PS"),
        (ELASTIC.replace("containers:", "pods:"), "expected at least one container"),
        (UNIFIED.replace("EPJob", "XJob"), "jobType: expected one of BaseJob, HJob, EHJob, EPJob"),
        (UNIFIED.replace("unifiedArgs", "args"), "unifiedArgs: expected a script"),
    ],
)
def test_faults_of_kubernetes(text: str, message: str) -> None:
    with pytest.raises(JobFileErrors) as caught:
        parse(text, "job.yaml")
    assert message in str(caught.value)


def test_unifiedjob() -> None:
    parsed = parse(UNIFIED, "unified.yaml")
    job = parsed.job
    assert (job.kind, job.workers, job.preemptible) == ("pytorch", Range(1, 4), True)
    assert job.spec("").resources == Resources(gpus=1)
    assert job.run == (
        "exec python main.py --arch=resnet50 'my data' --checkpoint-dir \"$ROOST_CHECKPOINT_DIR\""
    )
    base = UNIFIED.replace("EPJob", "BaseJob").replace("true", "false")
    job = parse(base, "unified.yaml").job
    assert (job.spec("").resources.gpus, job.workers) == (1, Range(1, 1))
    assert job.command == ("python", "main.py", "--arch=resnet50", "my data")
    assert not job.preemptible
    parsed = parse(UNIFIED.replace("EPJob", "HJob"), "unified.yaml")
    assert parsed.job.workers == Range(1, 1)
    assert said(parsed, "horovodrun is not used")


def test_sbatch() -> None:
    parsed = parse(SBATCH, "train.sbatch")
    job, spec = parsed.job, parsed.job.spec("ada")
    assert (job.name, spec.queue) == ("big-train", "vision")
    assert spec.workers == Range(8, 8)
    assert spec.resources == Resources(gpus=1, kinds=("A100",), cpu_milli=8000, memory_mib=65536)
    program = job.program()
    assert program.max_duration_s == 36.5 * 3600
    assert (program.stop_signal, program.grace_s) == ("SIGUSR1", 120.0)
    assert job.run == (
        "module load cuda\nexport RATE=0.1\nsrun python train.py --rate $RATE\npython eval.py\n"
        'srun --label hostname\necho "$SLURM_JOB_ID"\n'
    )
    for text in (
        "line 10: --qos is not converted",
        "line 10: --account is not converted",
        "line 11: --output is not converted",
        "line 12: --exclusive is not converted",
        "--nice: priorities are 0 to 100 here",
        "the GPU type 'a100' is taken for the kind 'A100'",
        "line 18: srun is left as it is; it must exist, or be removed",
        "line 19: srun is dropped: the script runs in each worker already",
        "line 20: srun is left",
        "$SLURM_JOB_ID is not set here",
        "the script runs in each worker",
    ):
        assert said(parsed, text), text


@pytest.mark.parametrize(
    ("headers", "workers", "gpus"),
    [
        ((), Range(1, 1), 0),
        (("--gpus=2",), Range(1, 1), 2000),
        (("-G 2",), Range(1, 1), 2000),
        (("-G2",), Range(1, 1), 2000),
        (("--gres=gpu:2", "-N1"), Range(1, 1), 2000),
        (("--gres=gpu",), Range(1, 1), 1000),
        (("-n 4", "--gpus=8"), Range(4, 4), 2000),
        (("-n 4", "--gpus-per-task=1"), Range(4, 4), 1000),
        (("-N 2", "-n 4", "--gpus-per-node=4"), Range(4, 4), 2000),
        (("-n 4", "--gres=gpu:1"), Range(4, 4), 250),
        (("-N 1-4", "--gpus-per-node=2"), Range(1, 4), 2000),
        (("-n 2", "--gpus=5"), Range(2, 2), 3000),
    ],
)
def test_tasks_and_gpus(headers: tuple[str, ...], workers: Range, gpus: int) -> None:
    job = sbatch(*headers)
    assert (job.workers, job.spec("").resources.gpu_milli) == (workers, gpus)
    assert job.run == "python x.py\n"


def test_without_srun_a_script_runs_once_with_everything() -> None:
    job = sbatch("-n 4", "-c 2", "--gpus-per-task=1", "--mem=8G", script="mpirun python x.py")
    assert (job.workers, job.run) == (Range(1, 1), "mpirun python x.py\n")
    assert job.spec("").resources == Resources(gpus=4, cpu_milli=8000, memory_mib=8192)


@pytest.mark.parametrize(
    ("headers", "memory"),
    [
        (("--mem=8G",), 8192),
        (("--mem=512",), 512),
        (("--mem=0",), 0),
        (("--mem-per-cpu=2G", "-c4"), 8192),
        (("--mem-per-gpu=4G", "--gpus=2"), 8192),
        (("-n 4", "--mem=8G"), 2048),
    ],
)
def test_memory(headers: tuple[str, ...], memory: int) -> None:
    assert sbatch(*headers).spec("").resources.memory_mib == memory


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("1:30:00", 5400),
        ("2-0", 172800),
        ("1-12:30", 131400),
        ("1-12:30:15", 131415),
        ("UNLIMITED", math.inf),
        ("0", math.inf),
    ],
)
def test_times(written: str, seconds: float) -> None:
    assert sbatch(f"-t {written}").program().max_duration_s == seconds


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("-t soon", "x.sh, line 2: --time: expected a value that Slurm would take, found 'soon'"),
        ("-N many", "--nodes: expected a number of nodes"),
        ("-n x", "--ntasks: expected a whole number"),
        ("--mem=much", "--mem: expected a size such as 32G"),
        ("--gres=fpga:1", "--gres: expected gpu:2"),
        ("--gres=gpu:a:b:1", "--gres: expected a count"),
        ("--signal=USR1@soon", "--signal: expected a signal"),
        ("--signal=KILL@1", "checkpoint.signal: expected one of SIGTERM"),
        ('-J "open', "#SBATCH: No closing quotation"),
        ("name", "#SBATCH: expected an option, found 'name'"),
        ("-n 99999", "workers: expected a number of workers"),
    ],
)
def test_faults_of_sbatch(header: str, message: str) -> None:
    with pytest.raises(JobFileErrors) as caught:
        sbatch(header)
    assert message in str(caught.value)
    assert caught.value.errors[0].line == 2


def test_requeue() -> None:
    assert sbatch("--requeue").retrying is None
    assert sbatch("--no-requeue").retry.max == 0


def test_a_script_without_headers_just_runs() -> None:
    parsed = parse("#!/usr/bin/env bash\nset -u\npython x.py\n", "run_it.sh")
    assert parsed.job.name == "run-it"
    assert parsed.job.run == "set -u\npython x.py\n"
    assert parsed.job.spec("").costs == Costs(checkpoint_every_s=math.inf)
    assert parsed.job.spec("").resources.qos == Qos.FIXED


def test_a_folder_given_to_slurm_is_filled_in_by_the_caller() -> None:
    job = sbatch("-D code").filled({}, Path("/home/ada"))
    assert job.program().workdir == "/home/ada/code"


@pytest.mark.parametrize(
    ("header", "advice"),
    [
        ("--array=1-10%2", "SLURM_ARRAY_TASK_ID"),
        ("-a 3", "SLURM_ARRAY_TASK_ID"),
        ("--dependency=afterok:12", "roost submit --wait"),
        ("-d singleton", "roost submit --wait"),
    ],
)
def test_what_would_be_another_job_is_refused(header: str, advice: str) -> None:
    with pytest.raises(JobFileErrors, match=r"line 2: .*take it out") as caught:
        parse(f"#!/bin/bash\n#SBATCH {header}\npython train.py\n", "a.sbatch")
    assert advice in str(caught.value)
