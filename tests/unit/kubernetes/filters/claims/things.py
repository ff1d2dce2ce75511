"""Claims, classes and slices as an API server has them."""

from __future__ import annotations

import itertools
from typing import Any

from tests.unit.kubernetes.operator.objects import SPACE, pod

from roost.kubernetes.client.kinds import Object

DRIVER = "gpu.example.com"
CLASS = "gpu"
_versions = itertools.count(1)


def _meta(name: str, **more: Any) -> Object:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": str(next(_versions)), **more}


def device_class(name: str = CLASS, *expressions: str, **spec: Any) -> Object:
    given = expressions or (f'device.driver == "{DRIVER}"',)
    return {"metadata": _meta(name), "spec": {"selectors": selectors(*given), **spec}}


def selectors(*expressions: str) -> list[Object]:
    return [{"cel": {"expression": one}} for one in expressions]


def device(name: str, **attributes: Any) -> Object:
    kinds = {str: "string", int: "int", bool: "bool"}
    made = {key: {kinds[type(value)]: value} for key, value in attributes.items()}
    return {"name": name, "attributes": made}


def slice_of(name: str, *devices: Object | str, **spec: Any) -> Object:
    """A slice of a pool of its own, of the node of that name."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1} | spec.pop("pool", {})
    if not {"allNodes", "nodeSelector", "perDeviceNodeSelection", "nodeName"} & spec.keys():
        spec["nodeName"] = name
    made = [device(one) if isinstance(one, str) else one for one in devices]
    return {
        "metadata": _meta(spec.pop("called", f"slice-{name}")),
        "spec": {"driver": DRIVER, "pool": pool, "devices": made, **spec},
    }


def request(name: str = "one", **exactly: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": CLASS, **exactly}}


def claim(name: str, *requests: Object, owner: str = "", **devices: Any) -> Object:
    meta = _meta(name, namespace=SPACE)
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "uid": f"uid-{owner}", "controller": True}]
    asked = list(requests) or [request()]
    return {"metadata": meta, "spec": {"devices": {"requests": asked, **devices}}, "status": {}}


def allocated(found: Object, *devices: str, node: str = "", by: tuple[str, ...] = ()) -> Object:
    """The same claim with devices of a pool that is called as its node."""
    results = [
        {"request": "one", "driver": DRIVER, "pool": node, "device": name} for name in devices
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    found["metadata"]["resourceVersion"] = str(next(_versions))
    found["status"] = {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"resource": "pods", "name": n, "uid": f"uid-{n}"} for n in by],
    }
    return found


def claiming(name: str, *claims: str, own: bool = False, **given: Any) -> Object:
    """A pod that claims devices: by name, or by claims that were made of a template for it."""
    asked = [
        {
            "name": f"c{n}",
            **({"resourceClaimTemplateName": "t"} if own else {"resourceClaimName": one}),
        }
        for n, one in enumerate(claims)
    ]
    made = pod(name, gpus=0, spec={"resourceClaims": asked}, **given)
    if own:
        made["status"]["resourceClaimStatuses"] = [
            {"name": f"c{n}", "resourceClaimName": one} for n, one in enumerate(claims)
        ]
    return made
