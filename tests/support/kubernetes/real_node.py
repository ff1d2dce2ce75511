"""A node that nobody here wrote: the kubelet of Kubernetes, with containerd and runc.

    with RealNode(plane, folder, {"example.org/train:1": archive}) as node:
        ...

Both run in a PID namespace and a mount namespace of their own: their containers, mounts and sockets
are gone when it ends, however it ends. Pods get addresses of a bridge, and the machine itself is
``gateway`` to them. What stays of it on the machine until it is closed: that bridge, and a cgroup.
No image can be pulled; those that are given are imported. The kubelet listens on loopback, and
obeys the API server alone.

``NotAllowed`` says why a machine cannot do it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from tests.support.images import busybox_root, write_image
from tests.support.kubernetes.control_plane import KUBELET_CLIENT, ControlPlane
from tests.support.kubernetes.processes import Process, free_ports

from roost.engines.local.shim import process_tree
from roost.errors import RoostError
from roost.kubernetes.client.kinds import Object

#: Its name is its address, which is how a kubelet comes to have one of loopback.
NAME = "127.0.0.1"
_PROGRAMS = ("busybox", "containerd", "ctr", "ip", "mount", "nsenter", "runc", "setpriv", "unshare")
_PLUGINS = ("bridge", "host-local", "loopback")
_PLUGIN_FOLDERS = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
_CGROUPS = Path("/sys/fs/cgroup")
_PAUSE = "roost.test/pause:1"
_SOCKET = "/run/roost-node/containerd.sock"
_START_S, _LOOK_S = 60.0, 0.1
#: The first process of both namespaces; it buries whom others leave behind.
_INIT = """
mount -t tmpfs roost /run && mount -t tmpfs roost /var/log || exit 1
mkdir -p /run/roost-node /var/lib/kubelet
mount --bind "$1" /var/lib/kubelet || exit 1
shift
"$@" &
wait
"""


class NotAllowed(RoostError):
    """A real kubelet cannot run here; the text says why."""


class RealNode:
    """One node of a cluster, while it is entered."""

    def __init__(self, plane: ControlPlane, folder: Path, images: Mapping[str, Path]) -> None:
        self.plane, self._folder, self._images = plane, folder, images
        number = os.getpid()
        self.gateway = f"10.213.{number % 256}.1"
        self._bridge = f"roost{number % 10_000_000}"
        self._cgroup = f"roost-node-{number}"
        self._snapshotter = ""
        self._containerd = Process("containerd", folder)
        self._kubelet = Process("kubelet", folder)

    def __enter__(self) -> Self:
        check_machine()
        if self.plane.binaries.kubelet is None:
            raise NotAllowed("there is no kubelet in KUBEBUILDER_ASSETS: unset it to have it built")
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that was started, and take its traces off the machine."""
        self._kubelet.kill()
        if (first := self._first()) is not None:
            # With the first process of its namespace everything in it dies.
            os.kill(first, signal.SIGKILL)
        self._containerd.kill()
        if (Path("/sys/class/net") / self._bridge).exists():
            _ran("ip", "link", "delete", self._bridge)
        for folder in self._cgroups():
            _remove_cgroups(folder)

    @property
    def kubelet_folder(self) -> Path:
        """What the kubelet calls ``/var/lib/kubelet``, with the sockets of plug-ins."""
        return self._folder / "kubelet"

    def restart_kubelet(self) -> None:
        """Start another kubelet in place of the one that runs; containers go on."""
        # It is below the program that entered the namespaces, and would outlive that.
        for process in process_tree.descendants(self._kubelet.pid or 0):
            process_tree.send(process, signal.SIGKILL)
        self._kubelet.kill()
        self._start_kubelet()

    def log(self) -> str:
        """The last words of the kubelet and of containerd."""
        return f"{self._kubelet.tail()}\n{self._containerd.tail()}"

    def kill(self, pod: Object) -> None:
        """Kill the processes of a pod's first container, as the kernel does for want of memory."""
        (container, *_) = pod["status"]["containerStatuses"]
        name = container["containerID"].rpartition("/")[2]
        (file, *_) = [path for top in self._cgroups() for path in top.rglob(f"{name}/cgroup.procs")]
        for pid in file.read_text().split():
            os.kill(int(pid), signal.SIGKILL)

    # -- start -----------------------------------------------------------------------------------

    def _start(self) -> None:
        for name in ("kubelet", "containerd", "cni"):
            (self._folder / name).mkdir()
        self._snapshotter = _snapshotter(self._folder)
        self._make_network()
        self._start_containerd()
        self._import_images()
        self._start_kubelet()

    def _make_network(self) -> None:
        address = f"{self.gateway}/24"
        for words in (
            ("link", "add", self._bridge, "type", "bridge"),
            ("address", "add", address, "dev", self._bridge),
            ("link", "set", self._bridge, "up"),
        ):
            done = _ran("ip", *words)
            if done.returncode:
                raise NotAllowed(f"no bridge for pods can be made here: {done.stderr.strip()}")
        (first, _, _) = self.gateway.rpartition(".")
        ranges = [[{"subnet": f"{first}.0/24", "gateway": self.gateway}]]
        plugin = {
            "type": "bridge",
            "bridge": self._bridge,
            "ipam": {"type": "host-local", "ranges": ranges, "dataDir": str(self._folder / "ipam")},
        }
        network = {"cniVersion": "0.4.0", "name": self._bridge, "plugins": [plugin]}
        (self._folder / "cni" / "10-roost.conflist").write_text(json.dumps(network))

    def _start_containerd(self) -> None:
        config = self._folder / "containerd.toml"
        config.write_text(_containerd_config(self._folder, self._snapshotter))
        self._containerd.start(
            (
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("sh", "-c", _INIT, "sh", self._folder / "kubelet"),
                *("containerd", f"--config={config}"),
            )
        )
        end = time.monotonic() + _START_S
        while self._inside("ctr", f"--address={_SOCKET}", "version").returncode:
            if not self._containerd.runs or time.monotonic() > end:
                raise NotAllowed(
                    f"containerd does not start here: {self._containerd.tail()[-500:]}"
                )
            time.sleep(_LOOK_S)

    def _import_images(self) -> None:
        root = busybox_root(self._folder / "pause", ["sleep", "true"])
        images = dict(self._images)
        images[_PAUSE] = write_image(_PAUSE, root, self._folder / "pause.tar")
        kept = f"--snapshotter={self._snapshotter}"
        for path in images.values():
            done = self._ctr("images", "import", kept, str(path))
            if done.returncode:
                raise NotAllowed(f"containerd imports no image here: {done.stderr.strip()[-500:]}")
        name = f"docker.io/{_PAUSE}" if "docker.io" in done.stdout else _PAUSE
        cgroup = f"--cgroup=/{self._cgroup}/trial"
        done = self._ctr("run", "--rm", kept, cgroup, name, "trial", "true")
        if done.returncode:
            raise NotAllowed(f"no container can be run here: {done.stderr.strip()[-500:]}")

    def _start_kubelet(self) -> None:
        for folder in self._cgroups(made=True):
            folder.mkdir(exist_ok=True)
        config = self._folder / "kubelet.yaml"
        (port,) = free_ports(1)
        config.write_text(json.dumps(self._kubelet_config(port)))
        self._kubelet.start(
            (
                *(*self._entering(), self.plane.binaries.kubelet or ""),
                *(f"--config={config}", f"--kubeconfig={self.plane.kubeconfig}"),
                *(f"--hostname-override={NAME}", "--root-dir=/var/lib/kubelet"),
                *("--cert-dir=/var/lib/kubelet/pki", "--v=2"),
            )
        )

    def _kubelet_config(self, port: int) -> Object:
        authority = str(self.plane.folder / f"{KUBELET_CLIENT}.crt")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NAME,
            "port": port,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": authority},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "clusterDNS": [self.gateway],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            # What else is on this machine's disk is not the node's.
            "evictionHard": {"nodefs.available": "0%", "memory.available": "50Mi"},
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "2s",
            "makeIPTablesUtilChains": False,
        }

    # -- the machine -----------------------------------------------------------------------------

    def _first(self) -> int | None:
        """The first process of the namespaces."""
        pid = self._containerd.pid
        if pid is None:
            return None
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return int(children[0]) if children else None
        return None

    def _entering(self) -> tuple[str, ...]:
        return ("nsenter", f"--target={self._first()}", "--mount", "--pid", "--")

    def _inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        return _ran(*self._entering(), *words)

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._inside("ctr", f"--address={_SOCKET}", "--namespace=k8s.io", *words)

    def _cgroups(self, *, made: bool = False) -> Iterator[Path]:
        """Our cgroup in every hierarchy; with ``made``, also where it is still to be made."""
        unified = (_CGROUPS / "cgroup.procs").exists()
        tops = [_CGROUPS] if unified else [path for path in _CGROUPS.iterdir() if path.is_dir()]
        yield from (top / self._cgroup for top in tops if made or (top / self._cgroup).exists())


def check_machine() -> None:
    """Raise NotAllowed if it is clear beforehand that a real kubelet cannot run here."""
    if os.geteuid() != 0:
        raise NotAllowed("a kubelet needs root")
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise NotAllowed(f"not installed: {', '.join(missing)}")
    if _plugins() is None:
        raise NotAllowed("not installed: the network plug-ins (containernetworking-plugins)")


def _plugins() -> Path | None:
    for folder in _PLUGIN_FOLDERS:
        if all((folder / name).exists() for name in _PLUGINS):
            return folder
    return None


def _snapshotter(folder: Path) -> str:
    """How containerd keeps files: in layers if this machine mounts them, else in copies."""
    trial = folder / "overlay"
    for name in ("lower", "upper", "work", "merged"):
        (trial / name).mkdir(parents=True)
    layers = f"lowerdir={trial}/lower,upperdir={trial}/upper,workdir={trial}/work"
    mount = ("mount", "-t", "overlay", "overlay", "-o", layers, f"{trial}/merged")
    return "native" if _ran("unshare", "--mount", *mount).returncode else "overlayfs"


def _containerd_config(folder: Path, snapshotter: str) -> str:
    # A machine may forbid to lower oom_score_adj, without which runc cannot begin.
    return f"""
version = 2
root = "{folder}/containerd"
state = "/run/roost-node/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{_PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_plugins()}"
    conf_dir = "{folder}/cni"
"""


def _remove_cgroups(top: Path) -> None:
    """Remove a cgroup and those below it; what still dies in them needs a moment."""
    end = time.monotonic() + _START_S
    while top.exists() and time.monotonic() < end:
        for folder in sorted(
            (top, *(path for path in top.rglob("*") if path.is_dir())), reverse=True
        ):
            with contextlib.suppress(OSError):
                folder.rmdir()
        time.sleep(_LOOK_S)


def _ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - programs of this machine
        words, capture_output=True, text=True, check=False, timeout=_START_S
    )
