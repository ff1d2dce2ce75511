"""Roost's definitions as a cluster has them: what differs from ours, and how to change that.

The API server validates and prunes by the definition that is installed, not by the one that the
operator was made for. So a difference is named by its field, and a change is made in an order in
which no object is lost: fields that objects use are not taken away, and a version goes only when
nothing is stored in it. Versions of one kind have equal schemas, so that converting is renaming
(strategy ``None``) and needs no webhook (decision 0054).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roost.errors import Conflict, NotFound, Retryable, RoostError
from roost.kubernetes.client.api import Api
from roost.kubernetes.client.kinds import Object, ResourceKind

DEFINITIONS = ResourceKind(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    namespaced=False,
)
#: What of a schema is for people alone.
_PROSE = frozenset({"description", "example", "externalDocs", "title"})
_INNER = frozenset({"properties", "items", "additionalProperties"})
_AT_ONCE = 16
_LOOK_S, _TRIES = 0.2, 150
_SHOWN = 3
_FOREIGN = "is not of this version"


class SchemaChange(NamedTuple):
    """One difference between two schemas: the field, and whether only the older one has it."""

    field: str
    what: str
    is_lost: bool = False
    #: What the API server fills in where nothing is said: to lose that is no loss.
    default: Any = None

    def __str__(self) -> str:
        return f"{self.field} {self.what}"


def changes(wanted: Object, there: Object) -> list[SchemaChange]:
    """What differs in a definition that is installed, version by version."""
    found: list[SchemaChange] = []
    have = {one["name"]: one for one in there["spec"]["versions"]}
    for version in wanted["spec"]["versions"]:
        name = version["name"]
        if name not in have:
            found.append(SchemaChange(f"version {name}", "is missing"))
            continue
        found += _fields(_schema(version), _schema(have[name]), "")
        for part in ("served", "storage"):
            if version.get(part) != have[name].get(part):
                found.append(SchemaChange(f"version {name}", f"has another value of {part}"))
    ours = {one["name"] for one in wanted["spec"]["versions"]}
    return [*found, *(SchemaChange(f"version {one}", _FOREIGN) for one in have if one not in ours)]


def _schema(version: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def _fields(
    wanted: Mapping[str, Any], there: Mapping[str, Any], path: str
) -> Iterator[SchemaChange]:
    ours, theirs = wanted.get("properties") or {}, there.get("properties") or {}
    for name in ours:
        if name not in theirs:
            yield SchemaChange(_join(path, name), "is missing")
        else:
            yield from _fields(ours[name], theirs[name], _join(path, name))
    for name in theirs.keys() - ours.keys():
        default = theirs[name].get("default")
        yield SchemaChange(_join(path, name), _FOREIGN, is_lost=True, default=default)
    for inner in ("items", "additionalProperties"):
        one, other = wanted.get(inner), there.get(inner)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _fields(one, other, f"{path}[]")
        elif bool(one) != bool(other):
            yield SchemaChange(path or "the object", f"has other {inner}")
    for key in sorted((wanted.keys() | there.keys()) - _PROSE - _INNER):
        if (wanted.get(key) or None) != (there.get(key) or None):
            yield SchemaChange(path or "the object", f"has another {key}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


async def installed(api: Api, wanted: Object) -> Object | None:
    """A definition as the cluster has it; None: it has none."""
    try:
        return await api.get(DEFINITIONS, wanted["metadata"]["name"])
    except NotFound:
        return None


class DefinitionUpgrade:
    """Brings one definition of a cluster to what this version wants, up or down."""

    def __init__(self, api: Api, wanted: Object) -> None:
        self._api, self._wanted = api, wanted
        self._name = str(wanted["metadata"]["name"])
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run(self, *, is_rehearsal: bool, is_forced: bool) -> AsyncIterator[str]:
        """Do it, or only say what would be done; Conflict says what stands in the way."""
        there = await installed(self._api, self._wanted)
        if there is None:
            yield f"{self._name}  is missing: installed"
            if not is_rehearsal:
                await self._apply()
            return
        found = changes(self._wanted, there)
        gone = self._stored(there) - {one["name"] for one in self._wanted["spec"]["versions"]}
        if not found and self._stored(there) == {self._storage(self._wanted)}:
            yield f"{self._name}  is up to date"
            return
        await self._check_losses(there, [one for one in found if one.is_lost], is_forced)
        if gone and self._storage(self._wanted) not in {
            v["name"] for v in there["spec"]["versions"]
        }:
            raise Conflict(
                f"{self._name}: objects are stored as {', '.join(sorted(gone))}, which this "
                "version of Roost does not know; go by a version that knows both"
            )
        yield f"{self._name}  {_told(found)}"
        if is_rehearsal:
            return
        if gone:
            await self._store_as(there, self._storage(self._wanted))
            yield f"{self._name}  {await self._rewritten()} objects are stored anew"
        await self._apply()
        if not gone:
            yield f"{self._name}  {await self._rewritten()} objects are stored anew"

    async def _apply(self) -> None:
        await self._api.patch(DEFINITIONS, self._name, self._wanted, strategy="apply")
        await self._until_ready()

    async def _store_as(self, there: Object, version: str) -> None:
        """Let the installed definition store as a version that both know."""
        versions = [{**one, "storage": one["name"] == version} for one in there["spec"]["versions"]]
        body = {"spec": {"versions": versions}}
        await self._api.patch(DEFINITIONS, self._name, body)
        await self._until_ready()

    async def _until_ready(self) -> None:
        for _ in range(_TRIES):
            found = await installed(self._api, self._wanted) or {}
            conditions = (found.get("status") or {}).get("conditions") or ()
            if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                return
            await asyncio.sleep(_LOOK_S)
        raise Retryable(f"{self._name}: the API server does not serve it yet", _LOOK_S)

    async def _rewritten(self) -> int:
        """Have every object stored in the version of now; says how many there are.

        An empty patch changes nothing, but what is stored in another version is written anew.
        """
        objects = await self._objects()
        refused = [why for why in await asyncio.gather(*map(self._touch, objects)) if why]
        if refused:
            raise Conflict(
                f"{self._name}: {len(refused)} objects are not accepted by the definition as it is "
                f"now; put the old one back, or change them: {'; '.join(refused[:_SHOWN])}"
            )
        found = await self._api.get(DEFINITIONS, self._name)
        if self._stored(found) != {self._storage(found)}:
            status = {"status": {"storedVersions": [self._storage(found)]}}
            await self._api.patch(DEFINITIONS, self._name, status, sub="status")
        return len(objects)

    async def _touch(self, found: Object) -> str:
        meta, kind = found["metadata"], self._kind(self._storage(self._wanted))
        async with self._turns:
            try:
                await self._api.patch(kind, meta["name"], {}, meta.get("namespace", ""))
            except NotFound:
                return ""  # deleted meanwhile
            except Retryable:
                raise
            except RoostError as error:
                return str(error)
        return ""

    async def _objects(self) -> list[Object]:
        there = await installed(self._api, self._wanted)
        if there is None:
            return []
        version = next(one["name"] for one in there["spec"]["versions"] if one["served"])
        return (await self._api.list(self._kind(version)))[0]

    async def _check_losses(
        self,
        there: Object,
        lost: Sequence[SchemaChange],
        is_forced: bool,  # noqa: FBT001 - as the command has it
    ) -> None:
        """No object may have a value in a field that the API server is about to forget."""
        # What a status said is worked out anew.
        lost = [one for one in lost if one.field.startswith("spec.")]
        if not lost or is_forced:
            return
        for found in await self._objects():
            for field, _, _, default in lost:
                if _has(found, field.split("."), default):
                    meta = found["metadata"]
                    where = f"{meta['namespace']}/" if meta.get("namespace") else ""
                    raise Conflict(
                        f"{there['spec']['names']['kind']} {where}{meta['name']} has {field}, "
                        "which this version of Roost does not know and would lose; remove it there "
                        "first, or say --force"
                    )

    def _kind(self, version: str) -> ResourceKind:
        spec = self._wanted["spec"]
        names, is_spaced = spec["names"], spec["scope"] == "Namespaced"
        return ResourceKind(
            spec["group"], version, names["plural"], names["kind"], namespaced=is_spaced
        )

    @staticmethod
    def _stored(there: Object) -> set[str]:
        return set((there.get("status") or {}).get("storedVersions") or ())

    @staticmethod
    def _storage(definition: Object) -> str:
        return next(str(one["name"]) for one in definition["spec"]["versions"] if one["storage"])


def _told(found: Sequence[SchemaChange]) -> str:
    if not found:
        return "has objects that are stored in an older version: stored anew"
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"differs: {', '.join(map(str, found[:_SHOWN]))}{more}: brought to this version"


def _has(found: Any, path: Sequence[str], default: Any) -> bool:
    """Whether an object has another value than that at a path, in any element on the way."""
    if not path:
        return found is not None and found != default
    name, each = path[0].removesuffix("[]"), path[0].endswith("[]")
    inner = found.get(name) if isinstance(found, Mapping) else None
    if not each:
        return inner is not None and _has(inner, path[1:], default)
    many = inner.values() if isinstance(inner, Mapping) else inner or ()
    return any(_has(one, path[1:], default) for one in many)
