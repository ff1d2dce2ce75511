"""The one door to an API server: requests in, objects and Roost's errors out.

Configuration, credentials, TLS and the HTTP session are those of ``kubernetes_asyncio``; paths and
JSON are made here, because its typed calls cost more than the server does (decision 0021). Requests
that may be repeated are, a few times and ever later. ``create`` and ``bind`` are sent once: whoever
asked knows how to find out what became of it. Nothing here decides or remembers anything.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, Literal, Self

from roost.errors import Conflict, NotFound
from roost.kubernetes.client.access import Access, access
from roost.kubernetes.client.faults import AccessRequest, Disrupted, Expired, Unpermitted, fault
from roost.kubernetes.client.kinds import PODS, Object, ResourceKind
from roost.kubernetes.client.transport import (
    TIMEOUT_S,
    TRIES,
    ApiCall,
    Transport,
    decode,
    encode,
    lines,
)

__all__ = ["Api", "Disrupted", "Expired", "Object", "Strategy", "Unpermitted"]

Objects = list[Object]
Strategy = Literal["merge", "json", "strategic", "apply"]

_PATCHES: dict[Strategy, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}
#: How servers say that an object of this name is not the one that was meant.
_OTHER_UID = re.compile(r"UID in (the )?precondition")
#: How metadata alone is asked for.
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
#: Where a server says which one it is; no kind of object.
_VERSION = ResourceKind("", "v1", "version", "Version", namespaced=False)
#: The owner of the fields that we apply.
MANAGER = "roost"
#: A healthy watch is quiet for less: else the connection is given up.
STALL_S = 25.0


class Api:
    """An API server, as one account sees it."""

    def __init__(self, way: Access, *, connections: int = 64) -> None:
        self._way = way
        self._transport = Transport(way, connections)

    @classmethod
    async def connect(
        cls, *, context: str = "", kubeconfig: str = "", connections: int = 64
    ) -> Self:
        """The server of a kubeconfig's context, or of the pod that we are in.

        At most ``connections`` requests are under way at a time, watches and followed logs not
        counted. InvalidSpec says what is wrong with the configuration.
        """
        way = access(context, kubeconfig)
        await way.open()
        return cls(way, connections=connections)

    @property
    def namespace(self) -> str:
        """The namespace of the context or of the pod; ``default`` if it names none."""
        return self._way.namespace

    async def close(self) -> None:
        """Close every connection."""
        await self._way.close()

    # Reading

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        """One object."""
        return await self._transport.ask(ApiCall(AccessRequest("get", kind, namespace, name)))

    async def list(
        self,
        kind: ResourceKind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = 1000,
    ) -> tuple[Objects, str]:
        """All objects of a kind as of one moment, and the version to watch from."""
        found: Objects = []
        version = ""
        async for fresh, items, version in self.pages(  # noqa: B007 - the last one counts
            kind, namespace, labels=labels, fields=fields, page=page
        ):
            if fresh:
                found.clear()
            found += items
        return found, version

    async def get_metadata(self, kind: ResourceKind, name: str, namespace: str = "") -> Object:
        """The metadata of one object, however large the rest is."""
        asked = AccessRequest("get", kind, namespace, name)
        return await self._transport.ask(ApiCall(asked, accept=_METADATA.format("")))

    async def list_metadata(
        self, kind: ResourceKind, namespace: str = "", *, labels: str = ""
    ) -> Objects:
        """The metadata of all objects of a kind, at once: there should be few."""
        call = ApiCall(
            AccessRequest("list", kind, namespace),
            query=_query(labelSelector=labels),
            accept=_METADATA.format("List"),
        )
        found: Objects = (await self._transport.ask(call)).get("items") or []
        return found

    async def pages(
        self,
        kind: ResourceKind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = 1000,
    ) -> AsyncGenerator[tuple[bool, Objects, str], None]:
        """The pages of a list: whether it begins (anew), its objects, the version of the list.

        A list that takes longer than the server remembers begins anew, in larger pages.
        """
        asked = AccessRequest("list", kind, namespace)
        limit, token = page, ""
        while True:
            query = _query(labelSelector=labels, fieldSelector=fields, limit=limit)
            try:
                query |= _query(**{"continue": token})
                answer = await self._transport.ask(ApiCall(asked, query=query))
            except Expired:
                if not token:
                    raise
                limit, token = limit * 4, ""
                continue
            items: Objects = answer.get("items") or []
            for item in items:  # a list names its kind once, other answers with each object
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            yield not token, items, str(answer["metadata"]["resourceVersion"])
            token = answer["metadata"].get("continue") or ""
            if not token:
                return

    async def watch(  # noqa: PLR0913 - as the API has them
        self,
        kind: ResourceKind,
        version: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        timeout_s: float = 290.0,
        stall_s: float = STALL_S,
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Changes since a version: ADDED, MODIFIED, DELETED, or BOOKMARK for the version alone.

        The first is a bookmark of ours: the server listens to us. It ends when the server ends it,
        or when nothing came for ``stall_s``: a quiet watch and a dead one look alike, and taking up
        a quiet one costs little. Expired: list again. Retryable: the connection broke.
        """
        asked = AccessRequest("watch", kind, namespace)
        query = _query(
            watch="1",
            allowWatchBookmarks="true",
            resourceVersion=version,
            labelSelector=labels,
            fieldSelector=fields,
            timeoutSeconds=int(timeout_s),
        )
        async with self._transport.stream(ApiCall(asked, query=query), stall_s) as answer:
            yield "BOOKMARK", {"metadata": {"resourceVersion": version}}
            with contextlib.suppress(TimeoutError):
                async for line in lines(answer.content):
                    change = decode(line)
                    if change["type"] == "ERROR":
                        status = change["object"]
                        raise fault(asked, int(status.get("code") or 500), status)
                    yield change["type"], change["object"]

    async def discover(self, kind: ResourceKind) -> bool:
        """Whether the server serves this kind."""
        try:
            answer = await self._transport.ask(ApiCall(AccessRequest("get", kind), path=kind.root))
        except NotFound:
            return False
        return any(item.get("name") == kind.plural for item in answer.get("resources") or ())

    async def version(self) -> Object:
        """What the server says of itself: ``gitVersion``, ``major``, ``minor``."""
        return await self._transport.ask(
            ApiCall(AccessRequest("get", _VERSION), path=f"/{_VERSION.plural}")
        )

    # Writing

    async def create(
        self, kind: ResourceKind, body: Object, namespace: str = "", *, is_rehearsal: bool = False
    ) -> Object:
        """A new object, sent once. Conflict: there is one of that name.

        In a rehearsal everything is checked, also by webhooks, and nothing is kept.
        """
        namespace = namespace or body.get("metadata", {}).get("namespace", "")
        asked = AccessRequest("create", kind, namespace)
        query = {"dryRun": "All"} if is_rehearsal else {}
        request = ApiCall(asked, "POST", query, encode(_named(kind, body)))
        return await self._transport.ask(request, tries=1)

    async def replace(self, kind: ResourceKind, body: Object, sub: str = "") -> Object:
        """The object as it shall be. Conflict: it was changed since we read it."""
        meta = body["metadata"]
        asked = AccessRequest("update", kind, meta.get("namespace", ""), meta["name"], sub)
        return await self._transport.ask(ApiCall(asked, "PUT", body=encode(_named(kind, body))))

    async def patch(  # noqa: PLR0913 - as the API has them
        self,
        kind: ResourceKind,
        name: str,
        body: Any,
        namespace: str = "",
        *,
        sub: str = "",
        strategy: Strategy = "merge",
    ) -> Object:
        """The object after a change of some of its fields."""
        query = _query(fieldManager=MANAGER, force="true" if strategy == "apply" else "")
        asked = AccessRequest("patch", kind, namespace, name, sub)
        request = ApiCall(asked, "PATCH", query, encode(body), _PATCHES[strategy])
        # The operations of a JSON patch may not bear repeating.
        return await self._transport.ask(request, tries=1 if strategy == "json" else TRIES)

    async def delete(  # noqa: PLR0913 - as the API has them
        self,
        kind: ResourceKind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_s: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object; one that is gone is fine, and so is another of the same name."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **_options(uid, grace_s)}
        body["propagationPolicy"] = propagation
        asked = AccessRequest("delete", kind, namespace, name)
        with _gone(uid):
            await self._transport.send(ApiCall(asked, "DELETE", body=encode(body)))

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Give a pod its node, and annotations with it; sent once.

        Conflict: it has a node, or another pod has its name by now.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid, "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        asked = AccessRequest("create", PODS, namespace, name, "binding")
        await self._transport.send(ApiCall(asked, "POST", body=encode(body)), tries=1)

    async def evict(self, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        """Have a pod leave if its disruption budgets allow it, else Disrupted; gone is fine."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _options(uid, grace_s),
        }
        asked = AccessRequest("create", PODS, namespace, name, "eviction")
        with _gone(uid):
            await self._transport.send(ApiCall(asked, "POST", body=encode(body)))

    # Logs

    async def log(  # noqa: PLR0913 - what the server lets choose
        self,
        namespace: str,
        name: str,
        *,
        container: str = "",
        since_bytes: int = 0,
        limit_bytes: int | None = None,
        tail_lines: int | None = None,
    ) -> bytes:
        """What a container wrote, from a byte on; of that, only the last so many lines."""
        limit = None if limit_bytes is None else since_bytes + limit_bytes
        query = _query(container=container, limitBytes=limit, tailLines=tail_lines)
        asked = AccessRequest("get", PODS, namespace, name, "log")
        async with self._transport.stream(ApiCall(asked, query=query), TIMEOUT_S) as answer:
            return (await answer.read())[since_bytes:]

    async def follow(
        self,
        namespace: str,
        name: str,
        *,
        container: str = "",
        since_bytes: int = 0,
        tail_lines: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What a container wrote from a byte or the last so many lines on, and until it ends.

        First comes nothing: the server listens to us.
        """
        # The API knows no offset: what the caller has already is sent again, and dropped here.
        query = _query(container=container, follow="true", tailLines=tail_lines)
        asked = AccessRequest("get", PODS, namespace, name, "log")
        async with self._transport.stream(ApiCall(asked, query=query), None) as answer:
            yield b""
            async for piece in answer.content.iter_any():
                skipped, since_bytes = since_bytes, max(0, since_bytes - len(piece))
                if len(piece) > skipped:
                    yield piece[skipped:]


def _query(**given: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value not in ("", None)}


def _named(kind: ResourceKind, body: Object) -> Object:
    """The body with its kind: what comes from a list of another client may lack it."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body}


def _options(uid: str, grace_s: int | None) -> Object:
    options: Object = {}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


@contextlib.contextmanager
def _gone(uid: str) -> Iterator[None]:
    """What should go is gone, or the name is another's by now."""
    try:
        yield
    except Disrupted:
        raise
    except NotFound:
        pass
    except Conflict as error:
        if not (uid and _OTHER_UID.search(str(error))):
            raise
