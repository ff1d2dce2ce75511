"""The objects of a run: its pods, the service that names them, its host file and its token.

Pure functions of a job file, an allocation and the few fields of a pod that users may set
(``pod_overrides``).
Names follow from the job, the attempt and the place in the gang, so a request that
is made twice makes one object. Everything lies in the namespace of the Job and is owned by it.

    <job>-<attempt>-<role>-<index>     a pod; of a later generation <job>-<attempt>r<generation>-…
    roost-<job>                        the headless service, one for all attempts
    <job>-<attempt>                    the config map of an attempt
    roost-<job>-<attempt>-token        its secret; no other is called so, since one that is
                                       there is deleted unread

A worker that is alone has nobody to meet. It needs no service and no config map: its pod is all
there is, and a thousand such jobs cost the API server a thousand requests.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from roost.core.allocation import WORKER, Allocation, Seat
from roost.core.spec import WHOLE, JobSpec, NodeId, Resources, RunId
from roost.engines.mounts import mount_variable
from roost.engines.rank_environment import (
    Address,
    RankEnvironment,
    hostfile,
    run_variables,
    seat_variables,
)
from roost.errors import InvalidSpec
from roost.jobfile.model import JobFile
from roost.jobfile.program import Program
from roost.kubernetes.autoscaling.disruption import STAY, consuming
from roost.kubernetes.client.kinds import JOBS, Object
from roost.kubernetes.jobs import sent_folder
from roost.kubernetes.jobs.containers import (
    INSTALL,
    argv_of,
    contained,
    device_variables,
    from_secret,
    literal,
    share_notes,
)
from roost.kubernetes.jobs.pod_overrides import PodOverrides
from roost.kubernetes.objects.gang_refs import INDEX, JOB, ROLE
from roost.kubernetes.objects.nodes import SHARED_GPUS
from roost.kubernetes.objects.pods import ATTEMPT, GPUS, PLAN, SEAT, encode_gpus, encode_plan

GENERATION = "roost.dev/generation"
#: The host file of a worker that is alone.
HOSTFILE = "roost.dev/hostfile"
#: The hex SHA-256 of the token of a run: the next leader can check it, and not use it.
TOKEN = "roost.dev/token"  # noqa: S105 - the name of an annotation

CONTAINER = "worker"
_HOME = "/roost"
#: Where the claims are that a job names as its mounts.
_MOUNTS = "/mnt"
_PORT, _MEET = 2222, 29500
_LABEL = 63
#: Up to so many seats, every pod carries the plan; of more, the first few, which are made first.
_PLANS, _FEW = 64, 3


@dataclass(frozen=True, slots=True)
class JobOwner:
    """The Job object that all others belong to."""

    namespace: str
    name: str
    uid: str

    def reference(self) -> Object:
        """What makes an object go with the Job."""
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }

    def owns(self, found: Object) -> bool:
        """Whether an object belongs to this very Job, not to an earlier one of its name."""
        references = found["metadata"].get("ownerReferences") or ()
        return any(one.get("uid") == self.uid for one in references)


@dataclass(frozen=True, slots=True)
class Site:
    """What the operator knows of the cluster it runs in.

    Elastic jobs get ``roost.train`` from ``train_image``; without one, their own image has it.
    ``meeting`` is where pods reach the operator. With ``loopback`` all pods share one machine's
    network and no names are looked up: each then listens on a port of its own, from that one on.
    """

    train_image: str = ""
    meeting: str = ""
    scheduler: str = "roost"
    loopback: int = 0
    #: The resource that stands for a GPU of a node.
    vendors: Mapping[NodeId, str] = field(default_factory=dict)
    #: Nodes with an agent, which gives containers their shares.
    agents: Container[NodeId] = ()
    #: The class of ProvisioningRequests by which Jobs ask for nodes; empty if they do not.
    provisioning: str = ""


@dataclass(frozen=True, slots=True)
class RunSeats:
    """The workers of a run: seats by rank, main ones first, and the ids of the main workers."""

    seats: tuple[Seat, ...]
    members: tuple[str, ...]

    def number(self, seat: Seat) -> int:
        """What the pod at a seat is called by: its member's id, else its index."""
        return int(self.members[seat.index]) if seat.role == WORKER else seat.index


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All objects of one generation of a run."""

    owner: JobOwner
    file: JobFile
    spec: JobSpec
    run: RunId
    allocation: Allocation
    crew: RunSeats
    site: Site
    overrides: PodOverrides = field(default_factory=PodOverrides)
    user: str = ""
    generation: int = 1
    #: The hex SHA-256 of the token.
    digest: str = ""
    #: The Secret that has the values of the job's secrets.
    secrets_from: str = ""
    #: The parcels of the folder that the job was sent with.
    parcels: tuple[str, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Whether its only pod will stay the only one."""
        return len(self.crew.seats) == 1 and not self.elastic

    @property
    def has_config_map(self) -> bool:
        """Whether its pods read a config map."""
        return bool(self.parcels) or not self.is_alone

    @property
    def service_name(self) -> str:
        """The domain of the pods."""
        return short(f"roost-{self.owner.name}")

    @property
    def record_name(self) -> str:
        """What the config map of this attempt is called."""
        return f"{self.owner.name}-{self.run.attempt}"

    @property
    def token_name(self) -> str:
        """What the secret of this attempt is called."""
        return f"roost-{self.record_name}-token"

    def service(self) -> Object:
        """The headless service: pods find each other by name, also before they are ready."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(self.service_name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {JOB: self.owner.name},
                "ports": [{"name": "meet", "port": _MEET}, {"name": "worker", "port": _PORT}],
            },
        }

    def config_map(self) -> Object:
        """The host file, where the gang goes, and what unpacks the job's folder."""
        unpack = {sent_folder.SCRIPT: sent_folder.script()} if self.parcels else {}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self._metadata(self.record_name),
            "data": {
                "hostfile": hostfile(self._gang().hosts()),
                "plan": encode_plan(self.allocation),
                **unpack,
            },
        }

    def kept_log(self, name: str, data: dict[str, str]) -> Object:
        """The logs of this attempt, for when its pods are gone."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self._metadata(name),
            "binaryData": data,
        }

    def secret(self, token: str) -> Object:
        """What lets the pods speak for this run."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self._metadata(self.token_name),
            "type": "Opaque",
            "stringData": {"token": token},
        }

    @property
    def elastic(self) -> bool:
        """Whether its workers may come and go: they call, if there is somewhere to call."""
        return self.spec.elastic and bool(self.site.meeting)

    def pods(self) -> list[Object]:
        """A pod for every seat, main ones first; the first ones tell of all (``PLAN``)."""
        gang, plan = self._gang(), encode_plan(self.allocation)
        bearers = len(self.crew.seats) if len(self.crew.seats) <= _PLANS else _FEW
        return [
            self._pod(seat, gang, plan if number < bearers else "")
            for number, seat in enumerate(self.crew.seats)
        ]

    def pod_name(self, seat: Seat) -> str:
        """The name of the pod at a seat."""
        again = f"r{self.generation}" if self.generation > 1 else ""
        number = self.crew.number(seat)
        return f"{self.owner.name}-{self.run.attempt}{again}-{seat.role}-{number}"

    def address(self, seat: Seat, port: int = _PORT) -> Address:
        """Where the worker at a seat is found."""
        name = self.pod_name(seat)
        if self.site.loopback:
            spread = zlib.crc32(f"{self.owner.uid}/{name}/{port}".encode()) % 8192
            return Address("127.0.0.1", self.site.loopback + spread)
        if self.is_alone:
            return Address("localhost", port)
        host = f"{short(name)}.{self.service_name}.{self.owner.namespace}.svc"
        return Address(host, port)

    def meet(self, version: int = 1) -> Address:
        """Where the first main worker waits for the others; another port for each version."""
        return self.address(self.crew.seats[0], _MEET + (version - 1) % 1000)

    def probe(self, role: str) -> Object:
        """A pod of that role without its devices: where it may go besides is what it tells."""
        seat = Seat(role, 0, (), WHOLE, NodeId(""))
        alone = replace(self, allocation=Allocation(()), crew=RunSeats((seat,), ("0",)))
        return alone.pods()[0]

    # -- pods ------------------------------------------------------------------------------------

    def _gang(self) -> RankEnvironment:
        addresses = [self.address(seat) for seat in self.crew.seats]
        return RankEnvironment(self.run, self.user, self.crew.seats, self.meet(), addresses)

    def _pod(self, seat: Seat, gang: RankEnvironment, plan: str) -> Object:
        name, need = self.pod_name(seat), self._need(seat.role)
        metadata = self._metadata(name)
        metadata["labels"] |= {**self.overrides.labels, **self._labels(seat), **metadata["labels"]}
        notes = self._notes(seat, need, plan)
        stay = STAY
        if self.site.provisioning:
            stay = STAY | consuming(request_name(self.owner.name), self.site.provisioning)
        metadata["annotations"] = {**stay, **self.overrides.annotations, **notes}
        program = self.file.program()
        elastic = self.elastic and seat.role == WORKER
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                **self.overrides.pod,
                "schedulerName": self.site.scheduler,
                "restartPolicy": "Never",
                "hostname": short(name),
                **({} if self.is_alone else {"subdomain": self.service_name}),
                "enableServiceLinks": False,
                "automountServiceAccountToken": "serviceAccountName" in self.overrides.pod,
                "terminationGracePeriodSeconds": max(1, math.ceil(program.grace_s)),
                **self._before(seat, need, elastic=elastic),
                "containers": [self._container(seat, need, gang, program)],
                "volumes": [*self._volumes(seat.role, elastic=elastic), *self.overrides.volumes],
            },
        }

    def _container(
        self, seat: Seat, need: Resources, gang: RankEnvironment, program: Program
    ) -> Object:
        if not self.file.image:
            raise InvalidSpec("image: a job on Kubernetes needs the container image of its workers")
        elastic = self.elastic and seat.role == WORKER
        wrapper = (self.file.python or "python3", "-m", "roost.train.pod", "--") if elastic else ()
        return {
            "name": CONTAINER,
            "image": self.file.image,
            **self._pulled(),
            "command": [literal(word) for word in argv_of(program, seat.role, wrapper)],
            "env": [*self._plain(seat, need, gang, program), *self._secret_variables(program)],
            "workingDir": program.workdir or f"{_HOME}/work",
            "resources": self._resources(seat, need),
            "securityContext": contained(),
            "terminationMessagePolicy": "File",
            "volumeMounts": [*self._mounts(seat.role, elastic=elastic), *self.overrides.mounts],
        }

    def _plain(
        self, seat: Seat, need: Resources, gang: RankEnvironment, program: Program
    ) -> list[dict[str, str]]:
        threads = max(1, need.cpu_milli // 1000)
        found = {
            **({"OMP_NUM_THREADS": str(threads)} if need.cpu_milli else {}),
            **gang.ranks(seat, max(len(seat.gpus), 1)),
            **gang.clusters(seat),
            **program.env,
            **device_variables(seat, has_agent=seat.node in self.site.agents),
            **run_variables(self.run, self.generation),
            "ROOST_ROLE": seat.role,
            **seat_variables(seat),
            "ROOST_HOSTFILE": f"{_HOME}/config/hostfile",
            **{mount_variable(name): f"{_MOUNTS}/{name}" for name in self.file.mounts},
            "ROOST_CHECKPOINT_DIR": program.checkpoint_dir or f"{_HOME}/checkpoints",
            **self._member(seat),
        }
        if seat.share_milli < WHOLE and need.gpu_memory_mib:
            found["ROOST_GPU_MEMORY_MIB"] = str(need.gpu_memory_mib)
        return [{"name": name, "value": literal(value)} for name, value in found.items()]

    def _member(self, seat: Seat) -> dict[str, str]:
        if not self.elastic or seat.role != WORKER:
            return {}
        return {
            "ROOST_MEMBERS": f"{_HOME}/io/members.json",
            "ROOST_MEMBER": self.crew.members[seat.index],
            "ROOST_PROGRESS": f"{_HOME}/io/progress",
            "ROOST_MEETING": self.site.meeting,
            "PYTHONPATH": _joined(f"{_HOME}/lib", self.file.env.get("PYTHONPATH")),
        }

    def _secret_variables(self, program: Program) -> list[Object]:
        source = self.secrets_from or f"{self.owner.name}-secrets"
        found = [from_secret(name, source, name) for name in program.secret_names]
        if self.elastic:
            found.append(from_secret("ROOST_RUN_TOKEN", self.token_name, "token"))
        return found

    def _resources(self, seat: Seat, need: Resources) -> Object:
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        if need.cpu_milli:
            requests["cpu"] = f"{need.cpu_milli}m"
        if need.memory_mib:
            requests["memory"] = limits["memory"] = f"{need.memory_mib}Mi"
        if seat.share_milli >= WHOLE and seat.gpus:
            name = self.site.vendors.get(seat.node, "nvidia.com/gpu")
            requests[name] = limits[name] = str(len(seat.gpus))
        elif seat.gpus and seat.node in self.site.agents:
            requests[SHARED_GPUS] = limits[SHARED_GPUS] = "1"
        return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}

    def _before(self, seat: Seat, need: Resources, *, elastic: bool) -> Object:
        """What runs before the worker."""
        first = [self._installer()] if elastic and self.site.train_image else []
        if self.parcels:
            # No devices: the worker has them.
            alone = replace(seat, gpus=())
            unpack = sent_folder.unpacker(self.file, self._resources(alone, need), self._pulled())
            first.insert(0, unpack)
        return {"initContainers": first} if first else {}

    def _pulled(self) -> Object:
        policy = self.overrides.pull_policy
        return {"imagePullPolicy": policy} if policy else {}

    def _installer(self) -> Object:
        """Brings ``roost.train`` along, whatever is in the image of the job."""
        return {
            "name": "roost-train",
            "image": self.site.train_image,
            "command": list(INSTALL),
            "securityContext": contained(),
            "volumeMounts": [{"name": "roost-lib", "mountPath": f"{_HOME}/lib"}],
        }

    def _volumes(self, role: str, *, elastic: bool) -> list[Object]:
        found: list[Object] = [
            {"name": "roost-work", "emptyDir": {}},
            {"name": "roost-config", **self._config()},
        ]
        for number, name in enumerate(self.file.mounts):
            claim = {"claimName": name}
            found.append({"name": f"roost-mount-{number}", "persistentVolumeClaim": claim})
        if self.parcels:
            found.append(sent_folder.parcels_volume(self.parcels))
        if not self.file.program().checkpoint_dir:
            found.append({"name": "roost-checkpoints", "emptyDir": {}})
        if elastic:
            found += [{"name": "roost-io", "emptyDir": {}}, {"name": "roost-lib", "emptyDir": {}}]
        if size := self._shared_memory(role):
            memory = {"medium": "Memory", "sizeLimit": str(size)}
            found.append({"name": "roost-shm", "emptyDir": memory})
        return found

    def _config(self) -> Object:
        """Where the folder of the host file comes from."""
        if self.has_config_map:
            return {"configMap": {"name": self.record_name}}
        field = {"fieldPath": f"metadata.annotations['{HOSTFILE}']"}
        return {"downwardAPI": {"items": [{"path": "hostfile", "fieldRef": field}]}}

    def _mounts(self, role: str, *, elastic: bool) -> list[Object]:
        places = {"work": f"{_HOME}/work", "config": f"{_HOME}/config"}
        if not self.file.program().checkpoint_dir:
            places["checkpoints"] = f"{_HOME}/checkpoints"
        if elastic:
            places |= {"io": f"{_HOME}/io", "lib": f"{_HOME}/lib"}
        if self._shared_memory(role):
            places["shm"] = "/dev/shm"  # noqa: S108 - of the pod
        for number, name in enumerate(self.file.mounts):
            places[f"mount-{number}"] = f"{_MOUNTS}/{name}"
        return [{"name": f"roost-{name}", "mountPath": path} for name, path in places.items()]

    def _shared_memory(self, role: str) -> int:
        part = self.file if role == WORKER else self.file.roles[role]
        return part.resources.shm_size or 0

    def _need(self, role: str) -> Resources:
        if role == WORKER:
            return self.spec.resources
        for one in self.spec.roles:
            if one.name == role:
                return one.resources
        raise InvalidSpec(f"role {role!r} has nothing to run")

    def _labels(self, seat: Seat) -> dict[str, str]:
        return {
            ATTEMPT: str(self.run.attempt),
            GENERATION: str(self.generation),
            ROLE: seat.role,
            INDEX: str(self.crew.number(seat)),
        }

    def _notes(self, seat: Seat, need: Resources, plan: str) -> dict[str, str]:
        """What the scheduler reads back, and writes again when it binds."""
        notes = {
            GPUS: encode_gpus(seat.gpus),
            SEAT: f"{seat.role}-{self.crew.number(seat)}",
            ATTEMPT: str(self.run.attempt),
        }
        if plan:
            notes[PLAN] = plan
        if not self.has_config_map:
            notes[HOSTFILE] = hostfile(self._gang().hosts())
        if self.digest:
            notes[TOKEN] = self.digest
        if seat.share_milli < WHOLE:
            notes |= share_notes(need)
        return notes

    def _metadata(self, name: str) -> Object:
        return {
            "name": name,
            "namespace": self.owner.namespace,
            "labels": {JOB: self.owner.name},
            "ownerReferences": [self.owner.reference()],
        }


def digest_of(token: str) -> str:
    """What is kept of a token where others can read it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def request_name(job: str) -> str:
    """What the ProvisioningRequest of a Job is called."""
    return short(f"{job}-nodes")


def short(name: str) -> str:
    """A name as one label of a domain: cut where it is too long, and still its own."""
    if len(name) <= _LABEL:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LABEL - 9].rstrip('-')}-{mark}"


def _joined(first: str, own: str | None) -> str:
    return f"{first}:{own}" if own else first
