"""OpenPAI jobs, protocol version 2.

The task role called ``worker`` (or else the first) becomes the job's workers, the others become
roles. Templates are filled in here: parameters by their value, secrets by a variable of the same
name; its value is given when the job is submitted.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from roost.jobfile import yaml
from roost.jobfile.errors import Fault
from roost.jobfile.foreign.conversion import Conversion, ForeignFields, named
from roost.jobfile.yaml import YamlNode

_TEMPLATE = re.compile(r"<%\s*\$(\w+)\.([\w-]+)(?:\[(\d+)\])?\s*%>")
_PRIORITIES = {"test": 10, "prod": 50, "crit": 90}
_KINDS = ("data", "script", "output")


class _Role(NamedTuple):
    """A task role: its name here, its fields, what its scripts may refer to."""

    name: str
    fields: ForeignFields
    sku: str
    before: list[str]
    after: list[str]


class _Context:
    """The values that templates refer to."""

    def __init__(self, top: ForeignFields, out: Conversion) -> None:
        self.out = out
        self.parameters = _scalars(top.part("parameters"))
        self._secrets = top.part("secrets")
        self._secrets.drop(*self._secrets.names())
        self.used: dict[str, str] = {}
        self.addresses: dict[str, dict[str, list[str]]] = {}
        for item in top.parts("prerequisites"):
            self._add_prerequisite(item)

    def _add_prerequisite(self, item: ForeignFields) -> None:
        kind, name = item.text("type"), item.text("name")
        item.drop("protocolVersion", "version", "contributor", "description")
        node = item.take("uri")
        value = yaml.plain(node, as_text=True) if node else None
        uris = [str(uri) for uri in value] if isinstance(value, list) else [str(value or "")]
        self.addresses.setdefault(kind, {})[name] = uris

    def fill(self, text: str, role: ForeignFields, line: int) -> str:
        """A command with its templates filled in."""
        path, pieces, at, size = f"{role.path}.commands", list[str](), 0, 0
        for match in _TEMPLATE.finditer(text):
            pieces += [text[at : match.start()], self._value(match, role, line)]
            at, size = match.end(), size + len(pieces[-1])
            if size > yaml.MAX_TEXT:
                raise Fault(line, "the commands are too long with their templates filled in", path)
        pieces.append(text[at:])
        if unknown := next((piece for piece in pieces[::2] if "<%" in piece), ""):
            found = unknown[unknown.index("<%") :][:40]
            raise Fault(line, f"the template {found!r} is not known", path)
        return "".join(pieces)

    def _value(self, match: re.Match[str], role: ForeignFields, line: int) -> str:
        kind, key = match[1], match[2]
        if kind == "parameters" and key in self.parameters:
            return self.parameters[key]
        if kind == "secrets" and key in self._secrets:
            self.used[key] = re.sub(r"\W|-", "_", key).upper()
            return f"${{{self.used[key]}}}"
        if kind in _KINDS and key == "uri":
            uris = self.addresses.get(kind, {}).get(role.text(kind), [])
            at = int(match[3] or 0)
            if at < len(uris):
                return uris[at]
        raise Fault(line, f"the template {match[0]!r} refers to nothing", f"{role.path}.commands")


def convert(root: YamlNode) -> Conversion:
    """An OpenPAI job as a job file."""
    out = Conversion()
    top = out.read(root)
    if top.text("protocolVersion") not in ("2", "2.0"):
        raise Fault(top.line_of("protocolVersion"), "protocolVersion: only version 2 is converted")
    if top.text("type") not in ("", "job"):
        raise Fault(top.line_of("type"), "type: only jobs are converted", "type")
    top.drop("version", "contributor", "description")
    _put_name(top, out)
    context = _Context(top, out)
    first, *others = _roles(top, out)
    _put_role(first, "", context)
    for role in others:
        _put_role(role, f"roles.{role.name}.", context)
    _put_secrets(context)
    if (retries := top.whole("jobRetryCount")) is not None:
        out.put("retry", min(retries, 100), top.line_of("jobRetryCount"))
    return out.finish()


def _put_name(top: ForeignFields, out: Conversion) -> None:
    given = top.text("name")
    name = named(given)
    if given and name != given:
        out.note(top.line_of("name"), f"the name {given[:80]!r} becomes {name!r}")
    if given:
        out.put("name", name, top.line_of("name"))


def _roles(top: ForeignFields, out: Conversion) -> list[_Role]:
    roles = top.part("taskRoles")
    if not roles.names():
        raise top.fault("taskRoles", "at least one task role")
    defaults, extras = top.part("defaults"), top.part("extras")
    if queue := defaults.text("virtualCluster"):
        out.put("queue", queue, defaults.line_of("virtualCluster"))
    if extras.truth("gangAllocation") is False:
        out.note(extras.line_of("gangAllocation"), "all workers start together, always")
    hived = extras.part("hivedScheduler")
    _put_priority(hived, out)
    skus = hived.part("taskRoles")
    deployment = _deployment(top, defaults.text("deployment"), out)
    names = sorted(roles.names(), key=lambda name: name != "worker")
    found = []
    for name in names:
        extra = deployment.part(name)
        found.append(
            _Role(
                named(name, "role"),
                roles.part(name),
                skus.part(name).text("skuType"),
                extra.texts("preCommands"),
                extra.texts("postCommands"),
            )
        )
    return found


def _put_priority(hived: ForeignFields, out: Conversion) -> None:
    given = hived.text("jobPriorityClass")
    if given == "oppo":
        out.put("guest", value=True, line=hived.line_of("jobPriorityClass"))
    elif given in _PRIORITIES:
        out.put("priority", _PRIORITIES[given], hived.line_of("jobPriorityClass"))
        out.note(
            hived.line_of("jobPriorityClass"),
            f"the priority class {given} becomes priority {_PRIORITIES[given]}",
        )
    elif given:
        out.note(hived.line_of("jobPriorityClass"), "the priority class is not converted")


def _deployment(top: ForeignFields, name: str, out: Conversion) -> ForeignFields:
    """The task roles of the chosen deployment."""
    chosen = None
    for item in top.parts("deployments"):
        if item.text("name") == name and name:
            chosen = item.part("taskRoles")
        else:
            item.drop(*item.names())
    return chosen or out.read(None)


def _put_role(role: _Role, prefix: str, context: _Context) -> None:
    fields, out = role.fields, context.out
    line = fields.line_of("commands")
    commands = [*role.before, *fields.texts("commands"), *role.after]
    if not commands:
        raise fields.fault("commands", "a list of commands")
    script = context.fill("\n".join(commands), fields, line)
    fields.drop(*_KINDS)
    if "PAI_" in script:
        out.note(line, "PAI_* variables are not set; use RANK, WORLD_SIZE, MASTER_ADDR")
    out.put(f"{prefix}run", script, line)
    instances = fields.whole("instances", 1)
    out.put(f"{prefix}workers", 1 if instances is None else instances, fields.line_of("instances"))
    _put_resources(role, prefix, out)
    image = context.addresses.get("dockerimage", {}).get(fields.text("dockerImage"))
    if image and not prefix:
        out.put("image", image[0], fields.line_of("dockerImage"))


def _put_resources(role: _Role, prefix: str, out: Conversion) -> None:
    given = role.fields.part("resourcePerInstance")
    count = given.whole("gpu") or 0
    gpu: Any = f"{role.sku}:{count}" if role.sku and count else count
    if role.sku:
        out.note(given.line, f"the skuType {role.sku[:60]!r} is taken for a GPU kind")
    out.put(f"{prefix}resources.gpu", gpu, given.line_of("gpu"))
    if cpu := given.whole("cpu"):
        out.put(f"{prefix}resources.cpu", cpu, given.line_of("cpu"))
    if memory := given.whole("memoryMB"):
        out.put(f"{prefix}resources.memory", f"{memory}Mi", given.line_of("memoryMB"))
    options = role.fields.part("extraContainerOptions")
    if shared := options.whole("shmMB"):
        out.put(f"{prefix}resources.shm_size", f"{shared}Mi", options.line_of("shmMB"))


def _put_secrets(context: _Context) -> None:
    if not context.used:
        return
    context.out.put("secrets", sorted(set(context.used.values())))
    for key, name in sorted(context.used.items()):
        context.out.note(0, f"the secret {key!r} becomes the variable {name}; give its value anew")


def _scalars(fields: ForeignFields) -> dict[str, str]:
    return {key: fields.text(key) for key in fields.names()}
