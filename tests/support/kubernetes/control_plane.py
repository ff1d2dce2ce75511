"""A control plane of Kubernetes to throw away: etcd, an API server, and what is asked for.

    async with ControlPlane(folder) as plane:
        api = await Api.connect(kubeconfig=str(plane.kubeconfig))

Everything listens on loopback ports and lives in one folder. Users and their groups are given
beforehand, and rights are those of RBAC; ``admin`` may do everything. ``wipe`` makes the cluster
clean again without a restart. Methods may be called from any event loop, but only one at a time.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
from tests.support.kubernetes import keys
from tests.support.kubernetes.binaries import Binaries, build, find
from tests.support.kubernetes.etcd import NODES, Etcd
from tests.support.kubernetes.processes import Process, free_ports
from tests.support.kubernetes.stages import LABEL, stages

from roost.errors import NotFound, RoostError

CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "job-controller",
    "disruption-controller",
    "pod-garbage-collector-controller",
    "node-lifecycle-controller",
)
#: The certificate by which a kubelet knows the API server.
KUBELET_CLIENT = "kubelet-client"
_START_S = 60.0
_LOOK_S = 0.05
_TRIES = 3


class NotStarted(RoostError):
    """A part of the control plane does not run; the text ends with what it said."""


class ControlPlane:
    """etcd and kube-apiserver, and at will KWOK, kube-controller-manager and kube-scheduler."""

    def __init__(
        self,
        folder: Path,
        *,
        kwok: bool = True,
        controller_manager: bool = False,
        scheduler: bool = False,
        users: Mapping[str, Sequence[str]] | None = None,
        controllers: Sequence[str] = CONTROLLERS,
        binaries: Binaries | None = None,
    ) -> None:
        self.folder = folder
        self.users = {keys.ADMIN: ("system:masters",), **(users or {})}
        self.tokens = {user: secrets.token_hex(16) for user in self.users}
        self.etcd = Etcd()
        self.port = 0
        self._binaries = binaries
        self._with = {"kwok": kwok, "manager": controller_manager, "scheduler": scheduler}
        self._controllers = controllers
        names = ("etcd", "apiserver", "kwok", "manager", "scheduler")
        self._processes = {name: Process(name, folder) for name in names}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def authority(self) -> Path:
        """The certificate that vouches for the API server."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kwok(self) -> Process:
        """What plays kubelet."""
        return self._processes["kwok"]

    @property
    def servers(self) -> tuple[Process, Process]:
        """What keeps the objects: etcd and the API server."""
        return self._processes["etcd"], self._processes["apiserver"]

    @property
    def binaries(self) -> Binaries:
        """The programs; built on first use if they are missing."""
        if self._binaries is None:
            self._binaries = find() or build()
        return self._binaries

    def kubeconfig_of(self, user: str, *, server: str = "", namespace: str = "") -> Path:
        """Write a kubeconfig for a user, perhaps by way of another server such as a proxy."""
        if user not in self.tokens:
            raise NotFound(f"no user {user!r}: there are {', '.join(self.tokens)}")
        safe = user.replace(":", "_").replace("/", "_")
        where = f"-by-{server.rpartition(':')[2]}" if server else ""
        path = self.folder / f"kubeconfig-{safe}{where}{'-' + namespace if namespace else ''}"
        authority = None if server.startswith("http://") else self.authority
        token = self.tokens[user]
        return keys.write_kubeconfig(
            path, server or self.url, token, authority=authority, namespace=namespace
        )

    async def start(self) -> None:
        """Start everything and wait until the API server is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        keys.write_account_keys(self.folder)
        keys.write_certificate(self.folder, KUBELET_CLIENT)
        keys.write_tokens(self.folder / "tokens.csv", self.users, self.tokens)
        try:
            await self._start_server()
            self.kubeconfig_of(keys.ADMIN).replace(self.kubeconfig)
            await self.etcd.remember()
            self._start_rest()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End everything, the API server before its store."""
        for name in ("scheduler", "manager", "kwok"):
            self._processes[name].kill()
        self._processes["apiserver"].kill()
        self._processes["etcd"].kill()

    def start_manager(self, controllers: Sequence[str]) -> None:
        """Start kube-controller-manager with these, where it was not asked for at first."""
        self._controllers = controllers
        self._start_manager()

    def stop_manager(self) -> None:
        """End kube-controller-manager alone."""
        self._processes["manager"].kill()

    def stop_scheduler(self) -> None:
        """End kube-scheduler alone."""
        self._processes["scheduler"].kill()

    def kill_apiserver(self) -> None:
        """Kill the API server, as a crash would."""
        self._processes["apiserver"].kill()

    async def restart_apiserver(self) -> None:
        """Start the API server again on the same port and wait until it is ready."""
        self.kill_apiserver()
        self._start_apiserver()
        await self._until_ready()

    async def wipe(self, *, keep_nodes: bool = False) -> None:
        """Remove all objects that were not there at the start, definitions of kinds excepted.

        They vanish from the store, whatever finalizers they have; who watches is told, but may not
        trust what he hears if his watch breaks meanwhile (``etcd``). End those who make objects
        first.
        """
        await self.etcd.wipe((NODES,) if keep_nodes else ())

    async def account_token(self, namespace: str, name: str, expires_s: int = 3600) -> str:
        """A token of a service account, as its pods would get it; ``tokens`` knows it, too."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        body = {**spec, "spec": {"expirationSeconds": expires_s}}
        answer = await self.request("POST", path, body)
        token = str(answer["status"]["token"])
        self.tokens[f"system:serviceaccount:{namespace}:{name}"] = token
        return token

    async def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Send one request as the administrator; for what a test asks outside of its client."""
        async with httpx.AsyncClient(verify=_trusting(self.authority), base_url=self.url) as client:
            head = {"Authorization": f"Bearer {self.tokens[keys.ADMIN]}"}
            answer = await client.request(method, path, json=body, headers=head, timeout=60.0)
        if answer.is_error:
            raise RoostError(f"{method} {path}: {answer.status_code} {answer.text}")
        return dict(answer.json()) if answer.content else {}

    async def _start_server(self) -> None:
        """Start etcd and the API server; another one may take a free port before they do."""
        for left in reversed(range(_TRIES)):
            client, peer, self.port = free_ports(3)
            self.etcd.url = f"http://127.0.0.1:{client}"
            self._start_etcd(peer)
            self._start_apiserver()
            try:
                await self._until_ready()
            except NotStarted as error:
                await self.stop()
                if not left or "address already in use" not in str(error):
                    raise
            else:
                return

    def _start_etcd(self, peer_port: int) -> None:
        peer = f"http://127.0.0.1:{peer_port}"
        command: list[str | Path] = [
            self.binaries.etcd,
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd.url}",
            f"--advertise-client-urls={self.etcd.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
        ]
        self._processes["etcd"].start(command)

    def _start_apiserver(self) -> None:
        # Nobody makes default service accounts, and unless there is a controller manager nobody
        # takes the taint of a new node away.
        disabled = ["ServiceAccount"]
        if not self._with["manager"]:
            disabled.append("TaintNodesByCondition")
        command: list[str | Path] = [
            self.binaries.apiserver,
            f"--etcd-servers={self.etcd.url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.authority.parent}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/16",
            f"--disable-admission-plugins={','.join(disabled)}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={self.folder / KUBELET_CLIENT}.crt",
            f"--kubelet-client-key={self.folder / KUBELET_CLIENT}.key",
            "--feature-gates=WatchList=false",  # needs a newer etcd than its package has
            "--endpoint-reconciler-type=none",
            "--enable-priority-and-fairness=false",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=2000",
            "--profiling=false",
            "--event-ttl=1h",
            "--allow-privileged=true",
        ]
        self._processes["apiserver"].start(command)

    def _start_rest(self) -> None:
        if self._with["kwok"]:
            self._start_kwok()
        if self._with["manager"]:
            self._start_manager()
        if self._with["scheduler"]:
            self.start_scheduler()

    def _start_kwok(self) -> None:
        path = self.folder / "kwok.yaml"
        path.write_text(stages(), encoding="utf-8")
        lease_s = 40 if self._with["manager"] else 0
        command: list[str | Path] = [
            self.binaries.kwok,
            f"--kubeconfig={self.kubeconfig}",
            f"--config={path}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector={','.join('='.join(p) for p in LABEL.items())}",
            f"--node-lease-duration-seconds={lease_s}",
            "--v=WARN",
        ]
        self._processes["kwok"].start(command)

    def _start_manager(self) -> None:
        program = _given(self.binaries.controller_manager, "kube-controller-manager")
        command: list[str | Path] = [
            program,
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(self._controllers)}",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
        ]
        self._processes["manager"].start(command)

    def start_scheduler(self) -> None:
        """Start kube-scheduler, also where it was not asked for at first."""
        program = _given(self.binaries.scheduler, "kube-scheduler")
        path = self.folder / "scheduler.yaml"
        path.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\n"
            "kind: KubeSchedulerConfiguration\n"
            "leaderElection: {leaderElect: false}\n"
            f"clientConnection: {{kubeconfig: {self.kubeconfig}, qps: 5000, burst: 5000}}\n",
            encoding="utf-8",
        )
        self._processes["scheduler"].start([program, f"--config={path}", "--secure-port=0"])

    async def _until_ready(self) -> None:
        end = time.monotonic() + _START_S
        head = {"Authorization": f"Bearer {self.tokens[keys.ADMIN]}"}
        while not await self._is_ready(head):
            for name in ("etcd", "apiserver"):
                process = self._processes[name]
                if not process.runs:
                    raise NotStarted(f"{name} ended while it started:\n{process.tail()}")
            if time.monotonic() > end:
                tail = self._processes["apiserver"].tail()
                raise NotStarted(f"the API server is not ready after {_START_S:.0f} s:\n{tail}")
            await asyncio.sleep(_LOOK_S)

    async def _is_ready(self, head: dict[str, str]) -> bool:
        if not self.authority.exists():
            return False
        try:
            async with httpx.AsyncClient(verify=_trusting(self.authority)) as client:
                answer = await client.get(f"{self.url}/readyz", headers=head, timeout=5.0)
        except (httpx.TransportError, ssl.SSLError, OSError):
            return False
        return answer.status_code == httpx.codes.OK


def _given(program: Path | None, name: str) -> Path:
    if program is None:
        raise NotFound(f"{name} is not in KUBEBUILDER_ASSETS: unset it to have it built")
    return program


def _trusting(authority: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority))
