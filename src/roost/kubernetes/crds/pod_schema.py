"""What users may set of the pods of their job, and nothing more.

The operator makes the pods: names, containers, resources, restarts and the scheduler are its own.
What is listed here is handed on as it is, in the words of Kubernetes. What would leave the
sandbox of a pod (host namespaces, host paths, privileges) is not listed, so the API server
refuses it as an unknown field.
"""

from __future__ import annotations

from roost.kubernetes.crds.fields import Schema, listed, text, whole

_NAME = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
_KEY = 317  # a prefix, a slash and a name
_VALUE = 63
_MOST = 64
_RESERVED = "^([^/]*[.])?(roost[.]dev|k8s[.]io|kubernetes[.]io)/"
_SOURCES = ("persistentVolumeClaim", "configMap", "secret", "emptyDir", "ephemeral")


def pod_schema() -> Schema:
    """The schema of ``spec.pod``."""
    return _object(
        "What to set of the workers' pods.",
        labels=_foreign("Further labels of the pods."),
        annotations=_foreign("Further annotations of the pods.", 65_536),
        nodeSelector=_texts("Labels that a node must have."),
        tolerations=listed(_TOLERATION, _MOST, "Taints that the pods bear."),
        affinity=_object("Which nodes will do.", nodeAffinity=_NODE_AFFINITY),
        volumes=listed(_volume(), _MOST, "Volumes of each pod."),
        volumeMounts=listed(_MOUNT, _MOST, "Where the volumes are in each container."),
        imagePullSecrets=listed(
            _object("A Secret.", required=("name",), name=_name("Its name.")),
            16,
            "Secrets for the registry of the image.",
        ),
        imagePullPolicy=_one_of(("Always", "IfNotPresent", "Never"), "When the image is pulled."),
        serviceAccountName=_name("Whom the pods act as."),
        priorityClassName=_checked(
            _name("Their priority class."),
            "!self.startsWith('system-')",
            "classes of the system are for the cluster's own pods",
        ),
        runtimeClassName=_name("Their runtime class."),
        securityContext=_security(),
    )


def _object(description: str, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    made: Schema = {"type": "object", "description": description, "properties": properties}
    return {**made, "required": list(required)} if required else made


def _name(description: str) -> Schema:
    return text(253, description, pattern=_NAME)


def _checked(schema: Schema, rule: str, message: str) -> Schema:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, "message": message}]}


def _texts(description: str) -> Schema:
    return {
        "type": "object",
        "additionalProperties": text(_KEY, "A value."),
        "maxProperties": _MOST,
        "description": description,
    }


def _foreign(description: str, most: int = _VALUE) -> Schema:
    """Keys of the users' own: those of Roost and Kubernetes steer pods."""
    made = _texts(description)
    made["additionalProperties"] = text(most, "A value.")
    made["x-kubernetes-validations"] = [
        {
            "rule": f"self.all(key, !key.matches('{_RESERVED}'))",
            "message": "keys of roost.dev, k8s.io and kubernetes.io cannot be set",
        }
    ]
    return made


def _one_of(words: tuple[str, ...], description: str) -> Schema:
    return {"type": "string", "enum": list(words), "description": description}


def _truth(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def _quantity(description: str) -> Schema:
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?$",
        "maxLength": _MOST,
        "description": description,
    }


_TOLERATION = _object(
    "A taint that is borne.",
    key=text(_KEY, "The key; none means every taint."),
    operator=_one_of(("Exists", "Equal"), "Equal unless given."),
    value=text(_VALUE, "The value."),
    effect=_one_of(("NoSchedule", "PreferNoSchedule", "NoExecute"), "The effect; none means all."),
    tolerationSeconds={
        "type": "integer",
        "format": "int64",
        "description": "For how long, with NoExecute.",
    },
)

_REQUIREMENT = _object(
    "A requirement.",
    ("key", "operator"),
    key=text(_KEY, "A label, or a field."),
    operator=_one_of(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), "How to compare."),
    values=listed(text(253, "A value."), 256, "With what."),
)

_TERM = _object(
    "All of these hold.",
    matchExpressions=listed(_REQUIREMENT, _MOST, "Of labels."),
    matchFields=listed(_REQUIREMENT, _MOST, "Of fields; metadata.name is the only one."),
)

_NODE_AFFINITY = _object(
    "By labels of nodes.",
    requiredDuringSchedulingIgnoredDuringExecution=_object(
        "Only these nodes.",
        ("nodeSelectorTerms",),
        nodeSelectorTerms=listed(_TERM, 32, "Any of these.", minItems=1),
    ),
)

_MOUNT = _object(
    "Where a volume is.",
    ("name", "mountPath"),
    name=text(_VALUE, "The volume."),
    mountPath=_checked(
        text(1_024, "The folder in the container.", pattern=r"^/.*[^/]"),
        "(self == '/dev/shm' || !self.matches('^/(roost|proc|sys|dev)(/|$)'))"
        " && !self.split('/').exists(part, part == '..')",
        "a folder other than /roost, /proc, /sys and /dev, without ..",
    ),
    subPath=text(4_096, "A folder of the volume."),
    readOnly=_truth("Whether nothing can be written."),
)


def _volume() -> Schema:
    mode = whole(0, 0o777, "Permissions of its files.")
    items = listed(
        _object(
            "A key as a file.",
            ("key", "path"),
            key=text(253, "The key."),
            path=text(4_096, "The file."),
            mode=mode,
        ),
        256,
        "Which keys; all unless given.",
    )
    optional = _truth("Whether it may be missing.")
    made = _object(
        "A volume, of exactly one source.",
        ("name",),
        name=_checked(
            text(_VALUE, "Its name.", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"),
            "!self.startsWith('roost-')",
            "names that begin with roost- are Roost's own",
        ),
        persistentVolumeClaim=_object(
            "A claim of this namespace.",
            ("claimName",),
            claimName=_name("Its name."),
            readOnly=_truth("Whether nothing can be written."),
        ),
        configMap=_object(
            "A ConfigMap of this namespace.",
            ("name",),
            name=_name("Its name."),
            items=items,
            defaultMode=mode,
            optional=optional,
        ),
        secret=_object(
            "A Secret of this namespace.",
            ("secretName",),
            secretName=_name("Its name."),
            items=items,
            defaultMode=mode,
            optional=optional,
        ),
        emptyDir=_object(
            "An empty folder that goes with the pod.",
            medium=_one_of(("", "Memory"), "Where it is."),
            sizeLimit=_quantity("How large it may become."),
        ),
        ephemeral=_object(
            "A claim that goes with the pod.",
            ("volumeClaimTemplate",),
            volumeClaimTemplate=_claim(),
        ),
    )
    counted = " + ".join(f"(has(self.{source}) ? 1 : 0)" for source in _SOURCES)
    made["x-kubernetes-validations"] = [
        {
            "rule": f"{counted} == 1",
            "message": "a volume has exactly one of persistentVolumeClaim, configMap, secret,"
            " emptyDir and ephemeral",
        }
    ]
    return made


def _claim() -> Schema:
    return _object(
        "The claim.",
        ("spec",),
        metadata=_object("Its labels.", labels=_texts("Labels."), annotations=_texts("Notes.")),
        spec=_object(
            "What is claimed.",
            ("accessModes", "resources"),
            accessModes=listed(
                _one_of(
                    ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
                    "Who may use it.",
                ),
                4,
                "Who may use it.",
            ),
            resources=_object(
                "How large.",
                ("requests",),
                requests=_object("How large.", ("storage",), storage=_quantity("Bytes.")),
            ),
            storageClassName=_name("Its class."),
            volumeMode=_one_of(("Filesystem",), "As files."),
        ),
    )


def _security() -> Schema:
    account = {"type": "integer", "format": "int64", "minimum": 1, "maximum": 2**31 - 1}
    return _object(
        "Who the processes are; privileges and namespaces of the host cannot be had.",
        runAsUser={**account, "description": "The user's number."},
        runAsGroup={**account, "description": "The group's number."},
        runAsNonRoot=_truth("Refuse to run as root."),
        fsGroup={**account, "description": "The group of volumes."},
        fsGroupChangePolicy=_one_of(("OnRootMismatch", "Always"), "When volumes change group."),
        supplementalGroups=listed(
            {**account, "description": "A group."}, _MOST, "Further groups of the processes."
        ),
        seccompProfile=_object(
            "Which system calls they may make.",
            ("type",),
            type=_one_of(("RuntimeDefault", "Localhost"), "Unconfined cannot be had."),
            localhostProfile=text(4_096, "A file of the node."),
        ),
    )
