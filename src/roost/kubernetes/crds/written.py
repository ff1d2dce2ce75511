"""Objects as YAML text: what ``roost kubernetes crds`` prints and ``deploy/`` keeps."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from roost.kubernetes.client.kinds import Object


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice twice: people read it, and anchors are for machines."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        """No value is referred to."""
        return True


def as_yaml(objects: Iterable[Object]) -> str:
    """Several objects in one text, keys in their order."""
    return yaml.dump_all(
        objects, Dumper=_Plain, sort_keys=False, width=100, explicit_start=True, allow_unicode=True
    )
