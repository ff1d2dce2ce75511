"""What holds between fields of an object, in the language of the API server (CEL).

Every rule bounds its work by the bounds of the fields it reads, as the API server demands, and
says in one sentence what to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.jobfile import fields
from roost.kubernetes.crds.fields import MAX_NAME

Rule = dict[str, Any]

#: What may change in a Job that exists; everything else may not.
CHANGEABLE = frozenset({"suspend", "replicas", "ttl", "labels"})


def rule(expression: str, message: str, field: str = "") -> Rule:
    """One rule; ``field`` is the path that the refusal names."""
    made = {"rule": expression, "message": message}
    return {**made, "fieldPath": field} if field else made


def frozen(optional: Mapping[str, bool]) -> list[Rule]:
    """A rule for each field that stays as it was when the object was made."""
    return [
        rule(
            f"has(self.{name}) == has(oldSelf.{name})"
            f" && (!has(self.{name}) || self.{name} == oldSelf.{name})"
            if may_lack
            else f"self.{name} == oldSelf.{name}",
            "cannot change once the job exists; delete it and apply it anew",
            f".{name}",
        )
        for name, may_lack in optional.items()
    ]


_WORKERS = "type(self.workers) == string"
_LOW = f"({_WORKERS} ? int(string(self.workers).split('..')[0]) : int(self.workers))"
_HIGH = (
    f"({_WORKERS} ? int(string(self.workers).split('..')[string(self.workers).contains('..')"
    " ? 1 : 0]) : int(self.workers))"
)
_SOUND = (
    f"({_WORKERS} ? string(self.workers).matches('^[0-9]{{1,5}}([.][.][0-9]{{1,5}})?$') : true)"
)
_RESERVED = "|".join(sorted(fields.RESERVED))
_VARIABLE = "^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_ROLE = "^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$"
_LABEL = "^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$"
_SEVERAL = "(^|:)([2-9]|[1-9][0-9]+)([.][.][0-9]+)?$"

#: Rules of the whole spec of a Job.
JOB: tuple[Rule, ...] = (
    rule(
        "(has(self.run) && self.run.trim() != '') != has(self.command)",
        "give either run (a script) or command (a list), exactly one of them",
        ".run",
    ),
    rule(
        f"!{_SOUND} || (1 <= {_LOW} && {_LOW} <= {_HIGH} && {_HIGH} <= 10000)",
        "a number of workers such as 4, or a range such as 1..4, from 1 to 10000",
        ".workers",
    ),
    rule(
        f"!has(self.replicas) || !{_SOUND}"
        f" || ({_LOW} <= self.replicas && self.replicas <= {_HIGH})",
        "replicas must be within the range of workers",
        ".replicas",
    ),
    rule(
        "!self.guest || self.priority == 0",
        "a guest comes after all jobs that are none: leave out priority or guest",
        ".priority",
    ),
    rule(
        "!self.guest || !has(self.cell)",
        "a guest uses no promise to its queue, so no cell either: leave out cell or guest",
        ".cell",
    ),
    rule(
        "!self.guest || self.preemptible",
        "a guest makes room for all jobs that are none: leave out preemptible or guest",
        ".preemptible",
    ),
    rule(
        "!has(self.gpus) || !has(self.resources)"
        " || (!has(self.resources.gpu) && !has(self.resources.any_of))",
        "gpus and resources.gpu say the same; give one of them",
        ".gpus",
    ),
    rule(
        "!has(self.sharing) || !has(self.sharing.cores) || !has(self.gpus) || self.gpus == 1.0"
        " || (self.gpus > 0.0 && self.gpus < 1.0)",
        "sharing.cores is a part of one GPU; gpus asks otherwise",
        ".sharing.cores",
    ),
    rule(
        "!has(self.sharing) || !has(self.sharing.cores) || !has(self.resources)"
        " || !has(self.resources.gpu) || (type(self.resources.gpu) == string"
        f" ? !string(self.resources.gpu).matches('{_SEVERAL}') : int(self.resources.gpu) == 1)",
        "sharing.cores is a part of one GPU; resources.gpu asks otherwise",
        ".sharing.cores",
    ),
    rule(
        f"!has(self.env) || self.env.all(name, name.matches('{_VARIABLE}'))",
        "names of variables have letters, digits and _",
        ".env",
    ),
    rule(
        "!has(self.env) || self.env.all(name, !name.startsWith('ROOST_')"
        f" && !name.matches('^({_RESERVED})$'))",
        "Roost itself sets this variable; choose another name",
        ".env",
    ),
    rule(
        "!has(self.env) || !has(self.secrets) || !self.secrets.exists(name, name in self.env)",
        "a variable is either in env or in secrets",
        ".secrets",
    ),
    rule(
        f"!has(self.roles) || self.roles.all(name, name != 'worker' && name.matches('{_ROLE}'))",
        "names of roles have lower-case letters, digits and dashes; worker is the job itself",
        ".roles",
    ),
    rule(
        f"!has(self.labels) || self.labels.all(name, name.matches('{_LABEL}'))",
        "keys of labels have letters, digits and . _ / -",
        ".labels",
    ),
)

_RANGE = "string(self.gpu).find('[0-9]+[.][.][0-9]+$')"

#: Rules of sections, by the name of the section.
BETWEEN: dict[str, list[Rule]] = {
    "workdir": [
        rule(
            "[has(self.path), has(self.git), has(self.sent)].filter(given, given).size() == 1",
            "give either path (a folder) or git (an address), exactly one of them",
        ),
        rule("has(self.sent) == has(self.parcels)", "sent and parcels go together"),
        rule("!has(self.ref) || has(self.git)", "ref goes with git"),
    ],
    "resources": [
        rule(
            "!has(self.gpu) || !has(self.any_of)",
            "any_of and gpu say the same; give one of them",
        ),
        rule(
            f"!has(self.gpu) || type(self.gpu) != string || {_RANGE} == ''"
            f" || int({_RANGE}.split('..')[0]) <= int({_RANGE}.split('..')[1])",
            "the lower end of a range comes first",
        ),
    ],
    "training": [
        rule("has(self.batch)", "training needs batch, the samples of a step of all workers"),
        rule(
            "!has(self.batch) || !has(self.batch_max) || self.batch_max >= self.batch",
            "batch_max is below batch",
        ),
        rule(
            "!has(self.batch) || !has(self.micro) || self.micro <= self.batch",
            "micro is above batch",
        ),
    ],
    "roles.*": [
        rule("!has(self.run) || !has(self.command)", "run and command exclude each other"),
        rule(
            "!has(self.gpus) || !has(self.resources)"
            " || (!has(self.resources.gpu) && !has(self.resources.any_of))",
            "gpus and resources.gpu say the same; give one of them",
        ),
    ],
}

#: Rules of a Job with its metadata.
WHOLE_JOB: tuple[Rule, ...] = (
    rule(
        f"self.metadata.name.size() <= {MAX_NAME}"
        " && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",
        f"the name of a job has at most {MAX_NAME} lower-case letters, digits and dashes",
    ),
)

#: Rules of one promise of cells.
CELL_PROMISE: tuple[Rule, ...] = (
    rule(
        "has(self.level) != has(self.name)",
        "a promise of cells has either a level or the name of one cell",
    ),
    rule(
        "!has(self.name) || !(has(self.count) || has(self.kind) || has(self.gpus)"
        " || has(self.tree))",
        "a cell with a name is one cell: count, kind, gpus and tree do not go with it",
        ".name",
    ),
)

#: Rules of a ClusterQueue's spec.
CLUSTER_QUEUE: tuple[Rule, ...] = (
    *(
        rule(
            f"!has(self.{name}) || self.{name} == double(int(self.{name} * 1000.0 + 0.5)) / 1000.0",
            "GPUs with at most three digits after the point",
            f".{name}",
        )
        for name in ("quota", "limit", "lending")
    ),
    rule(
        "!has(self.quota) || !has(self.limit) || self.quota <= self.limit",
        "the quota is above the limit",
        ".quota",
    ),
    rule(
        "!has(self.lending) || (has(self.quota) && has(self.parent) && self.lending <= self.quota)",
        "what it lends is a part of its quota, and goes through a parent",
        ".lending",
    ),
    rule(
        "!has(self.cells) || self.cells.all(one, !has(one.name) ||"
        " self.cells.exists_one(other, has(other.name) && other.name == one.name))",
        "a cell with a name is promised once",
        ".cells",
    ),
)
