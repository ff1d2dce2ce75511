"""The structural schema of a Job's spec, made from the job file's model.

The model says which fields there are, which words are allowed and what is left out by default;
``fields`` says how each is spelled in an object, and ``rules`` what holds between them. A field
that the model gains appears here by itself where its type is plain, and is refused loudly where
it is not: it cannot be forgotten.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from roost.errors import Fatal
from roost.jobfile import JobFile, grammar
from roost.jobfile.sections import WorkdirSection
from roost.kubernetes.crds import rules
from roost.kubernetes.crds.fields import (
    OWN,
    RESOURCES,
    Schema,
    duration,
    gpus,
    text,
    whole,
)
from roost.kubernetes.crds.pod_schema import pod_schema

#: Fields of the job file that have another name in an object: ``suspend`` there is a command.
RENAMED = {"suspend": "when_suspended"}
#: What is not in the spec, because it is in the metadata.
IN_METADATA = frozenset({"name"})
#: What an object has beyond a job file.
BEYOND: dict[str, Schema] = {
    "suspend": {
        "type": "boolean",
        "default": False,
        "description": "Whether the job is to be off its devices until this is false again.",
    },
    "replicas": whole(
        *(1, grammar.MAX_WORKERS),
        "The workers to run with, within the range of workers; kubectl scale sets it. Without it"
        " the policy decides.",
    ),
    "ttl": duration("After its end the object is deleted when this has passed."),
    "secrets_from": text(
        *(253, "The Secret that has the values of secrets; otherwise <name of the job>-secrets."),
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
    ),
}
_KEPT = ("type", "enum", "items", "additionalProperties", "format")


@functools.cache
def _model() -> dict[str, Any]:
    return JobFile.model_json_schema(mode="serialization", by_alias=True)


def spec_schema() -> Schema:
    """The schema of a Job's ``spec``."""
    own = {
        RENAMED.get(name, name): schema
        for name, schema in _properties(_model(), "").items()
        if name not in IN_METADATA
    }
    return {
        "type": "object",
        "description": "What to run and what it needs, in the words of the job file.",
        "properties": {**own, **_shortcut(), **BEYOND, "pod": pod_schema()},
        "x-kubernetes-validations": [*rules.JOB, *rules.frozen(_optional(own))],
    }


def _optional(own: dict[str, Schema]) -> dict[str, bool]:
    """Each field that cannot change, and whether it may be left out."""
    every = {**own, **_shortcut(), "secrets_from": {}, "pod": {}}
    return {
        name: "default" not in schema
        for name, schema in every.items()
        if name not in rules.CHANGEABLE
    }


def _shortcut() -> dict[str, Schema]:
    return {"gpus": gpus("GPUs of each worker: a number, or a share of one such as 0.5.")}


def _properties(of: Schema, path: str) -> dict[str, Schema]:
    return {
        name: _field(schema, f"{path}.{name}" if path else name)
        for name, schema in of["properties"].items()
    }


def _field(given: Schema, path: str) -> Schema:
    """One field: what the model says of it, and what stands in ``OWN`` over that."""
    bare = next(_alternatives(given))
    own = OWN.get(path, {})
    if "x-kubernetes-int-or-string" in own or "type" in own:
        found = own
    elif "properties" in bare or "$workdir" in bare:
        found = {**_section(bare, path), **own}
    elif path in _MAPS:
        values = next(_alternatives(bare["additionalProperties"]))
        found = {"type": "object", "additionalProperties": _section(values, f"{path}.*"), **own}
    else:
        found = {**{key: bare[key] for key in _KEPT if key in bare}, **own}
    if "type" not in found and "x-kubernetes-int-or-string" not in found:
        raise Fatal(f"the field {path} of the job file has no place in a Job object")
    usual = given.get("default")
    return {**found, "default": usual} if _is_plain(usual) else found


#: Mappings with a section for each key.
_MAPS = frozenset({"roles"})
_WORKDIR = ("path", "git", "ref", "sent", "parcels")


def _section(bare: Schema, path: str) -> Schema:
    if "$workdir" in bare:
        properties = {name: OWN[f"{path}.{name}"] for name in _WORKDIR}
    else:
        properties = _properties(bare, path)
    if path.endswith("resources"):
        properties["any_of"] = RESOURCES["any_of"]
    if path.endswith(".*"):
        properties |= _shortcut()
    made: Schema = {"type": "object", "properties": properties}
    if bare.get("description"):
        made["description"] = bare["description"]
    if between := rules.BETWEEN.get(path.rpartition(".")[2] if path != "roles.*" else path):
        made["x-kubernetes-validations"] = between
    return made


def _alternatives(schema: Schema) -> Iterator[Schema]:
    """What a field may be, other than nothing, with references followed."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        target = _model()["$defs"][name]
        # The model writes a folder as a text, for people; an object has the mapping.
        yield {"$workdir": True, **target} if name == WorkdirSection.__name__ else target
        return
    for option in schema.get("anyOf", [schema]):
        if option.get("type") != "null":
            if "$ref" in option:
                yield from _alternatives(option)
            else:
                yield option


def _is_plain(usual: Any) -> bool:
    """Whether a default is worth writing into every object: a word or a number."""
    return isinstance(usual, bool | int | float) or (isinstance(usual, str) and usual != "")
