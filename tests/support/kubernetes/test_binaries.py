from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from tests.support.kubernetes import binaries
from tests.support.kubernetes.binaries import Shown, Unbuilt, build, cache, find, version

from roost.errors import NotFound

#: A Go that writes down what it was asked, and makes programs that say which build they are of.
GO = """#!/bin/sh
echo "$@" >> "{log}"
[ -e "{log}.fail" ] && {{ echo "no such module" >&2; exit 3; }}
if [ "$1" = install ]; then out="$GOBIN/kwok"; else
  while [ "$1" != -o ]; do shift; done; out="$2"; fi
printf '#!/bin/sh\\n' > "$out"; chmod +x "$out"
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log = tmp_path / "asked"
    for name, text in (("go", GO.format(log=log)), ("etcd", "#!/bin/sh\n")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("ROOST_KUBERNETES_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(binaries, "_LOOK_S", 0.01)
    return log


def _ignore(_: str, __: float) -> None: ...


def test_what_is_missing_is_built_once(go: Path) -> None:
    assert find() is None
    built = build(_ignore)
    assert built == find() == build(_ignore)
    assert built.apiserver.name == "kube-apiserver"
    assert built.apiserver.resolve() == cache() / "controlplane"
    assert built.kubelet is not None
    assert built.kubelet.resolve() == cache() / "node"
    assert len(go.read_text().splitlines()) == 3
    assert f"gitVersion={version()}" in go.read_text()
    assert not list(cache().glob("building-*"))


def test_other_sources_are_built_anew(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(_ignore)
    monkeypatch.setattr(binaries, "_FLAGS", ("-race",))
    assert find() is None
    build(_ignore)
    assert find() is not None
    assert [line.split()[0] for line in go.read_text().splitlines()] == [
        *("build", "build", "install"),
        *("build", "build"),
    ]


def test_builders_wait_for_each_other(go: Path) -> None:
    threads = [threading.Thread(target=build, args=(_ignore,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(go.read_text().splitlines()) == 3


def test_a_failed_build_says_what_go_said_and_leaves_nothing(go: Path) -> None:
    go.with_name("asked.fail").touch()
    with pytest.raises(Unbuilt, match=r"ended with 3:\nno such module"):
        build(_ignore)
    assert find() is None
    assert [path.name for path in cache().iterdir()] == ["lock"]


def test_without_go_the_error_says_what_to_install(
    go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (go.parent / "bin/go").unlink()
    monkeypatch.setenv("PATH", f"{go.parent}/bin")
    with pytest.raises(NotFound, match="install Go"):
        build(_ignore)


def test_assets_of_others_come_first(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = go.parent / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "kwok"):
        (assets / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    found = find()
    assert found is not None
    assert found.apiserver == assets / "kube-apiserver"
    assert found.scheduler is None
    assert not go.exists()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_that_changes_or_one_every_15_seconds() -> None:
    terminal, file = _Terminal(), io.StringIO()
    for stream in (terminal, file):
        shown = Shown(stream)
        for second in range(40):
            shown("building", second)
        shown.close()
    assert file.getvalue().splitlines() == ["building: 0 s", "building: 15 s", "building: 30 s"]
    assert terminal.getvalue().endswith("building: 39 s\n")
    assert terminal.getvalue().count("\n") == 1
