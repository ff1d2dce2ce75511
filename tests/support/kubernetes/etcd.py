"""The store behind an API server, made clean between tests.

Deleting thousands of objects by the API takes as many requests and waits for finalizers, graces
and controllers; deleting their keys takes a few transactions. The API server sees each key go and
tells everyone who watches. What was there when the server had just started stays.

One thing is not as in life: all that a transaction deletes has one version, so whoever takes a
watch up again in the midst of it misses the rest. It is for the time between tests.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import httpx

_ALL, _END = b"/registry/", b"/registry0"
#: Kinds and what the servers keep for themselves.
_KEPT = (
    b"/registry/apiextensions.k8s.io/",
    b"/registry/apiregistration.k8s.io/",
    b"/registry/flowschemas/",
    b"/registry/leases/kube-system/apiserver-",
    b"/registry/masterleases/",
    b"/registry/prioritylevelconfigurations/",
    b"/registry/priorityclasses/system-",
    b"/registry/clusterroles/system:",
    b"/registry/clusterrolebindings/system:",
    b"/registry/servicecidrs/",
    b"/registry/ranges/",
    b"/registry/services/endpoints/default/kubernetes",
    b"/registry/endpointslices/default/kubernetes",
    b"/registry/services/specs/default/kubernetes",
    b"/registry/ipaddresses/10.0.0.1",
    b"/registry/namespaces/default",
    b"/registry/namespaces/kube-",
    b"/registry/configmaps/kube-",
    b"/registry/roles/kube-",
    b"/registry/rolebindings/kube-",
)
#: Where nodes are kept, under the name that they had at first.
NODES = b"/registry/minions/"
#: Operations that one transaction may have.
_PORTION = 128
_PASSES = 5


class Etcd:
    """The store at an address."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self._base: frozenset[bytes] = frozenset()

    async def remember(self) -> None:
        """Take what is there now for what belongs there."""
        async with self._client() as client:
            self._base = frozenset(await self._keys(client))

    async def wipe(self, keep: tuple[bytes, ...] = ()) -> None:
        """Remove every key that does not belong there and begins with none of those to keep."""
        async with self._client() as client:
            for _ in range(_PASSES):
                known = await self._keys(client)
                extra = [key for key in known if not (self._belongs(key) or key.startswith(keep))]
                if not extra:
                    return
                for portion in _portions(sorted(extra)):
                    await self._delete(client, portion)

    def _belongs(self, key: bytes) -> bool:
        return key in self._base or key.startswith(_KEPT)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=60.0)

    async def _keys(self, client: httpx.AsyncClient) -> list[bytes]:
        body = {"key": _coded(_ALL), "range_end": _coded(_END), "keys_only": True}
        answer = await _post(client, "/v3/kv/range", body)
        return [base64.b64decode(one["key"]) for one in answer.get("kvs", [])]

    async def _delete(self, client: httpx.AsyncClient, portion: Iterable[bytes]) -> None:
        deletions = [{"request_delete_range": {"key": _coded(key)}} for key in portion]
        await _post(client, "/v3/kv/txn", {"success": deletions})


async def _post(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    answer.raise_for_status()
    return dict(answer.json())


def _coded(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _portions(extra: list[bytes]) -> Iterator[list[bytes]]:
    for begin in range(0, len(extra), _PORTION):
        yield extra[begin : begin + _PORTION]
