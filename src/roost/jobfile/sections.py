"""The sections of a job file: resources, sharing, roles, training, retry, checkpoint, workdir."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_serializer, model_validator

from roost import core
from roost.core import WHOLE, Qos, Range, Way
from roost.jobfile import fields
from roost.jobfile.fields import wrong
from roost.jobfile.grammar import OTHER, GpuRequest, mib

#: The default of a worker: a whole GPU; in a role of its own, none.
ONE_GPU = GpuRequest()
_NO_GPU = GpuRequest(0, 0)
#: One per cent of a GPU, in milli-GPUs.
_PERCENT = WHOLE // 100


class Section(BaseModel):
    """A mapping with known keys; anything else in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SharingSection(Section):
    """How a part of a GPU is held: by turns or side by side, its memory, its share, its policy."""

    way: Literal["temporal", "spatial"] = "temporal"
    policy: Literal["fixed", "equal", "best-effort"] = "fixed"
    mem: fields.Size | None = None
    cores: fields.Percent | None = None


class ResourcesSection(Section):
    """What one worker needs on its node; of ranges the lower end counts."""

    gpu: fields.Devices | None = None
    cpu: fields.Cpus | None = None
    memory: fields.Sizes | None = None
    shm_size: fields.Size | None = None

    @model_validator(mode="before")
    @classmethod
    def _alternatives(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "any_of" not in given:
            return given
        if "gpu" in given:
            raise wrong("any_of", "'any_of' and 'gpu' say the same; give one of them")
        return {key: item for key, item in given.items() if key != "any_of"} | {
            "gpu": given["any_of"]
        }

    def needs(self, default: GpuRequest, sharing: SharingSection) -> core.Resources:
        """The same for the core, which counts in milli-GPUs, milli-CPUs and MiB."""
        gpus = self.gpu or default
        share = _share(gpus, sharing)
        memory = mib(sharing.mem) if sharing.mem else 0
        if not memory and share < WHOLE and gpus.memory:
            memory = mib(gpus.memory.low)
        return core.Resources(
            gpus=gpus.low,
            share_milli=share,
            gpu_memory_mib=memory,
            qos=Qos(sharing.policy),
            kinds=gpus.kinds,
            cpu_milli=self.cpu.low if self.cpu else 0,
            memory_mib=mib(self.memory.low) if self.memory else 0,
            way=Way(sharing.way),
        )

    def notes(self, where: str) -> list[str]:
        """Requests that cannot be held."""
        found = []
        if self.gpu and self.gpu.high != self.gpu.low:
            found.append(
                f"{where}.gpu: {self.gpu.low} of up to {self.gpu.high} GPUs for each worker are"
                " asked for; jobs grow by workers"
            )
        if self.gpu and self.gpu.memory and self.gpu.share_milli == WHOLE:
            found.append(f"{where}.gpu: the memory of whole GPUs is not checked; name their kind")
        for name, bounds in (("cpu", self.cpu), ("memory", self.memory)):
            if bounds and bounds.high not in (None, bounds.low):
                found.append(f"{where}.{name}: the lower end is asked for")
        if self.shm_size:
            found.append(f"{where}.shm_size: ignored; processes share the machine's /dev/shm")
        return found


class RoleSection(Section):
    """Extra workers beside the main ones, such as parameter servers."""

    workers: fields.RoleWorkers = Range(1, 1)
    resources: ResourcesSection = ResourcesSection()
    run: fields.Script = ""
    command: fields.Command = ()

    @model_validator(mode="before")
    @classmethod
    def _shortcut(cls, given: Any) -> Any:
        return with_gpus(given)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.run and self.command:
            raise wrong("command", "'run' and 'command' exclude each other")
        return self

    def needs(self) -> core.Resources:
        """What each worker of this role needs; no GPU unless asked."""
        return self.resources.needs(_NO_GPU, SharingSection())

    def named(self, name: str) -> core.Role:
        """The same for the core."""
        least, most = self.workers
        return core.Role(name, least, self.needs(), most if most > least else 0)


class TrainingSection(Section):
    """How the job learns, as far as its user knows: batches, epochs, and what a GPU can hold."""

    batch: fields.Count
    batch_max: fields.Count | None = None
    epochs: fields.Amount | None = None
    steps: fields.Count | None = None
    local_min: fields.Count = 1
    local_max: fields.CountByKind = ()
    alone: fields.AmountByKind = ()
    pipeline: fields.Count = 1
    micro: fields.Count = 1

    @model_validator(mode="before")
    @classmethod
    def _needs_a_batch(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("batch") is None:
            raise wrong("batch", "'training' needs 'batch', the samples of a step of all workers")
        return given

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.batch_max is not None and self.batch_max < self.batch:
            raise wrong("batch_max", "'training.batch_max' is below 'training.batch'")
        for kind, most in self.local_max:
            if most < self.local_min:
                raise wrong(
                    f"local_max.{kind or OTHER}", "'training.local_max' is below 'local_min'"
                )
            if most < self.micro:
                raise wrong(f"local_max.{kind or OTHER}", "'training.local_max' is below 'micro'")
        if self.micro > self.batch:
            raise wrong("micro", "'training.micro' is above 'training.batch'")
        return self

    def known(self) -> core.Training:
        """The same for the core."""
        return core.Training(
            self.batch,
            self.batch_max or 0,
            self.epochs or 0.0,
            self.local_min,
            self.local_max,
            self.alone,
            self.pipeline,
            self.micro,
        )


class RetrySection(Section):
    """When a failed job is tried again."""

    max: fields.Retries = 3
    on_exit_codes: fields.Codes = ()
    delay: fields.Duration = 5.0

    @model_validator(mode="before")
    @classmethod
    def _count_alone(cls, given: Any) -> Any:
        return {"max": given} if isinstance(given, int | str) else given


_LONGEST_GRACE_S = 3600.0


class CheckpointSection(Section):
    """Where and how often the program saves itself, and how it is told to stop."""

    path: fields.Line | None = None
    every: fields.Duration = 600.0
    signal: fields.Signal = "SIGTERM"
    grace: fields.Duration = 30.0
    restart: fields.Duration = 0.0

    @field_validator("grace")
    @classmethod
    def _bounded(cls, grace: float) -> float:
        if grace > _LONGEST_GRACE_S:  # the devices would be held too long
            raise fields.expected("a duration of at most 1h")
        return grace


class WorkdirSection(Section):
    """A folder, a repository to check out, or what was sent; a text alone is a folder."""

    path: fields.Line | None = None
    git: fields.Url | None = None
    ref: fields.Ref | None = None
    sent: fields.Digest | None = None

    @model_validator(mode="before")
    @classmethod
    def _folder_alone(cls, given: Any) -> Any:
        if isinstance(given, dict) and str(given.get("git", "")).startswith("/"):
            return {**given, "git": f"file://{given['git']}"}  # as git itself takes it
        return {"path": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.path, self.git, self.sent).count(None) != 2:  # noqa: PLR2004 - all but one
            raise wrong("git", "a folder, or {git: address, ref: branch, tag or commit}")
        if self.git is None and self.ref is not None:
            raise wrong("ref", "'ref' goes with 'git', not with a folder")
        return self

    @model_serializer
    def _short(self) -> str | dict[str, str]:
        if self.path is not None:
            return self.path
        if self.sent is not None:
            return {"sent": self.sent}
        return {"git": self.git or "", **({"ref": self.ref} if self.ref else {})}


def with_gpus(given: Any) -> Any:
    """A mapping with ``gpus`` moved to where it belongs, ``resources.gpu``."""
    if not isinstance(given, dict) or "gpus" not in given:
        return given
    rest = {key: item for key, item in given.items() if key != "gpus"}
    resources = rest.get("resources") or {}
    if not isinstance(resources, dict):
        raise wrong("gpus", "'gpus' goes with 'resources' as a mapping")
    if "gpu" in resources or "any_of" in resources:
        raise wrong("gpus", "'gpus' and 'resources.gpu' say the same; give one of them")
    return {**rest, "resources": {**resources, "gpu": given["gpus"]}}


def _share(gpus: GpuRequest, sharing: SharingSection) -> int:
    if sharing.cores is None or sharing.cores * _PERCENT == gpus.share_milli:
        return gpus.share_milli
    if gpus.low != 1 or gpus.share_milli < WHOLE:
        raise wrong("sharing.cores", "'sharing.cores' is a part of one GPU; 'gpus' asks otherwise")
    return sharing.cores * _PERCENT
