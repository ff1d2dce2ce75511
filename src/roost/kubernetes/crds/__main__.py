"""Write the generated files of ``deploy/``: ``python -m roost.kubernetes.crds``."""

from __future__ import annotations

import sys
from pathlib import Path

from roost.kubernetes.crds import as_yaml, definitions
from roost.kubernetes.crds.permissions import (
    AGENT,
    CLUSTER,
    LOCAL,
    NAMESPACED,
    READERS,
    UNCONFINED,
    USERS,
    VIEWERS,
    agent_role,
    confined_role,
    namespace_role,
    roles,
)

NAMESPACE = "roost-system"
_HEAD = "# Made by python -m roost.kubernetes.crds; do not edit.\n"


def files() -> dict[str, str]:
    """Every generated file below ``deploy/``, with its text."""
    crds = _HEAD + as_yaml(definitions())
    rules = {
        "cluster": CLUSTER,
        "unconfined": UNCONFINED,
        "namespaced": NAMESPACED,
        "local": LOCAL,
        "edit": USERS,
        "view": VIEWERS,
        "reader": READERS,
        "agent": AGENT,
    }
    return {
        "crds/roost.dev.yaml": crds,
        # Twice: a chart cannot take files from outside of its folder.
        "helm/roost/crds/roost.dev.yaml": crds,
        "operator/roles.yaml": _HEAD + as_yaml(roles(NAMESPACE)),
        "agent/role.yaml": _HEAD + as_yaml([agent_role()]),
        "components/confined/role.yaml": _HEAD + as_yaml([confined_role()]),
        "namespace/role.yaml": _HEAD + as_yaml([namespace_role()]),
        **{
            # Rules alone, no document: templates/roles.yaml puts them under a name of its own.
            f"helm/roost/files/{name}.yaml": _HEAD
            + as_yaml([{"rules": [grant.rule for grant in grants]}]).removeprefix("---\n")
            for name, grants in rules.items()
        },
    }


def main() -> None:
    """Write them all below the folder that is named, ``deploy`` unless it is."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "deploy")
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
