from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kubernetes import binaries, controller_programs
from tests.support.kubernetes.binaries import Unbuilt, cache
from tests.support.kubernetes.controller_programs import build_controllers, main

from roost.errors import NotFound

#: A Go that writes down what it was asked, and knows a folder with the manifests of all modules.
GO = """#!/bin/sh
echo "$@" >> "{log}"
case "$1" in
build)
  while [ "$1" != -o ]; do shift; done
  printf '#!/bin/sh\\n' > "$2"; chmod +x "$2" ;;
*)
  [ -e "{log}.fail" ] && {{ echo "no such module" >&2; exit 1; }}
  echo '{{"Dir": "{sources}"}}' ;;
esac
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log, sources = tmp_path / "asked", tmp_path / "sources"
    for _, paths in controller_programs._MANIFESTS.values():
        for path in paths:
            file = sources / path if path.endswith(".yaml") else sources / path / "kinds.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("kind: Something\n")
            (file.parent / "kustomization.yaml").write_text("kind: Kustomization\n")
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(GO.format(log=log, sources=sources))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("ROOST_KUBERNETES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "_LOOK_S", 0.01)
    return log


def _ignore(_: str, __: float) -> None: ...


def test_they_are_built_once_and_bring_their_manifests(go: Path) -> None:
    built = build_controllers(_ignore)
    asked = go.read_text()
    assert build_controllers(_ignore) == built
    assert go.read_text() == asked
    assert built.karpenter.resolve() == built.controllers
    files = {path.relative_to(built.manifests).as_posix() for path in built.manifests.rglob("*.*")}
    assert {"jobset/manifests.yaml", "ray/kinds.yaml", "karpenter/kinds.yaml"} <= files
    assert not [file for file in files if "kustomization" in file]
    assert not list(cache().glob("building-*"))


def test_manifests_that_are_not_to_be_had_are_named_and_nothing_is_left(go: Path) -> None:
    go.with_name("asked.fail").touch()
    with pytest.raises(Unbuilt, match=r"training-operator are not there: no such module"):
        build_controllers(_ignore)
    assert not list(cache().glob("building-*"))
    assert not list(cache().glob("manifests-*"))


def test_without_go_the_command_says_what_is_skipped(
    go: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (go.parent / "bin/go").unlink()
    monkeypatch.setenv("PATH", f"{go.parent}/bin")
    with pytest.raises(NotFound, match="install Go"):
        build_controllers(_ignore)
    main()
    assert "Tests with controllers of other projects will be skipped" in capsys.readouterr().err
