"""What a container gets to see: its variables, its words of command, and its volumes.

Names of pods and services resolve nowhere on one machine, so a full name such as
``worker-0.train.default.svc`` in a variable or an argument becomes 127.0.0.1.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from roost.errors import InvalidSpec, NotFound
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import CONFIG_MAPS, SECRETS, Object, ResourceKind
from roost.train.pod import install

#: The one image that has files here: ``roost.train`` alone.
TRAIN_IMAGE = "roost-train"
ADDRESS = "127.0.0.1"
_NAME = re.compile(r"\b[a-z0-9][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*){1,2}\.svc(?:\.cluster\.local)?\b")
_VARIABLE = re.compile(r"\$(\$|\(([A-Za-z_][\w.-]*)\))")
_KEYED = re.compile(r"(metadata\.(?:labels|annotations))\['([^']+)'\]")
#: What is not an object of its own but the pod's: by the path that refers to it.
_FIELDS: dict[str, Callable[[Object], str]] = {
    "metadata.name": lambda pod: str(pod["metadata"]["name"]),
    "metadata.namespace": lambda pod: str(pod["metadata"]["namespace"]),
    "metadata.uid": lambda pod: str(pod["metadata"]["uid"]),
    "metadata.labels": lambda pod: _lines(pod["metadata"].get("labels")),
    "metadata.annotations": lambda pod: _lines(pod["metadata"].get("annotations")),
    "spec.nodeName": lambda pod: str(pod["spec"]["nodeName"]),
    "spec.serviceAccountName": lambda pod: str(pod["spec"].get("serviceAccountName", "default")),
    "status.hostIP": lambda _: ADDRESS,
    "status.podIP": lambda _: ADDRESS,
    "status.podIPs": lambda _: ADDRESS,
    "status.hostIPs": lambda _: ADDRESS,
}


class PodFiles:
    """Reads what one pod refers to, and lays its volumes out below a folder."""

    def __init__(self, api: Api, pod: Object, folder: Path, claims: Path) -> None:
        self._api, self._pod, self._claims = api, pod, claims
        self._volumes = folder / "volumes"
        self._namespace = str(pod["metadata"]["namespace"])

    async def lay_out(self) -> None:
        """Make the volumes; InvalidSpec for kinds that have no meaning here."""
        for volume in self._pod["spec"].get("volumes") or ():
            path = self._volumes / volume["name"]
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                source = self._claims / self._namespace / claim
                source.mkdir(parents=True, exist_ok=True)
                self._link(path, source)
            elif "hostPath" in volume:
                self._link(path, Path(volume["hostPath"]["path"]))
            else:
                _make_folder(path)
                await self._fill(path, volume)

    def mounts(self, container: Object) -> list[tuple[str, str, bool]]:
        """The container's mounts: where, what, and whether it may be written."""
        found = []
        for mount in container.get("volumeMounts") or ():
            source = (self._volumes / mount["name"]).resolve()
            if part := mount.get("subPath"):
                source /= part
                if not source.exists():
                    source.mkdir(parents=True)
            writable = not mount.get("readOnly") and not self._is_fixed(mount["name"])
            found.append((str(mount["mountPath"]), str(source), writable))
        if container.get("image") == TRAIN_IMAGE:
            library = self._volumes.with_name(TRAIN_IMAGE)
            install(library)
            found.append(("/opt/roost-train", str(library), False))
        return found

    async def variables(self, container: Object) -> dict[str, str]:
        """The container's variables, those that refer to others last."""
        found: dict[str, str] = {}
        for source in container.get("envFrom") or ():
            for kind, name in ((CONFIG_MAPS, "configMapRef"), (SECRETS, "secretRef")):
                if reference := source.get(name):
                    values = await self._values(kind, reference)
                    prefix = source.get("prefix", "")
                    found |= {f"{prefix}{key}": value.decode() for key, value in values.items()}
        for variable in container.get("env") or ():
            value = await self._value(variable, container)
            if value is not None:
                found[variable["name"]] = _expanded(value, found)
        return {name: _local(value) for name, value in found.items()}

    async def _value(self, variable: Object, container: Object) -> str | None:
        match variable.get("valueFrom"):
            case None:
                return str(variable.get("value") or "")
            case {"fieldRef": {"fieldPath": path}}:
                return self._field(path)
            case {"resourceFieldRef": {"resource": resource}}:
                return _resource(container, resource)
            case {"secretKeyRef": reference}:
                return await self._key(SECRETS, reference)
            case {"configMapKeyRef": reference}:
                return await self._key(CONFIG_MAPS, reference)
            case other:
                raise InvalidSpec(f"variable {variable['name']}: no value from {list(other)} here")

    async def _key(self, kind: ResourceKind, reference: Object) -> str | None:
        found = (await self._values(kind, reference)).get(reference["key"])
        if found is None and not reference.get("optional"):
            raise NotFound(f"{kind.kind} {reference['name']} has no key {reference['key']}")
        return None if found is None else found.decode()

    async def _values(self, kind: ResourceKind, reference: Object) -> dict[str, bytes]:
        try:
            found = await self._api.get(kind, reference["name"], self._namespace)
        except NotFound:
            if reference.get("optional"):
                return {}
            raise
        text = {key: str(value).encode() for key, value in (found.get("data") or {}).items()}
        if kind is SECRETS:
            return {key: base64.b64decode(value) for key, value in text.items()}
        binary = found.get("binaryData") or {}
        return {**text, **{key: base64.b64decode(value) for key, value in binary.items()}}

    def _field(self, path: str) -> str:
        if keyed := _KEYED.fullmatch(path):
            part = keyed[1].removeprefix("metadata.")
            return str((self._pod["metadata"].get(part) or {}).get(keyed[2], ""))
        if path not in _FIELDS:
            raise InvalidSpec(f"no field {path} of a pod is known here")
        return _FIELDS[path](self._pod)

    async def _fill(self, path: Path, volume: Mapping[str, Any]) -> None:
        match volume:
            case {"emptyDir": _}:
                pass
            case {"configMap": source}:
                await self._files(path, CONFIG_MAPS, source, source["name"])
            case {"secret": source}:
                name = source.get("secretName") or source["name"]
                await self._files(path, SECRETS, source, name)
            case {"downwardAPI": source}:
                for item in source.get("items") or ():
                    _write(path / item["path"], self._field(item["fieldRef"]["fieldPath"]).encode())
            case {"projected": {"sources": sources}}:
                for source in sources:
                    await self._fill(path, source)
            case _:
                raise InvalidSpec(f"volume {volume.get('name')}: no such kind of volume here")

    async def _files(self, path: Path, kind: ResourceKind, source: Object, name: str) -> None:
        values = await self._values(kind, {**source, "name": name})
        items = source.get("items") or [{"key": key, "path": key} for key in values]
        for item in items:
            if item["key"] in values:
                mode = item.get("mode") or source.get("defaultMode") or 0o644
                _write(path / item["path"], values[item["key"]], mode)
            elif not source.get("optional"):
                raise NotFound(f"{kind.kind} {name} has no key {item['key']}")

    def _is_fixed(self, name: str) -> bool:
        volumes = self._pod["spec"]["volumes"]
        volume = next(volume for volume in volumes if volume["name"] == name)
        return not volume.keys().isdisjoint(("configMap", "secret", "downwardAPI", "projected"))

    @staticmethod
    def _link(path: Path, source: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(source)


def words(container: Object, variables: Mapping[str, str]) -> list[str]:
    """The command of a container; there is no image here that could have one of its own."""
    given = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        raise InvalidSpec(
            f"container {container['name']} has no command, and images have none here"
        )
    return [_local(_expanded(str(word), variables)) for word in given]


def _resource(container: Object, name: str) -> str:
    kind, _, resource = name.partition(".")
    return str((container.get("resources", {}).get(kind) or {}).get(resource, "0"))


def _expanded(value: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` is a variable that was defined before, ``$$`` a dollar; the rest stays."""

    def put(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return variables.get(found[2], found[0])

    return _VARIABLE.sub(put, value)


def _local(value: str) -> str:
    return _NAME.sub(ADDRESS, value)


def _lines(values: Mapping[str, str] | None) -> str:
    entries: Iterable[tuple[str, str]] = sorted((values or {}).items())
    return "\n".join(f'{key}="{value}"' for key, value in entries)


def _make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
